package coordinator

func joinFailed(member string) *JoinResult {
	return &JoinResult{MemberID: member, Generation: NoGeneration}
}

// join is JoinGroup.
func (c *core) join(e event, q *JoinRequest) {
	fail := func(member string, err error) { c.reply(e.ticket, joinFailed(member), err) }
	switch {
	case q.Group == "":
		fail(q.MemberID, ErrInvalidGroup)
		return
	case q.SessionMillis < c.cfg.SessionMillisMin || q.SessionMillis > c.cfg.SessionMillisMax:
		fail(q.MemberID, ErrInvalidSessionTimeout)
		return
	}
	g := c.group(q.Group)
	if g == nil {
		if q.MemberID != "" {
			fail(q.MemberID, ErrUnknownMember)
			return
		}
		g = c.groupOrNew(q.Group)
	}
	switch {
	case g.consumer != nil && len(g.consumer.members) > 0:
		c.classicJoin(g, e, q)
		return
	case !g.memberless(), g.share != nil:
		fail("", ErrInconsistentProtocol)
		return
	}
	c.erase(g)
	defer c.settle(g)
	if !c.roomFor(g, q.MemberID) {
		g.remove(q.MemberID) // an id that was given out; a member has room
		c.cancelSession(g, q.MemberID)
		fail("", ErrGroupFull)
		return
	}
	if q.MemberID == "" {
		c.joinNew(g, e, q)
	} else {
		c.joinKnown(g, e, q)
	}
}

// roomFor says whether the group may take a join. While the group gathers its members, those that have arrived count: this
// also turns away the last to come when group.max.size has been lowered.
func (c *core) roomFor(g *group, id string) bool {
	m := g.members[id]
	limit := int(c.cfg.GroupSizeMax)
	switch g.state {
	case PreparingRebalance:
		return m != nil && m.join != 0 || g.awaiting < limit
	case CompletingRebalance, Stable:
		return m != nil || len(g.members) < limit
	}
	return true
}

// joinNew is the join of a member that has no id.
func (c *core) joinNew(g *group, e event, q *JoinRequest) {
	if !g.speaks(q.ProtocolType, q.Protocols) {
		c.reply(e.ticket, joinFailed(""), ErrInconsistentProtocol)
		return
	}
	if q.InstanceID != nil {
		id := *q.InstanceID + "-" + e.newID
		if old, ok := g.static[*q.InstanceID]; ok {
			c.replaceStatic(g, old, id, e, q)
		} else {
			c.addMember(g, id, e, q)
		}
		return
	}
	id := q.ClientID + "-" + e.newID
	if !q.NeedMemberID {
		c.addMember(g, id, e, q)
		return
	}
	put(&g.pending, id, struct{}{})
	c.setSession(g, id, int64(q.SessionMillis))
	c.reply(e.ticket, joinFailed(id), ErrMemberIDRequired)
}

// joinKnown is the join of a member that names its id.
func (c *core) joinKnown(g *group, e event, q *JoinRequest) {
	if !g.speaks(q.ProtocolType, q.Protocols) {
		c.reply(e.ticket, joinFailed(q.MemberID), ErrInconsistentProtocol)
		return
	}
	if _, ok := g.pending[q.MemberID]; ok && q.InstanceID == nil {
		c.addMember(g, q.MemberID, e, q)
		return
	}
	m, err := g.check(q.MemberID, q.InstanceID)
	if err != nil {
		c.reply(e.ticket, joinFailed(q.MemberID), err)
		return
	}
	again := true
	switch g.state {
	case Empty: // cannot be: it has a member. Let it start over.
		c.reply(e.ticket, joinFailed(""), ErrUnknownMember)
		return
	case CompletingRebalance:
		// The same metadata again: perhaps it has not received the first answer.
		again = !m.same(q.Protocols)
	case Stable:
		// The leader rejoins to have partitions assigned anew, for reasons that the metadata need not show.
		again = g.leader == m.id || !m.same(q.Protocols)
	}
	if !again {
		c.reply(e.ticket, g.joinResult(m), nil)
		return
	}
	c.updateMember(g, m, e.ticket, q)
	c.rebalance(g)
}

