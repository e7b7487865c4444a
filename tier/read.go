package tier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// target returns the object of a segment with its index: cached, or read in one
// GET of the lookup region.
func (r *Remote) target(ctx context.Context, s RemoteSegment) (*target, error) {
	x, err := r.a.indexes.load(ctx, r.objectKey(s.ID), r.a.spawn, func(ctx context.Context) (*objectIndex, error) {
		ctx, cancel := context.WithTimeout(ctx, r.a.cfg.GetTimeout)
		defer cancel()
		x, err := r.readIndex(ctx, &s)
		if errors.Is(err, ErrCorrupt) {
			r.a.log.Warn("archive index damaged, fetching it again", "object", r.Key(s.ID), "err", err)
			x, err = r.readIndex(ctx, &s)
		}
		return x, err
	})
	if err != nil {
		return nil, err
	}
	return &target{remote: r, segment: s, index: x}, nil
}

func (r *Remote) readIndex(ctx context.Context, s *RemoteSegment) (*objectIndex, error) {
	key := r.Key(s.ID)
	b := make([]byte, s.lookupBytes)
	obj, err := objstore.ReadAt(ctx, r.a.deps.Store, key, b, s.lookupAt)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return nil, fmt.Errorf("%s: %w", key, ErrMissing)
	case errors.Is(err, objstore.ErrRange):
		return nil, &CorruptError{Key: key, Offset: s.lookupAt, Reason: fmt.Sprintf("shorter than the manifest says: %v", err)}
	case err != nil:
		return nil, storeError("read index", err)
	case obj.Size != s.StoredBytes:
		return nil, &CorruptError{Key: key, Offset: -1, Reason: fmt.Sprintf("object of %d bytes, manifest has %d", obj.Size, s.StoredBytes)}
	}
	x, err := decodeIndex(b, s)
	if err != nil {
		return nil, named(err, key)
	}
	return x, nil
}

// Read returns whole batches from the one that holds offset on: at least one,
// more while they fit maxBytes and are at hand, never one that ends above upper.
// When already the first batch does, the chunk is empty. ErrBelowStart,
// ErrNotTiered, ErrUnavailable, ErrCorrupt.
func (r *Remote) Read(ctx context.Context, offset int64, maxBytes int, upper int64) (*Chunk, error) {
	c, err := r.read(ctx, offset, maxBytes, upper)
	if !errors.Is(err, ErrMissing) {
		return c, err
	}
	// The object may have been deleted since the manifest was read: look once.
	if _, err := r.refresh(ctx); err != nil {
		return nil, err
	}
	return r.read(ctx, offset, maxBytes, upper)
}

func (r *Remote) read(ctx context.Context, offset int64, maxBytes int, upper int64) (*Chunk, error) {
	s, err := r.Find(ctx, offset)
	if err != nil {
		return nil, err
	}
	t, err := r.target(ctx, s)
	if err != nil {
		return nil, err
	}
	rd := r.a.reader
	rd.mu.Lock()
	st := rd.streams.at(r.key, offset, time.Now())
	rd.mu.Unlock()

	out := &Chunk{start: offset, next: offset}
	i := t.index.chunkFor(offset)
	raw, err := rd.chunk(ctx, t, i)
	for err == nil {
		part, start, next, more := cutBatches(raw, offset, maxBytes-out.n, upper, out.n == 0)
		if len(part) > 0 {
			if out.n == 0 {
				out.start = start
			}
			out.parts = append(out.parts, part)
			out.n += len(part)
			out.next, offset = next, next
		}
		if !more {
			break
		}
		if i++; i == len(t.index.chunks) {
			break
		}
		if out.n == 0 {
			raw, err = rd.chunk(ctx, t, i) // the offset lies in a gap between batches
			continue
		}
		var ok bool
		if raw, ok = rd.cached(t, i); !ok {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	rd.advance(st, r, out.next)
	return out, nil
}

// ProducerSnapshot returns the producer state at the end of the segment that
// holds offset, and that end: what a replica that starts there needs.
func (r *Remote) ProducerSnapshot(ctx context.Context, offset int64) (snapshot []byte, end int64, err error) {
	s, err := r.Find(ctx, offset)
	if err != nil {
		return nil, -1, err
	}
	ctx, cancel := context.WithTimeout(ctx, r.a.cfg.GetTimeout)
	defer cancel()
	key := r.Key(s.ID)
	tail := make([]byte, s.StoredBytes-s.lookupAt-s.lookupBytes)
	if _, err := objstore.ReadAt(ctx, r.a.deps.Store, key, tail, s.lookupAt+s.lookupBytes); err != nil {
		if errors.Is(err, objstore.ErrNotFound) {
			return nil, -1, fmt.Errorf("%s: %w", key, ErrMissing)
		}
		return nil, -1, storeError("read producer snapshot", err)
	}
	if len(tail) < footerBytes {
		return nil, -1, &CorruptError{Key: key, Offset: -1, Reason: "no room for a footer"}
	}
	f, err := decodeFooter(tail[len(tail)-footerBytes:], s.StoredBytes)
	if err != nil {
		return nil, -1, named(err, key)
	}
	if f.sections[sectionProducers-1].n == 0 {
		return nil, s.End, nil
	}
	d := &decoder{b: tail[:len(tail)-footerBytes]}
	snapshot = d.section(sectionProducers)
	if d.err != nil {
		return nil, -1, named(d.err, key)
	}
	return snapshot, s.End, nil
}
