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
	if err := errors.Join(l.store.journal.put(keyOf(l.part), l.saved), l.store.journal.sync()); err != nil {
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
	segs := l.list()
	i := holding(segs, l.partial.Load()-1)
	ps, err := l.replay(segs[i].base, l.walkKept)
	if err != nil {
		return err
	}
	// All is read before anything is given up: what is derived now lacks less
	// than nothing would.
	end := l.offsets.end.Load()
	if err := l.walkRangeBy(l.walkKept, segs[i].base, end, func(batch.Batch) error { return nil }); err != nil {
		return err
	}
	// The journal may say that there was no producer.
	l.saved.snapshot, l.saved.firstUnstable = 0, -1
	if err := errors.Join(l.store.journal.put(keyOf(l.part), l.saved), l.store.journal.sync()); err != nil {
		return l.fail("writing the journal", err)
	}
	if err := l.dropSnapshots(segs[i].base); err != nil {
		return l.fail("removing producer snapshots", err)
	}
	l.rederived++ // what a checkpoint captured before is void
	for ; i < len(segs); i++ {
		txns, err := ps.applySegment(segs[i], l.walkKept, end)
		if err != nil {
			return err
		}
		if err := l.unionTxns(segs[i], txns); err != nil {
			return l.fail("writing a transaction index", err)
		}
		if i+1 == len(segs) {
			break
		}
		next := segs[i+1].base
		b := ps.encode(next)
		if s := segs[i].sealing.Load(); s != nil {
			s.snapshot = b
		} else if err := l.writeSnapshot(next, b); err != nil {
			return l.fail("writing a producer snapshot", err)
		}
	}
	ps.heard(l.store.now())
	l.snapAt.Store(0)
	l.setProducers(ps)
	l.partial.Store(0)
	// Not synced: at worst a start derives once more.
	l.saved.lacks = 0
	if err := l.store.journal.put(keyOf(l.part), l.saved); err != nil {
		return l.fail("writing the journal", err)
	}
	return l.needTailLocked() // for a checkpoint to find
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
