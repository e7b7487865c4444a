package hot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
)

// checkpointed is a log's state at one moment, to be written once everything
// below it is synced.
type checkpointed struct {
	state    partitionState
	cuts     uint64
	derived  uint32 // Log.rederived
	seg      *segment
	ix       *segIndex
	from, to int // index entries to add to the file
	snapshot []byte
	chain    lineage.Chain // nil when the file has it
	txns     []*segment    // whose transaction index is to be synced
}

// capture takes the state to checkpoint, nil when nothing changed. It needs
// maintMu.
func (l *Log) capture(closing bool) (*checkpointed, error) {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	l.changed.Store(false)
	l.grown.Store(0)
	t := l.tail
	if err := l.Err(); err != nil && !(closing && errors.Is(err, ErrClosed)) {
		return nil, nil
	}
	if t == nil {
		// Nothing was appended since the log was opened; offsets may have moved.
		l.saved.highWatermark, l.saved.hadEpoch = l.watermark()
		l.saved.logStart, l.saved.lacks = l.offsets.logStart.Load(), l.lacks()
		return nil, l.journal(l.saved)
	}
	end, cuts := l.offsets.capture()
	snapshot, err := l.snapshotLocked(end)
	if err != nil {
		return nil, err
	}
	c := &checkpointed{state: l.saved, cuts: cuts, derived: l.rederived, seg: t.seg, ix: t.ix.ix, from: t.persisted, to: t.ix.ix.len(), snapshot: snapshot}
	c.txns, l.txnsUnsynced = l.txnsUnsynced, nil
	t.clean = true
	c.state.recovery, c.state.segment, c.state.position = end, t.seg.base, uint32(t.pos)
	c.state.epoch = *l.latest.Load()
	c.state.firstUnstable = l.unstable.Load()
	c.state.snapshot = -1
	if snapshot != nil {
		c.state.snapshot = end
	}
	// Loaded if need be: the journal has the latest entry only, and the file
	// must have it before the next one takes its place.
	if c.chain, err = l.loadChain(); err != nil {
		return nil, err
	}
	c.state.epochs = uint32(len(c.chain))
	return c, nil
}

// write writes the files capture asks for; the log is synced up to there.
// With bulk set the caller syncs the file system afterwards. It needs maintMu.
func (l *Log) write(c *checkpointed, bulk bool) (err error) {
	defer func() {
		if err != nil {
			l.txnsAgain(c.txns)
		}
	}()
	if err := l.flushTxns(c.txns); err != nil {
		return l.failUnlessFull("writing a transaction index", err)
	}
	if !bulk {
		if err := l.syncTxns(c.txns); err != nil {
			return l.failUnlessFull("syncing a transaction index", err)
		}
	}
	if !l.stands(c) {
		return nil
	}
	if err := l.finishSeals(); err != nil {
		return err
	}
	// Of a segment that was rolled meanwhile the footer completes the index. One
	// rolled from here on may have its footer in memory: it is not written
	// before the sync, so no entry beyond those captured is.
	if !c.seg.is(segSealed) {
		if err := l.writeIndex(c.seg, c.ix, c.from, c.to); err != nil {
			return l.failUnlessFull("writing an index", err)
		}
		l.appendMu.Lock()
		if l.tail != nil && l.tail.seg == c.seg {
			l.tail.persisted = c.to
		}
		l.appendMu.Unlock()
	}
	if c.snapshot != nil {
		if err := l.writeSnapshot(c.state.recovery, c.snapshot); err != nil {
			return l.failUnlessFull("writing a producer snapshot", err)
		}
	}
	if err := l.saveEpochs(c.chain, bulk); err != nil {
		return l.failUnlessFull("writing leader epochs", err)
	}
	return nil
}

