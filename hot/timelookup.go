package hot

import (
	"errors"
	"io"

	"github.com/varvelog/varve/hot/batch"
)

// TimeOffset is a record found by time.
type TimeOffset struct {
	Offset    int64
	Timestamp int64 // ms
	Epoch     int32 // of the leader that wrote it
}

// OffsetForTime finds the first record, in offset order, whose timestamp is
// ts or later, among the local records from the log start on. Control records
// do not count. ok is false when there is none.
func (l *Log) OffsetForTime(ts int64) (found TimeOffset, ok bool, err error) {
	return l.OffsetForTimeFrom(ts, 0)
}

// OffsetForTimeFrom is OffsetForTime among the records at or after the offset
// from: segments that end below it are not looked at.
func (l *Log) OffsetForTimeFrom(ts, from int64) (found TimeOffset, ok bool, err error) {
	for range 3 {
		found, ok, err = l.offsetForTime(ts, from)
		if !errors.Is(err, errIndex) && !errors.Is(err, ErrSegmentGone) {
			return found, ok, err
		}
	}
	return found, ok, err
}

func (l *Log) offsetForTime(ts, from int64) (found TimeOffset, ok bool, err error) {
	start := max(from, l.offsets.logStart.Load(), l.offsets.localStart.Load())
	segs := l.list()
	for i := holding(segs, start); i < len(segs); i++ {
		seg := segs[i]
		if i+1 < len(segs) {
			m, err := seg.footer()
			if err != nil {
				return found, false, err
			}
			if m.maxTs < ts {
				continue
			}
		}
		err := l.scanFrom(seg, func(ix *segIndex) int64 {
			e, _ := ix.floorTime(ts)
			return int64(e.pos)
		}, func(h batch.Batch) bool {
			return !h.Control() && h.MaxTimestamp() >= ts && h.LastOffset() >= start
		}, func(b batch.Batch) (bool, error) {
			found, ok, err = firstInBatch(b, ts, start)
			return ok, err
		})
		if err != nil || ok {
			return found, ok, err
		}
	}
	return found, false, nil
}

// firstInBatch finds the record in one batch, from offset start on.
func firstInBatch(b batch.Batch, ts, start int64) (TimeOffset, bool, error) {
	if start <= b.BaseOffset() {
		offset, t, ok, err := batch.FindTimestamp(b, ts, batch.Limits{})
		return TimeOffset{offset, t, b.LeaderEpoch()}, ok, err
	}
	for r, err := range b.Records(batch.Limits{}) {
		if err != nil {
			return TimeOffset{}, false, err
		}
		if r.Offset >= start && r.Timestamp >= ts {
			return TimeOffset{r.Offset, r.Timestamp, b.LeaderEpoch()}, true, nil
		}
	}
	return TimeOffset{}, false, nil
}

// scanFrom walks the headers of a segment from the position at gives and
// calls fn with the whole of each batch that want picks, until fn says stop.
func (l *Log) scanFrom(seg *segment, at func(*segIndex) int64, want func(batch.Batch) bool, fn func(batch.Batch) (bool, error)) error {
	size, err := seg.bytes()
	if err != nil || size == 0 {
		return err
	}
	ix, err := seg.lookup()
	if err != nil {
		return err
	}
	if q := seg.bad.Load(); q != nil {
		return q.err // the record that is looked for may be in what is damaged
	}
	pos := at(ix)
	if pos >= size {
		return nil
	}
	h, err := l.store.files.acquire(seg, false)
	if err != nil {
		return err
	}
	defer l.store.files.release(h)
	w := newWalker(h.file, size)
	defer w.close()
	for {
		head, err := w.header(pos)
		if errors.Is(err, io.EOF) && pos >= size {
			return nil
		}
		if err != nil {
			return l.readFailed(seg, ix, size, pos, err)
		}
		n := head.SizeBytes()
		if want(head) {
			whole := make([]byte, n)
			if _, err := h.file.ReadAt(whole, pos); err != nil {
				return err
			}
			b := batch.Batch(whole)
			if err := b.VerifyCRC(); err != nil {
				return seg.damaged(pos, err)
			}
			if stop, err := fn(b); stop || err != nil {
				return err
			}
		}
		pos += int64(n)
	}
}

// MaxTimestamp finds the record with the largest timestamp among the local
// records from the log start on; of several the first. ok is false when there
// is no data record.
func (l *Log) MaxTimestamp() (found TimeOffset, ok bool, err error) {
	return l.MaxTimestampFrom(0)
}

// MaxTimestampFrom is MaxTimestamp among the records at or after the offset from:
// segments that end below it are not looked at.
func (l *Log) MaxTimestampFrom(from int64) (found TimeOffset, ok bool, err error) {
	for range 3 {
		found, ok, err = l.maxTimestamp(from)
		if !errors.Is(err, errIndex) && !errors.Is(err, ErrSegmentGone) {
			return found, ok, err
		}
	}
	return found, ok, err
}

func (l *Log) maxTimestamp(first int64) (best TimeOffset, ok bool, err error) {
	start := max(first, l.offsets.logStart.Load(), l.offsets.localStart.Load())
	segs := l.list()
	best.Timestamp = -1
	for i := holding(segs, start); i < len(segs); i++ {
		seg := segs[i]
		whole := seg.base >= start
		if i+1 < len(segs) && whole {
			m, err := seg.footer()
			if err != nil {
				return best, false, err
			}
			if m.maxTs <= best.Timestamp {
				continue
			}
		}
		from := func(ix *segIndex) int64 {
			if !whole || ix.len() == 0 {
				return 0
			}
			// The maximum before the last entry is known; the batch that has
			// it is found by its offset, unless a later one tops it.
			last, _ := ix.last()
			if last.relMax == noRelative {
				return 0
			}
			e, _ := ix.floorOffset(relOffset(seg.base, last.relMax))
			return int64(e.pos)
		}
		err := l.scanFrom(seg, from, func(h batch.Batch) bool {
			return !h.Control() && h.MaxTimestamp() > best.Timestamp && h.LastOffset() >= start
		}, func(b batch.Batch) (bool, error) {
			t, found, err := maxInBatch(b, start)
			if err == nil && found && t.Timestamp > best.Timestamp {
				best, ok = t, true
			}
			return false, err
		})
		if err != nil {
			return best, false, err
		}
	}
	return best, ok, nil
}

func maxInBatch(b batch.Batch, start int64) (best TimeOffset, ok bool, err error) {
	best.Timestamp = -1
	for r, err := range b.Records(batch.Limits{}) {
		if err != nil {
			return best, false, err
		}
		if r.Offset >= start && (r.Timestamp > best.Timestamp || !ok) {
			best, ok = TimeOffset{r.Offset, r.Timestamp, b.LeaderEpoch()}, true
		}
	}
	return best, ok, nil
}
