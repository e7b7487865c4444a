package hot

import (
	"errors"
	"fmt"
	"io"
	"sort"
)

// Read finds whole batches from offset on: the batch that holds it and those
// that follow, as far as they fit maxBytes and lie wholly below upper. With
// minOne the first batch comes whatever its size. One read stays within one
// segment; an empty Slice means there is nothing (more) below upper. It
// returns ErrOffsetOutOfRange outside [LocalStart, End].
//
// The Slice pins its file: Release it.
func (l *Log) Read(offset int64, maxBytes int, upper int64, minOne bool) (*Slice, error) {
	for range 3 {
		o, at := l.offsets.loadEdge()
		if offset < o.LocalStart || offset > o.End {
			return nil, fmt.Errorf("offset %d, log has %d to %d: %w", offset, o.LocalStart, o.End, ErrOffsetOutOfRange)
		}
		r := readRequest{offset: offset, upper: min(upper, o.End), maxBytes: int64(maxBytes), minOne: minOne, edge: at}
		if offset >= r.upper {
			return &Slice{start: offset, next: offset}, nil
		}
		s, err := l.readOnce(r)
		if err == nil {
			return s, nil
		}
		// The index was repaired, or compaction or retention took the segment
		// between listing and opening it: look again.
		if !errors.Is(err, errIndex) && !errors.Is(err, ErrSegmentGone) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("offset %d: %w", offset, ErrSegmentGone)
}

// readRequest is a read with its bounds settled.
type readRequest struct {
	offset, upper int64
	maxBytes      int64
	minOne        bool
	edge          edge // the end of the log when the read began
}

// holding is the index of the segment that holds offset.
func holding(segs []*segment, offset int64) int {
	i := sort.Search(len(segs), func(i int) bool { return segs[i].base > offset })
	return max(i-1, 0)
}

func (l *Log) readOnce(r readRequest) (*Slice, error) {
	segs := l.list()
	if segs[0].base > r.offset {
		// Retention took it after the bounds were looked at. What follows must
		// not pass for what was asked for.
		return nil, ErrSegmentGone
	}
	for i := holding(segs, r.offset); i < len(segs) && segs[i].base < r.upper; i++ {
		whole := i+1 < len(segs) && segs[i+1].base <= r.upper
		s, err := l.readSegment(segs[i], r, whole)
		if err != nil || s != nil {
			return s, err
		}
	}
	return &Slice{start: r.offset, next: r.upper}, nil
}

// readSegment is nil when the segment has nothing at or beyond the offset.
// whole says that all of it lies below the upper bound.
func (l *Log) readSegment(seg *segment, r readRequest, whole bool) (*Slice, error) {
	size, err := seg.bytes()
	if err != nil {
		return nil, err
	}
	if seg.base == r.edge.base && !whole {
		// Beyond the edge may be bytes that nobody was told of yet.
		size = min(size, r.edge.pos)
	}
	if size == 0 {
		return nil, nil
	}
	ix, err := seg.lookup()
	if err != nil {
		return nil, err
	}
	w := sound{to: size}
	if q := seg.bad.Load(); q != nil {
		var ok bool
		if w.from, w.to, w.bounded, ok = q.window(max(r.offset, seg.base), size); !ok {
			return nil, q.err
		}
		w.err, whole = q.err, whole && !w.bounded
	}
	h, err := l.store.files.acquire(seg, false)
	if err != nil {
		return nil, err
	}
	s, err := l.cut(seg, h, ix, w, r, whole)
	if err != nil || s == nil || s.n == 0 {
		l.store.files.release(h)
	}
	return s, err
}

// sound is a run of bytes of a segment that may be read.
type sound struct {
	from, to int64
	bounded  bool          // damage follows
	err      *CorruptError // that
}

// cut finds the run of batches in what of a segment may be read.
func (l *Log) cut(seg *segment, h *handle, ix *segIndex, w sound, r readRequest, whole bool) (*Slice, error) {
	size := w.to
	first, err := seg.findFrom(h.file, ix, w.from, size, r.offset)
	if errors.Is(err, io.EOF) {
		if w.bounded {
			return nil, w.err // what comes next is damaged, and must not be passed over
		}
		return nil, nil
	}
	if err != nil {
		return nil, l.readFailed(seg, ix, size, first.pos, err)
	}
	if first.base > r.offset {
		if err := l.trustGap(seg, first, r); err != nil {
			return nil, err
		}
	}
	if first.last >= r.upper {
		// No bound lies within a batch, unless the batch lies about its end.
		if _, err := newScanner(h.file, first.pos, min(first.pos+first.size, size)).next(); err != nil {
			return nil, l.readFailed(seg, ix, size, first.pos, err)
		}
		return &Slice{start: first.base, next: r.offset}, nil
	}
	to := size
	if !whole && r.upper < r.edge.end {
		stop, err := seg.findFrom(h.file, ix, w.from, size, r.upper)
		if err == nil {
			to = stop.pos
		} else if !errors.Is(err, io.EOF) {
			return nil, l.readFailed(seg, ix, size, stop.pos, err)
		}
	}
	if limit := first.pos + r.maxBytes; limit < to {
		switch {
		case first.size <= r.maxBytes:
			if to, err = seg.boundary(h.file, ix, first.pos, limit, size); err != nil {
				return nil, l.readFailed(seg, ix, size, to, err)
			}
		case r.minOne:
			to = first.pos + first.size
		default:
			return &Slice{start: first.base, next: r.offset}, nil
		}
	}
	return &Slice{files: l.store.files, h: h, seg: seg, pos: first.pos, n: to - first.pos, start: first.base, next: -1}, nil
}

// trustGap is asked when the batch that should hold an offset begins behind it.
// Compaction leaves such gaps. A base offset that is not what was written looks
// the same, and no checksum covers it: then reading again finds it barred.
func (l *Log) trustGap(seg *segment, first place, r readRequest) error {
	if seg.is(segGaps) || l.config.Load().Compact && first.last < min(seg.endAfter(), r.edge.end) {
		return nil
	}
	bad, err := l.CheckAt(max(r.offset, seg.base))
	switch {
	case err != nil:
		return err
	case bad:
		return errIndex
	}
	seg.set(segGaps)
	return nil
}

// readFailed turns what a walk met into the reader's error. An index that
// does not match is dropped, so that the next look rebuilds it.
func (l *Log) readFailed(seg *segment, ix *segIndex, size, pos int64, err error) error {
	if seg.is(segGone) {
		return ErrSegmentGone
	}
	if unreadable(err) {
		return seg.unreadable(err)
	}
	if !errors.Is(err, errIndex) && !isDamage(err) {
		return err
	}
	if seg.size.Load() < size {
		return ErrSegmentGone // truncated meanwhile
	}
	if !seg.is(segSealed) {
		return seg.damaged(pos, err)
	}
	// A walk that started from a wrong position sees garbage too: rebuild
	// once and let the checksums decide who is wrong.
	if _, rerr := seg.reindex(size); rerr != nil {
		return rerr
	}
	return errIndex
}
