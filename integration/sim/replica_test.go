package sim

import (
	"errors"
	"slices"
	"strconv"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/isr"
	"github.com/varvelog/varve/tier"
)

// replica is a partition in one process: the shell around the real cores.
type replica struct {
	b    *broker
	w    *world
	key  partitionKey
	name topic.Partition
	log  *diskLog

	leads  bool
	leader int32
	epoch  int32
	halted bool
	tiered bool

	retention int64 // retention.bytes
	syncing   bool

	lead     isr.Leader
	start    int64
	replicas []int32
	acks     []*pendingAck
	asking   bool // a proposal is on its way
	askEnds  int64
	granted  int32 // the partition epoch of a wish that was granted; the image has it soon
	offload  *tier.Leadership
	unfit    *isr.Leadership // one that is declined: the log lacks what was committed

	follow    isr.Follower
	fetching  int // the fetch whose answer is waited for, 0 = none
	fetchEnds int64
	fetches   int
	building  bool

	seen int64 // the oracle has compared so far
}

// pendingAck is a producer that waits for acks=all.
type pendingAck struct {
	offset int64
	value  int64
}

// apply takes what the image says of the partition.
func (r *replica) apply(t *meta.Topic, p *meta.Partition) {
	if r.halted {
		return
	}
	r.tiered, r.retention = t.Tiered && r.b.tier != nil, -1
	if n, err := strconv.ParseInt(t.Configs["retention.bytes"], 10, 64); err == nil {
		r.retention = n
	}
	l := isr.Leadership{
		Leader: p.Leader, Epoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Replicas: p.Replicas, ISR: p.ISR, ELR: p.ELR,
		MinISR: minISROf(t), Recovering: p.Recovering, Unclean: uncleanOf(p),
	}
	switch {
	case p.LeaderEpoch < r.epoch:
		return
	case p.Leader != r.b.id:
		r.followAs(l)
	case r.leads && r.epoch == l.Epoch:
		r.replicas = l.Replicas
		r.settle(r.lead.Update(l))
	default:
		r.leadAs(l)
	}
}

func minISROf(t *meta.Topic) int {
	n, err := strconv.Atoi(t.Configs["min.insync.replicas"])
	if err != nil {
		return 1
	}
	return n
}

// leadAs begins a leadership: the epoch and where it starts are durable before
// the first append (18).
func (r *replica) leadAs(l isr.Leadership) {
	r.leave()
	if r.unfit = nil; r.log.lost() {
		if l.Unclean <= r.log.hadEpoch {
			r.w.tell("%s declines to lead %s in epoch %d: %s, had %d", r.b.name, r.short(), l.Epoch, r.log, r.log.had)
			r.leader, r.epoch, r.unfit = meta.NoLeader, l.Epoch, &l
			r.decline()
			return
		}
		r.log.had = 0
	}
	if l.Recovering {
		r.log.durable = r.log.end() // the shell waits for that
	}
	r.log.chain = r.log.chain.Assign(l.Epoch, r.log.end())
	start, ok := r.log.chain.StartOf(l.Epoch)
	if !ok {
		start = r.log.end()
	}
	r.leads, r.leader, r.epoch, r.start, r.replicas, r.granted = true, r.b.id, l.Epoch, start, l.Replicas, -1
	r.lead = isr.Lead(r.b.id, l, start, r.log.hw, r.w.now)
	r.w.tell("%s leads %s in epoch %d from %d, in sync %v: %s", r.b.name, r.short(), l.Epoch, start, l.ISR, r.log)
	r.w.oracle.leads(r)
	r.progress()
	if r.tiered {
		r.offload = r.b.tier.lead(r)
	}
}

// decline asks for another leader.
func (r *replica) decline() {
	if r.asking && r.w.now < r.askEnds {
		return
	}
	r.asking, r.askEnds = true, r.w.now+300+r.w.rng.Int64N(600)
	l, id, epoch := r.unfit, r.b.id, r.b.epoch
	wish := meta.AlterPartition{ID: r.key.id, Index: r.key.index, LeaderEpoch: l.Epoch, PartitionEpoch: l.PartitionEpoch, Lossy: []int32{id}}
	for _, o := range l.ISR {
		if o != id {
			wish.ISR = append(wish.ISR, meta.BrokerState{ID: o, Epoch: -1})
		}
	}
	r.b.ask("decline "+r.short(), func(_ *broker, img *meta.Image) (any, []meta.Change, error) {
		_, changes, err := r.w.decisions.AlterPartitions(img, id, epoch, []meta.AlterPartition{wish})
		return nil, changes, err
	}, func(any, error) {})
}

