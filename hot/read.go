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
	o := l.offsets.load()
	if offset < o.LocalStart || offset > o.End {
		return nil, fmt.Errorf("offset %d, log has %d to %d: %w", offset, o.LocalStart, o.End, ErrOffsetOutOfRange)
	}
	upper = min(upper, o.End)
	if offset >= upper {
		return &Slice{start: offset, next: offset}, nil
	}
	for range 3 {
		s, err := l.readOnce(offset, maxBytes, upper, minOne)
		switch {
		case err == nil:
			return s, nil
		case errors.Is(err, errIndex), errors.Is(err, ErrSegmentGone):
			// The index was repaired, or compaction or retention took the
			// segment between listing and opening it: look again.
			if offset < l.offsets.localStart.Load() {
				return nil, fmt.Errorf("offset %d was deleted: %w", offset, ErrOffsetOutOfRange)
			}
		default:
			return nil, err
		}
	}
	return nil, fmt.Errorf("offset %d: %w", offset, ErrSegmentGone)
}

// holding is the index of the segment that holds offset.
func holding(segs []*segment, offset int64) int {
	i := sort.Search(len(segs), func(i int) bool { return segs[i].base > offset })
	return max(i-1, 0)
}

func (l *Log) readOnce(offset int64, maxBytes int, upper int64, minOne bool) (*Slice, error) {
	segs := l.list()
	for i := holding(segs, offset); i < len(segs) && segs[i].base < upper; i++ {
		end := upper
		if i+1 < len(segs) && segs[i+1].base <= upper {
			end = -1 // the whole segment is below upper
		}
		s, err := l.readSegment(segs[i], offset, maxBytes, upper, end, minOne)
		if err != nil || s != nil {
			return s, err
		}
	}
	return &Slice{start: offset, next: upper}, nil
}

// readSegment is nil when the segment has nothing at or beyond offset.
func (l *Log) readSegment(seg *segment, offset int64, maxBytes int, upper, end int64, minOne bool) (*Slice, error) {
	if e := seg.bad.Load(); e != nil {
		return nil, e
	}
	size, err := seg.bytes()
	if err != nil || size == 0 {
		return nil, err
	}
	ix, err := seg.lookup()
	if err != nil {
		return nil, err
	}
	h, err := l.store.files.acquire(seg, false)
	if err != nil {
		return nil, err
	}
	s, err := l.cut(seg, h, ix, size, offset, maxBytes, upper, end, minOne)
	if err != nil || s == nil || s.n == 0 {
		l.store.files.release(h)
	}
	return s, err
}

func (l *Log) cut(seg *segment, h *handle, ix *segIndex, size, offset int64, maxBytes int, upper, end int64, minOne bool) (*Slice, error) {
	first, err := seg.find(h.file, ix, size, offset)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if err != nil {
		return nil, l.readFailed(seg, ix, size, first.pos, err)
	}
	if first.last >= upper {
		return &Slice{start: first.base, next: offset}, nil
	}
	to := size
	if end >= 0 && end < l.offsets.end.Load() {
		stop, err := seg.find(h.file, ix, size, end)
		if err == nil {
			to = stop.pos
		} else if !errors.Is(err, io.EOF) {
			return nil, l.readFailed(seg, ix, size, stop.pos, err)
		}
	}
	limit := first.pos + int64(maxBytes)
	if limit < to {
		if first.size > int64(maxBytes) {
			if !minOne {
				return &Slice{start: first.base, next: offset}, nil
			}
			to = first.pos + first.size
		} else if to, err = seg.boundary(h.file, ix, first.pos, limit, size); err != nil {
			return nil, l.readFailed(seg, ix, size, to, err)
		}
	}
	return &Slice{files: l.store.files, h: h, seg: seg, pos: first.pos, n: to - first.pos, start: first.base, next: -1}, nil
}

// readFailed turns what a walk met into the reader's error. An index that
// does not match is dropped, so that the next look rebuilds it.
func (l *Log) readFailed(seg *segment, ix *segIndex, size, pos int64, err error) error {
	if seg.is(segGone) {
		return ErrSegmentGone
	}
	if !errors.Is(err, errIndex) && !isDamage(err) {
		return err
	}
	if seg.size.Load() < size {
		return ErrSegmentGone // truncated meanwhile
	}
	if !seg.is(segSealed) {
		if errors.Is(err, errIndex) {
			return seg.damaged(pos, err)
		}
		return seg.damaged(pos, err)
	}
	// A walk that started from a wrong position sees garbage too: rebuild
	// once and let the checksums decide who is wrong.
	if _, rerr := seg.reindex(size); rerr != nil {
		return rerr
	}
	return errIndex
}
