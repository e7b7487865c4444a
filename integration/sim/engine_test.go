package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
)

// event is something that happens at a time. of and life, when set, tie it to
// one process: a paused process does it later, one that died never.
type event struct {
	at   int64
	seq  int
	of   *broker
	life int
	fn   func()
}

type events []*event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(*event)) }
func (q *events) Pop() any {
	x := (*q)[len(*q)-1]
	(*q)[len(*q)-1] = nil
	*q = (*q)[:len(*q)-1]
	return x
}

// engine is time, chance and the order of events.
type engine struct {
	rng   *rand.Rand
	now   int64 // true time, milliseconds
	seq   int
	queue events
	steps int
	story story
}

func newEngine(seed uint64) engine { return engine{rng: rand.New(rand.NewPCG(seed, 11))} }

// after runs fn when delay milliseconds have passed.
func (e *engine) after(delay int64, fn func()) { e.push(&event{at: e.now + delay, fn: fn}) }

// soon runs fn in b's process after a delay, unless the process is gone by then.
func (e *engine) soon(b *broker, delay int64, fn func()) {
	e.push(&event{at: e.now + delay, of: b, life: b.life, fn: fn})
}

func (e *engine) push(ev *event) {
	e.seq++
	ev.seq = e.seq
	heap.Push(&e.queue, ev)
}

// step runs the next event. It returns false when there is none before until.
func (e *engine) step(until int64) bool {
	for len(e.queue) > 0 && e.queue[0].at <= until {
		ev := heap.Pop(&e.queue).(*event)
		e.now = max(e.now, ev.at)
		if b := ev.of; b != nil {
			if !b.up || b.life != ev.life {
				continue
			}
			if b.paused > e.now {
				ev.at = b.paused
				e.push(ev)
				continue
			}
		}
		e.steps++
		ev.fn()
		return true
	}
	e.now = max(e.now, until)
	return false
}

// one is true once in n times.
func (e *engine) one(n int) bool { return e.rng.IntN(n) == 0 }

// between is a number in [low, high).
func (e *engine) between(low, high int64) int64 { return low + e.rng.Int64N(high-low) }

// story keeps the latest of what happened, for whoever has to understand it. It
// is told only when a seed that failed is run again.
type story struct {
	told  bool
	lines []string
}

const storyLines = 4000

func (e *engine) tell(format string, args ...any) {
	if !e.story.told {
		return
	}
	if len(e.story.lines) >= storyLines {
		e.story.lines = append(e.story.lines[:0], e.story.lines[storyLines/2:]...)
	}
	e.story.lines = append(e.story.lines, fmt.Sprintf("%8d  ", e.now)+fmt.Sprintf(format, args...))
}

// last are the latest lines, those that mention all of the words if there are any.
func (s *story) last(n int, words ...string) []string {
	var out []string
	for i := len(s.lines) - 1; i >= 0 && len(out) < n; i-- {
		ok := true
		for _, w := range words {
			ok = ok && strings.Contains(s.lines[i], w)
		}
		if ok {
			out = append(out, s.lines[i])
		}
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
