package hot

import "sync"

// indexCache bounds the heap that indexes of sealed segments take. Readers
// mark an index used; the clock hand passes marked ones once.
type indexCache struct {
	limit int64

	mu    sync.Mutex // guards the following
	bytes int64
	ring  []cachedIndex
	hand  int
}

type cachedIndex struct {
	seg *segment
	ix  *segIndex
}

func (c *indexCache) add(s *segment, ix *segIndex) {
	ix.used.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ring = append(c.ring, cachedIndex{s, ix})
	c.bytes += ix.heapBytes()
	for c.bytes > c.limit && len(c.ring) > 1 {
		c.stepLocked()
	}
}

func (c *indexCache) stepLocked() {
	if c.hand >= len(c.ring) {
		c.hand = 0
	}
	e := c.ring[c.hand]
	current := e.seg.index.Load() == e.ix && !e.seg.is(segGone)
	if current && e.ix.used.Swap(false) {
		c.hand++
		return
	}
	if e.seg.is(segSealed) {
		// A segment that became active again keeps its index.
		e.seg.index.CompareAndSwap(e.ix, nil)
	}
	c.bytes -= e.ix.heapBytes()
	last := len(c.ring) - 1
	c.ring[c.hand] = c.ring[last]
	c.ring[last] = cachedIndex{}
	c.ring = c.ring[:last]
}

// lookup is the segment's index, read from its file or rebuilt if need be.
func (s *segment) lookup() (*segIndex, error) {
	if ix := s.index.Load(); ix != nil {
		if !ix.used.Load() {
			ix.used.Store(true)
		}
		return ix, nil
	}
	l := s.log
	if !s.is(segSealed) {
		if err := l.needTail(); err != nil {
			return nil, err
		}
		if ix := s.index.Load(); ix != nil {
			return ix, nil
		}
	}
	size, err := s.bytes()
	if err != nil {
		return nil, err
	}
	ix := l.readIndexFile(s, size)
	if last, ok := ix.last(); ok && int64(last.pos) == size {
		s.index.Store(ix)
		l.store.indexes.add(s, ix)
		return ix, nil
	}
	return s.reindex(size)
}

// reindex builds the index of a sealed segment again from its batches.
func (s *segment) reindex(size int64) (*segIndex, error) {
	l := s.log
	if s.is(segGone) {
		return nil, ErrSegmentGone
	}
	h, err := l.store.files.acquire(s, false)
	if err != nil {
		return nil, err
	}
	defer l.store.files.release(h)
	x, err := l.rescan(s, h, size, s.endAfter())
	if err != nil {
		return nil, err
	}
	x.footer()
	l.store.stats.Reindexed.Add(1)
	l.logger().Warn("segment index was missing or damaged and is rebuilt", "segment", s.base)
	if s.is(segTrusted) && s.bad.Load() == nil { // else the next start looks through the segment again
		if err := l.writeFile(s.path(indexExt), x.ix.encode(0, x.ix.len())); err != nil {
			return nil, err
		}
	}
	s.index.Store(x.ix)
	l.store.indexes.add(s, x.ix)
	return x.ix, nil
}
