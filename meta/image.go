package meta

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/varvelog/varve/meta/topic"
)

// NoLeader is a partition's Leader while no broker leads it.
const NoLeader int32 = -1

// Image is the metadata at one point. It is immutable, and so is everything
// that can be reached from it: callers must not write to its maps and slices.
type Image struct {
	// Index is the raft index of the newest change in it.
	Index uint64
	// ClusterID is Kafka's text form of the cluster's UUID; "" before the first change.
	ClusterID string
	// Brokers holds every registered broker by its id.
	Brokers map[int32]Broker
	// ControllerID is the broker that leads the quorum as far as this node
	// knows, or -1. It is not part of the replicated state.
	ControllerID int32
	// NextProducerID is the first producer id that no block holds yet.
	NextProducerID int64

	topics     topicSet
	partitions int
	load       map[int32]brokerLoad
	deleted    map[topic.ID]DeletedTopic
	features   map[string]int16
	// featuresEpoch is the raft index of the newest change of features.
	featuresEpoch int64
	brokerConf    map[string]map[string]string // broker id as text, "" for the cluster-wide default
	groupConf     map[string]map[string]string
	quotas        []Quota // by entity

	sortedOnce sync.Once
	sorted     []*Topic
}

// Broker is one registered broker.
type Broker struct {
	ID   int32
	Host string // of the listener that other brokers use
	Port int32
	Rack string // "" when there is none
	// Endpoints are all listeners that serve Kafka's protocol, that of Host and
	// Port first; nil when the broker has not said: then that is the only one.
	Endpoints []Endpoint
	// Epoch is unique to one start of the broker's process.
	Epoch int64
	// Incarnation is the random id under which that process registered.
	Incarnation topic.ID
	// Fenced brokers neither lead nor count as in sync.
	Fenced bool
	// ShuttingDown brokers still serve but get no leadership.
	ShuttingDown bool

	// RaftAddress is where raft's transport of the broker's node listens; "" if
	// it did not say.
	RaftAddress string
	// Directory is the random id of the node's data directory.
	Directory topic.ID
	// WantVote says that the node may become a voter by itself.
	WantVote bool
	// Features are the levels of features that the broker can be at.
	Features map[string]FeatureRange
	// Served is the newest epoch under which the broker has served: what it
	// acknowledged, it acknowledged until then.
	Served int64
}

// Endpoint is one listener of a broker, as others reach it.
type Endpoint struct {
	Name     string // of the listener, as in listeners
	Host     string
	Port     int32
	Protocol SecurityProtocol
}

// SecurityProtocol is how a listener is secured. Kafka's numbers. Format: do not
// renumber.
type SecurityProtocol int16

// The security protocols that are served.
const (
	Plaintext SecurityProtocol = 0
	SSL       SecurityProtocol = 1
)

// At is where clients of a listener reach the broker; ok is false when it has no
// such listener. "" stands for the one that brokers use.
func (b Broker) At(listener string) (host string, port int32, ok bool) {
	if listener == "" || len(b.Endpoints) == 0 {
		return b.Host, b.Port, true
	}
	for _, e := range b.Endpoints {
		if e.Name == listener {
			return e.Host, e.Port, true
		}
	}
	return "", 0, false
}

// Active reports whether the broker may lead and be in sync.
func (b Broker) Active() bool { return !b.Fenced && !b.ShuttingDown }

// Topic is one topic.
type Topic struct {
	Name       string
	ID         topic.ID
	Partitions []Partition // by index
	Configs    map[string]string
	// Tiered is true from the first time remote.storage.enable was set: from
	// then on there may be objects in the bucket.
	Tiered bool
}

// Partition is one partition as the controller sees it.
type Partition struct {
	// Leader is a broker, or NoLeader.
	Leader int32
	// LeaderEpoch rises whenever Leader is set.
	LeaderEpoch int32
	// PartitionEpoch rises with every change.
	PartitionEpoch int32
	// Recovering is true while a leader that was elected uncleanly has not yet
	// said that it has made its log whole.
	Recovering bool
	// UncleanEpoch is the leader epoch of the newest unclean election, 0 when
	// there was none. Only for it may a follower truncate below its high
	// watermark, and that also after Recovering is over.
	UncleanEpoch int32
	// Replicas are the brokers that hold the partition, the preferred leader first.
	Replicas []int32
	// ISR are the replicas that are in sync.
	ISR []int32
	// ELR are replicas outside the ISR that hold every committed record (KIP-966).
	ELR []int32
	// LastKnownELR are former members of ISR and ELR that may lack records.
	LastKnownELR []int32
	// AddingReplicas and RemovingReplicas are those of Replicas that a
	// reassignment in progress brings in and will take away (KIP-455).
	AddingReplicas   []int32
	RemovingReplicas []int32
}

// Reassigning reports whether a reassignment is in progress.
func (p *Partition) Reassigning() bool {
	return len(p.AddingReplicas)+len(p.RemovingReplicas) > 0
}

// MinISR is how many in-sync replicas the partition needs under this
// min.insync.replicas. It never needs more than it has replicas, and replicas
// that a reassignment is still adding do not count yet: a partition that had
// enough before the reassignment has enough during it.
func (p *Partition) MinISR(setting int) int {
	return min(setting, len(p.Replicas)-len(p.AddingReplicas))
}

