package coordinator

import "github.com/varvelog/varve/meta/topic"

// ShareHeartbeatRequest is all a member of a share group ever says about its membership (KIP-932). Nil means unchanged.
type ShareHeartbeatRequest struct {
	Group, MemberID      string
	MemberEpoch          int32 // 0: it joins, -1: it leaves
	RackID               *string
	ClientID, ClientHost string
	Topics               []string
}

// ShareHeartbeatResult answers a ShareHeartbeatRequest.
type ShareHeartbeatResult struct {
	MemberID        string
	MemberEpoch     int32
	HeartbeatMillis int32
	// Assigned is what the member is to fetch from; HasAssignment says whether it is told.
	HasAssignment bool
	Assigned      []TopicPartitions
}

// ShareDescription describes a share group.
type ShareDescription struct {
	Group, State, Assignor string
	Epoch, AssignmentEpoch int32
	Members                []ShareMemberDescription
}

// ShareMemberDescription describes a member of a share group.
type ShareMemberDescription struct {
	MemberID             string
	RackID               *string
	ClientID, ClientHost string
	Epoch                int32
	Topics               []string
	Assigned             []TopicPartitions
}

// AlterShareRequest sets where a share group without members begins.
type AlterShareRequest struct {
	Group  string
	Topics []AlterShareTopic
}

// AlterShareTopic is one topic of an AlterShareRequest.
type AlterShareTopic struct {
	Name       string
	Partitions []AlterSharePartition
}

// AlterSharePartition is one partition of it.
type AlterSharePartition struct {
	Partition int32
	Start     int64
}

// AlterShareResult answers, topic by topic and partition by partition in the request's order.
type AlterShareResult struct {
	Topics []AlterShareTopicResult
}

// AlterShareTopicResult is the result for one topic; its id is zero when there is no such topic.
type AlterShareTopicResult struct {
	Name string
	ID   topic.ID
	Errs []error
}

// DeleteShareOffsetsRequest has what a share group without members keeps of topics forgotten.
type DeleteShareOffsetsRequest struct {
	Group  string
	Topics []string
}

// DeleteShareOffsetsResult is the result for one topic; its id is zero when there is no such topic.
type DeleteShareOffsetsResult struct {
	Topic string
	ID    topic.ID
	Err   error
}
