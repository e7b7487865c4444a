package replica

import (
	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/replica/isr"
)

// fetchedBy notes a follower's fetch, after its epoch and lineage were found right. An offset this log does not have, or a
// fetch that does not say of which epoch it is, proves nothing. What the fetch moves is in the result.
func (p *Partition) fetchedBy(r ReadRequest, o hot.Offsets, res *ReadResult) error {
	if r.CurrentEpoch == NoEpoch || r.Offset < o.LocalStart || r.Offset > o.End {
		return nil
	}
	// Whoever names a registration that nobody has heard of would shut out the follower's own. One that is newer than the image
	// here asks again.
	if r.ReplicaEpoch > p.m.deps.Meta.Image().Brokers[r.ReplicaID].Epoch {
		return ErrNotLeader
	}
	end := r.Offset
	if c := r.Complaint; c != nil && c.Damaged != NoOffset {
		end = min(end, c.Damaged) // it has not what it has only damaged
	}
	p.mu.Lock()
	role := p.role.Load()
	if role.err != nil {
		p.mu.Unlock()
		return role.err
	}
	known, moved := p.isr.Fetched(isr.Fetch{
		ID: r.ReplicaID, BrokerEpoch: r.ReplicaEpoch, LeaderEpoch: r.CurrentEpoch, End: end, LogStart: r.LogStart, LeaderEnd: o.End, Now: p.m.steady(),
	})
	// An in-sync follower that keeps up, nearly every fetch, is not looked at twice.
	wants := known && p.isr.Misplaced(r.ReplicaID) && p.isr.Wants(p.m.cluster(o.End))
	p.settle(moved)
	if wants {
		p.m.proposals.add(p)
	}
	if !known {
		return ErrNotLeader // of this incarnation of the follower: a later one has fetched
	}
	res.HighWatermark, res.LastStable = p.log.HighWatermark(), p.log.LastStable()
	if p.tiered() {
		res.RemoteEnd = p.log.RemoteEnd()
	}
	return nil
}

// PreferredReplica names the follower that a consumer in a rack should rather read an offset from: an in-sync one in that rack
// which has the offset, the most advanced of several. Its log may start behind it, too: where records were deleted of which
// this broker, as a new leader, has not heard. NoReplica when the consumer should stay here: there is none, or this broker is in
// the rack itself (KIP-392).
func (p *Partition) PreferredReplica(rack string, offset int64) int32 {
	if rack == "" {
		return NoReplica
	}
	brokers := p.m.deps.Meta.Image().Brokers
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.role.Load().err != nil || brokers[p.m.config.NodeID].Rack == rack {
		return NoReplica
	}
	best, most := NoReplica, offset-1
	for _, id := range p.isr.InSync() {
		b, ok := brokers[id]
		if !ok || id == p.m.config.NodeID || b.Rack != rack || !b.Active() {
			continue
		}
		if end := p.isr.End(id); end > most && p.isr.Serves(id, offset) {
			best, most = id, end
		}
	}
	return best
}
