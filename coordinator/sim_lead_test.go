package coordinator

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/coordinator/share"
)

// simLead is one share-partition with the log under it, the brokers that have led it, and what its members were told.
type simLead struct {
	m     *simModern
	key   ShareKey
	begun bool
	log   []share.Batch
	end   int64
	epoch int32     // of the newest leader
	taken int32     // the newest that has taken the state over
	all   []*simLed // leaders, the newest last; others do not know yet that they are none

	said     map[int64]bool  // somebody said that it is done
	rejected map[int64]bool  // or that nobody is to have it
	worn     map[int64]bool  // it was delivered as often as may be
	letters  map[int64]bool  // its dead letter is out
	told     map[int64]int32 // somebody was told that it is acknowledged → by the leader of which epoch

	deliveries, fenced int
}

// simLed is a broker that leads, or thinks so, as broker's sharePart does it.
type simLed struct {
	core   *share.Partition
	epoch  int32
	state  int32
	skew   int64
	waits  []simWait
	flight *simFlight
	held   map[int64]simHold // by offset
}

// simHold is who holds a record; with a round it is spoken for.
type simHold struct {
	member string
	until  int64
	round  uint64
}

type simWait struct {
	round  uint64
	accept []int64
}

// simFlight is a write that is under way.
type simFlight struct {
	q      ShareWrite
	round  uint64
	landed bool
	err    error
}

const simDeliveries = 3

func newSimLead(m *simModern, p int32) *simLead {
	return &simLead{
		m: m, key: ShareKey{Group: "led", Topic: testTopicID("t"), Partition: p}, epoch: 1, said: map[int64]bool{}, rejected: map[int64]bool{},
		worn: map[int64]bool{}, letters: map[int64]bool{}, told: map[int64]int32{},
	}
}

func (x *simLead) limits() share.Limits {
	return share.Limits{LocksMax: 12, DeliveriesMax: simDeliveries, LockMillis: 4000, Renewable: true, DeadLetters: x.key.Partition == 1}
}

func (x *simLead) step() {
	w := x.m.w
	if !x.begun {
		w.request(simStates, &ShareInitialize{ShareKey: x.key, StateEpoch: 1, Start: 0}, func(_ any, err error) { x.begun = err == nil })
		return
	}
	if !w.quiet && w.rng.IntN(6) == 0 && x.end < 400 {
		x.grow()
	}
	if w.one(50) {
		x.epoch++
		w.tell("%v has a leader of epoch %d", x.key, x.epoch)
		return
	}
	if n := len(x.all); n == 0 || x.all[n-1].epoch != x.epoch {
		x.load()
		return
	}
	l := x.all[len(x.all)-1]
	if w.rng.IntN(5) == 0 && !w.quiet {
		l = x.all[w.rng.IntN(len(x.all))]
	}
	now := w.now + l.skew
	switch n := w.rng.IntN(12); {
	case n < 4:
		x.fetch(l, now)
		if w.quiet {
			x.acknowledge(l, "ann", now)
			x.acknowledge(l, "bob", now)
		}
	case n < 7:
		x.acknowledge(l, x.member(), now)
	case n < 10:
		x.write(l, now)
	case n < 11:
		l.core.Tick(now)
		x.bury(l)
	case w.one(4):
		l.skew += w.rng.Int64N(20_000) - 10_000
	case w.one(6) || !w.quiet && l.core.Idle() && len(l.waits) == 0:
		x.drop(l) // its process ends, or nobody needs it
	case w.one(3):
		member := x.member()
		if round := l.core.Leave(member); round != 0 {
			for o, h := range l.held {
				if h.member == member && h.round == 0 {
					delete(l.held, o)
				}
			}
		}
	}
	if err := l.core.Check(); err != nil {
		w.fail("%v: %v", x.key, err)
	}
}

func (x *simLead) member() string { return []string{"ann", "bob"}[x.m.w.rng.IntN(2)] }

func (x *simLead) grow() {
	rng := x.m.w.rng
	if rng.IntN(8) == 0 {
		x.end += 1 + rng.Int64N(2) // what compaction leaves
	}
	n := 1 + rng.Int64N(5)
	x.log = append(x.log, share.Batch{First: x.end, Last: x.end + n - 1, Skip: rng.IntN(6) == 0})
	x.end += n
}

func (x *simLead) visible(o int64) bool {
	for _, b := range x.log {
		if b.First <= o && o <= b.Last {
			return !b.Skip
		}
	}
	return false
}

