package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica/peer"
	"github.com/varvelog/varve/tier"
)

// Records that are damaged here are asked for where else they may be: in the bucket, and on every other replica. Each gives them,
// says for sure that it has not got them, or leaves it open: it is down, starting, cut off, or cannot read its own disk. Only when nobody
// leaves it open is anything concluded from it.

// errAbsent is returned when a source is sure that it has not got the records.
var errAbsent = fmt.Errorf("%w: it has not got them", errNoSource)

// source is where sound records may be had.
type source struct {
	name string
	// fetch gives the records of a damaged range. When they are not to be taken it only asks whether they are there, and gives none.
	fetch func(ctx context.Context, d hot.Damage, take bool) ([]byte, error)
	last  bool // nobody else can be in its place: what it has and does not fit here is as good as absent
}

// mendRange fetches the records of one damaged range and puts them in its place. Only what is committed here is taken: those
// records are the same everywhere. What lies above the watermark is the leader's to send again, after a truncation, or
// passes the watermark. waits names who may have the records all the same; brokers that are found down are noted.
func (p *Partition) mendRange(ctx context.Context, d hot.Damage, down map[int32]bool) (waits []string, failed error) {
	take := false
	switch {
	case d.Whole:
		if err := p.log.LookAgain(d); err != nil {
			return []string{ownDisk}, fmt.Errorf("look through the segment of offsets %d to %d: %w", d.Start, d.End, err)
		}
		return nil, nil
	case d.End > p.log.HighWatermark():
		failed = fmt.Errorf("offsets %d to %d are not committed here: %w", d.Start, d.End, errNoSource)
	case d.Bytes > p.m.mendMax:
		failed = fmt.Errorf("%d bytes: %w", d.Bytes, errNotInPlace)
	default:
		release, err := p.m.mendRoom(ctx, d.Bytes)
		if err != nil {
			return []string{ownDisk}, err
		}
		defer release()
		take, failed = true, errNoSource
	}
	ctx, cancel := context.WithTimeout(ctx, mendLimit)
	defer cancel()
	unfit := false
	for _, from := range p.sources(down) {
		records, err := from.fetch(ctx, d, take)
		if err == nil && take {
			if err = p.log.Repair(d, records); err == nil {
				p.logger().Info("damage was mended", "start", d.Start, "end", d.End, "from", from.name, "cause", d.Err)
				return nil, nil
			}
			unfit = unfit || errors.Is(err, hot.ErrNotContiguous)
		}
		if !errors.Is(err, errAbsent) && !(from.last && p.unfitFor(d, err)) {
			waits = append(waits, from.name)
		}
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("from %s: %w", from.name, err))
		}
	}
	if unfit {
		failed = errors.Join(failed, errNotInPlace)
	}
	return waits, failed
}

// unfitFor says that records that are there cannot be put in the place of what is damaged.
func (p *Partition) unfitFor(d hot.Damage, err error) bool {
	return errors.Is(err, hot.ErrNotContiguous) || err == nil && d.Bytes > p.m.mendMax
}

// sources are the bucket, the leader, then whoever else is a replica, in-sync ones first.
func (p *Partition) sources(down map[int32]bool) []source {
	img := p.m.deps.Meta.Image()
	var lists [][]int32
	if _, state := img.PartitionByID(p.id.ID, p.id.Index); state != nil {
		lists = append(lists, []int32{state.Leader}, state.ISR, state.Replicas)
	}
	lists = append(lists, p.role.Load().replicas) // of the newest leadership: the image may be about to change
	seen := []int32{p.m.config.NodeID, NoReplica}
	var brokers []source
	for _, id := range slices.Concat(lists...) {
		if id < 0 || slices.Contains(seen, id) {
			continue
		}
		seen = append(seen, id)
		b, ok := img.Brokers[id]
		brokers = append(brokers, source{name: fmt.Sprintf("broker %d", id), fetch: func(ctx context.Context, d hot.Damage, take bool) ([]byte, error) {
			if !ok || b.Fenced || down[id] || p.m.deps.Peers == nil {
				return nil, fmt.Errorf("%w: it is down", errNoSource)
			}
			return p.fromBroker(ctx, b, d, take, down)
		}})
	}
	if !p.tiered() {
		return brokers
	}
	return append([]source{{name: theBucket, fetch: p.fromBucket, last: len(brokers) == 0}}, brokers...)
}

func (p *Partition) fromBucket(ctx context.Context, d hot.Damage, take bool) ([]byte, error) {
	if !p.inBucket(d.Start) || !p.inBucket(d.End-1) {
		s, err := p.remote.Refresh(ctx)
		if err != nil {
			return nil, err
		}
		if s.Retired || s.Dropped || d.Start < s.Start || d.End > s.End {
			return nil, errAbsent
		}
	}
	if !take {
		return nil, nil
	}
	b, err := gather(d, func(at int64) ([]byte, error) {
		chunk, err := p.remote.Read(ctx, at, mendFetchMax, d.End)
		if err != nil {
			return nil, err
		}
		defer chunk.Release()
		return bytes.Clone(chunk.Bytes()), nil
	})
	if errors.Is(err, tier.ErrMissing) || errors.Is(err, tier.ErrCorrupt) {
		err = fmt.Errorf("%w: %w", errAbsent, err)
	}
	return b, err
}

