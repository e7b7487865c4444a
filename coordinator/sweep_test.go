package coordinator

import (
	"testing"

	"github.com/varvelog/varve/meta/topic"
)

// A machine that was being read back when a topic was deleted does not keep what it has of it for ever; nor does it take for
// deleted what it may not have heard of yet.
func TestWhatIsLeftOfDeletedTopicsIsSweptAway(t *testing.T) {
	cfg := testConfig()
	cfg.OffsetsRetentionCheckMillis, cfg.OffsetsRetentionMillis = 60_000, 1<<40
	c := newCore(&cfg, 0)
	c.setTopics((*topicsView)(nil).next(testTopics(t, 1, "there:1")))
	commit := func(name string, id topic.ID, now int64) {
		c.step(event{ticket: 1, body: &CommitRequest{Group: "g", Generation: NoGeneration, RetentionMillis: -1,
			Partitions: []CommitPartition{{Topic: name, ID: id, Offset: 7}}}}, now)
	}
	commit("there", testTopicID("there"), 1)
	commit("gone", testTopicID("gone"), 1)
	commit("old", topic.ID{}, 1) // of a release that knew no ids
	g := c.group("g")
	sg := newShareGroup()
	sg.known = true
	c.groupOrNew("s").share = sg
	for _, name := range []string{"there", "gone"} {
		sg.initialized[testTopicID(name)] = &shareTopic{name: name, parts: map[int32]struct{}{0: {}}}
		sg.initializing[testTopicID(name)] = sg.initialized[testTopicID(name)]
		sg.deleting[testTopicID(name)] = name
	}
	c.tick(sweepAfterMillis - 1)
	commit("young", testTopicID("young"), sweepAfterMillis-1)
	if len(g.offsets) != 4 || len(sg.initialized) != 2 {
		t.Fatalf("swept too early: %v", g.offsets)
	}
	c.take()
	c.tick(sweepAfterMillis + 60_000)
	if g.offsets["gone"] != nil || len(g.offsets) != 3 {
		t.Errorf("%v are left", g.offsets)
	}
	if gone := testTopicID("gone"); len(sg.initialized) != 1 || len(sg.initializing) != 1 || len(sg.deleting) != 1 || sg.initialized[gone] != nil {
		t.Errorf("of the share group: %v %v %v", sg.initialized, sg.initializing, sg.deleting)
	}
	if n := len(c.take().records); n != 2 { // the offset's tombstone, and the share group's topics
		t.Errorf("%d records", n)
	}
	c.tick(2*sweepAfterMillis + 60_000)
	if g.offsets["young"] != nil {
		t.Error("what was young is there still")
	}
}

func TestTheStateOfDeletedTopicsIsSweptAway(t *testing.T) {
	cfg := testConfig()
	cfg.ShareCutMillis = 60_000
	c := newShareCore(&cfg, 0)
	c.setTopics((*topicsView)(nil).next(testTopics(t, 1, "there:1", "gone:1")))
	begin := func(name string, now int64) ShareKey {
		k := ShareKey{Group: "g", Topic: testTopicID(name)}
		c.step(event{ticket: 1, body: &ShareInitialize{ShareKey: k, StateEpoch: 1, Start: 0}}, now)
		if c.parts[k] == nil {
			t.Fatalf("%s has not begun: %+v", name, c.out.replies)
		}
		return k
	}
	there, gone := begin("there", 1), begin("gone", 1)
	c.setTopics(c.view.next(testTopics(t, 2, "there:1")))
	c.tick(sweepAfterMillis - 1)
	if c.parts[gone] == nil {
		t.Fatal("swept too early")
	}
	c.tick(sweepAfterMillis + 60_000)
	if c.parts[gone] != nil || c.parts[there] == nil {
		t.Fatalf("left: %v", c.keys())
	}
}
