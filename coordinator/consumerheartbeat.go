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
	if err == nil && c.talkative(q.said()) {
		err = ErrTooLarge
	}
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

// consumerOf finds the consumer group that a heartbeat is for, making one when a member joins a group that nobody is in, or one of
// the classic protocol.
func (c *core) consumerOf(q *ConsumerHeartbeatRequest) (*group, error) {
	join := q.MemberEpoch == joinEpoch
	g := c.group(q.Group)
	switch {
	case g != nil && g.consumer != nil:
		return g, nil
	case !join && g == nil:
		return nil, refuse(ErrUnknownGroup, "Consumer group %s not found.", q.Group)
	case !join, g != nil && g.modern() != nil:
		return nil, refuse(ErrUnknownGroup, "Group %s is not a consumer group.", q.Group)
	case g != nil && (g.state != Empty || len(g.members) > 0):
		known := g.members[q.MemberID] != nil
		if q.InstanceID != nil {
			_, static := g.static[*q.InstanceID]
			known = known || static
		}
		if !known && len(g.members) == int(c.cfg.ConsumerSizeMax) {
			return nil, fullError(c)
		}
		return c.upgrade(g)
	case g == nil:
		g = c.groupOrNew(q.Group)
	}
	c.endClassic(g)
	g = c.replaced(g)
	g.consumer = newConsumerGroup(c.wall())
	return g, nil
}

// consumerBeat takes a heartbeat of a member that is or wants to be in the group.
func (c *core) consumerBeat(e event, q *ConsumerHeartbeatRequest, r *ConsumerHeartbeatResult) error {
	if q.Regex != nil && *q.Regex != "" {
		if _, err := compileRegex(*q.Regex); err != nil {
			return err
		}
	}
	g, err := c.consumerOf(q)
	if err != nil {
		return err
	}
	if q.MemberID == "" {
		q.MemberID = e.newID
		r.MemberID = q.MemberID
	}
	was, fresh, err := c.consumerMember(g, q)
	if err != nil {
		c.settle(g)
		return err
	}
	m := was.clone()
	m.take(q)
	if was.classic != nil {
		// It goes on with the consumer protocol: nobody waits for it to join or sync.
		c.timers.cancel(timerKey{timerJoin, g.id, m.id})
		c.timers.cancel(timerKey{timerSync, g.id, m.id})
	}
	resubscribed := c.enrol(g, was, m)
	c.retargetIfDue(g)
	m = c.reconcile(g, m, q.Owned, resubscribed)
	c.setSession(g, m.id, c.groupSetting(g.id, "consumer.session.timeout.ms", c.cfg.ConsumerSessionMillis))
	r.MemberEpoch = m.epoch
	r.HeartbeatMillis = c.consumerWaits(g, m).interval(c.groupSetting(g.id, "consumer.heartbeat.interval.ms", c.cfg.ConsumerHeartbeatMillis))
	full := q.MemberEpoch == joinEpoch || q.RebalanceMillis != -1 && (q.Topics != nil || q.Regex != nil) && q.Owned != nil
	if full || fresh || !was.assigned.same(m.assigned) {
		r.HasAssignment, r.Assigned = true, grouped(m.assigned, nil)
	}
	return nil
}

// consumerWaits is what a member waits for.
func (c *core) consumerWaits(g *group, m *consumerMember) waiting {
	cg := g.consumer
	return waiting{
		members: len(cg.members), others: m.state == memberUnreleased,
		due: c.untilAssignment(cg.epoch, cg.targetEpoch, cg.targetAt, c.assignmentInterval(g)),
	}
}

// enrol puts a member into the group as it is now, in place of what it was. If that, or the topics there are, changes what the
// group reads, another epoch of the group begins. It reports whether the member subscribes to something else.
func (c *core) enrol(g *group, was, m *consumerMember) (resubscribed bool) {
	cg := g.consumer
	if cg.members[m.id] == nil || !was.sameAs(m) {
		c.write(consumerMemberRecord(g.id, m))
	}
	assignor := cg.assignorName(c.cfg.ConsumerAssignors)
	cg.put(m)
	resubscribed = !slices.Equal(was.names, m.names) || was.regex != m.regex
	resolved := c.resolve(g)
	if resubscribed || resolved || !same(was.rack, m.rack) || assignor != cg.assignorName(c.cfg.ConsumerAssignors) || c.topicsChanged(g) {
		c.bump(g)
	}
	return resubscribed
}

// full says whether the group has no room for another member. Who has a place already keeps it.
func (c *core) full(cg *consumerGroup, id string, instance *string) bool {
	if instance != nil {
		if _, ok := cg.static[*instance]; ok {
			return false
		}
	}
	return cg.members[id] == nil && len(cg.members) >= int(c.cfg.ConsumerSizeMax)
}

func fullError(c *core) error {
	return refuse(ErrGroupFull, "The consumer group has reached its maximum capacity of %d members.", c.cfg.ConsumerSizeMax)
}

