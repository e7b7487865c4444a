package coordinator

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Members of a consumer group that speak the classic protocol: while a group changes from one protocol to the other, both kinds
// are in it. The coordinator decides for all. A classic member takes each step towards its target by joining again: it is told to
// by its heartbeats, its join is answered at once, and its sync brings what it may read. Its generation is its epoch.

// classicJoin is JoinGroup to a consumer group that has members.
func (c *core) classicJoin(g *group, e event, q *JoinRequest) {
	id, r, err := q.MemberID, (*JoinResult)(nil), error(nil)
	if c.cfg.Migration == (Migration{}) {
		err = refuse(ErrInconsistentProtocol, "Cannot join the consumer group %s with the classic protocol because the group migration is disabled.", g.id)
	} else {
		if id == "" {
			id = e.newID
		}
		r, err = c.classicJoined(g, id, q)
	}
	if r == nil {
		r = joinFailed("")
		if err == ErrMemberIDRequired {
			r.MemberID = id
		}
	}
	c.reply(e.ticket, r, err)
}

func (c *core) classicJoined(g *group, id string, q *JoinRequest) (*JoinResult, error) {
	cg := g.consumer
	var subscription kmsg.ConsumerMemberMetadata
	switch {
	case c.talkative(q.said()):
		return nil, ErrTooLarge
	case c.full(cg, id, q.InstanceID):
		return nil, fullError(c)
	case !cg.speaks(q.ProtocolType, q.Protocols):
		return nil, refuse(ErrInconsistentProtocol, "Member %s's protocols are not supported.", id)
	case q.NeedMemberID && q.MemberID == "" && q.InstanceID == nil:
		return nil, ErrMemberIDRequired
	case subscription.ReadFrom(q.Protocols[0].Metadata) != nil:
		return nil, refuse(ErrInconsistentProtocol, "Malformed embedded consumer protocol in subscription deserialization.")
	}
	was, last, err := c.classicFound(g, id, q)
	if err != nil {
		return nil, err
	}
	m := was.clone()
	if q.InstanceID != nil {
		m.instance = q.InstanceID
	}
	if subscription.Rack != nil {
		m.rack = subscription.Rack
	}
	m.rebalanceMillis, m.clientID, m.clientHost = q.RebalanceMillis, q.ClientID, q.ClientHost
	m.names, m.regex = sortedDistinct(slices.Clone(subscription.Topics)), ""
	m.classic = &classicMember{sessionMillis: q.SessionMillis, protocols: q.Protocols}

	resubscribed := c.enrol(g, was, m)
	owned := c.ownedPartitions(&subscription)
	if last {
		// It has taken the place of the last one that spoke the consumer protocol.
		upToDate := cg.targetEpoch == cg.epoch
		if upToDate {
			m = c.reconcile(g, m, owned, resubscribed)
		}
		if c.downgrade(g, nil, upToDate) {
			return classicResult(m), nil
		}
	}
	c.retargetIfDue(g)
	m = c.reconcile(g, m, owned, resubscribed)
	c.timers.cancel(timerKey{timerJoin, g.id, m.id})
	c.setSession(g, m.id, int64(q.SessionMillis))
	c.timers.set(timerKey{timerSync, g.id, m.id}, c.now+int64(max(q.RebalanceMillis, 0)))
	return classicResult(m), nil
}

// classicResult is the answer to a join: nobody is told to assign.
func classicResult(m *consumerMember) *JoinResult {
	kind := consumerProtocol
	return &JoinResult{MemberID: m.id, Generation: m.epoch, ProtocolType: &kind, Protocol: &m.classic.protocols[0].Name}
}

// classicFound finds the member that joins, or makes it. last says that it has taken the place of a static member that was the
// only one that spoke the consumer protocol.
func (c *core) classicFound(g *group, id string, q *JoinRequest) (m *consumerMember, last bool, err error) {
	cg := g.consumer
	fresh := &consumerMember{id: id, rebalanceMillis: -1, assigned: assignment{}, revoking: assignment{}}
	if q.InstanceID == nil {
		if m := cg.members[id]; m != nil {
			return m, false, nil
		}
		return fresh, false, nil
	}
	held, ok := cg.static[*q.InstanceID]
	switch {
	case q.MemberID != "" && !ok:
		return nil, false, refuse(ErrUnknownMember, "Instance id %s is unknown.", *q.InstanceID)
	case q.MemberID != "" && held != id:
		return nil, false, refuse(ErrFencedInstance, "Static member %s with instance id %s was fenced by member %s.", id, *q.InstanceID, held)
	case !ok:
		return fresh, false, nil
	}
	old := cg.members[held]
	last = old.classic == nil && !slices.ContainsFunc(cg.list(), func(m *consumerMember) bool { return m != old && m.classic == nil })
	if held != id {
		old = c.succeed(g, old, id)
	}
	return old, last, nil
}

