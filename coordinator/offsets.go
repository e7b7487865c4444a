package coordinator

import (
	"cmp"
	"maps"
	"slices"

	"github.com/varvelog/varve/meta/topic"
)

// commit is OffsetCommit. The caller has checked that the partitions exist.
func (c *core) commit(e event, q *CommitRequest) {
	r := &CommitResult{Errs: make([]error, len(q.Partitions))}
	g, err := c.committer(q)
	if err == nil && q.Producer != nil && q.Guarded && c.ends.overtaken(q.Producer.ID, q.Guard) {
		err = ErrTxnEndedMeanwhile
		c.settle(g)
	}
	if err != nil {
		for i := range r.Errs {
			r.Errs[i] = err
		}
		c.reply(e.ticket, r, nil)
		return
	}
	expires := int64(-1)
	if q.RetentionMillis >= 0 {
		expires = c.wall() + q.RetentionMillis
	}
	for i := range q.Partitions {
		p := &q.Partitions[i]
		if len(p.Metadata) > int(c.cfg.OffsetMetadataBytesMax) {
			r.Errs[i] = ErrMetadataTooLarge
			continue
		}
		c.seq++
		o := offset{
			offset: p.Offset, leaderEpoch: p.LeaderEpoch, metadata: p.Metadata, committed: c.wall(), expires: expires, id: p.ID,
			seq: c.seq,
		}
		rec := offsetRecord(g.id, p.Topic, p.Partition, &o)
		if rec.size() > c.cfg.BatchBytesMax-batchOverhead {
			r.Errs[i] = ErrMetadataTooLarge
			continue
		}
		if rec.txn, rec.ticket = q.Producer, e.ticket; q.Producer != nil {
			c.setPending(g, q.Producer.ID, partition{p.Topic, p.Partition}, o)
		} else {
			g.setOffset(p.Topic, p.Partition, o)
		}
		c.write(rec)
	}
	c.settle(g)
	c.reply(e.ticket, r, nil)
}

// committer finds the group of a commit and decides whether the commit is allowed. A commit by nobody in particular makes a
// group that does not exist: that is how consumers that assign partitions to themselves keep their offsets.
func (c *core) committer(q *CommitRequest) (*group, error) {
	g := c.group(q.Group)
	if g == nil {
		switch {
		case q.Generation < 0:
			return c.groupOrNew(q.Group), nil
		case q.NamesGroup && q.Producer == nil:
			return nil, ErrUnknownGroup
		}
		return nil, ErrIllegalGeneration
	}
	if m := g.modern(); m != nil {
		return g, m.mayCommit(q)
	}
	if q.Generation < 0 && g.state == Empty {
		return g, nil
	}
	if q.Generation >= 0 || q.MemberID != "" || q.InstanceID != nil {
		m, err := g.check(q.MemberID, q.InstanceID)
		switch {
		case err != nil:
			return nil, err
		case q.Generation != g.generation:
			return nil, ErrIllegalGeneration
		}
		if g.state == CompletingRebalance && q.Producer == nil {
			// It has joined this generation, but which partitions are its own is yet to be decided.
			return nil, ErrRebalancing
		}
		c.setSession(g, m.id, m.sessionMillis) // a commit is a sign of life
		return g, nil
	}
	if q.Producer != nil {
		return g, nil // a producer that does not say for which member it commits: its own fencing has to do
	}
	return nil, ErrUnknownMember
}

