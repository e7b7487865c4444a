package tier

import (
	"context"
	"errors"
	"fmt"

	"github.com/varvelog/varve/hot/batch"
)

// lookupLimits bound what a time lookup inflates.
var lookupLimits = batch.Limits{}

// OffsetForTime returns the first record at or after offset from whose
// timestamp is ts or later; false when the archive has none. Data batches only.
//
// The manifest's maxima name the segment, the object's time index the chunk: two
// reads on a cold cache, at any size of the archive. Only where from lies inside
// a segment, and the record that makes its maximum lies below from, do the next
// chunks that qualify have to be read too.
func (r *Remote) OffsetForTime(ctx context.Context, ts, from int64) (TimeOffset, bool, error) {
	return retryMissing(ctx, r, func(m *manifest) (TimeOffset, bool, error) {
		from := max(from, m.start)
		var found TimeOffset
		var ok bool
		err := r.walkFrom(ctx, m, from, func(p *pageRef) bool { return p.maxTime < ts }, func(s RemoteSegment) (bool, error) {
			if s.MaxTimestamp == NoTimestamp || s.MaxTimestamp < ts {
				return true, nil
			}
			var err error
			found, ok, err = r.firstAtOrAfter(ctx, s, ts, from)
			return !ok, err
		})
		return found, ok, err
	})
}

// retryMissing runs a lookup on the manifest at hand and, when an object is gone,
// once more on the one read afresh.
func retryMissing(ctx context.Context, r *Remote, fn func(*manifest) (TimeOffset, bool, error)) (t TimeOffset, ok bool, err error) {
	r.a.counts.lookups.Add(1)
	defer func() {
		if err != nil && ctx.Err() == nil {
			r.a.counts.lookupErrors.Add(1)
			r.a.complaints.warn(r.a.log, "archive time lookup failed", "partition", r.p.String(), "err", err)
		}
	}()
	t, err = secondLook(ctx, r, func(m *manifest) (t TimeOffset, err error) {
		if ok = false; m.retired {
			return t, nil
		}
		t, ok, err = fn(m)
		return t, err
	})
	return t, ok && err == nil, err
}

// walkFrom is walk for visitors that can fail.
func (r *Remote) walkFrom(ctx context.Context, m *manifest, from int64, skip func(*pageRef) bool, fn func(RemoteSegment) (bool, error)) error {
	var failed error
	err := r.walk(ctx, m, from, skip, func(s RemoteSegment) bool {
		more, err := fn(s)
		failed = err
		return more && err == nil
	})
	return errors.Join(failed, err)
}

// firstAtOrAfter searches one segment.
func (r *Remote) firstAtOrAfter(ctx context.Context, s RemoteSegment, ts, from int64) (TimeOffset, bool, error) {
	t, err := r.target(ctx, s)
	if err != nil {
		return TimeOffset{}, false, err
	}
	for i := t.index.chunkFor(from); i < len(t.index.chunks); i++ {
		if c := &t.index.chunks[i]; c.maxTime == NoTimestamp || c.maxTime < ts {
			continue
		}
		b, err := r.a.reader.chunk(ctx, t, i)
		if err != nil {
			return TimeOffset{}, false, err
		}
		found, ok, err := scanChunk(b.b, from, func(b batch.Batch) bool { return b.MaxTimestamp() >= ts }, func(rec batch.Record) bool {
			return rec.Timestamp >= ts
		})
		b.release()
		if ok || err != nil {
			return found, ok, r.scanned(s, err)
		}
	}
	return TimeOffset{}, false, nil
}

func (r *Remote) scanned(s RemoteSegment, err error) error {
	if err == nil {
		return nil
	}
	return &CorruptError{Key: r.Key(s.ID), Offset: -1, Reason: err.Error()}
}

// scanChunk returns the first record at or after from, in a data batch that want
// accepts, which is accepts.
func scanChunk(raw []byte, from int64, want func(batch.Batch) bool, is func(batch.Record) bool) (TimeOffset, bool, error) {
	for rest := raw; len(rest) > 0; {
		b, after, err := batch.Next(rest)
		if err != nil {
			return TimeOffset{}, false, err
		}
		rest = after
		if b.Control() || b.NextOffset() <= from || !want(b) {
			continue
		}
		for rec, err := range b.Records(lookupLimits) {
			if err != nil {
				return TimeOffset{}, false, err
			}
			if rec.Offset >= from && is(rec) {
				return TimeOffset{Offset: rec.Offset, Timestamp: rec.Timestamp, Epoch: b.LeaderEpoch()}, true, nil
			}
		}
	}
	return TimeOffset{}, false, nil
}

