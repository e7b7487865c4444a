package tier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// complain is what a reader does that meets damage.
func (r *rig) complain(g *rigLog, id SegmentID) {
	(*r.archive.onSuspect.Load())(g.p, MarkID{KeySegment, id})
}

// Local data stays while the bucket has not got what it should, and goes once it has.
// That it stays is told; and what a store refused for a day is tried again soon.
func TestLocalLogIsKeptForWhatTheBucketHasLost(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g, before := r.leadSpoilt(4, 2, FaultMissing)
		r.wantEnd(g, g.end())
		lost := before[2].ID
		r.faulty.Set(objstore.Rule{Op: objstore.OpPut, Key: "*/seg/*", Fault: objstore.FaultSlowDown})
		r.complain(g, lost)
		r.pass(time.Second)
		if got := g.remoteEnd(); got != lost.Base {
			t.Fatalf("the log may let go what is below %d; the object at %d is gone", got, lost.Base)
		}
		g.fill(1, 3) // others get on
		r.pass(24 * time.Hour)
		st := r.status(g)
		if g.remoteEnd() != lost.Base || !st.Stuck || st.LastError == nil {
			t.Errorf("after a day, remote end %d, status %+v", g.remoteEnd(), st)
		}
		r.faulty.Set()
		r.pass(11 * time.Minute)
		r.wantEnd(g, g.end())
		if st := r.status(g); st.Stuck || len(st.Damaged) != 0 || st.LastError != nil {
			t.Errorf("mended, and status %+v", st)
		}
		if got := r.read(g); !bytes.Equal(got, g.bytes()) {
			t.Error("other records than were written")
		}
	})
}

// Nothing is kept for an object that is sound, or that cannot be mended from here.
func TestLocalLogIsNotKeptForWhatCannotBeMended(t *testing.T) {
	for name, spoil := range map[string]func(r *rig, g *rigLog, key string){
		"sound": func(*rig, *rigLog, string) {},
		"not here": func(r *rig, g *rigLog, key string) {
			g.release(g.segments()[1].end)
			spoilers[FaultMissing](r, key)
		},
		"other records": func(r *rig, g *rigLog, key string) {
			g.mu.Lock()
			s := g.l.sealed[1]
			b := s.batches[1]
			s.batches[1] = makeBatch(b.base, b.epoch, b.ts, int(b.end-b.base), "other")
			g.mu.Unlock()
			spoilers[FaultBytes](r, key)
		},
	} {
		t.Run(name, func(t *testing.T) {
			inRig(t, func(r *rig) { r.cfg.RecheckAfter = time.Minute }, func(r *rig) {
				g := r.leadWith(r.newLog(0, defaultTopic()), 4)
				r.pass(time.Minute)
				id := r.live(g)[1].ID
				spoil(r, g, r.archive.Partition(g.p).Key(id))
				r.complain(g, id)
				r.pass(time.Hour)
				r.wantEnd(g, g.end())
				if st := r.status(g); st.Stuck {
					t.Errorf("stuck: %+v", st)
				}
			})
		})
	}
}

// A store that fails while an object is put anew is no reason to give it up.
func TestMendingIsGivenUpForTheLocalLogOnly(t *testing.T) {
	p := &partition{log: logView{LogOffsets: LogOffsets{LocalStart: 10}}}
	d := func(base int64) *doubtful {
		return &doubtful{object: MarkID{Kind: KeySegment}, found: examined{base: base}}
	}
	for _, err := range []error{errNoLease, objstore.ErrUnavailable, context.DeadlineExceeded, errNotEnded, &CorruptError{Key: "page"}, errUnsound} {
		for _, x := range []*doubtful{d(0), d(10)} {
			for range 2 * doubtMissesMax {
				if p.givesUp(x, err) {
					t.Errorf("gives up at %d after %v", x.found.base, err)
				}
			}
		}
	}
	if !p.givesUp(d(0), errNotLocal) || !p.givesUp(d(10), errOtherRecords) {
		t.Error("goes on with what cannot succeed")
	}
	for _, err := range []error{errNotLocal, errLocalDamage} { // it may be whole again soon
		x, n := d(10), 1
		for ; !p.givesUp(x, err); n++ {
		}
		if n != doubtMissesMax {
			t.Errorf("gives up after %d times of %v", n, err)
		}
	}
}

