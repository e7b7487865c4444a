package hot

import (
	"errors"
	"fmt"
	"io"
	"sort"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
)

// TruncateTo removes everything at and beyond off, for a follower whose tail
// is not the leader's. A batch that holds off goes as a whole. Readers of the
// removed part may see an error. Epochs that begin at off or beyond go too,
// also when there are no records to remove: who led without writing may be
// sent records of an earlier epoch.
func (l *Log) TruncateTo(off int64) error {
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	if off >= l.offsets.end.Load() {
		return l.dropEpochsLocked(off)
	}
	if local := l.offsets.localStart.Load(); off < local {
		return fmt.Errorf("truncate to %d, local log starts at %d: %w", off, local, ErrOffsetOutOfRange)
	}
	return l.truncateLocked(off)
}

// dropEpochsLocked forgets, durably, the epochs that begin at off or beyond. It
// needs maintMu and appendMu. The journal alone decides how many there are, so
// it goes first.
func (l *Log) dropEpochsLocked(off int64) error {
	chain, err := l.loadChain()
	if err != nil {
		return err
	}
	kept := chain.TruncateEnd(off)
	if len(kept) == len(chain) {
		return nil
	}
	l.setChain(kept)
	l.saved.epoch, l.saved.epochs = *l.latest.Load(), uint32(len(kept))
	if err := errors.Join(l.journal(l.saved), l.store.journal.sync()); err != nil {
		return l.fail("writing the journal", err)
	}
	if err := l.saveEpochs(kept, false); err != nil {
		return l.fail("writing leader epochs", err)
	}
	return nil
}

// truncateLocked needs maintMu and appendMu. The journal goes first: a crash
// in the middle must not find a recovery point beyond the end.
func (l *Log) truncateLocked(off int64) error {
	if _, err := l.loadChain(); err != nil {
		return err
	}
	segs := l.list()
	i := holding(segs, off)
	seg := segs[i]
	pos, at, err := l.cutPosition(seg, off)
	if err != nil {
		return err
	}
	off = at
	chain := l.chain.Load().TruncateEnd(off)
	st := l.saved
	st.recovery, st.segment, st.position = min(st.recovery, off), seg.base, 0
	if l.saved.segment == seg.base && int64(l.saved.position) <= pos {
		st.recovery, st.position = l.saved.recovery, l.saved.position
	} else if l.saved.segment >= seg.base {
		st.recovery = seg.base
	} else {
		st.recovery, st.segment, st.position = l.saved.recovery, l.saved.segment, l.saved.position
	}
	st.highWatermark = min(l.hw.Load(), off)
	if had, _, lost := l.Lost(); lost {
		st.highWatermark = max(st.highWatermark, had)
	}
	st.cleanPoint = min(l.saved.cleanPoint, off)
	st.snapshot, st.firstUnstable = 0, -1 // not known: replayed on need
	l.setChain(chain)
	st.epoch, st.epochs = *l.latest.Load(), uint32(len(chain))
	if err := l.syncInPlace(segs[:i+1]); err != nil {
		return err
	}
	st.cut = l.store.journal.nextCut()
	l.saved = st
	if err := errors.Join(l.journal(st), l.store.journal.sync()); err != nil {
		return l.fail("writing the journal", err)
	}
	if err := l.store.tellShared(); err != nil {
		return err
	}
	// Epochs of batches that are still there are read off them again.
	if err := l.saveEpochs(chain, false); err != nil {
		return l.fail("writing leader epochs", err)
	}
	return l.dropBeyond(i, pos, off)
}

// cutPosition is where in the segment the batch that holds off starts, and
// that batch's base offset.
func (l *Log) cutPosition(seg *segment, off int64) (pos, at int64, err error) {
	size, err := seg.bytes()
	if err != nil || size == 0 {
		return 0, off, err
	}
	if !seg.is(segSealed) {
		if err := l.needTailLocked(); err != nil {
			return 0, 0, err
		}
	}
	ix, err := seg.lookup()
	if err != nil {
		return 0, 0, err
	}
	h, err := l.store.files.acquire(seg, false)
	if err != nil {
		return 0, 0, err
	}
	defer l.store.files.release(h)
	w := sound{to: size}
	if q := seg.bad.Load(); q != nil {
		var ok bool
		if w.from, w.to, _, ok = q.window(off, size); !ok {
			return q.start(off) // what is damaged goes as a whole
		}
	}
	p, err := seg.findFrom(h.file, ix, w.from, w.to, off)
	if errors.Is(err, io.EOF) {
		return w.to, off, nil
	}
	if err != nil {
		return 0, 0, err
	}
	return p.pos, min(off, p.base), nil
}

