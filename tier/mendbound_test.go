package tier

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// namedIn are the damaged objects that a status tells of.
func namedIn(st PartitionStatus) int { return len(st.Damaged) + st.DamagedMore }

// After a mass deletion what is on the leader's disk still is mended first, however
// much else is gone, and what cannot be mended neither takes its place nor has the
// bucket listed again and again.
func TestMassDeletionIsMendedFromTheNewestOn(t *testing.T) {
	inRig(t, func(r *rig) { r.cfg.RecheckAfter = time.Minute }, func(r *rig) {
		const doubts, old, local = 20, 30, 12
		r.m.inspect(func(c *core, _ instant) { c.cfg.doubts = doubts })
		g := r.newLog(0, defaultTopic())
		g.fill(old+local, 1)
		r.leadWith(g, 0)
		r.pass(time.Hour)
		lose := func(list []RemoteSegment) {
			for _, s := range list {
				r.spoil(g, s.ID, FaultMissing)
			}
		}
		g.release(r.live(g)[old-1].End)
		lose(r.live(g))
		r.pass(9 * 24 * time.Hour)
		if c := r.m.Counters()[g.p.Topic]; c.Mended != local || namedIn(r.status(g)) != old {
			t.Fatalf("%d mended, %d named", c.Mended, namedIn(r.status(g)))
		}
		before := r.counted.Stats().List.Requests
		r.pass(4 * 7 * 24 * time.Hour)
		if n := r.counted.Stats().List.Requests - before; n > 6 {
			t.Errorf("%d listings in four weeks", n)
		}
		if st := r.status(g); len(st.Damaged) != doubts || namedIn(st) != old {
			t.Fatalf("%d and %d others are named, of %d", len(st.Damaged), st.DamagedMore, old)
		}
		g.fill(local, 1) // and there is no room but that of the hopeless
		r.pass(time.Hour)
		lose(r.live(g)[old+local:])
		r.pass(9 * 24 * time.Hour)
		if c := r.m.Counters()[g.p.Topic]; c.Mended != 2*local || namedIn(r.status(g)) != old {
			t.Errorf("%d mended, %d named", c.Mended, namedIn(r.status(g)))
		}
		r.wantEnd(g, g.end())
	})
}

// A survey names what it misses from the newest on, and nothing by a listing that is
// not this archive's.
func TestSurveyNamesTheNewestFirst(t *testing.T) {
	id := func(base int64) MarkID { return MarkID{KeySegment, SegmentID{Base: base}} }
	s := survey{head: true, changed: []MarkID{id(5)}, sizes: map[MarkID]int64{id(1): 1, id(9): 1, id(7): 1}}
	list, again := s.absent()
	if again || !slices.Equal(list, []MarkID{id(9), id(7), id(5), id(1)}) {
		t.Errorf("%v, %t", list, again)
	}
	s.head = false
	if list, again := s.absent(); !again || len(list) > 0 {
		t.Errorf("without the head %v, %t", list, again)
	}
}

// What found no room among the doubtful, and may be local, is kept all the same.
func TestLocalLogIsKeptForWhatFoundNoRoom(t *testing.T) {
	p := newPartition(rigPartition(0), 1, 1, defaultTopic(), instant{})
	p.log.LocalStart = 10
	c := newCore(coreConfig{})
	var list []MarkID
	for i := range int64(doubtsMax + 20) {
		list = append(list, MarkID{KeySegment, SegmentID{Base: doubtsMax + 20 - i}})
	}
	if !p.mistrustAll(c, list, instant{}) || len(p.doubts) != doubtsMax || p.unnamed != 20 {
		t.Errorf("%d doubtful, %d others", len(p.doubts), p.unnamed)
	}
	if from, _ := p.keptFrom(); from != 10 {
		t.Errorf("kept from %d", from)
	}
	if p.mistrustAll(c, list[:doubtsMax], instant{}) || p.unnamed != 0 {
		t.Error("what is looked into already is to be listed again")
	}
	if from, _ := p.keptFrom(); from != 21 {
		t.Errorf("kept from %d", from)
	}
}

// meteredStore counts the GETs of segments.
type meteredStore struct {
	objstore.Store
	gets atomic.Int64
}

func (s *meteredStore) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, objstore.Object, error) {
	if strings.Contains(key, "/seg/") {
		s.gets.Add(1)
	}
	return s.Store.Get(ctx, key, off, n)
}

// An object that nobody can mend is read twice, to be sure, and then no more before
// it is written to; what is read counts with the scrub's limits.
func TestHopelessObjectIsNotReadAgain(t *testing.T) {
	metered := &meteredStore{}
	inRig(t, func(r *rig) { metered.Store, r.store = r.store, metered }, func(r *rig) {
		g := r.leadWith(r.newLog(0, defaultTopic()), 3)
		r.pass(time.Minute)
		g.release(g.segments()[1].end)
		id := r.live(g)[1].ID
		key := r.archive.Partition(g.p).Key(id)
		whole := r.object(key)
		spoilers[FaultBytes](r, key)
		metered.gets.Store(0)
		r.complain(g, id)
		r.pass(20 * 24 * time.Hour)
		if st := r.status(g); len(st.Damaged) != 1 {
			t.Fatalf("%+v", st)
		}
		if n := metered.gets.Load(); n != 2 {
			t.Errorf("read %d times", n)
		}
		if c := r.m.Counters()[g.p.Topic]; c.ScrubBytes != 2*int64(len(whole)) || c.ScrubRequests < 4 {
			t.Errorf("counted %+v for 2 times %d bytes", c, len(whole))
		}
		r.overwrite(key, bytes.Clone(whole))
		r.pass(7 * time.Hour)
		if st := r.status(g); len(st.Damaged) != 0 {
			t.Errorf("put back, and named %+v", st.Damaged)
		}
	})
}

// What an examination reads puts the scrub's next piece off.
func TestExaminationsAreChargedToTheScrub(t *testing.T) {
	c := newCore(coreConfig{scrubRate: 100, scrubPerDay: 86_400, seed: 1})
	now := instant{1000, 1000}
	for _, want := range []int64{3000, 5000} { // of one after the other
		c.scrub.chargeRead(c, readTally{200, 1}, now)
		if c.scrub.at != want {
			t.Errorf("next at %d, want %d", c.scrub.at, want)
		}
	}
	c.scrub.chargeRead(c, readTally{100, 3}, now)
	if c.scrub.at != 8000 {
		t.Errorf("next at %d", c.scrub.at)
	}
	c.scrub.chargeRead(c, readTally{}, now)
	if c.scrub.at != 8000 {
		t.Error("nothing was charged for")
	}
}
