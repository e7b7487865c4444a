package share

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// modelLog is what lies in the partition: batches, with holes within and between them.
type modelLog struct {
	batches []Batch
	logEnd  int64
	start   int64
}

func (l *modelLog) grow(t *rapid.T) {
	l.logEnd += int64(rapid.SampledFrom([]int{0, 0, 0, 1, 3}).Draw(t, "hole")) // compaction leaves holes between batches
	n := int64(rapid.IntRange(1, 12).Draw(t, "records"))
	skip := rapid.IntRange(0, 5).Draw(t, "skip") == 0
	l.batches = append(l.batches, Batch{First: l.logEnd, Last: l.logEnd + n - 1, Skip: skip})
	l.logEnd += n
}

// read is what the log gives from an offset on: the batch that holds it, and some that follow.
func (l *modelLog) read(from int64, most int) (list []Batch) {
	for _, b := range l.batches {
		if b.Last >= from && b.Last >= l.start && len(list) < most {
			list = append(list, b)
		}
	}
	return list
}

func (l *modelLog) visible(offset int64) bool {
	for _, b := range l.batches {
		if b.First <= offset && offset <= b.Last {
			return !b.Skip
		}
	}
	return false
}

// modelRecord is one record as the group must see it.
type modelRecord struct {
	state    State
	count    int16
	member   string
	deadline int64
	round    uint64 // that brings what follows
	to       State
	toCount  int16
	answered bool // somebody was told that it is acknowledged
	said     bool // somebody said so, or it was given up: the store may know of it
}

// world runs a Partition beside a model that keeps every record by itself.
type world struct {
	t       *rapid.T
	log     modelLog
	p       *Partition
	limits  Limits
	now     int64
	records map[int64]*modelRecord
	written map[int64]Done // what the store holds
	start   int64          // likewise
	write   Write
	round   uint64
	taken   []Done
	letters map[int64]int // dead letters produced
	out     []Held
	wide    bool // the window was so wide that what is done in it may have been joined
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: 1000, records: map[int64]*modelRecord{}, written: map[int64]Done{}, letters: map[int64]int{}}
	w.limits = Limits{
		LocksMax: rapid.IntRange(5, 40).Draw(t, "locks"), DeliveriesMax: int16(rapid.IntRange(2, 6).Draw(t, "deliveries")),
		LockMillis: 100, Renewable: true, DeadLetters: rapid.Bool().Draw(t, "dead letters"),
	}
	w.p = New(0, w.limits)
	return w
}

func (w *world) record(offset int64) *modelRecord {
	r := w.records[offset]
	if r == nil {
		r = &modelRecord{}
		w.records[offset] = r
	}
	return r
}

func (w *world) acquire() {
	from, ok := w.p.NextFetch()
	if !ok || from >= w.log.logEnd {
		return
	}
	want := Want{
		Member: rapid.SampledFrom([]string{"ann", "bob"}).Draw(w.t, "member"), RecordsMax: rapid.IntRange(1, 30).Draw(w.t, "max"),
		BatchSize: rapid.IntRange(1, 10).Draw(w.t, "batch size"), Strict: rapid.Bool().Draw(w.t, "strict"),
	}
	w.out = w.p.Acquire(want, from, w.log.read(from, rapid.IntRange(1, 5).Draw(w.t, "batches")), w.now, w.out[:0])
	total, last := int64(0), int64(-1)
	for _, h := range w.out {
		if h.First <= last || h.Last < h.First {
			w.t.Fatalf("ranges out of order: %v", w.out)
		}
		last = h.Last
		for o := h.First; o <= h.Last; o++ {
			r := w.record(o)
			switch {
			case !w.log.visible(o):
				w.t.Fatalf("offset %d was handed out and is no record", o)
			case r.state != Available || r.round != 0:
				w.t.Fatalf("offset %d was handed out and is %+v", o, *r)
			case r.count+1 != h.Deliveries:
				w.t.Fatalf("offset %d: delivery %d, expected %d", o, h.Deliveries, r.count+1)
			}
			r.state, r.count, r.member, r.deadline = Acquired, r.count+1, want.Member, w.now+w.limits.LockMillis
			total++
		}
	}
	if want.Strict && total > int64(want.RecordsMax) {
		w.t.Fatalf("%d records for a strict limit of %d", total, want.RecordsMax)
	}
	held := 0
	for _, r := range w.records {
		if r.state == Acquired {
			held++
		}
	}
	if held > w.limits.LocksMax {
		w.t.Fatalf("%d records are locked, limit %d", held, w.limits.LocksMax)
	}
}

// tick is what locks that run out do.
func (w *world) tick() {
	for _, r := range w.records {
		if r.state == Acquired && r.round == 0 && r.deadline <= w.now {
			w.pend(r, w.p.open, w.after(r, Release))
		}
	}
}

func (w *world) pend(r *modelRecord, round uint64, to State) {
	r.round, r.to, r.toCount, r.said = round, to, r.count, r.said || to.done()
}

