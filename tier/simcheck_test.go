package tier

import (
	"bytes"
	"context"
	"slices"
	"strings"

	"github.com/varvelog/varve/tier/objstore"
)

// truthState reads the bucket's manifest without faults.
func (s *sim) truthState() (State, []RemoteSegment) {
	r := s.truth.Partition(simPartition)
	st, err := r.Refresh(context.Background())
	if err != nil {
		s.fail("the manifest cannot be read: %v", err)
		return s.last, nil
	}
	var segments []RemoteSegment
	if err := r.Segments(context.Background(), -1, func(x RemoteSegment) bool {
		segments = append(segments, x)
		return true
	}); err != nil {
		s.fail("the manifest's pages cannot be read: %v", err)
	}
	return st, segments
}

// putDone checks the manifest whenever a head was written.
func (s *sim) putDone(key string) {
	if strings.HasSuffix(key, "/head") {
		s.checkManifest()
	}
}

// checkManifest: coverage contiguous and exact, every object there, every byte
// what was committed, the start moved only by right.
func (s *sim) checkManifest() {
	st, segments := s.truthState()
	if reset := st.End < 0 && s.last.Dropped; !reset && (st.Start < s.last.Start || st.End < s.last.End) {
		s.fail("the manifest went back from [%d, %d) to [%d, %d)", s.last.Start, s.last.End, st.Start, st.End)
	}
	if st.LeaderEpoch > s.epoch {
		s.fail("the manifest is held by epoch %d, the controller has named %d at most", st.LeaderEpoch, s.epoch)
	}
	next := int64(-1)
	for _, x := range segments {
		if next >= 0 && x.ID.Base != next {
			s.fail("coverage has a seam: [%d, %d) follows an end of %d", x.ID.Base, x.End, next)
		}
		next = x.End
		key := s.truth.Partition(simPartition).Key(x.ID)
		obj, err := s.mem.Head(context.Background(), key)
		if s.damage.spoilt[x.ID] == nil && (err != nil || obj.Size != x.StoredBytes) {
			s.fail("referenced object %s: size %d of %d, %v", key, obj.Size, x.StoredBytes, err)
			continue
		}
		if !s.checked[x.ID] {
			s.checked[x.ID] = true
			s.checkContent(x, st.Start)
		}
	}
	s.checkReplaced(segments)
	if next >= 0 && next != st.End {
		s.fail("coverage ends at %d, the manifest says %d", next, st.End)
	}
	if st.Start > s.last.Start && s.last.Start >= 0 {
		s.checkStart(s.leader, s.last.Start, st.Start, "archive start")
	}
	s.last = st
	marked, err := s.truth.Partition(simPartition).Marked(context.Background())
	if err != nil {
		s.fail("marks cannot be read: %v", err)
	}
	for _, m := range marked {
		if _, ok := s.marks[m.MarkID]; !ok {
			s.marks[m.MarkID] = s.now
		}
	}
}

// checkContent compares an archived segment with what was committed, from the
// archive's start on: what is put anew may lie on both sides of it.
func (s *sim) checkContent(x RemoteSegment, start int64) {
	if x.End > s.trueHW() {
		s.fail("segment [%d, %d) was archived above the high watermark %d", x.ID.Base, x.End, s.trueHW())
		return
	}
	r := s.truth.Partition(simPartition)
	for off := max(x.ID.Base, start); off < x.End; {
		chunk, err := r.Read(context.Background(), off, 1<<20, x.End)
		if err != nil {
			s.fail("archived segment [%d, %d) cannot be read at %d: %v", x.ID.Base, x.End, off, err)
			return
		}
		i, ok := slices.BinarySearchFunc(s.committed, chunk.StartOffset(), func(y simBatch, o int64) int { return int(y.base - o) })
		if !ok {
			s.fail("archived batch at %d is not one that was committed", chunk.StartOffset())
			return
		}
		got := chunk.Bytes()
		for len(got) > 0 && i < len(s.committed) {
			want := s.committed[i].bytes
			if !bytes.HasPrefix(got, want) {
				s.fail("archived bytes at %d differ from what was committed", s.committed[i].base)
				return
			}
			got, i = got[len(want):], i+1
		}
		off = chunk.NextOffset()
		chunk.Release()
	}
}

// checkStart: a start may rise from one offset to another only over data that was
// deleted on request, or that retention lets go, by the broker's own clock.
func (s *sim) checkStart(b *simBroker, from, to int64, what string) {
	if to <= s.deleted {
		return
	}
	if s.ccfg.broken == mutantNone && to > s.trueHW() {
		s.fail("%s moved to %d, above the high watermark %d", what, to, s.trueHW())
	}
	newest := int64(-1 << 62)
	for _, x := range s.committed {
		if x.end > max(from, s.deleted) && x.base < to {
			newest = max(newest, x.ts)
		}
	}
	var after int64
	for _, x := range s.committed {
		if x.base >= to {
			after += int64(len(x.bytes))
		}
	}
	for _, seg := range append(slices.Clone(b.log.sealed), b.log.active) {
		for _, x := range seg.batches {
			if x.base >= max(to, s.trueHW()) {
				after += int64(len(x.bytes))
			}
		}
	}
	// The decision was made some seconds ago, maybe under an earlier setting or by
	// a clock that has been set since.
	for i, c := range s.configs {
		if i+1 < len(s.configs) && s.configs[i+1].at < s.now-200_000 {
			continue
		}
		if !c.cfg.Enabled {
			return
		}
		if c.cfg.RetentionMillis >= 0 && newest+c.cfg.RetentionMillis < s.maxWall {
			return
		}
		if c.cfg.RetentionBytes >= 0 && after >= c.cfg.RetentionBytes {
			return
		}
		// Size and time may each take a part of the range.
		if c.cfg.RetentionMillis >= 0 && c.cfg.RetentionBytes >= 0 {
			return
		}
	}
	s.fail("%s of %s moved from %d to %d against retention (newest %d, %d bytes after, latest config %+v)",
		what, b.name, from, to, newest, after, s.configs[len(s.configs)-1].cfg)
}

