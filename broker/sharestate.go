package broker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/meta/topic"
)

// ShareState asks the share coordinators of the cluster for what share groups keep: the one of this broker directly, others by
// the keys 83 to 87. All requests of a call that one coordinator serves for one group travel in one request.
type ShareState struct {
	node    int32
	shares  Shares
	brokers Brokers // nil: there are no others
}

var _ coordinator.ShareState = (*ShareState)(nil)

// NewShareState reaches the share coordinators from a node.
func NewShareState(node int32, shares Shares, brokers Brokers) *ShareState {
	return &ShareState{node, shares, brokers}
}

// How long a call looks for a coordinator that is on its way to another broker, when its context has no end of its own, and how
// long it pauses between two looks.
const (
	shareStateMax   = 30 * time.Second
	sharePauseFirst = 20 * time.Millisecond
	sharePauseMax   = time.Second
)

// errShareRefused is returned when a share coordinator on another broker answers with an error that says nothing more.
var errShareRefused = errors.New("broker: the share coordinator refuses")

// shareError is what a share coordinator's answer stands for.
func shareError(c int16, text *string) error {
	var kind error
	switch c {
	case codeNone:
		return nil
	case codeNotCoordinator:
		kind = coordinator.ErrNotCoordinator
	case codeCoordinatorLoading:
		kind = coordinator.ErrLoading
	case codeCoordinatorNotAvailable:
		kind = coordinator.ErrNotAvailable
	case codeFencedStateEpoch:
		kind = coordinator.ErrFencedStateEpoch
	case codeFencedLeaderEpoch:
		kind = coordinator.ErrFencedLeaderEpoch
	case codeUnknownTopicOrPartition:
		kind = coordinator.ErrShareStateUnknown
	case codeInvalidRequest:
		kind = coordinator.ErrInvalidShareState
	default:
		kind = fmt.Errorf("%w: error %d", errShareRefused, c)
	}
	if text != nil && *text != "" {
		return &coordinator.Refusal{Kind: kind, Text: *text}
	}
	return kind
}

// retriable says whether another try may find the coordinator. Everything that is asked may be asked twice: of two writes of the
// same the second changes nothing.
func shareRetriable(err error) bool {
	return errors.Is(err, coordinator.ErrNotCoordinator) || errors.Is(err, coordinator.ErrLoading) || errors.Is(err, coordinator.ErrNotAvailable) ||
		errors.Is(err, errShareUnreached)
}

// errShareUnreached is returned when the broker of a share coordinator did not answer.
var errShareUnreached = errors.New("broker: the share coordinator was not reached")

// party is requests that travel together: by their index.
type party struct {
	broker int32
	group  string
	all    []int
}

// each has every request answered: local asks this broker's coordinator, remote another broker's for several requests of one group
// and gives an error for each. It tries again what is worth it.
func (x *ShareState) each(ctx context.Context, keys []coordinator.ShareKey, local func(ctx context.Context, i int) error,
	remote func(ctx context.Context, p party, errs []error) error) []error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, shareStateMax)
		defer cancel()
	}
	errs := make([]error, len(keys))
	left := make([]int, len(keys))
	for i := range left {
		left[i] = i
	}
	for pause := sharePauseFirst; ; pause = min(2*pause, sharePauseMax) {
		x.round(ctx, keys, left, errs, local, remote)
		again := left[:0]
		for _, i := range left {
			if shareRetriable(errs[i]) {
				again = append(again, i)
			}
		}
		if left = again; len(left) == 0 {
			return errs
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errs
		}
	}
}

