package tier

import "github.com/varvelog/varve/meta/topic"

// grave is the removal of a deleted topic's partition from the bucket. Its steps
// can all be repeated, so that a restart begins again from the journal:
//
//	journal → retire the manifest (fences every leader) → grace (readers)
//	→ sweep everything under the prefix → an upload's lifetime → sweep again
//	→ forget
//
// The second sweep catches uploads that were on their way when the first one ran. It
// catches this process's: every broker that may have led removes the partition
// itself, once it has heard of the deletion and has ended its uploads.
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
		p      topic.Partition
		step   graveStep
		absent bool // there is no manifest yet: nothing to be fenced, read or swept
		err    error
	}
	fxBury struct { // answered: evBuried
		p             topic.Partition
		step          graveStep
		timeoutMillis int64
	}
)

func (fxBury) isEffect() {}

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
		g.advance(c, now)
		return
	}
	g.rest.succeed()
	g.problem = nil
	switch g.step {
	case graveRetire:
		g.at = now.steady + c.cfg.graceMillis
		if e.absent {
			// There is nobody to be waited for, but there may be a first head on its way.
			g.step = graveSweep
			g.at = now.steady + c.cfg.lifetimeMillis()
		}
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
