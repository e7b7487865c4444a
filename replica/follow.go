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
	broker   *conf.Broker           // with the dynamic settings of the newest image
	dynamic  map[string]string      // those
	deleting map[topic.ID]*deletion // topics whose removal here is under way
	strays   []topic.Partition      // directories on disk that no image names
}

// image takes a new metadata image. It only compares and queues; the workers do the rest. Topics that have not changed are
// the same objects in both images.
func (m *Manager) image(prev, next *meta.Image) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
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
			continue
		}
		m.setLocked(t.Key(int32(i)), desired{
			leads:    state.Leader == m.config.NodeID,
			settings: set,
			state: isr.Leadership{
				Leader: state.Leader, Epoch: state.LeaderEpoch, PartitionEpoch: state.PartitionEpoch,
				Replicas: state.Replicas, ISR: state.ISR, MinISR: state.MinISR(int(set.topic.MinInsyncReplicas)),
			},
		})
	}
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
