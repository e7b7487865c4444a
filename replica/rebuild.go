package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/hot/lineage"
)

// rebuildLimit bounds one attempt to learn from the bucket where a replica starts.
const rebuildLimit = 60 * time.Second

var (
	// errNothingRemote is returned when the bucket has nothing that this log lacks.
	errNothingRemote = errors.New("replica: the bucket has nothing beyond the local log")
	errNoStore       = errors.New("replica: the leader speaks of a bucket, and this broker has none: set varve.tier.store")
)

// rebuild lets the log go on at the end of the bucket's committed part: lineage and producers come from there, the records
// below stay there (KIP-1023 in effect). cut says that the local log is to go even if it reaches further: the leader's
// lineage has left it.
func (d *followed) rebuild(ctx context.Context, cut bool) error {
	p := d.p
	if p.remote == nil {
		return errNoStore
	}
	ctx, cancel := context.WithTimeout(ctx, rebuildLimit)
	defer cancel()
	s, err := p.bucketEnd(ctx)
	if err != nil {
		return err
	}
	end := p.log.Offsets().End
	switch {
	case s.exists() && (cut || s.end > end):
		err = d.underLeader(func() error { return p.startAfter(s) })
	case !s.exists() && s.start > end:
		err = d.underLeader(func() error { return p.startAt(s.start) })
	default:
		return errNothingRemote
	}
	if err != nil {
		return err
	}
	p.watchers.wakeAll(nil)
	return nil
}

// bucketTail is the end of the bucket's committed part, with what a log needs to go on there. Of a part of which nothing is left
// only the start is known, at which it was cut off.
type bucketTail struct {
	start, end int64
	chain      lineage.Chain
	producers  []byte
}

func (s *bucketTail) exists() bool { return s.end > 0 }

// bucketEnd reads the partition's manifest afresh, and from the newest object the producers.
func (p *Partition) bucketEnd(ctx context.Context) (bucketTail, error) {
	state, err := p.remote.Refresh(ctx)
	if err != nil {
		return bucketTail{}, fmt.Errorf("read the manifest: %w", err)
	}
	switch {
	case state.Retired || state.Dropped:
		return bucketTail{}, nil
	case state.End <= 0 || state.Segments == 0:
		return bucketTail{start: state.Start}, nil
	}
	s := bucketTail{start: state.Start, end: state.End}
	if s.chain, err = p.remote.Lineage(ctx); err != nil {
		return bucketTail{}, fmt.Errorf("read the lineage: %w", err)
	}
	var end int64
	if s.producers, end, err = p.remote.ProducerSnapshot(ctx, state.End-1); err != nil {
		return bucketTail{}, fmt.Errorf("read the producers: %w", err)
	}
	if end != state.End {
		return bucketTail{}, fmt.Errorf("producers are those of offset %d, the bucket ends at %d", end, state.End)
	}
	return s, nil
}

// startAt makes the log begin where the committed log start is, below which everything has been deleted, in the bucket too. A
// leader that did not hear of it still speaks of records there.
func (p *Partition) startAt(start int64) error {
	before := p.log.Offsets()
	if err := p.log.ResetTo(start, nil, nil); err != nil {
		return fmt.Errorf("start at the committed log start %d: %w", start, err)
	}
	p.logger().Info("log goes on at the committed log start", "offset", start, "start_before", before.LocalStart, "end_before", before.End)
	return p.raiseLogStart(start)
}

// startAfter makes the log begin where the bucket ends.
func (p *Partition) startAfter(s bucketTail) error {
	before := p.log.Offsets()
	if err := p.log.ResetTo(s.end, s.chain, s.producers); err != nil {
		return fmt.Errorf("start at the bucket's end %d: %w", s.end, err)
	}
	p.log.SetRemoteEnd(s.end)
	p.logger().Info("log goes on where the bucket ends", "offset", s.end, "start_before", before.LocalStart, "end_before", before.End)
	if s.start > p.log.Offsets().LogStart {
		return p.raiseLogStart(s.start)
	}
	return nil
}
