package history

import (
	"fmt"
	"math/rand/v2"
)

// world is a log that keeps its promises, and clients that use it: what it
// writes is a legal history, with every outcome, crossing operations, two
// tiers, trims, consumers of both kinds and a final phase.
type world struct {
	rng    *rand.Rand
	now    int64
	events []Event
	logs   map[string]*simLog
	keys   []string
	procs  []*simProcess
	next   int // process number
	values int64
}

type simLog struct {
	values  []int64
	epochs  []int32 // per offset
	epoch   int32
	start   int64
	tiered  int64
	batches []Batch
}

type simProcess struct {
	number int
	// finish ends the operation under way; nil when there is none.
	finish    func()
	assigned  bool
	positions map[string]int64
}

func (w *world) tick() int64 {
	w.now += 1 + w.rng.Int64N(50)
	return w.now
}

func (w *world) add(e Event) {
	e.Time = w.tick()
	w.events = append(w.events, e)
}

func (w *world) key() string { return w.keys[w.rng.IntN(len(w.keys))] }

func (l *simLog) append(values ...int64) int64 {
	base := int64(len(l.values))
	for _, v := range values {
		l.values = append(l.values, v)
		l.epochs = append(l.epochs, l.epoch)
	}
	l.batches = append(l.batches, Batch{Base: base, Last: int64(len(l.values)) - 1, Epoch: l.epoch, Hash: uint64(base)*1_000_003 + uint64(values[0])})
	return base
}

// generate gives a legal history and the logs behind it.
func generate(seed uint64) ([]Event, map[string]*simLog) {
	w := &world{rng: rand.New(rand.NewPCG(seed, 1)), logs: map[string]*simLog{}, keys: []string{"a/0", "a/1", "b/0"}}
	for _, k := range w.keys {
		w.logs[k] = &simLog{tiered: -1, epoch: 1}
	}
	for range 5 {
		w.procs = append(w.procs, &simProcess{positions: map[string]int64{}})
		w.renumber(w.procs[len(w.procs)-1])
	}
	for range 400 {
		p := w.procs[w.rng.IntN(len(w.procs))]
		if p.finish != nil {
			finish := p.finish
			p.finish = nil
			finish()
			continue
		}
		w.begin(p)
	}
	for _, p := range w.procs {
		if p.finish != nil && w.rng.IntN(2) == 0 {
			p.finish() // the others stay open for ever
		}
	}
	w.final()
	return w.events, w.logs
}

func (w *world) renumber(p *simProcess) {
	w.next++
	p.number, p.assigned, p.positions = w.next, false, map[string]int64{}
}

func (w *world) begin(p *simProcess) {
	switch n := w.rng.IntN(20); {
	case n < 8:
		w.send(p)
	case n < 16:
		w.poll(p)
	case n == 16:
		w.assign(p)
	case n == 17:
		w.ends(p, w.key(), false)
	case n == 18:
		w.hold(w.key(), fmt.Sprint("broker ", w.rng.IntN(3)))
	default:
		l := w.logs[w.key()]
		l.epoch++
		l.tiered = max(l.tiered, int64(w.rng.IntN(len(l.values)+1))-1)
		if w.rng.IntN(3) == 0 {
			l.start = max(l.start, l.tiered/2)
		}
		w.add(Event{Process: -1, Type: Info, F: Fault, Note: "a new leader"})
	}
}

func (w *world) send(p *simProcess) {
	key := w.key()
	l := w.logs[key]
	var steps []Step
	var values []int64
	for range 1 + w.rng.IntN(3) {
		w.values++
		values = append(values, w.values)
		steps = append(steps, Step{F: Send, Key: key, Value: w.values, Offset: -1})
	}
	w.add(Event{Process: p.number, Type: Invoke, F: Send, Steps: steps})
	done := append([]Step(nil), steps...)
	result, appended := OK, true
	switch w.rng.IntN(10) {
	case 0:
		result, appended = Fail, false
	case 1:
		result, appended = Info, w.rng.IntN(2) == 0
	}
	late := w.rng.IntN(2) == 0
	put := func() {
		if !appended {
			return
		}
		base := l.append(values...)
		if result == OK {
			for i := range done {
				done[i].Offset = base + int64(i)
			}
		}
	}
	if !late {
		put()
	}
	p.finish = func() {
		if late {
			put()
		}
		w.add(Event{Process: p.number, Type: result, F: Send, Steps: done})
		if result == Info {
			w.renumber(p)
		}
	}
}

func (w *world) poll(p *simProcess) {
	if !p.assigned {
		w.assign(p)
		return
	}
	w.add(Event{Process: p.number, Type: Invoke, F: Poll})
	p.finish = func() {
		w.add(Event{Process: p.number, Type: OK, F: Poll, Steps: w.read(p, 1+w.rng.IntN(4))})
	}
}

func (w *world) read(p *simProcess, most int) []Step {
	var steps []Step
	for _, key := range w.keys {
		at, assigned := p.positions[key]
		l := w.logs[key]
		at = max(at, l.start)
		s := Step{F: Poll, Key: key, Offset: -1}
		for ; assigned && at < int64(len(l.values)) && len(s.Reads) < most; at++ {
			s.Reads = append(s.Reads, [2]int64{at, l.values[at]})
		}
		if len(s.Reads) > 0 {
			p.positions[key] = at
			steps = append(steps, s)
		}
	}
	return steps
}

func (w *world) assign(p *simProcess) {
	keys := []string{w.key()}
	w.add(Event{Process: p.number, Type: Invoke, F: Assign, Keys: keys})
	p.finish = func() {
		p.assigned, p.positions = true, map[string]int64{}
		for _, k := range keys {
			p.positions[k] = w.rng.Int64N(int64(len(w.logs[k].values)) + 1)
		}
		w.add(Event{Process: p.number, Type: OK, F: Assign, Keys: keys})
	}
}

func (w *world) ends(p *simProcess, key string, final bool) {
	w.add(Event{Process: p.number, Type: Invoke, F: Offsets, Key: key, Final: final})
	l := w.logs[key]
	p.finish = func() {
		w.add(Event{Process: p.number, Type: OK, F: Offsets, Key: key, Final: final, Ends: &Ends{Start: l.start, End: int64(len(l.values)), Tiered: l.tiered}})
	}
}

// hold notes what a replica holds of a key, from some batch on.
func (w *world) hold(key, source string) {
	l := w.logs[key]
	if len(l.batches) == 0 {
		return
	}
	w.add(Event{Process: -2, Type: OK, F: Batches, Key: key, Source: source, Batches: append([]Batch(nil), l.batches[w.rng.IntN(len(l.batches)):]...)})
}

func (w *world) final() {
	for range 2 {
		p := &simProcess{positions: map[string]int64{}}
		w.renumber(p)
		w.add(Event{Process: p.number, Type: Invoke, F: Assign, Keys: w.keys})
		w.add(Event{Process: p.number, Type: OK, F: Assign, Keys: w.keys})
		for _, k := range w.keys {
			w.ends(p, k, true)
			p.finish()
			p.positions[k] = 0
		}
		for {
			w.add(Event{Process: p.number, Type: Invoke, F: Poll, Final: true})
			steps := w.read(p, 5)
			w.add(Event{Process: p.number, Type: OK, F: Poll, Final: true, Steps: steps})
			if len(steps) == 0 {
				break
			}
		}
	}
	for _, k := range w.keys {
		w.hold(k, "the end")
	}
}
