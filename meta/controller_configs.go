package meta

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// ConfigOp is what IncrementalAlterConfigs does with a setting. Wire format:
// do not renumber.
type ConfigOp int8

// The operations of IncrementalAlterConfigs (KIP-339).
const (
	OpSet      ConfigOp = 0
	OpDelete   ConfigOp = 1
	OpAppend   ConfigOp = 2
	OpSubtract ConfigOp = 3
)

var configOpNames = map[ConfigOp]string{OpSet: "SET", OpDelete: "DELETE", OpAppend: "APPEND", OpSubtract: "SUBTRACT"}

func (o ConfigOp) String() string {
	if n, ok := configOpNames[o]; ok {
		return n
	}
	return strconv.Itoa(int(o))
}

// ConfigEdit changes one setting.
type ConfigEdit struct {
	Name  string
	Op    ConfigOp
	Value *string // nil means null
}

// ConfigResource names what settings belong to.
type ConfigResource struct {
	Kind ConfigKind
	Name string // the topic or group; the broker's id, or "" for all brokers
}

// ConfigChange asks for changes of one resource's settings.
type ConfigChange struct {
	ConfigResource
	Edits []ConfigEdit
	// Replace drops every setting that is not among the edits (legacy AlterConfigs).
	Replace bool
}

// ConfigResult is what became of a ConfigChange.
type ConfigResult struct {
	ConfigResource
	Err error
}

// decideConfigs decides on the settings of resources one by one, as the broker
// node, whose static settings are given.
func decideConfigs(img *Image, static *conf.Broker, node int32, changes []ConfigChange) ([]ConfigResult, []Change) {
	results := make([]ConfigResult, len(changes))
	times := make(map[ConfigResource]int, len(changes))
	for i := range changes {
		times[changes[i].ConfigResource]++
	}
	var out []Change
	for i := range changes {
		c := &changes[i]
		results[i].ConfigResource = c.ConfigResource
		if times[c.ConfigResource] > 1 {
			results[i].Err = refuse(ErrInvalidRequest, "Each resource must appear at most once.")
			continue
		}
		set, err := decideConfig(img, static, node, c)
		if err != nil {
			results[i].Err = err
			continue
		}
		if len(set.Set)+len(set.Remove) > 0 {
			out = append(out, set)
		}
	}
	return results, append(out, electAnew(img, static, node, out)...)
}

// electAnew follows a change of what elections depend on. Where
// min.insync.replicas was lowered and the in-sync set is large enough now, the
// ELR is emptied: from now on records commit that the replicas in it need not
// have (KIP-966). Where unclean elections are allowed now, partitions that had
// nobody to lead them get a leader.
func electAnew(img *Image, static *conf.Broker, node int32, changes []Change) []Change {
	if !slices.ContainsFunc(changes, func(c Change) bool {
		s := c.(SetConfigs)
		return s.touches(minISRSetting) || s.touches(uncleanSetting)
	}) {
		return nil
	}
	after := img.clone()
	for _, c := range changes {
		if err := c.apply(after, img.Index); err != nil {
			return nil // the same error awaits the command
		}
	}
	b, err := after.EffectiveBroker(static, node)
	if err != nil {
		return nil
	}
	rules := newTopicRules(b)
	var out topicChanges
	for _, t := range after.Topics() {
		for i := range t.Partitions {
			if p := &t.Partitions[i]; p.Leader != NoLeader && len(p.ELR)+len(p.LastKnownELR) == 0 {
				continue
			}
			e := after.election(rules, t, int32(i))
			if c, ok := e.change(); ok {
				out.add(t.ID, c)
			}
		}
	}
	return out.changes()
}

func (c SetConfigs) touches(name string) bool {
	_, set := c.Set[name]
	return set || slices.Contains(c.Remove, name)
}

