package coordinator

// rebalance begins a rebalance, or sees whether the one under way can be completed.
func (c *core) rebalance(g *group) {
	if g.state == PreparingRebalance {
		c.maybeCompleteJoin(g)
		return
	}
	if g.state == CompletingRebalance {
		// The assignment under way is void: have everybody join again.
		for _, m := range g.list() {
			m.forgetAssignment()
			if c.endSync(m, &SyncResult{}, ErrRebalancing) {
				c.setSession(g, m.id, m.sessionMillis)
			}
		}
	}
	c.cancelSync(g)
	wasEmpty := g.state == Empty
	g.to(PreparingRebalance, c.wall())
	g.initial, g.newcomer = wasEmpty, false
	if wasEmpty {
		// Members of a new group tend to come together: wait for more of them.
		g.wait = int64(c.cfg.InitialRebalanceMillis)
		g.left = max(g.rebalanceMillis()-g.wait, 0)
		if g.wait > 0 {
			c.setJoin(g, g.wait)
		} else {
			c.completeJoin(g)
		}
		return
	}
	if g.allJoined() {
		c.completeJoin(g)
	} else {
		c.setJoin(g, g.rebalanceMillis())
	}
}

// maybeCompleteJoin ends the join phase when everybody is there. An initial rebalance runs its time.
func (c *core) maybeCompleteJoin(g *group) {
	if g.state == PreparingRebalance && g.allJoined() && g.previous != Empty {
		c.completeJoin(g)
	}
}

func (c *core) joinTimedOut(g *group) {
	if g.state != PreparingRebalance {
		return
	}
	if g.initial && g.newcomer && g.left > 0 {
		g.newcomer = false
		wait := min(int64(c.cfg.InitialRebalanceMillis), g.left)
		g.left = max(g.left-g.wait, 0)
		g.wait = wait
		c.setJoin(g, wait)
		return
	}
	c.completeJoin(g)
}

// completeJoin ends the join phase: those who have not come are out, except static members, and the next generation begins.
func (c *core) completeJoin(g *group) {
	c.cancelJoin(g)
	g.initial = false
	for _, m := range g.list() {
		if m.join == 0 && m.instance == nil {
			c.cancelSession(g, m.id)
			g.remove(m.id)
		}
	}
	if len(g.members) > 0 && !g.elect() {
		// Only static members are left, and none has come: wait until they do or their sessions end.
		c.setJoin(g, g.rebalanceMillis())
		return
	}
	g.advance(c.wall())
	if g.state == Empty {
		c.persist(g) // a group without members always fits
		return
	}
	for _, m := range g.list() {
		c.endJoin(g, m, g.joinResult(m), nil)
		m.fresh = false
		c.setSession(g, m.id, m.sessionMillis)
		put(&g.unsynced, m.id, struct{}{})
	}
	c.timers.set(timerKey{kind: timerSync, group: g.id}, c.now+g.rebalanceMillis())
}

// sync is SyncGroup.
func (c *core) sync(e event, q *SyncRequest) {
	if g := c.group(q.Group); g != nil && g.consumer != nil {
		c.classicSync(g, e, q)
		return
	}
	fail := func(err error) { c.reply(e.ticket, &SyncResult{}, err) }
	g, m, err := c.currentMember(q.Group, q.MemberID, q.InstanceID, q.Generation)
	switch {
	case err != nil:
		fail(err)
		return
	case differ(q.ProtocolType, g.protocolType) || differ(q.Protocol, g.protocol):
		fail(ErrInconsistentProtocol)
		return
	}
	switch g.state {
	case PreparingRebalance:
		fail(ErrRebalancing)
	case CompletingRebalance:
		c.endSync(m, &SyncResult{}, ErrRebalancing) // an earlier one of the same member: its connection is most likely gone
		m.sync = e.ticket
		c.synced(g, m)
		if g.leader == m.id {
			c.assign(g, q.Assignments)
		}
	case Stable:
		c.synced(g, m)
		m.held = nil
		c.reply(e.ticket, g.syncResult(m), nil)
	default:
		fail(ErrUnknownMember)
	}
}

func differ(a, b *string) bool { return a != nil && b != nil && *a != *b }

// synced notes that a member's SyncGroup has come.
func (c *core) synced(g *group, m *member) {
	delete(g.unsynced, m.id)
	if len(g.unsynced) == 0 {
		c.cancelSync(g)
	}
}

// assign takes the leader's assignment. Members that it leaves out get an empty one.
func (c *core) assign(g *group, assignments []Assignment) {
	for _, m := range g.members {
		m.forgetAssignment()
		m.assignment = []byte{}
	}
	for i := range assignments {
		if m := g.members[assignments[i].MemberID]; m != nil && assignments[i].Data != nil {
			m.assignment = assignments[i].Data
		}
	}
	if !c.persist(g) {
		for _, m := range g.list() {
			m.forgetAssignment()
			if c.endSync(m, &SyncResult{}, ErrTooLarge) {
				c.setSession(g, m.id, m.sessionMillis)
			}
		}
		c.rebalance(g)
		return
	}
	g.to(Stable, c.wall())
	for _, m := range g.list() {
		if c.endSync(m, g.syncResult(m), nil) {
			m.held = nil
			c.setSession(g, m.id, m.sessionMillis)
		}
	}
}

// forgetAssignment makes a member's assignment void. It may still read what the last that it has synced names, until it has
// synced another.
func (m *member) forgetAssignment() {
	if m.held == nil && len(m.assignment) > 0 {
		m.held = m.assignment
	}
	m.assignment = nil
}

func (g *group) syncResult(m *member) *SyncResult {
	return &SyncResult{ProtocolType: g.protocolType, Protocol: g.protocol, Assignment: m.assignment}
}

// syncTimedOut removes the members that were given a generation and never asked for their assignment.
func (c *core) syncTimedOut(g *group) {
	if g.state != CompletingRebalance && g.state != Stable || len(g.unsynced) == 0 {
		return
	}
	for _, m := range g.list() {
		if _, ok := g.unsynced[m.id]; ok {
			c.cancelSession(g, m.id)
			g.remove(m.id)
		}
	}
	c.rebalance(g)
}

// persist writes the group's metadata, and reports false, writing nothing, when that does not fit one record.
func (c *core) persist(g *group) bool {
	r := groupRecord(g)
	if r.size() > c.cfg.BatchBytesMax-batchOverhead {
		return false
	}
	g.persisted = true
	c.write(r)
	return true
}
