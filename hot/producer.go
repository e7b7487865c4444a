package hot

import (
	"fmt"
	"math"
	"sort"

	"github.com/varvelog/varve/hot/batch"
)

// batchesKept is how many of a producer's last batches are remembered to
// recognise a repeat (KIP-98: clients have at most five in flight).
const batchesKept = 5

// producerBatch is one remembered batch.
type producerBatch struct {
	firstSeq, lastSeq int32
	delta             int32 // last offset − first offset
	lastOffset        int64
	timestamp         int64
}

// producer is what a partition knows about one producer id.
type producer struct {
	id               int64
	epoch            int16
	coordinatorEpoch int32
	kept             int8 // batches in ring
	head             int8 // oldest of them
	ring             [batchesKept]producerBatch
	lastTimestamp    int64 // of its records, as DescribeProducers tells it
	appended         int64 // wall clock of its last append, ms, 0 not known
	txnFirst         int64 // first offset of the open transaction, -1 none
	ends             int32 // markers seen in this process, see Log.TxnGuard
}

func newProducer(id int64) *producer {
	return &producer{id: id, epoch: batch.NoProducerEpoch, coordinatorEpoch: -1, lastTimestamp: -1, txnFirst: -1}
}

func (p *producer) lastSeq() int32 {
	if p.kept == 0 {
		return batch.NoSequence
	}
	return p.ring[(p.head+p.kept-1)%batchesKept].lastSeq
}

func (p *producer) push(b producerBatch) {
	if p.kept == batchesKept {
		p.ring[p.head] = b
		p.head = (p.head + 1) % batchesKept
		return
	}
	p.ring[(p.head+p.kept)%batchesKept] = b
	p.kept++
}

func (p *producer) find(first, last int32) (producerBatch, bool) {
	for i := range p.kept {
		b := p.ring[(p.head+i)%batchesKept]
		if b.firstSeq == first && b.lastSeq == last {
			return b, true
		}
	}
	return producerBatch{}, false
}

func (p *producer) setEpoch(epoch int16) {
	if p.epoch != epoch {
		p.epoch = epoch
		p.kept, p.head = 0, 0
	}
}

// openTxn is a transaction without a marker; doneTxn one whose marker is not
// below the high watermark yet.
type openTxn struct{ first, producerID int64 }
type doneTxn struct{ first, last int64 }

// producers is the producer state of a log (KIP-98). Log.stateMu guards it.
type producers struct {
	byID map[int64]*producer
	open []openTxn // by first offset
	done []doneTxn // by last offset
}

func newProducers() *producers { return &producers{byID: map[int64]*producer{}} }

// marker is a control record that ends a transaction.
type marker struct {
	commit           bool
	coordinatorEpoch int32
}

// check says whether a client's or coordinator's batch may be appended.
// repeat is set for one that already was.
func (ps *producers) check(b batch.Batch, m *marker, o *AppendOptions) (repeat producerBatch, isRepeat bool, err error) {
	id := b.ProducerID()
	if id < 0 {
		return repeat, false, nil
	}
	p := ps.byID[id]
	if m != nil {
		return repeat, false, checkMarker(p, b, m, o)
	}
	epoch := b.ProducerEpoch()
	if p == nil {
		if b.Transactional() && o.Origin == Client {
			if err := o.verified(0); err != nil {
				return repeat, false, fmt.Errorf("producer %d: %w", id, err)
			}
			if o.TxnV2 && b.BaseSequence() != 0 {
				return repeat, false, fmt.Errorf("producer %d is unknown here and starts at sequence %d: %w", id, b.BaseSequence(), ErrOutOfOrderSequence)
			}
		}
		return repeat, false, nil
	}
	if epoch == p.epoch && b.BaseSequence() != batch.NoSequence {
		if r, ok := p.find(b.BaseSequence(), b.LastSequence()); ok {
			return r, true, nil
		}
	}
	if epoch < p.epoch {
		return repeat, false, fmt.Errorf("producer %d has epoch %d, the partition has seen %d: %w", id, epoch, p.epoch, ErrStaleProducerEpoch)
	}
	if err := checkTxn(p, b, o); err != nil {
		return repeat, false, err
	}
	if o.Origin == Client {
		err = checkSequence(p, b)
	}
	return repeat, false, err
}

func checkTxn(p *producer, b batch.Batch, o *AppendOptions) error {
	switch {
	case b.Transactional() && !p.inTxn(b.ProducerEpoch()) && o.Origin == Client:
		if err := o.verified(p.ends); err != nil {
			return fmt.Errorf("producer %d: %w", p.id, err)
		}
	case !b.Transactional() && p.txnFirst >= 0 && b.ProducerEpoch() == p.epoch:
		return fmt.Errorf("producer %d has a transaction open since offset %d, this batch is not part of one: %w", p.id, p.txnFirst, ErrInvalidTxnState)
	}
	return nil
}

// inTxn says whether a transaction of the producer's epoch is open. One of an
// older epoch is about to be ended by its marker, and must not take in what the
// producer writes next.
func (p *producer) inTxn(epoch int16) bool { return p.txnFirst >= 0 && p.epoch == epoch }

func checkSequence(p *producer, b batch.Batch) error {
	first := b.BaseSequence()
	if b.ProducerEpoch() != p.epoch {
		if first != 0 && p.epoch != batch.NoProducerEpoch {
			return fmt.Errorf("producer %d starts epoch %d at sequence %d: %w", p.id, b.ProducerEpoch(), first, ErrOutOfOrderSequence)
		}
		return nil
	}
	last := p.lastSeq()
	if int64(first) == int64(last)+1 || first == 0 && last == math.MaxInt32 {
		return nil
	}
	return fmt.Errorf("producer %d sent sequence %d after %d: %w", p.id, first, last, ErrOutOfOrderSequence)
}

