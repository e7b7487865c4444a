package replica

import (
	"maps"
	"slices"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/isr"
)

// following is what the manager remembers between images; the manager's mutex guards it.
type following struct {
	seen     *meta.Image            // the newest image that was followed
	broker   *conf.Broker           // with the dynamic settings of the newest image
	dynamic  map[string]string      // those
	deleting map[topic.ID]*deletion // topics whose removal here is under way
	strays   []topic.Partition      // directories on disk that no image names
}

// image takes a new metadata image. It only compares and queues; the workers do the rest. Topics that have not changed are
// the same objects in both images.
//
// After a start the images of the past come first, while the log of the metadata is read. They may give this broker what it
// has lost since, or take away what it has got since: nothing is followed before the image knows this very start. An image
// that is passed over for that is taken up again by catchUp.
func (m *Manager) image(_, next *meta.Image) {
	epoch := m.brokerEpoch()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	if b, ok := next.Brokers[m.config.NodeID]; m.deps.BrokerEpoch != nil && (!ok || b.Epoch != epoch) {
		return
	}
	prev := m.follow.seen
	if prev != nil && next.Index < prev.Index {
		return // overtaken
	}
	m.follow.seen = next
	defaults := m.dynamicLocked(next)
	for _, t := range next.Topics() {
		var old *meta.Topic
		if prev != nil {
			old = prev.TopicByID(t.ID)
		}
		if old != t || defaults {
			m.topicLocked(t)
		}
	}
	if prev != nil {
		for _, t := range prev.Topics() {
			if next.TopicByID(t.ID) == nil {
				m.vanishedLocked(t)
			}
		}
	} else {
		m.findStraysLocked(next)
	}
	for _, d := range next.DeletedTopics() {
		m.tombstoneLocked(d)
	}
	m.forgetDeletionsLocked(next)
}

// catchUp takes the newest image if it was passed over: it knew of a new registration of this broker before the broker did.
func (m *Manager) catchUp() {
	if m.deps.BrokerEpoch == nil {
		return
	}
	img := m.deps.Meta.Image()
	m.mu.Lock()
	missed := m.follow.seen != img
	m.mu.Unlock()
	if missed {
		m.image(nil, img)
	}
}

// dynamicLocked takes the dynamic broker settings of the image into use and reports whether they changed, so that every
// topic's defaults must be read again.
func (m *Manager) dynamicLocked(img *meta.Image) bool {
	dynamic := maps.Clone(img.BrokerDefaultConfigs())
	if dynamic == nil {
		dynamic = make(map[string]string)
	}
	maps.Copy(dynamic, img.BrokerConfigs(m.config.NodeID))
	if m.follow.broker != nil && maps.Equal(dynamic, m.follow.dynamic) {
		return false
	}
	changed := m.follow.broker != nil
	m.follow.dynamic = dynamic
	b, err := img.EffectiveBroker(m.config.Broker, m.config.NodeID)
	if err != nil {
		m.logger.Error("dynamic broker settings contradict the static ones and are ignored", "err", err)
		b = m.config.Broker
	}
	m.follow.broker = b
	m.broker.Store(b)
	m.throttleChangedLocked()
	return changed
}

// topicLocked queues what a topic wants of this broker.
func (m *Manager) topicLocked(t *meta.Topic) {
	if !m.table.has(t.ID) {
		m.table.put(&held{id: t.ID, name: t.Name, partitions: make([]*Partition, len(t.Partitions))})
	}
	m.table.grow(t.ID, len(t.Partitions))
	set, err := newSettings(t.Name, t.Configs, m.follow.broker, m.deps.Archive != nil)
	if err != nil {
		m.logger.Error("topic is not served: its settings do not fit this broker", "topic", t.Name, "err", err)
		return
	}
	for i := range t.Partitions {
		state := &t.Partitions[i]
		if !slices.Contains(state.Replicas, m.config.NodeID) {
			m.reassignedLocked(t.Key(int32(i)), state.PartitionEpoch)
			continue
		}
		m.setLocked(t.Key(int32(i)), desired{
			leads:    state.Leader == m.config.NodeID,
			settings: set,
			state: isr.Leadership{
				Leader: state.Leader, Epoch: state.LeaderEpoch, PartitionEpoch: state.PartitionEpoch,
				Replicas: state.Replicas, ISR: state.ISR, ELR: state.ELR, MinISR: state.MinISR(int(set.topic.MinInsyncReplicas)),
				Recovering: state.Recovering, Unclean: uncleanEpoch(state),
			},
		})
	}
}

// reassignedLocked removes a replica that a committed reassignment has taken from this broker: the image names the partition,
// by its topic's id, and this broker is none of its replicas.
func (m *Manager) reassignedLocked(id topic.Partition, partitionEpoch int32) {
	s, open := m.slots[keyOf(id)]
	if open && s.want.reassigned || !open && !m.deps.Hot.Has(id) {
		return
	}
	m.logger.Info("replica goes: the partition was reassigned", "topic", id.Topic, "partition", id.Index, "topic_id", id.ID.String(), "partition_epoch", partitionEpoch)
	m.setLocked(id, desired{reassigned: true})
}

// uncleanEpoch is the leader epoch of the newest unclean election, NoEpoch when there was none.
func uncleanEpoch(p *meta.Partition) int32 {
	if p.UncleanEpoch == 0 {
		return NoEpoch
	}
	return p.UncleanEpoch
}

// vanishedLocked stops serving a topic that is no longer in the image. That alone deletes nothing: only a tombstone does.
func (m *Manager) vanishedLocked(t *meta.Topic) {
	m.table.drop(t.ID)
	for i := range t.Partitions {
		id := t.Key(int32(i))
		if s, ok := m.slots[keyOf(id)]; ok {
			want := s.want
			want.leads, want.gone = false, true
			m.setLocked(id, want)
		}
	}
}

// findStraysLocked looks for directories that no topic of the image explains. They are reported and kept: perhaps the
// metadata is the one that is missing something.
func (m *Manager) findStraysLocked(img *meta.Image) {
	for _, p := range m.deps.Hot.Partitions() {
		if t := img.TopicByID(p.ID); t != nil && int(p.Index) < len(t.Partitions) {
			continue
		}
		if _, deleted := img.Deleted(p.ID); deleted {
			continue
		}
		m.follow.strays = append(m.follow.strays, p)
		m.logger.Warn("directory of no known topic is kept", "topic", p.Topic, "partition", p.Index, "topic_id", p.ID.String())
	}
}

// Strays lists the partitions found on disk at the start that the metadata does not know. Nothing is done to them.
func (m *Manager) Strays() []topic.Partition {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.follow.strays)
}
