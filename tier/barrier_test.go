package tier

import (
	"context"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// TestNewLeaderClaimsBeforeItUploads: the manifest is the new leader's, and the one
// before fenced, ahead of its first object (T8). A claim takes a second here, so that an
// upload that does not wait for it is always ahead of it.
func TestNewLeaderClaimsBeforeItUploads(t *testing.T) {
	var puts *putLog
	inRig(t, func(r *rig) {
		puts = &putLog{Store: r.store, before: func(key string) {
			if info, _ := r.archive.Config().ParseKey(key); info.Kind == KeyHead {
				<-time.After(time.Second)
			}
		}}
		r.store = puts
	}, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 2)
		r.pass(time.Minute)
		r.m.Resign(g.p)
		before := len(puts.list())
		next := g.again(2)
		next.lead = r.m.Lead(next)
		next.fill(3, 2)
		r.pass(time.Minute)
		r.wantEnd(next, next.end())
		later := puts.list()[before:]
		if info, _ := r.archive.Config().ParseKey(later[0].key); info.Kind != KeyHead {
			t.Errorf("the first that a new leader puts is %s", later[0].key)
		}
	})
}

// TestStartNeverGoesBack: not by an edit, and not in a leader whose own log begins
// below what was committed (T11).
func TestStartNeverGoesBack(t *testing.T) {
	r := testRemote(t, objstore.NewMem(0))
	ctx := context.Background()
	for _, e := range []Edit{
		{Add: []AddSegment{entryAt(0, 10, 0), entryAt(10, 20, 0)}},
		{AdvanceStart: 15},
		{AdvanceStart: 5},
	} {
		if err := r.Commit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := r.Refresh(ctx); err != nil || st.Start != 15 {
		t.Errorf("start %d, %v; want 15", st.Start, err)
	}
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 4)
		r.pass(time.Minute)
		start := g.segments()[1].end
		r.m.Resign(g.p)
		if err := r.archive.Partition(g.p).Commit(ctx, Edit{LeaderEpoch: 1, AdvanceStart: start}); err != nil {
			t.Fatal(err)
		}
		next := g.again(2)
		next.lead = r.m.Lead(next)
		next.fill(1, 2)
		r.pass(time.Minute)
		if got := next.Offsets().LogStart; got != start {
			t.Errorf("the log of the next leader begins at %d, committed is %d", got, start)
		}
	})
}

// TestUnreadableHeadStopsItsPartition, and no other; nothing in the bucket goes on
// its account (T19).
func TestUnreadableHeadStopsItsPartition(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		cfg := defaultTopic()
		cfg.RetentionMillis = 3_600_000
		g := r.leadWith(r.newLog(0, cfg), 3)
		r.pass(time.Minute)
		end := g.end()
		ctx := context.Background()
		key := r.archive.Partition(g.p).headKey()
		good, _, err := objstore.ReadAll(ctx, r.mem, key, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		damage(t, r.mem, key, 40)
		r.restart()
		next := g.again(2)
		next.cfg = cfg
		next.lead = r.m.Lead(next)
		next.fill(2, 2)
		healthy := r.leadWith(r.newLog(1, defaultTopic()), 3)
		before, _, _ := objstore.ReadAll(ctx, r.mem, key, 1<<20)
		r.pass(8 * time.Hour)
		if n, others := r.objects(g.p); n != 3 || others != 1 {
			t.Errorf("%d segments and %d others are left of 3 and the head", n, others)
		}
		if after, _, err := objstore.ReadAll(ctx, r.mem, key, 1<<20); err != nil || string(after) != string(before) {
			t.Errorf("the head that could not be read was written over: %v", err)
		}
		if o := next.Offsets(); o.LogStart != 0 || next.remoteEnd() > end {
			t.Errorf("log start %d, remote end %d: acted on without a manifest", o.LogStart, next.remoteEnd())
		}
		if s := r.status(next); s.LastError == nil || !s.Stuck {
			t.Errorf("status %+v does not say so", s)
		}
		r.wantEnd(healthy, healthy.end())
		// Who mends the head mends the partition.
		if _, err := r.mem.Put(ctx, key, objstore.Bytes(good), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Hour)
		if st := r.state(g.p); st.LeaderEpoch != 2 || st.Start != next.end() {
			t.Errorf("state %+v after the head was mended", st)
		}
	})
}
