package coordinator

import (
	"cmp"
	"maps"
	"slices"

	"github.com/varvelog/varve/hot/batch"
)

// Offsets committed in a transaction (KIP-98) are in the log as records of that transaction, and count only once its marker is
// there too. Until then the group holds them beside its offsets, by producer. Of a plain commit and a transaction's to the
// same partition the later one stays, whenever the transaction ends.

// EndMarker ends a producer's transaction in the partition of the offsets topic that it wrote offsets to (WriteTxnMarkers).
type EndMarker struct {
	Producer
	Commit           bool
	CoordinatorEpoch int32
}

// endMarker writes the marker and lets what waited for it count, or forgets it.
func (c *core) endMarker(e event, q *EndMarker) {
	m := batch.Marker{Type: batch.Abort, CoordinatorEpoch: q.CoordinatorEpoch}
	if q.Commit {
		m.Type = batch.Commit
	}
	who := q.Producer
	c.write(record{txn: &who, end: &m, ticket: e.ticket})
	c.ends.ended(q.ID)
	c.replayMarker(q.ID, q.Commit)
	c.reply(e.ticket, nil, nil)
}

// replayMarker ends a producer's transaction.
func (c *core) replayMarker(producer int64, commit bool) {
	ids := slices.Sorted(maps.Keys(c.txns[producer]))
	delete(c.txns, producer)
	for _, id := range ids {
		g := c.groups[id]
		if g == nil {
			continue
		}
		pending := g.txns[producer]
		delete(g.txns, producer)
		for p, o := range pending {
			if known := g.offsets[p.topic][p.index]; commit && (known == nil || known.seq < o.seq) {
				g.setOffset(p.topic, p.index, o)
			}
		}
		c.settle(g)
	}
}

// setPending notes an offset that counts once the producer's transaction is committed.
func (c *core) setPending(g *group, producer int64, p partition, o offset) {
	if g.txns == nil {
		g.txns = make(map[int64]map[partition]offset)
	}
	if g.txns[producer] == nil {
		g.txns[producer] = make(map[partition]offset)
	}
	g.txns[producer][p] = o
	if c.txns == nil {
		c.txns = make(map[int64]map[string]struct{})
	}
	if c.txns[producer] == nil {
		c.txns[producer] = make(map[string]struct{})
	}
	c.txns[producer][g.id] = struct{}{}
}

// dropPending forgets what open transactions would make of an offset, and reports whether there was anything.
func (c *core) dropPending(g *group, p partition) (dropped bool) {
	for producer, pending := range g.txns {
		if _, ok := pending[p]; !ok {
			continue
		}
		dropped = true
		if delete(pending, p); len(pending) > 0 {
			continue
		}
		delete(g.txns, producer)
		if delete(c.txns[producer], g.id); len(c.txns[producer]) == 0 {
			delete(c.txns, producer)
		}
	}
	return dropped
}

// unstable says whether an open transaction is about to change an offset.
func (g *group) unstable(p partition) bool {
	for _, pending := range g.txns {
		if _, ok := pending[p]; ok {
			return true
		}
	}
	return false
}

// pendingPartitions are those with an offset in an open transaction, in order.
func (g *group) pendingPartitions() []partition {
	all := make(map[partition]struct{})
	for _, pending := range g.txns {
		for p := range pending {
			all[p] = struct{}{}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b partition) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.index, b.index))
	})
}

// markUnstable gives ErrUnstableOffset to the offsets that an open transaction is about to change. With all, partitions that
// have no committed offset yet are added.
func (g *group) markUnstable(list []CommittedOffset, all bool) []CommittedOffset {
	known := make(map[partition]bool, len(list))
	for i := range list {
		p := partition{list[i].Topic, list[i].Partition}
		known[p] = true
		if g.unstable(p) {
			list[i].Offset, list[i].LeaderEpoch, list[i].Metadata, list[i].Err = NoOffset, NoEpoch, "", ErrUnstableOffset
		}
	}
	if !all {
		return list
	}
	for _, p := range g.pendingPartitions() {
		if !known[p] {
			list = append(list, CommittedOffset{
				Topic: p.topic, Partition: p.index, Offset: NoOffset, LeaderEpoch: NoEpoch, Err: ErrUnstableOffset})
		}
	}
	return list
}
