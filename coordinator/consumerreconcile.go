package coordinator

import (
	"hash/fnv"
	"maps"
	"slices"

	"github.com/varvelog/varve/meta/topic"
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
	return c.hashOf(slices.Sorted(maps.Keys(names)))
}

// hashOf sums up topics.
func (c *core) hashOf(names []string) int64 {
	h := fnv.New64a()
	for _, name := range names {
		c.view.sum(h, name)
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

// retargetIfDue works out who is to read what if the group's epoch calls for it, and if the last time was long enough ago
// (KIP-1263, consumer.assignment.interval.ms): members that come one after another share one assignment. Until then all go on
// with the one there is.
func (c *core) retargetIfDue(g *group) {
	cg := g.consumer
	if c.view == nil || cg.targetEpoch >= cg.epoch {
		return
	}
	if intervalOver(cg.targetAt, c.assignmentInterval(g), c.wall()) {
		c.retarget(g)
	}
}

func (c *core) assignmentInterval(g *group) int64 {
	return c.groupSetting(g.id, "consumer.assignment.interval.ms", c.cfg.ConsumerAssignmentMillis)
}

// intervalOver says whether another assignment may follow the one of that time; 0: there was none. A clock that was set back must
// not hold assignments up.
func intervalOver(at, interval, wall int64) bool {
	since := wall - at
	return at == 0 || since < 0 || since >= interval
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
	cg.targetEpoch, cg.targetAt = cg.epoch, c.wall()
	if len(cg.members) == 0 {
		cg.targetAt = 0 // whoever comes next need not wait
	}
	c.write(consumerTargetEpochRecord(g.id, cg.targetEpoch, cg.targetAt))
}

// reconcile takes a member one step nearer to its target, given what it says it owns (nil: what it was told last), and writes
// down what has changed. resubscribed says that it subscribes to something else than before.
func (c *core) reconcile(g *group, m *consumerMember, owned []TopicPartitions, resubscribed bool) *consumerMember {
	cg := g.consumer
	if !resubscribed && m.state == memberStable && m.epoch == cg.targetEpoch {
		return m
	}
	next := cg.advance(m, owned, resubscribed, c.readable(cg, m))
	changed := next.epoch != m.epoch || next.previous != m.previous || next.state != m.state || !next.assigned.same(m.assigned) || !next.revoking.same(m.revoking)
	if changed {
		c.write(consumerCurrentRecord(g.id, next))
		cg.put(next)
	}
	key := timerKey{timerRevocation, g.id, m.id}
	if next.state != memberUnrevoked || next.classic != nil {
		c.timers.cancel(key)
	} else if changed { // having given up one set, it has the whole time for the next
		c.timers.set(key, c.now+int64(max(next.rebalanceMillis, 0)))
	}
	return cg.members[m.id]
}

// readable says which topics a member subscribes to that there are. It may read no others, whatever its target is.
func (c *core) readable(g *consumerGroup, m *consumerMember) func(topic.ID) bool {
	if c.view == nil {
		return func(topic.ID) bool { return true }
	}
	names := g.subscribed(m)
	return func(id topic.ID) bool {
		t := c.view.byID(id)
		if t == nil {
			return false
		}
		_, ok := slices.BinarySearch(names, t.Name)
		return ok
	}
}

// advance is the state after m in its way to the target (KIP-848): first give up what is another's, then, once that is done,
// enter the target's epoch, and take what nobody has any more.
func (g *consumerGroup) advance(m *consumerMember, owned []TopicPartitions, resubscribed bool, readable func(topic.ID) bool) *consumerMember {
	switch m.state {
	case memberUnrevoked:
		if !mayOwn(owned, m.revoking) {
			break
		}
		if resubscribed {
			return m.trim(owned, readable)
		}
		return m
	case memberStable:
		if m.epoch != g.targetEpoch {
			break
		}
		if resubscribed {
			return m.trim(owned, readable)
		}
		return m
	}
	return g.toward(m, owned, readable)
}

// mayOwn says whether the member may still have something of a set, given what it says it owns.
func mayOwn(owned []TopicPartitions, of assignment) bool {
	if owned == nil {
		return true
	}
	for _, t := range owned {
		for _, p := range t.Partitions {
			if _, ok := of[tp{t.Topic, p}]; ok {
				return true
			}
		}
	}
	return false
}

// trim has a member give up what it no longer subscribes to, though its target is yet to be worked out.
func (m *consumerMember) trim(owned []TopicPartitions, readable func(topic.ID) bool) *consumerMember {
	n := m.clone()
	n.assigned, n.revoking = make(assignment, len(m.assigned)), maps.Clone(m.revoking)
	for p, at := range m.assigned {
		if readable(p.topic) {
			n.assigned[p] = at
		} else {
			n.revoking[p] = at
		}
	}
	if len(n.assigned) == len(m.assigned) {
		return m
	}
	if mayOwn(owned, n.revoking) {
		n.state = memberUnrevoked
	} else if n.state == memberStable {
		n.revoking = make(assignment)
	}
	return n
}

// toward works out the member's next state.
func (g *consumerGroup) toward(m *consumerMember, owned []TopicPartitions, readable func(topic.ID) bool) *consumerMember {
	n := m.clone()
	target := g.target[m.id]
	n.assigned, n.revoking = make(assignment), make(assignment)
	for p, at := range m.assigned {
		if _, ok := target[p]; ok && readable(p.topic) {
			n.assigned[p] = at
		} else {
			n.revoking[p] = at
		}
	}
	if len(n.revoking) > 0 && mayOwn(owned, n.revoking) {
		n.state = memberUnrevoked
		return n
	}
	n.revoking = make(assignment)
	waits := false
	for p := range target {
		if _, ok := n.assigned[p]; ok || !readable(p.topic) {
			continue
		}
		_, mine := m.revoking[p]
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