// followAs begins to follow, or goes on.
func (r *replica) followAs(l isr.Leadership) {
	if l.Unclean > r.log.hadEpoch || l.Leader >= 0 && contains(l.ISR, r.b.id) {
		r.log.had = 0 // given up, or the leader has let it in
	}
	if !r.leads && r.epoch == l.Epoch && r.leader == l.Leader && r.follow.UncleanEpoch == l.Unclean {
		return
	}
	if r.leads || r.epoch != l.Epoch || r.leader != l.Leader {
		r.leave()
		r.w.tell("%s follows %d on %s in epoch %d: %s", r.b.name, l.Leader, r.short(), l.Epoch, r.log)
	}
	r.unfit = nil
	r.leader, r.epoch, r.fetching = l.Leader, l.Epoch, 0
	r.follow = isr.Follower{Epoch: l.Epoch, UncleanEpoch: l.Unclean}
	r.fetch()
}

// leave ends what the replica was. Acknowledgements still waiting have an
// unknown fate.
func (r *replica) leave() {
	if r.offload != nil {
		r.b.tier.resign(r)
		r.offload = nil
	}
	r.leads, r.acks, r.asking, r.fetching = false, nil, false, 0
}

func (r *replica) short() string { return r.name.Topic + "-" + strconv.Itoa(int(r.name.Index)) }

// tick is the replica's share of the process's clock.
func (r *replica) tick() {
	if r.halted {
		return
	}
	if r.log.durable < r.log.end() {
		r.sync()
	}
	if r.w.one(10) {
		r.log.hwSaved = r.log.hw
	}
	if r.w.one(6) && r.log.remoteEnd >= 0 {
		r.retainLocally()
	}
	switch {
	case r.leads:
		r.propose()
	case r.unfit != nil:
		r.decline()
	case r.fetching != 0 && r.w.now > r.fetchEnds:
		r.fetching = 0
		fallthrough
	default:
		r.fetch()
	}
}

// sync makes durable what the log has now, after a while.
func (r *replica) sync() {
	if r.syncing {
		return
	}
	r.syncing = true
	end := r.log.end()
	delay := 1 + r.w.rng.Int64N(6)
	if r.w.one(20) || !r.w.cfg.fsync {
		delay += r.w.rng.Int64N(300)
	}
	r.w.soon(r.b, delay, func() {
		r.syncing = false
		r.log.durable = max(r.log.durable, min(end, r.log.end()))
		if r.leads {
			r.progress()
		}
		if r.log.durable < r.log.end() {
			r.sync()
		} else if !r.leads {
			r.fetch()
		}
	})
}

// Appends.

// append is a produce request that has reached this broker.
func (r *replica) append(value int64, all bool) bool {
	if !r.leads || r.halted || all && !r.lead.Enough() {
		return false
	}
	offset := r.log.end()
	rec := record{epoch: r.epoch, value: value, at: r.b.wall()}
	r.w.oracle.written(r, offset, rec)
	r.log.append(rec)
	if all {
		r.acks = append(r.acks, &pendingAck{offset, value})
	}
	if len(r.log.records) > 0 && r.tiered && r.log.end()-r.log.rolls[len(r.log.rolls)-1] >= 8 {
		r.log.roll()
		if r.offload != nil {
			r.offload.Rolled()
		}
	}
	r.sync()
	r.progress()
	return true
}

// progress takes the counted end to the watermark.
func (r *replica) progress() {
	v := r.log.view(r.w.cfg.fsync, r.tiered)
	r.settle(r.lead.Progressed(v.Counted))
}

// settle publishes a watermark that moved, and acknowledges what it has passed.
func (r *replica) settle(moved bool) {
	if !r.leads {
		return
	}
	r.w.oracle.quorum(r)
	if !moved {
		return
	}
	r.log.hw = r.lead.HighWatermark()
	r.w.oracle.committed(r)
	verdict := r.lead.Enough()
	rest := r.acks[:0]
	for _, a := range r.acks {
		if a.offset >= r.log.hw {
			rest = append(rest, a)
		} else if verdict {
			r.w.oracle.acked(r, a.offset, a.value)
		}
	}
	r.acks = rest
	if r.offload != nil {
		r.offload.Advanced(min(r.log.hw, r.log.durable))
	}
}

// Proposals.

func (r *replica) cluster() isr.Cluster {
	img := r.b.image
	return isr.Cluster{
		Eligible: func(id int32) (int64, bool) {
			b, ok := img.Brokers[id]
			return b.Epoch, ok && b.Active()
		},
		SelfEpoch: r.b.epoch, Now: r.w.now, LagMax: lagMillis, LeaderEnd: r.log.end(),
	}
}

