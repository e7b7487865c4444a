package meta

import (
	"maps"
	"math"
	"slices"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// Registration is one start of a broker.
type Registration struct {
	ID   int32
	Host string // of the listener that other brokers use
	Port int32
	Rack string
	// Endpoints are all listeners that serve Kafka's protocol, that of Host and
	// Port first; nil says nothing of them.
	Endpoints []Endpoint
	// RaftAddress is where raft's transport of this node listens; "" keeps the
	// node's place in the quorum as it is.
	RaftAddress string
	// Incarnation is random per process: the same one may register again.
	Incarnation topic.ID
	// ClusterID, when not "", must be the cluster's.
	ClusterID string
	// Fenced registers without serving yet; UnfenceBroker follows.
	Fenced bool
	// MayLackRecords says that the broker may have lost records it had
	// acknowledged: it stopped uncleanly without syncing what it acknowledged.
	MayLackRecords bool
	// WantVote says that the node may become a voter by itself
	// (controller.quorum.auto.join.enable, KIP-853).
	WantVote bool
	// Directory is the random id of the node's metadata directory; a node that
	// votes cannot come with another one.
	Directory topic.ID
	// PreviousEpoch is the epoch of the broker's last start of which its disk
	// has everything it acknowledged, -1 for none: the disk is new, or old, or
	// lost what was not synced (KIP-966). 0 means that MayLackRecords says it.
	PreviousEpoch int64
	// Features are the levels of features that the broker can be at.
	Features map[string]FeatureRange
	// Replaces is the epoch of the registration that this one is to replace, -1
	// for none: a compare-and-swap, so that a request of a start that is dead,
	// come late, cannot take a later start's place. 0 does not say.
	Replaces int64
}

// stale reports whether the broker has been registered otherwise than the
// registration takes for granted.
func (r *Registration) stale(old Broker, known bool) bool {
	if !known {
		return r.Replaces > 0
	}
	return r.Replaces != 0 && r.Replaces != old.Epoch
}

// lacks reports whether the broker may have lost records that it acknowledged
// under its earlier registration.
func (r *Registration) lacks(old Broker) bool {
	return r.MayLackRecords || r.PreviousEpoch != 0 && r.PreviousEpoch < old.Served
}

// describes reports whether the broker is described as the registration would.
func (r *Registration) describes(b Broker, level int16) bool {
	if level < levelClusters {
		return true
	}
	if level >= levelListeners && !slices.Equal(r.Endpoints, b.Endpoints) {
		return false
	}
	return r.Directory == b.Directory && r.RaftAddress == b.RaftAddress && r.WantVote == b.WantVote && maps.Equal(r.Features, b.Features)
}

// broker is the broker that the registration makes.
func (r *Registration) broker(epoch int64) Broker {
	return Broker{ID: r.ID, Host: r.Host, Port: r.Port, Rack: r.Rack, Epoch: epoch, Incarnation: r.Incarnation, Fenced: r.Fenced,
		RaftAddress: r.RaftAddress, Directory: r.Directory, WantVote: r.WantVote, Features: r.Features, Endpoints: r.Endpoints}
}

// decideRegister decides on a broker's registration. A new start of a broker
// ends everything the one before it led (KIP-966): its partitions lose their
// leader and get one again, with new leader epochs, so that nothing the old
// process still says counts. alive says that the earlier start is still heard
// from: then the newcomer is refused.
func decideRegister(img *Image, b *conf.Broker, r Registration, alive bool) ([]Change, error) {
	if r.ClusterID != "" && r.ClusterID != img.ClusterID {
		return nil, refuse(ErrInconsistentCluster, "Expected cluster ID %s, but got cluster ID %s", img.ClusterID, r.ClusterID)
	}
	old, known := img.Brokers[r.ID]
	if known && old.Incarnation != r.Incarnation && alive {
		return nil, refuse(ErrDuplicateBroker, "Another broker is registered with that broker id.")
	}
	again := known && old.Incarnation == r.Incarnation
	if !again && r.stale(old, known) {
		if !known {
			old.Epoch = -1
		}
		return nil, &StaleRegistration{Epoch: old.Epoch}
	}
	for name, f := range r.Features {
		if level := img.FeatureLevel(name); level < f.Min || level > f.Max {
			return nil, refuse(ErrUnsupportedLevel, "Unable to register because the broker does not support finalized version %d of %s. The broker wants a version between %d and %d, inclusive.", level, name, f.Min, f.Max)
		}
	}
	if len(r.Endpoints) > 1 && img.level() < levelListeners {
		return nil, refuse(ErrUnsupportedLevel, "Broker %d has %d listeners for clients, which needs %s=%d; the cluster is at %d: start it with one, and upgrade the feature first.",
			r.ID, len(r.Endpoints), VersionFeature, levelListeners, img.level())
	}
	if again {
		// The same process once more: what it may do stays as it is, except
		// that it may ask to serve at last.
		r.Fenced = r.Fenced && old.Fenced || old.ShuttingDown
		if r.Fenced == old.Fenced && r.Host == old.Host && r.Port == old.Port && r.Rack == old.Rack && r.describes(old, img.level()) {
			return nil, nil
		}
	}
	changes := []Change{RegisterBroker{ID: r.ID, Incarnation: r.Incarnation, Host: r.Host, Port: r.Port, Rack: r.Rack, Fenced: r.Fenced}}
	if img.level() >= levelClusters {
		changes = append(changes, DescribeBroker{ID: r.ID, Directory: r.Directory, RaftAddress: r.RaftAddress, WantVote: r.WantVote, Features: r.Features})
	}
	if img.level() >= levelListeners && len(r.Endpoints) > 0 {
		changes = append(changes, SetEndpoints{ID: r.ID, Endpoints: r.Endpoints})
	}
	changes = append(changes, laterChanges(img, r.ID)...)
	if !known || again {
		if !r.Fenced {
			changes = append(changes, restoreLeaders(img, b, r.ID)...)
		}
		return changes, nil
	}
	down := removeFromISR(img, b, r.ID, r.lacks(old))
	changes = append(changes, down...)
	if r.Fenced {
		return changes, nil
	}
	// What the partitions look like without the old process decides what the
	// new one may lead.
	between := img.clone()
	for _, c := range changes {
		if err := c.apply(between, img.Index); err != nil {
			return nil, err
		}
	}
	return append(changes, restoreLeaders(between, b, r.ID)...), nil
}

// decideBroker fences or unfences a broker or marks it as shutting down.
func decideBroker(img *Image, b *conf.Broker, want ChangeBroker) ([]Change, error) {
	have, err := img.checkBrokerEpoch(want.ID, want.Epoch)
	if err != nil {
		return nil, err
	}
	if have.Fenced == want.Fenced && have.ShuttingDown == want.ShuttingDown {
		return nil, nil
	}
	changes := []Change{want}
	was := have.Active()
	have.Fenced, have.ShuttingDown = want.Fenced, want.ShuttingDown
	switch {
	case was && !have.Active():
		changes = append(changes, removeFromISR(img, b, want.ID, false)...)
	case !was && have.Active():
		after := img.clone()
		after.putBroker(have)
		changes = append(changes, restoreLeaders(after, b, want.ID)...)
	}
	return changes, nil
}

func decideUnregister(img *Image, b *conf.Broker, id int32) ([]Change, error) {
	have, ok := img.Brokers[id]
	if !ok {
		return nil, refuse(ErrUnknownBroker, "Broker ID %d is not currently registered", id)
	}
	changes := removeFromISR(img, b, id, true)
	// Nobody will ever confirm for it that what it held of deleted topics is
	// gone. If it comes back it has files that nothing names: they stay.
	for _, d := range img.DeletedTopics() {
		if slices.Contains(d.Brokers, id) {
			changes = append(changes, ConfirmDeleted{ID: d.ID, Broker: id})
		}
	}
	return append(changes, UnregisterBroker{ID: id, Epoch: have.Epoch}), nil
}

func (img *Image) checkBrokerEpoch(id int32, epoch int64) (Broker, error) {
	have, ok := img.Brokers[id]
	switch {
	case !ok:
		return have, refuse(ErrStaleBrokerEpoch, "No broker registration found for broker id %d", id)
	case have.Epoch != epoch:
		return have, refuse(ErrStaleBrokerEpoch, "Expected broker epoch %d, but got broker epoch %d", have.Epoch, epoch)
	}
	return have, nil
}

// removeFromISR takes a broker out of every in-sync set and elects other
// leaders where it led. lossy says that it may have lost records, too: then it
// leaves the ELR as well.
func removeFromISR(img *Image, b *conf.Broker, id int32, lossy bool) []Change {
	var out topicChanges
	rules := newTopicRules(b)
	for _, t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if !slices.Contains(p.ISR, id) && (!lossy || !slices.Contains(p.ELR, id)) {
				continue
			}
			e := img.election(rules, t, int32(i))
			e.isr, e.gone = withoutID(p.ISR, id), id
			if lossy {
				e.lossy = []int32{id}
			}
			if c, ok := e.change(); ok {
				out.add(t.ID, c)
			}
		}
	}
	return out.changes()
}

