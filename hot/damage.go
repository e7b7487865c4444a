package hot

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
)

// Damage is a run of offsets whose bytes on this disk are not what was
// written. Nothing of it is read, sent or offloaded; the offsets around it are.
type Damage struct {
	Start, End int64 // exclusive
	Segment    int64 // base offset of the segment
	Bytes      int64
	Whole      bool  // it is all of the segment, which was not looked through: it cannot be repaired before LookAgain
	Err        error // what was found first in the segment, a *CorruptError
}

// quarantine is what is known of a damaged segment: immutable.
type quarantine struct {
	err    *CorruptError
	ranges []badRange // by position; never empty
}

// badRange is a Damage with its place in the file.
type badRange struct {
	start, end int64 // offsets
	from, to   int64 // positions
}

// whole bars everything: what a segment's quarantine is until it was looked
// through.
func whole(e *CorruptError) *quarantine {
	return &quarantine{e, []badRange{{0, math.MaxInt64, 0, math.MaxInt64}}}
}

// window is the run of sound bytes in which an offset lies, if it is there at
// all, of a file of size bytes; ok is false when it lies in what is damaged.
// bounded says that damage follows.
func (q *quarantine) window(offset, size int64) (from, to int64, bounded, ok bool) {
	for _, r := range q.ranges {
		switch {
		case offset < r.start:
			return from, min(r.from, size), true, true
		case offset < r.end:
			return 0, 0, false, false
		}
		from = r.to
	}
	return min(from, size), size, false, true
}

// start is where the damage that holds an offset starts: its position and
// offset.
func (q *quarantine) start(offset int64) (pos, at int64, err error) {
	for _, r := range q.ranges {
		if r.start <= offset && offset < r.end && r.to != math.MaxInt64 {
			return r.from, r.start, nil
		}
	}
	return 0, 0, q.err
}

// below is the quarantine of what is left when the file is cut at pos, and nil
// when that is sound.
func (q *quarantine) below(pos int64) *quarantine {
	var keep []badRange
	for _, r := range q.ranges {
		if r.from < pos {
			keep = append(keep, r)
		}
	}
	if len(keep) == 0 {
		return nil
	}
	return &quarantine{q.err, keep}
}

// endedAt is the quarantine of the ranges that end at or below an offset, nil
// when there are none.
func (q *quarantine) endedAt(offset int64) *quarantine {
	if q == nil || q.ranges[0].end > offset {
		return nil
	}
	n := slices.IndexFunc(q.ranges, func(r badRange) bool { return r.end > offset })
	if n < 0 {
		n = len(q.ranges)
	}
	return &quarantine{q.err, q.ranges[:n:n]}
}

// damaged quarantines what is wrong with the segment and returns the error for
// who found it. The segment is looked through at once, so that the rest of it
// stays readable; meanwhile nobody reads any of it.
func (s *segment) damaged(pos int64, cause error) error {
	e := &CorruptError{Path: s.path(logExt), Position: pos, Err: cause}
	if !s.bad.CompareAndSwap(nil, whole(e)) {
		if q := s.bad.Load(); q != nil {
			return q.err
		}
		return e
	}
	l := s.log
	for {
		look, err := s.lookThrough()
		switch {
		case s.is(segGone):
			return ErrSegmentGone
		case err != nil: // all of it stays barred
			l.logger().Error("damaged segment cannot be looked through", "segment", s.base, "err", err)
			l.tellDamaged(e)
			return e
		case len(look.ranges) == 0:
			if l.offsets.unlessCut(look.cuts, func() { s.bad.Store(nil) }) {
				l.logger().Warn("segment seemed damaged, and every batch of it is sound", "segment", s.base, "position", pos, "err", cause)
				return e
			}
		case s.barUnlessCut(e, look):
			return e
		}
	}
}

// inspected is what lookThrough finds.
type inspected struct {
	x      *indexer   // of what is sound
	ranges []badRange // of what is not
	cuts   uint64     // truncations of the log before that
}

// barUnlessCut is bar, unless the log was truncated since the look: what was
// found then may be other bytes by now.
func (s *segment) barUnlessCut(e *CorruptError, look inspected) bool {
	if !s.log.offsets.unlessCut(look.cuts, func() { s.barQuietly(e, look.x, look.ranges) }) {
		return false
	}
	s.tellBarred(e, look.ranges)
	return true
}

// bar makes ranges of the segment unreadable, and the rest readable.
func (s *segment) bar(e *CorruptError, x *indexer, ranges []badRange) {
	s.barQuietly(e, x, ranges)
	s.tellBarred(e, ranges)
}

