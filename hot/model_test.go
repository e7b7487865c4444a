package hot

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"net"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// timed is a record of the model.
type timed struct {
	offset, ts int64
	control    bool
}

func drawBatch(rt *rapid.T, all *[]timed, next int64) batch.Batch {
	if rapid.IntRange(0, 9).Draw(rt, "control") == 0 {
		ts := rapid.Int64Range(0, 1000).Draw(rt, "ts")
		*all = append(*all, timed{next, ts, true})
		return batch.EndTxn(batch.Marker{Type: batch.Commit}, 99, 0, ts)
	}
	o := batch.Options{Codec: batch.Codec(rapid.SampledFrom([]int{0, 0, 2, 4}).Draw(rt, "codec"))}
	b := batch.NewBuilder(o)
	n := rapid.IntRange(1, 6).Draw(rt, "n")
	for i := range n {
		// Runs of ties, disorder, and jumps far into the future.
		ts := rapid.OneOf(rapid.Int64Range(0, 40), rapid.Int64Range(0, 1000)).Draw(rt, "ts")
		if err := b.Append(ts, nil, []byte("some value to take up room"), nil); err != nil {
			rt.Fatal(err)
		}
		*all = append(*all, timed{next + int64(i), ts, false})
	}
	return slices.Clone(b.Bytes())
}

func bruteTime(all []timed, ts, start int64) (timed, bool) {
	for _, r := range all {
		if !r.control && r.offset >= start && r.ts >= ts {
			return r, true
		}
	}
	return timed{}, false
}

func bruteMax(all []timed, start int64) (best timed, ok bool) {
	for _, r := range all {
		if !r.control && r.offset >= start && (!ok || r.ts > best.ts) {
			best, ok = r, true
		}
	}
	return best, ok
}

func TestTimeLookupsEqualBruteForceInAnyOrderOfTimestamps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		mem := vfs.NewMem(1)
		s := openStore(t, mem, "data")
		defer s.Abandon()
		l := openLog(t, s, func(c *LogConfig) {
			c.SegmentBytes = rapid.Int64Range(600, 4000).Draw(rt, "segment")
			c.IndexIntervalBytes = rapid.Int64Range(0, 600).Draw(rt, "interval")
			c.RetentionMillis = -1
		})
		var all []timed
		check := func() {
			start := l.Offsets().LogStart
			for ts := int64(-1); ts <= 1001; ts += 7 {
				got, ok, err := l.OffsetForTime(ts)
				if err != nil {
					rt.Fatal(err)
				}
				want, wok := bruteTime(all, ts, start)
				if ok != wok || ok && (got.Offset != want.offset || got.Timestamp != want.ts) {
					rt.Fatalf("time %d from %d: got %+v %v, want %+v %v", ts, start, got, ok, want, wok)
				}
			}
			got, ok, err := l.MaxTimestamp()
			want, wok := bruteMax(all, start)
			if err != nil || ok != wok || ok && (got.Offset != want.offset || got.Timestamp != want.ts) {
				rt.Fatalf("max timestamp: got %+v %v, want %+v %v: %v", got, ok, want, wok, err)
			}
		}
		for range rapid.IntRange(1, 40).Draw(rt, "batches") {
			b := drawBatch(rt, &all, l.Offsets().End)
			mustAppend(t, l, b, func(o *AppendOptions) { o.Origin = Coordinator })
		}
		check()
		end := l.Offsets().End
		waitDurable(t, l, end)
		l.SetHighWatermark(end)
		if err := l.AdvanceLogStart(rapid.Int64Range(0, end).Draw(rt, "start")); err != nil {
			rt.Fatal(err)
		}
		check()
		if _, err := l.Retain(0); err != nil {
			rt.Fatal(err)
		}
		check()
		closeStore(t, s)
		s = openStore(t, mem, "data")
		defer s.Abandon()
		l = openLog(t, s)
		check()
	})
}

func TestReadsGiveWholeBatchesWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := openStore(t, vfs.NewMem(1), "data")
		defer s.Abandon()
		l := openLog(t, s, func(c *LogConfig) {
			c.SegmentBytes = rapid.Int64Range(700, 3000).Draw(rt, "segment")
			c.IndexIntervalBytes = rapid.Int64Range(0, 600).Draw(rt, "interval")
		})
		var all []batch.Batch
		for range rapid.IntRange(1, 30).Draw(rt, "batches") {
			b := records(rapid.IntRange(1, 5).Draw(rt, "n"), rapid.IntRange(0, 40).Draw(rt, "size"), 5)
			mustAppend(t, l, b)
			all = append(all, b)
		}
		end := l.Offsets().End
		for range 30 {
			at := rapid.Int64Range(0, end).Draw(rt, "at")
			upper := rapid.Int64Range(0, end+2).Draw(rt, "upper")
			limit := rapid.IntRange(0, 900).Draw(rt, "limit")
			minOne := rapid.Bool().Draw(rt, "minOne")
			sl, err := l.Read(at, limit, upper, minOne)
			if err != nil {
				rt.Fatal(err)
			}
			got, err := sl.Bytes()
			if err != nil {
				rt.Fatal(err)
			}
			next := sl.NextOffset()
			sl.Release()
			want := expectRead(l, all, at, limit, min(upper, end), minOne)
			if string(got) != string(want) {
				rt.Fatalf("read at %d, limit %d, upper %d, minOne %v: %d bytes, want %d", at, limit, upper, minOne, len(got), len(want))
			}
			if len(got) > 0 && next <= at {
				rt.Fatalf("next offset %d after reading at %d", next, at)
			}
		}
	})
}

// expectRead is Read by brute force: batches from the one that holds at on,
// within one segment.
func expectRead(l *Log, all []batch.Batch, at int64, limit int, upper int64, minOne bool) (out []byte) {
	segs := l.list()
	stop := int64(math.MaxInt64)
	for i := holding(segs, at); i+1 < len(segs); {
		stop = segs[i+1].base
		break
	}
	for _, b := range all {
		if b.LastOffset() < at {
			continue
		}
		if b.LastOffset() >= upper || b.BaseOffset() >= stop {
			break
		}
		if len(out)+len(b) > limit && !(minOne && len(out) == 0) {
			break
		}
		out = append(out, b...)
		if len(out) > limit {
			break
		}
	}
	return out
}

func TestReadOutsideTheLogIsOutOfRange(t *testing.T) {
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s)
	mustAppend(t, l, records(10, 10, 1))
	waitDurable(t, l, 10)
	l.SetHighWatermark(10)
	if err := l.AdvanceLogStart(4); err != nil {
		t.Fatal(err)
	}
	for _, at := range []int64{-1, 3, 11} {
		if _, err := l.Read(at, 100, 10, true); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("read at %d: %v", at, err)
		}
	}
	sl, err := l.Read(10, 100, 20, true)
	if err != nil || sl.Len() != 0 {
		t.Errorf("read at the end: %d bytes, %v", sl.Len(), err)
	}
	if sl, err = l.Read(4, 1000, 10, true); err != nil || sl.StartOffset() != 0 {
		t.Errorf("read inside a batch: %v", err)
	}
	sl.Release()
}