// dropBeyond cuts segment i at pos and removes those after it.
// Long: one order of writes, which a crash may end anywhere.
func (l *Log) dropBeyond(i int, pos, off int64) error {
	segs := l.list()
	seg := segs[i]
	keep := append([]*segment(nil), segs[:i+1]...)
	l.segments.Store(&keep)
	l.offsets.cut(edge{off, seg.base, pos}, uint64(l.saved.cut))
	for {
		hw := l.hw.Load()
		if hw <= off || l.hw.CompareAndSwap(hw, off) {
			break
		}
	}
	if l.tail != nil {
		l.store.files.release(l.tail.h)
		l.tail = nil
	}
	if err := l.removeSegments(segs[i+1:]); err != nil {
		return l.fail("removing truncated segments", err)
	}
	// Synced for the same reason as the shorter length below.
	if err := errors.Join(l.removeStray(off), l.store.fs.SyncDir(l.dir)); err != nil {
		return l.fail("removing truncated files", err)
	}
	ix := seg.index.Load()
	if ix == nil {
		size, err := seg.bytes()
		if err != nil {
			return err
		}
		ix = l.readIndexFile(seg, size)
	}
	seg.sealing.Store(nil)
	seg.meta.Store(nil)
	if q := seg.bad.Load(); q != nil {
		seg.bad.Store(q.below(pos))
	}
	seg.clear(segSealed | segSynced | segTrusted)
	// The index first: entries beyond the log's end must not come to describe
	// what is appended next.
	cut := ix.clip(pos)
	if e, ok := cut.last(); ok && int64(e.pos) == pos {
		cut.n.Add(-1)
	}
	seg.index.Store(cut)
	if err := l.writeIndex(seg, cut, 0, cut.len()); err != nil {
		return l.fail("truncating an index", err)
	}
	l.store.files.detach(seg)
	h, err := l.store.files.acquire(seg, true)
	if err != nil {
		return err
	}
	defer l.store.files.release(h)
	// Synced at once: if the shorter length were lost and what is appended next
	// kept in part, old batches could follow new ones.
	if err := errors.Join(h.file.Truncate(pos), l.syncSegment(h)); err != nil {
		return l.fail("truncating", err)
	}
	seg.size.Store(pos)
	l.markUnsynced(seg, h)
	if err := l.goOn(func() error { return l.cutTxns(seg, off) }); err != nil {
		return l.fail("truncating a transaction index", err)
	}
	l.sized.Store(-1)
	l.snapAt.Store(0)
	// On an error from here on they are not known, and who needs them next tries
	// again.
	l.stateMu.Lock()
	l.producers = nil
	l.stateMu.Unlock()
	if l.partial.Load() > off {
		l.partial.Store(0) // what was passed went with the rest
		l.doubtful.Store(false)
	}
	err = ErrCorrupt
	if l.partial.Load() > 0 && !l.damagedBut(nil) {
		err = l.rederiveLocked() // the last of the damage went, if there is no more
	}
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrBelowLocal) {
		err = l.reloadProducers()
	}
	if err != nil {
		return err
	}
	// The next checkpoint, or close, must find a tail to record.
	return l.needTailLocked()
}

// cutTxns drops what the transaction index says about offsets from off on.
func (l *Log) cutTxns(seg *segment, off int64) error {
	txns, whole, err := seg.readTxns()
	if err == nil && !whole {
		txns, err = seg.rebuildTxnsBy(l.replayPast, l.walkBarred, off)
	}
	if err != nil {
		return err
	}
	n := sort.Search(len(txns), func(i int) bool { return txns[i].LastOffset >= off })
	if err := l.restoreTxns(seg, txns[:n]); err != nil {
		return l.fail("truncating a transaction index", err)
	}
	return nil
}

// reloadProducers rebuilds producer state for the shortened log.
func (l *Log) reloadProducers() error {
	ps, err := l.replayOn(l.offsets.end.Load())
	if err != nil {
		return err
	}
	l.setProducers(ps)
	return nil
}

// setProducers takes producer state into use that was derived again.
func (l *Log) setProducers(ps *producers) {
	l.stateMu.Lock()
	l.producers = ps
	l.publishUnstableLocked()
	l.stateMu.Unlock()
	l.queueMu.Lock()
	l.newNames = true
	l.queueMu.Unlock()
	l.changed.Store(true)
	l.store.syncer.push(l, true)
}