// checkMarker follows KIP-890: with the second transaction version a marker
// carries a raised epoch; the same epoch without an open transaction is a
// repeat.
func checkMarker(p *producer, b batch.Batch, m *marker, o *AppendOptions) error {
	if p == nil {
		return nil
	}
	epoch := b.ProducerEpoch()
	stale := epoch < p.epoch
	if o.TxnV2 && epoch == p.epoch && p.txnFirst >= 0 {
		stale = true
	}
	if stale {
		return fmt.Errorf("marker of producer %d has epoch %d, the partition has seen %d: %w", p.id, epoch, p.epoch, ErrStaleProducerEpoch)
	}
	if m.coordinatorEpoch < p.coordinatorEpoch {
		return fmt.Errorf("marker of producer %d comes from coordinator epoch %d, seen %d: %w", p.id, m.coordinatorEpoch, p.coordinatorEpoch, ErrStaleCoordinator)
	}
	return nil
}

// apply records a batch that is in the log, appended at now: 0 in a replay,
// which does not know. For an abort that ended a transaction it returns what
// the transaction index must hold.
func (ps *producers) apply(b batch.Batch, m *marker, now int64) (aborted batch.AbortedTxn, isAbort bool) {
	id := b.ProducerID()
	if id < 0 {
		return aborted, false
	}
	p := ps.byID[id]
	if p == nil {
		p = newProducer(id)
		ps.byID[id] = p
	}
	p.appended = now
	if m != nil {
		return ps.applyMarker(p, b, m)
	}
	p.setEpoch(b.ProducerEpoch())
	p.lastTimestamp = b.MaxTimestamp()
	if b.BaseSequence() != batch.NoSequence {
		p.push(producerBatch{b.BaseSequence(), b.LastSequence(), b.LastOffsetDelta(), b.LastOffset(), b.MaxTimestamp()})
	}
	if b.Transactional() && p.txnFirst < 0 {
		p.txnFirst = b.BaseOffset()
		ps.open = append(ps.open, openTxn{p.txnFirst, id})
	}
	return aborted, false
}

func (ps *producers) applyMarker(p *producer, b batch.Batch, m *marker) (aborted batch.AbortedTxn, isAbort bool) {
	p.setEpoch(b.ProducerEpoch())
	p.ends++
	p.coordinatorEpoch = m.coordinatorEpoch
	p.lastTimestamp = b.MaxTimestamp()
	if p.txnFirst < 0 {
		return aborted, false
	}
	first, last := p.txnFirst, b.LastOffset()
	p.txnFirst = -1
	ps.closeTxn(first)
	ps.done = append(ps.done, doneTxn{first, last})
	if m.commit {
		return aborted, false
	}
	stable := last + 1
	if len(ps.open) > 0 {
		stable = ps.open[0].first
	}
	return batch.AbortedTxn{ProducerID: p.id, FirstOffset: first, LastOffset: last, LastStable: stable}, true
}

func (ps *producers) closeTxn(first int64) {
	i := sort.Search(len(ps.open), func(i int) bool { return ps.open[i].first >= first })
	if i < len(ps.open) && ps.open[i].first == first {
		ps.open = append(ps.open[:i], ps.open[i+1:]...)
	}
}

// firstUnstable is the first offset a read_committed reader may not see, -1
// none. A transaction whose marker is not below the high watermark still
// counts: the decision is not safe yet.
func (ps *producers) firstUnstable(hw int64) int64 {
	n := 0
	for n < len(ps.done) && ps.done[n].last < hw {
		n++
	}
	if n > 0 {
		ps.done = append(ps.done[:0], ps.done[n:]...)
	}
	first := int64(-1)
	if len(ps.open) > 0 {
		first = ps.open[0].first
	}
	for _, d := range ps.done {
		if first < 0 || d.first < first {
			first = d.first
		}
	}
	return first
}

// closeOpen forgets which transactions are open: none of their records is there
// for anybody to read, and the markers of some may have gone with them. One that
// goes on begins at its next record.
func (ps *producers) closeOpen() {
	for _, t := range ps.open {
		ps.byID[t.producerID].txnFirst = -1
	}
	ps.open = nil
}

// heard makes now the append time of producers whose own is not known, so that
// a restart can only lengthen the time they are remembered.
func (ps *producers) heard(now int64) {
	for _, p := range ps.byID {
		if p.appended == 0 {
			p.appended = now
		}
	}
}

// expire forgets producers that were silent for ttl milliseconds and have no
// transaction open. Silence counts from the append: records may be as old as
// they like, and a producer that back-fills must be known when it repeats.
func (ps *producers) expire(now, ttl int64) int {
	n := 0
	for id, p := range ps.byID {
		if p.txnFirst < 0 && now-p.appended >= ttl {
			delete(ps.byID, id)
			n++
		}
	}
	return n
}

// ProducerState is a producer as DescribeProducers lists it.
type ProducerState struct {
	ProducerID       int64
	Epoch            int16
	CoordinatorEpoch int32 // -1 none
	LastSequence     int32 // -1 none
	LastTimestamp    int64
	TxnStart         int64 // first offset of the open transaction, -1 none
}

func (ps *producers) list() []ProducerState {
	out := make([]ProducerState, 0, len(ps.byID))
	for _, p := range ps.byID {
		out = append(out, ProducerState{p.id, p.epoch, p.coordinatorEpoch, p.lastSeq(), p.lastTimestamp, p.txnFirst})
	}
	sort.Slice(out, func(i, j int) bool { return out[i].ProducerID < out[j].ProducerID })
	return out
}
