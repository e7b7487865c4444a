package coordinator

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// consumerHeartbeat is ConsumerGroupHeartbeat: joining, leaving, and everything between.
func (c *core) consumerHeartbeat(e event, q *ConsumerHeartbeatRequest) {
	r := &ConsumerHeartbeatResult{MemberID: q.MemberID, MemberEpoch: q.MemberEpoch}
	err := c.checkHeartbeat(q)
	if err == nil {
		switch q.MemberEpoch {
		case leaveEpoch, leaveStaticEpoch:
			err = c.consumerLeave(q)
		default:
			err = c.consumerBeat(e, q, r)
		}
	}
	c.reply(e.ticket, r, err)
}

func invalid(text string) error { return refuse(ErrInvalidHeartbeat, "%s", text) }

// checkHeartbeat is Kafka's check of a request's form, with its texts.
func (c *core) checkHeartbeat(q *ConsumerHeartbeatRequest) error {
	empty := func(s *string) bool { return s != nil && strings.TrimSpace(*s) == "" }
	first := len(q.Topics) == 0 && (q.Regex == nil || *q.Regex == "")
	switch {
	case strings.TrimSpace(q.Group) == "":
		return invalid("GroupId can't be empty.")
	case empty(q.InstanceID):
		return invalid("InstanceId can't be empty.")
	case empty(q.RackID):
		return invalid("RackId can't be empty.")
	case q.MemberID == "" && (q.NamesItself || q.MemberEpoch != joinEpoch):
		return invalid("MemberId can't be empty.")
	case q.MemberEpoch == joinEpoch && q.RebalanceMillis == -1:
		return invalid("RebalanceTimeoutMs must be provided in first request.")
	case q.MemberEpoch == joinEpoch && (q.Owned == nil || len(q.Owned) > 0):
		return invalid("TopicPartitions must be empty when (re-)joining.")
	case q.MemberEpoch == joinEpoch && first:
		return invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
	case q.MemberEpoch == leaveStaticEpoch && q.InstanceID == nil:
		return invalid("InstanceId can't be null.")
	case q.MemberEpoch < leaveStaticEpoch:
		return invalid("MemberEpoch is invalid.")
	case q.Assignor != nil && !slices.Contains(c.cfg.ConsumerAssignors, *q.Assignor):
		return refuse(ErrUnsupportedAssignor, "ServerAssignor %s is not supported. Supported assignors: %s.", *q.Assignor, strings.Join(c.cfg.ConsumerAssignors, ", "))
	}
	return nil
}

// consumerOf finds the consumer group of that name, making one when a member joins a group that nobody is in.
func (c *core) consumerOf(name string, join bool) (*group, error) {
	g := c.group(name)
	switch {
	case g != nil && g.consumer != nil:
		return g, nil
	case !join && g == nil:
		return nil, refuse(ErrUnknownGroup, "Consumer group %s not found.", name)
	case !join, g != nil && (g.state != Empty || len(g.members) > 0):
		return nil, refuse(ErrUnknownGroup, "Group %s is not a consumer group.", name)
	case g == nil:
		g = c.groupOrNew(name)
	}
	if g.persisted {
		c.write(groupTombstone(name))
		g.persisted = false
	}
	bare := newGroup(name, c.wall())
	bare.offsets, bare.txns, bare.consumer = g.offsets, g.txns, newConsumerGroup(c.wall())
	for id := range g.pending {
		c.cancelSession(g, id)
	}
	c.groups[name] = bare
	return bare, nil
}

// consumerBeat takes a heartbeat of a member that is or wants to be in the group.
func (c *core) consumerBeat(e event, q *ConsumerHeartbeatRequest, r *ConsumerHeartbeatResult) error {
	if q.Regex != nil && *q.Regex != "" {
		if _, err := compileRegex(*q.Regex); err != nil {
			return err
		}
	}
	join := q.MemberEpoch == joinEpoch
	g, err := c.consumerOf(q.Group, join)
	if err != nil {
		return err
	}
	if q.MemberID == "" {
		q.MemberID = e.newID
		r.MemberID = q.MemberID
	}
	m, fresh, err := c.consumerMember(g, q)
	if err != nil {
		c.settle(g)
		return err
	}
	was := m
	m = m.clone()
	changed := m.take(q)
	if fresh || changed {
		c.write(consumerMemberRecord(g.id, m))
	}
	g.consumer.put(m)
	resubscribed := c.resolve(g)
	if fresh || changed && !was.reads(m) || resubscribed || c.topicsChanged(g) {
		c.bump(g)
	}
	if c.view != nil && g.consumer.targetEpoch < g.consumer.epoch {
		c.retarget(g)
	}
	m = c.reconcile(g, m, q.Owned)
	c.setSession(g, m.id, c.consumerSetting(g.id, "consumer.session.timeout.ms", c.cfg.ConsumerSessionMillis))
	r.MemberEpoch = m.epoch
	r.HeartbeatMillis = int32(c.consumerSetting(g.id, "consumer.heartbeat.interval.ms", c.cfg.ConsumerHeartbeatMillis))
	full := join || q.RebalanceMillis != -1 && (q.Topics != nil || q.Regex != nil) && q.Owned != nil
	if full || fresh || !was.assigned.same(m.assigned) {
		r.HasAssignment, r.Assigned = true, grouped(m.assigned, nil)
	}
	return nil
}

// consumerSetting is a group's own setting, or the broker's.
func (c *core) consumerSetting(group, name string, otherwise int32) int64 {
	if text, ok := c.view.settings(group)[name]; ok {
		if n, err := strconv.ParseInt(text, 10, 32); err == nil {
			return n
		}
	}
	return int64(otherwise)
}