// round asks once for every request that is left.
func (x *ShareState) round(ctx context.Context, keys []coordinator.ShareKey, left []int, errs []error,
	local func(ctx context.Context, i int) error, remote func(ctx context.Context, p party, errs []error) error) {
	type address struct {
		broker int32
		group  string
	}
	var here []int
	parties := map[address]*party{}
	for _, i := range left {
		id, err := x.shares.Locate(ctx, keys[i].String())
		to := address{id, keys[i].Group}
		switch {
		case err != nil:
			errs[i] = err
		case id == x.node:
			here = append(here, i)
		case parties[to] == nil:
			parties[to] = &party{broker: id, group: to.group, all: []int{i}}
		default:
			parties[to].all = append(parties[to].all, i)
		}
	}
	away := slices.Collect(maps.Values(parties))
	abreast(len(here)+len(away), func(n int) {
		if n < len(here) {
			errs[here[n]] = local(ctx, here[n])
			return
		}
		p := away[n-len(here)]
		if err := remote(ctx, *p, errs); err != nil {
			for _, i := range p.all {
				errs[i] = fmt.Errorf("%w: %w", errShareUnreached, err)
			}
		}
	})
}

// ask sends a party's request.
func (x *ShareState) ask(ctx context.Context, p party, q kmsg.Request) (kmsg.Response, error) {
	if x.brokers == nil {
		return nil, fmt.Errorf("%w: broker %d", errNoBroker, p.broker)
	}
	return x.brokers.Ask(ctx, p.broker, q)
}

// topics is a party's requests by topic, in order.
func (p party) topics(keys []coordinator.ShareKey) (ids []topic.ID, parts map[topic.ID][]int) {
	parts = map[topic.ID][]int{}
	for _, i := range p.all {
		id := keys[i].Topic
		if parts[id] == nil {
			ids = append(ids, id)
		}
		parts[id] = append(parts[id], i)
	}
	return ids, parts
}

// shareAnswers is the parts of an answer, by the share-partition they are for.
type shareAnswers map[coordinator.ShareKey][]func(i int) error

func (g shareAnswers) add(group string, id topic.ID, partition int32, take func(i int) error) {
	k := coordinator.ShareKey{Group: group, Topic: id, Partition: partition}
	g[k] = append(g[k], take)
}

// settle has every request of a party take its part of the answer; one without is an error.
func (p party) settle(keys []coordinator.ShareKey, errs []error, got shareAnswers) {
	for _, i := range p.all {
		list := got[keys[i]]
		if len(list) == 0 {
			errs[i] = fmt.Errorf("%w: no answer for %s", errShareRefused, keys[i])
			continue
		}
		errs[i], got[keys[i]] = list[0](i), list[1:] // several for one share-partition are answered in order
	}
}

// Initialize implements coordinator.ShareState.
func (x *ShareState) Initialize(ctx context.Context, qs []coordinator.ShareInitialize) []error {
	keys := shareKeys(qs, func(q *coordinator.ShareInitialize) coordinator.ShareKey { return q.ShareKey })
	return x.each(ctx, keys, func(ctx context.Context, i int) error { return x.shares.Initialize(ctx, &qs[i]) },
		func(ctx context.Context, p party, errs []error) error {
			q := kmsg.NewPtrInitializeShareGroupStateRequest()
			q.Version, q.GroupID = apiInitializeShareState.max, p.group
			ids, parts := p.topics(keys)
			for _, id := range ids {
				t := kmsg.NewInitializeShareGroupStateRequestTopic()
				t.TopicID = id
				for _, i := range parts[id] {
					a := kmsg.NewInitializeShareGroupStateRequestTopicPartition()
					a.Partition, a.StateEpoch, a.StartOffset = qs[i].Partition, qs[i].StateEpoch, qs[i].Start
					t.Partitions = append(t.Partitions, a)
				}
				q.Topics = append(q.Topics, t)
			}
			resp, err := x.ask(ctx, p, q)
			if err != nil {
				return err
			}
			got := shareAnswers{}
			for _, t := range resp.(*kmsg.InitializeShareGroupStateResponse).Topics {
				for _, a := range t.Partitions {
					got.add(p.group, t.TopicID, a.Partition, func(int) error {
						return shareError(a.ErrorCode, a.ErrorMessage)
					})
				}
			}
			p.settle(keys, errs, got)
			return nil
		})
}

