package broker

import (
	"context"
	"fmt"
	"time"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/replica"
)

// shareStateWait bounds one question to the share coordinator, elections included.
const shareStateWait = 15 * time.Second

// load takes the share-partition over from whoever led before.
func (p *sharePart) load() {
	began := time.Now()
	ctx, cancel := context.WithTimeout(p.srv.ctx, shareStateWait)
	defer cancel()
	core, epoch, state, err := p.loaded(ctx)
	defer p.srv.shares.release(p) // its session may have ended meanwhile
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.dropLocked(err)
		return
	}
	p.core, p.leaderEpoch, p.stateEpoch = core, epoch, state
	p.srv.shares.stats.loads.Add(1)
	p.srv.shares.stats.loadNanos.Add(time.Since(began).Nanoseconds())
	if p.readyLocked() != nil {
		return
	}
	p.buryLocked()
	p.afterLocked()
	p.wakeLocked()
}

func (p *sharePart) loaded(ctx context.Context) (core *share.Partition, leaderEpoch, stateEpoch int32, err error) {
	if leaderEpoch, err = p.part.Epoch(); err != nil {
		return nil, 0, 0, err
	}
	got := p.srv.deps.ShareState.Read(ctx, []coordinator.ShareRead{{ShareKey: p.key, LeaderEpoch: leaderEpoch}})
	if len(got) != 1 {
		return nil, 0, 0, fmt.Errorf("%w: the share coordinator gave no answer", coordinator.ErrNotAvailable)
	}
	if got[0].Err != nil {
		return nil, 0, 0, got[0].Err
	}
	first, err := p.part.ListOffset(ctx, replica.TimeEarliest, replica.ReadUncommitted, replica.NoReplica, replica.NoEpoch)
	if err != nil {
		return nil, 0, 0, err
	}
	s := p.srv.shareSettings(p.key.Group)
	if got[0].Start == replica.NoOffset {
		start, err := p.beginning(ctx, s)
		if err != nil {
			return nil, 0, 0, err
		}
		core = share.New(start, s.limits)
		core.Fresh() // where it begins is written: else the next leader might begin elsewhere
	} else {
		if err := p.shortened(ctx, &got[0], leaderEpoch); err != nil {
			return nil, 0, 0, err
		}
		done := make([]share.Done, len(got[0].Batches))
		for i, b := range got[0].Batches {
			done[i] = share.Done{First: b.First, Last: b.Last, State: share.State(b.State), Deliveries: b.DeliveryCount}
		}
		core = share.Restore(got[0].Start, done, s.limits)
	}
	core.LogStart(first.Offset)
	return core, leaderEpoch, got[0].StateEpoch, nil
}

// shortened takes the state of a share-partition back to the log's end, if it says something of offsets beyond that: a leader that
// was elected uncleanly has lost records, and those that get their offsets are not done because the lost ones were. (In Kafka they
// are, and never delivered.) In one leader epoch a log does not get shorter, so this is asked when the state is loaded. What is
// stored begins anew under the same state epoch, because a write moves the start forward only. What is known of records between
// the start and the log's end is kept here alone: if somebody else leads before the start has passed them, they are delivered again.
func (p *sharePart) shortened(ctx context.Context, r *coordinator.ShareReadResult, epoch int32) error {
	_, end, err := p.part.EndOffsetForEpoch(epoch, epoch)
	if err != nil {
		return err
	}
	if end < 0 {
		return replica.ErrOffsetNotAvailable // it is not known now where the log ends: nothing is taken back on a guess
	}
	beyond := r.Start > end
	kept := r.Batches[:0]
	for _, b := range r.Batches {
		beyond = beyond || b.Last >= end
		if b.Last = min(b.Last, end-1); b.First <= b.Last {
			kept = append(kept, b)
		}
	}
	if !beyond {
		return nil
	}
	p.srv.log.Warn("share group is taken back to the log's end: the log is shorter than it was", "group", p.key.Group,
		"topic", p.part.ID().Topic, "partition", p.key.Partition, "from", r.Start, "end", end)
	r.Start, r.Batches = min(r.Start, end), kept
	errs := p.srv.deps.ShareState.Initialize(ctx, []coordinator.ShareInitialize{{ShareKey: p.key, StateEpoch: r.StateEpoch, Start: r.Start}})
	if len(errs) != 1 {
		return fmt.Errorf("%w: the share coordinator gave no answer", coordinator.ErrNotAvailable)
	}
	return errs[0]
}

// beginning is where a group starts on a partition that it has no state for: share.auto.offset.reset.
func (p *sharePart) beginning(ctx context.Context, s *shareSettings) (int64, error) {
	ask := func(ts int64) (int64, error) {
		at, err := p.part.ListOffset(ctx, ts, replica.ReadUncommitted, replica.NoReplica, replica.NoEpoch)
		return at.Offset, err
	}
	switch {
	case s.reset == "earliest":
		return ask(replica.TimeEarliest)
	case s.back > 0:
		at, err := ask(p.srv.nowMillis() - s.back.Milliseconds())
		if err != nil || at != replica.NoOffset {
			return at, err
		}
	}
	return ask(replica.TimeLatest)
}