// ResetTo drops every local record and lets the log go on at off, for a
// follower whose records below off are in the bucket or gone. On a tiered log
// the log start stays (at most off); elsewhere it becomes off. chain is the
// leader-epoch chain below off, snapshot the producer state at off; either
// may be nil.
// Long: one order of writes, which a crash may end anywhere.
func (l *Log) ResetTo(off int64, chain lineage.Chain, snapshot []byte) error {
	ps := newProducers()
	if snapshot != nil {
		var err error
		if ps, _, err = decodeSnapshot(snapshot); err != nil {
			return err
		}
		ps.heard(l.store.now())
	}
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	chain = chain.TruncateEnd(off)
	l.doubtful.Store(false) // the caller knows
	old := l.offsets.load()
	// A crash in the middle must find a shorter log, not a recovery point
	// beyond its end.
	first := l.list()[0].base
	l.saved.recovery, l.saved.segment, l.saved.position = first, first, 0
	l.saved.snapshot, l.saved.firstUnstable, l.saved.cleanPoint = 0, -1, min(l.saved.cleanPoint, first)
	if err := l.syncInPlace(l.list()); err != nil {
		return err
	}
	l.saved.cut = l.store.journal.nextCut()
	if err := errors.Join(l.journal(l.saved), l.store.journal.sync()); err != nil {
		return l.fail("writing the journal", err)
	}
	if err := l.store.tellShared(); err != nil {
		return err
	}
	st := newPartitionState(off)
	st.hadEpoch, st.cut = l.hadEpoch.Load(), l.saved.cut
	if had, _, lost := l.Lost(); lost {
		st.highWatermark = max(off, had)
	}
	if l.config.Load().Tiered {
		st.logStart = min(old.LogStart, off)
	}
	l.setChain(chain)
	st.epoch, st.epochs = *l.latest.Load(), uint32(len(chain))
	if len(ps.byID) > 0 {
		st.snapshot, st.firstUnstable = off, ps.firstUnstable(off)
	}
	if err := l.replaceAll(off, -1); err != nil {
		return l.fail("resetting", err)
	}
	if err := l.saveEpochs(chain, false); err != nil {
		return l.fail("writing leader epochs", err)
	}
	if st.snapshot >= 0 {
		// Atomically, and so synced: the batches it sums up are not here.
		if err := vfs.WriteFileAtomic(l.store.fs, l.path(off, snapshotExt), ps.encode(off)); err != nil {
			return l.fail("writing a producer snapshot", err)
		}
	}
	// The end counts as durable at once, so the directory must be there.
	if err := l.store.syncNewDirs(); err != nil {
		return l.fail("resetting", err)
	}
	l.saved, l.spare = st, st.snapshot
	l.partial.Store(0) // what it was about is gone
	l.snapAt.Store(st.snapshot)
	l.offsets.cut(edge{off, off, 0}, uint64(st.cut))
	l.offsets.update(func(o *Offsets) { *o = Offsets{st.logStart, off, off, off} })
	l.hw.Store(off)
	if err := errors.Join(l.journal(st), l.store.journal.sync()); err != nil {
		return l.fail("writing the journal", err)
	}
	l.stateMu.Lock()
	l.producers = ps
	l.publishUnstableLocked()
	l.stateMu.Unlock()
	return nil
}

// replaceAll removes every file of the log but leader-epochs and the snapshot
// at keep (-1 none), and starts an empty segment at off.
func (l *Log) replaceAll(off, keep int64) error {
	if l.tail != nil {
		l.store.files.release(l.tail.h)
		l.tail = nil
	}
	segs := l.list()
	fresh := []*segment{{log: l, base: off}}
	l.segments.Store(&fresh)
	if err := l.removeSegments(segs); err != nil {
		return err
	}
	entries, err := l.store.fs.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if o, ext, ok := parseOffsetName(e.Name()); ok && ext != logExt && (ext != snapshotExt || o != keep) {
			if err := l.store.fs.Remove(l.dir + "/" + e.Name()); err != nil && !errors.Is(err, vfs.ErrNotExist) {
				return err
			}
		}
	}
	l.sized.Store(-1)
	l.spare = -1
	return l.store.fs.SyncDir(l.dir)
}

// eachBatch is for tests and tools: every batch of the local log.
func (l *Log) eachBatch(fn func(batch.Batch) error) error {
	o := l.offsets.load()
	return l.walkRange(o.LocalStart, o.End, fn)
}

// syncInPlace makes durable in their own files what segments hold: some of it
// may be so by the shared log alone, and a cut voids what that has of the log.
// It needs maintMu and appendMu, so that all below the end is in the kernel.
func (l *Log) syncInPlace(segs []*segment) error {
	if !l.store.sharesLog() {
		return nil
	}
	for _, seg := range segs {
		if seg.is(segSynced) {
			continue
		}
		h, err := l.store.files.acquire(seg, false)
		if errors.Is(err, vfs.ErrNotExist) || errors.Is(err, ErrSegmentGone) {
			continue // nothing was ever written into it
		}
		if err != nil {
			return err
		}
		err = l.syncSegment(h)
		l.store.files.release(h)
		if err != nil {
			return l.fail("syncing before a cut", err)
		}
	}
	return nil
}

// voidShared makes void what the shared log has of the log, because bytes below
// its end are about to be others: all that there is becomes durable in place,
// and goes by a new number. It needs maintMu.
func (l *Log) voidShared() error {
	if !l.store.sharesLog() {
		return nil
	}
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if err := l.syncInPlace(l.list()); err != nil {
		return err
	}
	l.saved.cut = l.store.journal.nextCut()
	if err := l.journal(l.saved); err != nil {
		return l.fail("writing the journal", err)
	}
	// Before the record is known to be durable: a round that names the number
	// syncs the journal first. One that names the old one has what is in place.
	l.offsets.renumber(uint64(l.saved.cut))
	l.store.syncer.push(l, true) // a round under way does not count for the log any more
	if err := l.store.journal.sync(); err != nil {
		return l.failUnlessFull("writing the journal", err)
	}
	return l.store.tellShared()
}