func (w *world) after(r *modelRecord, t int8) State {
	gone := Archived
	if w.limits.DeadLetters {
		gone = Archiving
	}
	switch {
	case t == Accept:
		return Acknowledged
	case t == Gap:
		return Archived
	case t == Release && r.count < w.limits.DeliveriesMax:
		return Available
	}
	return gone
}

func (w *world) acknowledge() {
	if w.p.Next() == 0 {
		return
	}
	member := rapid.SampledFrom([]string{"ann", "bob"}).Draw(w.t, "member")
	first := int64(rapid.IntRange(0, int(w.p.Next())).Draw(w.t, "first"))
	if len(w.out) > 0 && rapid.Bool().Draw(w.t, "of the last") {
		first = w.out[0].First
	}
	a := Ack{First: first, Last: first + int64(rapid.IntRange(0, 6).Draw(w.t, "more"))}
	n := 1
	if rapid.Bool().Draw(w.t, "each") {
		n = int(a.Last - a.First + 1)
	}
	for range n {
		a.Types = append(a.Types, int8(rapid.SampledFrom([]int{1, 1, 1, 2, 3, 4, 0}).Draw(w.t, "type")))
	}
	w.tick()
	legal, changes, maybe := a.Last < w.p.Next() || a.Last < w.p.Start(), false, false
	for o := max(a.First, w.p.Start()); o <= a.Last; o++ {
		r := w.records[o]
		if r == nil || r.state != Acquired || r.round != 0 || r.member != member {
			hole := !w.log.visible(o) && a.typeAt(o) == Gap // a leader that took over may not have come by it yet
			done := w.wide && r != nil && r.state == Acknowledged && r.round == 0 && a.typeAt(o) == Gap
			maybe = maybe || hole || done
			legal = legal && (hole || done || r != nil && r.state == Archived && r.round == 0 && a.typeAt(o) == Gap)
		} else if a.typeAt(o) != Renew {
			changes = true
		}
	}
	start := w.p.Start()
	round, err := w.p.Acknowledge(member, []Ack{a}, w.now)
	switch {
	case legal != (err == nil) && !(legal && maybe):
		w.t.Fatalf("%s acknowledges %+v: %v, expected legal=%v", member, a, err, legal)
	case err != nil && !errors.Is(err, ErrInvalidRecordState) && !errors.Is(err, ErrInvalidAcknowledgement):
		w.t.Fatal(err)
	case err != nil:
		return
	case changes != (round != 0):
		w.t.Fatalf("%s acknowledges %+v in round %d, expected one: %v", member, a, round, changes)
	}
	for o := max(a.First, start); o <= a.Last; o++ {
		r := w.records[o]
		if r == nil || r.state != Acquired || r.round != 0 {
			continue
		}
		if t := a.typeAt(o); t == Renew {
			r.deadline = w.now + w.limits.LockMillis
		} else {
			w.pend(r, round, w.after(r, t))
		}
	}
}

func (w *world) leave() {
	member := rapid.SampledFrom([]string{"ann", "bob"}).Draw(w.t, "member")
	round := w.p.Leave(member)
	for _, r := range w.records {
		if r.state == Acquired && r.round == 0 && r.member == member {
			w.pend(r, round, w.after(r, Release))
		}
	}
}

func (w *world) take() {
	x, round, ok := w.p.TakeWrite()
	if !ok {
		return
	}
	w.taken = append(w.taken[:0], x.Batches...)
	x.Batches = w.taken
	w.write, w.round = x, round
	for _, d := range x.Batches {
		for o := d.First; o <= d.Last; o++ {
			if r := w.records[o]; w.log.visible(o) && (r == nil || r.round != round || r.to != d.State || r.toCount != d.Deliveries) {
				w.t.Fatalf("offset %d is written as %+v and is %+v", o, d, r)
			}
		}
	}
}

// store is what the coordinator keeps when a write comes to it.
func (w *world) store() {
	w.start = max(w.start, w.write.Start)
	for _, d := range w.write.Batches {
		for o := d.First; o <= d.Last; o++ {
			w.written[o] = Done{First: o, Last: o, State: d.State, Deliveries: d.Deliveries}
		}
	}
}

func (w *world) finish() {
	if w.round == 0 {
		return
	}
	ok := rapid.IntRange(0, 4).Draw(w.t, "written") > 0
	if ok || rapid.Bool().Draw(w.t, "stored all the same") {
		w.store()
	}
	w.p.Written(ok, w.now)
	for o, r := range w.records {
		if r.round != w.round {
			continue
		}
		if !ok {
			if r.to == Archived && r.state == Archiving {
				r.round = w.p.open
				continue
			}
			r.round = 0
			continue
		}
		r.state, r.count, r.member, r.round = r.to, r.toCount, "", 0
		if r.state.done() {
			r.answered = true
			if d, there := w.written[o]; o >= w.start && (!there || !d.State.done()) {
				w.t.Fatalf("offset %d was answered as %d and written as %+v", o, r.state, d)
			}
		}
	}
	w.round = 0
}

