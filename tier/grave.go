package tier

import (
	"errors"

	"github.com/varvelog/varve/meta/topic"
)

// grave is the removal of a deleted topic's partition from the bucket. Its steps
// can all be repeated, so that a restart begins again from the journal:
//
//	journal → retire the manifest (fences every leader) → grace (readers)
//	→ sweep everything under the prefix → an upload's lifetime → sweep again
//	→ forget
//
// Where there is no manifest yet a retired one is made, so that a leader which has
// never claimed, and has not heard, cannot make a first one meanwhile.
//
// The second sweep catches uploads that were on their way when the first one ran. It
// catches this process's: every broker that may have led removes the partition
// itself, once it has heard of the deletion and has ended its uploads. A broker that
// is cut off has lost its lease long before the second sweep, and neither claims nor
// uploads without one.
//
// A manifest that cannot be read stops its removal, and no other: what it says may
// matter, and the deletion does not become wrong by waiting. It is tried again
// seldom, and said each time.
type grave struct {
	id      topic.Partition
	step    graveStep
	busy    bool
	at      int64 // steady: not before
	rest    backoff
	timer   timer
	problem *Problem
}

type graveStep uint8

const (
	graveRetire graveStep = iota
	graveSweep
	graveSweepAgain
	graveForget
)

type (
	evTopicDeleted struct{ p topic.Partition } // it is in the journal already
	evBuried       struct {                    // a step of the removal is done, or failed
		p    topic.Partition
		step graveStep
		err  error
	}
	fxBury struct { // answered: evBuried
		p             topic.Partition
		step          graveStep
		timeoutMillis int64
	}
)

func (fxBury) isEffect() {}

// A removal whose manifest cannot be read waits this long for its next try, doubling.
const (
	unreadableMillis    = 10 * 60_000
	unreadableMillisMax = 6 * 3_600_000
)

// unreadable says that what the bucket holds is there, and not to be understood.
func unreadable(err error) bool {
	return errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnsupported)
}

func (e evTopicDeleted) apply(c *core, now instant) {
	if p := c.parts[e.p]; p != nil {
		c.leave(p)
	}
	c.leaveAsleep(e.p)
	if c.graves[e.p] != nil {
		return
	}
	g := &grave{id: e.p}
	g.timer.fire = func(now instant) { g.advance(c, now) }
	c.graves[e.p] = g
	g.advance(c, now)
}

// advance starts the next step when it is due. Removals share the delete slots
// but do not queue for them: they wait and come back.
func (g *grave) advance(c *core, now instant) {
	if g.busy {
		return
	}
	due := max(g.at, g.rest.until)
	if due > now.steady {
		c.due.set(&g.timer, due)
		return
	}
	if c.deleteSlots.used >= c.deleteSlots.limit {
		c.due.set(&g.timer, now.steady+backoffMinMillis+int64(c.rng.IntN(backoffMinMillis)))
		return
	}
	c.deleteSlots.used++
	g.busy = true
	timeout := c.cfg.callMillis
	if g.step == graveSweep || g.step == graveSweepAgain {
		timeout = c.cfg.collectMillis
	}
	c.emit(fxBury{g.id, g.step, timeout})
}

func (e evBuried) apply(c *core, now instant) {
	c.deleteSlots.release()
	g := c.graves[e.p]
	if g == nil {
		return
	}
	g.busy = false
	if e.err != nil {
		g.rest.fail(now.steady, c.rng)
		if g.problem == nil {
			g.problem = &Problem{Op: "delete topic", Since: now.wall}
		}
		g.problem.Err, g.problem.Count = e.err, g.problem.Count+1
		if unreadable(e.err) {
			g.rest.until = now.steady + min(int64(unreadableMillis)<<min(g.problem.Count-1, 8), unreadableMillisMax)
		}
		g.advance(c, now)
		return
	}
	g.rest.succeed()
	g.problem = nil
	switch g.step {
	case graveRetire:
		g.at = now.steady + c.cfg.graceMillis
	case graveSweep:
		g.at = now.steady + c.cfg.lifetimeMillis()
	case graveForget:
		c.due.stop(&g.timer)
		delete(c.graves, e.p)
		return
	}
	g.step++
	g.advance(c, now)
}
