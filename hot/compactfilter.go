package hot

import (
	"sort"

	"github.com/varvelog/varve/hot/batch"
)

// txnTracker follows transactions along the batches of a log, in order, for
// compaction: which data is aborted, and which markers still have data.
type txnTracker struct {
	pending   []batch.AbortedTxn // by first offset, not reached yet
	aborted   map[int64]*abortedSeen
	committed map[int64]bool // producers with data seen since their last marker
}

type abortedSeen struct {
	txn  batch.AbortedTxn
	data bool
}

func newTxnTracker(aborted []batch.AbortedTxn) *txnTracker {
	pending := append([]batch.AbortedTxn(nil), aborted...)
	sort.SliceStable(pending, func(i, j int) bool { return pending[i].FirstOffset < pending[j].FirstOffset })
	return &txnTracker{pending: pending, aborted: map[int64]*abortedSeen{}, committed: map[int64]bool{}}
}

func (t *txnTracker) upTo(offset int64) {
	for len(t.pending) > 0 && t.pending[0].FirstOffset <= offset {
		txn := t.pending[0]
		t.pending = t.pending[1:]
		if t.aborted[txn.ProducerID] == nil {
			t.aborted[txn.ProducerID] = &abortedSeen{txn: txn}
		}
	}
}

// data says whether a data batch belongs to an aborted transaction.
func (t *txnTracker) data(b batch.Batch) (isAborted bool) {
	t.upTo(b.LastOffset())
	if !b.Transactional() {
		return false
	}
	if a := t.aborted[b.ProducerID()]; a != nil {
		a.data = true
		return true
	}
	t.committed[b.ProducerID()] = true
	return false
}

// control says whether a marker has outlived its transaction's data; kept is
// the transaction index entry that must stay with the marker.
func (t *txnTracker) control(b batch.Batch) (empty bool, kept *batch.AbortedTxn, err error) {
	t.upTo(b.LastOffset())
	m, ok, err := b.EndTxnMarker()
	if err != nil {
		return false, nil, err
	}
	id := b.ProducerID()
	if !ok {
		// Its record was removed already, or it is of a kind we keep.
		return b.Count() == 0, nil, nil
	}
	if m.Type == batch.Abort {
		a := t.aborted[id]
		delete(t.aborted, id)
		if a != nil && a.data {
			return false, &a.txn, nil
		}
		return true, nil, nil
	}
	seen := t.committed[id]
	delete(t.committed, id)
	return !seen, nil, nil
}

// lastRecord is what must survive of a live producer: its last data batch, or
// its last marker when it has none, so that sequence and epoch can be rebuilt
// from the log alone.
type lastRecord struct {
	offset int64 // of the last data batch, -1 none
	epoch  int16
}

// compactFilter decides what stays, with the rules of Kafka's cleaner.
type compactFilter struct {
	keys      *keyMap
	txns      *txnTracker
	last      map[int64]lastRecord
	now       int64
	retention int64 // delete.retention.ms
	removed   int64 // records
}

// apply is the batch to write, nil when nothing stays; kept is a transaction
// index entry to write with it.
func (f *compactFilter) apply(b batch.Batch) (out batch.Batch, kept *batch.AbortedTxn, err error) {
	if b.Control() {
		return f.applyControl(b)
	}
	discard := f.txns.data(b)
	tombstones := false
	keep := func(r batch.Record) bool {
		ok := !discard && f.keepRecord(b, r)
		tombstones = tombstones || ok && r.Value == nil
		return ok
	}
	res, err := batch.Rewrite(b, keep, batch.RewriteOptions{DeleteHorizon: batch.NoTimestamp})
	if err != nil {
		return nil, nil, err
	}
	if _, has := b.DeleteHorizon(); tombstones && !has {
		res, err = batch.Rewrite(b, keep, batch.RewriteOptions{DeleteHorizon: f.now + f.retention})
		if err != nil {
			return nil, nil, err
		}
	}
	f.removed += int64(res.Removed)
	if res.Batch == nil && f.isLast(b) {
		return batch.Empty(b), nil, nil
	}
	return res.Batch, nil, nil
}

func (f *compactFilter) keepRecord(b batch.Batch, r batch.Record) bool {
	if r.Offset > f.keys.latest {
		return true
	}
	if r.Key == nil {
		return false
	}
	if r.Offset < f.keys.get(r.Key) {
		return false
	}
	horizon, has := b.DeleteHorizon()
	return r.Value != nil || !has || f.now < horizon
}

// applyControl keeps a marker while its transaction has data, and for
// delete.retention.ms from when that was last seen gone.
func (f *compactFilter) applyControl(b batch.Batch) (batch.Batch, *batch.AbortedTxn, error) {
	empty, kept, err := f.txns.control(b)
	if err != nil {
		return nil, nil, err
	}
	horizon, has := b.DeleteHorizon()
	switch {
	case !empty || b.Count() == 0 && f.isLast(b):
		return b, kept, nil
	case b.Count() == 0:
		return nil, nil, nil
	case has && horizon <= f.now:
		f.removed += int64(b.Count())
		if f.isLast(b) {
			return batch.Empty(b), nil, nil
		}
		return nil, nil, nil
	case has:
		return b, nil, nil
	}
	res, err := batch.Rewrite(b, func(batch.Record) bool { return true }, batch.RewriteOptions{DeleteHorizon: f.now + f.retention})
	return res.Batch, nil, err
}

func (f *compactFilter) isLast(b batch.Batch) bool {
	if !b.HasProducer() {
		return false
	}
	last, ok := f.last[b.ProducerID()]
	if !ok {
		return false
	}
	if last.offset >= 0 {
		return b.LastOffset() == last.offset
	}
	return b.Control() && b.ProducerEpoch() == last.epoch
}