// Read implements coordinator.ShareState.
func (x *ShareState) Read(ctx context.Context, qs []coordinator.ShareRead) []coordinator.ShareReadResult {
	keys := shareKeys(qs, func(q *coordinator.ShareRead) coordinator.ShareKey { return q.ShareKey })
	out := make([]coordinator.ShareReadResult, len(qs))
	errs := x.each(ctx, keys, func(ctx context.Context, i int) error {
		out[i] = x.shares.Read(ctx, &qs[i])
		return out[i].Err
	}, func(ctx context.Context, p party, errs []error) error {
		q := kmsg.NewPtrReadShareGroupStateRequest()
		q.Version, q.GroupID = apiReadShareState.max, p.group
		ids, parts := p.topics(keys)
		for _, id := range ids {
			t := kmsg.NewReadShareGroupStateRequestTopic()
			t.TopicID = id
			for _, i := range parts[id] {
				a := kmsg.NewReadShareGroupStateRequestTopicPartition()
				a.Partition, a.LeaderEpoch = qs[i].Partition, qs[i].LeaderEpoch
				t.Partitions = append(t.Partitions, a)
			}
			q.Topics = append(q.Topics, t)
		}
		resp, err := x.ask(ctx, p, q)
		if err != nil {
			return err
		}
		got := shareAnswers{}
		for _, t := range resp.(*kmsg.ReadShareGroupStateResponse).Topics {
			for _, a := range t.Partitions {
				got.add(p.group, t.TopicID, a.Partition, func(i int) error {
					out[i] = coordinator.ShareReadResult{StateEpoch: a.StateEpoch, Start: a.StartOffset}
					for _, b := range a.StateBatches {
						out[i].Batches = append(out[i].Batches, coordinator.ShareBatch{
							First: b.FirstOffset, Last: b.LastOffset, State: coordinator.ShareDelivery(b.DeliveryState), DeliveryCount: b.DeliveryCount,
						})
					}
					return shareError(a.ErrorCode, a.ErrorMessage)
				})
			}
		}
		p.settle(keys, errs, got)
		return nil
	})
	for i, err := range errs {
		if out[i].Err = err; err != nil {
			out[i].Start = coordinator.NoOffset
		}
	}
	return out
}

// Write implements coordinator.ShareState.
func (x *ShareState) Write(ctx context.Context, qs []coordinator.ShareWrite) []error {
	keys := shareKeys(qs, func(q *coordinator.ShareWrite) coordinator.ShareKey { return q.ShareKey })
	return x.each(ctx, keys, func(ctx context.Context, i int) error { return x.shares.Write(ctx, &qs[i]) },
		func(ctx context.Context, p party, errs []error) error {
			q := kmsg.NewPtrWriteShareGroupStateRequest()
			q.Version, q.GroupID = apiWriteShareState.max, p.group
			ids, parts := p.topics(keys)
			for _, id := range ids {
				t := kmsg.NewWriteShareGroupStateRequestTopic()
				t.TopicID = id
				for _, i := range parts[id] {
					t.Partitions = append(t.Partitions, writeSharePartition(&qs[i]))
				}
				q.Topics = append(q.Topics, t)
			}
			resp, err := x.ask(ctx, p, q)
			if err != nil {
				return err
			}
			got := shareAnswers{}
			for _, t := range resp.(*kmsg.WriteShareGroupStateResponse).Topics {
				for _, a := range t.Partitions {
					got.add(p.group, t.TopicID, a.Partition, func(int) error {
						return shareError(a.ErrorCode, a.ErrorMessage)
					})
				}
			}
			p.settle(keys, errs, got)
			return nil
		})
}

func writeSharePartition(from *coordinator.ShareWrite) kmsg.WriteShareGroupStateRequestTopicPartition {
	a := kmsg.NewWriteShareGroupStateRequestTopicPartition()
	a.Partition, a.StateEpoch, a.LeaderEpoch = from.Partition, from.StateEpoch, from.LeaderEpoch
	a.StartOffset, a.DeliveryCompleteCount = from.Start, from.DeliveryCompleteCount
	for _, b := range from.Batches {
		x := kmsg.NewWriteShareGroupStateRequestTopicPartitionStateBatch()
		x.FirstOffset, x.LastOffset, x.DeliveryState, x.DeliveryCount = b.First, b.Last, int8(b.State), b.DeliveryCount
		a.StateBatches = append(a.StateBatches, x)
	}
	return a
}

