package tier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// faultyWorld is an archive of a few segments behind a store that can fail.
func faultyWorld(t *testing.T, cfg Config, noise bool) (*world, *Remote, *objstore.Faulty, *objstore.Counted, *objstore.Mem) {
	mem := objstore.NewMem(0)
	w := newWorld(9)
	w.noise, w.value = noise, 3000
	writer := openTest(t, cfg, mem, "")
	r := writer.Partition(testPartition)
	for range 3 {
		offload(t, r, 0, w.segment(150, 20))
	}
	closeTest(t, writer)
	faulty := objstore.NewFaulty(mem, 5)
	counted := objstore.NewCounted(faulty, nil)
	return w, openTest(t, cfg, counted, "").Partition(testPartition), faulty, counted, mem
}

func TestReadsHealDamageOnTheWay(t *testing.T) {
	for _, fault := range []objstore.Fault{objstore.FaultCorrupt, objstore.FaultTruncate, objstore.FaultBefore, objstore.FaultSlowDown} {
		// A compressible segment is one small object, read whole in one GET; the
		// others take one for the index and more for the chunks.
		for _, c := range []struct {
			noise bool
			nth   int
		}{{false, 1}, {true, 1}, {true, 2}} {
			t.Run(fmt.Sprintf("%v/noise=%v/get=%d", fault, c.noise, c.nth), func(t *testing.T) {
				w, r, faulty, _, _ := faultyWorld(t, testConfig(t), c.noise)
				if _, err := r.State(context.Background()); err != nil {
					t.Fatal(err)
				}
				var mu sync.Mutex
				seen := map[string]int{}
				faulty.Set(objstore.Rule{Op: objstore.OpGet, Key: "*/seg/*", Fault: fault, Only: func(_ objstore.Op, key string) bool {
					mu.Lock()
					defer mu.Unlock()
					seen[key]++
					return seen[key] == c.nth
				}})
				if got := readAll(t, r, 0, 1<<20); !bytes.Equal(got, w.raw(0)) {
					t.Fatalf("read %d bytes, wrote %d", len(got), len(w.raw(0)))
				}
				if faulty.Hits() < 3 {
					t.Fatalf("%d faults were met", faulty.Hits())
				}
			})
		}
	}
}

