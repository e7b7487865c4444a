package hot

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

func compacted(c *LogConfig) {
	c.Compact, c.Delete, c.MinCleanableDirtyRatio = true, false, 0
	c.SegmentBytes, c.IndexIntervalBytes, c.FileDeleteDelay = 2000, 200, 0
	c.DeleteRetentionMillis = 1000
}

// keyed is a batch of key/value pairs; an empty value is a tombstone.
func keyed(ts int64, o batch.Options, kv ...string) batch.Batch {
	b := batch.NewBuilder(o)
	for i := 0; i < len(kv); i += 2 {
		var v []byte
		if kv[i+1] != "" {
			v = []byte(kv[i+1])
		}
		if err := b.Append(ts, []byte(kv[i]), v, nil); err != nil {
			panic(err)
		}
	}
	return slices.Clone(b.Bytes())
}

// settle makes everything appended so far cleanable.
func settle(t testing.TB, s *Store, l *Log) {
	t.Helper()
	if err := l.Roll(0); err != nil {
		t.Fatal(err)
	}
	waitDurable(t, l, l.Offsets().End)
	l.SetHighWatermark(l.Offsets().End)
	if err := s.checkpoint([]*Log{l}, false); err != nil {
		t.Fatal(err)
	}
}

func mustCompact(t testing.TB, l *Log, now int64) Compacted {
	t.Helper()
	r, err := l.Compact(context.Background(), now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// view is the log as "offset:key=value" strings.
func view(t testing.TB, l *Log) (out []string) {
	t.Helper()
	for _, b := range readAll(t, l, 1<<20) {
		if b.Control() {
			if b.Count() > 0 {
				out = append(out, fmt.Sprintf("%d:marker", b.BaseOffset()))
			}
			continue
		}
		for r, err := range b.Records(batch.Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%d:%s=%s", r.Offset, r.Key, r.Value))
		}
	}
	return out
}

func expectView(t testing.TB, l *Log, want ...string) {
	t.Helper()
	if got := view(t, l); !slices.Equal(got, want) {
		t.Fatalf("log is %v, want %v", got, want)
	}
}

func compactedLog(t *testing.T, change ...func(*LogConfig)) (*Store, *Log) {
	s := openStore(t, vfs.NewMem(1), "data")
	return s, openLog(t, s, append([]func(*LogConfig){compacted}, change...)...)
}

func TestCompactionKeepsTheLastRecordOfEachKeyAtItsOffset(t *testing.T) {
	s, l := compactedLog(t)
	mustAppend(t, l, keyed(1, batch.Options{}, "a", "1", "b", "1", "a", "2"))
	mustAppend(t, l, keyed(1, batch.Options{}, "c", "1", "b", "2"))
	settle(t, s, l)
	mustAppend(t, l, keyed(1, batch.Options{}, "a", "3"))
	r := mustCompact(t, l, 10)
	expectView(t, l, "2:a=2", "3:c=1", "4:b=2", "5:a=3")
	if !r.Ran || r.Records != 2 || r.CleanedTo != 5 {
		t.Fatalf("%+v", r)
	}
	if r := mustCompact(t, l, 10); r.Ran {
		t.Fatalf("ran again with nothing dirty: %+v", r)
	}
	settle(t, s, l)
	mustCompact(t, l, 10)
	expectView(t, l, "3:c=1", "4:b=2", "5:a=3")
	if o := l.Offsets(); o.LocalStart != 0 || o.End != 6 {
		t.Fatalf("offsets %+v", o)
	}
}

func TestTombstonesStayForDeleteRetentionFromTheFirstCleaning(t *testing.T) {
	s, l := compactedLog(t)
	mustAppend(t, l, keyed(1, batch.Options{}, "a", "1", "b", "1"))
	mustAppend(t, l, keyed(1, batch.Options{}, "a", ""))
	settle(t, s, l)
	mustCompact(t, l, 100)
	expectView(t, l, "1:b=1", "2:a=")
	again := func(now int64, want ...string) {
		t.Helper()
		n := l.Offsets().End
		mustAppend(t, l, keyed(1, batch.Options{}, "x", "1"))
		settle(t, s, l)
		mustCompact(t, l, now)
		expectView(t, l, append(want, fmt.Sprintf("%d:x=1", n))...)
	}
	again(1099, "1:b=1", "2:a=")
	again(1100, "1:b=1")
}

func TestCompactionRespectsLagRatioAndTheLastStableOffset(t *testing.T) {
	s, l := compactedLog(t, func(c *LogConfig) { c.MinCompactionLagMillis = 50 })
	mustAppend(t, l, keyed(100, batch.Options{}, "a", "1", "a", "2"))
	settle(t, s, l)
	if r := mustCompact(t, l, 149); r.Ran {
		t.Fatal("cleaned a record younger than min.compaction.lag.ms")
	}
	if r := mustCompact(t, l, 150); !r.Ran {
		t.Fatal("did not clean an old record")
	}
	c := l.Config()
	c.MinCompactionLagMillis, c.MinCleanableDirtyRatio, c.MaxCompactionLagMillis = 0, 0.9, 1000
	l.SetConfig(c)
	mustAppend(t, l, keyed(200, batch.Options{}, "a", "3"))
	settle(t, s, l)
	if r := mustCompact(t, l, 1200); r.Ran {
		t.Fatal("cleaned below min.cleanable.dirty.ratio")
	}
	if r := mustCompact(t, l, 1201); !r.Ran {
		t.Fatal("did not clean beyond max.compaction.lag.ms")
	}
	c.MinCleanableDirtyRatio, c.MaxCompactionLagMillis = 0, math.MaxInt64
	l.SetConfig(c)
	mustAppend(t, l, produced(4, 0, 0, 2, true), func(o *AppendOptions) { o.TxnVerified = true })
	settle(t, s, l)
	if r := mustCompact(t, l, 2000); r.Ran {
		t.Fatal("cleaned past an open transaction")
	}
}

func TestAbortedDataGoesAndMarkersOutliveIt(t *testing.T) {
	s, l := compactedLog(t)
	coord := func(o *AppendOptions) { o.Origin = Coordinator }
	verified := func(o *AppendOptions) { o.TxnVerified = true }
	txn := func(id int64, seq int32, kv ...string) {
		mustAppend(t, l, keyed(1, batch.Options{Transactional: true, Producer: &batch.Producer{ID: id, Sequence: seq}}, kv...), verified)
	}
	mustAppend(t, l, keyed(1, batch.Options{}, "a", "old"))                          // 0
	txn(1, 0, "a", "aborted")                                                        // 1
	txn(2, 0, "b", "committed")                                                      // 2
	mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Abort}, 1, 0, 1), coord)  // 3
	mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Commit}, 2, 0, 1), coord) // 4
	txn(1, 1, "c", "1")                                                              // 5
	mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Commit}, 1, 0, 1), coord) // 6
	settle(t, s, l)
	mustCompact(t, l, 100)
	// An aborted write does not shadow the value before it.
	expectView(t, l, "0:a=old", "2:b=committed", "3:marker", "4:marker", "5:c=1", "6:marker")
	aborted, err := l.AbortedTxns(0, 7)
	if err != nil || len(aborted) != 1 || aborted[0].FirstOffset != 1 {
		t.Fatalf("aborted %+v %v", aborted, err)
	}
	more := func(now int64) {
		t.Helper()
		mustAppend(t, l, keyed(1, batch.Options{}, "x", fmt.Sprint(now)))
		settle(t, s, l)
		mustCompact(t, l, now)
	}
	more(200) // the abort marker's data is gone by now: its horizon is set
	more(1200)
	expectView(t, l, "0:a=old", "2:b=committed", "4:marker", "5:c=1", "6:marker", "8:x=1200")
	ps, err := l.Producers()
	if err != nil || len(ps) != 2 || ps[0].LastSequence != 1 {
		t.Fatalf("producers %+v %v", ps, err)
	}
}