// stands says whether the state captured is still the log's past, synced, and
// not behind what retention journaled meanwhile.
func (l *Log) stands(c *checkpointed) bool {
	_, cuts := l.offsets.capture()
	return cuts == c.cuts && l.rederived == c.derived && c.state.recovery >= l.saved.recovery && l.offsets.flushPoint() >= c.state.recovery && !errors.Is(l.Err(), ErrOffline)
}

// commit makes the captured state the one recovery starts from, once all that
// write wrote is synced. It needs maintMu.
func (l *Log) commit(c *checkpointed) error {
	if !l.stands(c) {
		return nil
	}
	c.state.highWatermark, c.state.hadEpoch = l.watermark()
	c.state.logStart = l.offsets.logStart.Load()
	c.state.localStart = l.saved.localStart
	c.state.cleanPoint = l.saved.cleanPoint
	c.state.lacks = l.lacks()
	l.saved = c.state
	if err := l.journal(l.saved); err != nil {
		return l.fail("writing the journal", err)
	}
	l.snapAt.Store(c.state.snapshot)
	return l.dropSpareSnapshot(c.state.snapshot)
}

// dropSpareSnapshot removes the previous checkpoint's snapshot, unless it is
// a segment's too.
func (l *Log) dropSpareSnapshot(now int64) error {
	old := l.spare
	if old == now {
		return nil
	}
	l.spare = now
	if old < 0 {
		return nil
	}
	for _, seg := range l.list() {
		if seg.base == old {
			return nil
		}
	}
	if err := l.store.fs.Remove(l.path(old, snapshotExt)); err != nil && !errors.Is(err, vfs.ErrNotExist) {
		return l.fail("removing a producer snapshot", err)
	}
	return nil
}

// idle lets go of what an idle partition need not hold: its descriptor, its
// index, its producers.
func (l *Log) idle() {
	if !l.appendMu.TryLock() {
		return
	}
	defer l.appendMu.Unlock()
	t := l.tail
	if t == nil || !t.clean || l.changed.Load() || l.Err() != nil || t.persisted != t.ix.ix.len() {
		return
	}
	l.tail = nil
	t.seg.index.Store(nil)
	l.store.files.release(t.h)
	l.stateMu.Lock()
	if l.producers != nil && len(l.producers.done) == 0 {
		l.producers = nil
	}
	l.stateMu.Unlock()
}

// Leader epoch file (leader-epochs), big-endian:
//
//	offset size field
//	     0    4  magic "VEPC"
//	     4    2  version, 1
//	     6    2  reserved, 0
//	     8    4  CRC-32C of everything from byte 12 on
//	    12    4  number of entries
//	    16    …  entries by rising epoch: epoch 4, start offset 8
//
// Entries for epochs that began since are in the journal (the latest) and in
// the batches above the recovery point.
const (
	epochsMagic      = "VEPC"
	epochsVersion    = 1
	epochsHeaderSize = 16
	epochEntrySize   = 12
)

func encodeEpochs(c lineage.Chain) []byte {
	b := make([]byte, 12, epochsHeaderSize+len(c)*epochEntrySize)
	copy(b, epochsMagic)
	binary.BigEndian.PutUint16(b[4:], epochsVersion)
	b = binary.BigEndian.AppendUint32(b, uint32(len(c)))
	for _, e := range c {
		b = binary.BigEndian.AppendUint32(b, uint32(e.Epoch))
		b = binary.BigEndian.AppendUint64(b, uint64(e.Start))
	}
	binary.BigEndian.PutUint32(b[8:], crc32.Checksum(b[12:], castagnoli))
	return b
}

