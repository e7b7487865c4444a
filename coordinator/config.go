package coordinator

import (
	"fmt"
	"slices"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/conf"
)

// Config is what the coordinator is told. Times are milliseconds.
type Config struct {
	NodeID int32

	SessionMillisMin, SessionMillisMax int32
	InitialRebalanceMillis             int32 // how long an empty group waits for more members
	GroupSizeMax                       int32

	// Of groups of the consumer protocol (KIP-848); the assignors with the default first.
	ConsumerSessionMillis, ConsumerHeartbeatMillis, ConsumerSizeMax int32
	ConsumerAssignors                                               []string
	ConsumerAssignmentMillis                                        int32 // the least time between two assignments; 0: none
	Migration                                                       Migration

	// Of streams groups (KIP-1071).
	StreamsSessionMillis, StreamsHeartbeatMillis, StreamsSizeMax      int32
	StreamsStandbys, StreamsInitialDelayMillis, StreamsIntervalMillis int32
	StreamsAssignor                                                   string
	StreamsRackTags                                                   []string

	// Of share groups (KIP-932).
	ShareSessionMillis, ShareHeartbeatMillis, ShareAssignmentMillis, ShareSizeMax int32

	OffsetMetadataBytesMax int32

	OffsetsRetentionMillis      int64
	OffsetsRetentionCheckMillis int64

	// TopicPartitions, TopicReplicas and TopicSegmentBytes are those of the offsets topic when it is created. How many
	// replicas it gets depends on how many brokers there are.
	TopicPartitions   int32
	TopicReplicas     func(brokers int) int16
	TopicSegmentBytes int32
	Codec             batch.Codec

	TxnTimeoutMillisMax      int32 // transaction.max.timeout.ms
	TxnExpirationMillis      int64
	TxnExpirationCheckMillis int64
	// TxnTopicPartitions and the others are those of the transaction topic when it is created.
	TxnTopicPartitions, TxnTopicSegmentBytes int32
	TxnTopicReplicas                         func(brokers int) int16
	TxnTopicMinISR                           func(replicas int16) int32

	// ShareSnapshotUpdates is how many updates of a share-partition come between two snapshots, ShareCutMillis how often the log
	// is cut off at its start.
	ShareSnapshotUpdates int32
	ShareCutMillis       int64
	// ShareTopicPartitions and the others are those of the share state topic when it is created.
	ShareTopicPartitions, ShareTopicSegmentBytes int32
	ShareTopicReplicas                           func(brokers int) int16
	ShareTopicMinISR                             func(replicas int16) int32

	CommitMillis int64 // the longest wait for an append to be committed
	// LoadWaitMillis is how long a request waits for its partition to be read back before it is told ErrLoading.
	LoadWaitMillis int64
	// NewMemberMillis is the session of a member whose first join has not been answered: it does not know its id yet and
	// cannot heartbeat.
	NewMemberMillis int64
	// QueueMax bounds the requests waiting for one partition; further ones wait in their connections.
	QueueMax int
	// BatchBytesMax bounds one append, and so the state of one group.
	BatchBytesMax int
}

// DefaultConfig is Kafka's.
func DefaultConfig() Config {
	b, err := conf.ParseBroker(nil)
	if err != nil {
		panic(fmt.Sprintf("coordinator: defaults of the broker's settings: %v", err))
	}
	return ConfigFrom(&b)
}

