package hot

import (
	"errors"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// agedLog has segments of one batch each, whose records have the given times.
func agedLog(t *testing.T, change func(*LogConfig), times ...int64) (*Store, *Log) {
	t.Helper()
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s, func(c *LogConfig) {
		c.FileDeleteDelay, c.RetentionMillis = 0, -1
		change(c)
	})
	for i, ts := range times {
		if i > 0 {
			if err := l.Roll(0); err != nil {
				t.Fatal(err)
			}
		}
		mustAppend(t, l, records(1, 100, ts))
	}
	end := l.Offsets().End
	waitDurable(t, l, end)
	l.SetHighWatermark(end)
	s.finishSealed()
	return s, l
}

func mustRetain(t *testing.T, l *Log, now int64) Retained {
	t.Helper()
	r, err := l.Retain(now)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestRetentionByTimeGoesByTheRecordsOwnTime(t *testing.T) {
	_, l := agedLog(t, func(c *LogConfig) { c.RetentionMillis = 100 }, 1000, 1010, 5000, 1020)
	if r := mustRetain(t, l, 1110); r.Segments != 1 || l.Offsets().LogStart != 1 {
		t.Fatalf("%+v, offsets %+v", r, l.Offsets())
	}
	// A later segment keeps what follows, however old that is.
	if r := mustRetain(t, l, 2000); r.Segments != 1 || l.Offsets().LogStart != 2 {
		t.Fatalf("%+v, offsets %+v", r, l.Offsets())
	}
	// Everything is due: the active segment goes too, the end stays.
	if r := mustRetain(t, l, 9000); r.Segments != 2 || l.Offsets().LogStart != 4 || l.Offsets().End != 4 {
		t.Fatalf("%+v, offsets %+v", r, l.Offsets())
	}
	mustAppend(t, l, records(1, 1, 9000))
	if o := l.Offsets(); o.LogStart != 4 || o.End != 5 {
		t.Fatalf("offsets %+v", o)
	}
}

func TestRetentionBySizeKeepsAtLeastTheBytesAskedFor(t *testing.T) {
	_, l := agedLog(t, func(*LogConfig) {}, 1, 2, 3, 4)
	size, err := l.SizeBytes()
	if err != nil {
		t.Fatal(err)
	}
	one := size / 4
	c := l.Config()
	c.RetentionBytes = 2*one + 1
	l.SetConfig(c)
	if r := mustRetain(t, l, 10); r.Segments != 1 {
		t.Fatalf("%+v: three segments are needed for two and a byte", r)
	}
	c.RetentionBytes = 2 * one
	l.SetConfig(c)
	if r := mustRetain(t, l, 10); r.Segments != 1 || l.Offsets().LogStart != 2 {
		t.Fatalf("%+v", r)
	}
}

func TestNothingAboveTheHighWatermarkIsDeleted(t *testing.T) {
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s, func(c *LogConfig) { c.RetentionMillis = 1 })
	for range 3 {
		mustAppend(t, l, records(1, 10, 1))
		if err := l.Roll(0); err != nil {
			t.Fatal(err)
		}
	}
	l.SetHighWatermark(2)
	if r := mustRetain(t, l, 1<<40); r.Segments != 2 {
		t.Fatalf("%+v", r)
	}
}

func TestOffloadedLogDeletesOnlyBelowTheCommittedRemoteEnd(t *testing.T) {
	tiered := func(c *LogConfig) {
		c.Tiered, c.RetentionMillis, c.LocalRetentionMillis = true, 1_000_000, 100
	}
	_, l := agedLog(t, tiered, 1000, 1010, 1020, 1030)
	if r := mustRetain(t, l, 500_000); r.Segments != 0 {
		t.Fatalf("%+v: deleted with no remote end known", r)
	}
	l.SetRemoteEnd(2)
	if r := mustRetain(t, l, 500_000); r.Segments != 2 || r.LogStartMoved {
		t.Fatalf("%+v", r)
	}
	if o := l.Offsets(); o.LogStart != 0 || o.LocalStart != 2 {
		t.Fatalf("offsets %+v", o)
	}
	// Total retention does not touch what is not uploaded either.
	if r := mustRetain(t, l, 1<<40); r.Segments != 0 {
		t.Fatalf("%+v", r)
	}
	if _, err := l.Read(1, 10, 4, true); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Fatalf("read below the local start: %v", err)
	}
	l.SetRemoteEnd(1)
	if l.RemoteEnd() != 2 {
		t.Fatal("the remote end went back")
	}
}

