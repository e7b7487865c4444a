package hot

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// Recovery, truncation and the loading of producers pass what is damaged: they
// must go on. What they derive lacks the producers and markers in there, and so
// do the snapshots made of it. Once the last of the damage is repaired, or gone,
// all of that is derived again.
//
// The journal says so, too, durably before a repair writes its first byte: of
// bytes that are sound again nobody sees that something was derived without
// them. A start that finds it there derives before anybody asks.

// passed notes that state was derived without the batches from an offset on.
func (l *Log) passed(offset int64) {
	for {
		old := l.partial.Load()
		if old > 0 && old <= offset+1 || l.partial.CompareAndSwap(old, offset+1) {
			return
		}
	}
}

// passedBelow notes that what derives from the log may have been derived without
// damage that goes now, perhaps before this start: no file says. It needs
// maintMu; the caller journals it.
func (l *Log) passedBelow(offset int64) {
	for _, s := range l.list() {
		q := s.bad.Load()
		if q == nil || s.base >= offset {
			continue
		}
		for _, r := range q.ranges {
			if r.start < offset {
				l.passed(max(r.start, s.base))
			}
		}
	}
	l.saved.lacks = l.lacks()
}

// lacks is what the journal has for partial: never more than that.
func (l *Log) lacks() uint32 {
	at := l.partial.Load()
	if at == 0 {
		return 0
	}
	return uint32(min((at-1)>>lacksShift+1, math.MaxUint32))
}

const lacksShift = 16 // format: do not change

// partialOf is what lacks stands for.
func partialOf(lacks uint32) int64 {
	if lacks == 0 {
		return 0
	}
	return int64(lacks-1)<<lacksShift + 1
}

// Incomplete says that producers and transaction indexes were derived without
// batches that are damaged: a repeat of what lies there is not known as one.
func (l *Log) Incomplete() bool { return l.partial.Load() > 0 }

// IncompleteFrom is the first offset that was derived without, or one before it; 0
// when nothing is known to be.
func (l *Log) IncompleteFrom() int64 { return max(l.partial.Load()-1, 0) }

// Complete derives again what was derived without batches that were damaged. It is
// an error, and nothing changes, when there is damage still, but for what lies
// below the log start. Repairs, truncation and retention see to it by
// themselves; it is for who was told that they could not, or that what seemed
// damaged is not.
func (l *Log) Complete() error {
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	if err := l.complete(); err != nil {
		return err
	}
	if l.Incomplete() {
		return errLacks
	}
	return nil
}

// errLacks is returned when there is damage still that something was derived
// without.
var errLacks = fmt.Errorf("producers and transaction indexes lack what is damaged: %w", ErrCorrupt)

// complete needs maintMu.
func (l *Log) complete() error {
	if l.partial.Load() == 0 || l.damagedBut(nil) {
		return nil
	}
	if err := l.Err(); err != nil {
		return err
	}
	l.logger().Info("producers and transaction indexes are derived again: they lacked what was damaged", "from", l.partial.Load()-1)
	return l.rederive()
}

// completeAtOpen goes on where a crash has ended the work of a repair.
func (l *Log) completeAtOpen() {
	if err := l.Complete(); err != nil {
		l.logger().Warn("producers and transaction indexes still lack what is damaged", "err", err)
	}
}

// noteLacks makes durable that derived state lacks something. It needs maintMu.
func (l *Log) noteLacks() error {
	if l.saved.lacks = l.lacks(); l.saved.lacks == 0 {
		return nil
	}
	if err := errors.Join(l.journal(l.saved), l.store.journal.sync()); err != nil {
		return l.failUnlessFull("writing the journal", err)
	}
	return nil
}

// damagedBut says whether any other segment than the one is damaged. What lies
// below the log start does not count: nobody brings it back.
func (l *Log) damagedBut(seg *segment) bool {
	start := l.offsets.load().LocalStart
	return slices.ContainsFunc(l.list(), func(s *segment) bool {
		q := s.bad.Load()
		return s != seg && q != nil && q.ranges[len(q.ranges)-1].end > start
	})
}

// rederive derives producers, snapshots and transaction indexes again from the
// first offset they lack. It needs maintMu. A crash in the middle leaves no
// snapshot that lacks anything.
func (l *Log) rederive() error {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	return l.rederiveLocked()
}

// rederiveLocked needs appendMu, too.
func (l *Log) rederiveLocked() error {
	segs, lacks := l.list(), l.partial.Load()-1
	at := segs[holding(segs, lacks)].base
	ps, err := l.replay(at, l.walkKept)
	if err != nil {
		return err
	}
	if lacks >= at {
		return l.deriveOn(ps, at, false, nil)
	}
	// What it lacks is gone, and with it perhaps the ends of transactions that
	// count as open there.
	if l.offsets.load().LogStart < at {
		return ErrBelowLocal
	}
	ps.closeOpen()
	return l.deriveOn(ps, at, true, nil)
}

// CompleteFrom is Complete for a log of which the bucket has what was derived
// without (ErrBelowLocal): snapshot is the producer state at an offset, nil when
// there were no producers, and aborted are the aborted transactions whose markers
// lie between the local start and there.
func (l *Log) CompleteFrom(at int64, snapshot []byte, aborted []batch.AbortedTxn) error {
	ps := newProducers()
	if snapshot != nil {
		var err error
		if ps, _, err = decodeSnapshot(snapshot); err != nil {
			return err
		}
	}
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	switch o := l.offsets.load(); {
	case l.Err() != nil:
		return l.Err()
	case !l.Incomplete():
		return nil
	case at < o.LocalStart || at > o.End:
		return fmt.Errorf("producers of offset %d, the log has %d to %d: %w", at, o.LocalStart, o.End, ErrOffsetOutOfRange)
	case l.partial.Load() > at || l.damagedBut(nil):
		return errLacks
	}
	ps.heard(l.store.now())
	l.logger().Info("producers are taken from the bucket: they lacked what was damaged", "offset", at)
	return l.deriveOn(ps, at, true, aborted)
}

