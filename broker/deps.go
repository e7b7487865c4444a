package broker

import (
	"context"
	"log/slog"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// Deps are the rooms the front door speaks to.
type Deps struct {
	Partitions Partitions
	Metadata   Metadata
	// Controlled is this node's controller as other brokers call it; nil: the keys between brokers are not served.
	Controlled Controlled
	// Controller reaches the controller wherever it is; nil: this node is the only one.
	Controller *Controller
	// Groups runs the consumer groups; nil: their keys are not served.
	Groups Groups
	// Transactions runs the transactional producers; nil: their keys are not served.
	Transactions Transactions
	// Shares keeps what share groups do; nil: their keys are not served.
	Shares Shares
	// ShareState keeps how far share groups have got; nil: their keys are not served.
	ShareState coordinator.ShareState
	// Brokers reaches the other brokers of the cluster; nil: there are none.
	Brokers Brokers
	// Open is closed when clients may be served. Before that a node of a cluster serves other brokers only: it knows nothing yet,
	// and a client that is told so takes it for the truth. nil: from the start.
	Open <-chan struct{}
	// Settings are the broker's typed static settings: defaults for topics, shown by DescribeConfigs.
	Settings *conf.Broker
	// DiskSpace is the size of the data directory's file system and what is free of it, in bytes; nil: not known.
	DiskSpace func() (total, free uint64, err error)
	Logger    *slog.Logger
}

// Partitions finds the partitions this broker holds. Replicas adapts a replica.Manager.
type Partitions interface {
	Partition(name string, index int32) (Partition, error)
	PartitionByID(id topic.ID, index int32) (Partition, error)
	// Held lists every partition on this broker's disk.
	Held() []Partition
	Ready(name string, index int32) bool
	NewWaiter(minBytes int) Waiter
}

// Partition is one partition as the handlers use it.
type Partition interface {
	ID() topic.Partition
	// Epoch is the leader epoch, or an error when this broker does not lead.
	Epoch() (int32, error)
	// Append writes one batch. records is the frame's own memory: it is patched in place and must not be retained.
	Append(records []byte, r replica.AppendRequest) (replica.Appended, error)
	// OnCommitted calls fn once, without blocking it, when offset is committed or cannot be any more.
	OnCommitted(epoch int32, offset int64, fn func(error)) (cancel func())
	Read(r replica.ReadRequest) (replica.ReadResult, error)
	// ReadCold reads from the bucket and blocks until it has or ctx ends.
	ReadCold(ctx context.Context, r replica.ReadRequest) (replica.ReadResult, error)
	// ListOffset may read the bucket.
	ListOffset(ctx context.Context, ts int64, isolation int8, replicaID, currentEpoch int32) (replica.TimeOffset, error)
	EndOffsetForEpoch(currentEpoch, epoch int32) (int32, int64, error)
	// TxnGuard says whether a producer's transaction is open here, and what goes with an append that is verified otherwise.
	TxnGuard(producerID int64, epoch int16) (guard int32, open bool, err error)
	// PreferredReplica names the follower that a consumer in a rack should rather read an offset from, or NoReplica.
	PreferredReplica(rack string, offset int64) int32
	DeleteRecords(ctx context.Context, offset int64) (lowWatermark int64, err error)
	SizeBytes() (int64, error)
	Producers() ([]Producer, error)
}

// Producer is one idempotent or transactional producer that a partition remembers.
type Producer struct {
	ID               int64
	Epoch            int32
	LastSequence     int32
	LastTimestamp    int64
	CoordinatorEpoch int32
	TxnStart         int64 // first offset of the open transaction; -1: none
}

// Waiter is one long poll.
type Waiter interface {
	Watch(p Partition, offset int64, isolation int8)
	C() <-chan struct{}
	Close()
}

// Metadata is the metadata quorum as the handlers use it; *meta.Node is one.
type Metadata interface {
	Image() *meta.Image
	CreateTopics(ctx context.Context, topics []meta.NewTopic, validateOnly bool) ([]meta.CreatedTopic, error)
	DeleteTopics(ctx context.Context, topics []meta.TopicRef) ([]meta.TopicResult, error)
	CreatePartitions(ctx context.Context, topics []meta.MorePartitions, validateOnly bool) ([]meta.TopicResult, error)
	AllocateProducerIDs(ctx context.Context, broker int32, epoch int64) (meta.ProducerIDs, error)
	AlterConfigs(ctx context.Context, changes []meta.ConfigChange, validateOnly bool) ([]meta.ConfigResult, error)
	ElectLeaders(ctx context.Context, unclean bool, partitions []meta.PartitionRef) ([]meta.ElectionResult, error)
	AlterReassignments(ctx context.Context, wishes []meta.Reassign, factorMayChange bool) ([]meta.ReassignResult, error)
	AlterQuotas(ctx context.Context, wishes []meta.QuotaChange, validateOnly bool) ([]meta.QuotaResult, error)
	UpdateFeatures(ctx context.Context, updates []meta.FeatureUpdate, validateOnly bool) error
	UnregisterBroker(ctx context.Context, id int32) error
	Quorum() (meta.Quorum, error)
	AddVoter(ctx context.Context, id int32, address string) error
	RemoveVoter(ctx context.Context, id int32) error
}

var _ Metadata = (*meta.Node)(nil)
