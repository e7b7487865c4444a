package meta

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/varvelog/varve/meta/conf"
)

// VersionFeature is the feature whose level says which commands and snapshots
// may be written: every registered broker can read them. A new release takes
// its place in a running cluster at the level of the release before; the level
// is raised once they all run it (KIP-584).
const VersionFeature = "varve.version"

// The levels of VersionFeature. Format: do not renumber.
const (
	levelOneNode  int16 = 1 // one node: commands 1 to 11 as they first were
	levelClusters int16 = 2 // clusters: descriptions of brokers, features, reassignments
	// several listeners of a broker
	levelListeners int16 = 3
	levelQuotas    int16 = 4 // quotas of clients

	// levelRelease is the newest that this release writes: a new cluster is at it.
	levelRelease = levelQuotas
)

// Feature is a feature that this release has, with the levels it can be at.
type Feature struct {
	Name     string
	Min, Max int16
	// Initial is the level of a cluster that has not been told another.
	Initial int16
	// Fixed features are not lowered: this release has no way to do without.
	Fixed bool
}

// Features returns what this release has, by name. The names and levels are
// Kafka 4.4's, but for varve.version.
func Features() []Feature { return slices.Clone(features) }

var features = []Feature{
	{Name: "eligible.leader.replicas.version", Min: 0, Max: 1, Initial: 1, Fixed: true},
	{Name: "group.version", Min: 0, Max: 1, Initial: 1, Fixed: true},
	{Name: "kraft.version", Min: 0, Max: 1, Initial: 0, Fixed: true},
	{Name: "metadata.version", Min: 7, Max: 33, Initial: 33, Fixed: true}, // 3.3-IV3 to 4.4-IV2
	{Name: "share.version", Min: 0, Max: 2, Initial: 2, Fixed: true},
	{Name: "streams.version", Min: 0, Max: 1, Initial: 1, Fixed: true},
	{Name: "transaction.version", Min: 0, Max: 2, Initial: 2},
	{Name: VersionFeature, Min: levelOneNode, Max: levelMax, Initial: levelOneNode},
}

// FeatureRange is the levels of a feature that a broker can be at.
type FeatureRange struct{ Min, Max int16 }

// supportedFeatures is what this release's brokers register with.
func supportedFeatures() map[string]FeatureRange {
	m := make(map[string]FeatureRange, len(features))
	for _, f := range features {
		m[f.Name] = FeatureRange{f.Min, f.Max}
	}
	return m
}

// FeatureLevel is the level a feature is at; 0 is off.
func (img *Image) FeatureLevel(name string) int16 {
	if level, ok := img.features[name]; ok {
		return level
	}
	for _, f := range features {
		if f.Name == name {
			return f.Initial
		}
	}
	return 0
}

// level is that of VersionFeature.
func (img *Image) level() int16 { return img.FeatureLevel(VersionFeature) }

// FeaturesEpoch changes with every change of a level.
func (img *Image) FeaturesEpoch() int64 { return img.featuresEpoch }

// FeatureUpgrade says in which direction a level may move. Kafka's numbers.
type FeatureUpgrade int8

// The kinds of FeatureUpdate.
const (
	UpgradeFeature         FeatureUpgrade = 1
	SafelyDowngradeFeature FeatureUpgrade = 2
	// UnsafelyDowngradeFeature also gives up what the lower level cannot say.
	UnsafelyDowngradeFeature FeatureUpgrade = 3
)

// FeatureUpdate asks for another level of a feature.
type FeatureUpdate struct {
	Name    string
	Level   int16
	Upgrade FeatureUpgrade
}

// decideFeatures decides on new levels: all of them, or none. The error names
// the first that cannot be.
func decideFeatures(img *Image, self int32, updates []FeatureUpdate) ([]Change, error) {
	var changes []Change
	seen := make(map[string]bool)
	for _, u := range updates {
		if seen[u.Name] {
			return nil, refuse(ErrInvalidRequest, "Feature %s is named twice.", u.Name)
		}
		seen[u.Name] = true
		if err := checkFeature(img, self, u); err != nil {
			return nil, err
		}
		if img.FeatureLevel(u.Name) != u.Level {
			changes = append(changes, SetFeature{Name: u.Name, Level: u.Level})
		}
	}
	if len(changes) > 0 && img.level() < levelClusters && !raisesLevel(changes) {
		return nil, refuse(ErrInvalidUpdateVersion, "Levels cannot be changed before %s is %d.", VersionFeature, levelClusters)
	}
	return changes, nil
}

