package replica

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/tier"
)

// readAs reads a whole partition as a consumer that may be answered by a follower.
func (c *cluster) readAs(id int32, name string, from int64) map[int64]string {
	c.t.Helper()
	p := c.held(id, name)
	got := make(map[int64]string)
	for at := from; at < p.log.HighWatermark(); {
		r := ReadRequest{Offset: at, MaxBytes: 1 << 20, MinOne: true, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, ReplicaID: NoReplica, AnyReplica: true}
		res, err := p.ReadCold(context.Background(), r)
		if err != nil {
			c.t.Fatalf("broker %d at %d: %v (%+v)", id, at, err, p.Describe())
		}
		if res.Records == nil {
			c.t.Fatalf("broker %d has nothing at %d: %+v", id, at, p.Describe())
		}
		var buf writer
		if _, err := res.Records.WriteTo(&buf); err != nil {
			c.t.Fatal(err)
		}
		res.Records.Release()
		for _, r := range decode(c.t, buf) {
			got[r.offset] = r.value
			at = r.offset + 1
		}
	}
	return got
}

func (c *cluster) wantRead(id int32, name string, want map[int64]string) {
	c.t.Helper()
	got := c.readAs(id, name, 0)
	for offset, value := range want {
		if got[offset] != value {
			c.t.Fatalf("broker %d serves %q at %d, want %q", id, got[offset], offset, value)
		}
	}
}

// tieredTopic makes a topic of small segments; keep says whether local copies stay.
func (c *cluster) tieredTopic(name string, replicas []int32, keep bool, configs ...string) {
	local := "0"
	if keep {
		local = "-2"
	}
	c.topic(name, replicas, append([]string{
		"remote.storage.enable", "true", "retention.ms", "-1", "internal.segment.bytes", "4096", "local.retention.bytes", local,
	}, configs...)...)
}

// uploaded waits until the bucket has everything below the active segment of the leader.
func (c *cluster) uploaded(name string) int64 {
	c.t.Helper()
	_, p := c.leader(name)
	var end int64
	c.wait("the bucket to have all sealed segments", func() bool {
		end = c.remoteEnd(p)
		return end > 0 && end == p.log.Active().BaseOffset
	})
	return end
}

