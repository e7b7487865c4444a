package coordinator

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
)

// bump begins another epoch of the group: who reads what is to be worked out anew.
func (c *core) bump(g *group) {
	g.consumer.epoch++
	g.consumer.hash = c.topicsHash(g)
	c.write(consumerGroupRecord(g.id, g.consumer))
}

// topicsHash sums up the topics that the group subscribes to: another hash means other topics, partitions or racks.
func (c *core) topicsHash(g *group) int64 {
	if c.view != nil {
		g.consumer.seen = c.view.version
	}
	names := make(map[string]struct{})
	for _, m := range g.consumer.members {
		for _, name := range g.consumer.subscribed(m) {
			names[name] = struct{}{}
		}
	}
	h := fnv.New64a()
	var buf [8]byte
	for _, name := range slices.Sorted(maps.Keys(names)) {
		t := c.view.byName(name)
		if t == nil {
			continue
		}
		h.Write(t.ID[:])
		binary.BigEndian.PutUint64(buf[:], uint64(len(t.Partitions)))
		h.Write(buf[:])
		for i := range t.Partitions {
			racks := make([]string, 0, 3)
			for _, id := range t.Partitions[i].Replicas {
				racks = append(racks, c.view.img.Brokers[id].Rack)
			}
			slices.Sort(racks)
			for _, r := range racks {
				h.Write([]byte(r))
				h.Write([]byte{0})
			}
		}
	}
	return int64(h.Sum64())
}

// topicsChanged says whether the group's topics are others than its epoch knows.
func (c *core) topicsChanged(g *group) bool {
	if c.view == nil || g.consumer.seen == c.view.version {
		return false
	}
	was := g.consumer.hash
	return c.topicsHash(g) != was
}

// resolve finds the topics that the members' regular expressions stand for, where the topics there are have changed, and forgets
// expressions that nobody has any more. It reports whether somebody's topics are others now.
func (c *core) resolve(g *group) (changed bool) {
	cg := g.consumer
	wanted := make(map[string]struct{})
	for _, m := range cg.members {
		if m.regex != "" {
			wanted[m.regex] = struct{}{}
		}
	}
	for _, text := range slices.Sorted(maps.Keys(wanted)) {
		old := cg.regexes[text]
		if c.view == nil || old != nil && old.version == c.view.version {
			continue
		}
		re, err := compileRegex(text)
		if err != nil {
			continue // checked when it came; of another release's making then
		}
		now := &resolved{version: c.view.version, at: c.wall()}
		for _, t := range c.view.img.Topics() {
			if re.MatchString(t.Name) {
				now.topics = append(now.topics, t.Name)
			}
		}
		cg.regexes[text] = now
		if old == nil || !slices.Equal(old.topics, now.topics) {
			changed = true
			c.write(consumerRegexRecord(g.id, text, now))
		}
	}
	for _, text := range slices.Sorted(maps.Keys(cg.regexes)) {
		if _, ok := wanted[text]; !ok {
			delete(cg.regexes, text)
			c.write(record{key: consumerRegexKey(g.id, text)})
		}
	}
	return changed
}

// retarget works out who is to read what in the group's epoch.
func (c *core) retarget(g *group) {
	cg := g.consumer
	was := cg.target
	cg.target = cg.assign(cg.assignorName(c.cfg.ConsumerAssignors), c.view)
	for _, id := range slices.Sorted(maps.Keys(cg.target)) {
		if old, ok := was[id]; !ok || !old.same(cg.target[id]) {
			c.write(consumerTargetRecord(g.id, id, cg.target[id]))
		}
	}
	cg.targetEpoch = cg.epoch
	c.write(consumerTargetEpochRecord(g.id, cg.targetEpoch, c.wall()))
}

// reconcile takes a member one step nearer to its target, given what it says it owns (nil: what it was told last), and writes
// down what has changed.
func (c *core) reconcile(g *group, m *consumerMember, owned []TopicPartitions) *consumerMember {
	next := g.consumer.advance(m, owned)
	if mine := next.assigned.within(c.view, g.consumer.subscribed(next)); !mine.same(next.assigned) {
		next = next.clone()
		next.assigned = mine
	}
	if next.epoch != m.epoch || next.previous != m.previous || next.state != m.state || !next.assigned.same(m.assigned) || !next.revoking.same(m.revoking) {
		c.write(consumerCurrentRecord(g.id, next))
		g.consumer.put(next)
	}
	key := timerKey{timerRevocation, g.id, m.id}
	if next.state != memberUnrevoked {
		c.timers.cancel(key)
	} else if m.state != memberUnrevoked || m.epoch != next.epoch {
		c.timers.set(key, c.now+int64(max(next.rebalanceMillis, 0)))
	}
	return g.consumer.members[m.id]
}

// within leaves out partitions that are gone or that the member no longer subscribes to: it may not read them, whatever its
// target is.
func (a assignment) within(view *topicsView, names []string) assignment {
	if view == nil {
		return a
	}
	var out assignment
	for p := range a {
		t := view.byID(p.topic)
		if t != nil && int(p.index) < len(t.Partitions) {
			if _, ok := slices.BinarySearch(names, t.Name); ok {
				continue
			}
		}
		if out == nil {
			out = maps.Clone(a)
		}
		delete(out, p)
	}
	if out == nil {
		return a
	}
	return out
}

// advance is the state after m in its way to the target (KIP-848): first give up what is another's, then, once that is done,
// enter the target's epoch, and take what nobody has any more.
func (g *consumerGroup) advance(m *consumerMember, owned []TopicPartitions) *consumerMember {
	switch m.state {
	case memberUnrevoked:
		if owned == nil || ownsAny(owned, m.revoking) {
			return m
		}
		// It has given up what it had to; what it was given up for may be an old target.
		return g.toward(m, min(m.epoch+1, g.targetEpoch), owned)
	case memberStable:
		if m.epoch == g.targetEpoch {
			return m
		}
	}
	return g.toward(m, m.epoch, owned)
}

func ownsAny(owned []TopicPartitions, of assignment) bool {
	for _, t := range owned {
		for _, p := range t.Partitions {
			if _, ok := of[tp{t.Topic, p}]; ok {
				return true
			}
		}
	}
	return false
}

// toward works out the member's next state. epoch is the one it keeps while it has something to give up.
func (g *consumerGroup) toward(m *consumerMember, epoch int32, owned []TopicPartitions) *consumerMember {
	n := m.clone()
	target := g.target[m.id]
	n.assigned, n.revoking = make(assignment), make(assignment)
	for p, at := range m.assigned {
		if _, ok := target[p]; ok {
			n.assigned[p] = at
		} else {
			n.revoking[p] = at
		}
	}
	if len(n.revoking) > 0 && (owned == nil || ownsAny(owned, n.revoking)) {
		n.state, n.epoch = memberUnrevoked, epoch
		if epoch != m.epoch {
			n.previous = m.epoch
		}
		return n
	}
	n.revoking = make(assignment)
	waits := false
	for p := range target {
		if _, ok := n.assigned[p]; ok {
			continue
		}
		_, mine := m.assigned[p]
		if _, revoked := m.revoking[p]; revoked {
			mine = true
		}
		if _, taken := g.owners[p]; taken && !mine {
			waits = true
			continue
		}
		n.assigned[p] = g.targetEpoch
	}
	n.state = memberStable
	if waits {
		n.state = memberUnreleased
	}
	if n.epoch != g.targetEpoch {
		n.previous, n.epoch = m.epoch, g.targetEpoch
	}
	return n
}
