package tier

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

func TestSealedSegmentsAreArchivedWithTwoPutsEach(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 1)
		r.pass(time.Second)
		r.wantEnd(g, g.end())
		before := r.counted.Stats()
		for range 10 {
			g.fill(1, 3)
			r.pass(time.Second)
		}
		r.wantEnd(g, g.end())
		after := r.counted.Stats()
		if n := after.Put.Requests - before.Put.Requests; n > 20 {
			t.Errorf("%d PUTs for 10 segments, want at most 20", n)
		}
		if n := after.Get.Requests + after.List.Requests + after.Head.Requests -
			before.Get.Requests - before.List.Requests - before.Head.Requests; n != 0 {
			t.Errorf("%d reading requests to upload 10 segments, want none", n)
		}
	})
}

// TestUploadsThatEndTogetherShareACommit: the bar is at most two PUTs a segment
// with the claim of the manifest included.
func TestUploadsThatEndTogetherShareACommit(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		var rules []objstore.Rule
		for i := range 8 {
			rules = append(rules, objstore.Rule{Op: objstore.OpPut, Key: "*/seg/*", Times: 1, Delay: time.Duration(10+i%4) * time.Second})
		}
		r.faulty.Set(rules...)
		g := r.leadWith(r.newLog(0, defaultTopic()), 8)
		r.pass(time.Minute)
		r.wantEnd(g, g.end())
		if n := r.counted.Stats().Put.Requests; n > 8+1+3 {
			t.Errorf("%d PUTs for 8 segments: each was committed alone", n)
		}
	})
}

func TestFinishedUploadWaitsForTheNextNoLongerThanItTook(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		// The test's logs have six records a segment.
		r.faulty.Set(
			objstore.Rule{Op: objstore.OpPut, Key: "*/seg/00000000000000000000-*", Delay: 2 * time.Second},
			objstore.Rule{Op: objstore.OpPut, Key: "*/seg/00000000000000000006-*", Delay: 20 * time.Second},
			objstore.Rule{Op: objstore.OpPut, Key: "*/seg/00000000000000000012-*", Delay: 40 * time.Second},
			objstore.Rule{Op: objstore.OpPut, Key: "*/seg/00000000000000000018-*", Delay: 3 * time.Second},
		)
		g := r.leadWith(r.newLog(0, defaultTopic()), 3)
		ends := func() int64 { return r.state(g.p).End }
		first := g.l.sealed[0].end
		r.pass(3900 * time.Millisecond)
		if ends() >= first {
			t.Error("committed before the wait was over: the test shows nothing")
		}
		r.pass(200 * time.Millisecond)
		if ends() != first {
			t.Errorf("archive ends at %d 2 s after a segment's upload of 2 s, want %d", ends(), first)
		}
		r.pass(21 * time.Second) // the second ended at 20 s: it waits for 5 s, not for 20
		if ends() <= first {
			t.Error("a finished segment waits longer than the bound")
		}
		r.pass(time.Minute)
		r.wantEnd(g, g.end())
		g.fill(1, 3) // nothing behind it
		r.pass(3001 * time.Millisecond)
		r.wantEnd(g, g.end())
	})
}

func TestActiveSegmentStaysLocal(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.newLog(0, defaultTopic())
		g.append(time.Now().UnixMilli())
		r.leadWith(g, 0)
		g.commit()
		r.pass(3 * time.Hour)
		if s := r.counted.Stats(); s.Requests() != 0 {
			t.Errorf("%d requests for a log with nothing sealed", s.Requests())
		}
		r.pass(30 * 24 * time.Hour) // and then a search for orphans once a week
		if s := r.counted.Stats(); s.Get.Requests != 1 || s.List.Requests < 4 || s.Requests() != 1+s.List.Requests || s.List.Requests > 6 {
			t.Errorf("requests of a month for a log with nothing sealed: %+v", s)
		}
	})
}

func TestOpenTransactionHoldsTieringBack(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.newLog(0, defaultTopic())
		g.fill(3, 2)
		g.l.lso = g.l.sealed[1].base // a transaction is open from the second segment on
		g.lead = r.m.Lead(g)
		r.pass(time.Hour)
		r.wantEnd(g, g.segments()[0].end)
		g.commit()
		r.pass(time.Second)
		r.wantEnd(g, g.end())
	})
}