// serveSlice reads the whole log over a real TCP connection.
func TestSliceGoesToASocketWithoutMovingTheFilePosition(t *testing.T) {
	s := openStore(t, vfs.OS(), t.TempDir())
	l := openLog(t, s)
	var want []byte
	for range 20 {
		b := records(10, 10_000, 1)
		mustAppend(t, l, b)
		want = append(want, b...)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan error, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			var sl *Slice
			if sl, err = l.Read(0, 1<<30, 1<<60, true); err == nil {
				for range 2 {
					if _, err = sl.WriteTo(c); err != nil {
						break
					}
				}
				sl.Release()
			}
			c.Close()
		}
		done <- err
	}()
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || string(got) != string(want)+string(want) {
		t.Fatalf("%d bytes, want twice %d: %v", len(got), len(want), err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestSliceOutlivesItsSegment(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{"mem": vfs.NewMem(1), "os": vfs.OS()} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, fsys, t.TempDir())
			l := openLog(t, s, func(c *LogConfig) { c.FileDeleteDelay = 0; c.RetentionMillis = 1 })
			b := records(10, 100, 1)
			mustAppend(t, l, b)
			waitDurable(t, l, 10)
			l.SetHighWatermark(10)
			sl, err := l.Read(0, 1<<20, 10, true)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := l.Retain(1 << 40); err != nil || r.Segments != 1 || !r.LogStartMoved {
				t.Fatalf("retain: %+v %v", r, err)
			}
			eventually(t, func() bool {
				entries, err := fsys.ReadDir(l.Dir())
				return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
					return e.Name() == offsetName(0, logExt)+deletedExt
				})
			})
			got, err := sl.Bytes()
			if err != nil || string(got) != string(b) {
				t.Fatalf("slice of a deleted segment: %d bytes, %v", len(got), err)
			}
			sl.Release()
			if _, err := l.Read(0, 1, 10, true); !errors.Is(err, ErrOffsetOutOfRange) {
				t.Fatalf("read of deleted records: %v", err)
			}
			closeStore(t, s)
		})
	}
}

func TestSecondStoreOnADirectoryIsRefused(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	if _, err := Open(DefaultConfig("data"), Deps{FS: mem}); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("second open: %v", err)
	}
	closeStore(t, s)
	closeStore(t, openStore(t, mem, "data"))
}

func TestDeletedPartitionIsGoneAndCanComeBackEmpty(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	mustAppend(t, l, records(3, 10, 1))
	if err := s.Delete(testPartition); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(records(1, 1, 1), AppendOptions{}); !errors.Is(err, ErrClosed) {
		t.Fatalf("append to a deleted log: %v", err)
	}
	if n := len(s.Partitions()); n != 0 {
		t.Fatalf("%d partitions", n)
	}
	l = openLog(t, s)
	if o := l.Offsets(); o.End != 0 {
		t.Fatalf("a new log starts at %d", o.End)
	}
	mustAppend(t, l, records(2, 10, 1))
	closeStore(t, s)
	s = openStore(t, mem, "data")
	if o := openLog(t, s).Offsets(); o.End != 2 {
		t.Fatalf("end %d", o.End)
	}
}

func TestLongTopicNamesSurvive(t *testing.T) {
	mem := vfs.NewMem(1)
	p := testPartition
	for len(p.Topic) < 249 {
		p.Topic += "x-1."[:min(4, 249-len(p.Topic))]
	}
	s := openStore(t, mem, "data")
	l, err := s.Log(p, DefaultLogConfig())
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, records(2, 10, 1))
	closeStore(t, s)
	s = openStore(t, mem, "data")
	if got := s.Partitions(); len(got) != 1 || got[0] != p {
		t.Fatalf("partitions %v", got)
	}
}

func TestDirectoryNamesRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := testPartition
		p.Topic = rapid.StringMatching(`[a-zA-Z0-9._-]{1,200}`).Filter(func(s string) bool { return s != "." && s != ".." }).Draw(rt, "topic")
		p.Index = rapid.Int32Range(0, math.MaxInt32).Draw(rt, "index")
		for i := range p.ID {
			p.ID[i] = rapid.Byte().Draw(rt, "id")
		}
		got, cut, ok := parsePartitionDirName(partitionDirName(p))
		if !ok || cut || got != p {
			rt.Fatalf("%q: %+v %v %v", partitionDirName(p), got, cut, ok)
		}
	})
}

func TestCloseIsIdempotentAndAppendsFailAfterwards(t *testing.T) {
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s)
	mustAppend(t, l, records(3, 10, 1))
	closeStore(t, s)
	closeStore(t, s)
	if _, err := l.Append(records(1, 1, 1), AppendOptions{}); !errors.Is(err, ErrClosed) {
		t.Fatalf("append after close: %v", err)
	}
	if _, err := s.Log(testPartition, DefaultLogConfig()); !errors.Is(err, ErrClosed) {
		t.Fatalf("log after close: %v", err)
	}
}