func TestCompactionContinuesWhereTheBufferWasFull(t *testing.T) {
	s, l := compactedLog(t, func(c *LogConfig) { c.CompactionBufferBytes = 1; c.SegmentBytes = 100_000 })
	for round := range 2 {
		for i := range 1500 {
			mustAppend(t, l, keyed(1, batch.Options{}, fmt.Sprintf("key%d", i), fmt.Sprint(round)))
		}
	}
	settle(t, s, l)
	for n := 0; ; n++ {
		r := mustCompact(t, l, 10)
		if !r.Ran {
			if n < 3 {
				t.Fatalf("done after %d runs: the buffer was not bounded", n)
			}
			break
		}
	}
	if got := view(t, l); len(got) != 1500 {
		t.Fatalf("%d records are left, want 1500", len(got))
	}
}

func TestReadersKeepTheirSegmentWhileItIsCompacted(t *testing.T) {
	s, l := compactedLog(t)
	mustAppend(t, l, keyed(1, batch.Options{}, "a", "1", "a", "2"))
	settle(t, s, l)
	sl, err := l.Read(0, 1<<20, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	defer sl.Release()
	want, _ := sl.Bytes()
	sealed, err := l.Sealed(0, 2)
	if err != nil || len(sealed) != 1 {
		t.Fatal(err)
	}
	mustCompact(t, l, 10)
	if got, err := sl.Bytes(); err != nil || string(got) != string(want) {
		t.Fatalf("slice changed: %v", err)
	}
	if _, err := sealed[0].Open(); !errors.Is(err, ErrSegmentGone) {
		t.Fatalf("open of a replaced segment: %v", err)
	}
	expectView(t, l, "1:a=2")
}

// TestCompactedLogsHaveTheSameLatestValues compares random histories with a
// map, over restarts.
func TestCompactedLogsHaveTheSameLatestValues(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		mem := vfs.NewMem(1)
		s := openStore(t, mem, "data")
		change := func(c *LogConfig) {
			compacted(c)
			c.SegmentBytes = rapid.Int64Range(300, 3000).Draw(rt, "segment")
			c.DeleteRetentionMillis = 1 << 40
		}
		var lc LogConfig
		l := openLog(t, s, func(c *LogConfig) { change(c); lc = *c })
		latest := map[string]string{}
		now := int64(1)
		for range rapid.IntRange(1, 60).Draw(rt, "ops") {
			now++
			switch rapid.IntRange(0, 9).Draw(rt, "op") {
			default:
				var kv []string
				for range rapid.IntRange(1, 4).Draw(rt, "n") {
					k := fmt.Sprint(rapid.IntRange(0, 9).Draw(rt, "key"))
					v := rapid.SampledFrom([]string{"", "x", "yy", "a longer value"}).Draw(rt, "value")
					kv = append(kv, k, v)
					latest[k] = v
				}
				codec := batch.Codec(rapid.SampledFrom([]int{0, 1, 2, 3, 4}).Draw(rt, "codec"))
				mustAppend(t, l, keyed(now, batch.Options{Codec: codec}, kv...))
			case 7:
				settle(t, s, l)
			case 8:
				mustCompact(t, l, now)
			case 9:
				closeStore(t, s)
				s = openStore(t, mem, "data")
				l = openLog(t, s, func(c *LogConfig) { *c = lc })
			}
		}
		settle(t, s, l)
		mustCompact(t, l, now)
		got := map[string]string{}
		prev := int64(-1)
		for _, b := range readAll(t, l, 1<<20) {
			for r, err := range b.Records(batch.Limits{}) {
				if err != nil {
					rt.Fatal(err)
				}
				if r.Offset <= prev {
					rt.Fatalf("offset %d after %d", r.Offset, prev)
				}
				prev = r.Offset
				if _, twice := got[string(r.Key)]; twice {
					rt.Fatalf("key %s is there twice", r.Key)
				}
				got[string(r.Key)] = string(r.Value)
			}
		}
		for k, v := range latest {
			if got[k] != v {
				rt.Fatalf("key %s is %q, want %q", k, got[k], v)
			}
		}
		s.Abandon()
	})
}