// A call that never ends must not stop a partition's tiering for ever, nor
// silently (Aiven #820, #596): the deadline ends it, the watchdog says why.
func TestHangingUploadEndsAtItsDeadlineAndIsReported(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.faulty.Set(objstore.Rule{Op: objstore.OpPut, Key: "*/seg/*", Fault: objstore.FaultStall})
		g := r.leadWith(r.newLog(0, defaultTopic()), 2)
		r.pass(20 * time.Minute)
		s := r.status(g)
		if !s.Stuck || s.LastError == nil || s.LastError.Op != "upload" {
			t.Fatalf("a hanging upload is not reported: %+v", s)
		}
		if s.LastError.Count < 3 {
			t.Errorf("only %d attempts in 20 minutes: a hanging call keeps its slot", s.LastError.Count)
		}
		if msg := s.LastError.Err.Error(); !strings.Contains(msg, "put") || !strings.Contains(msg, "seg/") {
			t.Errorf("the error names neither operation nor key: %s", msg)
		}
		if s.LagSegments != 2 || s.LagBytes == 0 || s.AtRiskSeconds < 1100 {
			t.Errorf("lag is not reported during the failure: %+v", s)
		}
		r.faulty.Set()
		r.pass(3 * time.Minute)
		r.wantEnd(g, g.end())
		if s := r.status(g); s.Stuck || s.LastError != nil {
			t.Errorf("the report outlives the failure: %+v", s)
		}
	})
}

// deafStore ignores contexts: its puts hang until it is released.
type deafStore struct {
	objstore.Store
	release chan struct{}
	deaf    atomic.Bool
}

func (d *deafStore) Put(ctx context.Context, key string, body objstore.Body, o objstore.PutOptions) (objstore.Object, error) {
	if d.deaf.Load() && strings.Contains(key, "/seg/") {
		<-d.release
		return objstore.Object{}, errors.New("released")
	}
	return d.Store.Put(ctx, key, body, o)
}

func TestStoreThatIgnoresItsContextCannotHoldASlot(t *testing.T) {
	deaf := &deafStore{}
	inRig(t, func(r *rig) {
		deaf.Store, deaf.release = r.counted, make(chan struct{})
		r.store = deaf
		r.cfg.Uploads = 1
	}, func(r *rig) {
		deaf.deaf.Store(true)
		g := r.leadWith(r.newLog(0, defaultTopic()), 1)
		r.pass(2 * time.Minute)
		deaf.deaf.Store(false)
		r.pass(2 * time.Minute)
		r.wantEnd(g, g.end())
		close(deaf.release)
	})
}

func TestOutageBacklogDrainsAfterwards(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 1)
		r.pass(time.Second)
		r.faulty.Set(objstore.Rule{Fault: objstore.FaultSlowDown})
		start := r.counted.Stats().Requests()
		for range 60 {
			g.fill(1, 3)
			r.pass(time.Minute)
		}
		if n := r.counted.Stats().Requests() - start; n > 60*60 {
			t.Errorf("%d requests in an hour of outage", n)
		}
		first := g.segments()[0].end
		r.wantEnd(g, first)
		r.faulty.Set()
		r.pass(2 * time.Minute)
		r.wantEnd(g, g.end())
	})
}

// Redpanda #5928: a backlog over many partitions drains as fast as all upload
// slots together allow.
func TestBacklogOfManyPartitionsUsesAllSlots(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		const partitions, segments = 120, 5
		r.faulty.Set(objstore.Rule{Op: objstore.OpPut, Key: "*/seg/*", Delay: time.Second})
		logs := make([]*rigLog, partitions)
		for i := range logs {
			logs[i] = r.leadWith(r.newLog(i, defaultTopic()), segments)
		}
		r.pass(time.Duration(partitions*segments/r.cfg.Uploads+10) * time.Second)
		for _, g := range logs {
			r.wantEnd(g, g.end())
		}
	})
}

func TestOneLongBacklogDoesNotKeepOthersWaiting(t *testing.T) {
	inRig(t, func(r *rig) { r.cfg.Uploads = 2 }, func(r *rig) {
		r.faulty.Set(objstore.Rule{Op: objstore.OpPut, Key: "*/seg/*", Delay: time.Second})
		long := r.leadWith(r.newLog(0, defaultTopic()), 200)
		r.pass(3 * time.Second)
		short := r.leadWith(r.newLog(1, defaultTopic()), 1)
		r.pass(5 * time.Second)
		r.wantEnd(short, short.end())
		if st := r.state(long.p); st.End == long.end() {
			t.Error("the long backlog is through already: the test shows nothing")
		}
	})
}