func (x *simLead) drop(l *simLed) {
	for i, o := range x.all {
		if o == l {
			x.all = append(x.all[:i:i], x.all[i+1:]...)
			return
		}
	}
}

// load takes the share-partition over, as sharePart.loaded does.
func (x *simLead) load() {
	epoch := x.epoch
	x.m.w.request(simStates, &ShareRead{ShareKey: x.key, LeaderEpoch: epoch}, func(result any, err error) {
		if err != nil {
			return
		}
		r := result.(*ShareReadResult)
		x.taken = max(x.taken, epoch)
		var done []share.Done
		for _, b := range r.Batches {
			done = append(done, share.Done{First: b.First, Last: b.Last, State: share.State(b.State), Deliveries: b.DeliveryCount})
		}
		l := &simLed{core: share.Restore(r.Start, done, x.limits()), epoch: epoch, state: r.StateEpoch, held: map[int64]simHold{}}
		x.all = append(x.all, l)
		x.m.w.tell("%v: the leader of epoch %d begins at %d with %v", x.key, epoch, r.Start, done)
		x.bury(l)
	})
}

func (x *simLead) fetch(l *simLed, now int64) {
	w := x.m.w
	l.core.Tick(now)
	from, ok := l.core.NextFetch()
	if !ok || from >= x.end {
		return
	}
	var batches []share.Batch
	for _, b := range x.log {
		if b.Last >= from && len(batches) < 3 {
			batches = append(batches, b)
		}
	}
	member := x.member()
	for _, h := range l.core.Acquire(share.Want{Member: member, RecordsMax: 1 + w.rng.IntN(6), BatchSize: 3, Strict: w.rng.IntN(2) == 0}, from, batches, now, nil) {
		w.tell("%v: %s is given %d to %d by epoch %d, delivery %d", x.key, member, h.First, h.Last, l.epoch, h.Deliveries)
		for o := h.First; o <= h.Last; o++ {
			x.deliveries++
			x.worn[o] = x.worn[o] || h.Deliveries >= simDeliveries
			at, told := x.told[o]
			has, taken := l.held[o]
			switch {
			case !x.visible(o):
				w.fail("%v: %s is given %d, which is no record", x.key, member, o)
			case told && at <= l.epoch:
				w.fail("%v: %s is given %d by the leader of epoch %d, and it was acknowledged in epoch %d", x.key, member, o, l.epoch, at)
			case h.Deliveries > simDeliveries:
				w.fail("%v: %s is given %d for the %dth time", x.key, member, o, h.Deliveries)
			case taken && (has.round != 0 || has.until > now):
				w.fail("%v: %s is given %d, which %s has until %d, round %d; it is %d", x.key, member, o, has.member, has.until, has.round, now)
			}
			l.held[o] = simHold{member: member, until: now + x.limits().LockMillis}
		}
	}
}

func (x *simLead) acknowledge(l *simLed, member string, now int64) {
	w := x.m.w
	var acks []share.Ack
	for o := l.core.Start(); o < l.core.Next(); o++ {
		if h, ok := l.held[o]; !ok || h.member != member || !w.quiet && w.rng.IntN(3) == 0 {
			continue
		}
		kind := share.Accept
		if !w.quiet && w.rng.IntN(3) == 0 {
			kind = []int8{share.Release, share.Reject, share.Renew}[w.rng.IntN(3)]
		}
		acks = append(acks, share.Ack{First: o, Last: o, Types: []int8{kind}})
	}
	if len(acks) == 0 {
		return
	}
	round, err := l.core.Acknowledge(member, acks, now)
	if err != nil {
		for o, h := range l.held {
			if h.until <= now && h.round == 0 {
				delete(l.held, o)
			}
		}
		return
	}
	wait := simWait{round: round}
	for _, a := range acks {
		h := l.held[a.First]
		switch a.Types[0] {
		case share.Renew:
			h.until = now + x.limits().LockMillis
			l.held[a.First] = h
			continue
		case share.Accept:
			x.said[a.First] = true
			wait.accept = append(wait.accept, a.First)
		case share.Reject:
			x.rejected[a.First] = true
		}
		h.round = round
		l.held[a.First] = h
	}
	l.waits = append(l.waits, wait)
}