// fromBroker reads as a consumer does: whoever is asked shows what is committed there, and checks it.
func (p *Partition) fromBroker(ctx context.Context, b meta.Broker, d hot.Damage, take bool, down map[int32]bool) ([]byte, error) {
	conn, err := p.m.deps.Peers.Dial(ctx, b)
	if err != nil {
		down[b.ID] = true
		return nil, err
	}
	defer conn.Close()
	ask := func(at int64) ([]byte, error) {
		got, err := p.ask(ctx, conn, at, d.End, take)
		switch {
		case err != nil:
			return nil, err
		case len(got.RecordBatches) > 0 && take:
			return got.RecordBatches, nil
		}
		if _, absent := peer.Int64(&got.UnknownTags, peer.TagAbsent); absent {
			return nil, errAbsent
		}
		if got.ErrorCode != 0 {
			return nil, fmt.Errorf("%w: code %d", errNoSource, got.ErrorCode)
		}
		return nil, nil
	}
	if !take {
		return ask(d.Start)
	}
	return gather(d, ask)
}

// ask fetches from an offset, and says up to where records are missing here.
func (p *Partition) ask(ctx context.Context, conn Peer, at, end int64, take bool) (*kmsg.FetchResponseTopicPartition, error) {
	r := kmsg.NewFetchRequest()
	r.Version, r.SessionEpoch, r.MaxBytes = fetchVersion, -1, mendFetchMax
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = p.id.Index, at, mendFetchMax
	if !take {
		r.MaxBytes, part.PartitionMaxBytes = 1, 1
	}
	peer.SetInt64(&part.UnknownTags, peer.TagMissing, end)
	topic := kmsg.NewFetchRequestTopic()
	topic.TopicID, topic.Partitions = p.id.ID, []kmsg.FetchRequestTopicPartition{part}
	r.Topics = []kmsg.FetchRequestTopic{topic}
	resp, err := conn.Fetch(ctx, &r)
	if err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("%w: the answer, code %d, is not of one partition", errNoSource, resp.ErrorCode)
	}
	return &resp.Topics[0].Partitions[0], nil
}

// gather collects the batches of a damaged range, checked, from reads that give whole batches from an offset on and perhaps more
// than that. There is no more of them than what they are for.
func gather(d hot.Damage, read func(at int64) ([]byte, error)) ([]byte, error) {
	all := make([]byte, 0, d.Bytes)
	for at := d.Start; at < d.End; {
		b, err := read(at)
		if err != nil {
			return nil, err
		}
		before := at
		for len(b) > 0 && at < d.End {
			one, rest, err := batch.Next(b)
			if errors.Is(err, batch.ErrShort) {
				break
			}
			if err == nil {
				err = one.VerifyCRC()
			}
			if err != nil {
				return nil, err
			}
			if one.BaseOffset() >= d.End { // compaction has taken the rest
				return all, nil
			}
			if one.BaseOffset() < at || one.NextOffset() > d.End || int64(len(all)+len(one)) > d.Bytes {
				return nil, fmt.Errorf("batch of offsets %d to %d for the damage from %d to %d: %w", one.BaseOffset(), one.LastOffset(), d.Start, d.End, hot.ErrNotContiguous)
			}
			all = append(all, one...)
			at, b = one.NextOffset(), rest
		}
		if at == before {
			return nil, fmt.Errorf("%w: nothing at offset %d", errNoSource, at)
		}
	}
	return all, nil
}

// complete has derived again what was derived without records that are whole by now, or gone. What retention has taken here may be
// in the bucket still: then the producers are taken from there. What this broker's disk does not give now it may give later.
func (p *Partition) complete(ctx context.Context) (waits []string, err error) {
	switch err = p.log.Complete(); {
	case err == nil:
		return nil, nil
	case !errors.Is(err, hot.ErrBelowLocal):
		return []string{ownDisk}, err
	}
	start := p.log.Offsets().LocalStart
	if !p.tiered() {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, mendLimit)
	defer cancel()
	producers, at, err := p.remote.ProducerSnapshot(ctx, start-1)
	switch {
	case errors.Is(err, tier.ErrMissing), errors.Is(err, tier.ErrCorrupt), errors.Is(err, tier.ErrBelowStart):
		return nil, err
	case err != nil:
		return []string{theBucket}, err
	}
	aborted, err := p.remote.AbortedTxns(ctx, start, at)
	if err != nil {
		return []string{theBucket}, err
	}
	if err = p.log.CompleteFrom(at, producers, aborted); err != nil {
		return []string{ownDisk}, err
	}
	return nil, nil
}
