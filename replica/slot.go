package replica

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/isr"
)

// slot is a partition's place with the workers: what the image wants of it, and how far that is done. The manager's mutex
// guards it; p belongs to the worker that has taken the slot.
type slot struct {
	id       topic.Partition
	want     desired
	pending  bool // want is newer than what was applied
	queued   bool
	taken    bool // a worker has it
	urgent   bool // it is in the urgent queue
	retrying bool // a timer will queue it again
	p        *Partition
}

// desired is what an image wants of a partition on this broker.
type desired struct {
	deleted bool // the topic was deleted, by a committed command that names this id
	// reassigned says that the partition has other replicas now, by a committed change.
	reassigned bool
	objects    bool // with deleted: the bucket may hold some of it
	gone       bool // no longer in the image, and not deleted either: stop serving, keep the data
	leads      bool
	state      isr.Leadership
	settings   *settings
}

// replicaKey names a partition whatever its topic is called.
type replicaKey struct {
	id    topic.ID
	index int32
}

func keyOf(p topic.Partition) replicaKey { return replicaKey{p.ID, p.Index} }

// slotQueue is the slots waiting for a worker; those somebody asks for come first.
type slotQueue struct {
	urgent, later []*slot
}

func (q *slotQueue) pop() *slot {
	for _, list := range []*[]*slot{&q.urgent, &q.later} {
		for len(*list) > 0 {
			s := (*list)[0]
			(*list)[0] = nil
			*list = (*list)[1:]
			if s.queued && !s.taken {
				s.queued, s.urgent = false, false
				return s
			}
		}
	}
	return nil
}

// setLocked records what is wanted of a partition and queues it.
func (m *Manager) setLocked(id topic.Partition, want desired) {
	s, ok := m.slots[keyOf(id)]
	if !ok {
		s = &slot{id: id}
		m.slots[keyOf(id)] = s
	}
	s.want, s.pending = want, true
	m.queueLocked(s, false)
}

func (m *Manager) queueLocked(s *slot, urgent bool) {
	switch {
	case s.taken:
		return // its worker looks again when it is done
	case urgent:
		m.queue.urgent = append(m.queue.urgent, s)
	case !s.queued:
		m.queue.later = append(m.queue.later, s)
	}
	s.queued = true
	m.work.Signal()
}

// hurry puts a partition that somebody asks for before the others that wait to be opened: with ten thousand of them after a
// start, the first acknowledgement does not wait for the last.
func (m *Manager) hurry(id topic.ID, index int32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.slots[replicaKey{id, index}]; ok && s.queued && !s.urgent {
		s.urgent = true
		m.queueLocked(s, true)
	}
}

// worker takes slots and brings their partitions to what the image wants, until the manager closes.
func (m *Manager) worker() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		var s *slot
		for !m.closed {
			if s = m.queue.pop(); s != nil {
				break
			}
			m.work.Wait()
		}
		if m.closed {
			return
		}
		want := s.want
		s.taken, s.pending = true, false
		m.mu.Unlock()
		err := m.apply(s, want)
		m.mu.Lock()
		s.taken = false
		switch {
		case s.pending:
			m.queueLocked(s, false)
		case want.deleted && err == nil:
			delete(m.slots, keyOf(s.id))
			m.filesGoneLocked(s.id)
		case want.reassigned && err == nil:
			delete(m.slots, keyOf(s.id))
		}
		if err != nil {
			m.retryLaterLocked(s)
			m.logger.Error("partition does not follow the metadata", "partition", s.id.String(), "topic_id", s.id.ID.String(), "err", err)
		}
	}
}

// retryEvery is how long a partition that could not be brought to what is wanted waits for the next attempt.
const retryEvery = 30 * time.Second

func (m *Manager) retryLaterLocked(s *slot) {
	if m.closed || s.retrying {
		return
	}
	s.retrying = true
	m.wg.Go(func() {
		select {
		case <-m.running.Done():
		case <-time.After(retryEvery):
			m.mu.Lock()
			defer m.mu.Unlock()
			s.retrying = false
			m.queueLocked(s, false)
		}
	})
}

