package coordinator

import "errors"

// simShares are leaders of partitions that keep what share groups have acknowledged with their coordinator (KIP-932).
type simShares struct {
	w     *simWorld
	list  []*simShare
	count int
}

// simShare is one share-partition: its leaders, what they were told is kept, and what somebody has set.
type simShare struct {
	key    ShareKey
	epoch  int32 // of the newest leader
	taken  int32 // the newest that has taken the state over, as it was told; 0: none
	state  int32 // epoch that was told last
	asked  int32 // epoch that was asked for last
	kept   map[int64]bool
	start  int64
	next   int64
	begun  bool
	writes int
	states map[int32]int32 // leader epoch → the state epoch that it was told
}

func (m *simShares) init(w *simWorld) {
	m.w = w
	w.cfg.ShareSnapshotUpdates = 5
	w.cfg.ShareCutMillis = 3000
	for p := range int32(2) {
		m.list = append(m.list, &simShare{key: ShareKey{Group: "s", Topic: testTopicID("t"), Partition: p}, epoch: 1, kept: map[int64]bool{}, states: map[int32]int32{}})
	}
}

func (m *simShares) step() {
	x := m.list[m.w.rng.IntN(len(m.list))]
	switch {
	case !x.begun || m.w.one(60):
		m.reset(x)
	case x.taken != x.epoch:
		m.take(x)
	case m.w.one(30):
		x.epoch++ // another leader
	case m.w.one(5):
		m.late(x)
	default:
		m.keep(x)
	}
}

// reset begins the share-partition anew, as somebody does who sets the group's offsets. Until it is known whether that was done,
// nothing is owed.
func (m *simShares) reset(x *simShare) {
	x.asked++
	epoch := x.asked
	x.kept, x.start = map[int64]bool{}, 0
	m.w.request(simStates, &ShareInitialize{ShareKey: x.key, StateEpoch: epoch, Start: 0}, func(_ any, err error) {
		if err == nil {
			x.begun, x.state, x.next = true, max(x.state, epoch), 0
		}
	})
}

func (m *simShares) take(x *simShare) {
	epoch := x.epoch
	m.w.request(simStates, &ShareRead{ShareKey: x.key, LeaderEpoch: epoch}, func(result any, err error) {
		if err != nil {
			return
		}
		r := result.(*ShareReadResult)
		x.taken, x.state, x.states[epoch] = max(x.taken, epoch), r.StateEpoch, r.StateEpoch
		m.owed(x, r.StateEpoch, r.Start, r.Batches, "the state that a leader reads")
		x.start = r.Start
	})
}

// owed: everything kept is acknowledged or below the start.
func (m *simShares) owed(x *simShare, epoch int32, start int64, batches []ShareBatch, where string) {
	if epoch != x.state || x.asked != x.state {
		return // begun anew, or perhaps
	}
	if start < x.start {
		m.w.fail("%s of %v starts at %d, and %d was kept", where, x.key, start, x.start)
	}
	for o := range x.kept {
		found := o < start
		for _, b := range batches {
			found = found || b.First <= o && o <= b.Last && b.State == ShareAcknowledged
		}
		if !found {
			m.w.fail("%s of %v has lost the acknowledgement of %d", where, x.key, o)
		}
	}
}

func (m *simShares) keep(x *simShare) {
	o, state := x.next, x.state
	x.next += 1 + m.w.rng.Int64N(2)
	q := &ShareWrite{ShareKey: x.key, StateEpoch: state, LeaderEpoch: x.epoch, Start: x.start, DeliveryCompleteCount: 0,
		Batches: []ShareBatch{{First: o, Last: o, State: ShareAcknowledged, DeliveryCount: 1}}}
	if m.w.rng.IntN(6) == 0 {
		q.Start = o // everything before is settled
	}
	m.w.request(simStates, q, func(_ any, err error) {
		if err == nil && x.state == state && x.asked == state {
			x.kept[o], x.start = true, max(x.start, q.Start)
			m.count++
		}
	})
}

// late is a leader, or a group, that has been replaced.
func (m *simShares) late(x *simShare) {
	q := &ShareWrite{ShareKey: x.key, StateEpoch: x.states[x.taken-1], LeaderEpoch: x.taken - 1, Start: 0,
		Batches: []ShareBatch{{First: x.next, Last: x.next + 3, State: ShareAcknowledged, DeliveryCount: 1}}}
	if q.LeaderEpoch < 1 {
		return
	}
	m.w.request(simStates, q, func(_ any, err error) {
		if err == nil {
			m.w.fail("a leader of epoch %d keeps something of %v, after one of %d has taken it over", q.LeaderEpoch, x.key, x.taken)
		}
		if errors.Is(err, ErrFencedLeaderEpoch) {
			x.writes++
		}
	})
}

func (m *simShares) checkState(c *shareCore) {
	for _, x := range m.list {
		if p := c.parts[x.key]; p != nil && x.begun {
			m.owed(x, p.stateEpoch, p.start, p.batches, "the state")
		}
	}
}
