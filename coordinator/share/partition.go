package share

import (
	"fmt"
	"slices"
	"sort"
)

// Partition is one share-partition. It is not safe for concurrent use.
type Partition struct {
	limits      Limits
	start, next int64
	runs        []run // cover [start, next) without a gap, in order
	scratch     []run // of edit, as is piece
	piece       run
	writes      []Done

	open      uint64 // the round that changes join
	pending   bool   // some have
	flying    uint64 // the round that is being written; 0: none
	flyStart  int64  // the start that it writes
	startSaid int64  // the start that was written last
	expired   int64  // records whose locks have run out
}

// run is a stretch of neighbouring offsets in one state.
type run struct {
	first, last int64
	slot
	was   slot   // what they are again if the round cannot be written
	round uint64 // that makes the slot durable; 0: it is, or it needs not be
	head  bool   // a run of Held began here: what is given back together is handed out together
}

type slot struct {
	state      State
	reason     Reason
	handed     bool  // archiving: whoever produces dead letters has it
	deliveries int16 // that have begun
	member     string
	deadline   int64 // of the lock, milliseconds
}

func (r *run) size() int64 { return r.last - r.first + 1 }

// settled says that the run is what it is for good.
func (r *run) settled() bool { return r.round == 0 && r.state.done() }

// New is a share-partition of which nothing is known but where it starts.
func New(start int64, limits Limits) *Partition {
	return &Partition{limits: limits, start: start, next: start, open: 1, startSaid: start}
}

// Restore is a share-partition as it was written. Batches are in order and do not overlap; what lies below start is left out.
func Restore(start int64, batches []Done, limits Limits) *Partition {
	p := New(start, limits)
	for _, b := range batches {
		if b.Last < p.next {
			continue
		}
		b.First = max(b.First, p.next)
		if b.First > p.next {
			p.runs = append(p.runs, run{first: p.next, last: b.First - 1, head: true})
		}
		s := slot{state: b.State, deliveries: b.Deliveries}
		if s.state == Acquired {
			s.state = Available
		}
		if s.state == Archiving {
			s.reason = Rejected
			if s.deliveries >= limits.DeliveriesMax {
				s.reason = Exhausted
			}
		}
		p.runs = push(p.runs, run{first: b.First, last: b.Last, slot: s, head: true})
		p.next = b.Last + 1
	}
	p.advance()
	p.compact()
	return p
}

// Start is the first offset that is not done.
func (p *Partition) Start() int64 { return p.start }

// Next is the first offset that was never delivered.
func (p *Partition) Next() int64 { return p.next }

// SetLimits changes the limits. Locks keep the deadlines they have.
func (p *Partition) SetLimits(l Limits) { p.limits = l }

// Runs is how many stretches the window consists of, and Bytes what they take.
func (p *Partition) Runs() int  { return len(p.runs) }
func (p *Partition) Bytes() int { return (cap(p.runs) + cap(p.scratch)) * runBytes }

const runBytes = 120

// InFlight is how many offsets of the window are not done.
func (p *Partition) InFlight() int {
	n := p.next - p.start
	for i := range p.runs {
		if p.runs[i].settled() {
			n -= p.runs[i].size()
		}
	}
	return int(n)
}

// NextFetch is the offset from which the log is to be read; false: there is nothing to hand out until something is
// acknowledged or given back.
func (p *Partition) NextFetch() (int64, bool) {
	for i := range p.runs {
		if r := &p.runs[i]; r.state == Available && r.round == 0 {
			return r.first, true
		}
	}
	return p.next, p.InFlight() < p.limits.LocksMax
}

// Idle says that nobody holds anything, and that there is nothing to write and no dead letter to produce: the share-partition
// can be forgotten, since what was written is all there is to know.
func (p *Partition) Idle() bool {
	if p.flying != 0 || p.pending || p.start != p.startSaid {
		return false
	}
	for i := range p.runs {
		if s := p.runs[i].state; s == Acquired || s == Archiving {
			return false
		}
	}
	return true
}

// LogStart says that the log does not hold what lies below an offset any more.
func (p *Partition) LogStart(offset int64) {
	if offset <= p.start {
		return
	}
	p.start, p.next = offset, max(p.next, offset)
	n := 0
	for n < len(p.runs) && p.runs[n].last < offset {
		n++
	}
	p.runs = slices.Delete(p.runs, 0, n)
	if len(p.runs) > 0 {
		p.runs[0].first = max(p.runs[0].first, offset)
	}
	p.advance()
}

