package tier

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/varvelog/varve/integration/fuzztest"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

func TestBackoffDoublesWithinItsBoundsAndJitters(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var b backoff
	seen := map[int64]bool{}
	for i := range 40 {
		b.fail(1000, rng)
		base := int64(backoffMaxMillis)
		if i < 6 {
			base = backoffMinMillis << i
		}
		wait := b.until - 1000
		if float64(wait) < float64(base)*0.8-1 || float64(wait) > float64(base)*1.2+1 {
			t.Errorf("failure %d waits %d ms, want %d ± 20 %%", i+1, wait, base)
		}
		seen[wait] = true
	}
	if len(seen) < 30 {
		t.Errorf("%d different waits of 40: no jitter", len(seen))
	}
	if b.resting(1_000_000) || !b.resting(1001) {
		t.Error("rest does not end when it is due")
	}
	b.succeed()
	if b.resting(1001) {
		t.Error("rests after a success")
	}
}

func TestBucketPassesItsRateOverTime(t *testing.T) {
	b := newBucket(1_000_000)
	now, sent := int64(1), int64(0)
	for now < 60_000 {
		wait := b.take(100_000, now)
		now += wait
		sent += 100_000
		if wait == 0 {
			now++
		}
	}
	if rate := float64(sent) / 60; rate < 990_000 || rate > 1_020_000 {
		t.Errorf("%.0f bytes/s passed, want 1,000,000", rate)
	}
	if wait := b.take(10_000_000, now); wait < 9_000 || wait > 10_500 {
		t.Errorf("a request larger than the burst waits %d ms, want about 10 s", wait)
	}
	b.setRate(0, now)
	if wait := b.take(1<<40, now); wait != 0 {
		t.Errorf("without a limit %d ms of wait", wait)
	}
}

func TestTimersFireInOrderOfTheirDeadlines(t *testing.T) {
	var ts timers
	rng := rand.New(rand.NewPCG(3, 4))
	all := make([]timer, 200)
	for i := range all {
		ts.set(&all[i], rng.Int64N(1000))
	}
	for i := range all {
		switch rng.IntN(3) {
		case 0:
			ts.set(&all[i], rng.Int64N(1000))
		case 1:
			ts.stop(&all[i])
			ts.stop(&all[i])
		}
	}
	var want []int64
	for i := range all {
		if all[i].index != 0 {
			want = append(want, all[i].due)
		}
	}
	slices.Sort(want)
	if x := ts.pop(want[0] - 1); x != nil {
		t.Errorf("a timer fired %d ms early", x.due-want[0]+1)
	}
	var got []int64
	for x := ts.pop(1000); x != nil; x = ts.pop(1000) {
		got = append(got, x.due)
	}
	if !slices.Equal(got, want) {
		t.Errorf("fired %v, want %v", got, want)
	}
}

func TestSlotsServeWaitersInTurn(t *testing.T) {
	s := newSlots(2)
	a, b, c := &partition{}, &partition{}, &partition{}
	if !s.take(a, 0) || !s.take(a, 1) {
		t.Fatal("free slots are refused")
	}
	for _, p := range []*partition{a, b, c, b} {
		if s.take(p, 0) {
			t.Fatal("more slots than the limit")
		}
	}
	var order []*partition
	for range 4 {
		s.release()
		for p := s.turn(); p != nil; p = s.turn() {
			order = append(order, p)
			if s.take(p, 1) {
				s.take(p, 1) // it has more to do: waits behind the others
			}
		}
	}
	if !slices.Equal(order[:4], []*partition{a, b, c, a}) {
		t.Errorf("served in another order: %v of a=%p b=%p c=%p", order, a, b, c)
	}
	s.forget(a)
	s.forget(b)
	s.forget(c)
	s.release()
	if p := s.turn(); p != nil {
		t.Error("a forgotten partition is served")
	}
}

func seg(base, end, bytes, ts int64) RemoteSegment {
	return RemoteSegment{ID: SegmentID{Base: base}, End: end, RawBytes: bytes, MaxTimestamp: ts}
}

func undated(base, end, ts, created int64) RemoteSegment {
	s := seg(base, end, 100, ts)
	s.Created = created
	return s
}

