package tier

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

func TestDeletedTopicLeavesTheBucketEmpty(t *testing.T) {
	var mu sync.Mutex
	removed := map[topic.Partition]int{}
	inRig(t, func(r *rig) {
		r.deps.Removed = func(p topic.Partition) {
			mu.Lock()
			defer mu.Unlock()
			removed[p]++
		}
	}, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 5)
		never := r.newLog(1, defaultTopic())
		r.pass(time.Second)
		for _, p := range []topic.Partition{g.p, never.p} {
			if err := r.m.TopicDeleted(p); err != nil {
				t.Fatal(err)
			}
		}
		r.pass(time.Minute)
		if n, _ := r.objects(g.p); n != 5 || !r.state(g.p).Retired {
			t.Errorf("%d objects, state %+v: within the grace all must be there, retired", n, r.state(g.p))
		}
		// A leader that has never claimed, and has not heard of the deletion.
		other, err := OpenArchive(DefaultConfig(), Deps{Store: r.mem})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close(context.Background())
		if err := other.Partition(never.p).Claim(context.Background(), 1); !errors.Is(err, ErrFenced) {
			t.Errorf("a first manifest of a deleted partition: %v", err)
		}
		r.pass(20 * time.Minute)
		if n, others := r.objects(g.p); n != 0 || others != 1 {
			t.Errorf("%d segments and %d other objects, want the retired head alone", n, others)
		}
		// An upload that was on its way when the first sweep ran.
		if _, err := r.mem.Put(context.Background(), r.archive.Partition(g.p).Key(SegmentID{Base: 10, Epoch: 1, Random: 5}),
			objstore.Bytes([]byte("late")), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		r.pass(5 * time.Hour)
		if n, others := r.objects(g.p); n+others != 0 {
			t.Errorf("%d segments and %d other objects left", n, others)
		}
		if n, others := r.objects(never.p); n+others != 0 {
			t.Errorf("%d segments and %d other objects of a partition that was never archived", n, others)
		}
		if removed[g.p] != 1 || removed[never.p] != 1 {
			t.Errorf("reported %d and %d times as removed", removed[g.p], removed[never.p])
		}
	})
}

// Every broker removes what a deleted topic has in the bucket. That another one has
// done so already, and a late leader begun anew, is no damage to whoever knew more.
func TestRemovalGoesByTheBucketNotByWhatWasKnown(t *testing.T) {
	for _, begun := range []bool{false, true} {
		t.Run(fmt.Sprintf("begun anew %v", begun), func(t *testing.T) {
			removed := 0
			var mu sync.Mutex
			inRig(t, func(r *rig) {
				r.deps.Removed = func(topic.Partition) {
					mu.Lock()
					defer mu.Unlock()
					removed++
				}
			}, func(r *rig) {
				g := r.leadWith(r.newLog(0, defaultTopic()), 3)
				r.pass(time.Second)
				r.m.Resign(g.p)
				var keys []string
				r.mem.List(context.Background(), r.archive.Partition(g.p).Prefix(), "", func(o objstore.Object) bool {
					keys = append(keys, o.Key)
					return true
				})
				if err := r.mem.Delete(context.Background(), keys...); err != nil || len(keys) != 4 {
					t.Fatal(keys, err)
				}
				if begun {
					other, err := OpenArchive(DefaultConfig(), Deps{Store: r.mem})
					if err != nil {
						t.Fatal(err)
					}
					defer other.Close(context.Background())
					if err := other.Partition(g.p).Claim(context.Background(), 1); err != nil {
						t.Fatal(err)
					}
				}
				if err := r.m.TopicDeleted(g.p); err != nil {
					t.Fatal(err)
				}
				r.pass(6 * time.Hour)
				if n, others := r.objects(g.p); n+others != 0 {
					t.Errorf("%d segments and %d other objects left", n, others)
				}
				if removed != 1 {
					t.Errorf("reported %d times as removed", removed)
				}
			})
		})
	}
}

