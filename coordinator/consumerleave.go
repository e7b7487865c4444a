package coordinator

import (
	"maps"
	"slices"
)

// consumerLeave takes a member out, or, of a static member that will be back, only notes that it is away.
func (c *core) consumerLeave(q *ConsumerHeartbeatRequest) error {
	g := c.group(q.Group)
	switch {
	case g == nil:
		return refuse(ErrUnknownGroup, "Group %s not found.", q.Group)
	case g.consumer == nil:
		return refuse(ErrUnknownGroup, "Group %s is not a consumer group.", q.Group)
	}
	cg := g.consumer
	m := cg.members[q.MemberID]
	if err := cg.named(q.MemberID, q.InstanceID); err != nil {
		return err
	}
	if m == nil {
		return refuse(ErrUnknownMember, "Member %s is not a member of group %s.", q.MemberID, g.id)
	}
	if q.MemberEpoch == leaveStaticEpoch {
		// Its partitions wait for it until its session ends. What it had to give up it has given up by leaving.
		away := m.clone()
		away.epoch, away.assigned, away.revoking = leaveStaticEpoch, make(assignment, len(m.assigned)), make(assignment)
		for p := range m.assigned {
			away.assigned[p] = 0 // whoever comes back under its name may commit what it had read
		}
		cg.put(away)
		c.timers.cancel(timerKey{timerRevocation, g.id, m.id})
		c.write(consumerCurrentRecord(g.id, away))
		return nil
	}
	c.consumerGone(g, m)
	return nil
}

// consumerGone removes members for good; the others divide up what they had. When nobody is left but members of the classic
// protocol, the group is one of that protocol from then on.
func (c *core) consumerGone(g *group, gone ...*consumerMember) {
	if len(gone) == 0 || c.downgrade(g, gone, false) {
		return
	}
	for _, m := range gone {
		c.forget(g, m)
	}
	c.resolve(g)
	c.bump(g)
	if len(g.consumer.members) == 0 {
		c.retarget(g) // to nobody
	}
	g.since = c.wall() // the age of offsets in a group without members counts from here
}

// forget removes what is known and written of a member.
func (c *core) forget(g *group, m *consumerMember) {
	c.cancelSession(g, m.id)
	for _, kind := range []timerKind{timerRevocation, timerJoin, timerSync} {
		c.timers.cancel(timerKey{kind, g.id, m.id})
	}
	g.consumer.drop(m)
	c.write(record{key: consumerKey(keyConsumerCurrent, g.id, m.id)})
	c.write(record{key: consumerKey(keyConsumerTarget, g.id, m.id)})
	c.write(record{key: consumerKey(keyConsumerMember, g.id, m.id)})
}

// consumerTimedOut removes a member that was not heard of for its session, or that did not do in time what it had to: give
// up partitions, join again, sync.
func (c *core) consumerTimedOut(g *group, id string) {
	if m := g.consumer.members[id]; m != nil {
		c.consumerGone(g, m)
	}
}

var _ modern = (*consumerGroup)(nil)

func (g *consumerGroup) groupType() GroupType { return ConsumerGroup }

func (g *consumerGroup) protocolType() string { return consumerProtocol }

func (g *consumerGroup) size() int { return len(g.members) }

func (g *consumerGroup) written() bool { return g.epoch > firstEpoch || len(g.members) > 0 }

func (g *consumerGroup) tombstones(group string) (list []record) {
	for _, text := range slices.Sorted(maps.Keys(g.regexes)) {
		list = append(list, record{key: consumerRegexKey(group, text)})
	}
	return append(list, record{key: consumerKey(keyConsumerTargetEpoch, group, "")}, record{key: consumerKey(keyConsumerGroup, group, "")})
}

// describeConsumer is ConsumerGroupDescribe for one group.
func (c *core) describeConsumer(e event, q describeConsumer) {
	g := c.group(q.group)
	if q.group == "" {
		c.reply(e.ticket, &ConsumerDescription{State: Dead.String()}, ErrInvalidGroup)
		return
	}
	if g == nil || g.consumer == nil {
		err := refuse(ErrUnknownGroup, "Group %s not found.", q.group)
		if g != nil {
			err = refuse(ErrUnknownGroup, "Group %s is not a consumer group.", q.group)
		}
		c.reply(e.ticket, &ConsumerDescription{Group: q.group, State: Dead.String()}, err)
		return
	}
	cg := g.consumer
	d := &ConsumerDescription{
		Group: g.id, State: cg.stateName(), Assignor: cg.assignorName(c.cfg.ConsumerAssignors), Epoch: cg.epoch, AssignmentEpoch: cg.targetEpoch,
	}
	for _, m := range cg.list() {
		md := ConsumerMemberDescription{
			MemberID: m.id, InstanceID: m.instance, RackID: m.rack, ClientID: m.clientID, ClientHost: m.clientHost, Epoch: m.epoch,
			Topics: m.names, Regex: &m.regex, Assigned: grouped(m.holds(), c.view), Classic: m.classic != nil, Target: grouped(cg.target[m.id], c.view),
		}
		d.Members = append(d.Members, md)
	}
	c.reply(e.ticket, d, nil)
}

// grouped is an assignment by topic, in order. With a view topics are named, and those that are gone left out.
func grouped(a assignment, view *topicsView) []TopicPartitions {
	out := []TopicPartitions{}
	for _, p := range a.sorted() {
		if n := len(out); n > 0 && out[n-1].Topic == p.topic {
			out[n-1].Partitions = append(out[n-1].Partitions, p.index)
			continue
		}
		t := TopicPartitions{Topic: p.topic, Partitions: []int32{p.index}}
		if view != nil {
			known := view.byID(p.topic)
			if known == nil {
				continue
			}
			t.Name = known.Name
		}
		out = append(out, t)
	}
	return out
}

// consumerLoaded gives members their whole session to be heard of, and their time to give up what they have to.
func (c *core) consumerLoaded(g *group) {
	for _, m := range g.consumer.list() {
		c.setSession(g, m.id, c.groupSetting(g.id, "consumer.session.timeout.ms", c.cfg.ConsumerSessionMillis))
		if m.state == memberUnrevoked && m.classic == nil {
			c.timers.set(timerKey{timerRevocation, g.id, m.id}, c.now+int64(max(m.rebalanceMillis, 0)))
		}
	}
}