// deriveOn derives again what follows from the producer state at an offset. With
// fresh set that is not what the log's own files say. It needs maintMu and
// appendMu.
// Long: one order of writes, which a crash may end anywhere.
func (l *Log) deriveOn(ps *producers, at int64, fresh bool, aborted []batch.AbortedTxn) error {
	segs := l.list()
	end := l.offsets.end.Load()
	// All is read before anything is given up: what is derived now lacks less
	// than nothing would.
	if err := l.walkRangeBy(l.walkKept, at, end, func(batch.Batch) error { return nil }); err != nil {
		return err
	}
	if err := l.settleChain(); err != nil {
		return err
	}
	// The journal may say that there was no producer.
	l.saved.snapshot, l.saved.firstUnstable = 0, -1
	if err := errors.Join(l.journal(l.saved), l.store.journal.sync()); err != nil {
		return l.fail("writing the journal", err)
	}
	above := at
	if fresh {
		above = segs[0].base - 1
	}
	if err := l.dropSnapshots(above); err != nil {
		return l.fail("removing producer snapshots", err)
	}
	if fresh {
		if err := vfs.WriteFileAtomic(l.store.fs, l.path(at, snapshotExt), ps.encode(at)); err != nil {
			return l.fail("writing a producer snapshot", err)
		}
		l.spare = at // unless it is a segment's the next checkpoint replaces it
	}
	l.rederived++ // what a checkpoint captured before is void
	walk, deleted := l.walkDeleted(ps, at)
	for i, seg := range segs {
		next := l.endOf(segs, i)
		txns := slices.DeleteFunc(slices.Clone(aborted), func(t batch.AbortedTxn) bool {
			return t.LastOffset < seg.base || t.LastOffset >= min(next, at)
		})
		if next > at {
			more, err := ps.applyFrom(seg, walk, max(seg.base, at), end)
			if err != nil {
				return err
			}
			txns = append(txns, more...)
		}
		if next > at || len(txns) > 0 {
			if err := l.unionTxns(seg, txns); err != nil {
				return l.fail("writing a transaction index", err)
			}
		}
		if next <= at || i+1 == len(segs) {
			continue
		}
		b := ps.encode(next)
		if s := seg.sealing.Load(); s != nil {
			s.snapshot = b
		} else if err := l.writeSnapshot(next, b); err != nil {
			return l.fail("writing a producer snapshot", err)
		}
	}
	deleted()
	ps.heard(l.store.now())
	l.snapAt.Store(0)
	l.setProducers(ps)
	l.partial.Store(0)
	// Not synced: at worst a start derives once more.
	l.saved.lacks = 0
	if err := l.journal(l.saved); err != nil {
		return l.fail("writing the journal", err)
	}
	return l.needTailLocked() // for a checkpoint to find
}

// walkDeleted is walkKept for deriving on from an offset: when damage is passed
// that was deleted, transactions that are open at the local start are no longer
// open there (closeOpen). end is to be called when all was walked.
func (l *Log) walkDeleted(ps *producers, at int64) (walk walkFunc, end func()) {
	start, passes := l.offsets.load().LocalStart, false
	for _, s := range l.list() {
		if q := s.bad.Load(); q != nil {
			passes = passes || slices.ContainsFunc(q.ranges, func(r badRange) bool { return r.end > at && r.end <= start })
		}
	}
	end = func() {
		if passes {
			ps.closeOpen()
		}
		passes = false
	}
	return func(seg *segment, from, to int64, fn func(batch.Batch) error) error {
		return l.walkKept(seg, from, to, func(b batch.Batch) error {
			if b.LastOffset() >= start {
				end()
			}
			return fn(b)
		})
	}, end
}

// dropSnapshots makes the snapshots of what lies above an offset invalid. Those
// at the starts of segments stay as damaged ones: retention takes a missing one
// for a log without producers.
func (l *Log) dropSnapshots(above int64) error {
	entries, err := l.store.fs.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		o, ext, ok := parseOffsetName(e.Name())
		if !ok || ext != snapshotExt || o <= above {
			continue
		}
		path := filepath.Join(l.dir, e.Name())
		if slices.ContainsFunc(l.list(), func(s *segment) bool { return s.base == o }) {
			err = vfs.WriteFileAtomic(l.store.fs, path, []byte(snapshotMagic))
		} else if err = l.store.fs.Remove(path); errors.Is(err, vfs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return l.store.fs.SyncDir(l.dir)
}

// unionTxns puts transactions that were derived again into a segment's index.
// Entries whose marker compaction has taken stay.
func (l *Log) unionTxns(seg *segment, txns []batch.AbortedTxn) error {
	old, _, err := seg.readTxns()
	if err != nil {
		return err
	}
	for _, t := range old {
		if !slices.ContainsFunc(txns, func(n batch.AbortedTxn) bool { return n.ProducerID == t.ProducerID && n.LastOffset == t.LastOffset }) {
			txns = append(txns, t)
		}
	}
	slices.SortFunc(txns, func(a, b batch.AbortedTxn) int { return cmp.Compare(a.LastOffset, b.LastOffset) })
	return l.restoreTxns(seg, txns)
}
