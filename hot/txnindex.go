package hot

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// Transaction index file (%020d.txnindex), big-endian: a run of 40-byte
// entries, one per aborted transaction whose marker lies in the segment, in
// the order of the markers.
//
//	offset size field
//	     0    8  producer id
//	     8    8  first offset of the transaction
//	    16    8  offset of its marker
//	    24    8  last stable offset once the marker was written
//	    32    4  reserved, 0
//	    36    4  CRC-32C of the segment's base offset (8 bytes) and bytes 0..35
//
// Torn tail: entries end at the first bad checksum. Recovery writes the file
// anew for what it scans.
const txnEntrySize = 40

func appendTxnEntry(dst []byte, seed uint32, t batch.AbortedTxn) []byte {
	at := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.ProducerID))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.FirstOffset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.LastOffset))
	dst = binary.BigEndian.AppendUint64(dst, uint64(t.LastStable))
	dst = binary.BigEndian.AppendUint32(dst, 0)
	return binary.BigEndian.AppendUint32(dst, crc32.Update(seed, castagnoli, dst[at:]))
}

func encodeTxns(base int64, txns []batch.AbortedTxn) []byte {
	var b []byte
	seed := indexSeed(base)
	for _, t := range txns {
		b = appendTxnEntry(b, seed, t)
	}
	return b
}

// parseTxns reads entries up to the first bad one.
func parseTxns(b []byte, base int64) (txns []batch.AbortedTxn, whole bool) {
	seed := indexSeed(base)
	for len(b) >= txnEntrySize {
		if crc32.Update(seed, castagnoli, b[:36]) != binary.BigEndian.Uint32(b[36:]) {
			return txns, false
		}
		i64 := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
		txns = append(txns, batch.AbortedTxn{ProducerID: i64(0), FirstOffset: i64(8), LastOffset: i64(16), LastStable: i64(24)})
		b = b[txnEntrySize:]
	}
	return txns, len(b) == 0
}

