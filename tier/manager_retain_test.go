package tier

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// gaugeStore counts how many deletes run at once.
type gaugeStore struct {
	objstore.Store
	running, most, keys atomic.Int64
}

func (g *gaugeStore) Delete(ctx context.Context, keys ...string) error {
	if n := g.running.Add(1); n > g.most.Load() {
		g.most.Store(n)
	}
	defer g.running.Add(-1)
	g.keys.Add(int64(len(keys)))
	return g.Store.Delete(ctx, keys...)
}

func TestRetentionByTimeFollowsTheOrderOfDeletion(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		cfg := defaultTopic()
		cfg.RetentionMillis = 3_600_000
		g := r.leadWith(r.newLog(0, cfg), 2)
		r.pass(30 * time.Minute)
		g.fill(2, 3)
		r.pass(29 * time.Minute)
		if st := r.state(g.p); st.Start != 0 || st.Segments != 4 {
			t.Fatalf("something went before its time: %+v", st)
		}
		r.pass(2 * time.Minute)
		st := r.state(g.p)
		if start := g.segments()[0].base; st.Start != start || g.Offsets().LogStart != start {
			t.Fatalf("archive starts at %d, log at %d, want %d", st.Start, g.Offsets().LogStart, start)
		}
		if n, _ := r.objects(g.p); n != 4 || st.Marked != 2 {
			t.Errorf("%d objects and %d marks within the grace, want 4 and 2", n, st.Marked)
		}
		r.pass(14 * time.Minute)
		if n, _ := r.objects(g.p); n != 4 {
			t.Errorf("%d objects before the grace is over, want 4", n)
		}
		r.pass(2 * time.Minute)
		if n, _ := r.objects(g.p); n != 2 || r.state(g.p).Marked != 0 {
			t.Errorf("%d objects, %d marks after the grace, want 2 and 0", n, r.state(g.p).Marked)
		}
	})
}

// Archive and log together are as large as retention.bytes asks, whatever part of
// it is in both tiers (KAFKA-20732, KAFKA-17062).
func TestRetentionBySizeCountsEachByteOnce(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 10)
		r.pass(time.Minute)
		size := g.segments()[0].SizeBytes()
		// An object that no manifest names must not count.
		if _, err := r.mem.Put(context.Background(), r.archive.Partition(g.p).Key(SegmentID{Base: 1, Random: 1}),
			objstore.Bytes(make([]byte, 1<<20)), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		g.set(func(c *TopicConfig) { c.RetentionBytes = 7*size - 1 })
		r.pass(time.Minute)
		if st := r.state(g.p); st.Segments != 7 || st.RawBytes < 7*size-1 {
			t.Errorf("%d segments of %d bytes left, want 7: the total must stay at or above the limit", st.Segments, st.RawBytes)
		}
		if got := g.Offsets().LogStart; got != r.state(g.p).Start {
			t.Errorf("log starts at %d, archive at %d", got, r.state(g.p).Start)
		}
	})
}

// After a fail-over nothing is known of the archive: until it is, nothing goes,
// however large the local part looks (KAFKA-20732).
func TestNewLeaderDeletesNothingBeforeItKnowsTheArchive(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		cfg := defaultTopic()
		g := r.leadWith(r.newLog(0, cfg), 10)
		r.pass(time.Minute)
		size := g.segments()[0].SizeBytes()
		r.faulty.Set(objstore.Rule{Fault: objstore.FaultSlowDown})
		r.restart()
		cfg.RetentionBytes = 3 * size
		next := g.again(2)
		next.cfg = cfg
		next.lead = r.m.Lead(next)
		r.pass(time.Hour)
		if st := r.state(g.p); st.Start != 0 || next.Offsets().LogStart != 0 {
			t.Fatalf("archive starts at %d and log at %d without knowing", st.Start, next.Offsets().LogStart)
		}
		if got := next.remoteEnd(); got != g.remoteEnd() {
			t.Errorf("log was told %d", got)
		}
		r.faulty.Set()
		r.pass(3 * time.Minute)
		if st := r.state(g.p); st.Segments != 3 {
			t.Errorf("%d segments left, want 3", st.Segments)
		}
	})
}

