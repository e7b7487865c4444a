package tier

import (
	"bytes"
	"context"
	"math"

	"github.com/varvelog/varve/tier/objstore"
)

// simDamage is what somebody has done to objects that the manifest names.
type simDamage struct {
	spoilt map[SegmentID][]byte // as they were
	live   map[int64]SegmentID  // what the manifest had at each base, when it was last checked
	ever   map[SegmentID]bool
	mended int
}

func newSimDamage() simDamage {
	return simDamage{spoilt: map[SegmentID][]byte{}, ever: map[SegmentID]bool{}, live: map[int64]SegmentID{}}
}

// spoil takes a live object away, cuts it short or changes a byte of it, or puts one
// back.
func (s *sim) spoil() {
	ctx := context.Background()
	r := s.truth.Partition(simPartition)
	_, segments := s.truthState()
	if len(segments) == 0 {
		return
	}
	x := segments[s.rng.IntN(len(segments))]
	if s.rng.IntN(3) > 0 {
		x = segments[len(segments)-1] // the likeliest to be on a disk still
	}
	key := r.Key(x.ID)
	if whole, ok := s.damage.spoilt[x.ID]; ok {
		delete(s.damage.spoilt, x.ID)
		s.mustPut(key, whole)
		return
	}
	if s.rng.IntN(4) == 0 { // a reader complains of what is sound
		s.leader.step(evSuspect{simPartition, MarkID{KeySegment, x.ID}})
		return
	}
	body, _, err := objstore.ReadAll(ctx, s.mem, key, math.MaxInt32)
	if err != nil {
		s.fail("object %s: %v", key, err)
		return
	}
	s.damage.spoilt[x.ID] = bytes.Clone(body)
	s.damage.ever[x.ID] = true
	switch at := s.rng.IntN(len(body)); s.rng.IntN(3) {
	case 0:
		if err := s.mem.Delete(ctx, key); err != nil {
			s.fail("%v", err)
		}
	case 1:
		s.mustPut(key, body[:at])
	default:
		body[at] ^= 0x40
		s.mustPut(key, body)
	}
	if s.rng.IntN(2) == 0 { // a reader finds it
		s.leader.step(evSuspect{simPartition, MarkID{KeySegment, x.ID}})
	}
}

func (s *sim) mustPut(key string, b []byte) {
	if _, err := s.mem.Put(context.Background(), key, objstore.Bytes(b), objstore.PutOptions{}); err != nil {
		s.fail("%v", err)
	}
}

// told takes what a core has to say of an object: nothing is damaged that nobody
// has damaged.
func (s *sim) told(e fxTell) {
	switch {
	case e.tale == taleFound && !s.damage.ever[e.found.segment.ID]:
		s.fail("%s is said to be %s", e.found.key, e.found.fault)
	case e.tale == taleMended:
		s.damage.mended++
	}
}

// checkReplaced: what is put anew was damaged. That it has the same range, and the
// right bytes, is looked at as with every new object.
func (s *sim) checkReplaced(segments []RemoteSegment) {
	live := map[int64]SegmentID{}
	for _, x := range segments {
		live[x.ID.Base] = x.ID
		if old, ok := s.damage.live[x.ID.Base]; ok && old != x.ID && !s.damage.ever[old] {
			s.fail("segment at %d was put anew, and the old one was sound", x.ID.Base)
		}
	}
	s.damage.live = live
}

// settledDamage: what was damaged and is local to the leader is whole again, and what
// is not is named.
func (s *sim) settledDamage(segments []RemoteSegment) {
	p := s.leader.core.parts[simPartition]
	named := map[string]bool{}
	for _, d := range p.damaged() {
		named[d.Key] = true
	}
	r := s.truth.Partition(simPartition)
	for _, x := range segments {
		if s.damage.spoilt[x.ID] == nil || x.End <= s.last.Start {
			continue
		}
		if !named[r.Key(x.ID)] {
			s.fail("%s is damaged, and not named; %s", r.Key(x.ID), describe(p))
		}
		if _, err := spanOf(s.leader.log.segmentsFrom(x.ID.Base), x.ID.Base, x.End); err == nil {
			s.fail("%s is damaged, its records are local, and it was not put anew; %s", r.Key(x.ID), describe(p))
		}
	}
}

func (l *simLog) segmentsFrom(from int64) (list []Segment) {
	for _, x := range l.sealedFrom(from, math.MaxInt64) {
		list = append(list, x)
	}
	return list
}

// mend puts a damaged object anew.
func (b *simBroker) mend(ctx context.Context, e fxMend, a answer) event {
	job := &mending{
		remote: b.remote, id: e.object, epoch: e.epoch, now: b.wall(), broken: b.s.ccfg.broken, random: b.s.rng.Uint64(),
		sealed: b.log.segmentsFrom,
		named: func(key string) {
			if !b.settled[e.id] && e.gen == b.gen {
				b.own[e.id] = key
			}
		},
	}
	add, err := job.run(ctx)
	return evMended{answer: a.with(err), id: e.id, object: e.object, bytes: e.bytes, add: add, put: job.put.Load(), read: job.meter.tally()}
}
