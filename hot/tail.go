package hot

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sort"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// sealing is what is to be written once a sealed segment is synced.
type sealing struct {
	next      int64  // base offset of the following segment
	snapshot  []byte // producer snapshot for next, nil for no producers
	persisted int    // index entries already in the file
}

// needTail loads the active segment.
func (l *Log) needTail() error {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	return l.needTailLocked()
}

func (l *Log) needTailLocked() error {
	if l.tail != nil {
		return nil
	}
	seg := l.active()
	h, err := l.store.files.acquire(seg, true)
	if err != nil {
		return err
	}
	t, err := l.openTail(seg, h)
	if err != nil {
		l.store.files.release(h)
		return err
	}
	l.tail = t
	return nil
}

// openTail reads what the appender must know of the active segment.
func (l *Log) openTail(seg *segment, h *handle) (*tail, error) {
	want := seg.size.Load()
	size, err := h.file.Size()
	if err != nil {
		return nil, err
	}
	if size != want {
		return nil, l.fail("opening the active segment", &CorruptError{Path: h.file.Name(), Position: min(size, want), Err: fmt.Errorf("file has %d bytes, %d were synced", size, want)})
	}
	if size == 0 {
		if err := l.removeDerived(seg); err != nil {
			return nil, err
		}
		seg.clear(segTxns)
		l.queueMu.Lock()
		l.newNames = true
		l.queueMu.Unlock()
	}
	c := l.config.Load()
	x := newIndexer(seg.base, c.IndexIntervalBytes)
	x.ix = l.readIndexFile(seg, size)
	persisted := x.ix.len()
	err = x.resume(h.file, size)
	if errors.Is(err, errIndex) || isDamage(err) {
		persisted = 0
		x, err = l.rescan(seg, h, size, seg.endAfter())
	}
	if err != nil {
		return nil, err
	}
	info, err := l.store.fs.Stat(seg.path(logExt))
	if err != nil {
		return nil, err
	}
	t := &tail{seg: seg, h: h, ix: x, persisted: persisted, pos: size, reserved: size,
		created: info.ModTime().UnixMilli(), since: -1, jitter: newJitter(c), clean: true}
	if size > 0 {
		t.since = t.created
	}
	seg.index.Store(x.ix)
	return t, l.repairTxns(seg)
}

// repairTxns makes the transaction index of the active segment fit its
// batches. After power loss it may name markers that were lost with the tail.
func (l *Log) repairTxns(seg *segment) error {
	txns, whole, err := seg.readTxns()
	if err == nil && !whole {
		txns, err = seg.rebuildTxns(1 << 62)
	}
	if err != nil {
		return err
	}
	end := l.offsets.end.Load()
	n := sort.Search(len(txns), func(i int) bool { return txns[i].LastOffset >= end })
	if n == len(txns) {
		return nil
	}
	return l.restoreTxns(seg, txns[:n])
}

// readIndexFile is the good prefix of a segment's index file, entries beyond
// size dropped.
func (l *Log) readIndexFile(seg *segment, size int64) *segIndex {
	b, err := vfs.ReadFile(l.store.fs, seg.path(indexExt), 1<<30)
	if err != nil {
		return newSegIndex(seg.base)
	}
	ix, _ := parseIndex(b, seg.base, size)
	return ix
}

// rescan builds the index anew from the log file, checking every batch. What is
// damaged is quarantined, and not in the index.
func (l *Log) rescan(seg *segment, h *handle, size, end int64) (*indexer, error) {
	x, ranges, err := l.inspect(seg, h.file, size, end)
	if err != nil || len(ranges) == 0 {
		return x, err
	}
	e := &CorruptError{Path: seg.path(logExt), Position: ranges[0].from, Err: errors.New("its checksum, offsets or leader epoch are wrong")}
	if seg.bad.CompareAndSwap(nil, whole(e)) {
		seg.bar(e, x, ranges)
	}
	return x, nil
}

// Roll seals the active segment, unless it is empty.
func (l *Log) Roll(now int64) error {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.needTailLocked(); err != nil {
		return err
	}
	if l.tail.pos == 0 {
		return nil
	}
	return l.rollLocked(l.offsets.end.Load(), now)
}