func (s *segment) barQuietly(e *CorruptError, x *indexer, ranges []badRange) {
	if s.is(segSealed) && s.index.Load() == nil {
		x.footer()
		s.index.Store(x.ix) // the file's may be wrong, and cannot be made anew
	}
	s.bad.Store(&quarantine{e, ranges})
}

func (s *segment) tellBarred(e *CorruptError, ranges []badRange) {
	for _, r := range ranges {
		s.log.logger().Error("damage is quarantined: what is around it is served, and it is to be fetched from a replica or the bucket",
			"segment", s.base, "start", r.start, "end", r.end, "position", r.from, "bytes", r.to-r.from, "err", e.Err)
	}
	s.log.tellDamaged(e)
}

func (l *Log) tellDamaged(*CorruptError) {
	l.finds.Add(1)
	l.store.stats.Quarantined.Add(1)
	if fn := l.store.onDamaged.Load(); fn != nil {
		(*fn)(l)
	}
}

// lookThrough checks every batch of the segment.
func (s *segment) lookThrough() (look inspected, err error) {
	size, end, cuts, err := s.extent()
	if err != nil {
		return look, err
	}
	looks := s.log.store.looks
	looks <- struct{}{}
	defer func() { <-looks }()
	h, err := s.log.store.files.acquire(s, false)
	if err != nil {
		return look, err
	}
	defer s.log.store.files.release(h)
	look.cuts = cuts
	look.x, look.ranges, err = s.log.inspect(s, h.file, size, end)
	return look, err
}

// extent is how many bytes of the segment count and where its offsets end, both
// of one moment, for an append may be under way; and how often the log was
// truncated before that.
func (s *segment) extent() (size, end int64, cuts uint64, err error) {
	at, cuts, known := s.log.offsets.place()
	if segs := s.log.list(); known && segs[len(segs)-1] == s {
		// Nothing has followed it yet, so the log ended in it or before it.
		if at.base != s.base {
			return 0, s.base, cuts, nil
		}
		return at.pos, at.end, cuts, nil
	}
	size, err = s.bytes()
	return size, s.endAfter(), cuts, err
}

// endAfter is where the segment's offsets end, as far as that is known.
func (s *segment) endAfter() int64 {
	segs := s.log.list()
	for i, other := range segs {
		if other == s && i+1 < len(segs) {
			return segs[i+1].base
		}
	}
	if end := s.log.offsets.end.Load(); end > s.base {
		return end
	}
	return math.MaxInt64 // still being opened
}

// inspect checks the first size bytes of a segment, batch by batch, and returns
// its index without what is damaged, and that. The offsets there end at end.
func (l *Log) inspect(seg *segment, f vfs.File, size, end int64) (*indexer, []badRange, error) {
	x := newIndexer(seg.base, l.config.Load().IndexIntervalBytes)
	var ranges []badRange
	f = &patient{File: f, stop: l.store.stop}
	sc := newScanner(f, 0, size)
	for {
		pos := sc.pos
		b, err := sc.next()
		if errors.Is(err, io.EOF) {
			return x, ranges, nil
		}
		if err == nil {
			err = l.inPlace(b, sc.have, x.next, end)
		}
		if err == nil {
			x.add(b, pos)
			continue
		}
		if !isDamage(err) && !errors.Is(err, ErrNotContiguous) {
			return nil, nil, err
		}
		to, first, err := resync(f, pos, size, x.next, end)
		if err != nil {
			return nil, nil, err
		}
		if x.next < first || to < size { // bytes beyond the last offset are nobody's loss
			ranges = append(ranges, badRange{start: x.next, end: first, from: pos, to: to})
		}
		x.pos, x.next = to, first
		x.pending = l.config.Load().IndexIntervalBytes + 1 // so that what follows is found without walking over it
		sc = newScanner(f, to, size)
	}
}

// inPlace says whether a batch whose checksum is right may stand where it does:
// base offset and leader epoch are not in the checksum. after is what follows in
// the file, as far as it was read. A batch that reaches beyond the start of the
// one behind it is the wrong one of the two if that one could follow next.
func (l *Log) inPlace(b batch.Batch, after []byte, next, end int64) error {
	wrong := b.BaseOffset() < next || b.LastOffsetDelta() < 0 || b.LastOffset() >= end
	if h, err := batch.PeekHeader(after); err == nil && !wrong && b.BaseOffset() != next {
		wrong = h.BaseOffset() < b.NextOffset() && h.BaseOffset() >= next
	}
	epoch := int32(-1)
	if chain := l.chain.Load(); chain != nil && !wrong && !l.doubtful.Load() {
		epoch = chain.EpochAt(b.BaseOffset())
		wrong = epoch >= 0 && epoch != b.LeaderEpoch() && !l.config.Load().Compact
	}
	if wrong {
		return fmt.Errorf("batch of offsets %d to %d and leader epoch %d where offset %d and epoch %d should be: %w",
			b.BaseOffset(), b.LastOffset(), b.LeaderEpoch(), next, epoch, ErrNotContiguous)
	}
	return nil
}

