package meta

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/varvelog/varve/meta/topic"
)

// Apply returns the image that a command makes of this one. It is a pure
// function: every node gets the same image from the same commands. index is
// the command's raft index. On an error nothing has changed; the error wraps
// ErrStale if the command was decided on an older image, and ErrState if it
// contradicts this one, which no controller should ever have proposed.
func (img *Image) Apply(c Command, index uint64) (*Image, error) {
	if c.Base != img.Index {
		return nil, fmt.Errorf("%w: decided at %d, now at %d", ErrStale, c.Base, img.Index)
	}
	next := img.clone()
	for i := 0; i < len(c.Changes); i++ {
		if run := quotasRun(c.Changes[i:]); len(run) > 0 {
			next.setQuotas(run)
			i += len(run) - 1
			continue
		}
		change := c.Changes[i]
		if err := change.apply(next, index); err != nil {
			return nil, fmt.Errorf("%w: change %d (%T): %w", ErrState, i, change, err)
		}
	}
	next.Index = index
	return next, nil
}

func (c SetClusterID) apply(next *Image, _ uint64) error {
	if next.ClusterID != "" {
		return fmt.Errorf("the cluster has the id %s", next.ClusterID)
	}
	next.ClusterID = c.ClusterID
	return nil
}

func (img *Image) putBroker(b Broker) {
	brokers := make(map[int32]Broker, len(img.Brokers)+1)
	maps.Copy(brokers, img.Brokers)
	brokers[b.ID] = b
	img.Brokers = brokers
}

func (c RegisterBroker) apply(next *Image, index uint64) error {
	b := Broker{
		ID: c.ID, Host: c.Host, Port: c.Port, Rack: c.Rack, Epoch: int64(index),
		Incarnation: c.Incarnation, Fenced: c.Fenced, Served: next.Brokers[c.ID].Served,
	}
	if !b.Fenced {
		b.Served = b.Epoch
	}
	next.putBroker(b)
	return nil
}

func (c DescribeBroker) apply(next *Image, index uint64) error {
	b, err := next.brokerAt(c.ID, int64(index))
	if err != nil {
		return err
	}
	b.Directory, b.RaftAddress, b.WantVote, b.Features = c.Directory, c.RaftAddress, c.WantVote, cloneFeatures(c.Features)
	next.putBroker(b)
	return nil
}

func (c SetEndpoints) apply(next *Image, index uint64) error {
	b, err := next.brokerAt(c.ID, int64(index))
	if err != nil {
		return err
	}
	b.Endpoints = c.Endpoints
	next.putBroker(b)
	return nil
}

func (c SetFeature) apply(next *Image, index uint64) error {
	if c.Name == VersionFeature && c.Level < levelListeners {
		// A snapshot at that level cannot say them.
		for _, b := range next.Brokers {
			if b.Endpoints != nil {
				b.Endpoints = nil
				next.putBroker(b)
			}
		}
	}
	if c.Name == VersionFeature && c.Level < levelQuotas {
		next.quotas = nil // likewise
	}
	next.features = with(next.features, c.Name, c.Level)
	next.featuresEpoch = int64(index)
	return nil
}

func (img *Image) brokerAt(id int32, epoch int64) (Broker, error) {
	b, ok := img.Brokers[id]
	if !ok {
		return b, fmt.Errorf("broker %d is not registered", id)
	}
	if b.Epoch != epoch {
		return b, fmt.Errorf("broker %d has epoch %d, not %d", id, b.Epoch, epoch)
	}
	return b, nil
}

func (c ChangeBroker) apply(next *Image, _ uint64) error {
	b, err := next.brokerAt(c.ID, c.Epoch)
	if err != nil {
		return err
	}
	b.Fenced, b.ShuttingDown = c.Fenced, c.ShuttingDown
	if !b.Fenced {
		b.Served = b.Epoch
	}
	next.putBroker(b)
	return nil
}

