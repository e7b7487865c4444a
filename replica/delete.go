package replica

import (
	"context"
	"maps"
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

// deletion counts down a deleted topic's partitions: those whose files are still here, and those that this broker has yet to
// remove from the bucket.
//
// Every broker that has an archive removes a topic's objects itself, after it has heard of the deletion and so has ended its
// own uploads: until then it may be a leader that nobody reached, and put there what another broker's removal has passed.
// A broker therefore confirms what was here when both are gone, and the bucket's part is confirmed when no broker is left
// that has yet to confirm. Until then the tombstone tells every broker of the bucket.
type deletion struct {
	files, objects             int32
	confirmed, confirmedBucket bool // or on the way there
}

// tombstoneLocked starts the removal of a topic that a committed command deleted, unless there is nothing left for this
// broker to do, and confirms what is gone. After a restart the tombstone is still there, and what is gone already is quickly
// found to be.
func (m *Manager) tombstoneLocked(d meta.DeletedTopic) {
	here := slices.Contains(d.Brokers, m.config.NodeID)
	bucket := d.Tier && m.deps.Tier != nil
	if m.follow.deleting[d.ID] != nil {
		m.confirmLocked(d.ID)
		return
	}
	if !here && !bucket {
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

// filesGoneLocked notes that one partition's files are gone here.
func (m *Manager) filesGoneLocked(id topic.Partition) {
	if d := m.follow.deleting[id.ID]; d != nil && d.files > 0 {
		d.files--
		m.confirmLocked(id.ID)
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
		d.objects--
		m.confirmLocked(id.ID)
	}
}

// confirmLocked confirms what is gone of a topic, each part once: what was here, and, if all brokers have confirmed that, what
// was in the bucket.
func (m *Manager) confirmLocked(id topic.ID) {
	left := m.follow.deleting[id]
	d, ok := m.follow.seen.Deleted(id)
	if !ok || left.files > 0 || left.objects > 0 {
		return
	}
	if slices.Contains(d.Brokers, m.config.NodeID) && !left.confirmed {
		left.confirmed = true
		m.wg.Go(func() { m.confirm(id, m.config.NodeID, false) })
	}
	if d.Tier && len(d.Brokers) == 0 && m.deps.Tier != nil && !left.confirmedBucket {
		left.confirmedBucket = true
		m.wg.Go(func() { m.confirm(id, -1, true) })
	}
}

// forgetDeletionsLocked forgets the deletions of which everything is confirmed.
func (m *Manager) forgetDeletionsLocked(img *meta.Image) {
	maps.DeleteFunc(m.follow.deleting, func(id topic.ID, _ *deletion) bool {
		_, ok := img.Deleted(id)
		return !ok
	})
}

// confirm tells the controller what is gone, until it has taken that. Should the process end before, the tombstone is still
// there at the next start.
func (m *Manager) confirm(id topic.ID, broker int32, tier bool) {
	for {
		ctx, cancel := context.WithTimeout(m.running, confirmTimeout)
		err := m.deps.Meta.ConfirmDeleted(ctx, id, broker, tier)
		cancel()
		if err == nil || m.running.Err() != nil {
			return
		}
		m.logger.Warn("deletion not confirmed yet", "topic_id", id.String(), "err", err)
		select {
		case <-m.running.Done():
			return
		case <-time.After(confirmEvery):
		}
	}
}
