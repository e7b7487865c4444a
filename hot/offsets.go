package hot

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Offsets is where a log stands. LogStart ≤ LocalStart ≤ Durable ≤ End.
type Offsets struct {
	LogStart   int64 // first offset of the whole log, both tiers
	LocalStart int64 // first offset that is on local disk
	Durable    int64 // everything below is durable; End in Replicated mode
	End        int64 // next offset to be assigned
}

// offsetCell publishes Offsets without a lock for readers: a sequence counter
// is odd while a writer is inside, and readers retry.
type offsetCell struct {
	mu  sync.Mutex // writers, one at a time
	seq atomic.Uint64

	logStart, localStart, durable, end atomic.Int64
}

func (c *offsetCell) load() Offsets {
	for {
		before := c.seq.Load()
		if before&1 == 0 {
			o := Offsets{c.logStart.Load(), c.localStart.Load(), c.durable.Load(), c.end.Load()}
			if c.seq.Load() == before {
				return o
			}
		}
		runtime.Gosched()
	}
}

// update changes the offsets as f says and returns the new ones.
func (c *offsetCell) update(f func(*Offsets)) Offsets {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := Offsets{c.logStart.Load(), c.localStart.Load(), c.durable.Load(), c.end.Load()}
	f(&o)
	c.storeLocked(o)
	return o
}

func (c *offsetCell) storeLocked(o Offsets) {
	c.seq.Add(1)
	c.logStart.Store(o.LogStart)
	c.localStart.Store(o.LocalStart)
	c.durable.Store(o.Durable)
	c.end.Store(o.End)
	c.seq.Add(1)
}

// setEnd publishes a new end; with follow set it is durable as well.
func (c *offsetCell) setEnd(end int64, follow bool) {
	c.mu.Lock()
	c.seq.Add(1)
	c.end.Store(end)
	if follow {
		c.durable.Store(end)
	}
	c.seq.Add(1)
	c.mu.Unlock()
}

// advanceDurable moves Durable up to at most End and reports whether it moved.
func (c *offsetCell) advanceDurable(to int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	to = min(to, c.end.Load())
	if to <= c.durable.Load() {
		return false
	}
	c.seq.Add(1)
	c.durable.Store(to)
	c.seq.Add(1)
	return true
}