// ConfigFrom reads the broker's settings.
func ConfigFrom(b *conf.Broker) Config {
	return Config{
		NodeID:                      b.NodeID,
		SessionMillisMin:            b.GroupMinSessionTimeoutMillis,
		SessionMillisMax:            b.GroupMaxSessionTimeoutMillis,
		InitialRebalanceMillis:      b.GroupInitialRebalanceDelayMillis,
		GroupSizeMax:                b.GroupMaxSize,
		ConsumerSessionMillis:       b.GroupConsumerSessionTimeoutMillis,
		ConsumerHeartbeatMillis:     b.GroupConsumerHeartbeatIntervalMillis,
		ConsumerSizeMax:             b.GroupConsumerMaxSize,
		ConsumerAssignors:           b.GroupConsumerAssignors,
		ConsumerAssignmentMillis:    b.GroupConsumerAssignmentIntervalMillis,
		Migration:                   migrationOf(b.GroupConsumerMigrationPolicy),
		StreamsSessionMillis:        b.GroupStreamsSessionTimeoutMillis,
		StreamsHeartbeatMillis:      b.GroupStreamsHeartbeatIntervalMillis,
		StreamsSizeMax:              b.GroupStreamsMaxSize,
		StreamsStandbys:             b.GroupStreamsNumStandbyReplicas,
		StreamsInitialDelayMillis:   b.GroupStreamsInitialRebalanceDelayMillis,
		StreamsIntervalMillis:       b.GroupStreamsAssignmentIntervalMillis,
		StreamsAssignor:             assignorSticky,
		StreamsRackTags:             b.GroupStreamsRackAwareAssignmentTags,
		ShareSessionMillis:          b.GroupShareSessionTimeoutMillis,
		ShareHeartbeatMillis:        b.GroupShareHeartbeatIntervalMillis,
		ShareAssignmentMillis:       b.GroupShareAssignmentIntervalMillis,
		ShareSizeMax:                b.GroupShareMaxSize,
		OffsetMetadataBytesMax:      b.OffsetMetadataMaxBytes,
		OffsetsRetentionMillis:      int64(b.OffsetsRetentionMinutes) * 60_000,
		OffsetsRetentionCheckMillis: b.OffsetsRetentionCheckIntervalMillis,
		TopicPartitions:             b.OffsetsTopicNumPartitions,
		TopicReplicas:               func(brokers int) int16 { return b.InternalReplicas("offsets.topic.replication.factor", brokers) },
		TopicSegmentBytes:           b.OffsetsTopicSegmentBytes,
		Codec:                       batch.Codec(b.OffsetsTopicCompressionCodec),
		CommitMillis:                int64(b.OffsetsCommitTimeoutMillis),
		TxnTimeoutMillisMax:         b.TransactionMaxTimeoutMillis,
		TxnExpirationMillis:         int64(b.TransactionalIDExpirationMillis),
		TxnExpirationCheckMillis:    int64(b.TransactionExpirationCheckMillis),
		TxnTopicPartitions:          b.TransactionStateLogNumPartitions,
		TxnTopicSegmentBytes:        b.TransactionStateLogSegmentBytes,
		TxnTopicMinISR:              func(replicas int16) int32 { return b.InternalMinISR("transaction.state.log.min.isr", replicas) },
		TxnTopicReplicas: func(brokers int) int16 {
			return b.InternalReplicas("transaction.state.log.replication.factor", brokers)
		},
		ShareSnapshotUpdates:   b.ShareCoordinatorSnapshotUpdates,
		ShareCutMillis:         5 * 60_000, // Kafka's share.coordinator.state.topic.prune.interval.ms
		ShareTopicPartitions:   b.ShareCoordinatorStateTopicNumPartitions,
		ShareTopicSegmentBytes: b.ShareCoordinatorStateTopicSegmentBytes,
		ShareTopicReplicas: func(brokers int) int16 {
			return b.InternalReplicas("share.coordinator.state.topic.replication.factor", brokers)
		},
		ShareTopicMinISR: func(replicas int16) int32 { return b.InternalMinISR("share.coordinator.state.topic.min.isr", replicas) },
		LoadWaitMillis:   1000,
		NewMemberMillis:  5 * 60_000,
		QueueMax:         256,
		BatchBytesMax:    1 << 20,
	}
}

// Validate refuses what cannot work.
func (c *Config) Validate() error {
	switch {
	case c.TopicReplicas == nil:
		return fmt.Errorf("%w: replicas of the offsets topic are not set", ErrInvalidConfig)
	case c.TopicPartitions < 1:
		return fmt.Errorf("%w: offsets.topic.num.partitions %d", ErrInvalidConfig, c.TopicPartitions)
	case len(c.ConsumerAssignors) == 0 || slices.ContainsFunc(c.ConsumerAssignors, func(a string) bool { return a != assignorUniform && a != assignorRange }):
		return fmt.Errorf("%w: group.consumer.assignors %v: uniform and range are known", ErrInvalidConfig, c.ConsumerAssignors)
	case c.QueueMax < 1 || c.BatchBytesMax < 1024 || c.CommitMillis < 1:
		return fmt.Errorf("%w: queue %d, batch bytes %d, commit ms %d", ErrInvalidConfig, c.QueueMax, c.BatchBytesMax, c.CommitMillis)
	case !c.Codec.Valid():
		return fmt.Errorf("%w: offsets.topic.compression.codec %d", ErrInvalidConfig, c.Codec)
	case c.TxnTopicReplicas == nil || c.TxnTopicMinISR == nil:
		return fmt.Errorf("%w: the transaction topic's replicas are not given", ErrInvalidConfig)
	case c.TxnTopicPartitions < 1 || c.TxnExpirationCheckMillis < 1:
		return fmt.Errorf("%w: transaction.state.log.num.partitions %d, transaction.remove.expired.transaction.cleanup.interval.ms %d",
			ErrInvalidConfig, c.TxnTopicPartitions, c.TxnExpirationCheckMillis)
	case c.ShareTopicReplicas == nil || c.ShareTopicMinISR == nil:
		return fmt.Errorf("%w: the share state topic's replicas are not given", ErrInvalidConfig)
	case c.ShareTopicPartitions < 1 || c.ShareCutMillis < 1 || c.ShareSnapshotUpdates < 0:
		return fmt.Errorf("%w: share.coordinator.state.topic.num.partitions %d, share.coordinator.snapshot.update.records.per.snapshot %d",
			ErrInvalidConfig, c.ShareTopicPartitions, c.ShareSnapshotUpdates)
	case c.OffsetsRetentionCheckMillis < 1:
		return fmt.Errorf("%w: offsets.retention.check.interval.ms %d", ErrInvalidConfig, c.OffsetsRetentionCheckMillis)
	}
	return nil
}
