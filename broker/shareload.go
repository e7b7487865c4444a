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
		done := make([]share.Done, len(got[0].Batches))
		for i, b := range got[0].Batches {
			done[i] = share.Done{First: b.First, Last: b.Last, State: share.State(b.State), Deliveries: b.DeliveryCount}
		}
		core = share.Restore(got[0].Start, done, s.limits)
	}
	core.LogStart(first.Offset)
	return core, leaderEpoch, got[0].StateEpoch, nil
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