// restoreLeaders elects leaders for partitions that have none and that a
// broker which has come back could lead.
func restoreLeaders(img *Image, b *conf.Broker, id int32) []Change {
	var out topicChanges
	rules := newTopicRules(b)
	for _, t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if p.Leader != NoLeader || !slices.Contains(p.Replicas, id) {
				continue
			}
			e := img.election(rules, t, int32(i))
			e.back = id
			if c, ok := e.change(); ok {
				out.add(t.ID, c)
			}
		}
	}
	return out.changes()
}

func (img *Image) registered(id int32) bool {
	_, ok := img.Brokers[id]
	return ok
}

func withoutID(ids []int32, id int32) []int32 {
	return slices.DeleteFunc(slices.Clone(ids), func(other int32) bool { return other == id })
}

// producerIDBlock is how many ids Kafka's controller gives out at a time.
const producerIDBlock = 1000

// ProducerIDs is a block of producer ids: First up to First+Count.
type ProducerIDs struct {
	First int64
	Count int32
}

func decideProducerIDs(img *Image, id int32, epoch int64) (ProducerIDs, []Change, error) {
	if _, err := img.checkBrokerEpoch(id, epoch); err != nil {
		return ProducerIDs{}, nil, err
	}
	first := img.NextProducerID
	if first > math.MaxInt64-producerIDBlock {
		return ProducerIDs{}, nil, refuse(ErrExhausted, "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit")
	}
	return ProducerIDs{First: first, Count: producerIDBlock}, []Change{TakeProducerIDs{Broker: id, Next: first + producerIDBlock}}, nil
}
