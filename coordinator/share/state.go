package share

// State is what has become of a record. The numbers are those of Kafka's records and requests; format: do not renumber.
type State int8

const (
	Available    State = 0 // to be delivered, perhaps again
	Acquired     State = 1 // held by a member; never written
	Acknowledged State = 2 // done
	Archiving    State = 3 // given up, but its dead letter is not produced yet (KIP-1191)
	Archived     State = 4 // given up: rejected, delivered too often, or no record
)

// done says that nothing more will happen to a record.
func (s State) done() bool { return s == Acknowledged || s == Archived }

// What a member may say of a record it holds: Kafka's acknowledge types. Format: do not renumber.
const (
	Gap     int8 = 0 // there is no record at the offset
	Accept  int8 = 1
	Release int8 = 2 // give it to somebody again
	Reject  int8 = 3 // give it to nobody again
	Renew   int8 = 4 // keep it for longer (KIP-1222)
)

// Reason is why a record was given up.
type Reason int8

const (
	NoReason   Reason = iota
	Exhausted         // delivered as often as may be
	Rejected          // a member rejected it
	notARecord        // a hole, a control record, part of an aborted transaction
)

// Limits are the group's settings. They may change between any two calls.
type Limits struct {
	LocksMax      int   // share.partition.max.record.locks
	DeliveriesMax int16 // share.delivery.count.limit
	LockMillis    int64 // share.record.lock.duration.ms
	Renewable     bool  // share.renew.acknowledge.enable
	DeadLetters   bool  // errors.deadletterqueue.topic.name is set
}

// Batch is a run of offsets, both inclusive, that was read from the log in one record batch. Skip: it holds no record that the
// group may see (a control batch, an aborted transaction's).
type Batch struct {
	First, Last int64
	Skip        bool
}

// Held is a run of records that a member was given.
type Held struct {
	First, Last int64
	Deliveries  int16 // this one included
}

// Ack is what a member says of a run of offsets: one type for all of it, or one for each.
type Ack struct {
	First, Last int64
	Types       []int8
}

// Done is a run of offsets in a state that is to be written, or was.
type Done struct {
	First, Last int64
	State       State
	Deliveries  int16
}

// Write is what must be made durable, in one piece.
type Write struct {
	Start    int64
	Complete int32 // records from Start on that are done
	Batches  []Done
}

// DeadLetter is a run of records that is to be copied to the dead-letter topic.
type DeadLetter struct {
	First, Last int64
	Deliveries  int16
	Reason      Reason
}