func TestOffloadedLogSealsAnActiveSegmentWhoseLocalTimeIsUp(t *testing.T) {
	tiered := func(c *LogConfig) {
		c.Tiered, c.RetentionMillis, c.LocalRetentionMillis = true, 1_000_000, 100
	}
	_, l := agedLog(t, tiered, 1000, 1010)
	segments := func() int {
		list, err := l.Segments()
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if mustRetain(t, l, 5000); segments() != 2 {
		t.Fatal("sealed the active segment while an earlier one waits for the bucket")
	}
	l.SetRemoteEnd(1)
	if r := mustRetain(t, l, 1100); r.Segments != 0 || segments() != 2 {
		t.Fatalf("sealed before its time: %+v", r)
	}
	if r := mustRetain(t, l, 1111); r.Segments != 1 || l.Active().BaseOffset != 2 {
		t.Fatalf("%+v: the active segment starts at %d, want a new one at 2", r, l.Active().BaseOffset)
	}
	l.SetRemoteEnd(2)
	if r := mustRetain(t, l, 1111); r.Segments != 1 || l.Offsets().LocalStart != 2 || r.LogStartMoved {
		t.Fatalf("%+v, offsets %+v", r, l.Offsets())
	}
}

func TestTieredLogKeepsItsLogStartOverRestart(t *testing.T) {
	mem := vfs.NewMem(1)
	tiered := func(c *LogConfig) { c.Tiered, c.LocalRetentionMillis, c.FileDeleteDelay = true, 1, 0 }
	for _, clean := range []bool{true, false} {
		s := openStore(t, mem, "data")
		l := openLog(t, s, tiered)
		for range 3 {
			mustAppend(t, l, records(1, 10, 1))
			if err := l.Roll(0); err != nil {
				t.Fatal(err)
			}
		}
		end := l.Offsets().End
		waitDurable(t, l, end)
		l.SetHighWatermark(end)
		l.SetRemoteEnd(end)
		if err := l.AdvanceLogStart(1); err != nil {
			t.Fatal(err)
		}
		mustRetain(t, l, 1<<40)
		want := l.Offsets()
		if want.LogStart != 1 || want.LocalStart < 2 {
			t.Fatalf("offsets %+v", want)
		}
		if clean {
			closeStore(t, s)
		} else {
			s.Abandon()
		}
		s = openStore(t, mem, "data")
		l = openLog(t, s, tiered)
		waitDurable(t, l, want.End)
		if got := l.Offsets(); got != want {
			t.Fatalf("clean %v: offsets %+v, want %+v", clean, got, want)
		}
		if l.RemoteEnd() != -1 {
			t.Fatal("the remote end is a guess after a restart")
		}
		closeStore(t, s)
	}
}

func TestCopyDisabledMakesTotalRetentionLocalAndMovesTheLogStart(t *testing.T) {
	_, l := agedLog(t, func(c *LogConfig) {
		c.Tiered, c.CopyDisabled, c.RetentionMillis = true, true, 100
	}, 1000, 1010, 1020)
	if r := mustRetain(t, l, 1115); r.Segments != 2 || !r.LogStartMoved || l.Offsets().LogStart != 2 {
		t.Fatalf("%+v, offsets %+v", r, l.Offsets())
	}
}

func TestSegmentsBelowTheLogStartGoOnEveryPolicy(t *testing.T) {
	for _, compact := range []bool{false, true} {
		_, l := agedLog(t, func(c *LogConfig) { c.Compact, c.Delete = compact, !compact }, 1000, 1010, 1020)
		if err := l.AdvanceLogStart(2); err != nil {
			t.Fatal(err)
		}
		if err := l.AdvanceLogStart(1); err != nil || l.Offsets().LogStart != 2 {
			t.Fatal("the log start went back")
		}
		if r := mustRetain(t, l, 0); r.Segments != 2 {
			t.Fatalf("compact %v: %+v", compact, r)
		}
	}
	_, l := agedLog(t, func(*LogConfig) {}, 1)
	if err := l.AdvanceLogStart(2); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Fatalf("log start beyond the high watermark: %v", err)
	}
}

