package coordinator

import "github.com/varvelog/varve/meta/topic"

// Member epochs with a meaning of their own in ConsumerHeartbeatRequest.
const (
	joinEpoch        int32 = 0  // the member joins, or joins again
	leaveEpoch       int32 = -1 // it leaves
	leaveStaticEpoch int32 = -2 // a static member leaves and will be back
)

// ConsumerHeartbeatRequest is all a member of a consumer group ever says (KIP-848). Nil means unchanged.
type ConsumerHeartbeatRequest struct {
	Group, MemberID      string
	MemberEpoch          int32
	InstanceID, RackID   *string
	ClientID, ClientHost string
	RebalanceMillis      int32 // -1: unchanged
	Topics               []string
	Regex                *string
	Assignor             *string
	Owned                []TopicPartitions // nil: unchanged
	// NamesItself: the member has made its id up (version 1 on); before, it is given one.
	NamesItself bool
}

// TopicPartitions is partitions of one topic.
type TopicPartitions struct {
	Topic      topic.ID
	Name       string // of the topic, where it is known; "" in requests
	Partitions []int32
}

// ConsumerHeartbeatResult answers a ConsumerHeartbeatRequest.
type ConsumerHeartbeatResult struct {
	MemberID        string
	MemberEpoch     int32
	HeartbeatMillis int32
	// Assigned is what the member may read from now on; HasAssignment says whether it is told.
	HasAssignment bool
	Assigned      []TopicPartitions
}

// ConsumerDescription describes a consumer group.
type ConsumerDescription struct {
	Group, State, Assignor string
	Epoch, AssignmentEpoch int32
	Members                []ConsumerMemberDescription
}

// ConsumerMemberDescription describes a member of a consumer group.
type ConsumerMemberDescription struct {
	MemberID             string
	InstanceID, RackID   *string
	ClientID, ClientHost string
	Epoch                int32
	Topics               []string
	Regex                *string
	// Assigned is what it has, together with what it has yet to give up; Target what it is to have.
	Assigned, Target []TopicPartitions
	Classic          bool // it speaks the classic protocol
}