// consumerMember finds the member that a heartbeat comes from, or makes it.
func (c *core) consumerMember(g *group, q *ConsumerHeartbeatRequest) (m *consumerMember, fresh bool, err error) {
	cg := g.consumer
	join := q.MemberEpoch == joinEpoch
	m = cg.members[q.MemberID]
	if q.InstanceID != nil {
		if id, ok := cg.static[*q.InstanceID]; ok && id != q.MemberID {
			return c.takeOver(g, cg.members[id], q)
		}
		if m == nil && !join {
			return nil, false, refuse(ErrUnknownMember, "Instance id %s is unknown.", *q.InstanceID)
		}
	}
	switch {
	case m == nil && !join:
		return nil, false, refuse(ErrUnknownMember, "Member %s is not a member of group %s.", q.MemberID, g.id)
	case m == nil && len(cg.members) >= int(c.cfg.ConsumerSizeMax):
		return nil, false, refuse(ErrGroupFull, "The consumer group has reached its maximum capacity of %d members.", c.cfg.ConsumerSizeMax)
	case m == nil:
		return &consumerMember{
			id: q.MemberID, instance: q.InstanceID, rebalanceMillis: -1, assigned: assignment{}, revoking: assignment{},
		}, true, nil
	}
	return m, false, m.checkEpoch(q)
}

// takeOver lets a static member that is back have what its instance id had.
func (c *core) takeOver(g *group, old *consumerMember, q *ConsumerHeartbeatRequest) (*consumerMember, bool, error) {
	switch {
	case q.MemberEpoch != joinEpoch:
		return nil, false, refuse(ErrFencedInstance, "Static member %s with instance id %s was fenced by member %s.", q.MemberID, *q.InstanceID, old.id)
	case old.epoch != leaveStaticEpoch:
		return nil, false, refuse(ErrUnreleasedInstance, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.", q.MemberID, *q.InstanceID, old.id)
	}
	m := old.clone()
	m.id, m.epoch, m.previous = q.MemberID, joinEpoch, leaveStaticEpoch
	target := g.consumer.target[old.id]
	c.forget(g, old)
	if target != nil {
		g.consumer.target[m.id] = target
		c.write(consumerTargetRecord(g.id, m.id, target))
	}
	c.write(consumerMemberRecord(g.id, m))
	g.consumer.put(m)
	c.write(consumerCurrentRecord(g.id, m))
	return m, false, nil
}

// checkEpoch decides whether a heartbeat is from the member as it is now. One epoch back is, too, if it says that it owns no
// more than it may: then the answer to it was lost.
func (m *consumerMember) checkEpoch(q *ConsumerHeartbeatRequest) error {
	switch {
	case q.MemberEpoch == joinEpoch || q.MemberEpoch == m.epoch:
		return nil
	case q.MemberEpoch > m.epoch:
		return refuse(ErrFencedMemberEpoch, "The consumer group member has a greater member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", q.MemberEpoch, m.epoch)
	case q.MemberEpoch == m.previous && q.Owned != nil && m.owns(q.Owned):
		return nil
	}
	return refuse(ErrFencedMemberEpoch, "The consumer group member has a smaller member epoch (%d) than the one known by the group coordinator (%d). The member must abandon all its partitions and rejoin.", q.MemberEpoch, m.epoch)
}

// owns says whether everything of the list is assigned to the member.
func (m *consumerMember) owns(list []TopicPartitions) bool {
	for _, t := range list {
		for _, p := range t.Partitions {
			if _, ok := m.assigned[tp{t.Topic, p}]; !ok {
				return false
			}
		}
	}
	return true
}

// take takes over what a heartbeat says of its member, and reports whether anything is new.
func (m *consumerMember) take(q *ConsumerHeartbeatRequest) (changed bool) {
	set := func(to **string, v *string) {
		if v != nil && (*to == nil || **to != *v) {
			*to, changed = v, true
		}
	}
	set(&m.instance, q.InstanceID)
	set(&m.rack, q.RackID)
	set(&m.assignor, q.Assignor)
	if m.clientID != q.ClientID || m.clientHost != q.ClientHost {
		m.clientID, m.clientHost, changed = q.ClientID, q.ClientHost, true
	}
	if q.RebalanceMillis != -1 && q.RebalanceMillis != m.rebalanceMillis {
		m.rebalanceMillis, changed = q.RebalanceMillis, true
	}
	if q.Topics != nil {
		names := slices.Clone(q.Topics)
		slices.Sort(names)
		names = slices.Compact(names)
		if !slices.Equal(names, m.names) {
			m.names, changed = names, true
		}
	}
	if q.Regex != nil && *q.Regex != m.regex {
		m.regex, changed = *q.Regex, true
	}
	return changed
}

// reads says whether two states of a member subscribe to the same, and would be assigned the same.
func (m *consumerMember) reads(o *consumerMember) bool {
	same := func(a, b *string) bool { return a == b || a != nil && b != nil && *a == *b }
	return slices.Equal(m.names, o.names) && m.regex == o.regex && same(m.assignor, o.assignor) && same(m.rack, o.rack)
}

// compileRegex reads a subscription's regular expression (RE2). The whole name has to match.
func compileRegex(text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile("^(?:" + text + ")$")
	if err != nil {
		return nil, refuse(ErrInvalidRegex, "SubscribedTopicRegex `%s` is not a valid regular expression: %v", text, err)
	}
	return re, nil
}
