package coordinator

import "github.com/varvelog/varve/meta/topic"

// NoGeneration is the generation of a client that is no member of the group.
const NoGeneration int32 = -1

// NoOffset is the offset of a partition that has none committed; NoEpoch likewise for its leader epoch.
const (
	NoOffset int64 = -1
	NoEpoch  int32 = -1
)

// Protocol is one assignment protocol that a member speaks.
type Protocol struct {
	Name     string
	Metadata []byte // retained
}

// JoinRequest asks for membership in a group. Byte slices in it are retained.
type JoinRequest struct {
	Group, MemberID      string
	InstanceID           *string // static membership (KIP-345)
	ClientID, ClientHost string
	SessionMillis        int32
	RebalanceMillis      int32
	ProtocolType         string
	Protocols            []Protocol
	// NeedMemberID: a dynamic member without an id is given one and told to join again (JoinGroup 4+, KIP-394).
	NeedMemberID bool
	// MaySkipAssignment: a static leader that comes back may be told to keep the assignment (JoinGroup 9+, KIP-814).
	MaySkipAssignment bool
}

// JoinResult answers a JoinRequest. MemberID is set with an error too.
type JoinResult struct {
	MemberID       string
	Generation     int32
	ProtocolType   *string
	Protocol       *string
	Leader         string
	SkipAssignment bool
	Members        []JoinedMember // of the leader's answer only
}

// JoinedMember is a member as its leader sees it.
type JoinedMember struct {
	MemberID   string
	InstanceID *string
	Metadata   []byte // shared, read only
}

// SyncRequest asks for a member's assignment; the leader's brings those of all. Byte slices in it are retained.
type SyncRequest struct {
	Group, MemberID        string
	InstanceID             *string
	Generation             int32
	ProtocolType, Protocol *string // nil: not given
	Assignments            []Assignment
}

// Assignment is what the leader gives one member.
type Assignment struct {
	MemberID string
	Data     []byte
}

// SyncResult answers a SyncRequest.
type SyncResult struct {
	ProtocolType, Protocol *string
	Assignment             []byte // shared, read only
}

// HeartbeatRequest says that a member is alive.
type HeartbeatRequest struct {
	Group, MemberID string
	InstanceID      *string
	Generation      int32
}

// LeaveRequest takes members out of a group.
type LeaveRequest struct {
	Group   string
	Members []LeavingMember
}

// LeavingMember is a member by id, by instance id, or both.
type LeavingMember struct {
	MemberID   string
	InstanceID *string
}

// LeaveResult answers a LeaveRequest, member by member in the request's order.
type LeaveResult struct {
	Errs []error
}

// CommitRequest commits offsets.
type CommitRequest struct {
	Group, MemberID string
	InstanceID      *string
	Generation      int32 // NoGeneration: not a member
	// RetentionMillis is how long the offsets are to be kept; -1: as the broker is configured.
	RetentionMillis int64
	// NamesGroup: a commit by a member of a group that does not exist is told so (OffsetCommit 9+).
	NamesGroup bool
	// Producer commits as part of its transaction (TxnOffsetCommit): the offsets count once that is committed. The caller has
	// made sure that the transaction has the group's partition of the offsets topic. nil: a plain commit.
	Producer *Producer
	// Guard is what Coordinator.TxnGuard gave before the transaction was verified, if Guarded: a commit that a marker of the
	// producer has overtaken is refused with ErrTxnEndedMeanwhile.
	Guarded    bool
	Guard      uint64
	Partitions []CommitPartition
}

// CommitPartition is one offset to commit.
type CommitPartition struct {
	Topic       string
	ID          topic.ID
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	Metadata    string
}

// CommitResult answers a CommitRequest, partition by partition in the request's order.
type CommitResult struct {
	Errs []error
}

// FetchOffsetsRequest asks for committed offsets.
type FetchOffsetsRequest struct {
	Group string
	// All asks for every partition that has an offset; else Partitions names them.
	All        bool
	Partitions []OffsetPartition
	// MemberID and MemberEpoch say which member of a consumer group asks (OffsetFetch 9+); nil: nobody in particular.
	MemberID    *string
	MemberEpoch int32
	// RequireStable gives partitions whose offset an open transaction is about to change ErrUnstableOffset (KIP-447).
	RequireStable bool
}

// OffsetPartition names a partition. A zero id stands for any topic of that name.
type OffsetPartition struct {
	Topic     string
	ID        topic.ID
	Partition int32
}

// CommittedOffset is one answer to a FetchOffsetsRequest. Offset is NoOffset where none is committed.
type CommittedOffset struct {
	Topic       string
	ID          topic.ID // of the topic it was committed for; zero when not known
	Partition   int32
	Offset      int64
	LeaderEpoch int32
	Metadata    string
	Err         error // ErrUnstableOffset or nil
}

// Description describes a group.
type Description struct {
	Group        string
	State        State
	ProtocolType string
	Protocol     string
	Members      []MemberDescription
}

// MemberDescription describes a member.
type MemberDescription struct {
	MemberID             string
	InstanceID           *string
	ClientID, ClientHost string
	Metadata             []byte // shared, read only
	Assignment           []byte // likewise
}

// Listed is one group of a list.
type Listed struct {
	Group        string
	ProtocolType string
	State        string
	Type         GroupType
}

// DeleteOffsetsRequest deletes committed offsets.
type DeleteOffsetsRequest struct {
	Group      string
	Partitions []OffsetPartition
}

// DeleteOffsetsResult answers, partition by partition in the request's order.
type DeleteOffsetsResult struct {
	Errs []error
}
