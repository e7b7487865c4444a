package tier

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// chunkKey names one chunk. Objects are never rewritten, so what is cached under
// it is never out of date.
type chunkKey struct {
	object objectKey
	chunk  int32
}

// target is an object whose chunks are wanted.
type target struct {
	remote  *Remote
	segment RemoteSegment
	index   *objectIndex
}

func (t *target) chunkKey(i int) chunkKey {
	return chunkKey{object: t.remote.objectKey(t.segment.ID), chunk: int32(i)}
}

// endOf is the offset after chunk i.
func (t *target) endOf(i int) int64 {
	if i+1 < len(t.index.chunks) {
		return t.index.chunks[i+1].base
	}
	return t.segment.End
}

// reader fetches chunks: one GET for a run of adjacent ones, at most
// ReadParallelism at a time, each chunk once for all who want it.
//
// A fill belongs to the archive, not to the reader that asked: it goes on and
// fills the cache when that reader has left. Demand (a client waits) and
// read-ahead share the slots, but read-ahead never takes the last ones.
type reader struct {
	a      *Archive
	slots  semaphore // every GET holds one
	ahead  semaphore // every read-ahead GET holds one of these too
	chunks *lru[chunkKey, []byte]

	mu      sync.Mutex // guards the following
	pending map[chunkKey]*flight[[]byte]
	streams streams
}

func newReader(a *Archive) *reader {
	n := a.cfg.ReadParallelism
	return &reader{
		a: a, slots: make(semaphore, n), ahead: make(semaphore, max(1, n-max(1, n/6))),
		chunks:  newLRU[chunkKey](a.cfg.CacheBytes, func(b []byte) int64 { return int64(cap(b)) + 128 }),
		pending: map[chunkKey]*flight[[]byte]{},
		streams: newStreams(a.cfg),
	}
}

// forget drops the chunks of a partition.
func (r *reader) forget(k partitionKey) {
	r.chunks.removeIf(func(c chunkKey) bool { return c.object.partition == k })
}

// cached returns a chunk that is at hand.
func (r *reader) cached(t *target, i int) ([]byte, bool) {
	b, ok := r.chunks.get(t.chunkKey(i))
	if ok {
		r.a.counts.chunkHits.Add(1)
	}
	return b, ok
}

// chunk returns a chunk, waiting for it when it is not at hand.
func (r *reader) chunk(ctx context.Context, t *target, i int) ([]byte, error) {
	key := t.chunkKey(i)
	if b, ok := r.chunks.get(key); ok {
		r.a.counts.chunkHits.Add(1)
		return b, nil
	}
	r.a.counts.chunkWaits.Add(1)
	fl := r.want(t, i, i+1, false)
	select {
	case <-fl.done:
		return fl.value, fl.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for chunk %d of %s: %w: %w", i, t.remote.Key(t.segment.ID), ErrUnavailable, context.Cause(ctx))
	}
}

// want makes sure that the chunks [from, to) are cached or on their way, in GETs
// as long as the runs that are neither, and returns the flight of the first.
func (r *reader) want(t *target, from, to int, ahead bool) *flight[[]byte] {
	r.mu.Lock()
	var runs []fill
	for i := from; i < to; i++ {
		key := t.chunkKey(i)
		if r.pending[key] != nil || r.chunks.has(key) {
			continue
		}
		fl := &flight[[]byte]{done: make(chan struct{})}
		r.pending[key] = fl
		if n := len(runs); n > 0 && runs[n-1].from+len(runs[n-1].flights) == i {
			runs[n-1].flights = append(runs[n-1].flights, fl)
		} else {
			runs = append(runs, fill{reader: r, target: *t, from: i, flights: []*flight[[]byte]{fl}})
		}
	}
	first := r.pending[t.chunkKey(from)]
	r.mu.Unlock()
	for i := range runs {
		f := &runs[i]
		if err := r.a.spawn(func(ctx context.Context) { f.run(ctx, ahead) }); err != nil {
			f.fail(err)
		}
	}
	if first == nil {
		// It came between the caller's look and this one.
		first = &flight[[]byte]{done: make(chan struct{})}
		if b, ok := r.chunks.get(t.chunkKey(from)); ok {
			first.value = b
			close(first.done)
			return first
		}
		return r.want(t, from, from+1, ahead)
	}
	return first
}

// fill is one run of adjacent chunks being fetched.
type fill struct {
	reader  *reader
	target  target
	from    int
	flights []*flight[[]byte]
	landed  int // flights that have their answer
}