func (c UnregisterBroker) apply(next *Image, _ uint64) error {
	if _, err := next.brokerAt(c.ID, c.Epoch); err != nil {
		return err
	}
	brokers := maps.Clone(next.Brokers)
	delete(brokers, c.ID)
	next.Brokers = brokers
	return nil
}

const remoteStorageEnable = "remote.storage.enable"

func (c CreateTopic) apply(next *Image, _ uint64) error {
	switch {
	case next.Topic(c.Name) != nil:
		return fmt.Errorf("topic %s exists", c.Name)
	case next.TopicByID(c.ID) != nil:
		return fmt.Errorf("topic id %s exists", c.ID)
	case c.ID.IsZero():
		return fmt.Errorf("topic %s has no id", c.Name)
	}
	if _, ok := next.deleted[c.ID]; ok {
		return fmt.Errorf("topic id %s is being deleted", c.ID)
	}
	next.topics.put(&Topic{
		Name: c.Name, ID: c.ID, Partitions: c.Partitions, Configs: c.Configs,
		Tiered: isTrue(c.Configs[remoteStorageEnable]),
	})
	next.count(c.Partitions, 1)
	return nil
}

func isTrue(text string) bool { return strings.EqualFold(strings.TrimSpace(text), "true") }

func (c DeleteTopic) apply(next *Image, _ uint64) error {
	t := next.TopicByID(c.ID)
	if t == nil {
		return fmt.Errorf("no topic has the id %s", c.ID)
	}
	tombstone := DeletedTopic{Name: t.Name, ID: t.ID, Partitions: int32(len(t.Partitions)), Brokers: t.brokers(), Tier: t.Tiered}
	next.topics.remove(t)
	next.count(t.Partitions, -1)
	next.deleted = with(next.deleted, t.ID, tombstone)
	return nil
}

// brokers returns every broker that holds a replica, sorted.
func (t *Topic) brokers() []int32 {
	var ids []int32
	for i := range t.Partitions {
		for _, id := range t.Partitions[i].Replicas {
			if at, ok := slices.BinarySearch(ids, id); !ok {
				ids = slices.Insert(ids, at, id)
			}
		}
	}
	return ids
}

// with and without copy a map with one entry put or left out.
func with[K comparable, V any](m map[K]V, k K, v V) map[K]V {
	next := make(map[K]V, len(m)+1)
	maps.Copy(next, m)
	next[k] = v
	return next
}

func without[K comparable, V any](m map[K]V, k K) map[K]V {
	if len(m) == 1 {
		return nil
	}
	next := maps.Clone(m)
	delete(next, k)
	return next
}

func (c ConfirmDeleted) apply(next *Image, _ uint64) error {
	d, ok := next.deleted[c.ID]
	if !ok {
		return fmt.Errorf("topic id %s is not being deleted", c.ID)
	}
	if c.Broker >= 0 {
		d.Brokers = slices.DeleteFunc(slices.Clone(d.Brokers), func(id int32) bool { return id == c.Broker })
		if len(d.Brokers) == 0 {
			d.Brokers = nil
		}
	}
	if c.Tier {
		d.Tier = false
	}
	if len(d.Brokers) == 0 && !d.Tier {
		next.deleted = without(next.deleted, c.ID)
	} else {
		next.deleted = with(next.deleted, c.ID, d)
	}
	return nil
}

// change puts a changed copy of a topic in its place.
func (img *Image) change(id topic.ID, fn func(*Topic) error) error {
	t := img.TopicByID(id)
	if t == nil {
		return fmt.Errorf("no topic has the id %s", id)
	}
	changed := *t
	if err := fn(&changed); err != nil {
		return err
	}
	img.topics.put(&changed)
	return nil
}