// MaxTimestamp returns the record with the largest timestamp at or after offset
// from, the first one of several; false when the archive has no data record.
//
// As with OffsetForTime it costs two reads, unless from cuts the record off that
// makes a segment's maximum: then the segments that may hold a larger one than
// was found are read in the order of their maxima.
func (r *Remote) MaxTimestamp(ctx context.Context, from int64) (TimeOffset, bool, error) {
	return retryMissing(ctx, r, func(m *manifest) (TimeOffset, bool, error) {
		from := max(from, m.start)
		best, ok, err := r.maxInCut(ctx, m, from)
		if err != nil {
			return TimeOffset{}, false, err
		}
		// Whole segments: the manifest knows their maxima.
		floor := int64(NoTimestamp)
		if ok {
			floor = best.Timestamp
		}
		var top RemoteSegment
		found := false
		pageBest := floor
		for i := range m.pages {
			if m.pages[i].id.Base >= from {
				pageBest = max(pageBest, m.pages[i].maxTime)
			}
		}
		err = r.walk(ctx, m, from, func(p *pageRef) bool { return p.id.Base >= from && p.maxTime < pageBest || p.maxTime <= floor },
			func(s RemoteSegment) bool {
				if s.ID.Base >= from && s.MaxTimestamp > floor {
					floor, top, found = s.MaxTimestamp, s, true
				}
				return true
			})
		if err != nil || !found {
			return best, ok, err
		}
		return r.firstAtOrAfter(ctx, top, top.MaxTimestamp, from)
	})
}

// maxInCut is the largest timestamp of the segment that from cuts, from there on.
func (r *Remote) maxInCut(ctx context.Context, m *manifest, from int64) (TimeOffset, bool, error) {
	if from >= m.end {
		return TimeOffset{}, false, nil
	}
	s, err := r.find(ctx, m, from)
	if err != nil || s.ID.Base >= from || s.MaxTimestamp == NoTimestamp {
		return TimeOffset{}, false, err
	}
	t, err := r.target(ctx, s)
	if err != nil {
		return TimeOffset{}, false, err
	}
	var best TimeOffset
	ok := false
	for i := t.index.chunkFor(from); i < len(t.index.chunks); i++ {
		c := &t.index.chunks[i]
		if c.maxTime == NoTimestamp || (ok && c.maxTime <= best.Timestamp) {
			continue
		}
		b, err := r.a.reader.chunk(ctx, t, i)
		if err != nil {
			return TimeOffset{}, false, err
		}
		_, _, err = scanChunk(b.b, from, func(b batch.Batch) bool { return !ok || b.MaxTimestamp() > best.Timestamp }, func(rec batch.Record) bool {
			if !ok || rec.Timestamp > best.Timestamp {
				best, ok = TimeOffset{Offset: rec.Offset, Timestamp: rec.Timestamp}, true
			}
			return false
		})
		b.release()
		if err != nil {
			return TimeOffset{}, false, r.scanned(s, err)
		}
	}
	if ok {
		if best.Epoch, err = r.EpochAt(ctx, best.Offset); err != nil {
			return TimeOffset{}, false, err
		}
	}
	return best, ok, nil
}

// AbortedTxns returns the aborted transactions of the archive that touch
// [from, upper), in the order of their markers. Segments without any are known
// from the manifest and not read (KIP-1058); the walk ends at the first
// transaction whose last stable offset shows that all of them have been seen.
func (r *Remote) AbortedTxns(ctx context.Context, from, upper int64) ([]batch.AbortedTxn, error) {
	return secondLook(ctx, r, func(m *manifest) ([]batch.AbortedTxn, error) { return r.abortedTxns(ctx, m, from, upper) })
}

func (r *Remote) abortedTxns(ctx context.Context, m *manifest, from, upper int64) ([]batch.AbortedTxn, error) {
	if m.retired {
		return nil, fmt.Errorf("%s is retired: %w", r.p, ErrBelowStart)
	}
	var out []batch.AbortedTxn
	err := r.walkFrom(ctx, m, from, func(p *pageRef) bool { return !p.aborted }, func(s RemoteSegment) (bool, error) {
		if !s.HasAborted {
			return true, nil
		}
		t, err := r.target(ctx, s)
		if err != nil {
			return false, err
		}
		for _, a := range t.index.aborted {
			if a.LastOffset >= from && a.FirstOffset < upper {
				out = append(out, a)
			}
			if a.LastStable >= upper {
				return false, nil
			}
		}
		return true, nil
	})
	return out, err
}
