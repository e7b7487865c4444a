package tier

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// release drops local segments that end at or below an offset.
func (g *rigLog) release(to int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.l.dropBelow(to)
}

// live lists the segments that the bucket's manifest names.
func (r *rig) live(g *rigLog) (list []RemoteSegment) {
	r.t.Helper()
	a, err := OpenArchive(DefaultConfig(), Deps{Store: r.mem})
	if err != nil {
		r.t.Fatal(err)
	}
	defer a.Close(context.Background())
	err = a.Partition(g.p).Segments(context.Background(), -1, func(s RemoteSegment) bool {
		list = append(list, s)
		return true
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}

func (r *rig) object(key string) []byte {
	r.t.Helper()
	b, _, err := objstore.ReadAll(context.Background(), r.mem, key, 1<<30)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

func (r *rig) overwrite(key string, b []byte) {
	r.t.Helper()
	if _, err := r.mem.Put(context.Background(), key, objstore.Bytes(b), objstore.PutOptions{}); err != nil {
		r.t.Fatal(err)
	}
}

// spoilers damage an object in each way that there is.
var spoilers = map[Fault]func(r *rig, key string){
	FaultMissing: func(r *rig, key string) {
		if err := r.mem.Delete(context.Background(), key); err != nil {
			r.t.Fatal(err)
		}
	},
	FaultSize: func(r *rig, key string) { b := r.object(key); r.overwrite(key, b[:len(b)-1]) },
	FaultBytes: func(r *rig, key string) {
		b := r.object(key)
		b[len(b)/3] ^= 1
		r.overwrite(key, b)
	},
}

// spoil damages the object of a segment.
func (r *rig) spoil(g *rigLog, id SegmentID, fault Fault) {
	r.t.Helper()
	spoilers[fault](r, r.archive.Partition(g.p).Key(id))
}

// leadSpoilt leads a log of n segments, and damages the object of one when all are in the
// bucket. It returns what the manifest had.
func (r *rig) leadSpoilt(n, one int, fault Fault) (g *rigLog, before []RemoteSegment) {
	r.t.Helper()
	g = r.leadWith(r.newLog(0, defaultTopic()), n)
	r.pass(time.Minute)
	before = r.live(g)
	r.spoil(g, before[one].ID, fault)
	return g, before
}

// A store keeps objects for years, and nobody asks. The survey names what is missing
// or of another size, the reading what has other bytes; and what is put back is no
// longer named.
func TestScrubNamesEveryDamagedObject(t *testing.T) {
	for fault, spoil := range spoilers {
		t.Run(fault.String(), func(t *testing.T) {
			inRig(t, func(r *rig) { r.cfg.ReadEvery = 30 * 24 * time.Hour }, func(r *rig) {
				g := r.leadWith(r.newLog(0, defaultTopic()), 6)
				r.pass(time.Minute)
				g.release(g.end()) // only the bucket has them now
				list := r.live(g)
				key := r.archive.Partition(g.p).Key(list[2].ID)
				whole := r.object(key)
				r.pass(31 * 24 * time.Hour) // all is well for a month
				if st := r.status(g); len(st.Damaged) != 0 || st.LastError != nil {
					t.Fatalf("sound, and %+v", st)
				}
				if got := r.m.Counters()[g.p.Topic]; got.ScrubPasses < 1 || got.ScrubPasses > 2 {
					t.Errorf("%d passes in a month", got.ScrubPasses)
				}
				spoil(r, key)
				r.pass(32 * 24 * time.Hour)
				st := r.status(g)
				if len(st.Damaged) != 1 || st.Damaged[0].Key != key || st.Damaged[0].Fault != fault || st.Damaged[0].Base != list[2].ID.Base {
					t.Fatalf("named %+v, want %s", st.Damaged, key)
				}
				if c := r.m.Counters()[g.p.Topic]; c.FoundDamaged != 1 || c.Mended != 0 {
					t.Errorf("counters %+v", c)
				}
				if len(r.live(g)) != 6 || r.state(g.p).Marked != 0 {
					t.Error("the manifest was changed")
				}
				r.overwrite(key, whole)
				r.pass(7 * time.Hour)
				if st := r.status(g); len(st.Damaged) != 0 {
					t.Errorf("put back, and still named: %+v", st.Damaged)
				}
			})
		})
	}
}

// The survey alone costs a listing a week, which the search for orphans shares, and
// finds what is missing.
func TestSurveySharesTheListingOfTheOrphanSearch(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 3)
		r.pass(time.Minute)
		before := r.counted.Stats()
		r.pass(10 * 7 * 24 * time.Hour)
		got := r.counted.Stats()
		if n := got.List.Requests - before.List.Requests; n < 9 || n > 15 {
			t.Errorf("%d listings in ten weeks", n)
		}
		if got.Get.Requests != before.Get.Requests || got.Put.Requests != before.Put.Requests || got.Head.Requests != before.Head.Requests {
			t.Errorf("%+v after %+v", got, before)
		}
		r.spoil(g, r.live(g)[0].ID, FaultMissing)
		r.pass(9 * 24 * time.Hour)
		if c := r.m.Counters()[g.p.Topic]; c.FoundDamaged != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// A store that fails, stalls, answers less than there is or forgets for a moment says
// nothing of the objects.
func TestStoreThatFailsIsNoDamage(t *testing.T) {
	for name, rule := range map[string]objstore.Rule{
		"503":            {Fault: objstore.FaultSlowDown},
		"403":            {Fault: objstore.FaultDenied},
		"cut":            {Op: objstore.OpGet, Fault: objstore.FaultTruncate},
		"stalls":         {Op: objstore.OpGet, Fault: objstore.FaultStall},
		"one 404":        {Op: objstore.OpGet, Key: "*/seg/*", Nth: 1, Times: 1, Fault: objstore.FaultNotFound},
		"one head 404":   {Op: objstore.OpHead, Key: "*/seg/*", Nth: 1, Times: 1, Fault: objstore.FaultNotFound},
		"one bad GET":    {Op: objstore.OpGet, Key: "*/seg/*", Nth: 2, Times: 1, Fault: objstore.FaultCorrupt},
		"503 of objects": {Key: "*/seg/*", Fault: objstore.FaultSlowDown},
		"no such store":  {Fault: objstore.FaultNotFound},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, func(r *rig) { r.cfg.ReadEvery, r.cfg.Survey = 24*time.Hour, 24*time.Hour }, func(r *rig) {
				g := r.leadWith(r.newLog(0, defaultTopic()), 4)
				r.pass(time.Minute)
				puts := r.counted.Stats().Put.Requests
				live := r.live(g)
				r.faulty.Set(rule)
				r.complain(g, live[1].ID)
				r.pass(5 * 24 * time.Hour)
				if st := r.status(g); len(st.Damaged) != 0 {
					t.Errorf("named %+v", st.Damaged)
				}
				if c := r.m.Counters()[g.p.Topic]; c.FoundDamaged != 0 {
					t.Errorf("%+v", c)
				}
				if n := r.counted.Stats().Put.Requests - puts; n != 0 {
					t.Errorf("%d puts", n)
				}
			})
		})
	}
}