func TestEmptyReplicaStartsWhereTheBucketEnds(t *testing.T) {
	for _, keep := range []bool{true, false} {
		t.Run(map[bool]string{true: "leader has it all", false: "leader has the tail"}[keep], func(t *testing.T) {
			c := startCluster(t, 3, hot.Fsync, nil)
			c.tieredTopic("events", []int32{1, 2, 3}, keep)
			acked := make(map[int64]string)
			_, first := c.leader("events")
			idempotent := batch.NewBuilder(batch.Options{Producer: &batch.Producer{ID: 7, Epoch: 2}})
			if err := idempotent.Append(now(), nil, []byte("numbered"), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := first.Append(slices.Clone([]byte(idempotent.Bytes())), AppendRequest{Acks: 1, Version: 12, Now: now()}); err != nil {
				t.Fatal(err)
			}
			c.produceAll("events", 100, acked)
			c.inSync("events", 3)
			third := c.nodes[2]
			third.kill(false, 0)
			third.wipe()
			c.produceAll("events", 50, acked)
			end := c.uploaded("events")
			if !keep {
				_, lead := c.leader("events")
				c.wait("the leader to let go of local copies", func() bool { return lead.log.Offsets().LocalStart == end })
			}
			third.boot(true)
			c.inSync("events", 3)
			p, lead := c.held(3, "events"), c.held(1, "events")
			if o := p.log.Offsets(); o.LocalStart != end || o.LogStart != 0 {
				t.Fatalf("the new replica has %+v, the bucket ends at %d", o, end)
			}
			if got, want := p.log.Lineage(), lead.log.Lineage(); !got.Equal(want) {
				t.Fatalf("lineage %v, the leader's is %v", got, want)
			}
			if list, err := p.Producers(); err != nil || len(list) != 1 || list[0].ProducerID != 7 || list[0].Epoch != 2 {
				t.Fatalf("producers %+v, %v; one wrote to what is in the bucket", list, err)
			}
			c.holds("events", acked)
			c.same("events")
			c.wantRead(3, "events", acked)
		})
	}
}

func TestFollowersFreeOnlyWhatTheManifestHas(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	c.tieredTopic("events", []int32{1, 2, 3}, false)
	acked := make(map[int64]string)
	c.produceAll("events", 100, acked)
	c.inSync("events", 3)
	end := c.uploaded("events")
	for id := range int32(3) {
		p := c.held(id+1, "events")
		c.wait("local copies to go", func() bool {
			o := p.log.Offsets()
			if o.LocalStart > c.remoteEnd(p) {
				t.Fatalf("broker %d let go of %d, the bucket ends at %d", id+1, o.LocalStart, end)
			}
			return o.LocalStart > 0
		})
		c.wantRead(id+1, "events", acked)
	}
}

func TestDeposedLeaderNeitherCommitsNorUploads(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	c.tieredTopic("events", []int32{1, 2, 3}, true, "min.insync.replicas", "2")
	acked := make(map[int64]string)
	c.produceAll("events", 60, acked)
	c.uploaded("events")
	c.inSync("events", 3)
	old := c.held(1, "events")
	c.nodes[0].ears.stop()
	if err := c.quorum.FenceBroker(context.Background(), 1, c.nodes[0].epoch.Load()); err != nil {
		t.Fatal(err)
	}
	c.wait("another leader", func() bool { return c.state("events").Leader > 1 })
	c.leader("events") // until it knows, it follows the old one, and what it gets from there is rightly acknowledged
	hw := old.log.HighWatermark()
	refused := 0
	for i := range 60 {
		a, err := old.Append(build(t, 0, record{ts: now(), value: name(i)}), AppendRequest{Acks: -1, Version: 12, Now: now()})
		if err != nil {
			refused++
			continue
		}
		defer old.OnCommitted(a.LeaderEpoch, a.LastOffset, func(err error) {
			if err == nil {
				t.Errorf("offset %d was acknowledged by a deposed leader", a.LastOffset)
			}
		})()
	}
	c.produceAll("events", 60, acked)
	end := c.uploaded("events")
	if old.log.HighWatermark() != hw {
		t.Fatalf("the deposed leader moved its watermark from %d to %d", hw, old.log.HighWatermark())
	}
	s, err := c.held(2, "events").remote.Refresh(context.Background())
	if err != nil || s.LeaderEpoch != c.state("events").LeaderEpoch || s.End != end {
		t.Fatalf("manifest %+v, %v; leader epoch %d", s, err, c.state("events").LeaderEpoch)
	}
	c.wantRead(2, "events", acked)
}

func TestUncleanLeaderTakesTheBucketsRecords(t *testing.T) {
	c := startCluster(t, 2, hot.Fsync, lagging)
	c.tieredTopic("events", []int32{1, 2}, true, "unclean.leader.election.enable", "true", "min.insync.replicas", "1")
	acked := make(map[int64]string)
	c.produceAll("events", 20, acked)
	c.inSync("events", 2)
	c.part(2, 1, true)
	if _, err := c.held(1, "events").Append(build(t, 0, record{ts: now(), value: "not waited for"}), AppendRequest{Acks: 1, Version: 12, Now: now()}); err != nil {
		t.Fatal(err)
	}
	c.wait("the follower that is cut off to leave the in-sync set", func() bool { return len(c.state("events").ISR) == 1 })
	c.produceAll("events", 100, acked)
	end := c.uploaded("events")
	c.nodes[0].kill(false, 0)
	c.part(2, 1, false)
	m, p := c.leader("events")
	if m.id != 2 {
		t.Fatalf("broker %d leads", m.id)
	}
	c.wait("the leader to be whole", func() bool { return !c.state("events").Recovering })
	if o := p.log.Offsets(); o.End < end {
		t.Fatalf("the unclean leader has %+v, the bucket ends at %d", o, end)
	}
	// A leader before it may be cut off from the brokers alone.
	if err := p.remote.Commit(context.Background(), tier.Edit{LeaderEpoch: c.state("events").LeaderEpoch - 1}); !errors.Is(err, tier.ErrFenced) {
		t.Errorf("a commit of an older leader after the bucket was taken: %v", err)
	}
	kept := make(map[int64]string)
	for offset, value := range acked {
		if offset < end {
			kept[offset] = value
		}
	}
	c.produceAll("events", 30, kept)
	c.wantRead(2, "events", kept)
	c.nodes[0].boot(false)
	c.inSync("events", 2)
	c.holds("events", kept)
	c.same("events")
}

// A leader that is cut off from the brokers, and not from the bucket, lives on when another is elected uncleanly. What it has
// committed until then stands; what it wants to commit afterwards is refused, and both tiers stay of one history.
func TestCutOffLeaderCommitsNothingAfterTheUncleanOne(t *testing.T) {
	c := startCluster(t, 2, hot.Fsync, lagging)
	c.tieredTopic("events", []int32{1, 2}, true, "unclean.leader.election.enable", "true", "min.insync.replicas", "1")
	acked := make(map[int64]string)
	c.produceAll("events", 20, acked)
	c.inSync("events", 2)
	c.part(2, 1, true)
	old := c.held(1, "events")
	if _, err := old.Append(build(t, 0, record{ts: now(), value: "not waited for"}), AppendRequest{Acks: 1, Version: 12, Now: now()}); err != nil {
		t.Fatal(err)
	}
	c.wait("the follower that is cut off to leave the in-sync set", func() bool { return len(c.state("events").ISR) == 1 })
	c.produceAll("events", 100, acked)
	end := c.uploaded("events")

	c.nodes[0].ears.stop()
	if err := c.quorum.FenceBroker(context.Background(), 1, c.nodes[0].epoch.Load()); err != nil {
		t.Fatal(err)
	}
	m, p := c.leader("events")
	if m.id != 2 {
		t.Fatalf("broker %d leads", m.id)
	}
	c.wait("the leader to be whole", func() bool { return !c.state("events").Recovering })
	c.produceTo(old, 40) // it is alone in the set that it knows
	tierOf := func() tier.PartitionStatus {
		s, _ := c.nodes[0].tier.PartitionStatus(old.id)
		return s
	}
	c.wait("the old leader to have tried to commit", func() bool { return tierOf().Phase == "fenced" || c.remoteEnd(p) > end })
	if got := c.remoteEnd(p); got != end || tierOf().Phase != "fenced" {
		t.Fatalf("the old leader moved the bucket's end from %d to %d, and is %+v", end, got, tierOf())
	}
	kept := make(map[int64]string)
	for offset, value := range acked {
		if offset < end {
			kept[offset] = value
		}
	}
	c.produceAll("events", 60, kept)
	c.uploaded("events")
	c.wantRead(2, "events", kept)
	chain, err := p.remote.Lineage(context.Background())
	if err != nil || !p.log.Lineage().Within(chain, 0, c.remoteEnd(p)) {
		t.Errorf("the bucket's epochs are %v, %v; the leader's %v", chain, err, p.log.Lineage())
	}
}

func TestReassignedReplicaMovesAndItsDirectoryGoes(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	id := c.topic("events", []int32{1, 2})
	acked := make(map[int64]string)
	c.produceAll("events", 20, acked)
	results, err := c.quorum.AlterReassignments(context.Background(), []meta.Reassign{
		{PartitionRef: meta.PartitionRef{Topic: "events"}, Replicas: []int32{3, 2}}}, true)
	if err != nil || results[0].Err != nil {
		t.Fatal(err, results)
	}
	c.wait("the reassignment", func() bool {
		s := c.state("events")
		return slices.Equal(s.Replicas, []int32{3, 2}) && len(s.ISR) == 2 && len(s.AddingReplicas)+len(s.RemovingReplicas) == 0
	})
	c.wait("the old replica to go", func() bool { return c.nodes[0].onDisk(id) == 0 })
	c.produceAll("events", 20, acked)
	c.inSync("events", 2)
	c.holds("events", acked)
	c.same("events")
}

func TestLaggingFollowerLeavesAndComesBack(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, lagging)
	c.topic("events", []int32{1, 2, 3}, "min.insync.replicas", "2")
	acked := make(map[int64]string)
	c.produceAll("events", 5, acked)
	c.inSync("events", 3)
	c.part(3, 1, true)
	c.produceAll("events", 5, acked) // waits until 3 is out
	if s := c.state("events"); slices.Contains(s.ISR, 3) {
		t.Fatalf("%+v: acknowledged without a member of the in-sync set", s)
	}
	c.part(3, 1, false)
	c.inSync("events", 3)
	c.holds("events", acked)
}

