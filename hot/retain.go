package hot

import (
	"errors"
	"fmt"

	"github.com/varvelog/varve/hot/vfs"
)

// Retained is what a retention run did.
type Retained struct {
	Segments int   // deleted
	Bytes    int64 // of them
	// LogStartMoved says that the log start moved on, and with it what the
	// bucket must keep.
	LogStartMoved bool
}

// AdvanceLogStart moves the log start up to off (DeleteRecords, retention, or
// what the bucket's manifest says), at most to the high watermark. It is
// durable when the call returns. Segments that lie below go with the next
// Retain. A lower offset changes nothing.
func (l *Log) AdvanceLogStart(off int64) error {
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	_, err := l.advanceStart(off)
	return err
}

// advanceStart needs maintMu.
func (l *Log) advanceStart(off int64) (moved bool, err error) {
	o := l.offsets.load()
	if off <= o.LogStart {
		return false, nil
	}
	if hw := l.hw.Load(); off > hw {
		return false, fmt.Errorf("log start %d would pass the high watermark %d: %w", off, hw, ErrOffsetOutOfRange)
	}
	l.passedBelow(off)
	l.saved.logStart = off
	if err := errors.Join(l.journal(l.saved), l.store.journal.sync()); err != nil {
		return false, l.failUnlessFull("writing the journal", err)
	}
	l.offsets.update(func(o *Offsets) {
		o.LogStart = max(o.LogStart, off)
		o.LocalStart = max(o.LocalStart, off)
	})
	if p := l.chain.Load(); p != nil {
		l.appendMu.Lock()
		l.setChain(l.chain.Load().TruncateStart(off))
		l.appendMu.Unlock()
	}
	return true, nil
}

// Retain deletes local segments that lie below the log start, and those that
// retention.ms, retention.bytes or their local forms no longer keep. On a log
// that is offloaded nothing goes that is not below the committed remote end;
// elsewhere the log start moves up first. Only whole segments below the high
// watermark go; the active one is sealed first when its time is up, so that it
// is offloaded.
func (l *Log) Retain(now int64) (Retained, error) {
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	if err := l.Err(); err != nil {
		return Retained{}, err
	}
	l.ExpireProducers(now)
	n, err := l.breached(now)
	if err != nil {
		return Retained{}, err
	}
	var r Retained
	if n > 0 {
		r, err = l.dropFirst(n)
	}
	if err == nil {
		// Perhaps the last of the damage went. What is found damaged on the way is
		// told like any other, and what is in the bucket alone is for who can ask it.
		if err = l.complete(); errors.Is(err, ErrCorrupt) || errors.Is(err, ErrBelowLocal) {
			err = nil
		}
	}
	return r, err
}

// breached is how many segments, from the first on, may and must go.
func (l *Log) breached(now int64) (int, error) {
	c := l.config.Load()
	segs := l.list()
	offloads := c.offloads()
	remote, hw, start := l.remoteEnd.Load(), l.hw.Load(), l.offsets.logStart.Load()
	millis, bytes := c.localRetention()
	if !c.Delete {
		millis, bytes = -1, -1
	}
	excess := int64(-1)
	if bytes >= 0 {
		total, err := l.SizeBytes()
		if err != nil {
			return 0, err
		}
		excess = total - bytes
	}
	n := 0
	for i, seg := range segs {
		end := l.endOf(segs, i)
		active := i+1 == len(segs)
		size, err := seg.bytes()
		if err != nil {
			return 0, err
		}
		if end > hw || active && size == 0 {
			break
		}
		if end <= start && !active {
			excess -= size
			n++
			continue
		}
		waits := offloads && end > remote
		if waits && !active {
			break
		}
		old, err := l.tooOld(seg, active, now, millis)
		if err != nil {
			return 0, err
		}
		large := excess >= size && bytes >= 0
		if !old && !large {
			break
		}
		if waits {
			if old { // sealed now, to be offloaded, it goes in a later run; a size alone would make tiny segments
				_, err = l.sealActive(seg, hw, now)
			}
			return n, err
		}
		excess -= size
		n++
	}
	if n < len(segs) {
		return n, nil
	}
	// Everything is due: a fresh active segment takes over.
	sealed, err := l.sealActive(segs[len(segs)-1], hw, now)
	if err != nil {
		return 0, err
	}
	if !sealed {
		return len(segs) - 1, nil // appended to meanwhile
	}
	return n, nil
}

// sealActive rolls the active segment unless it is not seg any more, or has
// been appended to beyond hw.
func (l *Log) sealActive(seg *segment, hw, now int64) (bool, error) {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if l.active() != seg || l.offsets.end.Load() > hw {
		return false, nil
	}
	if err := l.needTailLocked(); err != nil {
		return false, err
	}
	return true, l.rollLocked(l.offsets.end.Load(), now)
}

// tooOld goes by the records' time; a segment without data records counts
// from when its file was last written.
func (l *Log) tooOld(seg *segment, active bool, now, millis int64) (bool, error) {
	if millis < 0 {
		return false, nil
	}
	if active {
		if err := l.needTail(); err != nil {
			return false, err
		}
		a := l.Active()
		ts := a.MaxTimestamp
		if ts < 0 {
			ts = a.Since
		}
		return ts >= 0 && now-ts > millis, nil
	}
	m, err := seg.footer()
	if errors.Is(err, ErrCorrupt) {
		return false, nil // its records' time is not known: it stays
	}
	if err != nil {
		return false, err
	}
	ts := m.maxTs
	if ts < 0 {
		ts = m.modified
	}
	return now-ts > millis, nil
}

