package tier

import (
	"bytes"
	"context"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/varvelog/varve/tier/objstore"
)

func TestJoinedChecksumsAreThoseOfTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	b := make([]byte, 3<<20)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	for _, n := range []int{0, 1, 2, 255, 256, 257, 65535, 65536, 65537, 1 << 20, 2<<20 + 12345} {
		for _, head := range []int{0, 1, 21, 4096, 1<<20 - 12345} {
			whole := b[:head+n]
			if got := joinCRC(crc32c(b[:head]), crc32c(whole[head:]), n); got != crc32c(whole) {
				t.Errorf("%d and %d bytes: %08x, want %08x", head, n, got, crc32c(whole))
			}
		}
	}
	if mulCRC(1<<31, 12345) != 12345 || mulCRC(1<<30, 1) != crc32.Castagnoli {
		t.Error("1 and x are not what they should be")
	}
}

// TestMemoryOfChunksIsNotReusedWhileSomebodyReads holds answers of many readers at
// once over a cache that keeps next to nothing, so that each chunk's memory is
// used again as soon as it may be. Memory that nobody uses is overwritten in
// tests.
func TestMemoryOfChunksIsNotReusedWhileSomebodyReads(t *testing.T) {
	cfg := testConfig(t)
	cfg.CacheBytes = 4 << 20
	rounds := 60
	if raceDetector {
		rounds = 10
	}
	for _, noise := range []bool{true, false} {
		mem := objstore.NewMem(0)
		a := openTest(t, cfg, mem, "")
		r := a.Partition(testPartition)
		w := newWorld(3)
		w.noise, w.value = noise, 8000
		for range 3 {
			offload(t, r, 0, w.segment(300, 16))
		}
		all, places, at := w.raw(0), map[int64]int{}, 0
		for _, b := range w.batches {
			places[b.BaseOffset()] = at
			at += len(b)
		}
		var wg sync.WaitGroup
		for reader := range 6 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(reader), 2))
				var held []*Chunk
				check := func(c *Chunk) {
					if at, ok := places[c.StartOffset()]; !ok || !bytes.HasPrefix(all[at:], c.Bytes()) {
						t.Errorf("reader %d: [%d, %d) has other bytes than were written", reader, c.StartOffset(), c.NextOffset())
					}
					c.Release()
				}
				offset := int64(0)
				for range rounds {
					if offset >= w.next || rng.IntN(10) == 0 {
						offset = rng.Int64N(w.next)
					}
					ctx, cancel := context.WithCancel(context.Background())
					if rng.IntN(8) == 0 {
						cancel() // leaves before its chunk lands
					}
					c, err := r.Read(ctx, offset, 3<<20, 1<<62)
					cancel()
					if err != nil {
						continue
					}
					offset = c.NextOffset()
					if held = append(held, c); len(held) > 4 {
						i := rng.IntN(len(held))
						check(held[i])
						held = append(held[:i], held[i+1:]...)
					}
				}
				for _, c := range held {
					check(c)
				}
			})
		}
		wg.Wait()
		closeTest(t, a)
	}
}

// TestChunkMemoryGoesRound replays more than the cache holds several times: the
// chunks' memory is taken once, not once for each of them.
func TestChunkMemoryGoesRound(t *testing.T) {
	cfg := testConfig(t)
	cfg.CacheBytes = 8 << 20
	a := openTest(t, cfg, objstore.NewMem(0), "")
	r := a.Partition(testPartition)
	w := newWorld(4)
	w.noise, w.value = true, 8000
	for range 3 {
		offload(t, r, 0, w.segment(500, 16))
	}
	replay := func() {
		for offset := int64(0); offset < w.next; {
			c, err := r.Read(context.Background(), offset, 1<<20, 1<<62)
			if err != nil {
				t.Fatal(err)
			}
			offset = c.NextOffset()
			c.Release()
		}
	}
	replay()
	if raceDetector {
		return // which allocates by itself
	}
	took := allocated(func() {
		for range 4 {
			replay()
		}
	})
	if total := 4 * int64(len(w.raw(0))); took > total/8 {
		t.Fatalf("%d bytes allocated to replay %d", took, total)
	}
	closeTest(t, a)
}

func allocated(fn func()) int64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return int64(after.TotalAlloc - before.TotalAlloc)
}

func TestBlockReleasedTwicePanics(t *testing.T) {
	p := blockPool{keepMax: 1}
	b := p.get(chunkBytes)
	b.release()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	b.release()
}
