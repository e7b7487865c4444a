package tier

import (
	"cmp"
	"slices"

	"github.com/varvelog/varve/meta/topic"
)

// event is something the core is told. Answers carry the leadership generation
// they were asked under; a late answer only frees its slot.
type event interface{ apply(c *core, now instant) }

// logView is what a look at the local log found.
type logView struct {
	LogOffsets
	sealed []localSegment // all that end above the archive's end, in order
	oldest localSegment   // the first sealed segment; end 0 when there is none
	bytes  int64          // of all sealed segments
	judged judgement
}

func (v *logView) add(s localSegment, above int64) {
	if v.oldest.end == 0 {
		v.oldest = s
	}
	v.bytes += s.bytes
	if s.end > above {
		v.sealed = append(v.sealed, s)
	}
}

// holds says whether one sealed segment has all of [from, end) and ends there.
func (v *logView) holds(from, end int64) bool {
	i, ok := slices.BinarySearchFunc(v.sealed, end, func(s localSegment, o int64) int { return cmp.Compare(s.end, o) })
	return ok && v.sealed[i].base <= from
}

// localSegment is a sealed local segment in numbers.
type localSegment struct {
	base, end, bytes int64
	maxTimestamp     int64
	modified         int64 // wall ms of the last write to it
	since            int64 // wall ms of its first append, or of the first look at it
}

type (
	evLead struct {
		p     topic.Partition
		gen   uint64
		epoch int32
		cfg   TopicConfig

		leadership *Leadership // the shell's, nothing to the core
	}
	evInspect struct { // fn reads the core between two steps
		fn   func(c *core, now instant)
		done chan struct{}
	}
	evResign struct{ p topic.Partition }
	evConfig struct {
		p   topic.Partition
		cfg TopicConfig
	}
	evWake struct{ p topic.Partition } // something about the log changed
	evTick struct{}                    // a timer is due
	evRate struct{ bytesPerSecond int64 }

	// answer is the head of every reply.
	answer struct {
		p   topic.Partition
		gen uint64
		err error
	}
	evLoaded struct {
		answer
		state State
		scrub scrubPlace // how far the archive was read before a restart
	}
	evClaimed struct {
		answer
		state State
	}
	evLooked struct {
		answer
		view logView
	}
	evRolled struct {
		answer
	}
	evUploaded struct {
		answer
		id    uint64
		bytes int64 // as the effect had it
		key   string
		add   AddSegment
	}
	evCommitted struct {
		answer
		state State
	}
	evOldest struct {
		answer
		state    State // the segments are of
		segments []RemoteSegment
		complete bool // the list reaches the archive's end
	}
	evMarked struct {
		answer
		state  State // the list is of
		marked []Marked
	}
	evDeleted struct {
		answer
		ids []MarkID
		key string
	}
	evCollected struct {
		answer
		search  bool
		left    bool // unreferenced objects that are too young yet, or, of a search, any
		orphans bool // as the effect had it
		survey  bool
		absent  []MarkID // of a survey: what seems to be missing or of another size, newest first
		again   bool     // it proves nothing, and is to be made again
	}
	evScrubbed struct {
		answer
		got scrubbed
	}
	evSuspect struct { // a reader met an object that is missing or damaged
		p  topic.Partition
		id MarkID
	}
	evExamined struct {
		answer
		object MarkID
		found  examined
		read   readTally
	}
	evMended struct {
		answer
		id     uint64
		object MarkID
		bytes  int64 // as the effect had it
		add    AddSegment
		put    bool // an object may have been left in the store
		read   readTally
	}
	evStarted struct { // the log start was advanced
		answer
	}
)

// find returns the partition an answer belongs to, nil when it is late.
func (c *core) find(a answer) *partition {
	p := c.parts[a.p]
	if p == nil || p.gen != a.gen {
		return nil
	}
	return p
}

func (e evTick) apply(*core, instant)    {}
func (e evInspect) apply(*core, instant) {}

func (e evRate) apply(c *core, _ instant) { c.cfg.uploadRate = max(e.bytesPerSecond, 0) }

func (e evLead) apply(c *core, now instant) {
	next := asleep{gen: e.gen, epoch: e.epoch}
	if old := c.parts[e.p]; old != nil {
		if e.epoch < old.epoch {
			return
		}
		next.suspect = old.suspect || len(old.uploads) > 0 || old.mending()
		c.leave(old)
	}
	if old, ok := c.asleep[e.p]; ok {
		if e.epoch < old.epoch {
			return
		}
		next.suspect = old.suspect
		c.leaveAsleep(e.p)
	}
	if c.graves[e.p] != nil {
		return // a deleted topic id does not come back
	}
	if p := c.enter(e.p, next, e.cfg, now); p != nil {
		p.advance(c, now)
	}
}

func (e evResign) apply(c *core, _ instant) {
	if p := c.parts[e.p]; p != nil {
		c.leave(p)
	}
	c.leaveAsleep(e.p)
}

// leave forgets a partition; its answers still on the way will find nobody.
func (c *core) leave(p *partition) {
	c.due.stop(&p.timer)
	c.copySlots.forget(p)
	c.deleteSlots.forget(p)
	c.callSlots.forget(p)
	c.examineSlots.forget(p)
	p.left = true
	delete(c.parts, p.id)
	c.emit(fxCancel{p.ref()})
}

func (e evConfig) apply(c *core, now instant) {
	c.wakeUp(e.p, e.cfg, now)
	if p := c.parts[e.p]; p != nil {
		if e.cfg.Enabled && !p.cfg.Enabled {
			p.claimed, p.stale = false, true // what was known may have been dropped since
		}
		p.cfg = e.cfg
		p.dirty = true
		p.oldest, p.oldestKnown = nil, false
		p.wantStart = -1
		p.advance(c, now)
	}
}

func (e evWake) apply(c *core, now instant) {
	if p := c.parts[e.p]; p != nil {
		p.dirty = true
		p.rewatch = true // a watch that fired is spent
		p.advance(c, now)
	}
}