// appendTxn adds an aborted transaction to the active segment's index.
func (l *Log) appendTxn(t *tail, txn batch.AbortedTxn) error {
	if ahead := t.seg.txnsAhead.Load(); ahead != nil {
		t.seg.holdTxn(txn)
		return nil
	}
	f, err := l.store.fs.OpenAppend(t.seg.path(txnExt))
	if err != nil {
		return err
	}
	size, err := f.Size()
	if err == nil {
		_, err = f.Write(appendTxnEntry(nil, indexSeed(t.seg.base), txn))
	}
	if isDiskEnd(err) {
		// The marker is in the log already, so readers must see the entry.
		if err = f.Truncate(size); err == nil {
			t.seg.holdTxn(txn)
			l.store.refuse(0)
		}
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	l.wroteTxns(t.seg)
	return nil
}

// holdTxn keeps an entry that did not fit on the disk. It needs appendMu.
func (s *segment) holdTxn(txn batch.AbortedTxn) {
	var held []batch.AbortedTxn
	if p := s.txnsAhead.Load(); p != nil {
		held = slices.Clone(*p)
	}
	held = append(held, txn)
	s.txnsAhead.Store(&held)
}

// flushTxns writes entries that are held for want of space: the recovery point
// must not pass them.
func (l *Log) flushTxns(segs []*segment) error {
	for _, seg := range segs {
		if seg.txnsAhead.Load() == nil || seg.is(segGone) {
			continue
		}
		l.appendMu.Lock()
		txns, _, err := seg.readTxns()
		if err == nil {
			err = vfs.WriteFileAtomic(l.store.fs, seg.path(txnExt), encodeTxns(seg.base, txns))
		}
		if err == nil {
			seg.txnsAhead.Store(nil)
		}
		l.appendMu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// txnsAgain leaves transaction indexes to the next checkpoint.
func (l *Log) txnsAgain(segs []*segment) {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	for _, seg := range segs {
		if !slices.Contains(l.txnsUnsynced, seg) {
			l.txnsUnsynced = append(l.txnsUnsynced, seg)
		}
	}
}

// wroteTxns notes that a transaction index must be synced before the recovery
// point passes it: nothing rebuilds what lies below. It needs appendMu, or a
// log nobody else has yet.
func (l *Log) wroteTxns(seg *segment) {
	if seg.setOnce(segTxns) {
		l.queueMu.Lock()
		l.newNames = true
		l.queueMu.Unlock()
	}
	if !slices.Contains(l.txnsUnsynced, seg) {
		l.txnsUnsynced = append(l.txnsUnsynced, seg)
	}
}

// syncTxns makes transaction indexes durable.
func (l *Log) syncTxns(segs []*segment) error {
	for _, seg := range segs {
		f, err := l.store.fs.OpenAppend(seg.path(txnExt))
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil && !seg.is(segGone) {
			return err
		}
	}
	return nil
}

// txns is the segment's aborted transactions.
func (s *segment) txns() ([]batch.AbortedTxn, error) {
	txns, whole, err := s.readTxns()
	if err != nil || whole {
		return txns, err
	}
	if !s.is(segSealed) {
		// Loading the tail repairs it.
		if err := s.log.needTail(); err != nil {
			return nil, err
		}
		txns, _, err = s.readTxns()
		return txns, err
	}
	return s.rebuildTxns(1 << 62)
}

func (s *segment) readTxns() (txns []batch.AbortedTxn, whole bool, err error) {
	if !s.is(segTxns) {
		return nil, true, nil
	}
	// Before the file: entries move from here into it.
	ahead := s.txnsAhead.Load()
	b, err := vfs.ReadFile(s.log.store.fs, s.path(txnExt), 1<<30)
	if err != nil {
		if s.is(segGone) {
			return nil, false, ErrSegmentGone
		}
		return nil, false, err
	}
	txns, whole = parseTxns(b, s.base)
	if ahead != nil && whole {
		for _, t := range *ahead {
			if !slices.Contains(txns, t) {
				txns = append(txns, t)
			}
		}
	}
	return txns, whole, nil
}

// rebuildTxns derives the index again from the markers of the segment below
// offset to, and writes it. The first offset of a transaction may lie in an
// earlier segment, so producer state is replayed up to here.
func (s *segment) rebuildTxns(to int64) ([]batch.AbortedTxn, error) {
	return s.rebuildTxnsBy(s.log.replayProducers, s.log.walkSegment, to)
}

func (s *segment) rebuildTxnsBy(replay func(int64) (*producers, error), walk walkFunc, to int64) ([]batch.AbortedTxn, error) {
	ps, err := replay(s.base)
	if err != nil {
		return nil, err
	}
	txns, err := ps.applySegment(s, walk, to)
	if err != nil {
		return nil, err
	}
	s.log.logger().Warn("transaction index was damaged and is rebuilt", "segment", s.base)
	return txns, vfs.WriteFileAtomic(s.log.store.fs, s.path(txnExt), encodeTxns(s.base, txns))
}

// applySegment takes the batches of a segment below offset to, and returns the
// transactions that end there aborted.
func (ps *producers) applySegment(s *segment, walk walkFunc, to int64) (txns []batch.AbortedTxn, err error) {
	return ps.applyFrom(s, walk, s.base, to)
}

// applyFrom is applySegment for batches from an offset on.
func (ps *producers) applyFrom(s *segment, walk walkFunc, from, to int64) (txns []batch.AbortedTxn, err error) {
	err = walk(s, from, to, func(b batch.Batch) error {
		if !b.HasProducer() {
			return nil
		}
		m, err := markerOf(b)
		if err != nil {
			return err
		}
		if t, aborted := ps.apply(b, m, 0); aborted {
			txns = append(txns, t)
		}
		return nil
	})
	return txns, err
}

// AbortedTxns lists aborted transactions that overlap [from, upper), in the
// order of their markers; those whose marker lies at or beyond the local end
// are not known yet. Below the local start it begins at the local start.
func (l *Log) AbortedTxns(from, upper int64) ([]batch.AbortedTxn, error) {
	out := []batch.AbortedTxn{}
	segs, end := l.list(), l.offsets.end.Load()
	for i, seg := range segs {
		if i+1 < len(segs) && segs[i+1].base <= from {
			continue
		}
		txns, err := seg.txns()
		if err != nil {
			return nil, err
		}
		for _, t := range txns {
			if t.LastOffset >= from && t.FirstOffset < upper && t.LastOffset < end {
				out = append(out, t)
			}
			// Everything before the last stable offset is decided: later
			// markers cannot concern offsets below it.
			if t.LastStable >= upper {
				return out, nil
			}
		}
	}
	return out, nil
}
