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
	// edgeBase and edgePos are where end is: a position in the segment of that
	// base offset. They are published with end, so that a reader who stops at
	// end does not meet bytes of an append that is not published yet.
	edgeBase, edgePos atomic.Int64

	flushed int64  // everything below is synced in its own files; guarded by mu
	cuts    uint64 // number of the last cut, as the journal has it; guarded by mu
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

// edge is the place of an end offset in the files.
type edge struct {
	end  int64
	base int64 // of the segment
	pos  int64
}

// loadEdge is load together with the place of the end.
func (c *offsetCell) loadEdge() (Offsets, edge) {
	for {
		before := c.seq.Load()
		if before&1 == 0 {
			o := Offsets{c.logStart.Load(), c.localStart.Load(), c.durable.Load(), c.end.Load()}
			e := edge{o.End, c.edgeBase.Load(), c.edgePos.Load()}
			if c.seq.Load() == before {
				return o, e
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

// setEdge publishes a new end; with follow set it is durable as well.
func (c *offsetCell) setEdge(e edge, follow bool) {
	end := e.end
	c.mu.Lock()
	c.seq.Add(1)
	c.end.Store(end)
	c.edgeBase.Store(e.base)
	c.edgePos.Store(e.pos)
	if follow {
		c.durable.Store(end)
	}
	c.seq.Add(1)
	c.mu.Unlock()
}

// place is the place of the end together with the number of the last cut.
// known says that the log has been opened.
func (c *offsetCell) place() (at edge, cuts uint64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return edge{c.end.Load(), c.edgeBase.Load(), c.edgePos.Load()}, c.cuts, c.seq.Load() > 0
}

// unlessCut runs f if the log was not truncated since place, and reports that.
// What f publishes is there before the next truncation begins.
func (c *offsetCell) unlessCut(cuts uint64, f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cuts != c.cuts {
		return false
	}
	f()
	return true
}

// capture is the end together with the number of the last cut, for synced.
func (c *offsetCell) capture() (end int64, cuts uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end.Load(), c.cuts
}

// synced records that everything below to is on disk, in the log's own files
// when inPlace is set and in the shared log otherwise, and reports whether
// Durable moved. When the log was truncated since the capture it does
// nothing: what lies below to now may be other bytes.
func (c *offsetCell) synced(to int64, cuts uint64, inPlace bool) (moved bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cuts != c.cuts {
		return false
	}
	if inPlace {
		c.flushed = max(c.flushed, to)
	}
	if to <= c.durable.Load() {
		return false
	}
	c.seq.Add(1)
	c.durable.Store(to)
	c.seq.Add(1)
	return true
}

// cut lowers the end to that of e and what must not lie above it. number is
// the cut's, which the journal has durably.
func (c *offsetCell) cut(e edge, number uint64) {
	off := e.end
	c.mu.Lock()
	defer c.mu.Unlock()
	c.edgeBase.Store(e.base)
	c.edgePos.Store(e.pos)
	c.cuts = number
	c.flushed = min(c.flushed, off)
	c.storeLocked(Offsets{
		LogStart:   min(c.logStart.Load(), off),
		LocalStart: min(c.localStart.Load(), off),
		Durable:    min(c.durable.Load(), off),
		End:        off,
	})
}

// renumber gives what there is the number of a later cut, which took nothing.
func (c *offsetCell) renumber(number uint64) {
	c.mu.Lock()
	c.cuts = number
	c.mu.Unlock()
}

// flushPoint is the offset below which everything is synced in the log's own
// files. Durable may be ahead of it, by the shared log or because it does not
// wait for the disk.
func (c *offsetCell) flushPoint() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flushed
}