func decodeEpochs(b []byte) (lineage.Chain, error) {
	if len(b) < epochsHeaderSize || string(b[:4]) != epochsMagic || binary.BigEndian.Uint16(b[4:]) != epochsVersion ||
		crc32.Checksum(b[12:], castagnoli) != binary.BigEndian.Uint32(b[8:]) {
		return nil, fmt.Errorf("leader epochs are damaged: %w", ErrCorrupt)
	}
	n := int(binary.BigEndian.Uint32(b[12:]))
	b = b[epochsHeaderSize:]
	if len(b) != n*epochEntrySize {
		return nil, fmt.Errorf("leader epochs are cut short: %w", ErrCorrupt)
	}
	c := make(lineage.Chain, 0, n)
	for ; len(b) > 0; b = b[epochEntrySize:] {
		c = append(c, lineage.Entry{Epoch: int32(binary.BigEndian.Uint32(b)), Start: int64(binary.BigEndian.Uint64(b[4:]))})
	}
	if !c.Valid() {
		return nil, fmt.Errorf("leader epochs do not rise: %w", ErrCorrupt)
	}
	return c, nil
}

// saveEpochs writes the chain if it changed, synced. With bulk set it leaves a
// temporary file, which the caller syncs before renameEpochs: the old one may
// have what no batch tells any more. It needs maintMu.
func (l *Log) saveEpochs(c lineage.Chain, bulk bool) error {
	if l.hasEpochs(c) {
		return nil
	}
	if err := l.noteDoubt(); err != nil {
		return err
	}
	path, b := filepath.Join(l.dir, epochsName), encodeEpochs(c)
	if bulk {
		return l.writeFile(path+tmpExt, b)
	}
	if err := vfs.WriteFileAtomic(l.store.fs, path, b); err != nil {
		return err
	}
	l.epochs = new(c)
	return nil
}

// hasEpochs says whether leader-epochs needs no writing to have the chain. It needs maintMu.
func (l *Log) hasEpochs(c lineage.Chain) bool {
	return len(c) == 0 || l.epochs != nil && c.Equal(*l.epochs)
}

// renameEpochs puts what saveEpochs left in its place and says whether it did.
// It needs maintMu.
func (l *Log) renameEpochs(c *checkpointed) (bool, error) {
	if !l.stands(c) || l.hasEpochs(c.chain) {
		return false, nil
	}
	path := filepath.Join(l.dir, epochsName)
	err := l.store.fs.Rename(path+tmpExt, path)
	if errors.Is(err, vfs.ErrNotExist) {
		return false, nil // written by somebody else meanwhile
	}
	if err != nil {
		return false, l.fail("writing leader epochs", err)
	}
	l.epochs = new(c.chain)
	return true, nil
}

// loadChain is the chain, read on first use.
func (l *Log) loadChain() (lineage.Chain, error) {
	if p := l.chain.Load(); p != nil {
		return *p, nil
	}
	c, err := l.readChain(l.savedEpochs())
	if err != nil {
		return nil, err
	}
	l.chain.CompareAndSwap(nil, &c)
	return *l.chain.Load(), nil
}

func (l *Log) savedEpochs() (lineage.Entry, uint32) {
	s, _ := l.store.journal.state(keyOf(l.part))
	return s.epoch, s.epochs
}

// readChain joins the file with the journal's latest entry.
func (l *Log) readChain(latest lineage.Entry, entries uint32) (lineage.Chain, error) {
	if entries <= 1 {
		return lineage.Chain{}.Assign(latest.Epoch, latest.Start), nil
	}
	c, err := l.readEpochs()
	if err == nil {
		return c.Assign(latest.Epoch, latest.Start), nil
	}
	if !errors.Is(err, vfs.ErrNotExist) && !errors.Is(err, ErrCorrupt) {
		return nil, err
	}
	l.logger().Warn("leader epochs are missing or damaged and are rebuilt from the local batches", "err", err)
	c, err = l.chainOn(l.offsets.end.Load())
	return c.Assign(latest.Epoch, latest.Start), err
}

func (l *Log) readEpochs() (lineage.Chain, error) {
	b, err := vfs.ReadFile(l.store.fs, filepath.Join(l.dir, epochsName), 1<<30)
	if err != nil {
		return nil, err
	}
	return decodeEpochs(b)
}
