package coordinator

// currentMember finds the member that a request names, which must be of the
// group's generation.
func (c *core) currentMember(name, memberID string, instanceID *string, generation int32) (*group, *member, error) {
	if name == "" {
		return nil, nil, ErrInvalidGroup
	}
	g := c.group(name)
	if g == nil {
		return nil, nil, ErrUnknownMember
	}
	m, err := g.check(memberID, instanceID)
	switch {
	case err != nil:
		return nil, nil, err
	case generation != g.generation:
		return nil, nil, ErrIllegalGeneration
	}
	return g, m, nil
}

// heartbeat is Heartbeat.
func (c *core) heartbeat(e event, q *HeartbeatRequest) {
	if g := c.group(q.Group); g != nil && g.consumer != nil {
		c.classicHeartbeat(g, e, q)
		return
	}
	fail := func(err error) { c.reply(e.ticket, nil, err) }
	g, m, err := c.currentMember(q.Group, q.MemberID, q.InstanceID, q.Generation)
	if err != nil {
		fail(err)
		return
	}
	c.setSession(g, m.id, m.sessionMillis)
	if g.state == PreparingRebalance {
		fail(ErrRebalancing)
		return
	}
	c.reply(e.ticket, nil, nil)
}

// sessionEnded removes a member that was not heard of for its session timeout, or an id that nobody joined with.
func (c *core) sessionEnded(g *group, id string) {
	if _, ok := g.pending[id]; ok {
		g.remove(id)
		// It was no member: nobody has anything to gain from a rebalance, but one that is under way may have waited for it.
		if g.state == PreparingRebalance && g.allJoined() {
			c.completeJoin(g)
		}
		return
	}
	m := g.members[id]
	if m == nil || m.present() {
		return // present: the timer is set again when its request is answered
	}
	c.expel(g, m)
	c.silenced(g)
}

// silenced has the group go on after a session has ended. If all that are left have joined, even an initial rebalance waits for
// nobody any more, as in Kafka.
func (c *core) silenced(g *group) {
	if g.state == PreparingRebalance && g.allJoined() {
		c.completeJoin(g)
		return
	}
	c.departed(g)
}

// expel removes a member. Whoever waits for it is told that it is unknown, so that a client that is alive starts over.
func (c *core) expel(g *group, m *member) {
	c.endJoin(g, m, joinFailed(""), ErrUnknownMember)
	c.endSync(m, &SyncResult{}, ErrUnknownMember)
	c.cancelSession(g, m.id)
	g.remove(m.id)
}

// departed has the group go on after members have left.
func (c *core) departed(g *group) {
	switch g.state {
	case Stable, CompletingRebalance:
		c.rebalance(g)
	case PreparingRebalance:
		c.maybeCompleteJoin(g)
	}
}

// leave is LeaveGroup. A member may be named by its instance id alone: an administrator removes it.
func (c *core) leave(e event, q *LeaveRequest) {
	g := c.group(q.Group)
	switch {
	case q.Group == "":
		c.reply(e.ticket, &LeaveResult{}, ErrInvalidGroup)
		return
	case g == nil: // each of the members is told, not the request
		r := &LeaveResult{Errs: make([]error, len(q.Members))}
		for i := range r.Errs {
			r.Errs[i] = ErrUnknownMember
		}
		c.reply(e.ticket, r, nil)
		return
	case g.consumer != nil:
		c.classicLeave(g, e, q)
		return
	}
	r := &LeaveResult{Errs: make([]error, len(q.Members))}
	left := false
	for i := range q.Members {
		r.Errs[i] = c.leaveOne(g, &q.Members[i])
		left = left || r.Errs[i] == nil
	}
	if left {
		c.departed(g)
	}
	c.settle(g)
	c.reply(e.ticket, r, nil)
}

func (c *core) leaveOne(g *group, l *LeavingMember) error {
	id := l.MemberID
	if id == "" {
		if l.InstanceID == nil {
			return ErrUnknownMember
		}
		if id = g.static[*l.InstanceID]; id == "" {
			return ErrUnknownMember
		}
	}
	if _, ok := g.pending[id]; ok {
		c.cancelSession(g, id)
		g.remove(id)
		return nil
	}
	m, err := g.check(id, l.InstanceID)
	if err != nil {
		return err
	}
	c.expel(g, m)
	return nil
}
