package replica

import (
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/replica/isr"
)

// lead makes this broker the partition's leader in the epoch given, or takes a newer image of the same epoch. The epoch and
// where it starts are durable in the log before the first append is accepted under it.
func (p *Partition) lead(l isr.Leadership) error {
	p.leading.Lock()
	defer p.leading.Unlock()
	p.unfit.Store(nil)
	p.leadership.Store(&l)
	err := p.leadLocked(l)
	if errors.Is(p.role.Load().err, ErrOffline) {
		p.declineOffline(&l) // it was offline before it was elected, or since a moment ago
	}
	return err
}

// declineOffline asks for another leader, if somebody in sync can lead.
func (p *Partition) declineOffline(l *isr.Leadership) {
	if len(l.ISR) > 1 && l.Leader == p.m.config.NodeID {
		p.unfit.Store(l)
		p.m.proposals.add(p)
	}
}

func (p *Partition) leadLocked(l isr.Leadership) error {
	old := p.role.Load()
	if old.final() {
		return old.err
	}
	if old.err == nil && old.epoch == l.Epoch {
		p.mu.Lock()
		if r := p.role.Load(); r.err == nil {
			p.role.Store(&role{epoch: r.epoch, start: r.start, replicas: l.Replicas})
		}
		before := p.isr.InSync()
		p.settle(p.isr.Update(l))
		if !slices.Equal(before, l.ISR) {
			p.m.isrChanges.note(before, l.ISR)
			p.logger().Info("in-sync set changed", "from", before, "to", l.ISR, "partition_epoch", l.PartitionEpoch)
		}
		if len(l.Replicas) > 1 || l.Recovering {
			p.m.proposals.add(p)
		}
		return nil
	}
	if l.Epoch < old.epoch {
		return fmt.Errorf("replica: leader epoch %d of %v is behind %d", l.Epoch, p.id, old.epoch)
	}
	p.leave()
	if p.lacksEnd(l) || p.cannotJudge(l) {
		p.withdraw(role{err: ErrNotLeader, epoch: l.Epoch, leader: NoReplica})
		p.unfit.Store(&l)
		p.m.proposals.add(p)
		return nil
	}
	if err := p.forgetLost(); err != nil {
		return err
	}
	if err := p.log.AssignEpoch(l.Epoch); err != nil {
		return fmt.Errorf("assign leader epoch %d: %w", l.Epoch, err)
	}
	start, ok := p.log.Lineage().StartOf(l.Epoch)
	if !ok {
		start = p.log.Offsets().End
	}
	p.mu.Lock()
	if r := p.role.Load(); r.final() {
		p.mu.Unlock()
		return r.err
	}
	due := p.commits.takeAll(nil)
	p.isr = isr.Lead(p.m.config.NodeID, l, start, p.log.HighWatermark(), p.m.steady())
	p.counted.Store(isr.NoProgress)
	p.role.Store(&role{epoch: l.Epoch, start: start, replicas: l.Replicas})
	p.mu.Unlock()
	for _, fn := range due {
		fn(ErrNotLeader)
	}
	p.progress()
	if len(l.Replicas) > 1 || l.Recovering {
		p.m.proposals.add(p)
	}
	p.watchers.wakeAll(nil) // whoever waits here knows an older epoch
	p.offloadAs(l.Epoch)
	return nil
}

// lacksEnd says that this log once had more than it has, committed as it was: another replica must lead, or, if there is none,
// this one as elected uncleanly, so that the loss is on record. Then it is given up.
func (p *Partition) lacksEnd(l isr.Leadership) bool {
	had, epoch, lost := p.log.Lost()
	if !lost {
		return false
	}
	end := p.log.Offsets().End
	if l.Unclean <= epoch {
		p.logger().Error("leadership is declined: records that were committed here are missing; the controller is asked for another leader",
			"leader_epoch", l.Epoch, "end", end, "had", had)
		return true
	}
	p.logger().Error("records that were committed here are lost", "leader_epoch", l.Epoch, "from", end, "to", had)
	return false
}

// forgetLost gives up what lacksEnd has found to be lost. A log that has begun anew goes on at what it had: offsets that were
// handed out once name no other records. One in a bucket goes on where the bucket ends.
func (p *Partition) forgetLost() error {
	had, _, lost := p.log.Lost()
	if !lost {
		return nil
	}
	if o := p.log.Offsets(); o.End == o.LocalStart && o.End < had && !p.tiered() {
		if err := p.log.ResetTo(had, p.log.Lineage(), nil); err != nil {
			return fmt.Errorf("go on at offset %d: %w", had, err)
		}
	}
	p.log.ForgetLost()
	return nil
}

