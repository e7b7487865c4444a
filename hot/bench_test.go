package hot

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/hot/vfs"
)

func benchStore(b *testing.B, d Durability, change ...func(*Config)) *Store {
	return openStore(b, vfs.OS(), b.TempDir(), append(change, func(c *Config) { c.Durability = d })...)
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10, 64 << 10, 1 << 20} {
		for _, d := range []Durability{Replicated, Fsync} {
			b.Run(fmt.Sprintf("batch=%dKiB/durability=%s", size>>10, d), func(b *testing.B) {
				s := benchStore(b, d)
				l := openLog(b, s, func(c *LogConfig) { c.SegmentBytes = 256 << 20; c.RetentionBytes = 1 << 30; c.FileDeleteDelay = 0 })
				one := records(1, size-80, 1)
				b.SetBytes(int64(len(one)))
				b.ReportAllocs()
				n := 0
				for b.Loop() {
					a, err := l.Append(one, AppendOptions{Now: 1})
					if err != nil {
						b.Fatal(err)
					}
					if n += len(one); n > 512<<20 {
						n = 0
						l.SetHighWatermark(a.LastOffset)
						if _, err := l.Retain(1); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		}
	}
}

func BenchmarkReadAtTheTail(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10} {
		b.Run(fmt.Sprintf("batch=%dKiB", size>>10), func(b *testing.B) {
			s := benchStore(b, Replicated)
			l := openLog(b, s)
			one := records(1, size-80, 1)
			for range 10_000 {
				mustAppend(b, l, one)
			}
			end := l.Offsets().End
			b.ReportAllocs()
			for b.Loop() {
				sl, err := l.Read(end-1, 1<<20, end, true)
				if err != nil {
					b.Fatal(err)
				}
				sl.Release()
			}
		})
	}
}

func BenchmarkReadAnywhere(b *testing.B) {
	s := benchStore(b, Replicated)
	l := openLog(b, s, func(c *LogConfig) { c.SegmentBytes = 16 << 20 })
	one := records(10, 100, 1)
	for range 100_000 {
		mustAppend(b, l, one)
	}
	end := l.Offsets().End
	b.ReportAllocs()
	at := int64(0)
	for b.Loop() {
		at = (at + 7919) % (end - 10)
		sl, err := l.Read(at, 1<<20, end, true)
		if err != nil {
			b.Fatal(err)
		}
		sl.Release()
	}
}

func BenchmarkOffsetForTime(b *testing.B) {
	s := benchStore(b, Replicated)
	l := openLog(b, s, func(c *LogConfig) { c.SegmentBytes = 16 << 20 })
	for i := range 100_000 {
		mustAppend(b, l, records(1, 100, int64(i)))
	}
	b.ReportAllocs()
	at := int64(0)
	for b.Loop() {
		at = (at + 7919) % 100_000
		if _, ok, err := l.OffsetForTime(at); err != nil || !ok {
			b.Fatal(err)
		}
	}
}

// bulkWriter overwrites files beside the benchmark at about 200 MB/s, never
// syncing: what acks=1 traffic of a replicated-mode neighbour looks like.
func bulkWriter(b *testing.B, dir string) (stop func()) {
	f, err := os.Create(dir + "/bulk")
	if err != nil {
		b.Fatal(err)
	}
	var done atomic.Bool
	var wg sync.WaitGroup
	buf := make([]byte, 1<<20)
	wg.Go(func() {
		pace := time.NewTicker(5 * time.Millisecond)
		defer pace.Stop()
		for n := int64(0); !done.Load(); n++ {
			if _, err := f.WriteAt(buf, n%256<<20); err != nil {
				return
			}
			<-pace.C
		}
	})
	return func() { done.Store(true); wg.Wait(); f.Close() }
}

// BenchmarkGroupCommit is one round: 4 KiB appended to each of n partitions,
// all of it durable. The strategies compared are in DURABILITY.md.
func BenchmarkGroupCommit(b *testing.B) {
	for _, bulk := range []bool{false, true} {
		for _, n := range []int{1, 2, 4, 6, 8, 10, 100, 1000} {
			for name, filesMax := range map[string]int{"fdatasync": 1 << 30, "syncfs": -1} {
				b.Run(fmt.Sprintf("bulk=%v/dirty=%d/by=%s", bulk, n, name), func(b *testing.B) {
					if bulk {
						defer bulkWriter(b, b.TempDir())()
					}
					commitRounds(b, n, filesMax)
				})
			}
			b.Run(fmt.Sprintf("bulk=%v/dirty=%d/by=sharedlog", bulk, n), func(b *testing.B) {
				if bulk {
					defer bulkWriter(b, b.TempDir())()
				}
				commitRounds(b, n, 4, func(c *Config) { c.SharedLogBytes = 64 << 20 })
			})
		}
	}
}

func reportRounds(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(0, "ns/op")
}

func commitRounds(b *testing.B, n, filesMax int, change ...func(*Config)) {
	s := benchStore(b, Fsync, append(change, func(c *Config) { c.CheckpointInterval = time.Hour })...)
	s.config.SyncFilesMax = filesMax
	if s.sharesLog() {
		haveShared(b, s)
	}
	logs := make([]*Log, n)
	one := records(1, 4000, 1)
	for i := range logs {
		l, err := s.Log(scalePartition(i), DefaultLogConfig())
		if err != nil {
			b.Fatal(err)
		}
		logs[i] = l
		mustAppend(b, l, one)
	}
	s.syncer.flush()
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		for _, l := range logs {
			mustAppend(b, l, one)
		}
		for _, l := range logs {
			for l.Offsets().Durable < l.Offsets().End {
				s.syncer.await(false)
			}
		}
		took = append(took, time.Since(began))
	}
	if rounds := s.stats.SharedRounds.Load(); s.sharesLog() {
		b.ReportMetric(float64(rounds)/float64(len(took)), "shared/op")
	}
	reportRounds(b, took)
}