// brokerLoad is how much of all partitions a broker has been given.
type brokerLoad struct {
	leads int // partitions it is the preferred leader of
	holds int // partitions it is a replica of
}

// count adds partitions to the brokers' loads, or takes them off with times -1.
func (img *Image) count(parts []Partition, times int) {
	load := maps.Clone(img.load)
	if load == nil {
		load = make(map[int32]brokerLoad)
	}
	for i := range parts {
		for j, id := range parts[i].Replicas {
			l := load[id]
			l.holds += times
			if j == 0 {
				l.leads += times
			}
			if l.holds == 0 {
				delete(load, id)
			} else {
				load[id] = l
			}
		}
	}
	img.load = load
	img.partitions += times * len(parts)
}

// DeletedTopic is a topic that is gone for clients while its data still has to
// be removed.
type DeletedTopic struct {
	Name       string
	ID         topic.ID
	Partitions int32
	// Brokers have yet to confirm that their replicas' files are gone.
	Brokers []int32
	// Tier is true until it is confirmed that nothing is left in the bucket, which
	// comes after all Brokers have confirmed: until each has heard of the deletion,
	// it may be putting objects there.
	Tier bool
}

func newImage() *Image {
	return (&Image{ControllerID: -1}).clone()
}

// Topic finds a topic by name; nil means there is none.
func (img *Image) Topic(name string) *Topic { return img.topics.byName.get(name) }

// TopicByID finds a topic by id; nil means there is none.
func (img *Image) TopicByID(id topic.ID) *Topic { return img.topics.byID.get(string(id[:])) }

// Partition finds one partition by topic name and index.
func (img *Image) Partition(name string, index int32) (*Topic, *Partition) {
	return img.Topic(name).partition(index)
}

// PartitionByID finds one partition by topic id and index.
func (img *Image) PartitionByID(id topic.ID, index int32) (*Topic, *Partition) {
	return img.TopicByID(id).partition(index)
}

func (t *Topic) partition(index int32) (*Topic, *Partition) {
	if t == nil || index < 0 || int(index) >= len(t.Partitions) {
		return nil, nil
	}
	return t, &t.Partitions[index]
}

// Key names one of the topic's partitions.
func (t *Topic) Key(index int32) topic.Partition {
	return topic.Partition{Topic: t.Name, ID: t.ID, Index: index}
}

// Topics returns all topics sorted by name.
func (img *Image) Topics() []*Topic {
	img.sortedOnce.Do(func() {
		img.sorted = make([]*Topic, 0, img.topics.byName.len)
		img.topics.byName.each(func(t *Topic) { img.sorted = append(img.sorted, t) })
		slices.SortFunc(img.sorted, func(a, b *Topic) int { return strings.Compare(a.Name, b.Name) })
	})
	return img.sorted
}

// TopicCount is the number of topics.
func (img *Image) TopicCount() int { return img.topics.byName.len }

// PartitionCount is the number of partitions of all topics.
func (img *Image) PartitionCount() int { return img.partitions }

// DeletedTopics returns the topics whose data is yet to be removed, by name and id.
func (img *Image) DeletedTopics() []DeletedTopic {
	list := slices.Collect(maps.Values(img.deleted))
	slices.SortFunc(list, func(a, b DeletedTopic) int {
		if c := strings.Compare(a.Name, b.Name); c != 0 {
			return c
		}
		return strings.Compare(string(a.ID[:]), string(b.ID[:]))
	})
	return list
}

// Deleted finds a deleted topic whose data is yet to be removed.
func (img *Image) Deleted(id topic.ID) (DeletedTopic, bool) {
	d, ok := img.deleted[id]
	return d, ok
}

// BrokerConfigs returns the dynamic settings of one broker.
func (img *Image) BrokerConfigs(id int32) map[string]string { return img.brokerConf[brokerName(id)] }

// BrokerDefaultConfigs returns the dynamic settings of all brokers.
func (img *Image) BrokerDefaultConfigs() map[string]string { return img.brokerConf[""] }

// GroupConfigs returns the settings of one group.
func (img *Image) GroupConfigs(group string) map[string]string { return img.groupConf[group] }

// ConfiguredGroups returns the names of the groups that have settings, sorted.
func (img *Image) ConfiguredGroups() []string { return slices.Sorted(maps.Keys(img.groupConf)) }

// ConfiguredBrokers returns the ids of the brokers that have dynamic settings,
// as text and sorted; "" stands for the settings of all brokers.
func (img *Image) ConfiguredBrokers() []string { return slices.Sorted(maps.Keys(img.brokerConf)) }

// clone returns a shallow copy to change: what it shares must be replaced, not
// written to.
func (img *Image) clone() *Image {
	return &Image{
		Index: img.Index, ClusterID: img.ClusterID, Brokers: img.Brokers, ControllerID: img.ControllerID,
		NextProducerID: img.NextProducerID, topics: img.topics.fork(), partitions: img.partitions,
		load: img.load, deleted: img.deleted, features: img.features, featuresEpoch: img.featuresEpoch, brokerConf: img.brokerConf, groupConf: img.groupConf,
		quotas: img.quotas,
	}
}
