package peer

import (
	"math/bits"
	"sync"
)

// Frame holds the bytes of one answer. Slices of it are valid until Release.
type Frame struct {
	buf  []byte
	from *frames
	cost int64
}

// Release gives the bytes back; nobody may hold a slice of them any more. It may be called once, and on nil.
func (f *Frame) Release() {
	if f == nil || f.from == nil {
		return
	}
	f.from.put(f)
}

// Bytes in use are counted by the buffer's capacity, a power of two from 512.
const frameShiftMin = 9

func frameClass(n int) int {
	if n <= 1<<frameShiftMin {
		return 0
	}
	return bits.Len(uint(n-1)) - frameShiftMin
}

// frames gives out buffers within a bound.
type frames struct {
	max int64

	mu    sync.Mutex // guards the following
	held  int64      // bytes of frames given out
	kept  int64      // bytes of buffers waiting for their next use, at most max/4
	free  [32][][]byte
	freed chan struct{} // closed and replaced when bytes come back while somebody waits
	waits int
}

func newFrames(limit int64) *frames { return &frames{max: limit, freed: make(chan struct{})} }

// take returns a frame of n bytes, waiting until there is room for it or done is closed; then it returns nil.
func (fs *frames) take(n int, done <-chan struct{}) *Frame {
	class := frameClass(n)
	cost := int64(1) << (class + frameShiftMin)
	fs.mu.Lock()
	for fs.held > 0 && fs.held+cost > fs.max {
		fs.waits++
		freed := fs.freed
		fs.mu.Unlock()
		closed := false
		select {
		case <-freed:
		case <-done:
			closed = true
		}
		fs.mu.Lock()
		fs.waits--
		if closed {
			fs.mu.Unlock()
			return nil
		}
	}
	fs.held += cost
	var buf []byte
	if list := fs.free[class]; len(list) > 0 {
		buf = list[len(list)-1]
		list[len(list)-1] = nil
		fs.free[class] = list[:len(list)-1]
		fs.kept -= cost
	}
	fs.mu.Unlock()
	if buf == nil {
		buf = make([]byte, cost)
	}
	return &Frame{buf: buf[:n], from: fs, cost: cost}
}

// put takes a frame's bytes back for their next use.
func (fs *frames) put(f *Frame) { fs.giveBack(f, true) }

// leave takes a frame off the books whose bytes somebody still reads: the collector frees them.
func (fs *frames) leave(f *Frame) { fs.giveBack(f, false) }

func (fs *frames) giveBack(f *Frame, reuse bool) {
	buf := f.buf
	f.buf, f.from = nil, nil
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.held -= f.cost
	if reuse && fs.kept+f.cost <= fs.max/4 {
		class := frameClass(int(f.cost))
		fs.free[class] = append(fs.free[class], buf[:f.cost])
		fs.kept += f.cost
	}
	if fs.waits > 0 {
		close(fs.freed)
		fs.freed = make(chan struct{})
	}
}