// Aiven #520, KIP-956.
func TestUploadLimiterHoldsItsRate(t *testing.T) {
	inRig(t, func(r *rig) { r.cfg.UploadBytesPerSecond = 2_000 }, func(r *rig) {
		g := r.newLog(0, defaultTopic())
		for range 400 {
			g.append(time.Now().UnixMilli())
		}
		g.l.roll()
		g.commit()
		g.lead = r.m.Lead(g)
		start := time.Now()
		for r.state(g.p).End != g.end() {
			if time.Since(start) > time.Hour {
				t.Fatalf("not through after an hour: %+v", r.status(g))
			}
			r.pass(time.Second)
		}
		sent := float64(r.counted.Stats().Put.Bytes)
		atLeast := time.Duration((sent - float64(newBucket(2_000).burst) - 4_000) / 2_000 * float64(time.Second))
		if took := time.Since(start); took < atLeast {
			t.Errorf("%d bytes went in %v, at 2000 B/s not before %v", int64(sent), took, atLeast)
		}
	})
}

func TestRemoteMaxLagRollsAndUploadsTheActiveSegment(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		cfg := defaultTopic()
		cfg.MaxLagMillis = 60_000
		g := r.leadWith(r.newLog(0, cfg), 0)
		r.pass(time.Hour)
		if g.rollCount() != 0 {
			t.Fatalf("%d rolls of an empty segment", g.rollCount())
		}
		// A single record in an idle log, stamped three years ago: age counts from
		// its append.
		g.append(time.Now().AddDate(-3, 0, 0).UnixMilli())
		g.commit()
		r.pass(40 * time.Second)
		if g.rollCount() != 0 {
			t.Error("rolled long before the lag is reached")
		}
		r.pass(20 * time.Second)
		r.wantEnd(g, g.end())
		puts := r.counted.Stats().Put.Requests
		r.pass(24 * time.Hour)
		if n := r.counted.Stats().Put.Requests - puts; n != 0 || g.rollCount() != 1 {
			t.Errorf("%d PUTs and %d rolls on an idle log (AutoMQ #2326)", n, g.rollCount())
		}
	})
}

// While the store is away, rolling more would only make small objects.
func TestOutageDoesNotCutSmallSegments(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		cfg := defaultTopic()
		cfg.MaxLagMillis = 60_000
		g := r.leadWith(r.newLog(0, cfg), 1)
		r.faulty.Set(objstore.Rule{Fault: objstore.FaultSlowDown})
		for range 120 {
			g.append(time.Now().UnixMilli())
			g.commit()
			r.pass(30 * time.Second)
		}
		if g.rollCount() > 1 {
			t.Errorf("%d rolls in an hour of outage", g.rollCount())
		}
		r.faulty.Set()
		r.pass(3 * time.Minute)
		r.wantEnd(g, g.end())
	})
}

func TestCopyLagDelaysUploadUntilOneOfItsConditionsHolds(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		cfg := defaultTopic()
		cfg.CopyLagMillis, cfg.CopyLagBytes = 600_000, -1
		cfg.LocalRetentionBytes = 5_000 // −1 of the bytes is the local retention
		g := r.leadWith(r.newLog(0, cfg), 1)
		first := g.segments()[0].end
		r.pass(9 * time.Minute)
		if _, ok := r.m.PartitionStatus(g.p); !ok || r.state(g.p).End != -1 {
			t.Error("uploaded before remote.copy.lag.ms")
		}
		r.pass(2 * time.Minute)
		r.wantEnd(g, first)
		g.fill(1, 3)
		second := g.segments()[1].end
		r.pass(time.Minute)
		r.wantEnd(g, first)
		g.fill(10, 3) // enough bytes behind it
		r.pass(time.Second)
		if st := r.state(g.p); st.End < second || st.End == g.end() {
			t.Errorf("archive ends at %d: the size criterion should let some go past %d, not all to %d", st.End, second, g.end())
		}
		g.set(func(c *TopicConfig) { c.CopyLagMillis = 0 })
		r.pass(time.Second)
		r.wantEnd(g, g.end())
	})
}

func TestCopyDisabledStopsUploadsAndResumesPastWhatExpired(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		cfg := defaultTopic()
		cfg.RetentionMillis = 3_600_000
		g := r.leadWith(r.newLog(0, cfg), 2)
		r.pass(time.Second)
		tiered := g.end()
		r.wantEnd(g, tiered)
		g.set(func(c *TopicConfig) { c.CopyDisabled = true })
		g.fill(4, 2)
		r.pass(30 * time.Minute)
		r.wantEnd(g, tiered)
		r.pass(31 * time.Minute) // all of it expires, uploaded or not
		if got := g.Offsets().LogStart; got != g.end() {
			t.Fatalf("log start %d after retention, want %d", got, g.end())
		}
		g.fill(1, 2)
		g.set(func(c *TopicConfig) { c.CopyDisabled = false })
		r.pass(time.Minute)
		r.wantEnd(g, g.end())
		if st := r.state(g.p); st.Segments != 1 {
			t.Errorf("%d live segments, want the new one only", st.Segments)
		}
	})
}

