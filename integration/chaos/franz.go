//go:build linux

package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/history"
)

// pollTime is how long a poll waits for records.
const pollTime = 150 * time.Millisecond

// franz is franz-go: an idempotent producer, which retries by itself, so that
// no error says that nothing was appended.
type franz struct {
	bootstrap []string
	rack      string // "" for none
	producer  *kgo.Client
	consumer  *kgo.Client
	inGroup   bool
	// uncommitted: it reads what is not yet committed, too.
	uncommitted bool
	// owns is told of what the group gives to us, and of what we give up; nil: nobody is.
	owns    ownership
	leaving atomic.Bool // the consumer is being closed
}

// ownership is told of what a member of a group is given, and of what it begins to give up.
type ownership interface {
	claimed(group, member string, generation int32, keys []string)
	released(group, member, why string, keys []string)
}

func (f *franz) name() string {
	if f.rack != "" {
		return "franz-go in " + f.rack
	}
	return "franz-go"
}

func (f *franz) options(more ...kgo.Opt) []kgo.Opt {
	return append([]kgo.Opt{
		kgo.SeedBrokers(f.bootstrap...),
		kgo.DialTimeout(2 * time.Second),
		kgo.RequestTimeoutOverhead(3 * time.Second),
		kgo.MetadataMinAge(200 * time.Millisecond),
		kgo.MetadataMaxAge(3 * time.Second),
	}, more...)
}

func (f *franz) send(ctx context.Context, key string, values []int64, size int) sent {
	if f.producer == nil {
		codec := kgo.SnappyCompression()
		if f.rack != "" {
			codec = kgo.NoCompression() // both kinds are in the logs
		}
		cl, err := kgo.NewClient(f.options(kgo.ProducerBatchCompression(codec),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.ProduceRequestTimeout(5*time.Second), kgo.RecordDeliveryTimeout(15*time.Second), kgo.ProducerLinger(0))...)
		if err != nil {
			return sent{history.Fail, unsentOffsets(len(values)), err}
		}
		f.producer = cl
	}
	topic, partition := splitKey(key)
	records := make([]*kgo.Record, len(values))
	for i, v := range values {
		records[i] = &kgo.Record{Topic: topic, Partition: partition, Value: record(v, size)}
	}
	offsets, outcome := unsentOffsets(len(values)), history.OK
	// An idempotent producer does not give a record up that a broker may have:
	// it ends with its client only.
	all := make(chan kgo.ProduceResults, 1)
	producer := f.producer
	go func() { all <- producer.ProduceSync(ctx, records...) }()
	var results kgo.ProduceResults
	select {
	case results = <-all:
	case <-ctx.Done():
		return sent{history.Info, offsets, ctx.Err()}
	}
	var errs []error
	for _, r := range results {
		if r.Err != nil {
			outcome = history.Info
			errs = append(errs, r.Err)
			continue
		}
		offsets[valueIndex(values, valueOf(r.Record.Value))] = r.Record.Offset
	}
	return sent{outcome, offsets, errors.Join(errs...)}
}

func valueIndex(values []int64, v int64) int {
	for i := range values {
		if values[i] == v {
			return i
		}
	}
	panic("a result for a value that was not sent")
}

func (f *franz) assign(_ context.Context, from map[string]int64) error {
	f.dropConsumer()
	partitions := map[string]map[int32]kgo.Offset{}
	for key, offset := range from {
		topic, partition := splitKey(key)
		if partitions[topic] == nil {
			partitions[topic] = map[int32]kgo.Offset{}
		}
		switch offset {
		case fromLatest:
			partitions[topic][partition] = kgo.NewOffset().AtEnd()
		case fromEarliest:
			partitions[topic][partition] = kgo.NewOffset().AtStart()
		default:
			partitions[topic][partition] = kgo.NewOffset().At(offset)
		}
	}
	return f.consume(kgo.ConsumePartitions(partitions))
}