// A mending that does not end in time may put its object later.
func TestMendingLeftBehindMayHavePut(t *testing.T) {
	stubborn := &stubbornStore{}
	inRig(t, func(r *rig) {
		stubborn.Store, stubborn.stall = r.store, make(chan struct{}) // of the bubble
		r.store = stubborn
	}, func(r *rig) {
		g, before := r.leadSpoilt(2, 0, FaultMissing)
		id := before[0].ID
		stubborn.heads.Store(2) // of the examination
		r.complain(g, id)
		r.pass(time.Hour)
		planned := false
		r.m.inspect(func(c *core, _ instant) { planned = c.parts[g.p].suspect || c.parts[g.p].collectAt != 0 })
		close(stubborn.stall)
		if !planned {
			t.Error("nobody looks for what it may put")
		}
		r.pass(time.Minute)
	})
}

// stubbornStore does not let go of HEADs of segments, after the first few of what is
// gone, and does not care for contexts.
type stubbornStore struct {
	objstore.Store
	heads atomic.Int32
	stall chan struct{}
}

func (s *stubbornStore) Head(ctx context.Context, key string) (objstore.Object, error) {
	obj, err := s.Store.Head(context.WithoutCancel(ctx), key)
	if strings.Contains(key, "/seg/") && errors.Is(err, objstore.ErrNotFound) {
		if s.heads.Add(-1) < 0 {
			<-s.stall
		}
	}
	return obj, err
}

func (s *stubbornStore) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, objstore.Object, error) {
	return s.Store.Get(context.WithoutCancel(ctx), key, off, n)
}

// A commit may succeed while another answer says that this leader has been fenced.
func TestCommitThatSucceedsAfterTheFence(t *testing.T) {
	c := newCore(coreConfig{uploads: 1, calls: 1, deletes: 1, seed: 1})
	now := instant{1, 1}
	id := rigPartition(1)
	c.step(evLead{p: id, gen: 1, epoch: 1, cfg: defaultTopic()}, now)
	p := c.parts[id]
	p.uploads = []*upload{{id: 1, end: 5, state: uploadDone}}
	p.committing = &commitment{uploads: 1, ids: []uint64{1}, start: -1}
	if !c.callSlots.take(p, 0) || !c.deleteSlots.take(p, 0) {
		t.Fatal("no slots")
	}
	c.step(evCollected{answer: answer{p: id, gen: 1, err: ErrFenced}}, now)
	c.step(evCommitted{answer: answer{p: id, gen: 1}, state: State{End: 5, Sequence: 2}}, now)
	if !p.fenced || p.committing != nil || !c.callSlots.take(p, 0) {
		t.Errorf("fenced %t, committing %v", p.fenced, p.committing)
	}
}

// Damage of an archive that was given up is nobody's concern.
func TestDamageOfADroppedArchiveIsForgotten(t *testing.T) {
	inRig(t, nil, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 3)
		r.pass(time.Minute)
		g.release(g.segments()[0].end)
		id := r.live(g)[0].ID
		r.spoil(g, id, FaultMissing)
		r.complain(g, id)
		r.pass(time.Minute)
		if st := r.status(g); len(st.Damaged) != 1 {
			t.Fatalf("%+v", st)
		}
		g.set(func(cfg *TopicConfig) { cfg.Enabled, cfg.DeleteOnDisable = false, true })
		r.pass(time.Hour)
		if st := r.status(g); len(st.Damaged) != 0 {
			t.Errorf("named %+v", st.Damaged)
		}
	})
}