// mayCommit decides whether a commit to a consumer group is allowed: of a member in its epoch, or in an earlier one for
// partitions that it has had since (KIP-1251); of nobody in particular while the group has no members.
func (g *consumerGroup) mayCommit(q *CommitRequest) error {
	if q.Generation < 0 && (len(g.members) == 0 || q.Producer != nil && q.MemberID == "" && q.InstanceID == nil) {
		return nil
	}
	m := g.members[q.MemberID]
	switch {
	case m == nil:
		return ErrUnknownMember
	case q.Producer == nil && m.classic == nil && !q.NamesGroup:
		return ErrOldCommit
	case q.Generation == m.epoch:
		return nil
	case q.Generation > m.epoch:
		return m.stale()
	}
	for i := range q.Partitions {
		p := tp{q.Partitions[i].ID, q.Partitions[i].Partition}
		at, ok := m.assigned[p]
		if !ok {
			at, ok = m.revoking[p]
		}
		if !ok || at > q.Generation {
			return m.stale()
		}
	}
	return nil
}

// stale is what a member is told that speaks of another epoch than its own.
func (m *consumerMember) stale() error {
	if m.classic != nil {
		return ErrIllegalGeneration
	}
	return ErrStaleMemberEpoch
}

func (g *group) setOffset(topic string, partition int32, o offset) {
	of := g.offsets[topic]
	if of == nil {
		of = make(map[int32]*offset)
		g.offsets[topic] = of
	}
	if of[partition] == nil { // a map makes room for eight values at once, and most groups have one: so they are small ones
		of[partition] = new(offset)
	}
	*of[partition] = o
}

// dropOffset forgets an offset and reports whether there was one.
func (g *group) dropOffset(topic string, partition int32) bool {
	of := g.offsets[topic]
	if _, ok := of[partition]; !ok {
		return false
	}
	if delete(of, partition); len(of) == 0 {
		delete(g.offsets, topic)
	}
	return true
}

// fetch is OffsetFetch for one group.
func (c *core) fetch(e event, q *FetchOffsetsRequest) {
	g := c.group(q.Group)
	if g != nil && g.modern() != nil {
		if err := g.modern().mayFetch(q); err != nil {
			c.reply(e.ticket, []CommittedOffset(nil), err)
			return
		}
	}
	var out []CommittedOffset
	if q.All {
		if g != nil {
			for _, t := range slices.Sorted(maps.Keys(g.offsets)) {
				for _, p := range slices.Sorted(maps.Keys(g.offsets[t])) {
					out = append(out, g.committedOffset(OffsetPartition{Topic: t, Partition: p}))
				}
			}
			if q.RequireStable {
				out = g.markUnstable(out, true)
			}
		}
		c.reply(e.ticket, out, nil)
		return
	}
	out = make([]CommittedOffset, len(q.Partitions))
	for i, p := range q.Partitions {
		out[i] = g.committedOffset(p)
	}
	if q.RequireStable && g != nil {
		out = g.markUnstable(out, false)
	}
	c.reply(e.ticket, out, nil)
}

// mayFetch checks the member that asks for offsets, if one says who it is (OffsetFetch 9+).
func (g *consumerGroup) mayFetch(q *FetchOffsetsRequest) error {
	if q.MemberID == nil {
		return nil
	}
	m := g.members[*q.MemberID]
	switch {
	case m == nil:
		return ErrUnknownMember
	case q.MemberEpoch != m.epoch:
		return m.stale()
	}
	return nil
}

// committedOffset answers for one partition; g may be nil. The offset of a topic that was deleted is not that of the topic
// which has its name now.
func (g *group) committedOffset(p OffsetPartition) CommittedOffset {
	none := CommittedOffset{Topic: p.Topic, Partition: p.Partition, Offset: NoOffset, LeaderEpoch: NoEpoch}
	if g == nil {
		return none
	}
	o, ok := g.offsets[p.Topic][p.Partition]
	if !ok || !o.id.IsZero() && !p.ID.IsZero() && o.id != p.ID {
		return none
	}
	return CommittedOffset{
		Topic: p.Topic, Partition: p.Partition, ID: o.id, Offset: o.offset, LeaderEpoch: o.leaderEpoch, Metadata: o.metadata,
	}
}

