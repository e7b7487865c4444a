package history

// Type says whether an event begins or ends an operation, and how it ended.
type Type string

// The types of events. format: written to files, do not rename.
const (
	Invoke Type = "invoke"
	OK     Type = "ok"
	Fail   Type = "fail"
	Info   Type = "info"
)

// Func is what an operation does.
type Func string

// The operations. format: written to files, do not rename.
const (
	Send      Func = "send"
	Poll      Func = "poll"
	Txn       Func = "txn"
	Assign    Func = "assign"    // Keys is the consumer's new assignment
	Subscribe Func = "subscribe" // the group decides the assignment
	Crash     Func = "crash"     // the client is gone, without a word
	Offsets   Func = "offsets"   // Ends is what a leader says of Key
	Batches   Func = "batches"   // Batches is what Source holds of Key
	Fault     Func = "fault"     // Note says what the nemesis did

	Init      Func = "init"      // a producer takes TxnID over
	Commit    Func = "commit"    // Steps are offsets that Group commits; in a Txn also a step
	Committed Func = "committed" // Steps are the offsets that Group has committed, as its coordinator says
	Reset     Func = "reset"     // somebody sets Group's offsets, wherever they were
	Group     Func = "group"     // Owners is who owns what in Group, as its coordinator says
	Claim     Func = "claim"     // Member of Group is given Keys, or none, in Generation
	Release   Func = "release"   // Member begins to give Keys up; State says why: one of the three below
	Share     Func = "share"     // a poll of a member of the share group Group
	Ack       Func = "ack"       // what it says of records: Steps, each with a Verdict
)

// Why a member gives keys up. format: written to files, do not rename.
const (
	Revoked = "revoked" // the group asks for them
	Lost    = "lost"    // it is told that it is no member any more: all that it had is somebody else's already
	Left    = "left"    // it leaves
)

// Event is the begin or the end of an operation.
type Event struct {
	Time    int64  `json:"t"` // nanoseconds on one monotonic clock
	Process int    `json:"p"`
	Type    Type   `json:"type"`
	F       Func   `json:"f"`
	Client  string `json:"client,omitempty"` // the client library

	Steps []Step   `json:"steps,omitempty"` // Send, Poll, Txn
	Keys  []string `json:"keys,omitempty"`  // Assign

	Key     string  `json:"key,omitempty"`    // Offsets, Batches
	Source  string  `json:"source,omitempty"` // Batches: who was asked
	Ends    *Ends   `json:"ends,omitempty"`
	Batches []Batch `json:"batches,omitempty"`

	TxnID string `json:"txn,omitempty"` // Init, Txn
	// Decided is when a Txn asked for its commit; 0: never.
	Decided int64 `json:"decided,omitempty"`

	GroupID    string              `json:"group,omitempty"`
	Member     string              `json:"member,omitempty"`
	Generation int32               `json:"generation,omitempty"` // or epoch; 0: not known
	State      string              `json:"state,omitempty"`
	Owners     map[string][]string `json:"owners,omitempty"` // member → keys

	// Final marks the reading of everything after the last fault has healed.
	Final bool   `json:"final,omitempty"`
	Error string `json:"error,omitempty"`
	Note  string `json:"note,omitempty"`
}

// Step is one send or one run of reads. An operation has at least one.
type Step struct {
	F   Func   `json:"f"` // Send, Poll, Commit or Ack
	Key string `json:"key"`

	// Value was sent; Offset is where it is, or -1. A step of an info
	// operation with an offset was acknowledged, whatever became of the others.
	Value  int64 `json:"value,omitempty"`
	Offset int64 `json:"offset"`

	// From and At are the key and offset of the record that Value was made from
	// (consume, transform, produce); "" for none.
	From string `json:"from,omitempty"`
	At   int64  `json:"at,omitempty"`

	Verdict string `json:"verdict,omitempty"` // Ack: accept, release or reject
	Done    bool   `json:"done,omitempty"`    // Ack of unknown outcome: of this record it was accepted all the same

	// Reads are pairs of offset and value in the order in which they arrived.
	Reads [][2]int64 `json:"reads,omitempty"`
	// Counts say of each read of a Share which delivery of the record it is; empty where the client does not tell.
	Counts []int32 `json:"counts,omitempty"`
}

// Ends are offsets of a partition; -1 is unknown.
type Ends struct {
	Start int64 `json:"start"` // of the log, wherever its first record is
	End   int64 `json:"end"`   // the high watermark
	// Tiered is the last offset in the bucket.
	Tiered int64 `json:"tiered"`
}

// Batch is one stored batch. Hash covers all its bytes, the header's too.
type Batch struct {
	Base  int64  `json:"base"`
	Last  int64  `json:"last"`
	Epoch int32  `json:"epoch"` // of the leader that wrote it
	Hash  uint64 `json:"hash,string"`
}
