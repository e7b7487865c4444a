package tier

import (
	"context"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// stray puts an object of an earlier leader that no manifest names.
func (r *rig) stray(g *rigLog, epoch int32) {
	r.t.Helper()
	key := r.archive.Partition(g.p).Key(SegmentID{Base: 4, Epoch: epoch, Random: 77})
	if _, err := r.mem.Put(context.Background(), key, objstore.Bytes([]byte("left behind")), objstore.PutOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// again is the same log under the next leadership.
func (g *rigLog) again(epoch int32) *rigLog {
	g.mu.Lock()
	defer g.mu.Unlock()
	return &rigLog{p: g.p, epoch: epoch, mu: g.mu, l: g.l, cfg: g.cfg}
}

// A leader that was elected uncleanly has claimed before it leads: that the manifest
// is its own says nothing of what the leader before left in the bucket.
func TestLeaderThatClaimedEarlyLooksForOrphansOfTheOneBefore(t *testing.T) {
	inRig(t, func(r *rig) { r.cfg.OrphanSearch = 0 }, func(r *rig) {
		first := r.leadWith(r.newLog(0, defaultTopic()), 3)
		r.pass(time.Second)
		r.stray(first, 1)
		r.restart()
		if err := r.archive.Partition(first.p).Claim(context.Background(), 2); err != nil {
			t.Fatal(err)
		}
		g := r.leadWith(first.again(2), 2)
		r.pass(time.Minute)
		r.wantEnd(g, g.end())
		if n, _ := r.objects(g.p); n != 6 {
			t.Fatalf("%d objects", n)
		}
		r.pass(5 * time.Hour)
		if n, _ := r.objects(g.p); n != 5 {
			t.Errorf("%d objects for 5 segments: the orphan of the leader before is left", n)
		}
	})
}

// A leader that has made the manifest itself has nobody before it to look after.
func TestFirstLeaderLooksForNoOrphans(t *testing.T) {
	for _, early := range []bool{false, true} {
		inRig(t, func(r *rig) { r.cfg.OrphanSearch, r.cfg.Survey = 0, 0 }, func(r *rig) {
			g := r.newLog(0, defaultTopic())
			if early {
				if err := r.archive.Partition(g.p).Claim(context.Background(), g.epoch); err != nil {
					t.Fatal(err)
				}
			}
			r.leadWith(g, 3)
			r.pass(24 * time.Hour)
			r.wantEnd(g, g.end())
			if n := r.counted.Stats().List.Requests; n != 0 {
				t.Errorf("%d listings, claimed early %v", n, early)
			}
		})
	}
}

// What a crash left in the bucket goes although nothing is ever written to the
// partition again, and a partition where nothing was left is not made to claim.
func TestOrphansOfAnIdlePartitionAreFound(t *testing.T) {
	for _, left := range []bool{true, false} {
		inRig(t, nil, func(r *rig) {
			first := r.leadWith(r.newLog(0, defaultTopic()), 3)
			r.pass(time.Second)
			if left {
				r.stray(first, 1)
			}
			r.restart()
			before := r.counted.Stats()
			g := r.leadWith(first.again(2), 0)
			r.pass(3 * time.Hour)
			if got := r.counted.Stats(); got.List.Requests != before.List.Requests || got.Put.Requests != before.Put.Requests {
				t.Errorf("listed or claimed while uploads of the leader before may be on their way: %+v", got)
			}
			r.pass(33 * time.Hour) // three hours and a seventh of a week, and a collection
			if n, _ := r.objects(g.p); n != 3 {
				t.Errorf("%d objects for 3 segments, left %v", n, left)
			}
			r.pass(28 * 24 * time.Hour)
			got := r.counted.Stats()
			if n := got.List.Requests - before.List.Requests; n < 4 || n > 7 {
				t.Errorf("%d listings in a month, left %v", n, left)
			}
			claims := int64(0)
			if left {
				claims = 1
			}
			if n := got.Put.Requests - before.Put.Requests; int64(n) != claims {
				t.Errorf("%d puts in a month, want %d", n, claims)
			}
		})
	}
}

// A leader that was cut off may upload long after the next one's first collection.
func TestLateOrphanOfALivePartitionIsFound(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		first := r.leadWith(r.newLog(0, defaultTopic()), 3)
		r.pass(time.Second)
		g := r.leadWith(first.again(2), 1)
		r.pass(6 * time.Hour) // it has claimed, and collected
		r.stray(g, 1)
		r.pass(8 * 24 * time.Hour)
		r.wantEnd(g, g.end())
		if n, _ := r.objects(g.p); n != 4 {
			t.Errorf("%d objects for 4 segments", n)
		}
	})
}

// Who may have been replaced without a word neither claims nor uploads: what it put
// there after its topic was deleted nobody would look for.
func TestLeaderWithoutALeasePutsNothing(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.newLog(0, defaultTopic())
		g.unleased.Store(true)
		r.leadWith(g, 3)
		r.pass(time.Hour)
		if n := r.counted.Stats().Put.Requests; n != 0 {
			t.Errorf("%d puts without a lease", n)
		}
		if st := r.status(g); st.LastError == nil || st.LastError.Op != "claim" {
			t.Errorf("status %+v", st)
		}
		g.unleased.Store(false)
		r.pass(3 * time.Second) // it does not rest for long for that
		r.wantEnd(g, g.end())
		end := g.end()
		g.unleased.Store(true)
		g.fill(2, 3)
		before := r.counted.Stats().Put.Requests
		r.pass(time.Hour)
		if n := r.counted.Stats().Put.Requests; n != before || r.state(g.p).End != end {
			t.Errorf("%d puts without a lease, the archive ends at %d, want %d", n-before, r.state(g.p).End, end)
		}
		g.unleased.Store(false)
		r.pass(3 * time.Second) // it does not rest for long for that
		r.wantEnd(g, g.end())
	})
}
