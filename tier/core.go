package tier

import (
	"math"
	"math/rand/v2"

	"github.com/varvelog/varve/meta/topic"
)

// The manager's core. It decides and does nothing else: no goroutine, no I/O, no
// clock. step takes one event and the time and returns the effects the shell
// has to carry out; each effect that asks for an answer gets exactly one event
// back, also after it was cancelled.
//
// A partition is a handful of lanes (load, look, claim, upload, commit, retain,
// delete, collect). A lane has at most one call in flight, except upload. After
// every event the partition's lanes are looked at in order, and each decides from
// the state alone what to do next: there is no script that could be left in the
// middle. Failures rest a lane, never the partition.

// instant is a moment on two clocks. Wall time judges records' timestamps. Steady
// time, which no one can set, measures grace, back-off and deadlines.
type instant struct{ wall, steady int64 } // ms

// coreConfig are the core's bounds, in ms and bytes.
type coreConfig struct {
	uploads, uploadsPerPartition, deletes, calls int
	deleteBatch                                  int
	graceMillis                                  int64
	uploadMillis, uploadMinRate, uploadMillisMax int64
	uploadRate                                   int64 // limiter, 0 = none
	callMillis, collectMillis                    int64
	stuckMillis, recheckMillis                   int64
	searchMillis                                 int64 // between searches for orphans, 0 = none
	surveyMillis                                 int64 // between comparisons of the bucket with the manifest, 0 = none
	readMillis                                   int64 // between readings of every object, 0 = none
	scrubRate, scrubPerDay                       int64 // their limits: bytes per second, requests per day; 0 = none
	doubts                                       int   // objects of a partition that are looked into, 0 = doubtsMax
	noCollection                                 bool
	seed                                         uint64

	broken mutant // deliberately broken builds, set by tests only
}

// lifetimeMillis is the longest time between an object's upload starting and its
// commit. An unreferenced object older than this cannot be committed any more.
func (c *coreConfig) lifetimeMillis() int64 {
	return c.uploadMillisMax + 2*c.callMillis + c.graceMillis
}

// oldestWindow is the number of archive segments retention looks at in one go.
const oldestWindow = 256

// addsPerCommit bounds the segments one commit adds.
const addsPerCommit = 32

// examinesMax is the number of objects that are examined at once.
const examinesMax = 2

type core struct {
	cfg    coreConfig
	rng    *rand.Rand
	parts  map[topic.Partition]*partition
	asleep map[topic.Partition]asleep
	graves map[topic.Partition]*grave
	due    timers
	ids    uint64 // last upload id

	copySlots   slots
	deleteSlots slots
	callSlots   slots
	// Examinations read whole objects and must not hold up calls to the manifest.
	examineSlots slots
	scrub        scrubber
	sendingBytes int64 // of uploads in flight; the limiter shares its rate among them

	skew  int64 // wall − steady at the last event
	begun bool
	out   []effect
}

func newCore(cfg coreConfig) *core {
	if cfg.doubts == 0 {
		cfg.doubts = doubtsMax
	}
	return &core{
		cfg:         cfg,
		rng:         rand.New(rand.NewPCG(cfg.seed, cfg.seed^0x9e3779b97f4a7c15)),
		parts:       map[topic.Partition]*partition{},
		asleep:      map[topic.Partition]asleep{},
		graves:      map[topic.Partition]*grave{},
		copySlots:   newSlots(cfg.uploads),
		deleteSlots: newSlots(cfg.deletes),
		callSlots:   newSlots(cfg.calls),

		examineSlots: newSlots(examinesMax),
	}
}

// step applies one event and returns what to do. The returned slice is valid
// until the next call.
func (c *core) step(ev event, now instant) []effect {
	clear(c.out)
	c.out = c.out[:0]
	c.watchClock(now)
	ev.apply(c, now)
	for t := c.due.pop(now.steady); t != nil; t = c.due.pop(now.steady) {
		t.fire(now)
	}
	c.serveWaiting(now)
	return c.out
}

// next returns the steady time of the earliest timer.
func (c *core) next() (int64, bool) { return c.due.next() }

// watchClock looks every partition over when the wall clock was set: timers for
// record timestamps were armed for the old one.
func (c *core) watchClock(now instant) {
	skew := now.wall - now.steady
	moved := c.begun && absMillis(skew-c.skew) > 2000
	if !c.begun || moved {
		c.skew, c.begun = skew, true
	}
	if moved {
		for _, p := range c.parts {
			c.due.set(&p.timer, now.steady)
		}
	}
}

// serveWaiting hands freed slots to the partitions that wait for them, in turn.
func (c *core) serveWaiting(now instant) {
	for _, s := range []*slots{&c.callSlots, &c.copySlots, &c.deleteSlots, &c.examineSlots} {
		for p := s.turn(); p != nil; p = s.turn() {
			p.advance(c, now)
		}
	}
}

func (c *core) emit(fx effect) { c.out = append(c.out, fx) }

func absMillis(v int64) int64 {
	if v < 0 {
		return -v
	}
	return v
}

// addMillis adds without overflow; timestamps come from clients.
func addMillis(a, b int64) int64 {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
