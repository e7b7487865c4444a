package coordinator

// StreamsHeartbeatRequest is all that a member of a streams group ever says (KIP-1071). Nil means unchanged.
type StreamsHeartbeatRequest struct {
	Group, MemberID      string
	MemberEpoch          int32
	EndpointEpoch        int32 // the newest endpoint information that the member has
	InstanceID, RackID   *string
	ClientID, ClientHost string
	RebalanceMillis      int32     // -1: unchanged
	Topology             *Topology // given when joining, and only then
	Owned                OwnedTasks
	ProcessID            *string
	Endpoint             *Endpoint
	ClientTags           map[string]string
	Offsets, EndOffsets  []TaskOffset
	Shutdown             bool // the whole application is to end
	// KnowsTags: the member understands StatusMissingClientTags (version 1).
	KnowsTags bool
}

// OwnedTasks is what a member says it has. Each list is nil when the member does not say.
type OwnedTasks struct{ Active, Standby, Warmup []Tasks }

// Tasks is tasks of one subtopology: a task is a subtopology on one partition of its sources.
type Tasks struct {
	Subtopology string
	Partitions  []int32
}

// TaskOffset is how far a member's state of a task goes, in records of its changelogs.
type TaskOffset struct {
	Subtopology string
	Partition   int32
	Offset      int64
}

// Endpoint is where an application's instance answers queries about its state.
type Endpoint struct {
	Host string
	Port uint16
}

// Topology is what an application does, as far as tasks and topics follow from it.
type Topology struct {
	Epoch         int32
	Subtopologies []Subtopology
}

// Subtopology is a part of a topology that runs as tasks of its own.
type Subtopology struct {
	ID string
	// Sources are topics that exist; Repartition are topics between subtopologies, made for the application, of which Sinks are
	// those written here. Changelogs keep its state, and are made too.
	Sources, SourceRegexes  []string
	Changelogs, Repartition []InternalTopic
	Sinks                   []string
	Copartition             []CopartitionGroup
}

// InternalTopic is a topic that is made for an application.
type InternalTopic struct {
	Name       string
	Partitions int32 // 0: as follows from the topology
	Replicas   int16 // 0: the broker's default
	Configs    []TopicConfig
}

// TopicConfig is one setting of a topic.
type TopicConfig struct{ Name, Value string }

// CopartitionGroup is sources that must have equally many partitions, as indexes into the lists of their subtopology.
type CopartitionGroup struct{ Sources, SourceRegexes, Repartition []int16 }

// StreamsHeartbeatResult answers a StreamsHeartbeatRequest.
type StreamsHeartbeatResult struct {
	MemberID                string
	MemberEpoch             int32
	HeartbeatMillis         int32
	TaskOffsetMillis        int32 // how often the member reports offsets
	RecoveryLag             int64 // records; a task that lags less counts as caught up
	Status                  []StreamsStatus
	HasAssignment           bool // the member is told what it has
	Active, Standby, Warmup []Tasks
	EndpointEpoch           int32
	HasEndpoints            bool
	Endpoints               []EndpointPartitions
	creating                []InternalTopic // topics to be made
}

// EndpointPartitions is what the state behind an endpoint is about.
type EndpointPartitions struct {
	Endpoint        Endpoint
	Active, Standby []TopicPartitions // by name
}

// StreamsStatus is something that a member is told about its group.
type StreamsStatus struct {
	Code   int8
	Detail string
}

// What a StreamsStatus is about. Kafka's numbers. Format: do not renumber.
const (
	StatusStaleTopology          int8 = 0
	StatusMissingSources         int8 = 1
	StatusIncorrectlyPartitioned int8 = 2
	StatusMissingInternalTopics  int8 = 3
	StatusShutdown               int8 = 4
	StatusAssignmentDelayed      int8 = 5
	StatusMissingClientTags      int8 = 6
)

// StreamsDescription describes a streams group.
type StreamsDescription struct {
	Group, State, Assignor string
	Epoch, AssignmentEpoch int32
	Topology               *Topology // with the partitions that follow from it once its topics are there
	Members                []StreamsMemberDescription
}

// StreamsMemberDescription describes a member of a streams group.
type StreamsMemberDescription struct {
	MemberID             string
	InstanceID, RackID   *string
	ClientID, ClientHost string
	Epoch, TopologyEpoch int32
	ProcessID            string
	Endpoint             *Endpoint
	ClientTags           []TopicConfig // keys and values
	Offsets, EndOffsets  []TaskOffset
	Assigned, Target     OwnedTasks
}