// KAFKA-19952: data past retention goes locally although the store is away, so
// that an outage fills the disk with nothing that is not wanted.
func TestExpiredDataGoesLocallyDuringAnOutage(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		cfg := defaultTopic()
		cfg.RetentionMillis = 3_600_000
		g := r.leadWith(r.newLog(0, cfg), 1)
		r.pass(time.Minute)
		r.faulty.Set(objstore.Rule{Fault: objstore.FaultSlowDown})
		for range 180 {
			g.fill(1, 2)
			r.pass(time.Minute)
		}
		if n := len(g.segments()); n > 70 {
			t.Errorf("%d segments of the last 3 hours are kept, retention is 1 hour", n)
		}
		if first := g.segments()[0].MaxTimestamp(); time.Since(time.UnixMilli(first)) < 55*time.Minute {
			t.Errorf("data of %v ago went before its time", time.Since(time.UnixMilli(first)))
		}
		r.faulty.Set()
		r.pass(5 * time.Minute)
		r.wantEnd(g, g.end())
	})
}

func TestUnoffloadedDataWithinRetentionStaysThroughAnOutage(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		cfg := defaultTopic()
		cfg.LocalRetentionMillis = 60_000
		g := r.leadWith(r.newLog(0, cfg), 1)
		r.pass(time.Minute)
		tiered := g.end()
		r.faulty.Set(objstore.Rule{Fault: objstore.FaultSlowDown})
		for range 100 {
			g.fill(1, 2)
			r.pass(10 * time.Minute)
		}
		if got := g.remoteEnd(); got != tiered {
			t.Errorf("log was told %d during the outage, want %d", got, tiered)
		}
		if got := g.Offsets().LogStart; got != 0 {
			t.Errorf("log start moved to %d", got)
		}
	})
}

func TestDeletesThatFailDoNotHoldUpUploads(t *testing.T) {
	inRig(t, func(r *rig) { r.cfg.Uploads, r.cfg.Deletes = 1, 1 }, func(r *rig) {
		cfg := defaultTopic()
		cfg.RetentionMillis = 600_000
		r.faulty.Set(objstore.Rule{Op: objstore.OpDelete, Fault: objstore.FaultStall})
		g := r.leadWith(r.newLog(0, cfg), 5)
		r.pass(time.Hour)
		for range 20 {
			g.fill(1, 2)
			r.pass(time.Second)
			r.wantEnd(g, g.end())
		}
		if s := r.status(g); s.LastError == nil || s.LastError.Op != "delete" {
			t.Errorf("failing deletes are not reported: %+v", s)
		}
		r.faulty.Set()
		r.pass(time.Hour)
		if st := r.state(g.p); st.Marked != 0 {
			t.Errorf("%d marks left", st.Marked)
		}
	})
}

// A TTL cut makes everything deletable at once: deletes stay bounded (AutoMQ
// #3429), and are done in batches that keep up (Inkless #743, #745).
func TestRetentionCutDeletesBoundedAndInBatches(t *testing.T) {
	gauge := &gaugeStore{}
	inRig(t, func(r *rig) {
		gauge.Store = r.counted
		r.store = gauge
		r.cfg.Deletes = 2
	}, func(r *rig) {
		r.faulty.Set(objstore.Rule{Op: objstore.OpDelete, Delay: time.Second})
		logs := make([]*rigLog, 8)
		for i := range logs {
			logs[i] = r.leadWith(r.newLog(i, defaultTopic()), 300)
		}
		r.pass(10 * time.Minute)
		for _, g := range logs {
			r.wantEnd(g, g.end())
			g.set(func(c *TopicConfig) { c.RetentionMillis = 60_000 })
		}
		r.pass(20 * time.Minute)
		for _, g := range logs {
			if n, _ := r.objects(g.p); n != 0 {
				t.Errorf("%s: %d objects left", g.p, n)
			}
		}
		if n := gauge.most.Load(); n > 2 {
			t.Errorf("%d deletes at once, want at most 2", n)
		}
		if d := r.counted.Stats().Delete.Requests; d > 8*3 {
			t.Errorf("%d delete requests for %d objects", d, gauge.keys.Load())
		}
	})
}