func TestRetainDecides(t *testing.T) {
	archive := []RemoteSegment{seg(0, 10, 100, 1_000), seg(10, 20, 100, 5_000), seg(20, 30, 100, 2_000)}
	local := []localSegment{{base: 30, end: 40, bytes: 100, maxTimestamp: 6_000}}
	base := retainInput{
		wall: 10_000, millis: -1, bytes: -1, logStart: 0, start: 0, end: 30, rawBytes: 300,
		oldest: archive, oldestComplete: true, local: local, activeBase: 40, activeBytes: 50, stable: 45,
		highWatermark: 45, logEnd: 45,
	}
	for _, x := range []struct {
		name  string
		set   func(*retainInput)
		start int64
		due   int64
		more  bool
	}{
		{"nothing without limits", func(in *retainInput) {}, -1, 0, false},
		{"time takes whole segments", func(in *retainInput) { in.millis = 8_000 }, 10, 13_001, false},
		{"an age equal to the limit stays", func(in *retainInput) { in.millis = 9_000 }, -1, 10_001, false},
		{"an old segment behind a young one stays", func(in *retainInput) { in.millis = 7_000 }, 10, 12_001, false},
		{"time goes on into local segments", func(in *retainInput) { in.millis = 1_000 }, 40, 0, false},
		{"nothing above the stable offset", func(in *retainInput) { in.millis, in.stable = 1_000, 35 }, 30, 0, false},
		{"without timestamps the upload's time counts", func(in *retainInput) {
			in.millis, in.oldest = 3_000, []RemoteSegment{undated(0, 30, -1, 8_000)}
		}, -1, 11_001, false},
		{"without timestamps a segment goes by its upload's time", func(in *retainInput) {
			in.millis, in.oldest = 1_000, []RemoteSegment{undated(0, 30, -1, 8_000)}
		}, 40, 0, false},
		{"control batches alone go with the segment behind them", func(in *retainInput) {
			in.millis, in.oldest = 8_000, []RemoteSegment{
				undated(0, 5, NoTimestamp, 1<<62), undated(5, 10, NoTimestamp, 1<<62), seg(10, 20, 100, 1_000), seg(20, 30, 100, 2_000)}
		}, 20, 10_001, false},
		{"records without timestamps do not go with the segment behind them", func(in *retainInput) {
			in.millis, in.oldest = 3_000, []RemoteSegment{undated(0, 10, -1, 9_000), seg(10, 20, 100, 1_000), seg(20, 30, 100, 2_000)}
		}, -1, 12_001, false},
		{"control batches at the end of the window ask for more", func(in *retainInput) {
			in.millis, in.oldest, in.oldestComplete = 8_000, []RemoteSegment{undated(0, 10, NoTimestamp, 9_000)}, false
		}, -1, 17_001, true},
		{"without timestamps a local segment goes by its last write", func(in *retainInput) {
			in.millis, in.oldest[2].MaxTimestamp = 4_500, 1
			in.oldest[1].MaxTimestamp = 1
			in.local = []localSegment{{base: 30, end: 40, bytes: 100, maxTimestamp: -1, modified: 5_000}}
		}, 40, 0, false},
		{"a timestamp in the far future stays", func(in *retainInput) {
			in.millis, in.oldest = 1, []RemoteSegment{seg(0, 30, 300, 1<<63-2)}
		}, -1, 1<<63 - 1, false},
		{"size is the union", func(in *retainInput) { in.bytes = 350 }, 10, 0, false},
		{"size drops only while the rest reaches the limit", func(in *retainInput) { in.bytes = 351 }, -1, 0, false},
		{"size goes on into local segments", func(in *retainInput) { in.bytes = 60 }, 30, 0, false},
		{"size of zero keeps the active segment", func(in *retainInput) { in.bytes = 0 }, 40, 0, false},
		{"a straddling segment is not counted twice", func(in *retainInput) {
			in.bytes, in.local = 250, []localSegment{{base: 15, end: 40, bytes: 250, maxTimestamp: 6_000}}
		}, 10, 0, false},
		{"an active segment that is in the archive is not counted twice", func(in *retainInput) {
			in.bytes, in.local, in.activeBase, in.activeBytes = 250, nil, 10, 200
		}, -1, 0, false},
		{"what may be truncated is not counted", func(in *retainInput) { in.bytes, in.highWatermark = 300, 35 }, -1, 0, false},
		{"deleted records raise the start", func(in *retainInput) { in.logStart = 15 }, 15, 0, false},
		{"a window that ends early asks for more", func(in *retainInput) {
			in.millis, in.oldest, in.oldestComplete = 1_000, archive[:2], false
		}, 20, 0, true},
		{"an empty archive lets local segments expire", func(in *retainInput) {
			in.millis, in.start, in.end, in.rawBytes, in.oldest = 1_000, -1, -1, 0, nil
		}, 40, 0, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			in := base
			in.oldest = slices.Clone(archive)
			x.set(&in)
			if got := retain(in); got.start != x.start || got.nextDue != x.due || got.more != x.more {
				t.Errorf("got %+v, want start %d, due %d, more %t", got, x.start, x.due, x.more)
			}
		})
	}
}