// Delete implements coordinator.ShareState.
func (x *ShareState) Delete(ctx context.Context, keys []coordinator.ShareKey) []error {
	return x.each(ctx, keys, func(ctx context.Context, i int) error { return x.shares.Delete(ctx, keys[i]) },
		func(ctx context.Context, p party, errs []error) error {
			q := kmsg.NewPtrDeleteShareGroupStateRequest()
			q.Version, q.GroupID = apiDeleteShareState.max, p.group
			ids, parts := p.topics(keys)
			for _, id := range ids {
				t := kmsg.NewDeleteShareGroupStateRequestTopic()
				t.TopicID = id
				for _, i := range parts[id] {
					a := kmsg.NewDeleteShareGroupStateRequestTopicPartition()
					a.Partition = keys[i].Partition
					t.Partitions = append(t.Partitions, a)
				}
				q.Topics = append(q.Topics, t)
			}
			resp, err := x.ask(ctx, p, q)
			if err != nil {
				return err
			}
			got := shareAnswers{}
			for _, t := range resp.(*kmsg.DeleteShareGroupStateResponse).Topics {
				for _, a := range t.Partitions {
					got.add(p.group, t.TopicID, a.Partition, func(int) error {
						return shareError(a.ErrorCode, a.ErrorMessage)
					})
				}
			}
			p.settle(keys, errs, got)
			return nil
		})
}

// Summary implements coordinator.ShareState.
func (x *ShareState) Summary(ctx context.Context, keys []coordinator.ShareKey) []coordinator.ShareSummary {
	out := make([]coordinator.ShareSummary, len(keys))
	errs := x.each(ctx, keys, func(ctx context.Context, i int) error {
		out[i] = x.shares.Summary(ctx, keys[i])
		return out[i].Err
	}, func(ctx context.Context, p party, errs []error) error {
		q := kmsg.NewPtrReadShareGroupStateSummaryRequest()
		q.Version, q.GroupID = apiReadShareSummary.max, p.group
		ids, parts := p.topics(keys)
		for _, id := range ids {
			t := kmsg.NewReadShareGroupStateSummaryRequestTopic()
			t.TopicID = id
			for _, i := range parts[id] {
				a := kmsg.NewReadShareGroupStateSummaryRequestTopicPartition()
				a.Partition, a.LeaderEpoch = keys[i].Partition, -1
				t.Partitions = append(t.Partitions, a)
			}
			q.Topics = append(q.Topics, t)
		}
		resp, err := x.ask(ctx, p, q)
		if err != nil {
			return err
		}
		got := shareAnswers{}
		for _, t := range resp.(*kmsg.ReadShareGroupStateSummaryResponse).Topics {
			for _, a := range t.Partitions {
				got.add(p.group, t.TopicID, a.Partition, func(i int) error {
					out[i] = coordinator.ShareSummary{
						StateEpoch: a.StateEpoch, LeaderEpoch: a.LeaderEpoch, Start: a.StartOffset, DeliveryCompleteCount: a.DeliveryCompleteCount,
					}
					return shareError(a.ErrorCode, a.ErrorMessage)
				})
			}
		}
		p.settle(keys, errs, got)
		return nil
	})
	for i, err := range errs {
		if out[i].Err = err; err != nil {
			out[i].Start, out[i].DeliveryCompleteCount = coordinator.NoOffset, coordinator.NoDeliveryCount
		}
	}
	return out
}

func shareKeys[T any](qs []T, key func(*T) coordinator.ShareKey) []coordinator.ShareKey {
	keys := make([]coordinator.ShareKey, len(qs))
	for i := range qs {
		keys[i] = key(&qs[i])
	}
	return keys
}