// advance takes settled runs off the front of the window.
func (p *Partition) advance() {
	n := 0
	for n < len(p.runs) && p.runs[n].settled() {
		n++
	}
	if n > 0 {
		p.start = p.runs[n-1].last + 1
		p.runs = slices.Delete(p.runs, 0, n)
	}
}

// compact joins what is done, acknowledged or archived, when the window has more runs than its locks account for: a record that is
// held for long has any number behind it that are done in turns. What is lost is that a gap there that was acknowledged as a record
// is an error. Then no two settled runs are neighbours, and the others are bounded by the locks.
func (p *Partition) compact() {
	if len(p.runs) <= 2*p.limits.LocksMax+1 {
		return
	}
	runs := p.runs[:1]
	for i := 1; i < len(p.runs); i++ {
		r, before := &p.runs[i], &runs[len(runs)-1]
		if !r.settled() || !before.settled() {
			runs = append(runs, *r)
			continue
		}
		before.last = r.last
		if before.state != r.state {
			before.slot = slot{state: Archived}
		}
	}
	clear(p.runs[len(runs):])
	p.runs = runs
}

// find is the index of the run that holds an offset of the window.
func (p *Partition) find(offset int64) int {
	return sort.Search(len(p.runs), func(i int) bool { return p.runs[i].last >= offset })
}

// push appends a run, as part of the one before it where the two cannot be told apart.
func push(runs []run, r run) []run {
	if n := len(runs); n > 0 && joins(&runs[n-1], &r) {
		runs[n-1].last = r.last
		return runs
	}
	return append(runs, r)
}

func joins(a, b *run) bool {
	if a.round != b.round || a.last+1 != b.first {
		return false
	}
	if a.state.done() && b.state.done() && a.round == 0 {
		return a.state == b.state // how often it was delivered is of no interest any more
	}
	return a.slot == b.slot && a.was == b.was && !b.head
}

// edit calls fn for every stretch of the window within [first, last] that is in one state, and puts what it makes of it in its
// place. cut, if there is one, says up to where the stretch that begins at an offset may be treated alike.
func (p *Partition) edit(first, last int64, cut func(offset int64) int64, fn func(*run)) {
	first, last = max(first, p.start), min(last, p.next-1)
	if first > last {
		return
	}
	from := p.find(first)
	to := from
	for to < len(p.runs) && p.runs[to].first <= last {
		to++
	}
	from, to = max(from-1, 0), min(to+1, len(p.runs)) // the neighbours too: they may join
	out := p.scratch[:0]
	for _, r := range p.runs[from:to] {
		if r.last < first || r.first > last {
			out = push(out, r)
			continue
		}
		if r.first < first {
			left := r
			left.last = first - 1
			out = push(out, left)
			r.first, r.head = first, false
		}
		right := r
		r.last = min(r.last, last)
		for r.first <= r.last {
			p.piece = r // not a variable: fn's argument would cost memory
			if cut != nil {
				p.piece.last = min(r.last, cut(r.first))
			}
			fn(&p.piece)
			out = push(out, p.piece)
			r.first, r.head = p.piece.last+1, false
		}
		if right.last > last {
			right.first, right.head = last+1, false
			out = push(out, right)
		}
	}
	p.runs = slices.Replace(p.runs, from, to, out...)
	p.scratch = out[:0]
}

// change puts a stretch into another state, as part of the round that is open.
func (p *Partition) change(r *run, to slot) {
	r.was, r.slot, r.round = r.slot, to, p.open
	p.pending = true
}

// Check says what is wrong with the machine's own state; nil: nothing. It is for tests.
func (p *Partition) Check() error {
	at := p.start
	for i := range p.runs {
		r := &p.runs[i]
		switch {
		case r.first != at || r.last < r.first:
			return fmt.Errorf("run %d is [%d,%d], expected to begin at %d", i, r.first, r.last, at)
		case r.state == Acquired && (r.member == "" || r.deadline == 0):
			return fmt.Errorf("run [%d,%d] is acquired by nobody", r.first, r.last)
		case r.round > p.open || r.round != 0 && r.round != p.open && r.round != p.flying:
			return fmt.Errorf("run [%d,%d] belongs to round %d; open is %d, flying %d", r.first, r.last, r.round, p.open, p.flying)
		}
		at = r.last + 1
	}
	if at != p.next {
		return fmt.Errorf("runs end at %d, the window at %d", at, p.next)
	}
	return nil
}