// deleteOffsets is OffsetDelete.
func (c *core) deleteOffsets(e event, q *DeleteOffsetsRequest) {
	g := c.group(q.Group)
	switch {
	case g == nil:
		c.reply(e.ticket, &DeleteOffsetsResult{}, ErrUnknownGroup)
		return
	case g.share != nil:
		c.reply(e.ticket, &DeleteOffsetsResult{}, notConsumer(q.Group))
		return
	case g.modern() == nil && g.state != Empty && (g.protocolType == nil || *g.protocolType != consumerProtocol):
		c.reply(e.ticket, &DeleteOffsetsResult{}, ErrGroupNotEmpty)
		return
	}
	r := &DeleteOffsetsResult{Errs: make([]error, len(q.Partitions))}
	for i, p := range q.Partitions {
		if g.state != Empty && g.reads(p.Topic) || g.modern() != nil && g.modern().reads(p.Topic) {
			r.Errs[i] = ErrSubscribed
			continue
		}
		pending := c.dropPending(g, partition{p.Topic, p.Partition})
		if g.dropOffset(p.Topic, p.Partition) || pending {
			c.write(offsetTombstone(g.id, p.Topic, p.Partition))
		}
	}
	c.settle(g)
	c.reply(e.ticket, r, nil)
}

// topicGone drops what groups have committed for a deleted topic.
func (c *core) topicGone(e event, q topicGone) {
	for _, id := range c.groupIDs() {
		g := c.groups[id]
		for _, p := range slices.Sorted(maps.Keys(g.offsets[q.topic])) {
			if o := g.offsets[q.topic][p]; !o.id.IsZero() && o.id == topic.ID(q.keep) {
				continue // committed for the topic that has the name now
			}
			g.dropOffset(q.topic, p)
			c.dropPending(g, partition{q.topic, p})
			c.write(offsetTombstone(g.id, q.topic, p))
		}
		if g.share != nil {
			c.shareTopicGone(g, q.id)
		}
		c.settle(g)
	}
	c.reply(e.ticket, nil, nil)
}

// expireOffsets removes offsets that nobody has needed for the retention time, and groups that have neither members nor
// offsets left. Share groups stay until they are deleted.
func (c *core) expireOffsets() {
	for _, id := range c.groupIDs() {
		g := c.groups[id]
		for _, t := range slices.Sorted(maps.Keys(g.offsets)) {
			for _, p := range slices.Sorted(maps.Keys(g.offsets[t])) {
				o := g.offsets[t][p]
				if c.expired(g, t, o) && !g.unstable(partition{t, p}) {
					g.dropOffset(t, p)
					c.write(offsetTombstone(g.id, t, p))
				}
			}
		}
		if g.state == Empty && len(g.members) == 0 && len(g.pending) == 0 && len(g.offsets) == 0 && len(g.txns) == 0 && g.memberless() && g.share == nil {
			c.erase(g)
			if g.persisted {
				c.write(groupTombstone(g.id))
			}
			delete(c.groups, id)
		}
	}
}

// expired says whether an offset is to go (KIP-211): in a group without members, when the group has been so for the retention
// time; in a consumer group at work, when the topic is not subscribed and the commit is that old; in a group that never had
// members, when the commit is that old.
func (c *core) expired(g *group, topic string, o *offset) bool {
	base := o.committed
	switch m := g.modern(); {
	case m != nil && m.size() > 0:
		if m.reads(topic) {
			return false
		}
	case m != nil:
		if g.since >= 0 {
			base = max(base, g.since)
		}
	case g.protocolType == nil:
	case g.state == Empty:
		if g.since >= 0 {
			base = g.since
		}
	case g.state == Stable && g.subscribedKnown && !g.reads(topic):
	default:
		return false
	}
	if o.expires >= 0 {
		return c.wall() >= o.expires
	}
	return c.wall()-base >= c.cfg.OffsetsRetentionMillis
}

func (c *core) groupIDs() []string {
	return slices.SortedFunc(maps.Keys(c.groups), cmp.Compare[string])
}
