package coordinator

import (
	"maps"
	"slices"
	"strings"
)

// streamsLeave takes a member out, or, of a static member that will be back, only notes that it is away.
func (c *core) streamsLeave(q *StreamsHeartbeatRequest) error {
	if c.group(q.Group) == nil {
		return refuse(ErrUnknownGroup, "Group %s not found.", q.Group)
	}
	g, sg, err := c.streamsOf(q.Group, false)
	if err != nil {
		return err
	}
	if q.Shutdown && sg.shutdown == "" && len(sg.members) > 0 {
		sg.shutdown = q.MemberID
	}
	m := sg.members[q.MemberID]
	if q.InstanceID != nil {
		id, ok := sg.static[*q.InstanceID]
		switch {
		case !ok:
			return refuse(ErrUnknownMember, "Instance id %s is unknown.", *q.InstanceID)
		case id != q.MemberID:
			return refuse(ErrFencedInstance, "Static member %s with instance id %s was fenced by member %s.", q.MemberID, *q.InstanceID, id)
		}
	}
	if m == nil {
		return refuse(ErrUnknownMember, "Member %s is not a member of group %s.", q.MemberID, g.id)
	}
	if q.MemberEpoch == leaveStaticEpoch && q.InstanceID != nil {
		// Its tasks wait for it until its session ends. What it had to give up it has given up by leaving.
		away := m.clone()
		away.epoch, away.revoking, away.assigned.active = leaveStaticEpoch, newTaskSets(), make(taskSet, len(m.assigned.active))
		for t := range m.assigned.active {
			away.assigned.active[t] = 0
		}
		sg.put(away)
		c.timers.cancel(timerKey{timerRevocation, g.id, m.id})
		c.write(streamsCurrentRecord(g.id, away))
		return nil
	}
	c.streamsGone(g, m)
	return nil
}

// streamsGone removes a member for good; the others divide up what it had.
func (c *core) streamsGone(g *group, m *streamsMember) {
	sg := g.streams
	c.streamsForget(g, m)
	sg.epoch++
	c.write(streamsGroupRecord(g.id, sg))
	if len(sg.members) == 0 {
		sg.targetEpoch, sg.assigned = sg.epoch, 0
		c.write(streamsTargetEpochRecord(g.id, sg.targetEpoch, 0))
	}
	g.since = c.wall() // the age of offsets in a group without members counts from here
}

// streamsForget removes what is known and written of a member.
func (c *core) streamsForget(g *group, m *streamsMember) {
	c.cancelSession(g, m.id)
	c.timers.cancel(timerKey{timerRevocation, g.id, m.id})
	g.streams.drop(m)
	c.write(record{key: streamsKey(keyStreamsCurrent, g.id, m.id)})
	c.write(record{key: streamsKey(keyStreamsTarget, g.id, m.id)})
	c.write(record{key: streamsKey(keyStreamsMember, g.id, m.id)})
}

// streamsTimedOut removes a member that was not heard of for its session, or that did not give up in time what it had to; or
// ends the wait for more members.
func (c *core) streamsTimedOut(g *group, key timerKey) {
	if key.kind == timerJoin {
		c.streamsDelayOver(g)
	} else if m := g.streams.members[key.member]; m != nil {
		c.streamsGone(g, m)
	}
}

// streamsLoaded gives members their whole session to be heard of, and their time to give up what they have to.
func (c *core) streamsLoaded(g *group) {
	for _, m := range g.streams.list() {
		c.setSession(g, m.id, c.groupSetting(g.id, "streams.session.timeout.ms", c.cfg.StreamsSessionMillis))
		if m.state == memberUnrevoked {
			c.timers.set(timerKey{timerRevocation, g.id, m.id}, c.now+int64(max(m.rebalanceMillis, 0)))
		}
	}
}

// describeStreams is StreamsGroupDescribe for one group.
func (c *core) describeStreams(e event, q describeStreams) {
	g := c.group(q.group)
	if q.group == "" {
		c.reply(e.ticket, &StreamsDescription{}, ErrInvalidGroup)
		return
	}
	if g == nil || g.streams == nil {
		err := refuse(ErrUnknownGroup, "Group %s not found.", q.group)
		if g != nil {
			err = refuse(ErrUnknownGroup, "Group %s is not a streams group.", q.group)
		}
		c.reply(e.ticket, &StreamsDescription{Group: q.group}, err)
		return
	}
	sg := g.streams
	d := &StreamsDescription{
		Group: g.id, State: sg.stateName(), Assignor: c.cfg.StreamsAssignor, Epoch: sg.epoch, AssignmentEpoch: sg.targetEpoch,
		Topology: sg.topology.described(sg.configured),
	}
	for _, m := range sg.list() {
		d.Members = append(d.Members, StreamsMemberDescription{
			MemberID: m.id, InstanceID: m.instance, RackID: m.rack, ClientID: m.clientID, ClientHost: m.clientHost, Epoch: m.epoch,
			TopologyEpoch: m.topologyEpoch, ProcessID: m.process, Endpoint: m.endpoint, ClientTags: pairs(m.tags),
			Offsets: offsetList(m.offsets), EndOffsets: offsetList(m.ends), Assigned: m.assigned.lists(), Target: sg.target[m.id].lists(),
		})
	}
	c.reply(e.ticket, d, nil)
}

// described is the topology as it is shown: in order, and with the partitions that follow from it once all its topics are there.
func (t *Topology) described(with *configuredTopology) *Topology {
	if t == nil {
		return nil
	}
	out := &Topology{Epoch: t.Epoch}
	for _, s := range t.Subtopologies {
		s.Sources, s.Sinks = sortedDistinct(slices.Clone(s.Sources)), sortedDistinct(slices.Clone(s.Sinks))
		s.Repartition, s.Changelogs = slices.Clone(s.Repartition), slices.Clone(s.Changelogs)
		for _, list := range [][]InternalTopic{s.Repartition, s.Changelogs} {
			slices.SortFunc(list, func(a, b InternalTopic) int { return strings.Compare(a.Name, b.Name) })
			if with == nil || with.problem != nil {
				continue
			}
			for i := range list {
				list[i].Partitions = with.parts[s.ID].counts[list[i].Name]
			}
		}
		out.Subtopologies = append(out.Subtopologies, s)
	}
	slices.SortFunc(out.Subtopologies, func(a, b Subtopology) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func pairs(m map[string]string) []TopicConfig {
	out := make([]TopicConfig, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, TopicConfig{k, m[k]})
	}
	return out
}

func offsetList(m map[task]int64) []TaskOffset {
	out := make([]TaskOffset, 0, len(m))
	for _, t := range slices.SortedFunc(maps.Keys(m), compareTasks) {
		out = append(out, TaskOffset{t.subtopology, t.index, m[t]})
	}
	return out
}

// lists is the tasks by subtopology, in order.
func (s taskSets) lists() OwnedTasks {
	return OwnedTasks{s.active.list(), s.standby.list(), s.warmup.list()}
}

func (s taskSet) list() []Tasks {
	out := []Tasks{}
	for _, t := range s.sorted() {
		if n := len(out); n > 0 && out[n-1].Subtopology == t.subtopology {
			out[n-1].Partitions = append(out[n-1].Partitions, t.index)
			continue
		}
		out = append(out, Tasks{t.subtopology, []int32{t.index}})
	}
	return out
}
