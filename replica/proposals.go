package replica

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica/isr"
)

// proposals asks the controller for other in-sync sets, for all partitions this broker leads in one request after the other.
// Until the answer both sets count; what is not known is asked again.
type proposals struct {
	m    *Manager
	wake chan struct{}

	mu  sync.Mutex // guards the following
	due map[*Partition]struct{}
}

const (
	proposeTimeout  = 10 * time.Second
	proposalsMax    = 2000 // of one request
	proposeRetryMin = 20 * time.Millisecond
	proposeRetryMax = time.Second
	proposalsTick   = 500 * time.Millisecond
)

func (x *proposals) init(m *Manager) {
	x.m, x.wake, x.due = m, make(chan struct{}, 1), make(map[*Partition]struct{})
}

// add has a partition looked at. It may be called under any lock.
func (x *proposals) add(p *Partition) {
	x.mu.Lock()
	_, there := x.due[p]
	x.due[p] = struct{}{}
	x.mu.Unlock()
	if there {
		return
	}
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

func (x *proposals) take() []*Partition {
	x.mu.Lock()
	defer x.mu.Unlock()
	var list []*Partition
	for p := range x.due {
		if len(list) == proposalsMax {
			break
		}
		list = append(list, p)
		delete(x.due, p)
	}
	return list
}

// run proposes until the manager closes. Twice within replica.lag.time.max.ms it looks for followers that lag.
func (x *proposals) run() {
	wait := proposeRetryMin
	tick := time.NewTicker(proposalsTick)
	defer tick.Stop()
	looked := x.m.steady()
	for {
		select {
		case <-x.m.running.Done():
			return
		case <-tick.C:
			x.m.catchUp()
			if now := x.m.steady(); now-looked >= x.m.brokerConf().ReplicaLagTimeMaxMillis/2 {
				looked = now
				x.findLaggards()
			}
		case <-x.wake:
		}
		for list := x.take(); len(list) > 0; list = x.take() {
			if x.propose(list) {
				wait = proposeRetryMin
				continue
			}
			select {
			case <-x.m.running.Done():
				return
			case <-time.After(wait):
				wait = min(2*wait, proposeRetryMax)
			}
		}
	}
}

// findLaggards looks through what this broker leads. Partitions with one replica cost next to nothing.
func (x *proposals) findLaggards() {
	for _, p := range x.m.table.all() {
		r := p.role.Load()
		if r.err != nil || len(r.replicas) < 2 {
			continue
		}
		c := x.m.cluster(p.log.Offsets().End)
		p.mu.Lock()
		wants := p.role.Load().err == nil && p.isr.Wants(c)
		p.mu.Unlock()
		if wants {
			x.add(p)
		}
	}
}

// cluster is what the proposals of a partition with that end depend on.
func (m *Manager) cluster(end int64) isr.Cluster {
	brokers := m.deps.Meta.Image().Brokers
	return isr.Cluster{
		Eligible: func(id int32) (int64, bool) {
			b, ok := brokers[id]
			return b.Epoch, ok && b.Active()
		},
		SelfEpoch: m.brokerEpoch(), Now: m.steady(), LagMax: m.brokerConf().ReplicaLagTimeMaxMillis, LeaderEnd: end,
	}
}

// proposed is a request with the partition it is for.
type proposed struct {
	p    *Partition
	wish meta.AlterPartition
}

// propose makes one request of what the partitions want. It returns false when something is to be asked again a little later.
func (x *proposals) propose(list []*Partition) bool {
	var asked []proposed
	var wishes []meta.AlterPartition
	for _, p := range list {
		if w, ok := p.wish(); ok {
			asked = append(asked, proposed{p, w})
			wishes = append(wishes, w)
		}
	}
	if len(asked) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(x.m.running, proposeTimeout)
	defer cancel()
	results, err := x.m.deps.Meta.AlterPartitions(ctx, x.m.config.NodeID, x.m.brokerEpoch(), wishes)
	if err == nil && len(results) != len(asked) {
		err = errors.New("replica: the controller answered for other partitions than were asked for")
	}
	done := true
	for i, a := range asked {
		result := err
		var part meta.Partition
		if err == nil {
			result, part = results[i].Err, results[i].Partition
		}
		if again := a.p.answered(a.wish, part, result); again {
			done = false
			x.add(a.p)
		}
	}
	if err != nil {
		x.m.logger.Debug("in-sync sets not changed yet", "partitions", len(asked), "err", err)
	}
	return done
}

// wish is the partition's request to the controller.
func (p *Partition) wish() (meta.AlterPartition, bool) {
	c := p.m.cluster(p.log.Offsets().End)
	if l := p.unfit.Load(); l != nil {
		return p.decline(*l), true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.role.Load().err != nil {
		return meta.AlterPartition{}, false
	}
	var w isr.Proposal
	ok := false
	if p.damage.stepBack.Swap(false) {
		w, ok = p.isr.Resign(c)
	}
	if !ok {
		w, ok = p.isr.Propose(c)
	}
	if !ok {
		return meta.AlterPartition{}, false
	}
	a := meta.AlterPartition{ID: p.id.ID, Index: p.id.Index, LeaderEpoch: w.LeaderEpoch, PartitionEpoch: w.PartitionEpoch, Recovering: w.Recovering, Lossy: w.Lossy}
	for _, m := range w.ISR {
		a.ISR = append(a.ISR, meta.BrokerState{ID: m.ID, Epoch: m.Epoch})
	}
	return a, true
}

// decline asks for another leader in the place of this broker, which has not become one.
func (p *Partition) decline(l isr.Leadership) meta.AlterPartition {
	self := p.m.config.NodeID
	a := meta.AlterPartition{ID: p.id.ID, Index: p.id.Index, LeaderEpoch: l.Epoch, PartitionEpoch: l.PartitionEpoch, Lossy: []int32{self}}
	for _, id := range l.ISR {
		if id != self {
			a.ISR = append(a.ISR, meta.BrokerState{ID: id, Epoch: NoBrokerEpoch})
		}
	}
	return a
}

// stepped takes what became of a wish for another leader, and says whether to ask again soon.
func (p *Partition) stepped(w meta.AlterPartition, err error) (again bool) {
	switch {
	case errors.Is(err, meta.ErrNewLeaderElected):
		p.logger().Warn("another replica is to lead: the copy here lacks committed records", "leader_epoch", w.LeaderEpoch)
		return false
	case errors.Is(err, meta.ErrInvalidUpdateVersion):
		// The image will say what is, unless it has by now.
		was, is := p.unfit.Load(), p.leadership.Load()
		return was != nil && is != nil && is.Epoch == was.Epoch && is.PartitionEpoch > was.PartitionEpoch && p.unfit.CompareAndSwap(was, is)
	case errors.Is(err, meta.ErrFencedLeaderEpoch), errors.Is(err, meta.ErrUnknownTopic), errors.Is(err, meta.ErrUnknownTopicID):
		return false // the image will say what is
	case errors.Is(err, meta.ErrInvalidRequest), errors.Is(err, meta.ErrEligibleLeadersNotAvailable), errors.Is(err, meta.ErrIneligibleReplica):
		p.logger().Warn("no other replica can lead for now", "leader_epoch", w.LeaderEpoch, "err", err)
		return p.unfit.Load() != nil // who leads serves what is whole meanwhile, and asks again when it cannot be mended
	}
	return p.unfit.Load() != nil
}

// answered takes what became of a wish, and says whether to ask again soon.
func (p *Partition) answered(w meta.AlterPartition, now meta.Partition, err error) (again bool) {
	if slices.Contains(w.Lossy, p.m.config.NodeID) {
		return p.stepped(w, err)
	}
	p.mu.Lock()
	if r := p.role.Load(); r.err != nil || r.epoch != w.LeaderEpoch {
		p.mu.Unlock()
		return false
	}
	switch {
	case err == nil:
		// Both sets count until the image has it: that may bring another min.insync.replicas too, which was in force when the
		// controller decided.
		p.mu.Unlock()
		p.logger().Debug("in-sync set accepted", "set", now.ISR, "partition_epoch", now.PartitionEpoch)
		return now.PartitionEpoch <= w.PartitionEpoch
	case errors.Is(err, meta.ErrIneligibleReplica), errors.Is(err, meta.ErrInvalidRequest):
		p.settle(p.isr.Rejected(w.PartitionEpoch))
		return p.wantsMore()
	case errors.Is(err, meta.ErrInvalidUpdateVersion), errors.Is(err, meta.ErrFencedLeaderEpoch),
		errors.Is(err, meta.ErrUnknownTopic), errors.Is(err, meta.ErrUnknownTopicID):
		p.mu.Unlock() // the controller has moved on, perhaps by this very wish: the image will say what is
		return false
	case errors.Is(err, meta.ErrNotController), errors.Is(err, meta.ErrStaleBrokerEpoch):
		p.mu.Unlock() // it was not looked at
		return true
	}
	p.isr.Unanswered(w.PartitionEpoch)
	p.mu.Unlock()
	return true
}

// wantsMore asks whether something is still to be proposed after a refusal.
func (p *Partition) wantsMore() bool {
	c := p.m.cluster(p.log.Offsets().End)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.role.Load().err == nil && p.isr.Wants(c)
}
