package balance

// Cluster is what a plan is made on.
type Cluster struct {
	Brokers    []Broker
	Partitions []Partition
}

// Broker is one broker of the cluster.
type Broker struct {
	ID   int32
	Rack string // "" when there is none
	// Takes is true if replicas may move onto the broker: it is neither fenced
	// nor shutting down, cordoned or being drained.
	Takes bool
	// Drain is true if the broker is to be emptied.
	Drain bool
}

// Partition is one partition with the brokers that hold it.
type Partition struct {
	Topic    string
	Index    int32
	Replicas []int32 // the preferred leader first
	Bytes    int64   // on each of its replicas
	// Fixed partitions are counted and not moved: they are being reassigned or
	// have no leader.
	Fixed bool
}

// Move changes the replicas of one partition.
type Move struct {
	Topic    string
	Index    int32
	From, To []int32 // the replicas before and after, the preferred leader first
	Bytes    int64   // that have to be copied; 0 if only the order changes
	Why      Reason
}

// Reason says which rule asks for a move.
type Reason string

// The reasons for moves.
const (
	Drained Reason = "drain"   // the broker is to be emptied
	Missing Reason = "missing" // the broker is no broker of the cluster
	Racks   Reason = "racks"   // two replicas share a rack for nothing
	Count   Reason = "count"   // brokers hold different numbers of replicas
	Bytes   Reason = "bytes"   // brokers hold different amounts of bytes
	Leaders Reason = "leaders" // brokers lead different numbers of partitions
)

// Options bound a plan.
type Options struct {
	// MovesMax is the most moves that copy data; 0 means no bound.
	MovesMax int
	// ThresholdPercent is how far a broker may be from the mean before rules 3
	// and 4 apply.
	ThresholdPercent int
	// Even asks for rules 2 to 4; without it brokers are only emptied.
	Even bool
}