func (f *franz) subscribe(_ context.Context, topics []string, group string) error {
	f.dropConsumer()
	f.inGroup = true
	f.leaving.Store(false)
	options := append(groupOptions(group), kgo.ConsumeTopics(topics...), kgo.BlockRebalanceOnPoll())
	if f.owns != nil {
		released := func(why string) func(context.Context, *kgo.Client, map[string][]int32) {
			return func(_ context.Context, cl *kgo.Client, gone map[string][]int32) {
				member, _ := cl.GroupMetadata()
				reason := why
				if f.leaving.Load() {
					reason = history.Left
				}
				f.owns.released(group, member, reason, keysOf(gone))
			}
		}
		options = append(options, kgo.OnPartitionsRevoked(released(history.Revoked)), kgo.OnPartitionsLost(released(history.Lost)),
			kgo.OnPartitionsAssigned(func(_ context.Context, cl *kgo.Client, gained map[string][]int32) {
				member, generation := cl.GroupMetadata()
				f.owns.claimed(group, member, generation, keysOf(gained))
			}))
	}
	return f.consume(options...)
}

func keysOf(topics map[string][]int32) (keys []string) {
	for topic, partitions := range topics {
		for _, p := range partitions {
			keys = append(keys, joinKey(topic, p))
		}
	}
	return keys
}

// consume makes the consumer. Where a broker says that an offset is out of
// range it begins at the start again, which shows in the history: a broker
// that says so wrongly is found out.
func (f *franz) consume(more ...kgo.Opt) error {
	more = append(more, kgo.FetchMaxWait(300*time.Millisecond), kgo.FetchMaxBytes(4<<20), kgo.FetchMaxPartitionBytes(512<<10),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if f.rack != "" {
		more = append(more, kgo.Rack(f.rack))
	}
	if !f.uncommitted {
		more = append(more, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	cl, err := kgo.NewClient(f.options(more...)...)
	f.consumer = cl
	return err
}

func (f *franz) poll(ctx context.Context) ([]history.Step, error) {
	if f.consumer == nil {
		return nil, nil
	}
	short, cancel := context.WithTimeout(ctx, pollTime)
	defer cancel()
	fetches := f.consumer.PollRecords(short, 500)
	var steps []history.Step
	var errs []error
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if p.Err != nil && !errors.Is(p.Err, context.DeadlineExceeded) && !errors.Is(p.Err, context.Canceled) {
			errs = append(errs, p.Err)
		}
		if len(p.Records) == 0 {
			return
		}
		s := history.Step{F: history.Poll, Key: joinKey(p.Topic, p.Partition), Offset: -1}
		for _, r := range p.Records {
			s.Reads = append(s.Reads, [2]int64{r.Offset, valueOf(r.Value)})
		}
		steps = append(steps, s)
	})
	return steps, errors.Join(errs...)
}

func (f *franz) commit(ctx context.Context, really bool) (committed, error) {
	if f.consumer == nil || !f.inGroup {
		return committed{}, nil
	}
	defer f.consumer.AllowRebalance()
	offsets := f.consumer.UncommittedOffsets()
	if !really || len(offsets) == 0 {
		return committed{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	done := committed{ok: map[string]int64{}, unknown: map[string]int64{}}
	for topic, partitions := range offsets {
		for p, o := range partitions {
			done.unknown[joinKey(topic, p)] = o.Offset
		}
	}
	var failed error
	f.consumer.CommitOffsetsSync(ctx, offsets, func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, resp *kmsg.OffsetCommitResponse, err error) {
		if failed = err; err != nil {
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				if key := joinKey(t.Topic, p.Partition); p.ErrorCode == 0 {
					done.ok[key] = done.unknown[key]
					delete(done.unknown, key)
				}
			}
		}
	})
	return done, failed
}

func (f *franz) dropConsumer() {
	if f.consumer != nil {
		f.leaving.Store(true)
		f.consumer.CloseAllowingRebalance()
		f.consumer, f.inGroup = nil, false
	}
}

func (f *franz) crash() {
	f.dropConsumer()
	if f.producer != nil {
		f.producer.Close()
		f.producer = nil
	}
}