func checkFeature(img *Image, self int32, u FeatureUpdate) error {
	invalid := func(format string, args ...any) error {
		return refuse(ErrInvalidUpdateVersion, "Invalid update version %d for feature %s. %s", u.Level, u.Name, fmt.Sprintf(format, args...))
	}
	i := slices.IndexFunc(features, func(f Feature) bool { return f.Name == u.Name })
	if i < 0 {
		return invalid("Local controller %d does not support this feature.", self)
	}
	f, now := features[i], img.FeatureLevel(u.Name)
	switch {
	case u.Level < f.Min || u.Level > f.Max:
		return invalid("Local controller %d only supports versions %d-%d", self, f.Min, f.Max)
	case u.Upgrade < UpgradeFeature || u.Upgrade > UnsafelyDowngradeFeature:
		return invalid("The controller does not support the given upgrade type.")
	case u.Level < now && u.Upgrade == UpgradeFeature:
		return invalid("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	case u.Level > now && u.Upgrade != UpgradeFeature:
		return invalid("Can't downgrade to a newer version.")
	case u.Level < now && f.Fixed:
		return invalid("This release cannot do without it.")
	case u.Name == VersionFeature && u.Level < now:
		return checkLower(img, u, invalid)
	case u.Level <= now:
		return nil
	}
	for _, id := range sortedIDs(img.Brokers) {
		r, ok := img.Brokers[id].Features[u.Name]
		switch {
		case !ok && (id == self || u.Name != VersionFeature):
			// This very process has it; and what only clients go by, no broker
			// has to know.
		case !ok:
			return invalid("Broker %d does not support this feature.", id)
		case u.Level < r.Min || u.Level > r.Max:
			return invalid("Broker %d only supports versions %d-%d", id, r.Min, r.Max)
		}
	}
	return nil
}

// checkLower decides whether the image can be said at a lower level.
func checkLower(img *Image, u FeatureUpdate, invalid func(string, ...any) error) error {
	if u.Upgrade == UnsafelyDowngradeFeature {
		return nil
	}
	if id, ok := img.severalListeners(); ok && u.Level < levelListeners {
		return invalid("Broker %d has several listeners for clients, which the version before could not have.", id)
	}
	if n := len(img.quotas); n > 0 && u.Level < levelQuotas {
		return invalid("There are quotas of %d clients, which the version before could not have.", n)
	}
	if u.Level >= levelClusters {
		return nil
	}
	if n := len(img.Reassignments(nil)); n > 0 {
		return invalid("%d partitions are being reassigned.", n)
	}
	if len(img.Brokers) > 1 {
		return invalid("There are %d brokers, which the version before could not have.", len(img.Brokers))
	}
	return nil
}

func raisesLevel(changes []Change) bool {
	return slices.ContainsFunc(changes, func(c Change) bool { f, ok := c.(SetFeature); return ok && f.Name == VersionFeature })
}

// levelOf is the level at which every node can read these changes.
func levelOf(changes []Change) int16 {
	level := levelOneNode
	for _, c := range changes {
		switch c := c.(type) {
		case interface{ since() int16 }:
			level = max(level, c.since())
		case SetFeature, DescribeBroker:
			level = max(level, levelClusters)
		case ChangePartitions:
			for i := range c.Changes {
				if c.Changes[i].Set >= SetAddingReplicas {
					level = max(level, levelClusters)
				}
			}
		}
	}
	return level
}

// checkLevel refuses changes that a node of this cluster may not be able to
// read. One that raises the level counts as raised: it was decided that all can.
func checkLevel(img *Image, changes []Change) error {
	have := img.level()
	for _, c := range changes {
		if f, ok := c.(SetFeature); ok && f.Name == VersionFeature {
			have = max(have, f.Level)
		}
	}
	if need := levelOf(changes); need > have {
		return refuse(ErrUnsupportedLevel, "This needs %s=%d, the cluster is at %d: upgrade the feature first.", VersionFeature, need, have)
	}
	return nil
}

// UpdateFeatures changes the levels of features, all of them or none. With
// validateOnly it only says whether it could.
func (n *Node) UpdateFeatures(ctx context.Context, updates []FeatureUpdate, validateOnly bool) error {
	_, err := n.change(ctx, validateOnly, func(img *Image, _ *conf.Broker) ([]Change, error) {
		return decideFeatures(img, n.cfg.NodeID, updates)
	})
	return err
}

// encodeFeatures writes the levels that have been set.
func (img *Image) encodeFeatures() []byte {
	if len(img.features) == 0 {
		return nil
	}
	var e encoder
	e.int(img.featuresEpoch)
	e.count(len(img.features))
	for _, name := range sortedKeys(img.features) {
		e.str(name)
		e.int(int64(img.features[name]))
	}
	return e.b
}

func (img *Image) decodeFeatures(d *decoder) {
	img.featuresEpoch = d.int()
	n := d.count(2)
	img.features = make(map[string]int16, n)
	last := ""
	for i := range n {
		name := d.str()
		if i > 0 && name <= last {
			d.fail("feature %q is out of order", name)
		}
		last = name
		img.features[name] = d.i16()
	}
	if d.err == nil && n == 0 {
		d.fail("no features")
	}
}

// described reports whether there is more to say of a broker than version 1 of
// a snapshot could.
func (b Broker) described() bool {
	return !b.Directory.IsZero() || b.RaftAddress != "" || b.WantVote || b.Served != 0 || len(b.Features) > 0
}

// encodeDescriptions writes what version 1 does not have of brokers.
func (img *Image) encodeDescriptions() []byte {
	var e encoder
	n := 0
	for _, id := range sortedIDs(img.Brokers) {
		if b := img.Brokers[id]; b.described() {
			n++
			e.int(int64(id))
			e.description(b.Directory, b.RaftAddress, b.WantVote, b.Features)
			e.int(b.Served)
		}
	}
	if n == 0 {
		return nil
	}
	var head encoder
	head.count(n)
	return append(head.b, e.b...)
}

func (img *Image) decodeDescriptions(d *decoder) {
	last := int32(-1)
	for range d.count(21) {
		id := d.i32()
		b, ok := img.Brokers[id]
		b.Directory, b.RaftAddress, b.WantVote, b.Features = d.description()
		b.Served = d.int()
		if d.err == nil && (!ok || id <= last || !b.described()) {
			d.fail("the description of broker %d is empty, out of order or of nobody", id)
		}
		if d.err != nil {
			return
		}
		last = id
		img.Brokers[id] = b
	}
}

// severalListeners finds a broker that could not be described before levelListeners.
func (img *Image) severalListeners() (id int32, ok bool) {
	for _, id := range sortedIDs(img.Brokers) {
		if len(img.Brokers[id].Endpoints) > 1 {
			return id, true
		}
	}
	return 0, false
}

// encodeEndpoints writes the listeners of those brokers that have named them.
func (img *Image) encodeEndpoints() []byte {
	var e encoder
	n := 0
	for _, id := range sortedIDs(img.Brokers) {
		if b := img.Brokers[id]; len(b.Endpoints) > 0 {
			n++
			e.int(int64(id))
			e.endpoints(b.Endpoints)
		}
	}
	if n == 0 {
		return nil
	}
	var head encoder
	head.count(n)
	return append(head.b, e.b...)
}

func (img *Image) decodeEndpoints(d *decoder) {
	last := int32(-1)
	for range d.count(6) {
		id := d.i32()
		b, ok := img.Brokers[id]
		b.Endpoints = d.endpoints()
		if d.err == nil && (!ok || id <= last || len(b.Endpoints) == 0) {
			d.fail("the listeners of broker %d are none, out of order or of nobody", id)
		}
		if d.err != nil {
			return
		}
		last = id
		img.Brokers[id] = b
	}
}

func cloneFeatures(m map[string]FeatureRange) map[string]FeatureRange {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}
