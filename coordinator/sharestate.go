package coordinator

import (
	"context"

	"github.com/varvelog/varve/meta/topic"
)

// ShareState keeps how far share groups have got (KIP-932). The broker that leads a partition works on the share-partitions of
// it in memory, and what must survive it is here: with the share coordinator of the share-partition, wherever that runs. The
// methods look for that coordinator, and look again as long as it moves and ctx allows. Results are in the order of the
// requests, an error for each; what came of a request whose error is not one of those below is not known.
//
// Two epochs keep the old from overwriting the new. The state epoch is the group's: it rises when somebody sets the offsets, and
// who writes under an older one gets ErrFencedStateEpoch. The leader epoch is that of the partition: a leader takes the state
// over by reading it under its own, and from then on earlier leaders get ErrFencedLeaderEpoch.
type ShareState interface {
	// Initialize begins a share-partition, or begins it anew under a higher state epoch: what was acknowledged is forgotten.
	// ErrFencedStateEpoch if it has a higher one already.
	Initialize(ctx context.Context, qs []ShareInitialize) []error
	// Read reads the state and takes it over for a leader epoch. ErrInvalidShareState if nobody has
	// begun the share-partition, ErrShareStateUnknown if its topic does not exist.
	Read(ctx context.Context, qs []ShareRead) []ShareReadResult
	// Write adds to the state. It returns when that is committed: what was acknowledged stays so. ErrInvalidShareState if
	// nobody has begun the share-partition, or it was deleted.
	Write(ctx context.Context, qs []ShareWrite) []error
	// Delete forgets share-partitions. Those that are not there are no error.
	Delete(ctx context.Context, keys []ShareKey) []error
	// Summary reads where share-partitions begin, taking nothing over. Of one that nobody has begun, Start is NoOffset.
	Summary(ctx context.Context, keys []ShareKey) []ShareSummary
}

// ShareKey names a share-partition: what a share group has of a partition.
type ShareKey struct {
	Group     string
	Topic     topic.ID
	Partition int32
}

// ShareDelivery is what has become of records. The numbers are Kafka's, on the wire and in records. Format: do not renumber.
type ShareDelivery int8

const (
	ShareAvailable    ShareDelivery = 0 // to be delivered, perhaps again
	ShareAcknowledged ShareDelivery = 2 // done
	ShareArchiving    ShareDelivery = 3 // given up, but the dead letter is not produced yet (KIP-1191)
	ShareArchived     ShareDelivery = 4 // given up: rejected, delivered too often, or no longer there
)

// ShareBatch is what has become of a run of offsets. Offsets from the start offset on that no batch covers have not been
// delivered yet, or are held by a consumer right now.
type ShareBatch struct {
	First, Last   int64 // inclusive
	State         ShareDelivery
	DeliveryCount int16
}

// NoDeliveryCount is the number of records done when it is not known: a writer of version 0.
const NoDeliveryCount int32 = -1

// ShareInitialize begins a share-partition.
type ShareInitialize struct {
	ShareKey
	StateEpoch int32
	Start      int64 // NoOffset: where the group's share.auto.offset.reset says, which the leader works out
}

// ShareRead takes a share-partition over.
type ShareRead struct {
	ShareKey
	LeaderEpoch int32
}

// ShareReadResult is the state of a share-partition.
type ShareReadResult struct {
	Err        error
	StateEpoch int32
	Start      int64        // NoOffset: see ShareInitialize
	Batches    []ShareBatch // sorted, not overlapping
}

// ShareWrite adds to the state of a share-partition.
type ShareWrite struct {
	ShareKey
	StateEpoch, LeaderEpoch int32
	Start                   int64 // NoOffset: unchanged
	// DeliveryCompleteCount is how many records from Start on are acknowledged or archived (KIP-1226).
	DeliveryCompleteCount int32
	// Batches join what is known: of two states of an offset the one of more deliveries stands, and of as many deliveries that
	// with the larger number. So a write may come late or twice.
	Batches []ShareBatch
}

// ShareSummary is where a share-partition begins.
type ShareSummary struct {
	Err                     error
	StateEpoch, LeaderEpoch int32
	Start                   int64 // NoOffset: nobody has written any
	// DeliveryCompleteCount is how many records from Start on are done; NoDeliveryCount: not known.
	DeliveryCompleteCount int32
}
