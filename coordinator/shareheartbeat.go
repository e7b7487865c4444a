package coordinator

import (
	"maps"
	"slices"
	"strings"
)

// shareAssignor is the name of the one assignor of share groups.
const shareAssignor = "simple"

// shareHeartbeat is ShareGroupHeartbeat: joining, leaving, and everything between.
func (c *core) shareHeartbeat(e event, q *ShareHeartbeatRequest) {
	r := &ShareHeartbeatResult{MemberID: q.MemberID, MemberEpoch: q.MemberEpoch}
	err := checkShareHeartbeat(q)
	if err == nil && c.talkative(q.said()) {
		err = ErrTooLarge
	}
	if err == nil {
		if q.MemberEpoch == leaveEpoch {
			err = c.shareLeave(q)
		} else {
			err = c.shareBeat(q, r)
		}
	}
	c.reply(e.ticket, r, err)
}

// checkShareHeartbeat is Kafka's check of a request's form, with its texts.
func checkShareHeartbeat(q *ShareHeartbeatRequest) error {
	empty := func(s string) bool { return strings.TrimSpace(s) == "" }
	switch {
	case q.MemberID == "":
		return ErrInvalidHeartbeat
	case empty(q.MemberID):
		return invalid("MemberId can't be empty.")
	case empty(q.Group):
		return invalid("GroupId can't be empty.")
	case q.RackID != nil && empty(*q.RackID):
		return invalid("RackId can't be empty.")
	case q.MemberEpoch == joinEpoch && len(q.Topics) == 0:
		return invalid("SubscribedTopicNames must be set in first request.")
	case q.MemberEpoch < leaveEpoch:
		return invalid("MemberEpoch is invalid.")
	}
	return nil
}

// shareOf finds the share group of that name. Whoever joins makes it.
func (c *core) shareOf(name string, join bool) (*group, error) {
	g := c.group(name)
	switch {
	case g == nil && !join:
		return nil, refuse(ErrUnknownGroup, "Share group %s not found.", name)
	case g != nil && g.share == nil:
		return nil, notShare(name)
	case g == nil:
		g = c.groupOrNew(name)
		g.share = newShareGroup()
	}
	return g, nil
}

func notShare(group string) error {
	return refuse(ErrUnknownGroup, "Group %s is not a share group.", group)
}

// shareBeat takes a heartbeat of a member that is or wants to be in the group.
func (c *core) shareBeat(q *ShareHeartbeatRequest, r *ShareHeartbeatResult) error {
	join := q.MemberEpoch == joinEpoch
	g, err := c.shareOf(q.Group, join)
	if err != nil {
		return err
	}
	sg := g.share
	if join && sg.deletions > 0 {
		return ErrNotAvailable // for a moment
	}
	was, err := c.shareMember(g, q)
	if err != nil {
		c.settle(g)
		return err
	}
	m := was.clone()
	m.take(q)
	fresh := sg.members[m.id] == nil
	if fresh || !was.sameAs(m) {
		c.write(shareMemberRecord(g.id, m))
	}
	resubscribed := fresh || !slices.Equal(was.names, m.names)
	sg.put(m)
	if resubscribed || sg.targetEpoch >= sg.epoch && c.assignmentPending(sg) || c.shareTopicsChanged(sg) {
		c.shareBump(g)
	}
	c.shareRetargetIfDue(g)
	m = c.shareReconcile(g, m, resubscribed)
	c.shareSession(g, m.id)
	r.MemberEpoch = m.epoch
	if join || q.Topics != nil || !was.assigned.same(m.assigned) {
		r.HasAssignment, r.Assigned = true, grouped(m.assigned, nil)
	}
	c.beginShares(g)
	r.HeartbeatMillis = c.shareWaits(g).interval(c.groupSetting(g.id, "share.heartbeat.interval.ms", c.cfg.ShareHeartbeatMillis))
	return nil
}

// shareWaits is what a member waits for: share-partitions that are being made are given out once they are ready.
func (c *core) shareWaits(g *group) waiting {
	sg := g.share
	return waiting{
		members: len(sg.members), others: len(sg.initializing) > 0,
		due: c.untilAssignment(sg.epoch, sg.targetEpoch, sg.targetAt, c.shareInterval(g)),
	}
}

