package replica

import (
	"context"
	"testing"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/tier/objstore"
)

// A leader that is cut off goes on uploading after another broker has removed all that the bucket had of the topic. The
// tombstone has to wait for it, and what it put there goes once it hears.
func TestLateLeaderOfADeletedTopicLeavesNothingInTheBucket(t *testing.T) {
	c := startCluster(t, 2, hot.Fsync, nil)
	id := c.topic("events", []int32{1}, "remote.storage.enable", "true", "internal.segment.bytes", "4096")
	late, p := c.leader("events")
	objects := func() (n int) {
		late.must(c.bucket.List(context.Background(), p.remote.Prefix(), "", func(objstore.Object) bool {
			n++
			return true
		}))
		return n
	}
	late.ears.stop()
	late.delete("events")
	removed := func(m *Manager) bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		d := m.follow.deleting[id]
		return d != nil && d.objects == 0
	}
	gone := func() bool { _, ok := c.quorum.Image().Deleted(id); return !ok }
	c.wait("the other broker to have removed the topic", func() bool { return removed(c.nodes[1].m) || gone() })

	c.produceTo(p, 20)
	c.wait("the late leader's upload", func() bool { return c.remoteEnd(p) > 0 })
	if d, ok := c.quorum.Image().Deleted(id); !ok || !d.Tier || len(d.Brokers) != 1 {
		t.Errorf("the tombstone is %+v, %v: it is to wait for the leader, and ask it for the bucket", d, ok)
	}
	late.ears.start(late.m)
	c.wait("all to be confirmed", gone)
	if n := objects(); n != 0 {
		t.Errorf("%d objects of the deleted topic are left", n)
	}
}

// produceTo appends to a partition that clients do not find any more, and seals what was appended.
func (c *cluster) produceTo(p *Partition, n int) {
	c.t.Helper()
	for range n {
		if _, err := p.Append(build(c.t, 0, record{ts: now(), value: "late"}), AppendRequest{Acks: 1, Version: 12, Now: now()}); err != nil {
			c.t.Fatal(err)
		}
	}
	if err := p.log.Roll(now()); err != nil {
		c.t.Fatal(err)
	}
}
