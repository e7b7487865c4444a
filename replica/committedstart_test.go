package replica

import (
	"context"
	"errors"
	"testing"

	"github.com/varvelog/varve/hot"
)

// deletedAll deletes all records there are, and waits until the bucket has committed the new log start and has nothing left.
func (c *cluster) deletedAll(name string) (start int64) {
	c.t.Helper()
	_, lead := c.leader(name)
	start, err := lead.DeleteRecords(context.Background(), -1)
	if err != nil {
		c.t.Fatal(err)
	}
	c.wait("the bucket to commit the log start", func() bool {
		s, err := lead.remote.Refresh(context.Background())
		if err != nil {
			c.t.Fatal(err)
		}
		return s.Start == start && s.Segments == 0 && s.End > 0
	})
	return start
}

// A leader that was away when records were deleted, and has nothing to upload, still speaks of what is gone. Neither an empty
// replica nor a consumer may be sent to and fro for that.
func TestLeaderThatMissedADeletionKeepsNobodyWaiting(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	c.tieredTopic("events", []int32{1, 2, 3}, false, "min.insync.replicas", "3")
	c.produceAll("events", 100, make(map[int64]string))
	c.inSync("events", 3)
	c.uploaded("events")
	second := c.held(2, "events")
	c.wait("local copies to go", func() bool { return second.log.Offsets().LocalStart > 0 })
	c.nodes[1].kill(false, 0)
	start := c.deletedAll("events")
	c.nodes[2].kill(false, 0)
	c.nodes[0].kill(false, 0)
	c.nodes[2].wipe()
	c.nodes[1].boot(false)
	m, lead := c.leader("events")
	if o := lead.log.Offsets(); m.id != 2 || o.LogStart >= start {
		t.Fatalf("broker %d leads with %+v: it knows of the deletion, and the test shows nothing", m.id, o)
	}
	c.nodes[2].boot(true)
	c.nodes[0].boot(false)
	c.inSync("events", 3)
	if o := c.held(3, "events").log.Offsets(); o.LogStart != start {
		t.Errorf("the empty replica has %+v, everything below %d was deleted", o, start)
	}
	r := ReadRequest{MaxBytes: 1 << 20, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, ReplicaID: NoReplica}
	if _, err := lead.ReadCold(context.Background(), r); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("a consumer at the start is told %v", err)
	}
	if o := lead.log.Offsets(); o.LogStart != start {
		t.Errorf("the leader has %+v, the committed start is %d: the consumer is sent back to where nothing is", o, start)
	}
}

// What is given out below the committed log start would be acknowledged, and deleted when the leader follows that start.
func TestUncleanLeaderGivesNoDeletedOffsetOutAgain(t *testing.T) {
	c := startCluster(t, 2, hot.Fsync, lagging)
	c.tieredTopic("events", []int32{1, 2}, true, "unclean.leader.election.enable", "true", "min.insync.replicas", "1")
	c.produceAll("events", 20, make(map[int64]string))
	c.inSync("events", 2)
	c.part(2, 1, true)
	c.produceAll("events", 100, make(map[int64]string))
	c.uploaded("events")
	start := c.deletedAll("events")
	c.nodes[0].kill(false, 0)
	c.part(2, 1, false)
	m, p := c.leader("events")
	if m.id != 2 {
		t.Fatalf("broker %d leads", m.id)
	}
	c.wait("the leader to be whole", func() bool { return !c.state("events").Recovering })
	kept := make(map[int64]string)
	c.produceAll("events", 30, kept)
	for offset := range kept {
		if offset < start {
			t.Fatalf("offset %d is given out again, below the committed start %d: %+v", offset, start, p.log.Offsets())
		}
	}
	c.nodes[0].boot(false)
	c.inSync("events", 2)
	c.holds("events", kept)
	c.same("events")
}
