package coordinator

import (
	"maps"
	"slices"

	"github.com/varvelog/varve/meta/topic"
)

// sweepAfterMillis is how long a topic must be unknown to a machine before what is kept of it is swept away.
//
// A machine is told when a topic is deleted, unless it is being read back just then, or its broker is not there. What it then keeps
// does no harm, since the id of a topic is never used again, but nobody would ever take it away. It is swept away with the regular
// look for what has expired: what is of a topic that the metadata does not have. That is no guess. A broker may know of a topic
// later than the one that wrote it down, but by no more than its lease: after that it leads nothing, and cannot write. So nothing
// is swept by a machine that is younger, nor what is.
const sweepAfterMillis = 10 * 60_000

// sweepDeleted drops what groups keep of topics that are gone. An offset that was committed without a topic id stays.
func (c *core) sweepDeleted() {
	if c.view == nil || c.now-c.began < sweepAfterMillis {
		return
	}
	for _, id := range c.groupIDs() {
		g := c.groups[id]
		for _, t := range slices.Sorted(maps.Keys(g.offsets)) {
			for _, p := range slices.Sorted(maps.Keys(g.offsets[t])) {
				o := g.offsets[t][p]
				if o.id.IsZero() || c.view.byID(o.id) != nil || c.wall()-o.committed < sweepAfterMillis {
					continue
				}
				g.dropOffset(t, p)
				c.write(offsetTombstone(g.id, t, p))
			}
		}
		if g.share != nil {
			gone := maps.Clone(g.share.deleting)
			for _, list := range []map[topic.ID]*shareTopic{g.share.initializing, g.share.initialized} {
				for id, t := range list {
					gone[id] = t.name
				}
			}
			for _, id := range sortedIDs(gone) {
				if c.view.byID(id) == nil {
					c.shareTopicGone(g, id)
				}
			}
		}
		c.settle(g)
	}
}

// sweepDeleted drops the state of share-partitions of topics that are gone.
func (c *shareCore) sweepDeleted() {
	if c.view == nil || c.now-c.began < sweepAfterMillis {
		return
	}
	for _, k := range c.keys() {
		if c.view.byID(k.Topic) == nil && c.wall()-c.parts[k].written >= sweepAfterMillis {
			c.erase(k)
		}
	}
}
