package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/varvelog/varve/meta/topic"
)

// shareStateMillis bounds one conversation with the share coordinator that no client waits for.
const shareStateMillis = 30_000

// beginShares has the share coordinator begin share-partitions, and tells the machine what came of it.
func (c *Coordinator) beginShares(s *shard, begin []ShareInitialize) {
	if c.state == nil {
		return
	}
	c.groups.wg.Go(func() {
		ctx, cancel := context.WithTimeout(c.groups.ctx, shareStateMillis*time.Millisecond)
		defer cancel()
		c.begun(ctx, s, begin)
	})
}

// begun begins share-partitions of one group and notes it. It returns the errors, in order.
func (c *Coordinator) begun(ctx context.Context, s *shard, begin []ShareInitialize) []error {
	errs := c.state.Initialize(ctx, begin)
	note := shareBegun{group: begin[0].Group}
	for i, err := range errs {
		if err != nil {
			note.failed = append(note.failed, begin[i].ShareKey)
			s.log.Warn("share-partition not begun", "share", begin[i].ShareKey, "err", err)
			continue
		}
		note.begun = append(note.begun, begin[i].ShareKey)
	}
	// Whoever coordinates the group next, if it is not this broker any more, asks again.
	if _, err := s.do(c.groups.ctx, note); err != nil && c.groups.ctx.Err() == nil {
		s.log.Info("that share-partitions were begun is not noted", "group", note.group, "err", err)
	}
	return errs
}

// ShareHeartbeat is ShareGroupHeartbeat (KIP-932). The result is set with an error too.
func (c *Coordinator) ShareHeartbeat(ctx context.Context, q *ShareHeartbeatRequest) (*ShareHeartbeatResult, error) {
	r, err := ask[*ShareHeartbeatResult](ctx, &c.groups, q.Group, q)
	if r == nil {
		r = &ShareHeartbeatResult{MemberID: q.MemberID, MemberEpoch: q.MemberEpoch}
	}
	return r, err
}

// DescribeShare is ShareGroupDescribe for one group. Of one that does not exist, or is of another protocol, the error wraps
// ErrUnknownGroup.
func (c *Coordinator) DescribeShare(ctx context.Context, group string) (*ShareDescription, error) {
	return ask[*ShareDescription](ctx, &c.groups, group, describeShare{group})
}

// SharePartitions lists the share-partitions that a share group has.
func (c *Coordinator) SharePartitions(ctx context.Context, group string) ([]ShareKey, error) {
	return ask[[]ShareKey](ctx, &c.groups, group, listShares{group})
}

// ShareSummaries reads where share-partitions begin, from whoever keeps them.
func (c *Coordinator) ShareSummaries(ctx context.Context, keys []ShareKey) []ShareSummary {
	if c.state == nil {
		out := make([]ShareSummary, len(keys))
		for i := range out {
			out[i] = ShareSummary{Err: ErrNotAvailable, Start: NoOffset, DeliveryCompleteCount: NoDeliveryCount}
		}
		return out
	}
	return c.state.Summary(ctx, keys)
}

// AlterShares is AlterShareGroupOffsets. It returns when the share coordinator has begun the share-partitions.
func (c *Coordinator) AlterShares(ctx context.Context, q *AlterShareRequest) (*AlterShareResult, error) {
	if c.state == nil {
		return nil, ErrNotAvailable
	}
	if q.Group == "" {
		return nil, refuse(ErrInvalidGroup, "The group id is invalid.")
	}
	x, err := ask[*alteredShares](ctx, &c.groups, q.Group, q)
	if err != nil || len(x.begin) == 0 {
		if x == nil {
			return nil, err
		}
		return x.result, err
	}
	s, err := c.groups.of(q.Group)
	if err != nil {
		return nil, err
	}
	for i, err := range c.begun(ctx, s, x.begin) {
		at := x.at[i]
		x.result.Topics[at[0]].Errs[at[1]] = err
	}
	return x.result, nil
}

// DeleteShares is DeleteShareGroupOffsets. It returns when the share coordinator has forgotten what it had.
func (c *Coordinator) DeleteShares(ctx context.Context, q *DeleteShareOffsetsRequest) ([]DeleteShareOffsetsResult, error) {
	if c.state == nil {
		return nil, ErrNotAvailable
	}
	if q.Group == "" {
		return nil, refuse(ErrInvalidGroup, "The group id is invalid.")
	}
	x, err := ask[*deletedShares](ctx, &c.groups, q.Group, q)
	if err != nil {
		return nil, err
	}
	note := shareForgotten{group: q.Group}
	for i, keys := range x.keys {
		if keys == nil {
			continue
		}
		if err := c.forgotten(ctx, keys); err != nil {
			x.results[i].Err = err
			continue
		}
		note.topics = append(note.topics, x.results[i].ID)
	}
	_, err = ask[any](context.WithoutCancel(ctx), &c.groups, q.Group, note)
	return x.results, err
}

// forgotten has the share coordinator forget share-partitions. Those of a topic that is gone are forgotten.
func (c *Coordinator) forgotten(ctx context.Context, keys []ShareKey) error {
	for _, err := range c.state.Delete(ctx, keys) {
		if err != nil && !errors.Is(err, ErrShareStateUnknown) {
			return err
		}
	}
	return nil
}

// Delete deletes a group without members, and its offsets; of a share group, what the share coordinator keeps of it first.
func (c *Coordinator) Delete(ctx context.Context, group string) error {
	r, err := ask[any](ctx, &c.groups, group, remove{group})
	doomed, ok := r.(*doomedShares)
	if err != nil || !ok {
		return err
	}
	note := shareForgotten{group: group, topics: doomed.topics, all: true}
	if c.state == nil {
		err = ErrNotAvailable
	} else {
		err = c.forgotten(ctx, doomed.keys)
	}
	if err != nil {
		note.topics, note.all = []topic.ID{}, false
	}
	if _, e := ask[any](context.WithoutCancel(ctx), &c.groups, group, note); err == nil {
		err = e
	}
	return err
}