func TestResignedLeaderGivesUpAndTheNextOneGoesOn(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		r.faulty.Set(objstore.Rule{Op: objstore.OpPut, Key: "*/seg/*", Delay: 10 * time.Second})
		g := r.leadWith(r.newLog(0, defaultTopic()), 3)
		r.pass(2 * time.Second)
		r.m.Resign(g.p)
		r.pass(time.Minute)
		if got := g.remoteEnd(); got > 0 {
			t.Errorf("log was told %d after it resigned", got)
		}
		if st := r.state(g.p); st.End > 0 {
			t.Errorf("archive ends at %d: a resigned leader committed", st.End)
		}
		next := g.again(2)
		next.lead = r.m.Lead(next)
		r.pass(2 * time.Minute)
		r.wantEnd(next, next.end())
		r.pass(5 * time.Hour) // past the longest upload
		if n, _ := r.objects(g.p); n != 3 {
			t.Errorf("%d objects for 3 segments: what the first leader left was not collected", n)
		}
	})
}

func TestFencedLeaderStopsAndSaysSo(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 1)
		r.pass(time.Second)
		cfg := DefaultConfig()
		other, err := OpenArchive(cfg, Deps{Store: r.mem})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close(context.Background())
		if err := other.Partition(g.p).Claim(context.Background(), 7); err != nil {
			t.Fatal(err)
		}
		before := g.remoteEnd()
		g.fill(5, 2)
		r.pass(time.Hour)
		if s := r.status(g); s.Phase != "fenced" || !errors.Is(s.LastError.Err, ErrFenced) {
			t.Errorf("status %+v, want fenced", s)
		}
		if got := g.remoteEnd(); got != before {
			t.Errorf("a fenced leader told its log %d", got)
		}
		n := r.counted.Stats().Requests()
		r.pass(24 * time.Hour)
		if got := r.counted.Stats().Requests(); got != n {
			t.Errorf("a fenced leader made %d requests in a day", got-n)
		}
	})
}

// Ten thousand partitions with everything offloaded cost no request and next to
// no wake-ups.
func TestIdlePartitionsCostNothing(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		const n = 2_000
		for i := range n {
			r.leadWith(r.newLog(i, defaultTopic()), 0)
		}
		r.pass(time.Minute)
		steps := 0
		r.m.inspect(func(c *core, _ instant) {
			if due, ok := c.next(); ok {
				t.Errorf("a timer is armed for %d on an idle cluster", due)
			}
			steps = len(c.parts)
		})
		if steps != n {
			t.Fatalf("%d partitions led, want %d", steps, n)
		}
		r.pass(30 * 24 * time.Hour)
		if got := r.counted.Stats().Requests(); got != 0 {
			t.Errorf("%d requests in a month of nothing", got)
		}
	})
}

// A log shows a rolled segment only once it is synced; nobody calls again then.
func TestSegmentThatIsSealedLateIsFound(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.newLog(0, defaultTopic())
		g.fill(1, 3)
		g.unsynced = true
		g.lead = r.m.Lead(g)
		g.lead.Rolled()
		r.pass(time.Second)
		g.mu.Lock()
		g.unsynced = false
		g.mu.Unlock()
		r.pass(10 * time.Second)
		r.wantEnd(g, g.end())
	})
}

func TestFirstRecordOfAnEmptyLogWakesItsCore(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		cfg := defaultTopic()
		cfg.MaxLagMillis = 60_000
		g := r.leadWith(r.newLog(0, cfg), 0)
		r.pass(time.Hour)
		g.append(time.Now().UnixMilli())
		g.mu.Lock()
		g.l.hw, g.l.lso, g.l.durable = g.l.end(), g.l.end(), g.l.end()
		g.mu.Unlock()
		g.lead.Advanced(g.end()) // nothing else is said
		r.pass(time.Minute)
		r.wantEnd(g, g.end())
	})
}

// Segments in line for upload that DeleteRecords takes away must not hold up what
// comes after them.
func TestRecordsDeletedBeforeTheirUploadDoNotStopTiering(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 1)
		r.pass(time.Second)
		r.faulty.Set(objstore.Rule{Op: objstore.OpPut, Key: "*/seg/*", Delay: 5 * time.Second})
		g.fill(6, 4)
		r.pass(time.Second)
		inside := g.segments()[5].base + 2
		if err := g.AdvanceLogStart(inside); err != nil {
			t.Fatal(err)
		}
		g.lead.LogStartMoved()
		r.pass(30 * time.Second)
		r.wantEnd(g, g.end())
		if st := r.state(g.p); st.Start != inside {
			t.Errorf("archive starts at %d, want %d", st.Start, inside)
		}
	})
}
