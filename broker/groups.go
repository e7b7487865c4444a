package broker

import (
	"context"
	"slices"

	"github.com/varvelog/varve/coordinator"
)

// Groups is the group coordinator as the handlers use it; *coordinator.Coordinator is one. Results are set with an error too
// where a client is told more than the error.
type Groups interface {
	Locate(ctx context.Context, group string) (broker int32, err error)
	Join(ctx context.Context, q *coordinator.JoinRequest) (*coordinator.JoinResult, error)
	Sync(ctx context.Context, q *coordinator.SyncRequest) (*coordinator.SyncResult, error)
	Heartbeat(ctx context.Context, q *coordinator.HeartbeatRequest) error
	Leave(ctx context.Context, q *coordinator.LeaveRequest) (*coordinator.LeaveResult, error)
	Commit(ctx context.Context, q *coordinator.CommitRequest) (*coordinator.CommitResult, error)
	EndTransaction(ctx context.Context, partition int32, q *coordinator.EndMarker) error
	TxnGuard(group string) (uint64, error)
	FetchOffsets(ctx context.Context, q *coordinator.FetchOffsetsRequest) ([]coordinator.CommittedOffset, error)
	DeleteOffsets(ctx context.Context, q *coordinator.DeleteOffsetsRequest) (*coordinator.DeleteOffsetsResult, error)
	Describe(ctx context.Context, group string) (*coordinator.Description, error)
	ConsumerHeartbeat(ctx context.Context, q *coordinator.ConsumerHeartbeatRequest) (*coordinator.ConsumerHeartbeatResult, error)
	DescribeConsumer(ctx context.Context, group string) (*coordinator.ConsumerDescription, error)
	StreamsHeartbeat(ctx context.Context, q *coordinator.StreamsHeartbeatRequest) (*coordinator.StreamsHeartbeatResult, error)
	DescribeStreams(ctx context.Context, group string) (*coordinator.StreamsDescription, error)
	ShareHeartbeat(ctx context.Context, q *coordinator.ShareHeartbeatRequest) (*coordinator.ShareHeartbeatResult, error)
	DescribeShare(ctx context.Context, group string) (*coordinator.ShareDescription, error)
	SharePartitions(ctx context.Context, group string) ([]coordinator.ShareKey, error)
	ShareSummaries(ctx context.Context, keys []coordinator.ShareKey) []coordinator.ShareSummary
	AlterShares(ctx context.Context, q *coordinator.AlterShareRequest) (*coordinator.AlterShareResult, error)
	DeleteShares(ctx context.Context, q *coordinator.DeleteShareOffsetsRequest) ([]coordinator.DeleteShareOffsetsResult, error)
	Delete(ctx context.Context, group string) error
	List(ctx context.Context) ([]coordinator.Listed, error)
}

var _ Groups = (*coordinator.Coordinator)(nil)

// served is the keys of list that deps can serve.
func served(list []api, deps Deps) []api {
	return slices.DeleteFunc(slices.Clone(list), func(a api) bool {
		if a.internal && deps.Controlled == nil {
			return true
		}
		switch k := a.key; {
		case k >= apiOffsetCommit.key && k <= apiListGroups.key, k == apiDeleteGroups.key, k == apiOffsetDelete.key,
			k == apiConsumerGroupHeartbeat.key, k == apiConsumerGroupDescribe.key, k == apiStreamsGroupHeartbeat.key,
			k == apiStreamsGroupDescribe.key, k == apiStreamsTopologyUpdate.key, k == apiShareGroupHeartbeat.key, k == apiShareGroupDescribe.key,
			k == apiDescribeShareOffsets.key, k == apiAlterShareOffsets.key, k == apiDeleteShareOffsets.key:
			return deps.Groups == nil
		case k >= apiAddPartitionsToTxn.key && k <= apiTxnOffsetCommit.key, k == apiDescribeTransactions.key, k == apiListTransactions.key:
			return deps.Transactions == nil
		case k >= apiInitializeShareState.key && k <= apiReadShareSummary.key:
			return deps.Shares == nil
		case k == apiShareFetch.key, k == apiShareAcknowledge.key:
			return deps.ShareState == nil || deps.Metadata == nil
		}
		return false
	})
}

// groupOperations is what may be done with a group, as a bit field: read, delete, describe, and describing and altering its
// settings.
const groupOperations int32 = 1<<3 | 1<<6 | 1<<8 | 1<<10 | 1<<11

// noOperations is the value of authorized operations that were not asked for.
const noOperations int32 = -1 << 31

// copied is b in memory of its own: what the coordinator keeps must outlive the frame.
func copied(b []byte) []byte { return append([]byte{}, b...) }