// minISRSetting is the setting that elections depend on most. It has one value
// for all brokers, which is set when the cluster is named: if each broker had
// its own, who is eligible to lead would depend on who decides.
const minISRSetting = "min.insync.replicas"

// uncleanSetting allows elections that may lose records.
const uncleanSetting = "unclean.leader.election.enable"

func checkMinISR(r ConfigResource, old, next map[string]string) error {
	was, had := old[minISRSetting]
	now, has := next[minISRSetting]
	switch {
	case r.Name != "" && (had != has || was != now):
		return refuse(ErrInvalidConfig, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
	case r.Name == "" && had && !has:
		return refuse(ErrInvalidConfig, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
	}
	return nil
}

func decideConfig(img *Image, static *conf.Broker, node int32, c *ConfigChange) (SetConfigs, error) {
	if err := checkEdits(c); err != nil {
		return SetConfigs{}, err
	}
	kind, err := checkResource(img, c.ConfigResource)
	if err != nil {
		return SetConfigs{}, err
	}
	old := img.configsOf(c.ConfigResource)
	next := make(map[string]string, len(old)+len(c.Edits))
	if !c.Replace {
		maps.Copy(next, old)
	}
	for _, e := range c.Edits {
		if err := edit(kind, next, e); err != nil {
			return SetConfigs{}, err
		}
	}
	if err := checkConfigs(img, static, node, c.ConfigResource, old, next); err != nil {
		return SetConfigs{}, err
	}
	return difference(c.ConfigResource, old, next), nil
}

// checkEdits refuses edits that are wrong whatever the resource.
func checkEdits(c *ConfigChange) error {
	seen := make(map[string]bool, len(c.Edits))
	var nulls []string
	for _, e := range c.Edits {
		if seen[e.Name] {
			return refuse(ErrInvalidRequest, "Error due to duplicate config keys")
		}
		seen[e.Name] = true
		if e.Value == nil && e.Op != OpDelete {
			nulls = append(nulls, e.Name)
		}
	}
	if len(nulls) > 0 {
		return refuse(ErrInvalidRequest, "Null value not supported for : %s", strings.Join(nulls, ", "))
	}
	return nil
}

// checkResource checks the resource's name and returns its table of settings.
func checkResource(img *Image, r ConfigResource) (conf.Kind, error) {
	switch r.Kind {
	case TopicConfig:
		if r.Name == "" {
			return 0, refuse(ErrInvalidRequest, "Default topic resources are not allowed.")
		}
		if err := topic.ValidateName(r.Name); err != nil {
			return 0, refuse(ErrInvalidTopic, "%s", strings.TrimPrefix(err.Error(), topic.ErrInvalidName.Error()+": "))
		}
		return conf.KindTopic, nil
	case BrokerConfig:
		if r.Name == "" {
			return conf.KindBroker, nil
		}
		id, err := strconv.ParseInt(r.Name, 10, 32)
		if err != nil {
			return 0, refuse(ErrInvalidRequest, "Node id must be an integer, but it is: %s", r.Name)
		}
		if !img.registered(int32(id)) {
			return 0, refuse(ErrUnknownBroker, "No broker with id %d found.", id)
		}
		return conf.KindBroker, nil
	case GroupConfig:
		if r.Name == "" {
			return 0, refuse(ErrInvalidRequest, "Default group resources are not allowed.")
		}
		return conf.KindGroup, nil
	}
	return 0, refuse(ErrInvalidRequest, "Unknown resource type %d", r.Kind)
}

func (img *Image) configsOf(r ConfigResource) map[string]string {
	switch r.Kind {
	case TopicConfig:
		if t := img.Topic(r.Name); t != nil {
			return t.Configs
		}
	case BrokerConfig:
		return img.brokerConf[r.Name]
	case GroupConfig:
		return img.groupConf[r.Name]
	}
	return nil
}

// edit makes one edit. Lists are edited as they are set here, or else as the
// setting's default, whatever the broker's own default is.
func edit(kind conf.Kind, values map[string]string, e ConfigEdit) error {
	switch e.Op {
	case OpSet:
		values[e.Name] = *e.Value
		return nil
	case OpDelete:
		delete(values, e.Name)
		return nil
	case OpAppend, OpSubtract:
	default:
		return refuse(ErrInvalidRequest, "Unknown operations type %d", e.Op)
	}
	d, ok := conf.Lookup(kind, e.Name)
	if !ok || d.Type != conf.List {
		if kind == conf.KindBroker {
			return refuse(ErrInvalidConfig, "Config value %s is not allowed for config key: %s", strings.ToLower(e.Op.String()), e.Name)
		}
		return refuse(ErrInvalidConfig, "Can't %s to key %s because its type is not LIST.", e.Op, e.Name)
	}
	text, given := values[e.Name]
	if !given {
		text = d.Default
	}
	list := slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
	for _, v := range strings.Split(*e.Value, ",") {
		if e.Op == OpSubtract {
			if i := slices.Index(list, v); i >= 0 {
				list = slices.Delete(list, i, i+1)
			}
		} else if !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	values[e.Name] = strings.Join(list, ",")
	return nil
}

// checkConfigs checks what a resource's settings would be.
func checkConfigs(img *Image, static *conf.Broker, node int32, r ConfigResource, old, next map[string]string) error {
	switch r.Kind {
	case TopicConfig:
		effective, err := img.EffectiveBroker(static, node)
		if err != nil {
			effective = static
		}
		if _, err := conf.ParseTopicChange(old, next, effective); err != nil {
			return refuse(ErrInvalidConfig, "%s", err.Error())
		}
		if img.Topic(r.Name) == nil {
			return refuse(ErrUnknownTopic, "The topic '%s' does not exist.", r.Name)
		}
	case BrokerConfig:
		if err := checkMinISR(r, old, next); err != nil {
			return err
		}
		return checkBrokerConfigs(img, static, node, r, next)
	case GroupConfig:
		if err := checkGroupConfigs(static, next); err != nil {
			return refuse(ErrInvalidConfig, "%s", err.Error())
		}
	}
	return nil
}

// perBroker are the settings that make sense for one broker only.
var perBroker = map[string]bool{
	"listeners": true, "advertised.listeners": true, "listener.security.protocol.map": true, "principal.builder.class": true,
	DrainSetting: true,
}

// checkBrokerConfigs allows dynamic settings only, and those only with values
// that the broker could start with.
func checkBrokerConfigs(img *Image, static *conf.Broker, node int32, r ConfigResource, next map[string]string) error {
	var fixed []string
	for _, name := range sortedKeys(next) {
		d, ok := conf.Lookup(conf.KindBroker, name)
		if !ok {
			return refuse(ErrInvalidRequest, "%s", conf.CheckNames(conf.KindBroker, map[string]string{name: ""}).Error())
		}
		if !d.Dynamic {
			fixed = append(fixed, name)
		}
	}
	if len(fixed) > 0 {
		return refuse(ErrInvalidRequest, "Cannot update these configs dynamically: [%s]", strings.Join(fixed, ", "))
	}
	if r.Name == "" {
		var own []string
		for _, name := range sortedKeys(next) {
			if perBroker[name] {
				own = append(own, name)
			}
		}
		if len(own) > 0 {
			return refuse(ErrInvalidRequest, "Cannot update these configs at default cluster level, broker id must be specified: [%s]", strings.Join(own, ", "))
		}
	}
	all := maps.Clone(next)
	if r.Name == "" {
		maps.Copy(all, img.BrokerConfigs(node))
	} else {
		all = maps.Clone(img.BrokerDefaultConfigs())
		if all == nil {
			all = make(map[string]string)
		}
		maps.Copy(all, next)
	}
	if _, err := static.With(all); err != nil {
		return refuse(ErrInvalidRequest, "%s", err.Error())
	}
	return nil
}

// checkGroupConfigs holds a group's settings within the broker's bounds.
func checkGroupConfigs(static *conf.Broker, next map[string]string) error {
	if err := conf.CheckNames(conf.KindGroup, next); err != nil {
		return err
	}
	for _, name := range sortedKeys(next) {
		d, _ := conf.Lookup(conf.KindGroup, name)
		v, err := d.Parse(next[name])
		if err != nil {
			return err
		}
		n, isInt := v.(int64)
		if !isInt || d.Synonym == "" {
			continue
		}
		if err := checkGroupBound(static, d, n); err != nil {
			return err
		}
	}
	for _, protocol := range []string{"consumer", "share", "streams"} {
		session, heartbeat := protocol+".session.timeout.ms", protocol+".heartbeat.interval.ms"
		if groupValue(static, next, session) <= groupValue(static, next, heartbeat) {
			return fmt.Errorf("%s must be greater than %s", session, heartbeat)
		}
	}
	return nil
}

// checkGroupBound holds a value between group.<protocol>.min.* and .max.*.
func checkGroupBound(static *conf.Broker, d conf.Def, n int64) error {
	protocol, rest, _ := strings.Cut(strings.TrimPrefix(d.Synonym, "group."), ".")
	if d.Name == "streams.num.standby.replicas" {
		rest = "standby.replicas"
	}
	low, hasLow, err := groupBound(static, "group."+protocol+".min."+rest)
	if err != nil {
		return err
	}
	high, hasHigh, err := groupBound(static, "group."+protocol+".max."+rest)
	if err != nil {
		return err
	}
	switch {
	case hasLow && hasHigh && (n < low || n > high):
		return fmt.Errorf("%s must be in the range %d to %d inclusive.", d.Name, low, high)
	case hasLow && n < low:
		return fmt.Errorf("%s must be greater than or equal to %d.", d.Name, low)
	case hasHigh && n > high:
		return fmt.Errorf("%s must be less than or equal to %d.", d.Name, high)
	}
	return nil
}

// groupBound reads a broker setting that bounds group settings, if there is one.
func groupBound(static *conf.Broker, name string) (int64, bool, error) {
	text, null, _, ok := static.Value(name)
	if !ok || null {
		return 0, false, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, false, fmt.Errorf("%w: %w", ErrState, err)
	}
	return n, true, nil
}

func groupValue(static *conf.Broker, next map[string]string, name string) int64 {
	d, _ := conf.Lookup(conf.KindGroup, name)
	text, ok := next[name]
	if !ok {
		text, _, _, _ = static.Value(d.Synonym)
	}
	v, err := d.Parse(text)
	if err != nil {
		return 0
	}
	return v.(int64)
}

// difference is the smallest change from old to next.
func difference(r ConfigResource, old, next map[string]string) SetConfigs {
	c := SetConfigs{Kind: r.Kind, Name: r.Name}
	for n, v := range next {
		if was, ok := old[n]; !ok || was != v {
			if c.Set == nil {
				c.Set = make(map[string]string)
			}
			c.Set[n] = v
		}
	}
	for _, n := range sortedKeys(old) {
		if _, ok := next[n]; !ok {
			c.Remove = append(c.Remove, n)
		}
	}
	return c
}

// EffectiveBroker returns a broker's settings: static ones, over them those
// set for all brokers, and over those the ones set for this broker.
func (img *Image) EffectiveBroker(static *conf.Broker, id int32) (*conf.Broker, error) {
	all, own := img.BrokerDefaultConfigs(), img.BrokerConfigs(id)
	if len(all)+len(own) == 0 {
		return static, nil
	}
	merged := make(map[string]string, len(all)+len(own))
	maps.Copy(merged, all)
	maps.Copy(merged, own)
	b, err := static.With(merged)
	if err != nil {
		return nil, err
	}
	return &b, nil
}
