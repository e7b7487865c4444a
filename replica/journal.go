package replica

import (
	"context"
	"errors"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
)

// Journal is one topic of this broker as a coordinator writes and reads it: its state machines' log. It fits the Log that
// package coordinator declares.
type Journal struct {
	m     *Manager
	topic string
}

// Journal makes a journal of a topic, which need not exist yet.
func (m *Manager) Journal(topic string) *Journal { return &Journal{m, topic} }

// journalReadBytes is how much of the log is read at once.
const journalReadBytes = 1 << 20

// Epoch is the leader epoch under which this broker leads the partition and serves it; false when it does not.
func (j *Journal) Epoch(partition int32) (epoch int32, leading bool) {
	p, err := j.m.Partition(j.topic, partition)
	if err != nil {
		return NoEpoch, false
	}
	epoch, err = p.Epoch()
	return epoch, err == nil
}

// Leased says whether no other broker can lead what this one does. False means that nobody knows.
func (j *Journal) Leased() bool { return j.m.leased() }

// Append appends one record batch under the leader epoch given and returns when it is committed. After an error, unless it
// is ErrNotLeader, the batch may be in the log or not. The batch is written to and not kept.
func (j *Journal) Append(ctx context.Context, partition, epoch int32, records batch.Batch) error {
	p, err := j.m.Partition(j.topic, partition)
	if err != nil {
		return err
	}
	a, err := p.appendUnder(epoch, records, AppendRequest{Acks: -1, Version: journalProduceVersion, Origin: FromCoordinator, Now: now()})
	if err != nil {
		return err
	}
	return p.awaitCommitted(ctx, a.LeaderEpoch, a.LastOffset)
}

// Cut removes the records of a partition below offset. The topic's cleanup.policy must include delete.
func (j *Journal) Cut(ctx context.Context, partition int32, offset int64) error {
	p, err := j.m.Partition(j.topic, partition)
	if err != nil {
		return err
	}
	_, err = p.DeleteRecords(ctx, offset)
	return err
}

// awaitCommitted waits until offset is committed under the leader epoch.
func (p *Partition) awaitCommitted(ctx context.Context, epoch int32, offset int64) error {
	done := make(chan error, 1)
	cancel := p.OnCommitted(epoch, offset, func(err error) { done <- err })
	defer cancel()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// journalProduceVersion is a Produce version under which every codec may be used.
const journalProduceVersion = 13

// appendUnder is Append for a caller whose records are right only in one leader epoch.
func (p *Partition) appendUnder(epoch int32, records []byte, r AppendRequest) (Appended, error) {
	p.leading.RLock()
	if role := p.role.Load(); role.err == nil && role.epoch != epoch {
		p.leading.RUnlock()
		return Appended{}, ErrNotLeader
	}
	a, size, err := p.appendLeading(records, r)
	p.leading.RUnlock()
	if err != nil {
		return a, p.fromLog(err)
	}
	p.appended(a.LastOffset+1, int64(size))
	return a, nil
}

// Read calls fn for each batch from the log's start to its end at the time of the call, and returns when all of it is
// committed. Before, what was read may be gone with the next leader: state that was built from it must not be shown or acted
// on. The bytes are valid during the call only. An error of fn ends the reading.
func (j *Journal) Read(ctx context.Context, partition int32, fn func(batch.Batch) error) error {
	p, err := j.m.Partition(j.topic, partition)
	if err != nil {
		return err
	}
	epoch, err := p.Epoch()
	if err != nil {
		return err
	}
	o := p.log.Offsets()
	if err := p.readBatches(ctx, o, fn); err != nil || o.End == 0 {
		return err
	}
	err = p.awaitCommitted(ctx, epoch, o.End-1)
	if errors.Is(err, ErrISRTooSmallAfterAppend) && p.log.HighWatermark() >= o.End {
		return nil // committed while the in-sync set was large enough
	}
	return err
}

func (p *Partition) readBatches(ctx context.Context, o hot.Offsets, fn func(batch.Batch) error) error {
	for at := max(o.LogStart, o.LocalStart); at < o.End; {
		if err := ctx.Err(); err != nil {
			return err
		}
		slice, err := p.log.Read(at, journalReadBytes, o.End, true)
		if errors.Is(err, hot.ErrOffsetOutOfRange) && p.log.Offsets().LocalStart > at {
			at = p.log.Offsets().LocalStart // retention was quicker: what it removed no longer counts
			continue
		}
		if err != nil {
			return p.fromLog(err)
		}
		next := slice.NextOffset()
		err = slice.Batches(fn)
		slice.Release()
		if err != nil {
			return err
		}
		if next <= at {
			return nil // compaction has left nothing more
		}
		at = next
	}
	return nil
}