// rollLocked seals the active segment and starts one at base.
func (l *Log) rollLocked(base, now int64) error {
	old := l.tail
	segs := l.list()
	seg := &segment{log: l, base: base}
	if old.pos > 0 && len(segs) == 1 {
		// The name of the log's first segment is durable before there is a second: were the second's all that power loss
		// leaves, it would be taken for a log that starts there.
		if err := l.store.fs.SyncDir(l.dir); err != nil {
			return l.failUnlessFull("syncing the directory", err)
		}
	}
	if old.pos == 0 {
		// An empty segment whose base is too far below: take its place.
		segs = segs[:len(segs)-1]
		old.seg.set(segGone)
		l.store.files.detach(old.seg)
		if err := l.store.fs.Remove(old.seg.path(logExt)); err != nil && !errors.Is(err, vfs.ErrNotExist) {
			return l.fail("removing an empty segment", err)
		}
	}
	h, err := l.store.files.acquire(seg, true)
	if isDiskEnd(err) {
		return l.failUnlessFull("starting a segment", err)
	}
	if err != nil {
		return err
	}
	if err := errors.Join(h.file.Truncate(0), l.removeDerived(seg)); err != nil {
		l.store.files.release(h)
		return l.fail("starting a segment", err)
	}
	// Before the old one is sealed: a round that takes that takes the name, too.
	l.queueMu.Lock()
	l.newNames = true
	l.queueMu.Unlock()
	if old.pos > 0 {
		if err := l.sealLocked(old, base); err != nil {
			l.store.files.release(h)
			return err
		}
	}
	c := l.config.Load()
	x := newIndexer(base, c.IndexIntervalBytes)
	seg.index.Store(x.ix)
	next := make([]*segment, len(segs), len(segs)+1)
	copy(next, segs)
	next = append(next, seg)
	l.segments.Store(&next)
	l.store.files.release(old.h)
	l.tail = &tail{seg: seg, h: h, ix: x, created: now, since: -1, jitter: newJitter(c), clean: false, skips: old.skips}
	l.changed.Store(true)
	l.store.syncer.push(l, true)
	return nil
}

// sealLocked prepares the files that complete a segment; they are written by
// finishSeals, after the sync.
func (l *Log) sealLocked(t *tail, next int64) error {
	snapshot, err := l.snapshotLocked(next)
	if err != nil {
		return err
	}
	if t.reserved > t.pos {
		if err := t.h.file.Truncate(t.pos); err != nil {
			return l.fail("releasing reserved blocks", err)
		}
	}
	t.ix.footer()
	t.seg.sealing.Store(&sealing{next: next, snapshot: snapshot, persisted: t.persisted})
	t.seg.meta.Store(&segmentMeta{maxTs: t.ix.maxTs, maxTsOffset: relOffset(t.seg.base, t.ix.relMax), modified: t.created})
	t.seg.set(segSealed)
	l.markUnsynced(t.seg, t.h)
	return nil
}