func TestSegmentsRollByKafkasRules(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*LogConfig)
		times  []int64
		now    []int64
		want   int
	}{
		"time between records":               {func(c *LogConfig) { c.SegmentMillis = 100 }, []int64{1000, 1100, 1101, 1150}, nil, 2},
		"back-filled records do not roll":    {func(c *LogConfig) { c.SegmentMillis = 100 }, []int64{1000, 900, 10, 1000}, nil, 1},
		"wall clock does not count":          {func(c *LogConfig) { c.SegmentMillis = 100 }, []int64{1000, 1001, 1002}, []int64{0, 5000, 90000}, 1},
		"without timestamps it does":         {func(c *LogConfig) { c.SegmentMillis = 100 }, []int64{-1, -1, -1}, []int64{1 << 45, 1<<45 + 50, 1<<45 + 151}, 2},
		"size":                               {func(c *LogConfig) { c.SegmentBytes = 500 }, []int64{1, 1, 1, 1, 1}, nil, 3},
		"a full index":                       {func(c *LogConfig) { c.SegmentIndexBytes, c.IndexIntervalBytes = 4*indexEntrySize, 0 }, []int64{1, 1, 1, 1, 1, 1, 1, 1, 1}, nil, 3},
		"compaction lag shortens segment.ms": {func(c *LogConfig) { c.Compact, c.MaxCompactionLagMillis = true, 50 }, []int64{1000, 1051}, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t, vfs.NewMem(1), "data")
			l := openLog(t, s, c.change)
			for i, ts := range c.times {
				mustAppend(t, l, records(1, 100, ts), func(o *AppendOptions) {
					if c.now != nil {
						o.Now = c.now[i]
					}
				})
			}
			if got := len(l.list()); got != c.want {
				t.Fatalf("%d segments, want %d", got, c.want)
			}
		})
	}
}

func TestOffsetsBeyond32BitsStartANewSegment(t *testing.T) {
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s)
	b := records(1, 5, 1)
	for _, at := range []int64{3 << 32, 3<<32 + 1, 5 << 32} {
		b.SetBaseOffset(at)
		if _, err := l.Append(b, AppendOptions{Origin: Follower}); err != nil {
			t.Fatal(err)
		}
		sl, err := l.Read(at, 100, at+1, true)
		if err != nil || sl.StartOffset() != at {
			t.Fatalf("read at %d: %v", at, err)
		}
		sl.Release()
	}
	waitDurable(t, l, 5<<32+1)
	closeStore(t, s)
}

func TestJitterRollsEarlierButNeverLater(t *testing.T) {
	c := DefaultLogConfig()
	c.SegmentMillis, c.SegmentJitterMillis = 1000, 300
	for range 100 {
		if j := newJitter(&c); j < 0 || j >= 300 {
			t.Fatalf("jitter %d", j)
		}
	}
}