// propose asks the controller for another in-sync set when there should be one.
func (r *replica) propose() {
	if r.asking && r.w.now < r.askEnds || r.lead.PartitionEpoch() < r.granted {
		return
	}
	if r.asking {
		r.asking = false
		r.lead.Unanswered(r.lead.PartitionEpoch())
	}
	p, ok := r.lead.Propose(r.cluster())
	if !ok {
		return
	}
	r.w.oracle.quorum(r)
	r.asking, r.askEnds = true, r.w.now+300+r.w.rng.Int64N(600)
	wish := meta.AlterPartition{ID: r.key.id, Index: r.key.index, LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, Recovering: p.Recovering, Lossy: p.Lossy}
	for _, m := range p.ISR {
		wish.ISR = append(wish.ISR, meta.BrokerState{ID: m.ID, Epoch: m.Epoch})
	}
	r.w.bounce(r)
	id, epoch, asked := r.b.id, r.b.epoch, r.askEnds
	losers := r.losers()
	r.w.tell("%s wants %v in sync on %s, epochs %d/%d", r.b.name, p.ISR, r.short(), p.LeaderEpoch, p.PartitionEpoch)
	r.b.ask("alter "+r.short(), func(_ *broker, img *meta.Image) (any, []meta.Change, error) {
		results, changes, err := r.w.decisions.AlterPartitions(img, id, epoch, []meta.AlterPartition{wish})
		if err != nil {
			return nil, nil, err
		}
		r.w.oracle.altered(r, results[0], losers)
		return results[0], changes, nil
	}, func(res any, err error) {
		if r.asking && r.askEnds == asked {
			r.asking = false
		}
		r.altered(p, res, err)
	})
}

// losers are those that have told this leader that they have less than is
// committed.
func (r *replica) losers() (ids []int32) {
	for _, id := range r.replicas {
		if end := r.lead.End(id); id != r.b.id && end != isr.NoProgress && end < r.lead.HighWatermark() {
			ids = append(ids, id)
		}
	}
	return ids
}

// altered takes the controller's answer to a proposal.
func (r *replica) altered(p isr.Proposal, res any, err error) {
	if !r.leads || r.epoch != p.LeaderEpoch {
		return
	}
	if a, ok := res.(meta.AlteredPartition); err == nil && ok {
		if err = a.Err; err == nil {
			r.w.tell("%s hears that %v are in sync on %s, partition epoch %d", r.b.name, a.Partition.ISR, r.short(), a.Partition.PartitionEpoch)
			// Both sets count until the image has it, which may bring another
			// min.insync.replicas, too.
			r.granted = a.Partition.PartitionEpoch
			return
		}
	}
	r.w.tell("%s hears of its wish on %s: %v", r.b.name, r.short(), err)
	switch {
	case errors.Is(err, meta.ErrIneligibleReplica) || errors.Is(err, meta.ErrInvalidRequest):
		r.settle(r.lead.Rejected(p.PartitionEpoch))
	case errors.Is(err, meta.ErrInvalidUpdateVersion), errors.Is(err, meta.ErrFencedLeaderEpoch),
		errors.Is(err, meta.ErrUnknownTopic), errors.Is(err, meta.ErrUnknownTopicID):
		// The controller has moved on, perhaps by this very wish: the image will say.
	case errors.Is(err, meta.ErrNotController), errors.Is(err, meta.ErrStaleBrokerEpoch):
		// It was not looked at.
	default:
		r.lead.Unanswered(p.PartitionEpoch)
	}
}

// Fetches: the leader's side.

// serve answers a fetch of another replica, in the order of replica.Partition.Read.
func (r *replica) serve(from int32, brokerEpoch int64, at isr.Position) (isr.Reply, []record, int64) {
	reply := isr.Reply{Refused: isr.NotNow, LogStart: r.log.logStart, RemoteEnd: -1}
	if r.halted || !r.leads || at.CurrentEpoch != r.epoch || !slices.Contains(r.replicas, from) {
		return reply, nil, -1
	}
	v := r.log.view(r.w.cfg.fsync, r.tiered)
	d, verdict := isr.Judge(v, at)
	switch verdict {
	case isr.Diverges:
		reply.Refused, reply.Diverging = isr.Served, &d
		return reply, nil, -1
	case isr.OutOfRange:
		reply.Refused = isr.NotInRange
		return reply, nil, -1
	}
	if at.Offset >= v.LocalStart && at.Offset <= v.End {
		known, moved := r.lead.Fetched(isr.Fetch{
			ID: from, BrokerEpoch: brokerEpoch, LeaderEpoch: at.CurrentEpoch, End: at.Offset, LeaderEnd: v.End, Now: r.w.now,
		})
		r.settle(moved)
		if !known {
			return reply, nil, -1
		}
	}
	if r.tiered {
		reply.RemoteEnd = r.log.remoteEnd
	}
	reply.HighWatermark = r.log.hw
	switch {
	case at.Offset < v.LogStart || at.Offset > v.End:
		reply.Refused = isr.NotInRange
		return reply, nil, reply.RemoteEnd
	case at.Offset < v.LocalStart:
		if reply.Refused = isr.NotInRange; r.tiered {
			reply.Refused = isr.MovedToTiered
		}
		return reply, nil, reply.RemoteEnd
	}
	records := slices.Clone(r.log.from(at.Offset, 1+r.w.rng.IntN(12)))
	reply.Refused, reply.First, reply.Next = isr.Served, at.Offset, at.Offset+int64(len(records))
	return reply, records, reply.RemoteEnd
}

