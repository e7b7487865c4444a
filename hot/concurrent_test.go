package hot

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// TestReadersNeverSeeWrongBytesWhileTheLogMoves reads, by offset and by time,
// while one goroutine appends, one rolls and checkpoints, one compacts or
// deletes. Every batch read is whole, has a good checksum, lies within the
// bounds asked for and is the first one at or beyond the offset.
func TestReadersNeverSeeWrongBytesWhileTheLogMoves(t *testing.T) {
	for _, compact := range []bool{false, true} {
		for _, d := range []Durability{Fsync, Replicated} {
			moveAndRead(t, compact, d)
		}
	}
}

func moveAndRead(t *testing.T, compact bool, d Durability) {
	s := openStore(t, vfs.NewMem(1), "data", func(c *Config) { c.Durability, c.OpenFilesMax, c.IndexBytesMax = d, 3, 4000 })
	l := openLog(t, s, func(c *LogConfig) {
		compacted(c)
		c.Compact, c.Delete = compact, !compact
		c.RetentionBytes, c.RetentionMillis = 30_000, -1
	})
	var stop atomic.Bool
	var wg sync.WaitGroup
	run := func(f func(rng *rand.Rand) error) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(d), 3))
			for !stop.Load() {
				if err := f(rng); err != nil {
					stop.Store(true)
					t.Errorf("compact %v, %s: %v", compact, d, err)
				}
			}
		})
	}
	appends := 0
	run(func(rng *rand.Rand) error {
		if appends++; appends == 3000 {
			stop.Store(true)
		}
		b := keyed(int64(appends), batch.Options{}, string(rune('a'+rng.IntN(20))), "some value")
		_, err := l.Append(b, AppendOptions{Now: int64(appends)})
		l.SetHighWatermark(l.Offsets().Durable)
		return err
	})
	run(func(*rand.Rand) error {
		s.finishSealed()
		return s.checkpoint(s.opened(), false)
	})
	run(func(*rand.Rand) error {
		if _, err := l.Retain(1); err != nil {
			return err
		}
		_, err := l.Compact(context.Background(), 1)
		return err
	})
	for range 2 {
		run(func(rng *rand.Rand) error { return readSomewhere(l, rng, compact) })
	}
	run(func(rng *rand.Rand) error {
		_, _, err := l.OffsetForTime(rng.Int64N(3000))
		return err
	})
	deadline := time.AfterFunc(20*time.Second, func() { stop.Store(true) })
	wg.Wait()
	deadline.Stop()
	if appends < 3000 && !t.Failed() {
		t.Logf("stopped after %d appends", appends)
	}
	closeStore(t, s)
}

func readSomewhere(l *Log, rng *rand.Rand, compact bool) error {
	o := l.Offsets()
	at := o.LocalStart + rng.Int64N(o.End-o.LocalStart+1)
	upper := at + rng.Int64N(100)
	sl, err := l.Read(at, 500, upper, true)
	if errors.Is(err, ErrOffsetOutOfRange) && at < l.Offsets().LocalStart {
		return nil
	}
	if err != nil {
		return err
	}
	defer sl.Release()
	next := at
	return sl.Batches(func(b batch.Batch) error {
		switch {
		case b.VerifyCRC() != nil:
			return b.VerifyCRC()
		case b.LastOffset() >= upper, b.LastOffset() < at:
			return errors.New("a batch outside the bounds")
		case !compact && b.BaseOffset() > next:
			return errors.New("a batch is missing")
		}
		next = b.NextOffset()
		return nil
	})
}
