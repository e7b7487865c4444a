package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// ShareLog is the share state topic.
type ShareLog interface {
	Log
	// Cut removes the records of a partition below offset.
	Cut(ctx context.Context, partition int32, offset int64) error
}

// ShareDeps are what the share coordinator works with.
type ShareDeps struct {
	Log      ShareLog // the topic __share_group_state
	Metadata Metadata
	Logger   *slog.Logger
}

// Shares coordinates the share-partitions whose partition of the share state topic this broker leads: it keeps their state
// (KIP-932). Who asks is a broker, by way of a ShareState.
type Shares struct {
	cfg         Config
	state       service
	unsubscribe func()
}

// OpenShares starts the share coordinator. Partitions that this broker leads already are read back in the background.
func OpenShares(cfg Config, deps ShareDeps) (*Shares, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Shares{cfg: cfg}
	c.state = service{
		cfg: &c.cfg, topic: topic.ShareGroupState, log: deps.Log, meta: deps.Metadata, logger: deps.Logger,
		made: topicSettings{
			partitions: cfg.ShareTopicPartitions, replicas: cfg.ShareTopicReplicas,
			segmentBytes: cfg.ShareTopicSegmentBytes, minISR: cfg.ShareTopicMinISR, keepAll: true,
		},
		create: func(now int64) machine { return newShareCore(&c.cfg, now) },
		cut:    deps.Log.Cut,
	}
	c.state.start()
	c.unsubscribe = deps.Metadata.Subscribe(c.image)
	return c, nil
}

// Close ends every shard. Requests that wait are told ErrClosed. It is idempotent.
func (c *Shares) Close(ctx context.Context) error {
	c.unsubscribe()
	return c.state.close(ctx)
}

// image takes a new metadata image. The state of deleted topics goes with them.
func (c *Shares) image(prev, next *meta.Image) {
	c.state.image(prev, next)
	c.state.deleted(prev, next, func(t *meta.Topic) any { return shareTopicGone{t.ID} })
}

// String is the key by which the coordinator of a share-partition is found: group:topic id:partition.
func (k ShareKey) String() string { return fmt.Sprintf("%s:%s:%d", k.Group, k.Topic, k.Partition) }

// ParseShareKey reads what String writes. A group may have colons in its name.
func ParseShareKey(text string) (k ShareKey, err error) {
	parts := strings.Split(text, ":")
	if len(parts) < 3 {
		return k, fmt.Errorf("%w: key %q: want group:topic id:partition", ErrInvalidShareState, text)
	}
	n := len(parts)
	k.Group = strings.Join(parts[:n-2], ":")
	index, err := strconv.ParseInt(parts[n-1], 10, 32)
	if err == nil {
		k.Topic, err = topic.ParseID(parts[n-2])
	}
	if err != nil || strings.TrimSpace(k.Group) == "" {
		return ShareKey{}, fmt.Errorf("%w: key %q: want group:topic id:partition", ErrInvalidShareState, text)
	}
	k.Partition = int32(index)
	return k, nil
}

// Locate finds the broker that coordinates a share-partition, by its key (ShareKey.String). The first call has the share state
// topic created. ErrNotAvailable until there is a coordinator that serves.
func (c *Shares) Locate(_ context.Context, key string) (broker int32, err error) {
	return c.state.locate(key)
}

// Initialize is ShareState's for one share-partition that this broker coordinates, as the others are.
func (c *Shares) Initialize(ctx context.Context, q *ShareInitialize) error {
	_, err := ask[any](ctx, &c.state, q.ShareKey.String(), q)
	return err
}

// Read reads a share-partition's state and takes it over.
func (c *Shares) Read(ctx context.Context, q *ShareRead) ShareReadResult {
	r, err := ask[*ShareReadResult](ctx, &c.state, q.ShareKey.String(), q)
	if err != nil {
		return ShareReadResult{Err: err, Start: NoOffset}
	}
	return *r
}

// Write adds to a share-partition's state.
func (c *Shares) Write(ctx context.Context, q *ShareWrite) error {
	_, err := ask[any](ctx, &c.state, q.ShareKey.String(), q)
	return err
}

// Delete forgets a share-partition.
func (c *Shares) Delete(ctx context.Context, k ShareKey) error {
	_, err := ask[any](ctx, &c.state, k.String(), shareDelete{k})
	return err
}

// Summary reads where a share-partition begins.
func (c *Shares) Summary(ctx context.Context, k ShareKey) ShareSummary {
	r, err := ask[*ShareSummary](ctx, &c.state, k.String(), k)
	if err != nil {
		return ShareSummary{Err: err, Start: NoOffset, DeliveryCompleteCount: NoDeliveryCount}
	}
	return *r
}
