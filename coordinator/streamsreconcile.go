package coordinator

import (
	"maps"
	"slices"
)

// admit changes the group as a heartbeat that is found to be right asks for, and takes its member a step nearer to its target.
func (c *core) admit(b *streamsEntry) {
	sg := b.sg
	nobody := len(sg.members) == 0
	if b.fresh {
		c.foundStreams(b)
	}
	g := b.g
	if b.away != nil {
		c.streamsTakeOver(g, b.away, b.old)
	}
	update := false
	if sg.members[b.m.id] == nil || !b.m.described(b.old) {
		c.write(streamsMemberRecord(g.id, b.m))
		update = b.q.InstanceID == nil || !b.m.placed(b.old)
	}
	b.m.offsets, b.m.ends = b.offsets, b.ends
	sg.put(b.m)
	if b.founds {
		sg.topology = b.topology
		c.write(streamsTopologyRecord(g.id, b.topology))
	}
	sg.configured, sg.seen = b.configured, c.view.version
	if update || b.hash != sg.hash || b.validated != sg.validated || !maps.Equal(b.configs, sg.configs) {
		sg.epoch++
		sg.hash, sg.validated, sg.configs = b.hash, b.validated, b.configs
		c.write(streamsGroupRecord(g.id, sg))
	}
	if delay := c.groupSetting(g.id, "streams.initial.rebalance.delay.ms", c.cfg.StreamsInitialDelayMillis); nobody && delay > 0 && !sg.delayed {
		sg.delayed = true
		c.setJoin(g, delay)
	}
	target := c.streamsTarget(b)
	b.m = c.streamsReconcile(g, b.m, &b.q.Owned, target)
	c.setSession(g, b.m.id, c.groupSetting(g.id, "streams.session.timeout.ms", c.cfg.StreamsSessionMillis))
	if b.q.Shutdown && sg.shutdown == "" {
		sg.shutdown = b.m.id
	}
}

// foundStreams makes the group. An empty classic group makes way, its offsets stay.
func (c *core) foundStreams(b *streamsEntry) {
	if b.g == nil {
		b.g = c.groupOrNew(b.q.Group)
	}
	c.endClassic(b.g)
	b.g = c.replaced(b.g)
	b.g.streams = b.sg
}

// streamsTakeOver lets a static member that is back have what its instance id had.
func (c *core) streamsTakeOver(g *group, away, m *streamsMember) {
	target, ok := g.streams.target[away.id]
	if !ok {
		target = newTaskSets()
	}
	c.streamsForget(g, away)
	g.streams.put(m.clone())
	g.streams.target[m.id] = target
	c.write(streamsMemberRecord(g.id, m))
	c.write(streamsTargetRecord(g.id, m.id, target))
	c.write(streamsCurrentRecord(g.id, m))
}

// streamsTarget is what the heartbeat's member is to have, worked out anew where the group's epoch is newer and it is time.
func (c *core) streamsTarget(b *streamsEntry) taskSets {
	sg := b.sg
	switch {
	case sg.delayed:
		b.note(StatusAssignmentDelayed, "Assignment delayed due to the configured initial rebalance delay.")
		return newTaskSets()
	case sg.targetEpoch >= sg.epoch:
	case !intervalOver(sg.assigned, c.streamsInterval(b.g), c.wall()):
		b.note(StatusAssignmentDelayed, "Assignment delayed due to the configured assignment interval.")
	default:
		c.streamsRetarget(b.g)
	}
	if target, ok := sg.target[b.m.id]; ok {
		return target
	}
	return newTaskSets()
}

func (c *core) streamsInterval(g *group) int64 {
	return c.groupSetting(g.id, "streams.assignment.interval.ms", c.cfg.StreamsIntervalMillis)
}

// streamsRetarget works out who is to run what in the group's epoch. While topics are missing nobody runs anything.
func (c *core) streamsRetarget(g *group) {
	sg := g.streams
	target := make(map[string]taskSets, len(sg.members))
	if sg.configured.problem == nil {
		target = assignTasks(sg, standbys(sg.configs))
	}
	for _, id := range slices.Sorted(maps.Keys(sg.members)) {
		t, ok := target[id]
		if !ok {
			t = newTaskSets()
			target[id] = t
		}
		if old, ok := sg.target[id]; !ok || !old.same(t) {
			c.write(streamsTargetRecord(g.id, id, t))
		}
	}
	sg.target, sg.targetEpoch, sg.assigned = target, sg.epoch, c.wall()
	c.write(streamsTargetEpochRecord(g.id, sg.targetEpoch, sg.assigned))
}

// streamsDelayOver ends the wait for more members: the first assignment is worked out.
func (c *core) streamsDelayOver(g *group) {
	sg := g.streams
	sg.delayed = false
	if len(sg.members) > 0 && sg.targetEpoch < sg.epoch && sg.configured != nil {
		c.streamsRetarget(g)
	}
}

// streamsReconcile takes a member one step nearer to its target, given what it says it has, and writes down what has changed.
func (c *core) streamsReconcile(g *group, m *streamsMember, owned *OwnedTasks, target taskSets) *streamsMember {
	sg := g.streams
	if sg.settled(m) {
		return m
	}
	next := sg.advance(m, owned, target)
	if next.epoch == m.epoch && next.previous == m.previous && next.state == m.state && next.assigned.same(m.assigned) && next.revoking.same(m.revoking) {
		return m
	}
	c.write(streamsCurrentRecord(g.id, next))
	sg.put(next)
	key := timerKey{timerRevocation, g.id, m.id}
	if next.state == memberUnrevoked {
		c.timers.set(key, c.now+int64(max(next.rebalanceMillis, 0)))
	} else {
		c.timers.cancel(key)
	}
	return next
}

