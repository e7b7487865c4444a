package tier

import "github.com/varvelog/varve/meta/topic"

// asleep is a led partition that is not tiered: the core has nothing to decide
// for it until its configuration changes. Most partitions of a node may be so,
// and each of them costs these few bytes instead of a partition.
type asleep struct {
	gen     uint64
	epoch   int32
	suspect bool // an earlier leadership may have left an object behind
}

// tiers says that the core has to do with the partition.
func (c *TopicConfig) tiers() bool { return c.Enabled || c.DeleteOnDisable }

// enter takes a partition that is led from now on.
func (c *core) enter(id topic.Partition, a asleep, cfg TopicConfig, now instant) *partition {
	if !cfg.tiers() {
		c.asleep[id] = a
		return nil
	}
	p := newPartition(id, a.gen, a.epoch, cfg, now)
	p.timer.fire = func(now instant) { p.advance(c, now) }
	p.suspect = a.suspect
	c.parts[id] = p
	return p
}

// wakeUp makes a partition of one that is asleep and has become tiered. What is
// known locally of its archive may be of a time before that.
func (c *core) wakeUp(id topic.Partition, cfg TopicConfig, now instant) {
	a, ok := c.asleep[id]
	if !ok || !cfg.tiers() {
		return
	}
	delete(c.asleep, id)
	p := c.enter(id, a, cfg, now)
	p.stale = true
	p.advance(c, now)
}

// leaveAsleep forgets a partition that is asleep.
func (c *core) leaveAsleep(id topic.Partition) {
	if a, ok := c.asleep[id]; ok {
		delete(c.asleep, id)
		c.emit(fxCancel{ref{id, a.gen}})
	}
}

// leading is the generation under which a partition is led.
func (c *core) leading(id topic.Partition) (gen uint64, ok bool) {
	if p := c.parts[id]; p != nil {
		return p.gen, true
	}
	a, ok := c.asleep[id]
	return a.gen, ok
}