// Fetches: the follower's side.

// fetch asks the leader for more.
func (r *replica) fetch() {
	if r.leads || r.halted || r.building || r.fetching != 0 || r.leader < 0 {
		return
	}
	at, ok := r.follow.Position(r.log.view(r.w.cfg.fsync, r.tiered))
	if !ok {
		r.sync()
		return
	}
	r.fetches++
	n := r.fetches
	r.fetching, r.fetchEnds = n, r.w.now+300+r.w.rng.Int64N(300)
	to, epoch := r.w.brokers[r.leader], r.b.epoch
	r.w.send(r.b, to, func() {
		o := to.replicas[r.key]
		if o == nil {
			return
		}
		reply, records, remoteEnd := o.serve(r.b.id, epoch, at)
		r.w.send(to, r.b, func() { r.fetched(n, at, reply, records, remoteEnd) })
	})
}

// fetched acts on an answer. An answer that is not waited for any more is still
// looked at: the core has to see by itself that it is old.
func (r *replica) fetched(n int, at isr.Position, reply isr.Reply, records []record, remoteEnd int64) {
	if r.b.replicas[r.key] != r || r.leads || r.halted || r.building {
		return
	}
	if r.fetching == n {
		r.fetching = 0
	}
	v := r.log.view(r.w.cfg.fsync, r.tiered)
	a := r.follow.Answer(v, at, reply)
	switch a.Kind {
	case isr.Append:
		for i, rec := range records {
			r.w.oracle.copied(r, reply.First+int64(i), rec)
			r.log.append(rec)
			if r.tiered && r.w.one(9) {
				r.log.roll()
			}
		}
		r.log.hw = a.HighWatermark
		r.log.raiseStart(a.LogStart)
		if r.tiered && remoteEnd >= 0 {
			r.log.remoteEnd = remoteEnd
		}
		r.w.oracle.followed(r)
		r.sync()
	case isr.Truncate:
		r.w.tell("%s truncates %s to %d: %s", r.b.name, r.short(), a.To, r.log)
		r.w.oracle.truncates(r, a.To)
		r.log.truncate(a.To)
	case isr.Reset:
		r.w.tell("%s begins %s anew at %d: %s", r.b.name, r.short(), a.To, r.log)
		r.w.oracle.resets(r, a.To)
		r.log.restart(a.To, a.To, nil)
	case isr.Rebuild:
		r.rebuild(a)
		return
	case isr.Halt:
		r.halted = true
		r.w.oracle.halted(r, a.To)
		return
	}
	wait := r.w.rng.Int64N(8)
	if len(records) == 0 {
		wait = 20 + r.w.rng.Int64N(120)
	}
	if a.Kind == isr.Ignore {
		wait = 50 + r.w.rng.Int64N(100)
	}
	r.w.soon(r.b, wait, r.fetch)
}

// rebuild begins the log anew where the bucket ends.
func (r *replica) rebuild(a isr.Action) {
	r.building = true
	epoch := r.epoch
	r.b.tier.archiveEnd(r, func(start, end int64, chain lineage.Chain, err error) {
		r.building = false
		missed := end < 0 && start > r.log.end()        // everything was deleted up to there, whatever the leader knows of it
		if err == nil && !a.Cut && end <= r.log.end() { // the bucket has nothing that this log lacks
			end = -1
			if missed {
				a.To = start
			}
			if a.To > r.log.end() && r.epoch == epoch && !r.leads {
				r.w.oracle.resets(r, a.To)
				r.log.restart(a.To, a.To, nil)
			}
		}
		if err == nil && end >= 0 && r.epoch == epoch && !r.leads {
			r.w.tell("%s rebuilds %s from the bucket at %d", r.b.name, r.short(), end)
			r.w.oracle.resets(r, end)
			r.log.restart(end, start, chain)
			r.log.remoteEnd, r.log.hw = end, end
			r.w.oracle.followed(r)
		}
		r.w.soon(r.b, 50, r.fetch)
	})
}

// retainLocally lets local copies go that the bucket has, as local retention
// would at its most eager.
func (r *replica) retainLocally() {
	to := min(r.log.remoteEnd, r.log.hw)
	if n := len(r.log.rolls); n < 2 || r.log.rolls[1] > to {
		return
	}
	r.w.oracle.drops(r, to)
	r.log.drop(to)
}