// joinResult is the answer for a member of the current generation.
func (g *group) joinResult(m *member) *JoinResult {
	r := &JoinResult{
		MemberID: m.id, Generation: g.generation, ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader,
	}
	if g.leader == m.id {
		r.Members = g.joined()
	}
	return r
}

// addMember puts a member in and has the group rebalance.
func (c *core) addMember(g *group, id string, e event, q *JoinRequest) {
	if g.state == PreparingRebalance && g.previous == Empty {
		g.newcomer = true
	}
	if len(g.members) == 0 {
		t := q.ProtocolType
		g.protocolType = &t
	}
	g.add(&member{
		id: id, instance: q.InstanceID, clientID: q.ClientID, clientHost: q.ClientHost,
		rebalanceMillis: int64(q.RebalanceMillis), sessionMillis: int64(q.SessionMillis),
		protocols: q.Protocols, fresh: true, join: e.ticket,
	})
	c.setSession(g, id, c.cfg.NewMemberMillis)
	c.rebalance(g)
}

// updateMember takes a member's new join in place of what it had.
func (c *core) updateMember(g *group, m *member, ticket uint64, q *JoinRequest) {
	g.count(m, -1)
	m.protocols = q.Protocols
	g.count(m, 1)
	m.rebalanceMillis, m.sessionMillis = int64(q.RebalanceMillis), int64(q.SessionMillis)
	c.endJoin(g, m, joinFailed(m.id), ErrRebalancing) // a join that was parked: its connection is most likely gone
	m.join = ticket
	g.awaiting++
}

// endJoin answers a parked join, if there is one.
func (c *core) endJoin(g *group, m *member, r *JoinResult, err error) {
	if m.join == 0 {
		return
	}
	c.reply(m.join, r, err)
	m.join = 0
	g.awaiting--
}

// endSync answers a parked sync, if there is one, and reports whether there was.
func (c *core) endSync(m *member, r *SyncResult, err error) bool {
	if m.sync == 0 {
		return false
	}
	c.reply(m.sync, r, err)
	m.sync = 0
	return true
}

// replaceStatic lets a static member that comes without its id take over what it was (KIP-345).
func (c *core) replaceStatic(g *group, old, id string, e event, q *JoinRequest) {
	m := g.members[old]
	leaderBefore := g.leader
	c.endJoin(g, m, joinFailed(old), ErrFencedInstance)
	c.endSync(m, &SyncResult{}, ErrFencedInstance)
	c.cancelSession(g, old)
	delete(g.members, old)
	delete(g.unsynced, old)
	m.id, m.clientID, m.clientHost = id, q.ClientID, q.ClientHost
	put(&g.members, id, m)
	put(&g.static, *m.instance, id)
	if g.leader == old {
		g.leader = id
	}
	c.updateMember(g, m, e.ticket, q)
	c.setSession(g, id, m.sessionMillis)

	switch g.state {
	case Stable:
		if g.vote() != *g.protocol {
			c.rebalance(g)
			return
		}
		// The assignment stays: only the new id must survive a restart.
		if !c.persist(g) {
			c.rebalance(g)
			return
		}
		r := g.joinResult(m)
		if q.MaySkipAssignment {
			r.SkipAssignment = g.leader == id
		} else {
			// An old client would take a leader's answer as the order to assign: it is shown as a follower of its former
			// self, and its SyncGroup gives it the assignment it had.
			r.Leader, r.Members = leaderBefore, nil
		}
		c.endJoin(g, m, r, nil)
	default:
		// The leader may be assigning to the old id right now, or the group is gathering.
		c.rebalance(g)
	}
}