// run fetches the run in one GET and publishes each chunk as its bytes arrive.
// After a failure in mid-stream the rest is asked for once more.
func (f *fill) run(ctx context.Context, ahead bool) {
	if ahead {
		if f.reader.ahead.lock(ctx) != nil {
			f.fail(ErrClosed)
			return
		}
		defer f.reader.ahead.unlock()
	}
	if f.reader.slots.lock(ctx) != nil {
		f.fail(ErrClosed)
		return
	}
	defer f.reader.slots.unlock()
	if ahead {
		f.reader.a.counts.aheadFetches.Add(1)
	}
	err := f.stream(ctx)
	if err != nil && !errors.Is(err, objstore.ErrNotFound) && ctx.Err() == nil {
		f.reader.a.complaints.warn(f.reader.a.log, "read archive again", "object", f.target.remote.Key(f.target.segment.ID), "err", err)
		if sleep(ctx, 50*time.Millisecond) == nil {
			err = f.stream(ctx)
		}
	}
	if err == nil {
		return
	}
	if errors.Is(err, objstore.ErrNotFound) {
		err = fmt.Errorf("%s: %w", f.target.remote.Key(f.target.segment.ID), ErrMissing)
	} else {
		err = storeError("read archive", err)
	}
	f.fail(err)
}

// stream fetches the chunks that have no answer yet.
func (f *fill) stream(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.reader.a.cfg.GetTimeout)
	defer cancel()
	f.reader.a.counts.fetches.Add(1)
	chunks := f.target.index.chunks[f.from+f.landed : f.from+len(f.flights)]
	at := int64(chunks[0].at)
	last := chunks[len(chunks)-1]
	body, _, err := f.reader.a.deps.Store.Get(ctx, f.target.remote.Key(f.target.segment.ID), at, int64(last.at)+int64(last.stored)-at)
	if err != nil {
		return err
	}
	defer body.Close()
	var scratch []byte
	for i := range chunks {
		c := &chunks[i]
		stored := scratch
		if c.encoding == encodingRaw || cap(scratch) < int(c.stored) {
			// A raw chunk's bytes are what is cached and served: they get memory of
			// their own.
			stored = make([]byte, c.stored)
		}
		stored = stored[:c.stored]
		sum, err := readSummed(body, stored)
		if err != nil {
			return err
		}
		f.reader.a.counts.fetchedBytes.Add(int64(c.stored))
		if c.encoding != encodingRaw {
			scratch = stored
		}
		raw, err := f.reader.a.decodeChunk(c, f.target.segment.End, stored, sum)
		if err != nil {
			raw, err = f.again(ctx, c, err)
		}
		f.land(raw, err)
	}
	return nil
}

// again fetches one chunk that failed its check: damage on the way heals, damage
// in the store is an error and nothing of it is served or cached.
func (f *fill) again(ctx context.Context, c *chunkInfo, cause error) ([]byte, error) {
	key := f.target.remote.Key(f.target.segment.ID)
	f.reader.a.counts.damaged.Add(1)
	f.reader.a.counts.fetches.Add(1)
	f.reader.a.log.Warn("archive chunk damaged, fetching it again", "object", key, "offset", c.base, "err", cause)
	stored := make([]byte, c.stored)
	if _, err := objstore.ReadAt(ctx, f.reader.a.deps.Store, key, stored, int64(c.at)); err != nil {
		return nil, storeError("read archive", err)
	}
	raw, err := f.reader.a.decodeChunk(c, f.target.segment.End, stored, crc32c(stored))
	if err != nil {
		f.reader.a.log.Error("archive object damaged", "object", key, "offset", c.base, "err", err)
		err = named(err, key)
		var ce *CorruptError
		if errors.As(err, &ce) {
			ce.Offset = int64(c.at)
		}
		return nil, err
	}
	return raw, nil
}

// land gives the next flight its answer.
func (f *fill) land(raw []byte, err error) {
	r := f.reader
	key := f.target.chunkKey(f.from + f.landed)
	fl := f.flights[f.landed]
	f.landed++
	r.mu.Lock()
	delete(r.pending, key)
	if err == nil {
		r.chunks.put(key, raw)
	}
	r.mu.Unlock()
	fl.value, fl.err = raw, err
	close(fl.done)
}

// fail gives all flights without an answer this one.
func (f *fill) fail(err error) {
	for f.landed < len(f.flights) {
		f.land(nil, err)
	}
}