// Reading keeps to its limits, over all partitions together.
func TestScrubKeepsToItsLimits(t *testing.T) {
	for _, limit := range []struct {
		bytes, requests int64
		objects         int64 // of some 600 bytes, read in a day at most
	}{{0, 48, 49}, {1, 0, 250}} {
		inRig(t, func(r *rig) {
			r.cfg.Survey, r.cfg.ReadEvery = 0, time.Hour
			r.cfg.ScrubBytesPerSecond, r.cfg.ScrubRequestsPerDay = limit.bytes, limit.requests
		}, func(r *rig) {
			for i := range 3 {
				r.leadWith(r.newLog(i, defaultTopic()), 30)
			}
			r.pass(time.Minute)
			before := r.counted.Stats()
			r.pass(24 * time.Hour)
			got := r.counted.Stats()
			if n := got.Get.Requests - before.Get.Requests; int64(n) > limit.objects || n < 20 {
				t.Errorf("%d requests in a day, limits %+v", n, limit)
			}
			if n := got.Get.Bytes - before.Get.Bytes; limit.bytes > 0 && int64(n) > 86_400*limit.bytes+2000 {
				t.Errorf("%d bytes in a day, limits %+v", n, limit)
			}
			for i := range 3 {
				if c := r.m.Counters()[rigPartition(i).Topic]; c.ScrubRequests == 0 {
					t.Errorf("%s was not read: %+v", rigPartition(i), c)
				}
			}
		})
	}
}