// resync finds the first sound batch after the bad one at pos that can follow
// offset next: its position and base offset, or size and end.
func resync(f vfs.File, pos, size, next, end int64) (to, first int64, err error) {
	const stepBytes = 256 << 10
	buf := make([]byte, stepBytes+batch.HeaderSize)
	for at := pos + 1; at+batch.HeaderSize <= size; at += stepBytes {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, fmt.Errorf("read at %d: %w", at, err)
		}
		for i := 0; i+batch.HeaderSize <= n && i < stepBytes; i++ {
			h, err := batch.PeekHeader(buf[i:n])
			if err != nil || h.BaseOffset() < next || h.LastOffsetDelta() < 0 || h.LastOffset() >= end || at+int64(i)+int64(h.SizeBytes()) > size {
				continue
			}
			sc := newScanner(f, at+int64(i), at+int64(i)+int64(h.SizeBytes()))
			if b, err := sc.next(); err == nil {
				return at + int64(i), b.BaseOffset(), nil
			} else if !isDamage(err) {
				return 0, 0, err
			}
		}
	}
	return size, end, nil
}

// Damaged lists what is quarantined of the local log, by offset. As long as a
// segment has not been looked through all of it counts.
func (l *Log) Damaged() []Damage {
	var list []Damage
	segs := l.list()
	for i, seg := range segs {
		q := seg.bad.Load()
		if q == nil {
			continue
		}
		end := l.endOf(segs, i)
		for _, r := range q.ranges {
			d := Damage{Start: max(r.start, seg.base), End: min(r.end, end), Segment: seg.base, Bytes: max(min(r.to, seg.size.Load())-r.from, 0), Whole: r.to == math.MaxInt64, Err: q.err}
			if d.Start < d.End {
				list = append(list, d)
			}
		}
	}
	return list
}

// Finds is how often damage was found since the log was opened.
func (l *Log) Finds() uint64 { return l.finds.Load() }

// Lacks says that the log has not got all records of the offsets from one to
// another, and is sure of it: they lie outside of what is local, or are known
// to be damaged. What cannot be read may be there.
func (l *Log) Lacks(from, to int64) bool {
	o := l.offsets.load()
	if l.Err() != nil {
		return false // the next start may find it
	}
	return from < o.LocalStart || to > o.End || slices.ContainsFunc(l.Damaged(), func(d Damage) bool {
		return !d.Whole && d.Start < to && from < d.End
	})
}

// CheckAt looks through the segment that holds an offset, because somebody who
// was sent its bytes found them damaged, and reports whether they are.
func (l *Log) CheckAt(offset int64) (bool, error) {
	segs := l.list()
	seg := segs[holding(segs, offset)]
	if q := seg.bad.Load(); q != nil {
		_, _, _, ok := q.window(max(offset, seg.base), math.MaxInt64)
		return !ok, nil
	}
	look, err := seg.lookThrough()
	if err != nil || len(look.ranges) == 0 {
		return false, err
	}
	seg.damaged(look.ranges[0].from, errors.New("a reader found it damaged"))
	return seg.bad.Load() != nil, nil
}

// LookAgain looks through a segment that is barred as a whole, because it could
// not be read when it was found damaged. What Damaged lists is less afterwards, or
// an error says why the segment cannot be read.
func (l *Log) LookAgain(d Damage) error {
	segs := l.list()
	seg := segs[holding(segs, d.Start)]
	q := seg.bad.Load()
	if q == nil || q.ranges[len(q.ranges)-1].to != math.MaxInt64 {
		return nil
	}
	look, err := seg.lookThrough()
	if err != nil {
		return err
	}
	l.offsets.unlessCut(look.cuts, func() {
		if len(look.ranges) == 0 {
			seg.bad.CompareAndSwap(q, nil)
		} else if seg.bad.Load() == q {
			seg.barQuietly(q.err, look.x, look.ranges)
		}
	})
	return nil
}

// errBarred says that a segment is barred as a whole.
var errBarred = errors.New("the segment was not looked through, so nobody knows what to repair")