// advance is the state after m in its way to the target (KIP-1071): first give up what is another's, then, once that is done,
// enter the target's epoch, and take what nobody is in the way of.
func (g *streamsGroup) advance(m *streamsMember, owned *OwnedTasks, target taskSets) *streamsMember {
	s := &streamsStep{g: g, m: m, target: target, said: owned.said(), owned: owned.sets()}
	switch m.state {
	case memberUnrevoked:
		if !s.released(m.revoking) {
			return m
		}
		return s.next(m.epoch + 1)
	case memberUnknown:
		return s.next(g.targetEpoch)
	}
	return s.next(m.epoch)
}

// streamsStep is one such step being worked out.
type streamsStep struct {
	g      *streamsGroup
	m      *streamsMember
	target taskSets
	said   bool // the member says what it has:
	owned  taskSets
	// Where tasks are now: active ones by process, the others as far as they are in the member's own process.
	active          map[task]string
	standby, warmup taskSet
}

// released says whether the member has given these up.
func (s *streamsStep) released(t taskSets) bool { return s.said && !s.owned.overlaps(t) }

func (s *streamsStep) look() {
	s.active, s.standby, s.warmup = make(map[task]string), taskSet{}, taskSet{}
	for _, m := range s.g.members {
		for _, sets := range []*taskSets{&m.assigned, &m.revoking} {
			for t := range sets.active {
				s.active[t] = m.process
			}
			if m.process == s.m.process {
				maps.Copy(s.standby, sets.standby)
				maps.Copy(s.warmup, sets.warmup)
			}
		}
	}
}

// A process keeps the state of a task in one folder: within it, only one member may have the task, in whatever role. And a task is
// active with one member of the group only.

func (s *streamsStep) activeTaken(t task) bool {
	_, runs := s.active[t]
	return runs || s.standbyElsewhere(t) || s.warmupElsewhere(t)
}

func (s *streamsStep) standbyTaken(t task) bool {
	process, runs := s.active[t]
	return runs && process == s.m.process && !s.m.assigned.active.has(t) || s.standby.has(t) || s.warmupElsewhere(t)
}

func (s *streamsStep) warmupTaken(t task) bool {
	process, runs := s.active[t]
	return runs && process == s.m.process || s.standbyElsewhere(t) || s.warmup.has(t)
}

func (s *streamsStep) standbyElsewhere(t task) bool {
	return s.standby.has(t) && !s.m.assigned.standby.has(t)
}

func (s *streamsStep) warmupElsewhere(t task) bool {
	return s.warmup.has(t) && !s.m.assigned.warmup.has(t)
}

// split sorts what a member has, and is to have, in one role.
func split(has, target taskSet, epoch int32, taken func(task) bool) (keep, revoke, gain taskSet, waits bool) {
	keep, revoke, gain = taskSet{}, taskSet{}, taskSet{}
	for t, at := range has {
		if target.has(t) {
			keep[t] = at
		} else {
			revoke[t] = at
		}
	}
	for t := range target {
		switch {
		case keep.has(t):
		case taken(t):
			waits = true
		default:
			gain[t] = epoch
		}
	}
	return keep, revoke, gain, waits
}

// next works out the member's next state. epoch is the one it keeps while it has something to give up.
func (s *streamsStep) next(epoch int32) *streamsMember {
	s.look()
	keep, revoke, gain := taskSets{}, taskSets{}, taskSets{}
	var waits [3]bool
	had := s.m.assigned
	keep.active, revoke.active, gain.active, waits[0] = split(had.active, s.target.active, s.g.targetEpoch, s.activeTaken)
	keep.standby, revoke.standby, gain.standby, waits[1] = split(had.standby, s.target.standby, 0, s.standbyTaken)
	keep.warmup, revoke.warmup, gain.warmup, waits[2] = split(had.warmup, s.target.warmup, 0, s.warmupTaken)
	// Roles that change within the member: the task stays where its state is.
	for t := range had.active {
		if gain.standby.has(t) {
			delete(gain.standby, t)
			keep.standby[t] = 0
		}
	}
	convert(had.standby, revoke.standby, gain.warmup, keep.warmup)
	convert(had.warmup, revoke.warmup, gain.standby, keep.standby)
	for _, role := range []struct{ had, revoke taskSet }{{had.standby, revoke.standby}, {had.warmup, revoke.warmup}} {
		for t := range role.had {
			if s.target.active.has(t) {
				delete(role.revoke, t)
			}
		}
	}
	revokes := !revoke.empty() && !s.released(revoke)
	for _, role := range []struct{ had, keep taskSet }{{had.standby, keep.standby}, {had.warmup, keep.warmup}} {
		for t := range role.had {
			if s.target.active.has(t) && (revokes || !gain.active.has(t)) {
				role.keep[t] = 0 // it stays what it was until it can be active
			}
		}
	}
	n := s.m.clone()
	n.previous = s.m.epoch
	if revokes {
		n.state, n.epoch, n.assigned, n.revoking = memberUnrevoked, epoch, keep, revoke
		return n
	}
	maps.Copy(keep.active, gain.active)
	maps.Copy(keep.standby, gain.standby)
	maps.Copy(keep.warmup, gain.warmup)
	n.state, n.epoch, n.assigned, n.revoking = memberStable, s.g.targetEpoch, keep, newTaskSets()
	if waits[0] || waits[1] || waits[2] {
		n.state = memberUnreleased
	}
	return n
}

// convert turns replicas of one role into those of another at once, where that is what they are to become.
func convert(had, revoke, gain, keep taskSet) {
	for t := range had {
		if gain.has(t) {
			delete(gain, t)
			delete(revoke, t)
			keep[t] = 0
		}
	}
}
