package share

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Acknowledge takes what a member says of records that it holds: all of it, or none with an error. The round is the one that
// makes it durable; 0: there is nothing to wait for.
//
// What lies below the start is done, whoever did it, and is no error.
func (p *Partition) Acknowledge(member string, acks []Ack, now int64) (round uint64, err error) {
	p.Tick(now)
	for i := range acks {
		if err := acks[i].WellFormed(); err != nil {
			return 0, err
		}
	}
	if overlap(acks) {
		return 0, fmt.Errorf("%w: it says so twice", ErrInvalidRecordState)
	}
	for i := range acks {
		if err := p.acceptable(member, &acks[i]); err != nil {
			return 0, err
		}
	}
	for i := range acks {
		if p.acknowledge(&acks[i], now) {
			round = p.open
		}
	}
	return round, nil
}

// overlap says whether two of them speak of one record. Clients send them in order, and then it costs no memory.
func overlap(acks []Ack) bool {
	byFirst := func(a, b Ack) int { return cmp.Compare(a.First, b.First) }
	if !slices.IsSortedFunc(acks, byFirst) {
		acks = slices.Clone(acks)
		slices.SortFunc(acks, byFirst)
	}
	for i := 1; i < len(acks); i++ {
		if acks[i].First <= acks[i-1].Last {
			return true
		}
	}
	return false
}

// WellFormed says whether an acknowledgement is one: offsets in order, one type or one for each, and types that there are.
func (a *Ack) WellFormed() error {
	switch {
	case a.First < 0 || a.Last < a.First:
		return fmt.Errorf("%w: offsets %d to %d", ErrInvalidAcknowledgement, a.First, a.Last)
	case len(a.Types) == 0 || len(a.Types) > 1 && int64(len(a.Types)) != a.Last-a.First+1:
		return fmt.Errorf("%w: %d types for offsets %d to %d", ErrInvalidAcknowledgement, len(a.Types), a.First, a.Last)
	}
	for _, t := range a.Types {
		if t < Gap || t > Renew {
			return fmt.Errorf("%w: type %d", ErrInvalidAcknowledgement, t)
		}
	}
	return nil
}

// acceptable says whether a member may say this, which is well formed.
func (p *Partition) acceptable(member string, a *Ack) error {
	if a.Last < p.start {
		return nil
	}
	if len(p.runs) == 0 {
		return ErrInvalidRecordState
	}
	if a.Last >= p.next {
		return fmt.Errorf("%w: offset %d was not delivered", ErrInvalidAcknowledgement, a.Last)
	}
	first := max(a.First, p.start)
	for i := p.find(first); i < len(p.runs) && p.runs[i].first <= a.Last; i++ {
		r := &p.runs[i]
		if r.state == Acquired && r.round == 0 && r.member == member {
			continue
		}
		if r.state == Archived && (r.round == 0 || r.reason == notARecord) && a.gaps(max(r.first, first), min(r.last, a.Last)) {
			continue // so it is
		}
		return ErrInvalidRecordState
	}
	if !p.limits.Renewable && a.has(Renew) {
		return fmt.Errorf("%w: the group does not allow renewals", ErrInvalidRecordState)
	}
	return nil
}

// gaps says that a member takes everything from first to last for a gap.
func (a *Ack) gaps(first, last int64) bool {
	for at := first; at <= last; at = a.alike(at) + 1 {
		if a.typeAt(at) != Gap {
			return false
		}
	}
	return true
}

func (a *Ack) has(t int8) bool {
	for _, x := range a.Types {
		if x == t {
			return true
		}
	}
	return false
}

func (a *Ack) typeAt(offset int64) int8 {
	if len(a.Types) == 1 {
		return a.Types[0]
	}
	return a.Types[offset-a.First]
}

// alike is the last offset up to which the type is the one at an offset.
func (a *Ack) alike(offset int64) int64 {
	if len(a.Types) == 1 {
		return math.MaxInt64 - 1
	}
	t, i := a.typeAt(offset), offset-a.First
	for i+1 < int64(len(a.Types)) && a.Types[i+1] == t {
		i++
	}
	return a.First + i
}

// acknowledge applies one, which is acceptable, and reports whether there is anything to write.
func (p *Partition) acknowledge(a *Ack, now int64) (changed bool) {
	p.edit(a.First, a.Last, a.alike, func(r *run) {
		if r.state != Acquired {
			return // archived, and called a gap
		}
		t := a.typeAt(r.first)
		if t == Renew {
			r.deadline = now + p.limits.LockMillis
			return
		}
		changed = true
		switch t {
		case Accept:
			p.change(r, slot{state: Acknowledged, deliveries: r.deliveries})
		case Gap:
			p.change(r, slot{state: Archived, deliveries: r.deliveries})
		case Release:
			p.giveBack(r)
		case Reject:
			p.giveUp(r, Rejected)
		}
	})
	return changed
}

// giveBack makes records available again, unless they have been delivered as often as may be.
func (p *Partition) giveBack(r *run) {
	if r.deliveries >= p.limits.DeliveriesMax {
		p.giveUp(r, Exhausted)
		return
	}
	p.change(r, slot{state: Available, deliveries: r.deliveries})
}

// giveUp archives records, by way of the dead-letter topic if there is one.
func (p *Partition) giveUp(r *run, why Reason) {
	to := Archived
	if p.limits.DeadLetters {
		to = Archiving
	}
	p.change(r, slot{state: to, deliveries: r.deliveries, reason: why})
}

// Leave gives back what a member holds. That it was delivered counts, as in Kafka 4.4: it may be what the member died of.
func (p *Partition) Leave(member string) (round uint64) {
	for i := range p.runs {
		r := &p.runs[i]
		if r.state == Acquired && r.round == 0 && r.member == member {
			p.giveBack(r)
			round = p.open
		}
	}
	return round
}

// Tick gives back what is held by locks that have run out. It reports whether there is anything to write.
func (p *Partition) Tick(now int64) bool {
	for i := range p.runs {
		if r := &p.runs[i]; r.state == Acquired && r.round == 0 && r.deadline <= now {
			p.giveBack(r)
			p.expired += r.size()
		}
	}
	return p.pending
}

// NextDeadline is when the next lock runs out; false: nothing is held.
func (p *Partition) NextDeadline() (at int64, ok bool) {
	for i := range p.runs {
		if r := &p.runs[i]; r.state == Acquired && r.round == 0 && (!ok || r.deadline < at) {
			at, ok = r.deadline, true
		}
	}
	return at, ok
}

// Expired is how many records' locks have run out so far.
func (p *Partition) Expired() int64 { return p.expired }