func (w *world) letter() {
	for _, d := range w.p.DeadLetters(nil) {
		if rapid.IntRange(0, 3).Draw(w.t, "produced") == 0 {
			w.p.Unburied(d.First, d.Last)
			continue
		}
		for o := d.First; o <= d.Last; o++ {
			w.letters[o]++
			w.pend(w.record(o), w.p.open, Archived)
		}
		w.p.Buried(d.First, d.Last)
	}
}

// crash begins anew from what was stored.
func (w *world) crash() {
	var list []Done
	for o := int64(0); o < w.log.logEnd; o++ {
		if d, ok := w.written[o]; ok && o >= w.start {
			list = append(list, d)
		}
	}
	w.p, w.round = Restore(w.start, list, w.limits), 0
	w.p.LogStart(w.log.start) // as every leader does
	for o, r := range w.records {
		if r.answered {
			if d := w.written[o]; o >= w.start && !d.State.done() {
				w.t.Fatalf("offset %d was answered and is lost", o)
			}
		}
		d, there := w.written[o]
		answered, said := r.answered, r.said
		switch {
		case o < w.start || o < w.log.start:
			if !r.said && o >= w.log.start {
				w.t.Fatalf("offset %d lies below the start and is %+v", o, *r)
			}
			*r = modelRecord{state: Archived}
		case there:
			*r = modelRecord{state: d.State, count: d.Deliveries}
		default:
			*r = modelRecord{}
		}
		r.answered, r.said = answered, said
	}
}

func (w *world) moveLogStart() {
	to := w.log.start + int64(rapid.IntRange(0, 15).Draw(w.t, "by"))
	if to > w.log.logEnd {
		return
	}
	w.log.start = to
	w.p.LogStart(to)
	for o := int64(0); o < to; o++ {
		*w.record(o) = modelRecord{state: Archived, said: true}
	}
}

func (w *world) check() {
	if err := w.p.Check(); err != nil {
		w.t.Fatal(err)
	}
	for o := int64(0); o < w.p.Start(); o++ {
		if r := w.records[o]; w.log.visible(o) && o >= w.log.start && (r == nil || !r.state.done()) {
			w.t.Fatalf("the start moved to %d, and offset %d is %+v", w.p.Start(), o, r)
		}
	}
	w.wide = w.wide || w.p.Next()-w.p.Start() > int64(2*w.limits.LocksMax+1)
	if w.p.Runs() > 2*int(w.p.Next()-w.p.Start())+1 {
		w.t.Fatalf("%d runs in a window of %d", w.p.Runs(), w.p.Next()-w.p.Start())
	}
}

// drain plays on without faults: at the end every record must have been acknowledged or given up.
func (w *world) drain() {
	for step := 0; w.p.Start() < w.log.logEnd; step++ {
		if step > 3000 {
			w.t.Fatalf("stuck: start %d, next %d, end %d, %d in flight\n%+v", w.p.Start(), w.p.Next(), w.log.logEnd, w.p.InFlight(), w.p.runs)
		}
		if from, ok := w.p.NextFetch(); ok && from < w.log.logEnd {
			w.out = w.p.Acquire(Want{Member: "zoe", RecordsMax: 10, BatchSize: 10}, from, w.log.read(from, 5), w.now, w.out[:0])
			for _, h := range w.out {
				if _, err := w.p.Acknowledge("zoe", []Ack{{First: h.First, Last: h.Last, Types: []int8{Accept}}}, w.now); err != nil {
					w.t.Fatal(err)
				}
				for o := h.First; o <= h.Last; o++ {
					if r := w.record(o); r.answered {
						w.t.Fatalf("offset %d was answered as done and is delivered again", o)
					}
				}
			}
		}
		w.p.Tick(w.now)
		for _, d := range w.p.DeadLetters(nil) {
			w.p.Buried(d.First, d.Last)
		}
		if _, _, ok := w.p.TakeWrite(); ok {
			w.p.Written(true, w.now)
		} else {
			w.now += 10
		}
	}
}

func TestEveryRecordIsAcknowledgedOnceOrDeliveredAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		steps := map[string]func(){
			"grow": func() { w.log.grow(t) }, "acquire": w.acquire, "acquire more": w.acquire, "acknowledge": w.acknowledge,
			"acknowledge more": w.acknowledge, "take": w.take, "finish": w.finish, "leave": w.leave, "letter": w.letter,
			"wait":  func() { w.now += int64(rapid.IntRange(1, 60).Draw(t, "millis")); w.tick(); w.p.Tick(w.now) },
			"crash": w.crash, "log start": w.moveLogStart,
		}
		rare := map[string]bool{"crash": true, "log start": true, "leave": true}
		names := []string{"grow", "acquire", "acquire more", "acknowledge", "acknowledge more", "take", "finish", "wait", "letter", "leave", "crash", "log start"}
		for range rapid.IntRange(10, 120).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "step")
			if rare[name] && rapid.IntRange(0, 3).Draw(t, "rarely") > 0 {
				continue
			}
			if name == "take" && w.round != 0 {
				continue
			}
			steps[name]()
			w.check()
		}
		if w.round != 0 {
			w.p.Written(false, w.now)
			w.round = 0
		}
		w.drain()
	})
}

func (r *modelRecord) String() string { return fmt.Sprintf("%+v", *r) }