func TestConsumersAreSentToAFollowerInTheirRack(t *testing.T) {
	c := startCluster(t, 2, hot.Fsync, nil)
	for i, m := range c.nodes {
		m.kill(false, 0)
		m.rack = []string{"a", "b"}[i]
		m.boot(false)
	}
	c.topic("events", []int32{1, 2}, "min.insync.replicas", "2")
	acked := make(map[int64]string)
	c.produceAll("events", 5, acked)
	c.inSync("events", 2)
	_, lead := c.leader("events")
	if id := lead.PreferredReplica("b", 3); id != 2 {
		t.Errorf("rack b is sent to %d", id)
	}
	for _, rack := range []string{"a", "c", ""} {
		if id := lead.PreferredReplica(rack, 3); id != NoReplica {
			t.Errorf("rack %q is sent to %d", rack, id)
		}
	}
	if id := lead.PreferredReplica("b", 6); id != NoReplica {
		t.Errorf("an offset that the follower lacks is sent to %d", id)
	}
	c.wantRead(2, "events", acked)
	if _, err := c.held(2, "events").Read(ReadRequest{MaxBytes: 1, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, ReplicaID: NoReplica}); err == nil {
		t.Error("a client that does not say so is answered by a follower")
	}
}

func TestEveryNextLeaderGoesOnUploading(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	c.tieredTopic("events", []int32{1, 2, 3}, false, "min.insync.replicas", "2")
	acked := make(map[int64]string)
	for range 5 {
		c.produceAll("events", 60, acked)
		c.uploaded("events")
		c.inSync("events", 3)
		m, _ := c.leader("events")
		m.kill(false, 0)
		c.produceAll("events", 60, acked)
		c.uploaded("events")
		m.boot(false)
		c.inSync("events", 3)
	}
	for id := range int32(3) {
		c.wantRead(id+1, "events", acked)
	}
}

func TestEmptyReplicaStartsAtTheLogStartWhenTheBucketIsEmpty(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	c.tieredTopic("events", []int32{1, 2, 3}, true, "remote.log.copy.disable", "true")
	acked := make(map[int64]string)
	c.produceAll("events", 60, acked)
	c.inSync("events", 3)
	third := c.nodes[2]
	third.kill(false, 0)
	third.wipe()
	if start, err := c.held(1, "events").DeleteRecords(context.Background(), 40); err != nil || start != 40 {
		t.Fatal(start, err)
	}
	third.boot(true)
	c.inSync("events", 3)
	if o := c.held(3, "events").log.Offsets(); o.LogStart != 40 {
		t.Fatalf("%+v", o)
	}
	c.holds("events", acked)
}