// Repair puts b, whole batches from another copy of the log, in the place of
// what is damaged, durably. They have to fill it exactly: ErrNotContiguous says
// that they do not, as after compaction, when copies differ. What was mended, cut
// or deleted meanwhile needs nothing.
func (l *Log) Repair(d Damage, b []byte) error {
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	segs := l.list()
	seg := segs[holding(segs, d.Start)]
	q := seg.bad.Load()
	if q == nil || seg.is(segGone) {
		return nil // mended, cut or deleted meanwhile
	}
	for _, r := range q.ranges {
		if max(r.start, seg.base) != d.Start {
			continue
		}
		if r.to == math.MaxInt64 {
			return fmt.Errorf("repair segment %d: %w", seg.base, errBarred)
		}
		if err := l.fills(seg, r, b); err != nil {
			return err
		}
		return l.replace(seg, q, r, b)
	}
	return nil
}

// fills says whether batches are what should be in a range.
func (l *Log) fills(seg *segment, r badRange, b []byte) error {
	if int64(len(b)) != r.to-r.from {
		return fmt.Errorf("%d bytes for offsets %d to %d, which have %d: %w", len(b), r.start, r.end, r.to-r.from, ErrNotContiguous)
	}
	next := r.start
	for len(b) > 0 {
		one, rest, err := batch.Next(b)
		if err == nil {
			err = one.VerifyCRC()
		}
		if err == nil {
			err = l.inPlace(one, rest, next, min(r.end, seg.endAfter()))
		}
		if err != nil {
			return err
		}
		next, b = one.NextOffset(), rest
	}
	return nil
}

// replace writes over a damaged range. Its bytes are barred until the segment
// was found sound, so a crash in the middle leaves damage where damage was.
func (l *Log) replace(seg *segment, q *quarantine, r badRange, b []byte) error {
	l.passed(max(r.start, seg.base)) // perhaps before this start: no file says
	if err := l.noteLacks(); err != nil {
		return err
	}
	// What the shared log has of this place may be as bad, or another replica's
	// bytes are others: the next start must not put it back.
	if err := l.voidShared(); err != nil {
		return err
	}
	h, err := l.store.files.acquire(seg, true)
	if err != nil {
		return err
	}
	defer l.store.files.release(h)
	if _, err := h.file.WriteAt(b, r.from); err != nil {
		return l.fail("writing over damage", err)
	}
	if err := l.syncSegment(h); err != nil {
		return l.fail("writing over damage", err)
	}
	size, end, _, err := seg.extent()
	if err != nil {
		return err
	}
	x, ranges, err := l.inspect(seg, h.file, size, end)
	if err != nil {
		return err
	}
	l.store.stats.Repaired.Add(1)
	l.logger().Info("damage is repaired", "segment", seg.base, "start", r.start, "end", r.end, "bytes", len(b), "left", len(ranges))
	if len(ranges) > 0 {
		seg.bad.Store(&quarantine{q.err, ranges})
		return nil
	}
	if !l.damagedBut(seg) {
		// It counts as damaged until what derives from it is there.
		if err := l.rederive(); err != nil {
			return err
		}
	}
	if seg.is(segSealed) { // the index may have been made without what was damaged
		x.footer()
		if s := seg.sealing.Load(); s != nil {
			s.persisted = 0
		}
		seg.index.Store(x.ix)
	}
	seg.bad.Store(nil)
	return nil
}

// Lost says that the log once had more than it has, because its end was missing
// when it was opened: at least what lay below had, but nobody knows how much.
// So it stays lost, whatever is appended, until somebody who knows has found it
// to be complete (ForgetLost). epoch is the latest leader epoch it had then.
func (l *Log) Lost() (had int64, epoch int32, lost bool) {
	epoch = l.hadEpoch.Load()
	return l.had.Load(), epoch, epoch >= 0
}

// ForgetLost says that the log is complete again, for a leader has let it into its
// in-sync set, or that what it had does not count any more, by an unclean election.
func (l *Log) ForgetLost() { l.hadEpoch.Store(lineage.NoEpoch) }

// watermark is what the journal has for the high watermark, and the epoch of Lost:
// the next start must know, too.
func (l *Log) watermark() (hw int64, hadEpoch int32) {
	had, epoch, lost := l.Lost()
	if hw = l.hw.Load(); lost {
		hw = max(hw, had)
	}
	return hw, epoch
}

// OnDamaged sets the function that is told that damage of a log was found. It
// runs on the goroutine that found it, perhaps under locks of the log, and must
// not block or call the log.
func (s *Store) OnDamaged(fn func(*Log)) { s.onDamaged.Store(&fn) }