// final says that this broker will not lead the partition any more in this process: offline, deleted or closed.
func (r *role) final() bool { return r.err != nil && !errors.Is(r.err, ErrNotLeader) }

// follow makes this broker a follower in the epoch given, or takes a newer image of the same epoch. It may answer clients that
// ask for any replica, and truncates and fetches as the leader's log says.
func (p *Partition) follow(l isr.Leadership) {
	p.leading.Lock()
	defer p.leading.Unlock()
	old := p.role.Load()
	if l.Epoch < old.epoch {
		return
	}
	if old.final() {
		p.unfit.Store(nil) // somebody else is to lead by now
		return
	}
	if _, epoch, lost := p.log.Lost(); lost && (l.Unclean > epoch || l.Leader >= 0 && slices.Contains(l.ISR, p.m.config.NodeID)) {
		p.log.ForgetLost() // a start is in no in-sync set before the leader has let it in
	}
	if inSync := slices.Contains(l.ISR, p.m.config.NodeID); p.listedInSync.Swap(inSync) != inSync {
		p.throttleChanged()
	}
	d := p.following.Load()
	if d != nil && d.core.Epoch == l.Epoch && d.core.UncleanEpoch >= l.Unclean && old.leader == l.Leader {
		return
	}
	if old.epoch != l.Epoch || old.leader != l.Leader || !errors.Is(old.err, ErrNotLeader) {
		p.endOffload(p.withdraw(role{err: ErrNotLeader, epoch: l.Epoch, leader: l.Leader}))
	}
	p.leave()
	p.unfit.Store(nil)
	p.leadership.Store(&l)
	if l.Leader < 0 || p.m.deps.Peers == nil {
		return
	}
	unclean := l.Unclean
	if d != nil {
		unclean = max(unclean, d.core.UncleanEpoch)
	}
	next := &followed{p: p, core: isr.Follower{Epoch: l.Epoch, UncleanEpoch: unclean}, fetcher: p.m.fetcher(l.Leader), told: NoOffset, refused: NoOffset}
	p.following.Store(next)
	next.fetcher.post(fetcherNews{d: next, kind: newsFollow})
}

// leave ends the following of whoever is followed. It runs under leading, so nothing is appended for it any more.
func (p *Partition) leave() {
	if d := p.following.Swap(nil); d != nil {
		d.fetcher.post(fetcherNews{d: d, kind: newsLeave})
		d.fetcher.moved()
	}
}

// resign ends the partition's life here, with the error that callers get from now on. Acknowledgements still waiting get it
// too: their records may or may not survive.
func (p *Partition) resign(why error) {
	p.leading.Lock()
	defer p.leading.Unlock()
	p.leave()
	p.endOffload(p.withdraw(role{err: why, epoch: NoEpoch, leader: NoReplica}))
}

func (p *Partition) endOffload(withdrawn bool) {
	if withdrawn && p.offload.Swap(nil) != nil {
		p.m.deps.Tier.Resign(p.id)
	}
}

// goOffline is the end of the partition's service in this process, after its log's first disk error. It may be called from
// anywhere, by the tier manager's own workers too, so it does not wait for them or for appends in flight: those fail by
// themselves, or end as acknowledgements nobody waits for.
func (p *Partition) goOffline(cause error) {
	if !p.withdraw(role{err: fmt.Errorf("%w: %w", ErrOffline, cause), epoch: NoEpoch, leader: NoReplica}) {
		return
	}
	p.logger().Error("partition is offline", "err", cause)
	if l := p.leadership.Load(); l != nil {
		p.declineOffline(l)
	}
	if d := p.following.Load(); d != nil {
		d.fetcher.post(fetcherNews{d: d, kind: newsLeave})
		d.fetcher.moved()
	}
	if p.offload.Swap(nil) != nil {
		p.m.wg.Go(func() { p.m.deps.Tier.Resign(p.id) })
	}
}

// withdraw stops leading: new requests get the error of the role, and so do those who wait. The first final reason stays;
// false then.
func (p *Partition) withdraw(r role) bool {
	p.mu.Lock()
	old := p.role.Load()
	if old.final() {
		p.mu.Unlock()
		return false
	}
	r.epoch, r.start = max(r.epoch, old.epoch), old.start
	p.role.Store(&r)
	due := p.commits.takeAll(nil)
	p.mu.Unlock()
	for _, fn := range due {
		fn(r.err)
	}
	p.watchers.wakeAll(nil)
	return true
}