// apply brings one partition to what is wanted. The slot is this worker's alone.
func (m *Manager) apply(s *slot, want desired) error {
	if want.deleted || want.reassigned {
		return m.remove(s, want.objects)
	}
	if want.gone {
		if s.p != nil {
			s.p.resign(ErrUnknownPartition)
		}
		return nil
	}
	if s.p == nil {
		p, err := m.open(s.id, want.settings, m.others(want.state))
		if err != nil {
			return fmt.Errorf("open: %w", err)
		}
		s.p = p
	}
	s.p.configure(want.settings)
	if want.leads && !m.whole(s.p, want.state) {
		m.table.set(s.id, s.p)
		return nil
	}
	if want.leads {
		err := s.p.log.Err()
		if want.state.Recovering && err != nil {
			err = s.p.fromLog(err)
		} else {
			err = s.p.lead(want.state)
		}
		if err != nil {
			if errors.Is(err, ErrClosed) {
				return nil
			}
			s.p.goOffline(err)
			return fmt.Errorf("lead: %w", err)
		}
	} else {
		s.p.follow(want.state)
	}
	m.table.set(s.id, s.p)
	s.p.lookAtDamage() // what was found before the partition was in the table
	return nil
}

// others says that somebody else has every committed record of the partition, as far as the controller knows: who is merely a
// replica may have none of them.
func (m *Manager) others(l isr.Leadership) bool {
	other := func(id int32) bool { return id != m.config.NodeID }
	return slices.ContainsFunc(l.ISR, other) || slices.ContainsFunc(l.ELR, other)
}

// open opens or creates the partition's log; recovery of its tail happens here. A log of which synced bytes are gone is set aside
// when others have the records; otherwise it stays where it is, offline, for it may be the best there is.
func (m *Manager) open(id topic.Partition, set *settings, others bool) (*Partition, error) {
	log, err := m.deps.Hot.Log(id, set.log)
	if err == nil && others && errors.Is(log.Err(), hot.ErrCorrupt) {
		log, err = m.deps.Hot.SetAside(id, set.log)
	}
	if err != nil {
		return nil, err
	}
	p := &Partition{id: id, name: id.String(), m: m, log: log, opened: now(), openedEnd: log.Offsets().End}
	if m.deps.Archive != nil {
		p.remote = m.deps.Archive.Partition(id)
	}
	p.role.Store(&role{err: ErrNotLeader, epoch: NoEpoch, leader: NoReplica})
	p.settings.Store(set)
	p.counted.Store(isr.NoProgress)
	p.wholeIn.Store(int64(NoEpoch))
	o := log.Offsets()
	log.OnDurable(func() { p.progress() })
	p.damage.init()
	if o.End > o.LocalStart {
		p.busy.Store(true)
		m.retention.at(p, now())
	}
	return p, nil
}

// configure takes changed settings into use.
func (p *Partition) configure(set *settings) {
	old := p.settings.Swap(set)
	if old == set {
		return
	}
	p.log.SetConfig(set.log)
	if old.followThrottle != set.followThrottle {
		p.throttleChanged()
	}
	if old.tier.Enabled && !set.tier.Enabled && set.tier.DeleteOnDisable && p.role.Load().err != nil {
		// The leader's tier manager empties the archive and moves the leader's log start; every other replica gives up by
		// itself what was in the bucket only (KIP-950).
		p.log.SetRemoteEnd(NoOffset)
		if err := p.log.AdvanceLogStart(p.log.Offsets().LocalStart); err != nil {
			p.logger().Warn("log start not moved to the local start", "err", p.fromLog(err))
		}
	}
	if l := p.offload.Load(); l != nil {
		l.ConfigChanged()
	}
	p.m.retention.at(p, now())
}

// remove deletes the partition here: its readers hear of it, the tier manager takes over what is in the bucket, the directory
// goes. The tier manager's note is durable before the directory goes: a crash in between repeats the deletion.
func (m *Manager) remove(s *slot, objects bool) error {
	m.table.set(s.id, nil)
	if s.p != nil {
		s.p.resign(ErrUnknownPartition)
		m.retention.forget(s.p)
		m.compaction.forget(s.p)
	}
	if objects {
		if err := m.deps.Tier.TopicDeleted(s.id); err != nil {
			return fmt.Errorf("hand the deletion to the tier manager: %w", err)
		}
	}
	if err := m.deps.Hot.Delete(s.id); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	s.p = nil
	return nil
}