func (c AddPartitions) apply(next *Image, _ uint64) error {
	return next.change(c.ID, func(t *Topic) error {
		if int(c.First) != len(t.Partitions) {
			return fmt.Errorf("topic %s has %d partitions, not %d", t.Name, len(t.Partitions), c.First)
		}
		t.Partitions = slices.Concat(t.Partitions, c.Partitions)
		next.count(c.Partitions, 1)
		return nil
	})
}

func (c ChangePartitions) apply(next *Image, _ uint64) error {
	return next.change(c.ID, func(t *Topic) error {
		t.Partitions = slices.Clone(t.Partitions)
		for i := range c.Changes {
			p := &c.Changes[i]
			if p.Index < 0 || int(p.Index) >= len(t.Partitions) {
				return fmt.Errorf("topic %s has no partition %d", t.Name, p.Index)
			}
			at := t.Partitions[p.Index : p.Index+1]
			if p.Set&SetReplicas == 0 {
				p.change(&at[0])
				continue
			}
			next.count(at, -1)
			p.change(&at[0])
			next.count(at, 1)
		}
		return nil
	})
}

// change makes the change on a copy of the partition.
func (c *PartitionChange) change(p *Partition) {
	p.PartitionEpoch++
	if c.Set&SetLeader != 0 {
		p.Leader = c.Leader
		p.LeaderEpoch++
	}
	if c.Set&SetRecovering != 0 {
		p.Recovering = c.Recovering
		if c.Recovering && c.Set&SetLeader != 0 {
			p.UncleanEpoch = p.LeaderEpoch
		}
	}
	if c.Set&SetReplicas != 0 {
		p.Replicas = c.Replicas
	}
	if c.Set&SetISR != 0 {
		p.ISR = c.ISR
	}
	if c.Set&SetELR != 0 {
		p.ELR = c.ELR
	}
	if c.Set&SetLastKnownELR != 0 {
		p.LastKnownELR = c.LastKnownELR
	}
	if c.Set&SetAddingReplicas != 0 {
		p.AddingReplicas = c.AddingReplicas
	}
	if c.Set&SetRemovingReplicas != 0 {
		p.RemovingReplicas = c.RemovingReplicas
	}
}

func (c SetConfigs) apply(next *Image, _ uint64) error {
	switch c.Kind {
	case TopicConfig:
		t := next.Topic(c.Name)
		if t == nil {
			return fmt.Errorf("no topic has the name %s", c.Name)
		}
		return next.change(t.ID, func(t *Topic) error {
			t.Configs = c.merge(t.Configs)
			t.Tiered = t.Tiered || isTrue(t.Configs[remoteStorageEnable])
			return nil
		})
	case BrokerConfig:
		next.brokerConf = c.put(next.brokerConf)
	case GroupConfig:
		next.groupConf = c.put(next.groupConf)
	default:
		return fmt.Errorf("settings of kind %d", c.Kind)
	}
	return nil
}

func (c SetConfigs) put(all map[string]map[string]string) map[string]map[string]string {
	merged := c.merge(all[c.Name])
	if merged != nil {
		return with(all, c.Name, merged)
	}
	if _, ok := all[c.Name]; !ok {
		return all
	}
	return without(all, c.Name)
}

// merge returns the settings after the change, nil for none.
func (c SetConfigs) merge(old map[string]string) map[string]string {
	next := make(map[string]string, len(old)+len(c.Set))
	maps.Copy(next, old)
	maps.Copy(next, c.Set)
	for _, n := range c.Remove {
		delete(next, n)
	}
	if len(next) == 0 {
		return nil
	}
	return next
}

func (c TakeProducerIDs) apply(next *Image, _ uint64) error {
	if c.Next <= next.NextProducerID {
		return fmt.Errorf("producer ids below %d are taken, %d is not above", next.NextProducerID, c.Next)
	}
	next.NextProducerID = c.Next
	return nil
}

// brokerName is a broker's id as the name of its settings.
func brokerName(id int32) string { return strconv.Itoa(int(id)) }
