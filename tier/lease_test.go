package tier

import (
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// TestLeaderWithoutALeaseDeletesNothing has retention be raised while a leader is cut off from the controller, and from nobody else: what
// goes by the retention it knows would be missed by everybody.
func TestLeaderWithoutALeaseDeletesNothing(t *testing.T) {
	for _, claimed := range []bool{true, false} {
		inRig(t, nil, func(r *rig) {
			cfg := defaultTopic()
			cfg.RetentionMillis = 3_600_000
			g := r.leadWith(r.newLog(0, cfg), 3)
			r.pass(time.Minute)
			r.wantEnd(g, g.end())
			if !claimed { // the same log under the next leadership, which has had nothing to commit
				g = g.again(2)
				g.lead = r.m.Lead(g)
				r.pass(time.Minute)
			}
			g.unleased.Store(true)
			before := r.counted.Stats()
			r.pass(6 * time.Hour)
			got := r.counted.Stats()
			if s := r.state(g.p); s.Start != 0 || s.Marked != 0 || got.Put.Requests != before.Put.Requests || got.Delete.Requests != before.Delete.Requests {
				t.Errorf("claimed %t: without a lease the archive became %+v, by %d puts", claimed, s, got.Put.Requests-before.Put.Requests)
			}
			if o := g.Offsets(); o.LogStart != 0 {
				t.Errorf("claimed %t: without a lease the log start rose to %d", claimed, o.LogStart)
			}
			g.set(func(c *TopicConfig) { c.RetentionMillis = -1 })
			g.unleased.Store(false)
			r.pass(time.Hour)
			if s, o := r.state(g.p), g.Offsets(); s.Start != 0 || o.LogStart != 0 {
				t.Errorf("claimed %t: the archive starts at %d and the log at %d, nothing is to go", claimed, s.Start, o.LogStart)
			}
			g.set(func(c *TopicConfig) { c.RetentionMillis = 3_600_000 })
			r.pass(time.Hour)
			if s := r.state(g.p); s.Start == 0 {
				t.Errorf("claimed %t: with a lease retention does nothing", claimed)
			}
		})
	}
}

// TestUploadThatOutlivesTheLeaseIsCommittedWithTheNext has a lease end while an object is on its way.
func TestUploadThatOutlivesTheLeaseIsCommittedWithTheNext(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 1)
		r.pass(time.Minute)
		end := g.end()
		r.wantEnd(g, end)
		r.faulty.Set(objstore.Rule{Op: objstore.OpPut, Delay: 10 * time.Second})
		g.fill(1, 3)
		r.pass(5 * time.Second)
		g.unleased.Store(true)
		r.pass(time.Minute)
		r.faulty.Set()
		r.pass(time.Hour)
		if s := r.state(g.p); s.End != end || g.remoteEnd() != end {
			t.Errorf("without a lease the archive's end moved from %d to %d, the log was told %d", end, s.End, g.remoteEnd())
		}
		if n, _ := r.objects(g.p); n != 2 {
			t.Errorf("%d objects, one was on its way", n)
		}
		g.unleased.Store(false)
		r.pass(5 * time.Second)
		r.wantEnd(g, g.end())
		if n, _ := r.objects(g.p); n != 2 || g.remoteEnd() != g.end() {
			t.Errorf("%d objects for 2 segments, the log was told %d of %d", n, g.remoteEnd(), g.end())
		}
	})
}
