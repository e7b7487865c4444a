package coordinator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// Deps are what the coordinator works with.
type Deps struct {
	Log      Log // the topic __consumer_offsets
	Metadata Metadata
	// Fenced says whether an error of Log.Append means that the batch was refused because its producer, or the coordinator that
	// ends its transaction, has been replaced. nil: never.
	Fenced func(error) bool
	// ShareState keeps what share groups do; nil: share groups have no partitions.
	ShareState ShareState
	Logger     *slog.Logger
}

// Coordinator coordinates the groups whose partition of the offsets topic this broker leads.
type Coordinator struct {
	cfg         Config
	groups      service
	internal    internalTopics
	loads       atomic.Uint64 // states of partitions so far, see txnEnds
	state       ShareState
	unsubscribe func()
}

// Open starts the coordinator. Partitions that this broker leads already are read back in the background.
func Open(cfg Config, deps Deps) (*Coordinator, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Coordinator{cfg: cfg, state: deps.ShareState}
	c.groups = service{
		cfg: &c.cfg, topic: topic.ConsumerOffsets, log: deps.Log, meta: deps.Metadata, logger: deps.Logger,
		made: topicSettings{partitions: cfg.TopicPartitions, replicas: cfg.TopicReplicas, segmentBytes: cfg.TopicSegmentBytes},
		create: func(now int64) machine {
			m := newCore(&c.cfg, now)
			m.ends.begin(c.loads.Add(1))
			return m
		},
		fenced: deps.Fenced,
		begin:  c.beginShares,
	}
	c.internal = internalTopics{meta: deps.Metadata, logger: deps.Logger}
	c.groups.start()
	c.unsubscribe = deps.Metadata.Subscribe(c.image)
	return c, nil
}

// Close ends every shard. Requests that wait are told ErrClosed. It is idempotent.
func (c *Coordinator) Close(ctx context.Context) error {
	c.unsubscribe()
	return c.groups.close(ctx)
}

// image takes a new metadata image.
func (c *Coordinator) image(prev, next *meta.Image) {
	c.groups.image(prev, next)
	c.groups.deleted(prev, next, func(t *meta.Topic) any {
		gone := topicGone{topic: t.Name, id: t.ID}
		if now := next.Topic(t.Name); now != nil {
			gone.keep = now.ID
		}
		return gone
	})
}

// Locate finds the broker that coordinates a group. The first call has the offsets topic created. ErrNotAvailable until
// there is a coordinator that serves.
func (c *Coordinator) Locate(_ context.Context, group string) (broker int32, err error) {
	return c.groups.locate(group)
}

// Join is JoinGroup. It blocks until the group's join phase has ended. The result is set with an error too.
func (c *Coordinator) Join(ctx context.Context, q *JoinRequest) (*JoinResult, error) {
	r, err := ask[*JoinResult](ctx, &c.groups, q.Group, q)
	if r == nil {
		r = joinFailed(q.MemberID)
	}
	return r, err
}

// Sync is SyncGroup. It blocks until the leader has assigned.
func (c *Coordinator) Sync(ctx context.Context, q *SyncRequest) (*SyncResult, error) {
	r, err := ask[*SyncResult](ctx, &c.groups, q.Group, q)
	if r == nil {
		r = &SyncResult{}
	}
	return r, err
}

// Heartbeat is Heartbeat. While the group is being read back a member is told that all is well, as Kafka does: it has its whole
// session once that is done.
func (c *Coordinator) Heartbeat(ctx context.Context, q *HeartbeatRequest) error {
	_, err := ask[any](ctx, &c.groups, q.Group, q)
	if errors.Is(err, ErrLoading) && q.Group != "" {
		return nil
	}
	return err
}

// Leave is LeaveGroup.
func (c *Coordinator) Leave(ctx context.Context, q *LeaveRequest) (*LeaveResult, error) {
	return ask[*LeaveResult](ctx, &c.groups, q.Group, q)
}

// Commit is OffsetCommit. The caller has checked that the partitions exist. When the error is not nil, it is that of every
// partition.
func (c *Coordinator) Commit(ctx context.Context, q *CommitRequest) (*CommitResult, error) {
	return ask[*CommitResult](ctx, &c.groups, q.Group, q)
}

// EndTransaction writes the end of a transaction to a partition of the offsets topic; what it committed counts then
// (WriteTxnMarkers). An error for which Deps.Fenced is true is the log's own.
func (c *Coordinator) EndTransaction(ctx context.Context, index int32, q *EndMarker) error {
	if _, leading := c.groups.log.Epoch(index); !leading {
		return ErrNotCoordinator
	}
	s := c.groups.shard(index)
	if s == nil {
		return ErrClosed
	}
	_, err := s.do(ctx, q)
	return err
}

// TxnGuard is to be asked for before a transaction that offsets are committed in is verified, and given with the commit
// (CommitRequest.Guard).
func (c *Coordinator) TxnGuard(group string) (uint64, error) {
	s, err := c.groups.of(group)
	if err != nil {
		return 0, err
	}
	return s.guard.Load(), nil
}

// FetchOffsets is OffsetFetch for one group.
func (c *Coordinator) FetchOffsets(ctx context.Context, q *FetchOffsetsRequest) ([]CommittedOffset, error) {
	return ask[[]CommittedOffset](ctx, &c.groups, q.Group, q)
}

// DeleteOffsets is OffsetDelete.
func (c *Coordinator) DeleteOffsets(ctx context.Context, q *DeleteOffsetsRequest) (*DeleteOffsetsResult, error) {
	return ask[*DeleteOffsetsResult](ctx, &c.groups, q.Group, q)
}

// Describe describes a group. Of a group that does not exist, the error is ErrUnknownGroup.
func (c *Coordinator) Describe(ctx context.Context, group string) (*Description, error) {
	return ask[*Description](ctx, &c.groups, group, describe{group})
}

// ConsumerHeartbeat is ConsumerGroupHeartbeat (KIP-848). The result is set with an error too.
func (c *Coordinator) ConsumerHeartbeat(ctx context.Context, q *ConsumerHeartbeatRequest) (*ConsumerHeartbeatResult, error) {
	r, err := ask[*ConsumerHeartbeatResult](ctx, &c.groups, q.Group, q)
	if r == nil {
		r = &ConsumerHeartbeatResult{MemberID: q.MemberID, MemberEpoch: q.MemberEpoch}
	}
	return r, err
}

// DescribeConsumer is ConsumerGroupDescribe for one group. Of one that does not exist, or is of another protocol, the error wraps
// ErrUnknownGroup.
func (c *Coordinator) DescribeConsumer(ctx context.Context, group string) (*ConsumerDescription, error) {
	return ask[*ConsumerDescription](ctx, &c.groups, group, describeConsumer{group})
}

// DescribeStreams is StreamsGroupDescribe for one group. Of one that does not exist, or is of another protocol, the error wraps
// ErrUnknownGroup.
func (c *Coordinator) DescribeStreams(ctx context.Context, group string) (*StreamsDescription, error) {
	return ask[*StreamsDescription](ctx, &c.groups, group, describeStreams{group})
}

// List lists the groups that this broker coordinates. It is ErrLoading while some of them are being read back.
func (c *Coordinator) List(ctx context.Context) ([]Listed, error) {
	return gather[Listed](ctx, &c.groups, list{})
}

// newUUID is a random UUID of version 4, as Kafka's member ids end in.
func newUUID() string {
	var u [16]byte
	rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}
