package coordinator

import (
	"maps"
	"slices"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// What the groups' machine takes and answers about share-partitions, which the share coordinator keeps.
type (
	describeShare struct{ group string }
	// shareBegun says which share-partitions the share coordinator has begun, and which it could not.
	shareBegun struct {
		group         string
		begun, failed []ShareKey
	}
	// shareForgotten says that the share coordinator has forgotten all it had of topics for a group; with all, the group goes too.
	shareForgotten struct {
		group  string
		topics []topic.ID // that it has; those it could not are asked for again by another deletion
		all    bool
	}
	// listShares asks for the share-partitions that a group has.
	listShares struct{ group string }
	// doomedShares is what DeleteGroups has the share coordinator forget first.
	doomedShares struct {
		topics []topic.ID
		keys   []ShareKey
	}
	// alteredShares is what AlterShareGroupOffsets has the share coordinator begin.
	alteredShares struct {
		result *AlterShareResult
		begin  []ShareInitialize
		at     [][2]int // where in the result each is
	}
	// deletedShares is what DeleteShareGroupOffsets has the share coordinator forget; nil for a topic of which there is nothing.
	deletedShares struct {
		results []DeleteShareOffsetsResult
		keys    [][]ShareKey
	}
)

// textNotEmpty is Kafka's.
const textNotEmpty = "The group is not empty."

// shareBeginRetryMillis is how long share-partitions are left to be begun before that is tried anew, as Kafka's
// group.share.initialize.retry.interval.ms.
const shareBeginRetryMillis = 30_000

// beginShares has the share coordinator told of partitions of subscribed topics that it does not know yet. A partition that was
// added to a topic which the group reads already begins at its start, so that nothing is missed; others where the group's
// share.auto.offset.reset says, which their leader works out.
func (c *core) beginShares(g *group) {
	if c.view == nil {
		return
	}
	var begin []ShareInitialize
	for _, name := range g.share.topics() {
		t := c.view.byName(name)
		if t == nil {
			continue
		}
		parts := c.unbegun(g.share, t)
		if len(parts) == 0 {
			continue
		}
		start := NoOffset
		if g.share.initialized[t.ID] != nil {
			start = 0
		}
		fresh := &shareTopic{name: name, parts: parts, since: c.now}
		for _, k := range fresh.keys(g.id, t.ID) {
			begin = append(begin, ShareInitialize{ShareKey: k, StateEpoch: g.share.epoch, Start: start})
		}
		g.share.initializing[t.ID] = g.share.initializing[t.ID].with(name, parts, c.now)
		delete(g.share.deleting, t.ID)
	}
	if len(begin) > 0 {
		c.writeShareTopics(g)
		c.out.begins = append(c.out.begins, begin)
	}
}

// unbegun are the partitions of a topic that are neither share-partitions nor on their way to be.
func (c *core) unbegun(sg *shareGroup, t *meta.Topic) map[int32]struct{} {
	parts := make(map[int32]struct{})
	for i := range t.Partitions {
		parts[int32(i)] = struct{}{}
	}
	if done := sg.initialized[t.ID]; done != nil {
		for p := range done.parts {
			delete(parts, p)
		}
	}
	if under := sg.initializing[t.ID]; under != nil && under.since >= 0 && c.now-under.since < shareBeginRetryMillis {
		for p := range under.parts {
			delete(parts, p)
		}
	}
	return parts
}

func (c *core) writeShareTopics(g *group) {
	g.share.known = true
	c.write(shareTopicsRecord(g.id, g.share))
}

// shareBegun notes what has become of share-partitions that were to be begun. Those that could not be are tried again with a
// later heartbeat.
func (c *core) shareBegun(e event, q shareBegun) {
	g := c.group(q.group)
	if g != nil && g.share != nil {
		changed := false
		for i, k := range slices.Concat(q.begun, q.failed) {
			under := g.share.initializing[k.Topic]
			if under == nil {
				continue // deleted meanwhile
			}
			if _, ok := under.parts[k.Partition]; !ok {
				continue
			}
			one := map[int32]struct{}{k.Partition: {}}
			setShareTopic(g.share.initializing, k.Topic, under.without(one))
			if i < len(q.begun) {
				g.share.initialized[k.Topic] = g.share.initialized[k.Topic].with(under.name, one, 0)
			}
			changed = true
		}
		if changed {
			c.writeShareTopics(g)
		}
	}
	c.reply(e.ticket, nil, nil)
}

// shareForgotten notes that the share coordinator has forgotten what it was to.
func (c *core) shareForgotten(e event, q shareForgotten) {
	g := c.group(q.group)
	if g == nil || g.share == nil {
		c.reply(e.ticket, nil, nil)
		return
	}
	g.share.deletions = max(g.share.deletions-1, 0)
	if q.all && g.share.size() > 0 {
		c.reply(e.ticket, nil, ErrGroupNotEmpty) // somebody has joined while another broker coordinated
		return
	}
	changed := false
	for _, id := range q.topics {
		_, ok := g.share.deleting[id]
		changed = changed || ok
		delete(g.share.deleting, id)
	}
	if q.all && len(g.share.initializing)+len(g.share.initialized)+len(g.share.deleting) == 0 {
		c.erase(g)
		delete(c.groups, g.id)
	} else if changed {
		c.writeShareTopics(g)
	}
	c.reply(e.ticket, nil, nil)
}

// doom marks all that the share coordinator keeps of a group as to be forgotten, for the group is to go.
func (c *core) doom(g *group) *doomedShares {
	d := &doomedShares{}
	seen := make(map[ShareKey]struct{})
	add := func(keys []ShareKey) {
		for _, k := range keys {
			if _, ok := seen[k]; !ok {
				seen[k] = struct{}{}
				d.keys = append(d.keys, k)
			}
		}
	}
	for _, m := range []map[topic.ID]*shareTopic{g.share.initializing, g.share.initialized} {
		for _, id := range sortedIDs(m) {
			add(m[id].keys(g.id, id))
			g.share.deleting[id] = m[id].name
		}
		clear(m)
	}
	for _, id := range sortedIDs(g.share.deleting) {
		d.topics = append(d.topics, id)
		// What was to be forgotten before may not have been: all partitions that the topic has are asked for.
		if t := c.view.byID(id); t != nil {
			for i := range t.Partitions {
				add([]ShareKey{{Group: g.id, Topic: id, Partition: int32(i)}})
			}
		}
	}
	if len(d.topics) > 0 {
		c.writeShareTopics(g)
	}
	return d
}

// listShares lists the share-partitions that a group has; a group that is none, or no share group, has none.
func (c *core) listShares(e event, q listShares) {
	var keys []ShareKey
	if g := c.group(q.group); g != nil && g.share != nil {
		for _, id := range sortedIDs(g.share.initialized) {
			if c.view.byID(id) != nil {
				keys = append(keys, g.share.initialized[id].keys(g.id, id)...)
			}
		}
	}
	c.reply(e.ticket, keys, nil)
}

// alterShares is AlterShareGroupOffsets: share-partitions are begun anew, of a group that has no members.
func (c *core) alterShares(e event, q *AlterShareRequest) {
	g, err := c.shareOf(q.Group, true)
	if err == nil && g.share.size() > 0 {
		err = refuse(ErrGroupNotEmpty, textNotEmpty)
	}
	if err == nil && g.share.deletions > 0 {
		err = ErrNotAvailable
	}
	if err != nil {
		c.reply(e.ticket, (*alteredShares)(nil), err)
		return
	}
	out := &alteredShares{result: &AlterShareResult{Topics: make([]AlterShareTopicResult, len(q.Topics))}}
	for i, t := range q.Topics {
		r := &out.result.Topics[i]
		*r = AlterShareTopicResult{Name: t.Name, Errs: make([]error, len(t.Partitions))}
		known := c.view.byName(t.Name)
		if known != nil {
			r.ID = known.ID
		}
		parts := make(map[int32]struct{})
		for j, p := range t.Partitions {
			if known == nil || p.Partition < 0 || int(p.Partition) >= len(known.Partitions) {
				r.Errs[j] = refuse(ErrShareStateUnknown, textNoPartition)
				continue
			}
			parts[p.Partition] = struct{}{}
			out.begin = append(out.begin, ShareInitialize{
				ShareKey: ShareKey{Group: g.id, Topic: known.ID, Partition: p.Partition}, StateEpoch: g.share.epoch, Start: p.Start,
			})
			out.at = append(out.at, [2]int{i, j})
		}
		if len(parts) > 0 {
			g.share.initializing[known.ID] = g.share.initializing[known.ID].with(t.Name, parts, c.now)
			delete(g.share.deleting, known.ID)
		}
	}
	if len(out.begin) > 0 {
		c.writeShareTopics(g)
	}
	c.settle(g)
	c.reply(e.ticket, out, nil)
}

// deleteShares is DeleteShareGroupOffsets: what there is of topics is marked as to be forgotten, in a group without members.
func (c *core) deleteShares(e event, q *DeleteShareOffsetsRequest) {
	g, err := c.shareOf(q.Group, false)
	switch {
	case c.group(q.Group) == nil:
		err = refuse(ErrUnknownGroup, "Group %s not found.", q.Group)
	case err == nil && g.share.size() > 0:
		err = refuse(ErrGroupNotEmpty, textNotEmpty)
	}
	if err != nil {
		c.reply(e.ticket, (*deletedShares)(nil), err)
		return
	}
	out := &deletedShares{results: make([]DeleteShareOffsetsResult, len(q.Topics)), keys: make([][]ShareKey, len(q.Topics))}
	changed := false
	for i, name := range q.Topics {
		r := &out.results[i]
		r.Topic = name
		t := c.view.byName(name)
		if t == nil {
			r.Err = refuse(ErrShareStateUnknown, textNoPartition)
			continue
		}
		_, again := g.share.deleting[t.ID]
		switch has := g.share.initialized[t.ID]; {
		case has != nil:
			out.keys[i] = has.keys(g.id, t.ID)
			delete(g.share.initialized, t.ID)
			g.share.deleting[t.ID] = name
			changed = true
		case again:
			for p := range t.Partitions {
				out.keys[i] = append(out.keys[i], ShareKey{Group: g.id, Topic: t.ID, Partition: int32(p)})
			}
		default:
			r.Err = refuse(ErrShareStateUnknown, "There is no offset information to delete.")
			continue
		}
		r.ID = t.ID
	}
	if changed {
		c.writeShareTopics(g)
	}
	g.share.deletions++
	c.reply(e.ticket, out, nil)
}

// shareTopicGone drops what a share group notes of a deleted topic. What the share coordinator has of it, it deletes by itself.
func (c *core) shareTopicGone(g *group, id topic.ID) {
	_, deleting := g.share.deleting[id]
	if g.share.initializing[id] == nil && g.share.initialized[id] == nil && !deleting {
		return
	}
	delete(g.share.initializing, id)
	delete(g.share.initialized, id)
	delete(g.share.deleting, id)
	c.writeShareTopics(g)
}

// shareLoaded gives members their whole session to be heard of.
func (c *core) shareLoaded(g *group) {
	for _, id := range slices.Sorted(maps.Keys(g.share.members)) {
		c.shareSession(g, id)
	}
}
