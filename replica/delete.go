package replica

import (
	"context"
	"slices"
	"time"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// confirmEvery is how long a confirmation that was not taken waits for its next try, and confirmTimeout how long one may take.
const (
	confirmEvery   = time.Second
	confirmTimeout = 10 * time.Second
)

// deletion counts down a deleted topic's partitions: those whose files are still here, and those of which the bucket still
// holds something.
type deletion struct {
	files, objects int32
}

// tombstoneLocked starts the removal of a topic that a committed command deleted, unless it is under way or there is nothing
// left for this broker to do. After a restart the tombstone is still there, and what is gone already is quickly found to be.
func (m *Manager) tombstoneLocked(d meta.DeletedTopic) {
	here := slices.Contains(d.Brokers, m.config.NodeID)
	bucket := d.Tier && m.deps.Tier != nil
	if m.follow.deleting[d.ID] != nil || !here && !bucket {
		return
	}
	if m.follow.deleting == nil {
		m.follow.deleting = make(map[topic.ID]*deletion)
	}
	left := &deletion{}
	if here {
		left.files = d.Partitions
	}
	if bucket {
		left.objects = d.Partitions
	}
	m.follow.deleting[d.ID] = left
	m.table.drop(d.ID)
	m.follow.strays = slices.DeleteFunc(m.follow.strays, func(p topic.Partition) bool { return p.ID == d.ID })
	for i := range d.Partitions {
		m.setLocked(topic.Partition{Topic: d.Name, ID: d.ID, Index: i}, desired{deleted: true, objects: bucket})
	}
}

// filesGoneLocked notes that one partition's files are gone here, and confirms the topic with the last one.
func (m *Manager) filesGoneLocked(id topic.Partition) {
	if d := m.follow.deleting[id.ID]; d != nil && d.files > 0 {
		if d.files--; d.files == 0 {
			m.wg.Go(func() { m.confirm(id.ID, m.config.NodeID, false) })
		}
	}
}

// Removed is told by the tier manager that nothing of a deleted partition is left in the bucket.
func (m *Manager) Removed(id topic.Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	if d := m.follow.deleting[id.ID]; d != nil && d.objects > 0 {
		if d.objects--; d.objects == 0 {
			m.wg.Go(func() { m.confirm(id.ID, -1, true) })
		}
	}
}

// confirm tells the controller what is gone, until it has taken that. Should the process end before, the tombstone is still
// there at the next start.
func (m *Manager) confirm(id topic.ID, broker int32, tier bool) {
	for {
		ctx, cancel := context.WithTimeout(m.running, confirmTimeout)
		err := m.deps.Meta.ConfirmDeleted(ctx, id, broker, tier)
		cancel()
		if err == nil {
			break
		}
		if m.running.Err() != nil {
			return
		}
		m.logger.Warn("deletion not confirmed yet", "topic_id", id.String(), "err", err)
		select {
		case <-m.running.Done():
			return
		case <-time.After(confirmEvery):
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.follow.deleting[id]; d != nil && d.files == 0 && d.objects == 0 {
		delete(m.follow.deleting, id)
	}
}