// shareMember finds the member that a heartbeat comes from, or makes it.
func (c *core) shareMember(g *group, q *ShareHeartbeatRequest) (*shareMember, error) {
	m := g.share.members[q.MemberID]
	switch {
	case m == nil && len(g.share.members) >= int(c.cfg.ShareSizeMax):
		return nil, refuse(ErrGroupFull, "The share group has reached its maximum capacity of %d members.", c.cfg.ShareSizeMax)
	case m == nil && q.MemberEpoch != joinEpoch:
		return nil, unknownMember(q.MemberID, g.id)
	case m == nil:
		return &shareMember{id: q.MemberID, assigned: assignment{}}, nil
	case q.MemberEpoch == joinEpoch, q.MemberEpoch == m.epoch, q.MemberEpoch == m.previous:
		return m, nil
	case q.MemberEpoch > m.epoch:
		return nil, refuse(ErrFencedMemberEpoch, "The share group member has a greater member epoch (%d) than the one known by the group coordinator (%d). "+
			"The member must abandon all its partitions and rejoin.", q.MemberEpoch, m.epoch)
	}
	return nil, refuse(ErrFencedMemberEpoch, "The share group member has a smaller member epoch (%d) than the one known by the group coordinator (%d), "+
		"and it does not match the previous member epoch (%d). The member must abandon all its partitions and rejoin.", q.MemberEpoch, m.epoch, m.previous)
}

func unknownMember(member, group string) error {
	return refuse(ErrUnknownMember, "Member %s is not a member of group %s.", member, group)
}

// take takes over what a heartbeat says of its member.
func (m *shareMember) take(q *ShareHeartbeatRequest) {
	if q.RackID != nil {
		m.rack = q.RackID
	}
	m.clientID, m.clientHost = q.ClientID, q.ClientHost
	if q.Topics != nil {
		m.names = slices.Sorted(slices.Values(q.Topics))
		m.names = slices.Compact(m.names)
	}
}

// shareSession gives a member its time to be heard of again.
func (c *core) shareSession(g *group, member string) {
	c.setSession(g, member, c.groupSetting(g.id, "share.session.timeout.ms", c.cfg.ShareSessionMillis))
}

// shareLeave takes a member out.
func (c *core) shareLeave(q *ShareHeartbeatRequest) error {
	g := c.group(q.Group)
	switch {
	case g == nil:
		return refuse(ErrUnknownGroup, "Group %s not found.", q.Group)
	case g.share == nil:
		return notShare(q.Group)
	}
	m := g.share.members[q.MemberID]
	if m == nil {
		return unknownMember(q.MemberID, q.Group)
	}
	c.shareGone(g, m)
	return nil
}

// shareGone removes a member. What it had of records comes back when their locks end.
func (c *core) shareGone(g *group, m *shareMember) {
	c.cancelSession(g, m.id)
	delete(g.share.members, m.id)
	delete(g.share.target, m.id)
	for _, kind := range []int16{keyShareCurrent, keyShareTarget, keyShareMember} {
		c.write(record{key: shareGroupKey(kind, g.id, m.id)})
	}
	c.shareBump(g)
	if len(g.share.members) == 0 {
		g.share.targetEpoch, g.share.targetAt = g.share.epoch, 0 // nobody has anything
		c.write(shareTargetEpochRecord(g.id, g.share.targetEpoch, 0))
	}
	g.since = c.wall()
}

// shareTimedOut removes a member that was not heard of for its session.
func (c *core) shareTimedOut(g *group, id string) {
	if m := g.share.members[id]; m != nil {
		c.shareGone(g, m)
	}
}

// shareBump begins another epoch of the group: who reads what is to be worked out anew.
func (c *core) shareBump(g *group) {
	g.share.epoch++
	g.share.hash = c.shareTopicsHash(g.share)
	c.write(shareGroupRecord(g.id, g.share))
}