// TestDeletedSegmentsThatComeBackDoNotCount undoes renames of a retention run
// one by one, as power loss may.
func TestDeletedSegmentsThatComeBackDoNotCount(t *testing.T) {
	for _, tiered := range []bool{false, true} {
		mem := vfs.NewMem(1)
		change := func(c *LogConfig) {
			c.RetentionMillis, c.LocalRetentionMillis, c.FileDeleteDelay = 1, 1, 1<<40
			c.Tiered = tiered
		}
		s := openStore(t, mem, "data")
		l := openLog(t, s, change)
		for range 5 {
			mustAppend(t, l, records(2, 10, 1))
			if err := l.Roll(0); err != nil {
				t.Fatal(err)
			}
		}
		mustAppend(t, l, records(2, 10, 1<<41))
		waitDurable(t, l, 12)
		l.SetHighWatermark(12)
		l.SetRemoteEnd(10)
		if r := mustRetain(t, l, 1<<41); r.Segments != 5 {
			t.Fatalf("%+v", r)
		}
		want := l.Offsets()
		for _, base := range []int64{0, 4} { // 2, 6 and 8 stay away
			path := l.path(base, logExt)
			if err := mem.Rename(path+deletedExt, path); err != nil {
				t.Fatal(err)
			}
		}
		s.Abandon()
		s = openStore(t, mem, "data")
		l = openLog(t, s, change)
		if got := l.Offsets(); got.LogStart != want.LogStart || got.LocalStart != 10 || got.End != 12 {
			t.Fatalf("tiered %v: offsets %+v, were %+v", tiered, got, want)
		}
		checkDense(t, readAll(t, l, 1<<20), 10, 12)
		s.Abandon()
	}
}

// TestLogStartNeverGoesBackWhenTheTailIsLost loses the only segment above the
// log start: the offsets below were acknowledged and stay used.
func TestLogStartNeverGoesBackWhenTheTailIsLost(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s, func(c *LogConfig) { c.RetentionMillis, c.FileDeleteDelay = 1, 1<<40 })
	if err := l.AssignEpoch(3); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, records(20, 10, 1))
	waitDurable(t, l, 20)
	l.SetHighWatermark(20)
	if err := l.Roll(0); err != nil {
		t.Fatal(err)
	}
	if err := l.AdvanceLogStart(20); err != nil {
		t.Fatal(err)
	}
	mustRetain(t, l, 0)
	if err := mem.Remove(l.path(20, logExt)); err != nil {
		t.Fatal(err)
	}
	if err := mem.Rename(l.path(0, logExt)+deletedExt, l.path(0, logExt)); err != nil {
		t.Fatal(err)
	}
	s.Abandon()
	for range 2 {
		s = openStore(t, mem, "data")
		l = openLog(t, s)
		if o := l.Offsets(); o != (Offsets{20, 20, 20, 20}) || l.Err() != nil {
			t.Fatalf("offsets %+v, err %v", o, l.Err())
		}
		if l.LatestEpoch() != 3 {
			t.Fatalf("epoch %d", l.LatestEpoch())
		}
		s.Abandon()
	}
	s = openStore(t, mem, "data")
	l = openLog(t, s)
	if a := mustAppend(t, l, records(1, 1, 1)); a.BaseOffset != 20 {
		t.Fatalf("went on at %d", a.BaseOffset)
	}
}

// A read that has looked at the bounds just before retention took the segment
// must not be answered with what comes after it.
func TestReadDoesNotSkipWhatRetentionHasJustTaken(t *testing.T) {
	_, l := agedLog(t, func(*LogConfig) {}, 1000, 1010, 1020, 1030)
	l.appendMu.Lock()
	keep := append([]*segment(nil), l.list()[2:]...)
	l.segments.Store(&keep) // the other half, LocalStart, was read before
	l.appendMu.Unlock()
	s, err := l.Read(0, 1<<20, l.Offsets().End, true)
	if err == nil {
		start := s.StartOffset()
		s.Release()
		t.Fatalf("a read of offset 0 gives batches from %d on", start)
	}
	if !errors.Is(err, ErrSegmentGone) {
		t.Fatal(err)
	}
}
