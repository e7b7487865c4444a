//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/integration/history"
)

// raw sends single requests to brokers of its choice: what a library hides.
type raw struct {
	cl *kgo.Client

	mu      sync.Mutex // guards the following
	leaders map[string]leader
}

// leader is the newest leader heard of. An older one is never believed.
type leader struct {
	broker  int32
	epoch   int32
	isr     []int32
	replica []int32
}

func newRaw(bootstrap []string) (*raw, error) {
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(int16(kmsg.Produce), 12) // names instead of ids
	versions.SetMaxKeyVersion(int16(kmsg.Fetch), 12)
	cl, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.MaxVersions(versions),
		kgo.DialTimeout(2*time.Second), kgo.RequestTimeoutOverhead(3*time.Second), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &raw{cl: cl, leaders: map[string]leader{}}, nil
}

// view is the cluster as any broker describes it.
type view struct {
	controller int32
	brokers    []int32
	leaders    map[string]leader
}

// look asks for metadata of topics, all of them when none is named.
func (r *raw) look(ctx context.Context, topics ...string) (view, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	for _, t := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(t)
		req.Topics = append(req.Topics, rt)
	}
	resp, err := req.RequestWith(ctx, r.cl)
	if err != nil {
		return view{}, err
	}
	v := view{controller: resp.ControllerID, leaders: map[string]leader{}}
	for _, b := range resp.Brokers {
		v.brokers = append(v.brokers, b.NodeID)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return view{}, err
		}
		for _, p := range t.Partitions {
			key := joinKey(*t.Topic, p.Partition)
			l := leader{p.Leader, p.LeaderEpoch, p.ISR, p.Replicas}
			v.leaders[key] = l
			if known, any := r.leaders[key]; !any || l.epoch > known.epoch || l.epoch == known.epoch && l.broker >= 0 {
				r.leaders[key] = l
			}
		}
	}
	return v, nil
}

// leader is the newest leader of a key, asked for when none is known.
func (r *raw) leader(ctx context.Context, key string) (leader, error) {
	topic, _ := splitKey(key)
	if _, err := r.look(ctx, topic); err != nil {
		return leader{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l, any := r.leaders[key]
	if !any || l.broker < 0 {
		return leader{}, fmt.Errorf("%s has no leader", key)
	}
	return l, nil
}

func (r *raw) name() string { return "raw" }

// refusals are the codes that a leader gives before it appends anything, for a
// request that was sent once.
var refusals = []*kerr.Error{kerr.MessageTooLarge, kerr.InvalidRecord, kerr.NotEnoughReplicas, kerr.FencedLeaderEpoch,
	kerr.UnsupportedForMessageFormat, kerr.InvalidTimestamp, kerr.RecordListTooLarge}

// oversize is above the topics' max.message.bytes.
const oversize = 300 << 10

func (r *raw) send(ctx context.Context, key string, values []int64, size int) sent {
	none := unsentOffsets(len(values))
	l, err := r.leader(ctx, key)
	if err != nil {
		return sent{history.Fail, none, err}
	}
	b := batch.NewBuilder(batch.Options{})
	for _, v := range values {
		if err := b.Append(time.Now().UnixMilli(), nil, record(v, size), nil); err != nil {
			return sent{history.Fail, none, err}
		}
	}
	topic, partition := splitKey(key)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = partition, b.Bytes()
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := r.cl.Broker(int(l.broker)).Request(ctx, req)
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			return sent{history.Fail, none, err}
		}
		return sent{history.Info, none, err}
	}
	answer := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		if slices.ContainsFunc(refusals, func(e *kerr.Error) bool { return errors.Is(err, e) }) {
			return sent{history.Fail, none, err}
		}
		return sent{history.Info, none, err}
	}
	for i := range none {
		none[i] = answer.BaseOffset + int64(i)
	}
	return sent{history.OK, none, nil}
}

func (r *raw) assign(context.Context, map[string]int64) error    { return nil }
func (r *raw) subscribe(context.Context, []string, string) error { return nil }
func (r *raw) poll(context.Context) ([]history.Step, error)      { return nil, nil }
func (r *raw) commit(context.Context, bool) (committed, error)   { return committed{}, nil }
func (r *raw) crash()                                            { r.cl.Close() }

// Special timestamps of ListOffsets.
const (
	askLatest   = -1
	askEarliest = -2
	askTiered   = -5
)

// ends asks the newest leader for its offsets, under its epoch: a deposed one
// must refuse.
func (r *raw) ends(ctx context.Context, key string) (history.Ends, int32, error) {
	l, err := r.leader(ctx, key)
	if err != nil {
		return history.Ends{}, 0, err
	}
	var e history.Ends
	for _, ask := range []struct {
		timestamp int64
		to        *int64
	}{{askEarliest, &e.Start}, {askTiered, &e.Tiered}, {askLatest, &e.End}} {
		topic, partition := splitKey(key)
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID = -1
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = partition, ask.timestamp, l.epoch
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		resp, err := r.cl.Broker(int(l.broker)).Request(ctx, req)
		if err != nil {
			return e, l.broker, err
		}
		p := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			return e, l.broker, err
		}
		*ask.to = p.Offset
	}
	return e, l.broker, nil
}

// batches fetches what one broker holds of a key from an offset on, as a
// consumer, byte for byte. next is where it goes on.
func (r *raw) batches(ctx context.Context, broker int, key string, from int64) (found []history.Batch, next int64, err error) {
	topic, partition := splitKey(key)
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.ReplicaID, req.SessionEpoch = 500, 1, 1<<20, -1, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.CurrentLeaderEpoch, rp.LastFetchedEpoch, rp.PartitionMaxBytes = partition, from, -1, -1, 512<<10
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := r.cl.Broker(broker).Request(ctx, req)
	if err != nil {
		return nil, from, err
	}
	answer := resp.(*kmsg.FetchResponse)
	if len(answer.Topics) == 0 || len(answer.Topics[0].Partitions) == 0 {
		return nil, from, fmt.Errorf("broker %d gives nothing for %s: %w", broker, key, kerr.ErrorForCode(answer.ErrorCode))
	}
	p := answer.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		return nil, from, err
	}
	rest := p.RecordBatches
	for next = from; len(rest) > 0; {
		var b batch.Batch
		if b, rest, err = batch.Next(rest); err != nil {
			if errors.Is(err, batch.ErrShort) {
				break // the limit may cut the last one
			}
			return found, next, err
		}
		if err := b.VerifyCRC(); err != nil {
			return found, next, fmt.Errorf("broker %d serves %s at %d: %w", broker, key, b.BaseOffset(), err)
		}
		hash := fnv.New64a()
		hash.Write(b)
		found = append(found, history.Batch{Base: b.BaseOffset(), Last: b.LastOffset(), Epoch: b.LeaderEpoch(), Hash: hash.Sum64()})
		next = b.LastOffset() + 1
	}
	return found, next, nil
}