// dropFirst deletes the first n segments. The new start is durable before any
// file goes: power loss may bring back some of the names and not others, and
// what came back must not count.
func (l *Log) dropFirst(n int) (Retained, error) {
	var r Retained
	segs := l.list()
	if n >= len(segs) {
		n = len(segs) - 1
	}
	if n <= 0 {
		return r, nil
	}
	to := segs[n].base
	l.passedBelow(to)
	if err := l.raiseRecovery(to); err != nil {
		return r, err
	}
	l.saved.localStart = max(l.saved.localStart, to)
	moves := !l.config.Load().offloads() && to > l.offsets.logStart.Load()
	if moves {
		if _, err := l.advanceStart(to); err != nil {
			return r, err
		}
		r.LogStartMoved = true
	} else if err := errors.Join(l.journal(l.saved), l.store.journal.sync()); err != nil {
		return r, l.failUnlessFull("writing the journal", err)
	}
	// The start moves first: whoever finds the shorter list finds the new start
	// when it looks again.
	l.offsets.update(func(o *Offsets) { o.LocalStart = max(o.LocalStart, to) })
	l.appendMu.Lock()
	keep := append([]*segment(nil), l.list()[n:]...)
	l.segments.Store(&keep)
	l.appendMu.Unlock()
	delay := l.config.Load().FileDeleteDelay
	for _, seg := range segs[:n] {
		size, _ := seg.bytes()
		if err := l.deleteSegment(seg, delay); err != nil {
			return r, l.fail("deleting a segment", err)
		}
		r.Segments++
		r.Bytes += size
	}
	l.sized.Store(-1)
	l.store.stats.Deleted.Add(int64(r.Segments))
	return r, nil
}

// raiseRecovery makes all that is known at offset to, the base of a segment,
// durable before the batches below go: producers and leader epochs could not
// be rebuilt without them. The caller journals what it changes in l.saved. It
// needs maintMu.
func (l *Log) raiseRecovery(to int64) error {
	if err := l.finishSeals(); err != nil {
		return err
	}
	ps, err := l.keepSnapshot(to)
	if err != nil || l.saved.recovery >= to {
		return err
	}
	chain, err := l.loadChain()
	if err != nil {
		return err
	}
	if err := l.saveEpochs(chain, false); err != nil {
		return l.failUnlessFull("writing leader epochs", err)
	}
	st := &l.saved
	st.recovery, st.segment, st.position = to, to, 0
	st.epochs = uint32(len(chain))
	if len(chain) > 0 {
		st.epoch = chain[len(chain)-1]
	}
	st.snapshot, st.firstUnstable = -1, -1
	if ps != nil {
		st.snapshot, st.firstUnstable = to, ps.firstUnstable(l.hw.Load())
		l.snapAt.Store(to)
	}
	return l.dropSpareSnapshot(st.snapshot)
}

// keepSnapshot makes the producer snapshot at to, the base of a segment,
// durable, and returns what it holds; nil when there were no producers. It
// needs maintMu.
func (l *Log) keepSnapshot(to int64) (*producers, error) {
	// Of a segment that is not synced yet (Replicated) it is not written yet.
	segs := l.list()
	for i, seg := range segs[:len(segs)-1] {
		s := seg.sealing.Load()
		if segs[i+1].base != to || s == nil || s.snapshot == nil {
			continue
		}
		if err := l.writeSnapshot(to, s.snapshot); err != nil {
			return nil, l.failUnlessFull("writing a producer snapshot", err)
		}
	}
	path := l.path(to, snapshotExt)
	b, err := vfs.ReadFile(l.store.fs, path, snapshotBytesMax)
	if errors.Is(err, vfs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ps, at, err := decodeSnapshot(b)
	if err != nil || at != to {
		// Damaged: the batches that are about to go can still replace it.
		l.appendMu.Lock()
		ps, err = l.replayOn(to)
		l.appendMu.Unlock()
		if err != nil {
			return nil, err
		}
		if err := vfs.WriteFileAtomic(l.store.fs, path, ps.encode(to)); err != nil {
			return nil, l.failUnlessFull("writing a producer snapshot", err)
		}
		return ps, nil
	}
	if err := l.syncFile(path); err != nil {
		return nil, l.failUnlessFull("syncing a producer snapshot", err)
	}
	return ps, nil
}

// syncFile makes a file that is there, and its name, durable.
func (l *Log) syncFile(path string) error {
	f, err := l.store.fs.OpenAppend(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close(), l.store.fs.SyncDir(l.dir))
}

// deleteSegment renames a segment's files out of the way; they go after
// delay milliseconds, or at the next open. Slices keep what they pin.
func (l *Log) deleteSegment(seg *segment, delay int64) error {
	seg.set(segGone)
	l.store.files.detach(seg)
	for _, ext := range []string{logExt, indexExt, txnExt, snapshotExt} {
		if ext == snapshotExt && seg.base == l.saved.snapshot {
			continue
		}
		path := seg.path(ext)
		err := l.store.fs.Rename(path, path+deletedExt)
		if errors.Is(err, vfs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		l.store.removeLater(path+deletedExt, delay)
	}
	return nil
}
