package tier

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// wholeObjectBytes is the size up to which an object is read whole when its index
// is wanted: the bytes cost less time than a second request.
const wholeObjectBytes = 1 << 20

// target returns the object of a segment with its index: cached, or read in one
// GET of the lookup region, which of a small object brings the chunks along.
func (r *Remote) target(ctx context.Context, s RemoteSegment) (*target, error) {
	x, err := r.a.indexes.load(ctx, r.objectKey(s.ID), r.a.spawn, func(ctx context.Context) (*objectIndex, error) {
		if r.a.reader.slots.lock(ctx) != nil {
			return nil, ErrClosed
		}
		defer r.a.reader.slots.unlock()
		ctx, cancel := context.WithTimeout(ctx, r.a.cfg.GetTimeout)
		defer cancel()
		x, err := r.readIndex(ctx, &s)
		if err != nil && !errors.Is(err, ErrMissing) && !errors.Is(err, ErrUnsupported) && ctx.Err() == nil {
			r.a.complaints.warn(r.a.log, "read archive index again", "object", r.Key(s.ID), "err", err)
			x, err = r.readIndex(ctx, &s)
		}
		if errors.Is(err, ErrMissing) || errors.Is(err, ErrCorrupt) {
			r.suspect(MarkID{KeySegment, s.ID})
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
	from := s.lookupAt
	if s.StoredBytes <= wholeObjectBytes {
		from = 0
	}
	b := make([]byte, s.lookupAt+s.lookupBytes-from)
	r.a.counts.indexFetches.Add(1)
	obj, err := objstore.ReadAt(ctx, r.a.deps.Store, key, b, from)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return nil, fmt.Errorf("%s: %w", key, ErrMissing)
	case errors.Is(err, objstore.ErrRange):
		return nil, &CorruptError{Key: key, Offset: from, Reason: fmt.Sprintf("shorter than the manifest says: %v", err)}
	case err != nil:
		return nil, storeError("read index", err)
	case obj.Size != s.StoredBytes:
		return nil, &CorruptError{Key: key, Offset: -1, Reason: fmt.Sprintf("object of %d bytes, manifest has %d", obj.Size, s.StoredBytes)}
	}
	x, err := decodeIndex(b[s.lookupAt-from:], s)
	if err != nil {
		r.a.counts.damaged.Add(1)
		return nil, named(err, key)
	}
	if from == 0 {
		r.keepChunks(s, x, b)
	}
	return x, nil
}

// keepChunks caches the chunks of an object that was read whole. One that fails
// its check is left out: who wants it fetches it again and finds out.
func (r *Remote) keepChunks(s *RemoteSegment, x *objectIndex, object []byte) {
	t := target{remote: r, segment: *s, index: x}
	for i := range x.chunks {
		c := &x.chunks[i]
		stored := &block{b: object[c.at : c.at+c.stored]}
		if c.encoding == encodingRaw {
			stored = r.a.reader.blocks.get(int(c.stored)) // not to hold the whole object for one chunk
			copy(stored.b, object[c.at:])
		}
		if raw, err := r.a.decodeChunk(c, s.End, stored); err == nil {
			r.a.reader.chunks.put(t.chunkKey(i), raw)
		}
	}
}

// Read returns whole batches from the one that holds offset on: at least one,
// more while they fit maxBytes and are at hand, never one that ends above upper.
// When already the first batch does, the chunk is empty. ErrBelowStart,
// ErrNotTiered, ErrUnavailable, ErrCorrupt.
func (r *Remote) Read(ctx context.Context, offset int64, maxBytes int, upper int64) (*Chunk, error) {
	r.a.counts.reads.Add(1)
	c, err := secondLook(ctx, r, func(*manifest) (*Chunk, error) { return r.read(ctx, offset, maxBytes, upper) })
	switch {
	case err == nil:
		r.a.counts.readBytes.Add(int64(c.n))
	case ctx.Err() != nil:
		// The client's time is up; the fill goes on without it.
	case !errors.Is(err, ErrBelowStart) && !errors.Is(err, ErrNotTiered):
		r.a.counts.readErrors.Add(1)
		r.a.complaints.warn(r.a.log, "archive read failed", "partition", r.p.String(), "offset", offset, "err", err)
	}
	return c, err
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

	out := newChunk(offset)
	i := t.index.chunkFor(offset)
	rd.begin(st, r, t.endOf(i), int64(t.index.chunks[i].raw))
	b, err := rd.chunk(ctx, t, i)
	if err != nil {
		return nil, err
	}
	for out.take(b, maxBytes, upper) {
		if i++; i == len(t.index.chunks) {
			end := t.segment.End
			if t = r.targetAtHand(end); t == nil {
				if out.n == 0 {
					return r.read(ctx, end, maxBytes, upper)
				}
				break
			}
			i = 0
		}
		var ok bool
		if b, ok = rd.cached(t, i); ok {
			continue
		}
		if out.n > 0 {
			break
		}
		// The offset lies in a gap between batches.
		if b, err = rd.chunk(ctx, t, i); err != nil {
			return nil, err
		}
	}
	rd.end(st, out.next, int64(out.n))
	return out, nil
}

// targetAtHand is the object that holds offset if it takes no I/O to know it.
func (r *Remote) targetAtHand(offset int64) *target {
	m := r.current.Load()
	if m == nil || m.retired || offset < m.start || offset >= m.end {
		return nil
	}
	entries := m.tail
	if i := m.pageFor(offset); i < len(m.pages) {
		p, ok := r.a.pages.get(pageKey{r.key, m.pages[i].id})
		if !ok {
			return nil
		}
		entries = p.entries[m.pages[i].dead:]
	}
	i := entryFor(entries, offset)
	if i == len(entries) {
		return nil
	}
	x, ok := r.a.indexes.get(r.objectKey(entries[i].ID))
	if !ok {
		return nil
	}
	return &target{remote: r, segment: entries[i], index: x}
}

// ProducerSnapshot returns the producer state at the end of the segment that
// holds offset, and that end: what a replica that starts there needs.
func (r *Remote) ProducerSnapshot(ctx context.Context, offset int64) (snapshot []byte, end int64, err error) {
	snapshot, err = secondLook(ctx, r, func(*manifest) (snapshot []byte, err error) {
		end = -1
		s, err := r.Find(ctx, offset)
		if err != nil {
			return nil, err
		}
		if snapshot, err = r.producersOf(ctx, &s); err == nil {
			end = s.End
		}
		return snapshot, err
	})
	return snapshot, end, err
}

// producersOf reads the producer state at the end of a segment; nil when it has none.
func (r *Remote) producersOf(ctx context.Context, s *RemoteSegment) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.a.cfg.GetTimeout)
	defer cancel()
	key := r.Key(s.ID)
	tail := make([]byte, s.StoredBytes-s.lookupAt-s.lookupBytes)
	if _, err := objstore.ReadAt(ctx, r.a.deps.Store, key, tail, s.lookupAt+s.lookupBytes); err != nil {
		if errors.Is(err, objstore.ErrNotFound) {
			return nil, fmt.Errorf("%s: %w", key, ErrMissing)
		}
		return nil, storeError("read producer snapshot", err)
	}
	if len(tail) < footerBytes {
		return nil, &CorruptError{Key: key, Offset: -1, Reason: "no room for a footer"}
	}
	f, err := decodeFooter(tail[len(tail)-footerBytes:], s.StoredBytes)
	if err != nil {
		return nil, named(err, key)
	}
	if f.sections[sectionProducers-1].n == 0 {
		return nil, nil
	}
	d := &decoder{b: tail[:len(tail)-footerBytes]}
	snapshot := d.section(sectionProducers)
	if d.err != nil {
		return nil, named(d.err, key)
	}
	return snapshot, nil
}