// More than a head manifest can hold marks for: the rest follows as room is made.
func TestRetentionCutBeyondTheHeadsRoomForMarks(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.newLog(0, defaultTopic())
		g.fill(2500, 1)
		g.lead = r.m.Lead(g)
		r.pass(10 * time.Minute)
		r.wantEnd(g, g.end())
		size := g.segments()[0].SizeBytes()
		g.set(func(c *TopicConfig) { c.RetentionBytes = 100 * size })
		r.pass(3 * time.Hour)
		st := r.state(g.p)
		if st.RawBytes < 100*size || st.RawBytes > 102*size || st.Marked != 0 {
			t.Errorf("%d live bytes and %d marks left, want %d and none", st.RawBytes, st.Marked, 100*size)
		}
		if n, _ := r.objects(g.p); int64(n) != st.Segments {
			t.Errorf("%d objects for %d segments", n, st.Segments)
		}
	})
}

func TestDeleteRecordsRemovesWhatLiesBelow(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 4)
		r.pass(time.Second)
		inside := g.segments()[2].base + 2
		if err := g.AdvanceLogStart(inside); err != nil {
			t.Fatal(err)
		}
		g.lead.LogStartMoved()
		r.pass(time.Minute)
		if st := r.state(g.p); st.Start != inside || st.Marked != 2 {
			t.Errorf("state %+v, want start %d and 2 marks", st, inside)
		}
		r.pass(20 * time.Minute)
		if n, _ := r.objects(g.p); n != 2 {
			t.Errorf("%d objects left, want 2", n)
		}
	})
}

func TestRetentionChangeTakesEffectAtOnce(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 3)
		r.pass(10 * time.Minute)
		g.set(func(c *TopicConfig) { c.RetentionMillis = 300_000 })
		r.pass(time.Second)
		if got := g.Offsets().LogStart; got != g.end() {
			t.Errorf("log start %d, want %d", got, g.end())
		}
	})
}

// The whole of a quiet log expires, its active segment included.
func TestExpiredActiveSegmentIsRolledAndDropped(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		cfg := defaultTopic()
		cfg.RetentionMillis = 600_000
		g := r.newLog(0, cfg)
		g.append(time.Now().UnixMilli())
		g.lead = r.m.Lead(g)
		g.commit()
		r.pass(9 * time.Minute)
		if g.rollCount() != 0 {
			t.Error("rolled before it expired")
		}
		r.pass(2 * time.Minute)
		if o := g.Offsets(); o.LogStart != o.End {
			t.Errorf("log start %d, end %d: the expired active segment is still there", o.LogStart, o.End)
		}
	})
}

// remote.storage.enable=false with remote.log.delete.on.disable=true (KIP-950),
// and back on again.
func TestSwitchingTieringOffDeletesAllAndOnAgainBeginsAnew(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 6)
		r.pass(time.Second)
		g.mu.Lock()
		g.l.dropBelow(g.l.sealed[2].end) // local retention
		local := g.l.localStart()
		g.mu.Unlock()
		g.set(func(c *TopicConfig) { c.Enabled, c.DeleteOnDisable = false, true })
		r.pass(time.Minute)
		if got := g.Offsets().LogStart; got != local {
			t.Fatalf("log starts at %d, want the local start %d", got, local)
		}
		if got := g.remoteEnd(); got != -1 {
			t.Fatalf("log still believes in a remote end of %d", got)
		}
		r.pass(time.Hour)
		if n, _ := r.objects(g.p); n != 0 {
			t.Errorf("%d objects left", n)
		}
		if got := g.Offsets().LogStart; got != local {
			t.Errorf("log start moved to %d: local data was lost", got)
		}
		g.set(func(c *TopicConfig) { c.Enabled = true })
		r.pass(time.Minute)
		r.wantEnd(g, g.end())
		if st := r.state(g.p); st.Start != local || st.Segments != 3 {
			t.Errorf("state %+v, want the 3 local segments from %d on", st, local)
		}
	})
}

