package tier

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/klauspost/compress/zstd"

	"github.com/varvelog/varve/meta/topic"
)

// Archive is the bucket as this process knows it: one per process.
type Archive struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	db      *manifestDB
	encoder *zstd.Encoder
	decoder *zstd.Decoder
	reader  *reader

	uploadMemory byteBudget

	manifests *lru[partitionKey, resident] // those the database has too
	pages     *lru[pageKey, *page]
	indexes   *lru[objectKey, *objectIndex]

	ctx    context.Context // of everything that outlives a call; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	release    sync.Once
	counts     readCounters
	onSuspect  atomic.Pointer[func(topic.Partition, MarkID)] // hears of objects that a read found missing or damaged
	complaints complaints

	mu         sync.Mutex // guards the following
	partitions map[partitionKey]*Remote
	closed     bool
}

// partitionKey names a partition in the bucket; the topic's name may be
// unknown (or change) and is no part of it.
type partitionKey struct {
	topic topic.ID
	index int32
}

// pageKey and objectKey name immutable objects: what is cached under them is
// never out of date.
type pageKey struct {
	partition partitionKey
	id        SegmentID
}

type objectKey struct {
	partition partitionKey
	id        SegmentID
}

// OpenArchive opens the local manifest cache and prepares the reader pool. It
// makes no request to the store.
func OpenArchive(cfg Config, deps Deps) (*Archive, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Store == nil {
		return nil, errors.New("tier: no object store")
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(2),
		zstd.WithWindowSize(chunkBytes), zstd.WithEncoderCRC(false), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, fmt.Errorf("zstd encoder: %w", err)
	}
	// The index says how large a chunk is. Without the limit a frame's own header
	// could have 32 KiB allocated for each byte of input.
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderMaxMemory(chunkRawMax), zstd.WithDecodeAllCapLimit(true))
	if err != nil {
		return nil, fmt.Errorf("zstd decoder: %w", err)
	}
	db, err := openManifestDB(deps.DB, deps.Logger)
	if err != nil {
		return nil, err
	}
	a := &Archive{
		cfg: cfg, deps: deps, log: deps.Logger, db: db, encoder: encoder, decoder: decoder, uploadMemory: byteBudget{limit: cfg.UploadMemoryBytes},
		manifests:  newLRU[partitionKey](cfg.ManifestCacheBytes/2, func(x resident) int64 { return x.m.sizeBytes() }),
		pages:      newLRU[pageKey](cfg.ManifestCacheBytes/2, (*page).sizeBytes),
		indexes:    newLRU[objectKey](cfg.IndexCacheBytes, (*objectIndex).sizeBytes),
		partitions: map[partitionKey]*Remote{},
	}
	a.manifests.evicted = resident.release
	a.ctx, a.cancel = context.WithCancel(context.Background())
	a.reader = newReader(a)
	return a, nil
}

// Partition returns the remote side of p, the same one for every call. It makes
// no request.
func (a *Archive) Partition(p topic.Partition) *Remote {
	a.mu.Lock()
	defer a.mu.Unlock()
	key := partitionKey{p.ID, p.Index}
	r := a.partitions[key]
	if r == nil {
		r = newRemote(a, p, key)
		a.partitions[key] = r
	}
	return r
}

// Forget drops what this process holds of p: its cached manifest, in memory and
// on disk. The bucket is not touched.
func (a *Archive) Forget(p topic.Partition) error {
	key := partitionKey{p.ID, p.Index}
	a.mu.Lock()
	delete(a.partitions, key)
	a.mu.Unlock()
	a.manifests.remove(key)
	a.pages.removeIf(func(k pageKey) bool { return k.partition == key })
	a.indexes.removeIf(func(k objectKey) bool { return k.partition == key })
	a.reader.forget(key)
	return a.db.forget(key)
}

// Config returns the configuration the archive was opened with.
func (a *Archive) Config() Config { return a.cfg }

// spawn runs fn in a goroutine that Close waits for.
func (a *Archive) spawn(fn func(context.Context)) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return ErrClosed
	}
	a.wg.Go(func() { fn(a.ctx) })
	return nil
}

// Close cancels what is in flight, waits for it and closes the local cache.
// Calling it again changes nothing.
func (a *Archive) Close(ctx context.Context) error {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.cancel()
	done := make(chan struct{})
	go func() {
		a.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("close archive: %w", context.Cause(ctx))
	}
	var err error
	a.release.Do(func() {
		a.decoder.Close()
		err = a.db.close()
	})
	return err
}
