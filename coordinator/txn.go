package coordinator

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TxnState is what a transactional id is doing. The numbers are Kafka's, in records of the transaction topic. Format: do not
// renumber.
type TxnState int8

// The states. Dead is never written; PrepareEpochFence is a step between two states in Kafka, and not used here.
const (
	TxnEmpty TxnState = iota
	TxnOngoing
	TxnPrepareCommit
	TxnPrepareAbort
	TxnCompleteCommit
	TxnCompleteAbort
	TxnDead
	TxnPrepareEpochFence
)

// String is Kafka's name of the state.
func (s TxnState) String() string {
	names := [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence"}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("state(%d)", int8(s))
	}
	return names[s]
}

// ParseTxnState reads a state's name.
func ParseTxnState(name string) (TxnState, bool) {
	for s := TxnEmpty; s <= TxnPrepareEpochFence; s++ {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}

// prepared says that the outcome is decided, and its markers are on their way.
func (s TxnState) prepared() bool { return s == TxnPrepareCommit || s == TxnPrepareAbort }

// noEpoch is a producer epoch that is not given or not known.
const noEpoch int16 = -1

// epochLimit is the largest producer epoch a client is given. The one above it is kept to fence its holder with; then the
// transactional id gets another producer id.
const epochLimit = math.MaxInt16 - 1

// transaction is one transactional id.
type transaction struct {
	id         string
	producer   Producer
	lastEpoch  int16 // before the newest was given out; noEpoch: whoever has it is not to be known again
	previous   int64 // the producer id before this one, noProducer: none
	next       int64 // the producer id that takes over when the transaction has ended, noProducer: this one stays
	timeout    int64 // milliseconds
	state      TxnState
	partitions map[partition]struct{}
	start      int64 // time of day in milliseconds at which the newest transaction began, -1: none has since it was initialised
	updated    int64 // likewise, of the newest change
	version    int8  // of the protocol that the transaction's client speaks
}

// sorted is the partitions in order.
func (x *transaction) sorted() []partition {
	return slices.SortedFunc(maps.Keys(x.partitions), func(a, b partition) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.index, b.index))
	})
}

// handed is the producer that the client has to go on with once the transaction has ended.
func (x *transaction) handed() Producer {
	if x.next != noProducer {
		return Producer{ID: x.next}
	}
	return x.producer
}

// exhausted says that the producer id has no epoch left to give out.
func (x *transaction) exhausted() bool { return x.producer.Epoch >= epochLimit }

// end is what has to be done in the partitions.
func (x *transaction) end() ending {
	return ending{id: x.id, producer: x.producer, commit: x.state == TxnPrepareCommit, version: x.version, partitions: x.sorted(), decided: x.updated}
}

// Records of the transaction topic, in Kafka's format: key version 0, the transactional id; value version 1, of which both
// are read. A null value deletes the id.
const (
	keyTxn   int16 = 0
	valueTxn int16 = 1
)

func txnKey(id string) []byte {
	k := kmsg.TxnMetadataKey{Version: keyTxn, TransactionalID: id}
	return k.AppendTo(nil)
}

func txnTombstone(id string) record { return record{key: txnKey(id)} }

func txnRecord(x *transaction) record {
	v := kmsg.NewTxnMetadataValue()
	v.Version = valueTxn
	v.ProducerID, v.ProducerEpoch = x.producer.ID, x.producer.Epoch
	v.PreviousProducerID, v.NextProducerID = x.previous, x.next
	v.TimeoutMillis, v.State = int32(x.timeout), kmsg.TransactionState(x.state)
	v.LastUpdateTimestamp, v.StartTimestamp = x.updated, x.start
	v.ClientTransactionVersion = int16(x.version)
	for _, p := range x.sorted() {
		if n := len(v.Topics); n > 0 && v.Topics[n-1].Topic == p.topic {
			v.Topics[n-1].Partitions = append(v.Topics[n-1].Partitions, p.index)
			continue
		}
		t := kmsg.NewTxnMetadataValueTopic()
		t.Topic, t.Partitions = p.topic, []int32{p.index}
		v.Topics = append(v.Topics, t)
	}
	if x.state == TxnEmpty {
		v.Topics = nil // as Kafka writes it
	} else if v.Topics == nil {
		v.Topics = []kmsg.TxnMetadataValueTopic{}
	}
	return record{key: txnKey(x.id), value: v.AppendTo(nil)}
}

// replay applies one record of the transaction topic.
func (c *txnCore) replay(_ int64, key, value []byte) error {
	var k kmsg.TxnMetadataKey
	if err := k.ReadFrom(key); err != nil {
		return fmt.Errorf("%w: transactional id: %w", ErrCorrupt, err)
	}
	if k.Version != keyTxn {
		return nil // of a later release: passed over, as Kafka does
	}
	if value == nil {
		delete(c.txns, k.TransactionalID)
		return nil
	}
	v := kmsg.NewTxnMetadataValue()
	if err := v.ReadFrom(value); err != nil || v.Version < 0 || v.Version > valueTxn {
		return fmt.Errorf("%w: transaction value of version %d: %v", ErrCorrupt, v.Version, err)
	}
	state := TxnState(v.State)
	if state < TxnEmpty || state > TxnPrepareEpochFence {
		return fmt.Errorf("%w: transaction in %s", ErrCorrupt, state)
	}
	x := &transaction{
		id: k.TransactionalID, producer: Producer{ID: v.ProducerID, Epoch: v.ProducerEpoch}, lastEpoch: noEpoch,
		previous: v.PreviousProducerID, next: v.NextProducerID, timeout: int64(v.TimeoutMillis), state: state,
		partitions: make(map[partition]struct{}), start: v.StartTimestamp, updated: v.LastUpdateTimestamp,
		version: int8(v.ClientTransactionVersion),
	}
	for i := range v.Topics {
		for _, p := range v.Topics[i].Partitions {
			x.partitions[partition{v.Topics[i].Topic, p}] = struct{}{}
		}
	}
	c.txns[x.id] = x
	return nil
}

// replayMarker is not called: nothing transactional is in the transaction topic.
func (c *txnCore) replayMarker(int64, bool) {}
