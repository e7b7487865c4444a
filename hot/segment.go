package hot

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

const (
	segSealed  uint32 = 1 << iota // no longer written
	segSynced                     // log file synced since it was sealed
	segTrusted                    // has a footer on disk
	segTxns                       // has a transaction index file
	segGone                       // deleted or replaced
	segQueued                     // has unsynced bytes and is in the syncer's list
	segGaps                       // was looked through: the offsets missing in it are none of damage's
)

// segment is one file of batches. Everything but base is published
// atomically, so readers need no lock.
type segment struct {
	log  *Log
	base int64
	// size is how many bytes of the file readers may use; -1 not known yet.
	size  atomic.Int64
	flags atomic.Uint32
	index atomic.Pointer[segIndex]
	meta  atomic.Pointer[segmentMeta]
	bad   atomic.Pointer[quarantine]
	proof atomic.Pointer[proof]
	// lookedAt is when the segment was looked through because a read failed, ms.
	lookedAt atomic.Int64
	// txnsAhead are aborted transactions that the index file had no space for.
	txnsAhead atomic.Pointer[[]batch.AbortedTxn]
	// handle is guarded by fileCache.mu.
	handle *handle
	// sealing is what to write once the segment is synced; guarded by
	// Log.maintMu after the roll published it.
	sealing atomic.Pointer[sealing]
}

// segmentMeta is what a sealed segment's footer tells.
type segmentMeta struct {
	maxTs       int64 // -1 when there is no data batch
	maxTsOffset int64 // base offset of the first batch that has it
	modified    int64 // file time, ms
}

func (s *segment) is(flag uint32) bool { return s.flags.Load()&flag != 0 }
func (s *segment) set(flag uint32)     { s.flags.Or(flag) }
func (s *segment) clear(flag uint32)   { s.flags.And(^flag) }

// setOnce sets flag and reports whether it was clear.
func (s *segment) setOnce(flag uint32) bool { return s.flags.Or(flag)&flag == 0 }

func (s *segment) path(ext string) string { return s.log.path(s.base, ext) }

// bytes is the size of the log file.
func (s *segment) bytes() (int64, error) {
	if n := s.size.Load(); n >= 0 {
		return n, nil
	}
	info, err := s.log.store.fs.Stat(s.path(logExt))
	if err != nil {
		if s.is(segGone) {
			return 0, ErrSegmentGone
		}
		return 0, fmt.Errorf("size of segment %d: %w", s.base, err)
	}
	s.size.CompareAndSwap(-1, info.Size())
	return s.size.Load(), nil
}

const walkBytes = 4096

var walkBuffers = sync.Pool{New: func() any { b := make([]byte, walkBytes); return &b }}

// walker steps over batch headers of a segment with one read per few
// kilobytes.
type walker struct {
	file vfs.File
	end  int64 // bytes of the file that may be used
	buf  *[]byte
	at   int64 // position of buf[0]
	n    int   // bytes in buf
}

func newWalker(f vfs.File, end int64) walker {
	return walker{file: f, end: end, buf: walkBuffers.Get().(*[]byte)}
}

func (w *walker) close() { walkBuffers.Put(w.buf) }

// header is the header of the batch at pos, valid until the next call; io.EOF
// at the end. A batch that does not fit below end is an error.
func (w *walker) header(pos int64) (batch.Batch, error) {
	if pos == w.end {
		return nil, io.EOF
	}
	if pos+batch.HeaderSize > w.end {
		return nil, fmt.Errorf("%d bytes where a batch should be: %w", w.end-pos, batch.ErrShort)
	}
	if pos < w.at || pos+batch.HeaderSize > w.at+int64(w.n) {
		want := int(min(walkBytes, w.end-pos))
		n, err := w.file.ReadAt((*w.buf)[:want], pos)
		if n < batch.HeaderSize {
			if err == nil || errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		w.at, w.n = pos, n
	}
	h, err := batch.PeekHeader((*w.buf)[pos-w.at : w.n])
	if err != nil {
		return nil, err
	}
	if pos+int64(h.SizeBytes()) > w.end {
		return nil, fmt.Errorf("batch of %d bytes, %d left: %w", h.SizeBytes(), w.end-pos, batch.ErrShort)
	}
	return h, nil
}

// isDamage says whether an error of walker.header is about the bytes rather
// than about reading them.
func isDamage(err error) bool {
	return errors.Is(err, batch.ErrCorrupt) || errors.Is(err, batch.ErrShort) || errors.Is(err, io.ErrUnexpectedEOF)
}

// place is a batch found in a segment.
type place struct {
	pos        int64
	size       int64
	base, last int64
}

// find is the first batch whose last offset is at or beyond offset; io.EOF
// when there is none within end bytes.
func (s *segment) find(f vfs.File, ix *segIndex, end, offset int64) (place, error) {
	return s.findFrom(f, ix, 0, end, offset)
}

// findFrom is find from a position on at which a batch starts: what lies before
// it is damaged.
func (s *segment) findFrom(f vfs.File, ix *segIndex, from, end, offset int64) (place, error) {
	pos := from
	e, indexed := ix.floorOffset(offset)
	if indexed = indexed && int64(e.pos) >= from; indexed {
		pos = int64(e.pos)
	}
	if pos >= end {
		return place{}, io.EOF
	}
	w := newWalker(f, end)
	defer w.close()
	for {
		h, err := w.header(pos)
		if err != nil {
			return place{pos: pos}, err
		}
		if indexed {
			if h.BaseOffset() != ix.base+int64(e.rel) {
				return place{pos: pos}, errIndex
			}
			indexed = false
		}
		if h.LastOffset() >= offset {
			return place{pos, int64(h.SizeBytes()), h.BaseOffset(), h.LastOffset()}, nil
		}
		pos += int64(h.SizeBytes())
	}
}

// boundary is the last batch boundary at or below limit, given that from is
// one.
func (s *segment) boundary(f vfs.File, ix *segIndex, from, limit, end int64) (int64, error) {
	pos := from
	if e, ok := ix.floorPosition(limit); ok && int64(e.pos) > from {
		pos = int64(e.pos)
	}
	w := newWalker(f, end)
	defer w.close()
	for pos < limit {
		h, err := w.header(pos)
		if err != nil {
			return pos, err
		}
		if pos+int64(h.SizeBytes()) > limit {
			break
		}
		pos += int64(h.SizeBytes())
	}
	return pos, nil
}

// errIndex says that an index entry does not match the log file.
var errIndex = errors.New("index does not match its segment")