// write takes a write one step on: it is made, it reaches the coordinator or does not, and its outcome is heard, or is not.
func (x *simLead) write(l *simLed, now int64) {
	w := x.m.w
	f := l.flight
	switch {
	case f == nil:
		out, round, ok := l.core.TakeWrite()
		if !ok {
			return
		}
		q := ShareWrite{ShareKey: x.key, StateEpoch: l.state, LeaderEpoch: l.epoch, Start: out.Start, DeliveryCompleteCount: out.Complete}
		for _, b := range out.Batches {
			q.Batches = append(q.Batches, ShareBatch{First: b.First, Last: b.Last, State: ShareDelivery(b.State), DeliveryCount: b.Deliveries})
		}
		l.flight = &simFlight{q: q, round: round}
	case !f.landed && w.one(8): // nobody waits for it any longer, and it arrives some time
		f.landed, f.err = true, errSimLost
		x.m.later = append(x.m.later, func() { x.send(f) })
	case !f.landed:
		x.send(f)
		f.landed = true
		if w.one(12) {
			x.m.later = append(x.m.later, func() { x.send(&simFlight{q: f.q}) }) // twice
		}
	default:
		x.written(l, f, now)
	}
}

func (x *simLead) send(f *simFlight) {
	fenced := x.taken > f.q.LeaderEpoch
	x.m.w.request(simStates, &f.q, func(_ any, err error) {
		if fenced && err == nil {
			x.m.w.fail("a leader of epoch %d keeps something of %v, after one of %d has taken it over", f.q.LeaderEpoch, x.key, x.taken)
		}
		if errors.Is(err, ErrFencedLeaderEpoch) {
			x.fenced++
		}
		if !f.landed {
			f.err = err
		}
	})
}

func (x *simLead) written(l *simLed, f *simFlight, now int64) {
	l.flight = nil
	l.core.Written(f.err == nil, now)
	rest := l.waits[:0]
	for _, wait := range l.waits {
		switch {
		case wait.round > f.round:
			rest = append(rest, wait)
		case f.err == nil && !x.m.w.one(20):
			for _, o := range wait.accept {
				if at, ok := x.told[o]; !ok || l.epoch < at {
					x.told[o] = l.epoch
				}
			}
		}
	}
	l.waits = rest
	for o, h := range l.held {
		switch {
		case h.round == 0 || h.round > f.round:
		case f.err == nil:
			delete(l.held, o)
		default:
			h.round = 0
			l.held[o] = h
		}
	}
	if errors.Is(f.err, ErrFencedLeaderEpoch) || errors.Is(f.err, ErrFencedStateEpoch) {
		x.drop(l)
		return
	}
	x.bury(l)
}

// bury produces dead letters, or fails to.
func (x *simLead) bury(l *simLed) {
	for _, d := range l.core.DeadLetters(nil) {
		if x.m.w.one(3) {
			l.core.Unburied(d.First, d.Last)
			continue
		}
		for o := d.First; o <= d.Last; o++ {
			if !x.rejected[o] && !x.worn[o] {
				x.m.w.fail("%v: %d has a dead letter, and nobody gave it up", x.key, o)
			}
			x.letters[o] = true
		}
		l.core.Buried(d.First, d.Last)
	}
}

// check: what is kept is what somebody said, and all of it that somebody was told.
func (x *simLead) check() {
	w := x.m.w
	p := w.logs[simStates].shadow.(*shareCore).parts[x.key]
	if p == nil {
		return
	}
	for o := range x.end {
		state := ShareAvailable
		if o < p.start {
			state = ShareAcknowledged
		}
		for _, b := range p.batches {
			if o >= p.start && b.First <= o && o <= b.Last {
				state = b.State
			}
		}
		_, told := x.told[o]
		done := state == ShareAcknowledged || state == ShareArchived
		given := x.rejected[o] || x.worn[o]
		if x.limits().DeadLetters {
			given = x.letters[o]
		}
		switch {
		case told && (!done || o >= p.start && state == ShareArchived && !given):
			w.fail("%v: %d was acknowledged, and is kept as %d", x.key, o, state)
		case done && x.visible(o) && !x.said[o] && !given:
			w.fail("%v: %d is kept as done, and nobody said so", x.key, o)
		}
	}
}

func (x *simLead) settled() string {
	p := x.m.w.logs[simStates].shadow.(*shareCore).parts[x.key]
	if p == nil || p.start < x.end {
		at := int64(-1)
		if p != nil {
			at = p.start
		}
		return fmt.Sprintf("%v is done up to %d of %d", x.key, at, x.end)
	}
	return ""
}