// A deleted partition whose manifest cannot be read keeps what it has in the bucket,
// is told, and holds nobody else up; once somebody has seen to it, it goes.
func TestUnreadableManifestStopsItsOwnRemovalAlone(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		ctx := context.Background()
		bad := r.leadWith(r.newLog(0, defaultTopic()), 3)
		good := r.leadWith(r.newLog(1, defaultTopic()), 3)
		r.pass(time.Second)
		head := r.archive.Partition(bad.p).headKey()
		body, _, err := objstore.ReadAll(ctx, r.mem, head, headBytesMax)
		if err != nil {
			t.Fatal(err)
		}
		body[len(body)/2] ^= 1
		if _, err := r.mem.Put(ctx, head, objstore.Bytes(body), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, g := range []*rigLog{bad, good} {
			if err := r.m.TopicDeleted(g.p); err != nil {
				t.Fatal(err)
			}
		}
		before := r.counted.Stats().Get.Requests
		r.pass(48 * time.Hour)
		if n, others := r.objects(bad.p); n != 3 || others != 1 {
			t.Errorf("%d segments and %d other objects: something went that an unreadable manifest may name", n, others)
		}
		if n, others := r.objects(good.p); n+others != 0 {
			t.Errorf("%d objects of another deleted partition are left", n+others)
		}
		if n := r.counted.Stats().Get.Requests - before; n > 24 {
			t.Errorf("%d reads in two days of what an operator has to see to", n)
		}
		left := r.m.Removals()
		if len(left) != 1 || left[0].Partition != bad.p || !left[0].Blocked || !errors.Is(left[0].LastError.Err, ErrCorrupt) {
			t.Errorf("removals are %+v", left)
		}
		if err := r.mem.Delete(ctx, head); err != nil {
			t.Fatal(err)
		}
		r.pass(12 * time.Hour)
		if n, others := r.objects(bad.p); n+others != 0 || len(r.m.Removals()) != 0 {
			t.Errorf("%d objects and %+v are left after the operator's deletion", n+others, r.m.Removals())
		}
	})
}

func TestTopicDeletionGoesOnAfterARestart(t *testing.T) {
	inRig(t, func(r *rig) { r.deps.JournalPath = filepath.Join(r.t.TempDir(), "deletions") }, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 3)
		r.pass(time.Second)
		r.faulty.Set(objstore.Rule{Fault: objstore.FaultSlowDown})
		if err := r.m.TopicDeleted(g.p); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Hour)
		r.restart()
		r.pass(time.Hour)
		if n, _ := r.objects(g.p); n != 3 {
			t.Errorf("%d objects", n)
		}
		r.faulty.Set()
		r.pass(6 * time.Hour)
		if n, others := r.objects(g.p); n+others != 0 {
			t.Errorf("%d segments and %d other objects left", n, others)
		}
		r.restart()
		n := r.counted.Stats().Requests()
		r.pass(24 * time.Hour)
		if got := r.counted.Stats().Requests(); got != n {
			t.Errorf("%d requests for a removal that was done", got-n)
		}
	})
}

func TestDeletedTopicIsNotLedAgainAndFencesLateLeaders(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 3)
		r.pass(time.Second)
		if err := r.m.TopicDeleted(g.p); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		late := g.again(9)
		late.lead = r.m.Lead(late)
		late.fill(2, 2)
		cfg := DefaultConfig()
		other, err := OpenArchive(cfg, Deps{Store: r.mem})
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close(context.Background())
		if err := other.Partition(g.p).Claim(context.Background(), 10); err == nil {
			t.Error("another leader claimed a retired manifest")
		}
		r.pass(6 * time.Hour)
		if n, others := r.objects(g.p); n+others != 0 {
			t.Errorf("%d segments and %d other objects left", n, others)
		}
	})
}

// Of a node's partitions most may not be tiered: the core keeps next to nothing
// of them, and takes them up when that changes.
func TestPartitionsWithoutTieringSleepUntilTheyHaveIt(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		off := defaultTopic()
		off.Enabled = false
		g := r.leadWith(r.newLog(0, off), 2)
		g.lead.Rolled()
		r.pass(time.Hour)
		r.m.inspect(func(c *core, _ instant) {
			if len(c.parts) != 0 || len(c.asleep) != 1 {
				t.Errorf("%d partitions awake, %d asleep", len(c.parts), len(c.asleep))
			}
			if _, ok := c.next(); ok {
				t.Error("a timer is armed")
			}
		})
		if st, ok := r.m.PartitionStatus(g.p); !ok || st.Phase != "disabled" || st.RemoteEnd != -1 {
			t.Errorf("status %+v, %v", st, ok)
		}
		if n := r.counted.Stats().Requests(); n != 0 {
			t.Errorf("%d requests", n)
		}
		g.set(func(c *TopicConfig) { c.Enabled = true })
		r.pass(time.Minute)
		r.wantEnd(g, g.end())
		g.fill(2, 3) // and its wakes are heard
		r.pass(time.Second)
		r.wantEnd(g, g.end())

		// An older epoch does not take it over, asleep or not; a newer one does.
		other := r.leadWith(r.newLog(1, off), 1)
		other.epoch = 0
		r.m.Lead(other)
		r.pass(time.Second)
		r.m.inspect(func(c *core, _ instant) {
			if c.asleep[other.p].epoch != 1 {
				t.Errorf("asleep under epoch %d", c.asleep[other.p].epoch)
			}
		})
		r.m.Resign(other.p)
		r.m.Resign(g.p)
		r.pass(time.Second)
		r.m.inspect(func(c *core, _ instant) {
			if len(c.parts)+len(c.asleep) != 0 {
				t.Errorf("%d partitions awake and %d asleep after they were resigned", len(c.parts), len(c.asleep))
			}
		})
		if n := len(r.m.byGen); n != 0 {
			t.Errorf("%d leaderships are remembered", n)
		}
	})
}