// ownedPartitions is what a classic member says it has.
func (c *core) ownedPartitions(m *kmsg.ConsumerMemberMetadata) []TopicPartitions {
	out := []TopicPartitions{}
	for _, t := range m.OwnedPartitions {
		if known := c.view.byName(t.Topic); known != nil {
			out = append(out, TopicPartitions{Topic: known.ID, Name: t.Topic, Partitions: t.Partitions})
		}
	}
	return out
}

// classicOf finds the classic member that a request names, which must be of that generation.
func (g *group) classicOf(id string, instance *string, generation int32) (*consumerMember, error) {
	if err := g.consumer.named(id, instance); err != nil {
		return nil, err
	}
	m := g.consumer.members[id]
	switch {
	case m == nil:
		return nil, ErrUnknownMember
	case m.classic == nil:
		return nil, refuse(ErrUnknownMember, "Member %s does not use the classic protocol.", id)
	case generation != m.epoch:
		return nil, ErrIllegalGeneration
	}
	return m, nil
}

// named checks that an instance id, if one is given, is that member's.
func (g *consumerGroup) named(id string, instance *string) error {
	if instance == nil {
		return nil
	}
	switch held, ok := g.static[*instance]; {
	case !ok:
		return refuse(ErrUnknownMember, "Instance id %s is unknown.", *instance)
	case held != id:
		return refuse(ErrFencedInstance, "Static member %s with instance id %s was fenced by member %s.", id, *instance, held)
	}
	return nil
}

// classicSync is SyncGroup of a member of a consumer group.
func (c *core) classicSync(g *group, e event, q *SyncRequest) {
	fail := func(err error) { c.reply(e.ticket, &SyncResult{}, err) }
	m, err := g.classicOf(q.MemberID, q.InstanceID, q.Generation)
	switch {
	case err != nil:
		fail(err)
		return
	case q.ProtocolType != nil && *q.ProtocolType != consumerProtocol, q.Protocol != nil && *q.Protocol != m.classic.protocols[0].Name:
		fail(ErrInconsistentProtocol)
		return
	case g.consumer.targetEpoch > m.epoch && m.state != memberUnrevoked:
		c.awaitJoin(g, m)
		fail(ErrRebalancing)
		return
	}
	data, ok := c.classicAssignment(m.assigned, m.classic.protocols[0].Metadata)
	if !ok { // its join was read
		fail(ErrInconsistentProtocol)
		return
	}
	c.timers.cancel(timerKey{timerSync, g.id, m.id})
	c.setSession(g, m.id, int64(m.classic.sessionMillis))
	c.reply(e.ticket, &SyncResult{ProtocolType: q.ProtocolType, Protocol: q.Protocol, Assignment: data}, nil)
}

// classicHeartbeat is Heartbeat of a member of a consumer group. It is told to join again whenever that would bring it nearer to
// its target.
func (c *core) classicHeartbeat(g *group, e event, q *HeartbeatRequest) {
	m, err := g.classicOf(q.MemberID, q.InstanceID, q.Generation)
	if err != nil {
		c.reply(e.ticket, nil, err)
		return
	}
	c.setSession(g, m.id, int64(m.classic.sessionMillis))
	if !slices.ContainsFunc(g.consumer.list(), func(m *consumerMember) bool { return m.classic == nil }) {
		// The group was not made a classic one when the last other member left: nobody else brings it forward.
		if c.topicsChanged(g) {
			c.bump(g)
		}
		c.retargetIfDue(g)
	}
	if m.epoch < g.consumer.targetEpoch || m.state == memberUnrevoked || m.state == memberUnreleased && !g.consumer.waits(m) {
		c.awaitJoin(g, m)
		err = ErrRebalancing
	}
	c.reply(e.ticket, nil, err)
}

// awaitJoin gives a member that was told to join again its rebalance timeout, from the first time it was told.
func (c *core) awaitJoin(g *group, m *consumerMember) {
	if key := (timerKey{timerJoin, g.id, m.id}); !c.timers.has(key) {
		c.timers.set(key, c.now+int64(max(m.rebalanceMillis, 0)))
	}
}

// waits says whether something of the member's target is still with another.
func (g *consumerGroup) waits(m *consumerMember) bool {
	for p := range g.target[m.id] {
		if _, mine := m.assigned[p]; mine {
			continue
		}
		if _, taken := g.owners[p]; taken {
			return true
		}
	}
	return false
}

// classicLeave is LeaveGroup to a consumer group; members of both kinds may be named.
func (c *core) classicLeave(g *group, e event, q *LeaveRequest) {
	r := &LeaveResult{Errs: make([]error, len(q.Members))}
	var gone []*consumerMember
	for i := range q.Members {
		l := &q.Members[i]
		id := l.MemberID
		if l.InstanceID != nil && id == "" {
			id = g.consumer.static[*l.InstanceID]
		}
		if r.Errs[i] = g.consumer.named(id, l.InstanceID); r.Errs[i] != nil {
			continue
		}
		m := g.consumer.members[id]
		if m == nil {
			r.Errs[i] = ErrUnknownMember
		} else if !slices.Contains(gone, m) {
			gone = append(gone, m)
		}
	}
	c.consumerGone(g, gone...)
	c.reply(e.ticket, r, nil)
}