func TestWatchdogNamesTheOldestProblemAndFollowsProgress(t *testing.T) {
	var w watchdog
	at := func(s int64) instant { return instant{wall: 1_000_000 + s, steady: s} }
	if changed, again := w.check(true, math.MaxInt64, 100, at(0)); changed || again != 100 {
		t.Errorf("changed %t, again %d", changed, again)
	}
	w.fail("upload", "k1", errors.New("x"), at(10))
	w.fail("delete", "k2", errors.New("y"), at(5))
	w.fail("upload", "k3", errors.New("z"), at(20))
	if changed, _ := w.check(true, math.MaxInt64, 100, at(100)); !changed || !w.stuck || w.since != 1_000_000 {
		t.Errorf("not stuck after no progress: %+v", w)
	}
	if pr := w.worst(); pr.Op != "delete" || pr.Key != "k2" {
		t.Errorf("worst is %+v", pr)
	}
	w.succeed("delete")
	if pr := w.worst(); pr.Op != "upload" || pr.Key != "k3" || pr.Count != 2 || pr.Since != 1_000_010 {
		t.Errorf("worst is %+v", pr)
	}
	w.moved(at(150))
	if changed, again := w.check(true, math.MaxInt64, 100, at(150)); !changed || w.stuck || again != 250 {
		t.Errorf("still stuck after progress: %+v, again %d", w, again)
	}
	w.check(false, math.MaxInt64, 100, at(160))
	if changed, again := w.check(true, math.MaxInt64, 100, at(1000)); changed || again != 1100 {
		t.Errorf("idle time counts as lack of progress: changed %t, again %d", changed, again)
	}
}

func TestOrphanCandidatesLeavesAloneWhatMayStillBeCommitted(t *testing.T) {
	cfg := DefaultConfig()
	p := rigPartition(0)
	prefix := cfg.PartitionPrefix(p.ID, p.Index)
	id := func(epoch int32, random uint64) SegmentID { return SegmentID{Base: 5, Epoch: epoch, Random: random} }
	key := func(s SegmentID) string { return prefix + "seg/" + s.name() }
	now := time.UnixMilli(10_000_000)
	old, young := now.Add(-time.Hour), now.Add(-time.Minute)
	listed := []objstore.Object{
		{Key: prefix + "head", Modified: old},
		{Key: prefix + "seg/not-one-of-ours", Modified: old},
		{Key: prefix + "page/" + id(1, 9).name(), Modified: old},
		{Key: key(id(1, 1)), Modified: old},
		{Key: key(id(1, 2)), Modified: young},
		{Key: key(id(1, 3)), Modified: old}, // own
		{Key: key(id(1, 4)), Modified: old}, // known to be named
		{Key: key(id(3, 5)), Modified: old}, // of a newer leader
	}
	keys, left := orphanCandidates(cfg, listed, map[string]bool{key(id(1, 3)): true},
		map[SegmentID]bool{id(1, 4): true}, 2, now.UnixMilli(), 600_000, mutantNone)
	want := []string{prefix + "page/" + id(1, 9).name(), key(id(1, 1))}
	if !slices.Equal(keys, want) || !left {
		t.Errorf("candidates %v, young left %t, want %v and true", keys, left, want)
	}
}

func TestUploadDeadlineGrowsWithSizeAndLimit(t *testing.T) {
	c := newCore(DefaultManagerConfig().core())
	small, large := c.uploadMillis(1<<20), c.uploadMillis(1<<30)
	if small < 60_000 || small > 70_000 || large < 4_000_000 {
		t.Errorf("deadlines of %d and %d ms for 1 MiB and 1 GiB", small, large)
	}
	c.cfg.uploadRate, c.sendingBytes = 1<<20, 512<<20
	if limited := c.uploadMillis(1 << 20); limited < 1_000_000 {
		t.Errorf("%d ms with half a GiB ahead at 1 MiB/s", limited)
	}
	if most := c.uploadMillis(1 << 50); most != c.cfg.uploadMillisMax {
		t.Errorf("%d ms, above the bound", most)
	}
}

func TestAdvancedAllocatesNothing(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 1)
		r.pass(time.Second)
		offset := g.end()
		if n := testing.AllocsPerRun(1000, func() { g.lead.Advanced(offset) }); n != 0 {
			t.Errorf("%v allocations on the append path", n)
		}
	})
}

func FuzzJournal(f *testing.F) {
	f.Add([]byte("+ AQIDAAAAAAAAAAAAAAAAAA 3 name\n- AQIDAAAAAAAAAAAAAAAAAA 3\n"))
	f.Add([]byte("+ AQIDAAAAAAAAAAAAAAAAAA 3 name\n+ torn"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var open []topic.Partition
		var err error
		fuzztest.Bounded(t, len(b), func() { open, err = parseJournal(b) })
		if err != nil {
			return
		}
		var again []byte
		for _, p := range open {
			again = append(again, journalLine(p)...)
		}
		back, err := parseJournal(again)
		if err != nil || !slices.Equal(back, open) {
			t.Fatalf("%v became %v, %v", open, back, err)
		}
	})
}

func BenchmarkStepWithIdlePartitions(b *testing.B) {
	c := newCore(DefaultManagerConfig().core())
	now := instant{wall: 1, steady: 1}
	for i := range 10_000 {
		p := rigPartition(i)
		c.step(evLead{p: p, gen: uint64(i + 1), epoch: 1, cfg: defaultTopic()}, now)
		c.step(evLooked{answer{p: p, gen: uint64(i + 1)}, logView{}}, now)
	}
	b.ReportAllocs()
	for b.Loop() {
		now.wall, now.steady = now.wall+1000, now.steady+1000
		c.step(evTick{}, now)
	}
}