// damage flips one byte of an object in the store.
func damage(t *testing.T, store objstore.Store, key string, at int64) {
	t.Helper()
	b, _, err := objstore.ReadAll(context.Background(), store, key, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 0x10
	if _, err := store.Put(context.Background(), key, objstore.Bytes(b), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestDamageInTheStoreIsNeverServed flips a bit of a stored chunk: of a compressed
// one; of a batch's records; and of a leader epoch, which no batch's own CRC
// covers.
func TestDamageInTheStoreIsNeverServed(t *testing.T) {
	for _, c := range []struct {
		noise bool
		at    int64 // in the chunk; -1 its middle
	}{{false, -1}, {true, -1}, {true, 12}, {true, 3}} {
		w, r, _, _, mem := faultyWorld(t, testConfig(t), c.noise)
		flip := c.at
		ctx := context.Background()
		s, err := r.Find(ctx, w.next/2)
		if err != nil {
			t.Fatal(err)
		}
		tg, err := r.target(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		bad := len(tg.index.chunks) / 2
		c := tg.index.chunks[bad]
		r.a.reader.forget(r.key)
		if flip < 0 {
			flip = int64(c.stored) / 2
		}
		damage(t, mem, r.Key(s.ID), int64(c.at)+flip)
		all, places := w.raw(0), map[int64]int{}
		at := 0
		for _, b := range w.batches {
			places[b.BaseOffset()] = at
			at += len(b)
		}
		for offset := int64(0); offset < w.next; {
			chunk, err := r.Read(ctx, offset, 200_000, 1<<62)
			if err != nil {
				if !errors.Is(err, ErrCorrupt) || offset < c.base || offset >= tg.endOf(bad) {
					t.Fatalf("at %d: %v", offset, err)
				}
				var ce *CorruptError
				if !errors.As(err, &ce) || ce.Key != r.Key(s.ID) || ce.Offset != int64(c.at) {
					t.Fatalf("error does not say where: %v", err)
				}
				offset = tg.endOf(bad)
				continue
			}
			if at, ok := places[chunk.StartOffset()]; !ok || !bytes.HasPrefix(all[at:], chunk.Bytes()) {
				t.Fatalf("at %d: bytes that were never written", offset)
			}
			if chunk.StartOffset() <= c.base && c.base < chunk.NextOffset() {
				t.Fatalf("damaged chunk at %d was served in [%d, %d)", c.base, chunk.StartOffset(), chunk.NextOffset())
			}
			offset = chunk.NextOffset()
		}
	}
}

func TestDamagedIndexIsAnErrorAndHealsWhenRepaired(t *testing.T) {
	w, r, _, _, mem := faultyWorld(t, testConfig(t), false)
	s, err := r.Find(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	// Where a chunk lies, and the time that lookups go by, which nothing else contradicts.
	for _, at := range []int64{s.lookupAt + 20, s.lookupAt + s.lookupBytes - 1} {
		damage(t, mem, r.Key(s.ID), at)
		if _, err := r.Read(context.Background(), 0, 1000, 1<<62); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("damaged index: %v", err)
		}
		if _, _, err := r.OffsetForTime(context.Background(), 0, 0); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("damaged index: %v", err)
		}
		damage(t, mem, r.Key(s.ID), at)
	}
	if got := readAll(t, r, 0, 1<<20); !bytes.Equal(got, w.raw(0)) {
		t.Fatal("other bytes after the repair")
	}
}

func TestMissingObjectIsRetriableUnlessBelowTheStart(t *testing.T) {
	_, r, _, _, mem := faultyWorld(t, testConfig(t), true)
	ctx := context.Background()
	s, err := r.Find(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := mem.Delete(ctx, r.Key(s.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(ctx, 0, 1000, 1<<62); !errors.Is(err, ErrMissing) || !errors.Is(err, ErrUnavailable) {
		t.Fatalf("object gone, manifest names it: %v", err)
	}
	// Another process moves the start: this one finds out by the 404.
	other := openTest(t, testConfig(t), mem, "").Partition(testPartition)
	if err := other.Commit(ctx, Edit{AdvanceStart: s.End, MarkBelowStart: true, MarkedAt: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Read(ctx, 0, 1000, 1<<62); !errors.Is(err, ErrBelowStart) {
		t.Fatalf("start has moved: %v", err)
	}
	if _, err := r.Read(ctx, s.End, 1000, 1<<62); err != nil {
		t.Fatal(err)
	}
}

func TestStoreDownIsRetriableAndPasses(t *testing.T) {
	w, r, faulty, _, _ := faultyWorld(t, testConfig(t), false)
	faulty.Set(objstore.Rule{Fault: objstore.FaultBefore})
	if _, err := r.Read(context.Background(), 0, 1000, 1<<62); !errors.Is(err, ErrUnavailable) {
		t.Fatalf("store down: %v", err)
	}
	faulty.Set()
	if got := readAll(t, r, 0, 1<<20); !bytes.Equal(got, w.raw(0)) {
		t.Fatal("other bytes after the outage")
	}
}

func TestManyReadersOfOneChunkMakeOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r, faulty, counted, _ := faultyWorld(t, testConfig(t), true)
		if _, err := r.State(context.Background()); err != nil {
			t.Fatal(err)
		}
		faulty.Set(objstore.Rule{Op: objstore.OpGet, Delay: 30 * time.Millisecond})
		before := counted.Stats().Get.Requests
		var wg sync.WaitGroup
		for range 30 {
			wg.Go(func() {
				if _, err := r.Read(context.Background(), 7, 1000, 1<<62); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := counted.Stats().Get.Requests - before; n != 2 {
			t.Fatalf("%d requests for one index and one chunk", n)
		}
		closeTest(t, r.a)
	})
}

func TestFillOutlivesTheReaderThatAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r, faulty, counted, _ := faultyWorld(t, testConfig(t), true)
		if _, err := r.Find(context.Background(), 0); err != nil {
			t.Fatal(err)
		}
		faulty.Set(objstore.Rule{Op: objstore.OpGet, Delay: time.Second})
		ctx, cancel := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		defer cancel()
		if _, err := r.Read(ctx, 0, 1000, 1<<62); err == nil {
			t.Fatal("answered before the store did")
		}
		time.Sleep(time.Second) // fake time: the fill is done now
		before := counted.Stats().Get.Requests
		if _, err := r.Read(context.Background(), 0, 1000, 1<<62); err != nil {
			t.Fatal(err)
		}
		if n := counted.Stats().Get.Requests - before; n != 0 {
			t.Fatalf("%d requests for a chunk that was already asked for", n)
		}
		closeTest(t, r.a)
	})
}

func TestReplayIsFastBoundedAndInFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := objstore.NewMem(0)
		cfg := testConfig(t)
		cfg.CacheBytes = 32 << 20
		w := newWorld(4)
		w.noise, w.value = true, 8000
		writer := openTest(t, cfg, mem, "")
		for range 4 {
			offload(t, writer.Partition(testPartition), 0, w.segment(500, 16))
		}
		closeTest(t, writer)
		total := int64(len(w.raw(0)))

		const latency = 30 * time.Millisecond
		faulty := objstore.NewFaulty(mem, 1, objstore.Rule{Op: objstore.OpGet, Delay: latency})
		counted := objstore.NewCounted(faulty, nil)
		a := openTest(t, cfg, counted, filepath.Join(t.TempDir(), "m.db"))
		r := a.Partition(testPartition)
		begin := time.Now()
		var read int64
		for offset := int64(0); offset < w.next; {
			c, err := r.Read(context.Background(), offset, 1<<20, 1<<62)
			if err != nil {
				t.Fatal(err)
			}
			read += int64(c.Len())
			offset = c.NextOffset()
			if held, _ := a.reader.chunks.stats(); held > cfg.CacheBytes {
				t.Fatalf("%d bytes in a cache of %d", held, cfg.CacheBytes)
			}
		}
		took := time.Since(begin)
		if read != total {
			t.Fatalf("read %d of %d bytes", read, total)
		}
		s := counted.Stats()
		t.Logf("%d MiB in %v of the store's time, %d GETs, %d bytes", total>>20, took, s.Get.Requests, s.Get.Bytes)
		chunks := total / (1 << 20)
		if took > time.Duration(chunks)*latency/3 {
			t.Fatalf("took %v for %d chunks at %v each: no read-ahead", took, chunks, latency)
		}
		if s.Get.Bytes > total*102/100 {
			t.Fatalf("%d bytes fetched for %d", s.Get.Bytes, total)
		}
		closeTest(t, a)
	})
}

// gauge wraps a store and keeps the largest number of GETs of segments open at
// once.
type gauge struct {
	objstore.Store
	mu        sync.Mutex // guards the following
	now, most int
}

func (g *gauge) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, objstore.Object, error) {
	if !strings.Contains(key, "/seg/") {
		return g.Store.Get(ctx, key, off, n)
	}
	g.mu.Lock()
	g.now++
	g.most = max(g.most, g.now)
	g.mu.Unlock()
	r, o, err := g.Store.Get(ctx, key, off, n)
	if err != nil {
		g.closed()
		return r, o, err
	}
	return gaugedBody{r, g}, o, nil
}

func (g *gauge) closed() {
	g.mu.Lock()
	g.now--
	g.mu.Unlock()
}

type gaugedBody struct {
	io.ReadCloser
	g *gauge
}

func (b gaugedBody) Close() error {
	b.g.closed()
	return b.ReadCloser.Close()
}

// TestPartitionsReplaySideBySide replays several partitions at once: each as if it
// were alone, with no more GETs at once than configured, in a cache that keeps
// its bound.
func TestPartitionsReplaySideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := objstore.NewMem(0)
		cfg := testConfig(t)
		cfg.CacheBytes = 48 << 20
		writer := openTest(t, cfg, mem, "")
		const n = 6
		worlds := make([]*world, n)
		partition := func(a *Archive, i int) *Remote {
			p := testPartition
			p.Index = int32(i)
			return a.Partition(p)
		}
		for i := range worlds {
			worlds[i] = newWorld(uint64(i))
			worlds[i].noise, worlds[i].value = true, 8000
			offload(t, partition(writer, i), 0, worlds[i].segment(150, 16))
		}
		closeTest(t, writer)

		const latency = 30 * time.Millisecond
		g := &gauge{Store: objstore.NewFaulty(mem, 1, objstore.Rule{Op: objstore.OpGet, Delay: latency})}
		replay := func(parts ...int) time.Duration {
			a := openTest(t, cfg, g, "")
			defer closeTest(t, a)
			begin := time.Now()
			var wg sync.WaitGroup
			for _, i := range parts {
				wg.Go(func() {
					if got := readAll(t, partition(a, i), 0, 1<<20); !bytes.Equal(got, worlds[i].raw(0)) {
						t.Errorf("partition %d: read %d bytes, wrote %d", i, len(got), len(worlds[i].raw(0)))
					}
				})
			}
			wg.Wait()
			if held, _ := a.reader.chunks.stats(); held > cfg.CacheBytes {
				t.Errorf("%d bytes in a cache of %d", held, cfg.CacheBytes)
			}
			return time.Since(begin)
		}
		alone := replay(0)
		together := replay(0, 1, 2, 3, 4, 5)
		t.Logf("one partition in %v, six in %v, at most %d GETs at once", alone, together, g.most)
		if together > 2*alone {
			t.Errorf("six partitions took %v, one takes %v", together, alone)
		}
		if g.most > cfg.ReadParallelism {
			t.Errorf("%d GETs at once, %d are allowed", g.most, cfg.ReadParallelism)
		}
	})
}
