package coordinator

// core is the machine of the groups of one partition of the offsets topic.
type core struct {
	clockwork
	cfg    *Config
	groups map[string]*group
	view   *topicsView

	began int64                         // when the machine was made
	seq   int64                         // commits so far, to tell which of two is newer
	txns  map[int64]map[string]struct{} // by producer: the groups that hold offsets of its open transaction
	ends  txnEnds
}

var _ machine = (*core)(nil)

func newCore(cfg *Config, now int64) *core {
	c := &core{cfg: cfg, groups: make(map[string]*group), began: now}
	c.timers.set(timerKey{kind: timerRetention}, now+cfg.OffsetsRetentionCheckMillis)
	return c
}

func (c *core) setTopics(v *topicsView) { c.view = v }

func (c *core) size() int { return len(c.groups) }

// tick fires the timers that are due.
func (c *core) tick(now int64) {
	c.now = now
	for {
		key, ok := c.timers.due(now)
		if !ok {
			return
		}
		g := c.groups[key.group]
		switch {
		case key.kind == timerRetention:
			c.expireOffsets()
			c.sweepDeleted()
			c.timers.set(key, now+c.cfg.OffsetsRetentionCheckMillis)
			continue
		case g == nil:
			continue
		case g.modern() != nil:
			c.memberTimedOut(g, key)
		case key.kind == timerSession:
			c.sessionEnded(g, key.member)
		case key.kind == timerJoin:
			c.joinTimedOut(g)
		case key.kind == timerSync:
			c.syncTimedOut(g)
		}
		c.settle(g)
	}
}

// step takes one event.
func (c *core) step(e event, now int64) {
	c.now = now
	switch q := e.body.(type) {
	case *JoinRequest:
		c.join(e, q)
	case *SyncRequest:
		c.sync(e, q)
	case *HeartbeatRequest:
		c.heartbeat(e, q)
	case *LeaveRequest:
		c.leave(e, q)
	case *CommitRequest:
		c.commit(e, q)
	case *FetchOffsetsRequest:
		c.fetch(e, q)
	case *DeleteOffsetsRequest:
		c.deleteOffsets(e, q)
	case describe:
		c.describe(e, q.group)
	case list:
		c.list(e)
	case remove:
		c.remove(e, q.group)
	case topicGone:
		c.topicGone(e, q)
	case *ConsumerHeartbeatRequest:
		c.consumerHeartbeat(e, q)
	case describeConsumer:
		c.describeConsumer(e, q)
	case *StreamsHeartbeatRequest:
		c.streamsHeartbeat(e, q)
	case describeStreams:
		c.describeStreams(e, q)
	case *EndMarker:
		c.endMarker(e, q)
	case *ShareHeartbeatRequest:
		c.shareHeartbeat(e, q)
	case describeShare:
		c.describeShare(e, q)
	case shareBegun:
		c.shareBegun(e, q)
	case shareForgotten:
		c.shareForgotten(e, q)
	case listShares:
		c.listShares(e, q)
	case *AlterShareRequest:
		c.alterShares(e, q)
	case *DeleteShareOffsetsRequest:
		c.deleteShares(e, q)
	default:
		panic("coordinator: unknown event")
	}
}

// settle forgets a group that nothing would be lost by forgetting.
func (c *core) settle(g *group) {
	if g.void() && c.groups[g.id] == g {
		delete(c.groups, g.id)
	}
}

func (c *core) reply(ticket uint64, result any, err error) {
	c.out.replies = append(c.out.replies, reply{ticket, result, err})
}

func (c *core) write(r record) { c.out.records = append(c.out.records, r) }

func (c *core) group(id string) *group { return c.groups[id] }

// groupOrNew finds or makes a group.
func (c *core) groupOrNew(id string) *group {
	g := c.groups[id]
	if g == nil {
		g = newGroup(id, c.wall())
		c.groups[id] = g
	}
	return g
}

func (c *core) setSession(g *group, member string, millis int64) {
	c.timers.set(timerKey{timerSession, g.id, member}, c.now+millis)
}

func (c *core) cancelSession(g *group, member string) {
	c.timers.cancel(timerKey{timerSession, g.id, member})
}

func (c *core) setJoin(g *group, millis int64) {
	c.timers.set(timerKey{kind: timerJoin, group: g.id}, c.now+millis)
}
func (c *core) cancelJoin(g *group) { c.timers.cancel(timerKey{kind: timerJoin, group: g.id}) }
func (c *core) cancelSync(g *group) { c.timers.cancel(timerKey{kind: timerSync, group: g.id}) }
