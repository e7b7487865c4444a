package tier

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	chunks *lru[chunkKey, *block]
	blocks blockPool

	mu      sync.Mutex // guards the following
	pending map[chunkKey]*arrival
	streams streams
}

// arrival is a chunk on its way, for those who wait for it. value and err are
// written before done is closed and not after.
type arrival struct {
	done  chan struct{}
	value *block // held once for each waiter
	err   error

	waiters int  // guarded by reader.mu, as is
	landed  bool // value and err are there
}

func newReader(a *Archive) *reader {
	n := a.cfg.ReadParallelism
	r := &reader{
		a: a, slots: make(semaphore, n), ahead: make(semaphore, max(1, n-max(1, n/6))),
		chunks:  newLRU[chunkKey](a.cfg.CacheBytes, func(b *block) int64 { return int64(cap(b.b)) + 128 }),
		blocks:  blockPool{keepMax: blocksKept},
		pending: map[chunkKey]*arrival{},
		streams: newStreams(a.cfg),
	}
	r.chunks.got, r.chunks.gone = (*block).hold, (*block).release
	return r
}

// forget drops the chunks of a partition.
func (r *reader) forget(k partitionKey) {
	r.chunks.removeIf(func(c chunkKey) bool { return c.object.partition == k })
}

// cached returns a chunk that is at hand. The caller releases it.
func (r *reader) cached(t *target, i int) (*block, bool) {
	b, ok := r.chunks.get(t.chunkKey(i))
	if ok {
		r.a.counts.chunkHits.Add(1)
	}
	return b, ok
}

// chunk returns a chunk, waiting for it when it is not at hand. The caller
// releases it.
func (r *reader) chunk(ctx context.Context, t *target, i int) (*block, error) {
	key := t.chunkKey(i)
	for {
		if b, ok := r.chunks.get(key); ok {
			r.a.counts.chunkHits.Add(1)
			return b, nil
		}
		w := r.want(t, i, i+1, false)
		if w == nil {
			continue // it came between the two looks
		}
		r.a.counts.chunkWaits.Add(1)
		select {
		case <-w.done:
			return w.value, w.err
		case <-ctx.Done():
			r.leave(w)
			return nil, fmt.Errorf("wait for chunk %d of %s: %w: %w", i, t.remote.Key(t.segment.ID), ErrUnavailable, context.Cause(ctx))
		}
	}
}

// leave ends the wait of somebody who cannot wait longer.
func (r *reader) leave(w *arrival) {
	r.mu.Lock()
	landed := w.landed
	w.waiters--
	r.mu.Unlock()
	if landed && w.value != nil {
		w.value.release()
	}
}

// want makes sure that the chunks [from, to) are cached or on their way, in GETs
// as long as the runs that are neither. Unless it is read-ahead, the caller waits
// for the first of them, and gets its arrival, or nil if it is cached.
func (r *reader) want(t *target, from, to int, ahead bool) *arrival {
	r.mu.Lock()
	var runs []fill
	for i := from; i < to; i++ {
		key := t.chunkKey(i)
		if r.pending[key] != nil || r.chunks.has(key) {
			continue
		}
		w := &arrival{done: make(chan struct{})}
		r.pending[key] = w
		if n := len(runs); n > 0 && runs[n-1].from+len(runs[n-1].arrivals) == i {
			runs[n-1].arrivals = append(runs[n-1].arrivals, w)
		} else {
			runs = append(runs, fill{reader: r, target: *t, from: i, arrivals: []*arrival{w}})
		}
	}
	var first *arrival
	if !ahead {
		if first = r.pending[t.chunkKey(from)]; first != nil {
			first.waiters++
		}
	}
	r.mu.Unlock()
	for i := range runs {
		f := &runs[i]
		if err := r.a.spawn(func(ctx context.Context) { f.run(ctx, ahead) }); err != nil {
			f.fail(err)
		}
	}
	return first
}

// fill is one run of adjacent chunks being fetched.
type fill struct {
	reader   *reader
	target   target
	from     int
	arrivals []*arrival
	landed   int // arrivals that have their answer
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
		f.target.remote.suspect(MarkID{KeySegment, f.target.segment.ID})
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
	chunks := f.target.index.chunks[f.from+f.landed : f.from+len(f.arrivals)]
	at := int64(chunks[0].at)
	last := chunks[len(chunks)-1]
	body, _, err := f.reader.a.deps.Store.Get(ctx, f.target.remote.Key(f.target.segment.ID), at, int64(last.at)+int64(last.stored)-at)
	if err != nil {
		return err
	}
	defer body.Close()
	for i := range chunks {
		c := &chunks[i]
		stored := f.reader.blocks.room(c)
		if _, err := io.ReadFull(body, stored.b); err != nil {
			stored.release()
			return err
		}
		f.reader.a.counts.fetchedBytes.Add(int64(c.stored))
		raw, err := f.decode(c, stored)
		if err != nil {
			raw, err = f.again(ctx, c, err)
		}
		f.land(raw, err)
	}
	return nil
}

// decode is decodeChunk, and releases what the result is not.
func (f *fill) decode(c *chunkInfo, stored *block) (*block, error) {
	raw, err := f.reader.a.decodeChunk(c, f.target.segment.End, stored)
	if err != nil || raw != stored {
		stored.release()
	}
	if err != nil {
		return nil, err
	}
	return raw, nil
}

// again fetches one chunk that failed its check: damage on the way heals, damage
// in the store is an error and nothing of it is served or cached.
func (f *fill) again(ctx context.Context, c *chunkInfo, cause error) (*block, error) {
	key := f.target.remote.Key(f.target.segment.ID)
	f.reader.a.counts.damaged.Add(1)
	f.reader.a.counts.fetches.Add(1)
	f.reader.a.log.Warn("archive chunk damaged, fetching it again", "object", key, "offset", c.base, "err", cause)
	stored := f.reader.blocks.room(c)
	if _, err := objstore.ReadAt(ctx, f.reader.a.deps.Store, key, stored.b, int64(c.at)); err != nil {
		stored.release()
		return nil, storeError("read archive", err)
	}
	raw, err := f.decode(c, stored)
	if err != nil {
		f.target.remote.suspect(MarkID{KeySegment, f.target.segment.ID})
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

// land gives the next arrival its answer. The fill's use of raw becomes the
// cache's.
func (f *fill) land(raw *block, err error) {
	r := f.reader
	key := f.target.chunkKey(f.from + f.landed)
	w := f.arrivals[f.landed]
	f.landed++
	r.mu.Lock()
	delete(r.pending, key)
	w.value, w.err, w.landed = raw, err, true
	if err == nil {
		raw.refs.Add(int32(w.waiters))
		r.chunks.put(key, raw)
	}
	r.mu.Unlock()
	close(w.done)
}

// fail gives all arrivals without an answer this one.
func (f *fill) fail(err error) {
	for f.landed < len(f.arrivals) {
		f.land(nil, err)
	}
}