func TestSwitchedOnAgainBeforeTheArchiveIsGone(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 6)
		r.pass(time.Second)
		r.faulty.Set(objstore.Rule{Op: objstore.OpDelete, Fault: objstore.FaultSlowDown})
		g.set(func(c *TopicConfig) { c.Enabled, c.DeleteOnDisable = false, true })
		r.pass(time.Minute)
		g.set(func(c *TopicConfig) { c.Enabled = true })
		r.pass(time.Hour)
		if got := g.Offsets().LogStart; got != 0 {
			t.Fatalf("log start moved to %d", got)
		}
		r.wantEnd(g, g.end())
		if st := r.state(g.p); st.Start != 0 {
			t.Errorf("archive starts at %d", st.Start)
		}
	})
}

func TestOrphanOfALostUploadIsCollected(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		// The object arrives, the answer does not, and nobody can look (Aiven #590,
		// KAFKA-17428).
		r.faulty.Set(
			objstore.Rule{Op: objstore.OpPut, Key: "*/seg/*", Times: 2, Fault: objstore.FaultLostAnswer},
			objstore.Rule{Op: objstore.OpGet, Key: "*/seg/*", Times: 2, Fault: objstore.FaultSlowDown},
		)
		g := r.leadWith(r.newLog(0, defaultTopic()), 2)
		r.pass(5 * time.Minute)
		r.wantEnd(g, g.end())
		n, _ := r.objects(g.p)
		if n <= 2 {
			t.Fatalf("%d objects: no orphan was made", n)
		}
		lists := r.counted.Stats().List.Requests
		r.pass(2 * time.Hour)
		if got, _ := r.objects(g.p); got != n || r.counted.Stats().List.Requests != lists {
			t.Errorf("%d of %d objects left before the longest upload is over", got, n)
		}
		r.pass(3 * time.Hour)
		if got, _ := r.objects(g.p); got != 2 {
			t.Errorf("%d objects for 2 segments", got)
		}
		lists = r.counted.Stats().List.Requests
		r.pass(30 * 24 * time.Hour)
		if got := r.counted.Stats().List.Requests - lists; got > 5 {
			t.Errorf("%d more listings in a month without faults: a search each week", got)
		}
	})
}

func TestCollectionTurnedOffLeavesTheBucketAlone(t *testing.T) {
	inRig(t, func(r *rig) { r.cfg.DisableCollection, r.cfg.Survey = true, 0 }, func(r *rig) {
		r.faulty.Set(objstore.Rule{Op: objstore.OpPut, Key: "*/seg/*", Times: 1, Fault: objstore.FaultLostAnswer},
			objstore.Rule{Op: objstore.OpGet, Key: "*/seg/*", Times: 1, Fault: objstore.FaultSlowDown})
		g := r.leadWith(r.newLog(0, defaultTopic()), 1)
		r.pass(24 * time.Hour)
		if n, _ := r.objects(g.p); n != 2 || r.counted.Stats().List.Requests != 0 {
			t.Errorf("%d objects, %d listings", n, r.counted.Stats().List.Requests)
		}
	})
}

// Segments that hold markers alone have no record's timestamp: neither in the
// archive nor locally may they hold retention up, and they go themselves.
func TestSegmentsOfMarkersAloneDoNotHoldRetentionUp(t *testing.T) {
	for name, copyDisabled := range map[string]bool{"archived": false, "local": true} {
		t.Run(name, func(t *testing.T) {
			inRig(t, nil, func(r *rig) {
				cfg := defaultTopic()
				cfg.RetentionMillis, cfg.CopyDisabled = 3_600_000, copyDisabled
				g := r.leadWith(r.newLog(0, cfg), 1)
				for range 3 {
					g.appendMarker()
					g.seal()
					g.fill(1, 2)
				}
				g.appendMarker()
				g.seal()
				r.pass(30 * time.Minute)
				if got := g.Offsets().LogStart; got != 0 {
					t.Fatalf("log start %d before anything expired", got)
				}
				r.pass(31 * time.Minute)
				if o := g.Offsets(); o.LogStart != o.End {
					t.Errorf("log starts at %d of %d an hour later: %+v", o.LogStart, o.End, r.status(g))
				}
				g.appendMarker() // in the active segment
				g.commit()
				r.pass(62 * time.Minute)
				if o := g.Offsets(); o.LogStart != o.End {
					t.Errorf("log starts at %d of %d: the marker in the active segment stays", o.LogStart, o.End)
				}
			})
		})
	}
}