// TestBatchLargerThanTheDedupeBufferIsCompactedAllTheSame: one dirty batch
// with more keys than the buffer holds used to end every run before it did
// anything, for ever and without a word.
func TestBatchLargerThanTheDedupeBufferIsCompactedAllTheSame(t *testing.T) {
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s, func(c *LogConfig) {
		c.Compact, c.CompactionBufferBytes, c.MinCleanableDirtyRatio = true, 1, 0
	})
	for n := range 2 {
		b := batch.NewBuilder(batch.Options{})
		for i := range 3 * keySlotsFirst {
			if err := b.Append(int64(i), fmt.Appendf(nil, "key-%d-%d", n, i), []byte("v"), nil); err != nil {
				t.Fatal(err)
			}
		}
		mustAppend(t, l, b.Bytes())
	}
	if err := l.Roll(1000); err != nil {
		t.Fatal(err)
	}
	waitDurable(t, l, l.Offsets().End)
	l.SetHighWatermark(l.Offsets().End)
	eventually(t, func() bool { return l.list()[0].is(segTrusted) })
	if err := s.checkpoint([]*Log{l}, false); err != nil {
		t.Fatal(err)
	}
	var to int64
	for range 2 {
		r, err := l.Compact(context.Background(), 2000)
		if err != nil || !r.Ran {
			t.Fatalf("%+v, %v", r, err)
		}
		to = r.CleanedTo
	}
	if to != l.Offsets().End {
		t.Fatalf("compact to %d of %d after two runs", to, l.Offsets().End)
	}
	if n := s.Stats().CompactOver.Load(); n == 0 {
		t.Fatal("the stat does not tell")
	}
	seen := map[string]int64{}
	if err := l.eachBatch(func(b batch.Batch) error {
		for r, err := range b.Records(batch.Limits{}) {
			if err != nil {
				return err
			}
			seen[string(r.Key)]++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 6*keySlotsFirst {
		t.Fatalf("%d keys are left of %d", len(seen), 6*keySlotsFirst)
	}
}

// TestConfigurationsOfThePastAreForgotten sets many and looks what is kept.
func TestConfigurationsOfThePastAreForgotten(t *testing.T) {
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s)
	c := DefaultLogConfig()
	for i := range 10 * configsKept {
		c.RetentionMillis = int64(i)
		l.SetConfig(c)
	}
	if n := s.configs.size(); n > configsKept {
		t.Fatalf("%d configurations are kept", n)
	}
	if first, again := s.configs.get(c), s.configs.get(c); l.Config() != c || first != again {
		t.Fatal("equal configurations are not one")
	}
}