// groupSetting is a group's own setting, or the broker's: as it was last altered for this broker or for all, or as it started with.
func (c *core) groupSetting(group, name string, otherwise int32) int64 {
	if c.view != nil {
		img, broker := c.view.img, "group."+name
		for _, text := range []string{img.GroupConfigs(group)[name], img.BrokerConfigs(c.cfg.NodeID)[broker], img.BrokerDefaultConfigs()[broker]} {
			if n, err := strconv.ParseInt(text, 10, 32); err == nil {
				return n
			}
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
		id, ok := cg.static[*q.InstanceID]
		if ok && (join || id != q.MemberID) {
			return c.takeOver(g, cg.members[id], q)
		}
		if !ok && !join {
			return nil, false, refuse(ErrUnknownMember, "Instance id %s is unknown.", *q.InstanceID)
		}
	}
	switch {
	case m == nil && !join:
		return nil, false, refuse(ErrUnknownMember, "Member %s is not a member of group %s.", q.MemberID, g.id)
	case c.full(cg, q.MemberID, q.InstanceID):
		return nil, false, fullError(c)
	case m == nil:
		return &consumerMember{
			id: q.MemberID, instance: q.InstanceID, rebalanceMillis: -1, assigned: assignment{}, revoking: assignment{},
		}, true, nil
	}
	return m, false, m.checkEpoch(q)
}

// takeOver lets a static member that is back have what its instance id had. Until that has left it is refused, be it the same
// member: who is not told that its answer was lost cannot know it from another process of the same name.
func (c *core) takeOver(g *group, old *consumerMember, q *ConsumerHeartbeatRequest) (*consumerMember, bool, error) {
	switch {
	case q.MemberEpoch != joinEpoch:
		return nil, false, refuse(ErrFencedInstance, "Static member %s with instance id %s was fenced by member %s.", q.MemberID, *q.InstanceID, old.id)
	case old.epoch != leaveStaticEpoch && old.classic == nil:
		return nil, false, refuse(ErrUnreleasedInstance, "Static member %s with instance id %s cannot join the group because the instance id is owned by %s member.", q.MemberID, *q.InstanceID, old.id)
	}
	if old.id == q.MemberID {
		return old, false, old.checkEpoch(q)
	}
	return c.succeed(g, old, q.MemberID), false, nil
}

// succeed puts another member in the place of a static one.
func (c *core) succeed(g *group, old *consumerMember, id string) *consumerMember {
	m := old.clone()
	m.id, m.epoch, m.previous = id, joinEpoch, joinEpoch
	target := g.consumer.target[old.id]
	c.forget(g, old)
	c.write(consumerMemberRecord(g.id, m))
	if target != nil {
		g.consumer.target[m.id] = target
		c.write(consumerTargetRecord(g.id, m.id, target))
	}
	g.consumer.put(m)
	c.write(consumerCurrentRecord(g.id, m))
	return m
}

// checkEpoch decides whether a heartbeat is from the member as it is now. One epoch back is, too, if it says that it owns no
// more than it may: then the answer to it was lost.
func (m *consumerMember) checkEpoch(q *ConsumerHeartbeatRequest) error {
	switch {
	case m.state == memberUnknown && (q.Owned == nil || len(q.Owned) > 0):
		return refuse(ErrFencedMemberEpoch, "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.")
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

// take takes over what a heartbeat says of its member.
func (m *consumerMember) take(q *ConsumerHeartbeatRequest) {
	set := func(to **string, v *string) {
		if v != nil {
			*to = v
		}
	}
	set(&m.instance, q.InstanceID)
	set(&m.rack, q.RackID)
	set(&m.assignor, q.Assignor)
	m.clientID, m.clientHost, m.classic = q.ClientID, q.ClientHost, nil
	if q.RebalanceMillis != -1 {
		m.rebalanceMillis = q.RebalanceMillis
	}
	if q.Topics != nil {
		m.names = sortedDistinct(slices.Clone(q.Topics))
	}
	if q.Regex != nil {
		m.regex = *q.Regex
	}
}

// sameAs says whether the records of two states of a member would be the same.
func (m *consumerMember) sameAs(o *consumerMember) bool {
	return m.clientID == o.clientID && m.clientHost == o.clientHost && same(m.instance, o.instance) && same(m.rack, o.rack) &&
		slices.Equal(m.names, o.names) && m.regex == o.regex && same(m.assignor, o.assignor) &&
		m.rebalanceMillis == o.rebalanceMillis && m.classic.same(o.classic)
}

func same[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// compileRegex reads a subscription's regular expression (RE2). The whole name has to match.
func compileRegex(text string) (*regexp.Regexp, error) {
	re, err := regexp.Compile("^(?:" + text + ")$")
	if err != nil {
		return nil, refuse(ErrInvalidRegex, "SubscribedTopicRegex `%s` is not a valid regular expression: %v", text, err)
	}
	return re, nil
}
