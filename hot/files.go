package hot

import (
	"fmt"
	"sync"

	"github.com/varvelog/varve/hot/vfs"
)

// handle is an open log file. A pinned handle stays open whatever happens to
// the name: that is what lets a Slice outlive its segment.
type handle struct {
	file       vfs.File
	seg        *segment
	writable   bool
	pins       int  // guarded by fileCache.mu, as all below
	attached   bool // the segment still points here
	prev, next *handle
}

// fileCache opens log files when somebody needs them and closes the least
// recently used of those nobody has pinned once there are more than max.
type fileCache struct {
	fs  vfs.FS
	max int

	mu   sync.Mutex // guards the following, and segment.handle
	idle int        // handles in the list: attached and unpinned
	root handle     // ring of idle handles, most recent first
	open int
}

func newFileCache(fs vfs.FS, limit int) *fileCache {
	c := &fileCache{fs: fs, max: limit}
	c.root.prev, c.root.next = &c.root, &c.root
	return c
}

// acquire pins the segment's log file, opening it if need be.
func (c *fileCache) acquire(s *segment, write bool) (*handle, error) {
	if h := c.pin(s, write); h != nil {
		return h, nil
	}
	if s.is(segGone) {
		return nil, ErrSegmentGone
	}
	path := s.path(logExt)
	open := c.fs.Open
	if write {
		open = c.fs.OpenAppend
	}
	f, err := open(path)
	if err != nil {
		if s.is(segGone) {
			return nil, ErrSegmentGone
		}
		return nil, fmt.Errorf("open segment %d: %w", s.base, err)
	}
	c.mu.Lock()
	if s.is(segGone) {
		// The name may be another segment's by now.
		c.mu.Unlock()
		f.Close()
		return nil, ErrSegmentGone
	}
	if h := s.handle; h != nil && (h.writable || !write) {
		c.pinLocked(h)
		c.mu.Unlock()
		f.Close()
		return h, nil
	}
	old := c.detachLocked(s)
	h := &handle{file: f, seg: s, writable: write, pins: 1, attached: true}
	s.handle = h
	c.open++
	evicted := c.evictLocked()
	c.mu.Unlock()
	closeHandles(old, evicted)
	return h, nil
}

// adopt opens a new segment's file under the name it has now and pins it.
func (c *fileCache) adopt(s *segment, path string) (*handle, error) {
	f, err := c.fs.Open(path)
	if err != nil {
		return nil, err
	}
	h := &handle{file: f, seg: s, pins: 1, attached: true}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.handle = h
	c.open++
	return h, nil
}

func (c *fileCache) pin(s *segment, write bool) *handle {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := s.handle
	if h == nil || write && !h.writable {
		return nil
	}
	c.pinLocked(h)
	return h
}

func (c *fileCache) pinLocked(h *handle) {
	if h.pins == 0 {
		c.unlinkLocked(h)
	}
	h.pins++
}

// repin adds a pin to a handle the caller has pinned already.
func (c *fileCache) repin(h *handle) {
	c.mu.Lock()
	h.pins++
	c.mu.Unlock()
}

// release drops one pin.
func (c *fileCache) release(h *handle) {
	c.mu.Lock()
	h.pins--
	if h.pins > 0 {
		c.mu.Unlock()
		return
	}
	if h.pins < 0 {
		panic("hot: segment file released more often than pinned")
	}
	var gone *handle
	if h.attached {
		c.pushLocked(h)
		gone = c.evictLocked()
	} else {
		c.open--
		gone = h
	}
	c.mu.Unlock()
	closeHandles(gone)
}

// detach forgets the segment's file: it is about to go, or to be opened in
// another mode. It closes once nobody pins it.
func (c *fileCache) detach(s *segment) {
	c.mu.Lock()
	h := c.detachLocked(s)
	c.mu.Unlock()
	closeHandles(h)
}

func (c *fileCache) detachLocked(s *segment) *handle {
	h := s.handle
	if h == nil {
		return nil
	}
	s.handle = nil
	h.attached = false
	if h.pins > 0 {
		return nil
	}
	c.unlinkLocked(h)
	c.open--
	return h
}

func (c *fileCache) pushLocked(h *handle) {
	h.prev, h.next = &c.root, c.root.next
	h.prev.next, h.next.prev = h, h
	c.idle++
}

func (c *fileCache) unlinkLocked(h *handle) {
	if h.next == nil {
		return
	}
	h.prev.next, h.next.prev = h.next, h.prev
	h.prev, h.next = nil, nil
	c.idle--
}

// evictLocked takes one handle out when there are too many. One suffices:
// every call adds at most one.
func (c *fileCache) evictLocked() *handle {
	if c.idle <= c.max {
		return nil
	}
	h := c.root.prev
	c.unlinkLocked(h)
	h.seg.handle = nil
	h.attached = false
	c.open--
	return h
}

// openFiles is the number of open descriptors.
func (c *fileCache) openFiles() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.open
}

// closeHandles closes read handles and written ones alike: a file is unpinned
// only after its bytes were synced, so an error of close says nothing new.
func closeHandles(hs ...*handle) {
	for _, h := range hs {
		if h != nil {
			h.file.Close()
		}
	}
}
