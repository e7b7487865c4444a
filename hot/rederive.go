package hot

import (
	"cmp"
	"errors"
	"path/filepath"
	"slices"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// Recovery, truncation and the loading of producers pass what is damaged: they
// must go on. What they derive lacks the producers and markers in there, and so
// do the snapshots made of it. Once the last of the damage is repaired all of
// that is derived again.

// passed notes that state was derived without the batches from an offset on.
func (l *Log) passed(offset int64) {
	for {
		old := l.partial.Load()
		if old > 0 && old <= offset+1 || l.partial.CompareAndSwap(old, offset+1) {
			return
		}
	}
}

// damagedBut says whether any other segment than the one is damaged.
func (l *Log) damagedBut(seg *segment) bool {
	return slices.ContainsFunc(l.list(), func(s *segment) bool { return s != seg && s.bad.Load() != nil })
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
	ps, err := l.replayProducers(segs[i].base)
	if err != nil {
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
	end := l.offsets.end.Load()
	for ; i < len(segs); i++ {
		txns, err := ps.applySegment(segs[i], l.walkSegment, end)
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
	return nil
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