// A restart goes on where reading was, and a pass that is over is not begun again
// before its time.
func TestScrubGoesOnAfterARestart(t *testing.T) {
	mem := objstore.NewMem(0)
	path := filepath.Join(t.TempDir(), "manifests.db")
	w := newWorld(1)
	ctx := context.Background()
	a := openTest(t, testConfig(t), mem, path)
	r := a.Partition(testPartition)
	offload(t, r, 0, w.segment(3, 3), w.segment(3, 3), w.segment(3, 3))
	step := func(r *Remote, p scrubPlace) scrubPlace {
		t.Helper()
		got, err := r.scrub(ctx, p, 1000)
		if err != nil || len(got.suspects) != 0 {
			t.Fatalf("%+v, %v", got, err)
		}
		if err := r.a.db.putScrub(r.key, got.next); err != nil {
			t.Fatal(err)
		}
		return got.next
	}
	p := step(r, scrubPlace{})
	if p.offset != w.segments[0].end || p.began != 1000 {
		t.Fatalf("%+v", p)
	}
	closeTest(t, a)
	a = openTest(t, testConfig(t), mem, path)
	r = a.Partition(testPartition)
	if got := a.db.scrubAt(r.key); got != p {
		t.Fatalf("goes on at %+v, was at %+v", got, p)
	}
	p = step(r, step(r, a.db.scrubAt(r.key)))
	if p = step(r, p); !p.done || a.db.scrubAt(r.key) != p {
		t.Errorf("%+v, kept %+v", p, a.db.scrubAt(r.key))
	}
	if err := a.Forget(testPartition); err != nil {
		t.Fatal(err)
	}
	if got := a.db.scrubAt(r.key); got != (scrubPlace{}) {
		t.Errorf("forgotten, and goes on at %+v", got)
	}
}

// A new process goes on with the pass of the one before, and waits for the next one's time.
func TestLeaderGoesOnReadingAfterARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "manifests.db")
	inRig(t, func(r *rig) {
		r.db, r.cfg.Survey = path, 0
		r.cfg.ReadEvery, r.cfg.ScrubRequestsPerDay = 30*24*time.Hour, 24
	}, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 10)
		r.pass(6*time.Hour + time.Minute)
		first := r.m.Counters()[g.p.Topic]
		if first.ScrubRequests < 5 || first.ScrubPasses != 0 {
			t.Fatalf("in 6 hours at one an hour %+v", first)
		}
		r.restart()
		g = r.leadWith(g.again(2), 0)
		r.pass(20 * 24 * time.Hour)
		if c := r.m.Counters()[g.p.Topic]; c.ScrubPasses != 1 || first.ScrubRequests+c.ScrubRequests > 11 {
			t.Errorf("%+v, and after the restart %+v; there are 10 objects", first, c)
		}
	})
}

// Who has no lease may have been deposed, and who was fenced is: neither reads on.
func TestDeposedLeaderDoesNotScrub(t *testing.T) {
	inRig(t, func(r *rig) { r.cfg.ReadEvery, r.cfg.ScrubRequestsPerDay = time.Hour, 0 }, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 3)
		r.pass(2 * time.Hour)
		requests := func() int64 { return r.m.Counters()[g.p.Topic].ScrubRequests }
		if requests() == 0 {
			t.Fatal("nothing was read")
		}
		g.unleased.Store(true)
		before := requests()
		r.pass(24 * time.Hour)
		if n := requests() - before; n != 0 {
			t.Errorf("%d requests without a lease", n)
		}
		g.unleased.Store(false)
		r.pass(2 * time.Hour)
		if requests() == before {
			t.Error("nothing is read with the lease back")
		}
		r.m.Resign(g.p)
		r.pass(time.Second)
		before = requests()
		r.pass(24 * time.Hour)
		if n := requests() - before; n != 0 {
			t.Errorf("%d requests after the leadership", n)
		}
	})
}