// checkRemoteEnd: local data is released only for what the bucket holds (T1).
func (s *sim) checkRemoteEnd(b *simBroker, end int64) {
	if end < 0 {
		return
	}
	st, _ := s.truthState()
	if end > st.End {
		s.fail("%s was told a remote end of %d, the bucket ends at %d", b.name, end, st.End)
	}
}

// checkDelete: no object goes that the manifest names, none that is marked before
// the grace is over.
func (s *sim) checkDelete(keys []string) {
	_, segments := s.truthState()
	live := map[string]bool{}
	r := s.truth.Partition(simPartition)
	for _, x := range segments {
		live[r.Key(x.ID)] = true
	}
	for _, k := range keys {
		if live[k] || strings.HasSuffix(k, "/head") {
			s.fail("object %s is deleted though the manifest names it", k)
		}
		info, _ := s.truth.Config().ParseKey(k)
		if at, ok := s.marks[MarkID{info.Kind, info.ID}]; ok && s.now-at < s.ccfg.graceMillis {
			s.fail("object %s is deleted %d ms after its mark", k, s.now-at)
		}
	}
}

// checkReadable: every acknowledged offset from the log start on is in the
// leader's log or in the bucket.
func (s *sim) checkReadable() {
	st, _ := s.truthState()
	l := s.leader.log
	start := max(l.logStart, min(st.Start, l.localStart()))
	local := l.localStart()
	if st.Dropped || st.End < 0 {
		start = local // given up: the log begins with its local part
	}
	if start >= s.trueHW() || local <= start {
		return
	}
	if st.End < 0 || st.Start > start || st.End < local {
		s.fail("offsets [%d, %d) are in neither tier: local from %d, bucket [%d, %d)", start, local, local, st.Start, st.End)
	}
	if l.end() < s.trueHW() {
		s.fail("the leader's log [%d, %d) of %s ends below the high watermark %d", l.localStart(), l.end(), s.leader.name, s.trueHW())
		for _, b := range s.brokers {
			s.fail("%s: %+v, epoch %d", b.name, b.log.offsets(), b.epoch)
		}
	}
}

// settled: after the faults have ended the backlog is uploaded, what was marked
// is deleted and no orphan is left.
func (s *sim) settled() {
	if len(s.violations) > 0 {
		return
	}
	s.checkManifest()
	s.checkReadable()
	st, segments := s.truthState()
	l := s.leader.log
	p := s.leader.core.parts[simPartition]
	if n := len(l.sealed); n > 0 && st.End < l.sealed[n-1].end && l.sealed[n-1].end > l.logStart {
		s.fail("the backlog did not drain: bucket ends at %d, sealed to %d, stable %d; %s", st.End, l.sealed[n-1].end,
			l.offsets().stable(), describe(p))
	}
	if st.Dropped {
		s.fail("the archive that was given up is not reset; %s", describe(p))
	}
	if st.End >= 0 && st.Start < l.logStart && st.End > l.logStart {
		s.fail("the archive starts at %d though the log starts at %d; %s", st.Start, l.logStart, describe(p))
	}
	if len(segments) > 0 && segments[0].End <= st.Start {
		s.fail("segments below the archive's start %d were never marked; %s", st.Start, describe(p))
	}
	if st.Marked > 0 {
		s.fail("%d marks were never deleted; %s", st.Marked, describe(p))
	}
	if len(p.deleting) > 0 || len(p.purge) > 0 || len(p.marks) > 1 || len(p.uploads) > 0 || p.mending() {
		s.fail("%d deletions, %d purges, %d sightings, %d uploads are still remembered; %s", len(p.deleting), len(p.purge),
			len(p.marks), len(p.uploads), describe(p))
	}
	named := map[string]bool{}
	r := s.truth.Partition(simPartition)
	for _, x := range segments {
		named[r.Key(x.ID)] = true
	}
	marked, _ := r.Marked(context.Background())
	for _, m := range marked {
		named[m.Key] = true
	}
	s.settledDamage(segments)
	orphans := 0
	s.mem.List(context.Background(), r.Prefix(), "", func(o objstore.Object) bool {
		info, ok := s.truth.Config().ParseKey(o.Key)
		if ok && info.Kind == KeySegment && !named[o.Key] {
			_, wasMarked := s.marks[MarkID{info.Kind, info.ID}]
			if orphans < 3 {
				s.fail("orphan %s put at %d, marked %t, ever live %t", o.Key, s.store.modified[o.Key], wasMarked, s.checked[info.ID])
			}
			orphans++
		}
		return true
	})
	if orphans > 0 {
		s.fail("%d orphans were never collected; %s", orphans, describe(p))
	}
}