// removeDerived removes what a lost segment of the same base may have left.
func (l *Log) removeDerived(seg *segment) error {
	for _, ext := range []string{indexExt, txnExt} {
		if err := l.store.fs.Remove(seg.path(ext)); err != nil && !errors.Is(err, vfs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func relOffset(base int64, rel uint32) int64 {
	if rel == noRelative {
		return -1
	}
	return base + int64(rel)
}

// snapshotLocked encodes the producer state at the end of the log, nil when
// there is none. It needs appendMu.
func (l *Log) snapshotLocked(offset int64) ([]byte, error) {
	l.stateMu.Lock()
	loaded := l.producers != nil
	l.stateMu.Unlock()
	if !loaded {
		if l.snapAt.Load() < 0 {
			return nil, nil
		}
		if err := l.needProducersLocked(); err != nil {
			return nil, err
		}
	}
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	if len(l.producers.byID) == 0 {
		return nil, nil
	}
	return l.producers.encode(offset), nil
}

// finishSeals writes snapshot, index and footer of segments that were sealed
// and synced. It needs maintMu.
func (l *Log) finishSeals() error {
	for _, seg := range l.list() {
		s := seg.sealing.Load()
		if s == nil || !seg.is(segSynced) || seg.is(segGone) {
			continue
		}
		if s.snapshot != nil {
			if err := l.writeSnapshot(s.next, s.snapshot); err != nil {
				return l.failUnlessFull("writing a producer snapshot", err)
			}
		}
		ix := seg.index.Load()
		if err := l.writeIndex(seg, ix, s.persisted, ix.len()); err != nil {
			return l.failUnlessFull("writing an index", err)
		}
		seg.set(segTrusted)
		seg.sealing.Store(nil)
		l.store.indexes.add(seg, ix)
		if fn := l.store.onSealed.Load(); fn != nil {
			(*fn)(l)
		}
	}
	return nil
}

// writeIndex brings the index file up to the first n entries of ix, of which
// persisted are there.
func (l *Log) writeIndex(seg *segment, ix *segIndex, persisted, n int) error {
	f, err := l.store.fs.OpenAppend(seg.path(indexExt))
	if err != nil {
		return err
	}
	at := int64(persisted) * indexEntrySize
	if size, serr := f.Size(); serr != nil || size != at {
		// Entries of a tail that was cut must not come back after power loss
		// to describe what was appended in its place.
		err = errors.Join(serr, f.Truncate(at), f.Sync())
	}
	if err == nil && n > persisted {
		_, err = f.WriteAt(ix.encode(persisted, n), at)
	}
	return errors.Join(err, f.Close())
}

// writeFile writes a whole file whose content has a checksum, so that it
// needs no rename.
func (l *Log) writeFile(path string, b []byte) error {
	f, err := l.store.fs.Create(path)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	return errors.Join(err, f.Close())
}

// writeSnapshot writes a producer snapshot. One that is there may be synced
// and the only one left, so it is not written over.
func (l *Log) writeSnapshot(offset int64, b []byte) error {
	path := l.path(offset, snapshotExt)
	old, err := vfs.ReadFile(l.store.fs, path, snapshotBytesMax)
	if errors.Is(err, vfs.ErrNotExist) {
		return l.writeFile(path, b)
	}
	if err == nil && bytes.Equal(old, b) {
		return nil
	}
	return vfs.WriteFileAtomic(l.store.fs, path, b)
}

// markUnsynced queues a file for the next sync, keeping it open until then.
func (l *Log) markUnsynced(seg *segment, h *handle) {
	if !seg.setOnce(segQueued) {
		return
	}
	l.store.files.repin(h)
	l.queueMu.Lock()
	l.unsynced = append(l.unsynced, unsynced{seg, h})
	l.queueMu.Unlock()
}

// takeUnsynced empties the queue; the caller syncs and releases. Flags are
// cleared first: a write from now on queues the file again.
func (l *Log) takeUnsynced(to []unsynced) []unsynced {
	l.queueMu.Lock()
	defer l.queueMu.Unlock()
	for _, u := range l.unsynced {
		u.seg.clear(segQueued)
		to = append(to, u)
	}
	clear(l.unsynced)
	l.unsynced = l.unsynced[:0]
	return to
}

// takeNames says whether the directory has entries that are not synced; the caller
// syncs them.
func (l *Log) takeNames() bool {
	l.queueMu.Lock()
	defer l.queueMu.Unlock()
	names := l.newNames
	l.newNames = false
	return names
}

// needProducers loads the producer state.
func (l *Log) needProducers() error {
	l.stateMu.Lock()
	loaded := l.producers != nil
	l.stateMu.Unlock()
	if loaded {
		return nil
	}
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	return l.needProducersLocked()
}

// needProducersLocked needs appendMu, so that the log does not grow meanwhile.
func (l *Log) needProducersLocked() error {
	l.stateMu.Lock()
	loaded := l.producers != nil
	l.stateMu.Unlock()
	if loaded {
		return nil
	}
	ps := newProducers()
	if l.snapAt.Load() >= 0 {
		var err error
		if ps, err = l.replayOn(l.offsets.end.Load()); err != nil {
			return err
		}
	}
	l.stateMu.Lock()
	l.producers = ps
	l.publishUnstableLocked()
	l.stateMu.Unlock()
	return nil
}

// replayProducers rebuilds producer state as of offset: the newest good
// snapshot at or below it, then the batches that follow.
func (l *Log) replayProducers(offset int64) (*producers, error) {
	return l.replay(offset, l.walkSegment)
}

// replayPast is replayProducers that passes what is quarantined, for who must go
// on meanwhile: a repair makes the state whole.
func (l *Log) replayPast(offset int64) (*producers, error) {
	return l.replay(offset, l.walkBarred)
}

// replayOn is replayPast that passes what it finds on its way, too.
func (l *Log) replayOn(offset int64) (ps *producers, err error) {
	err = l.goOn(func() error {
		ps, err = l.replayPast(offset)
		return err
	})
	return ps, err
}

// goOn does again what passes quarantined damage, as long as it finds more: all
// of a segment's is found at once, but for what appears meanwhile.
func (l *Log) goOn(fn func() error) error {
	err := fn()
	for tries := len(l.list()) + 8; tries > 0 && errors.Is(err, ErrCorrupt); tries-- {
		err = fn()
	}
	return err
}

func (l *Log) replay(offset int64, walk walkFunc) (*producers, error) {
	entries, err := l.store.fs.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	var at []int64
	for _, e := range entries {
		if o, ext, ok := parseOffsetName(e.Name()); ok && ext == snapshotExt && o <= offset {
			at = append(at, o)
		}
	}
	sort.Slice(at, func(i, j int) bool { return at[i] > at[j] })
	ps, from := newProducers(), int64(0)
	for _, o := range at {
		b, err := vfs.ReadFile(l.store.fs, filepath.Join(l.dir, offsetName(o, snapshotExt)), snapshotBytesMax)
		if err != nil {
			return nil, err
		}
		if got, named, derr := decodeSnapshot(b); derr == nil && named == o {
			ps, from = got, o
			break
		} else if derr != nil {
			l.logger().Warn("producer snapshot is damaged, an older one serves", "offset", o, "err", derr)
		}
	}
	err = l.walkRangeBy(walk, from, offset, func(b batch.Batch) error {
		if !b.HasProducer() {
			return nil
		}
		m, err := markerOf(b)
		if err != nil {
			return err
		}
		ps.apply(b, m, 0)
		return nil
	})
	ps.heard(l.store.now())
	return ps, err
}

// walkRange calls fn for every batch of the local log with offsets in
// [from, to). It does not look at what follows, which may be a torn tail.
func (l *Log) walkRange(from, to int64, fn func(batch.Batch) error) error {
	return l.walkRangeBy(l.walkSegment, from, to, fn)
}

// walkFunc is walkSegment, or passes more than that.
type walkFunc func(seg *segment, from, to int64, fn func(batch.Batch) error) error

func (l *Log) walkRangeBy(walk walkFunc, from, to int64, fn func(batch.Batch) error) error {
	segs := l.list()
	for i, seg := range segs {
		if seg.base >= to || i+1 < len(segs) && segs[i+1].base <= from {
			continue
		}
		if err := walk(seg, from, to, fn); err != nil {
			return err
		}
	}
	return nil
}

// walkStart is a position at or before the batch that holds from, 0 when the
// index does not help.
func (l *Log) walkStart(seg *segment, f vfs.File, size, from int64) int64 {
	if from <= seg.base {
		return 0
	}
	ix := seg.index.Load()
	if ix == nil {
		ix = l.readIndexFile(seg, size)
	}
	p, err := seg.find(f, ix, size, from)
	if err != nil {
		return 0
	}
	return p.pos
}

func (l *Log) walkSegment(seg *segment, from, to int64, fn func(batch.Batch) error) error {
	return l.walkPast(seg, nil, from, to, fn)
}

// walkBarred is walkSegment that passes what is quarantined.
func (l *Log) walkBarred(seg *segment, from, to int64, fn func(batch.Batch) error) error {
	return l.walkPast(seg, seg.bad.Load(), from, to, fn)
}

// walkKept is walkSegment that passes damage below the log start: what was
// deleted is not brought back.
func (l *Log) walkKept(seg *segment, from, to int64, fn func(batch.Batch) error) error {
	return l.walkPast(seg, seg.bad.Load().endedAt(l.offsets.load().LocalStart), from, to, fn)
}

// walkPast is walkSegment that passes what a quarantine bars, and notes that.
func (l *Log) walkPast(seg *segment, q *quarantine, from, to int64, fn func(batch.Batch) error) error {
	size, err := seg.bytes()
	if err != nil || size == 0 {
		return err
	}
	h, err := l.store.files.acquire(seg, false)
	if err != nil {
		return err
	}
	defer l.store.files.release(h)
	if q == nil {
		return seg.walk(h.file, l.walkStart(seg, h.file, size, from), size, from, to, fn)
	}
	pos := int64(0)
	for _, r := range q.ranges {
		if r.start >= to {
			break
		}
		if err := seg.walk(h.file, pos, min(r.from, size), from, to, fn); err != nil {
			return err
		}
		if r.end > from {
			l.passed(max(r.start, seg.base))
		}
		if pos = r.to; pos >= size {
			return nil
		}
	}
	return seg.walk(h.file, pos, size, from, to, fn)
}

// walk calls fn for the batches with offsets in [from, to) between two positions.
func (s *segment) walk(f vfs.File, pos, end, from, to int64, fn func(batch.Batch) error) error {
	sc := newScanner(f, pos, end)
	for next := max(s.base, from); next < to; {
		at := sc.pos
		b, err := sc.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			if unreadable(err) {
				return s.unreadable(err)
			}
			if isDamage(err) {
				return s.damaged(at, err)
			}
			return err
		}
		next = b.NextOffset()
		if b.LastOffset() < from {
			continue
		}
		if b.BaseOffset() >= to {
			return nil
		}
		if err := fn(b); err != nil {
			return err
		}
	}
	return nil
}