func (c *core) shareTopicsHash(sg *shareGroup) int64 {
	if c.view != nil {
		sg.seen = c.view.version
	}
	return c.hashOf(sg.topics())
}

// shareTopicsChanged says whether the group's topics are others than its epoch knows.
func (c *core) shareTopicsChanged(sg *shareGroup) bool {
	if c.view == nil || sg.seen == c.view.version {
		return false
	}
	was := sg.hash
	return c.shareTopicsHash(sg) != was
}

// assignmentPending says whether there are share-partitions of subscribed topics that nobody has been given.
func (c *core) assignmentPending(sg *shareGroup) bool {
	given := make(map[tp]struct{})
	for _, a := range sg.target {
		for p := range a {
			given[p] = struct{}{}
		}
	}
	for _, name := range sg.topics() {
		for _, p := range sg.assignable(c.view, name) {
			if _, ok := given[p]; !ok {
				return true
			}
		}
	}
	return false
}

// shareRetargetIfDue works out who is to read what if the group's epoch calls for it, and if the last time was long enough ago
// (share.assignment.interval.ms).
func (c *core) shareRetargetIfDue(g *group) {
	sg := g.share
	if c.view == nil || sg.targetEpoch >= sg.epoch ||
		!intervalOver(sg.targetAt, c.shareInterval(g), c.wall()) {
		return
	}
	was := sg.target
	sg.target = sg.assign(c.view)
	for _, id := range slices.Sorted(maps.Keys(sg.target)) {
		if old, ok := was[id]; !ok || !old.same(sg.target[id]) {
			c.write(shareTargetRecord(g.id, id, sg.target[id]))
		}
	}
	sg.targetEpoch, sg.targetAt = sg.epoch, c.wall()
	c.write(shareTargetEpochRecord(g.id, sg.targetEpoch, sg.targetAt))
}

func (c *core) shareInterval(g *group) int64 {
	return c.groupSetting(g.id, "share.assignment.interval.ms", c.cfg.ShareAssignmentMillis)
}

// shareReconcile gives a member what its target is: it need not wait for anybody.
func (c *core) shareReconcile(g *group, m *shareMember, resubscribed bool) *shareMember {
	if m.epoch == g.share.targetEpoch && !resubscribed {
		return m
	}
	n := m.clone()
	n.assigned = make(assignment)
	for p, at := range g.share.target[m.id] {
		// What is gone, or no longer subscribed to, may not be read whatever the target is.
		if t := c.view.byID(p.topic); t != nil {
			if _, ok := slices.BinarySearch(m.names, t.Name); ok {
				n.assigned[p] = at
			}
		}
	}
	if n.epoch != g.share.targetEpoch {
		n.previous, n.epoch = m.epoch, g.share.targetEpoch
	}
	if n.epoch != m.epoch || !n.assigned.same(m.assigned) {
		c.write(shareCurrentRecord(g.id, n))
	}
	g.share.put(n)
	return n
}

// describeShare is ShareGroupDescribe for one group.
func (c *core) describeShare(e event, q describeShare) {
	g := c.group(q.group)
	if q.group == "" {
		c.reply(e.ticket, &ShareDescription{State: Dead.String()}, ErrInvalidGroup)
		return
	}
	if g == nil || g.share == nil {
		err := refuse(ErrUnknownGroup, "Group %s not found.", q.group)
		if g != nil {
			err = notShare(q.group)
		}
		c.reply(e.ticket, &ShareDescription{Group: q.group, State: Dead.String()}, err)
		return
	}
	d := &ShareDescription{
		Group: g.id, State: g.share.stateName(), Assignor: shareAssignor, Epoch: g.share.epoch, AssignmentEpoch: g.share.targetEpoch,
	}
	for _, m := range g.share.list() {
		d.Members = append(d.Members, ShareMemberDescription{
			MemberID: m.id, RackID: m.rack, ClientID: m.clientID, ClientHost: m.clientHost, Epoch: m.epoch, Topics: m.names,
			Assigned: grouped(m.assigned, c.view),
		})
	}
	c.reply(e.ticket, d, nil)
}
