package replica

import (
	"io"

	"github.com/varvelog/varve/hot/batch"
)

// Special timestamps of ListOffset.
const (
	TimeLatest                int64 = -1 // high watermark, last stable offset or log end, by reader
	TimeEarliest              int64 = -2 // log start, wherever it lies
	TimeMax                   int64 = -3 // the record with the largest timestamp, in both tiers
	TimeEarliestLocal         int64 = -4 // first offset on local disk
	TimeLatestTiered          int64 = -5 // last offset in the bucket, inclusive
	TimeEarliestPendingUpload int64 = -6 // first offset not in the bucket yet (KIP-1023)
)

// NoEpoch is a leader epoch not given, or not known; NoTimestamp and NoOffset likewise.
const (
	NoEpoch     int32 = -1
	NoOffset    int64 = -1
	NoTimestamp int64 = -1
	// NoBrokerEpoch is a replica's broker epoch not given (Fetch below version 15).
	NoBrokerEpoch int64 = -1
)

// NoReplica is the replica id of a client.
const NoReplica int32 = -1

// Origin says who appends.
type Origin = batch.Origin

// Origins: a producer, whom every rule for clients binds; a coordinator of this broker, which may write control batches.
const (
	FromClient      = batch.FromClient
	FromCoordinator = batch.FromCoordinator
)

// AppendRequest says how an append is to be judged.
type AppendRequest struct {
	Acks    int16 // -1, 0 or 1
	Version int16 // of the produce request
	Origin  Origin
	Now     int64 // wall clock, milliseconds

	TxnVerified bool  // the coordinator knows of the producer's ongoing transaction
	TxnGuard    int32 // what Partition.TxnGuard gave before the coordinator was asked; 0: nothing was asked
	TxnV2       bool  // the rules of transaction.version 2 apply (KIP-890)
}

// Appended is what an append did.
type Appended struct {
	BaseOffset, LastOffset int64
	LogAppendTime          int64 // NoTimestamp unless the topic stamps its own
	LogStart               int64
	LeaderEpoch            int32               // the epoch appended in: give it to OnCommitted
	RecordErrors           []batch.RecordError // with an error: the records that made the batch invalid
	Duplicate              bool                // the batch was there already; the offsets are those it got then
}

// ReadRequest asks for records of one partition.
type ReadRequest struct {
	Offset           int64
	MaxBytes         int
	MinOne           bool // return the first batch even when it is larger than MaxBytes
	Isolation        int8
	CurrentEpoch     int32      // the leader epoch the reader knows; NoEpoch: not given
	LastFetchedEpoch int32      // epoch of the last record the reader has; NoEpoch: not given
	ReplicaID        int32      // NoReplica for clients; any other id reads to the log's end and says what that replica has
	ReplicaEpoch     int64      // broker epoch of that replica (KIP-903); NoBrokerEpoch: not given. Clients: not looked at
	LogStart         int64      // of that replica
	Complaint        *Complaint // what that replica says of damage; nil: nothing
	Missing          int64      // what lies between Offset and this one is damaged where it is asked for; 0: nothing
	AnyReplica       bool       // a client may be answered by a follower (KIP-392: Fetch from version 11 on)
}

// Complaint is what a follower's fetch says of damage.
type Complaint struct {
	Damaged int64 // the first offset of which its own copy is damaged; NoOffset: it is whole
	Refused int64 // where it got damaged records from the leader; NoOffset: nowhere
}

// ReadResult is what a read found. When Records is not nil, the caller must release it.
type ReadResult struct {
	Records                   Records // nil: none
	HighWatermark, LastStable int64
	LogStart                  int64
	Aborted                   []batch.AbortedTxn // read_committed: those that touch the records; may be empty, nil otherwise
	Diverging                 *Diverging         // the reader's log has left this one's lineage: it must truncate
	Cold                      bool               // the offset is in the bucket only: ask again with ReadCold
	Absent                    bool               // with Missing, and with an error too: this log has not got all of that
	RemoteEnd                 int64              // to replicas: the bucket's committed end; NoOffset when there is none or it is not known
}

// Diverging names the largest epoch not above the reader's, and where it ended here.
type Diverging struct {
	Epoch     int32
	EndOffset int64
}

// Records is a run of whole batches, ready to be sent. It pins files or memory until it is released.
type Records interface {
	Len() int
	WriteTo(w io.Writer) (int64, error)
	Release()
}

// TimeOffset answers ListOffset.
type TimeOffset struct {
	Offset      int64
	Timestamp   int64
	LeaderEpoch int32
}
