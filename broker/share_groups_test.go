package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// TestShareGroupFromItsFirstMemberToItsDeletion joins, gets partitions once they are share-partitions, and uses the admin keys on
// what was acknowledged meanwhile.
func TestShareGroupFromItsFirstMemberToItsDeletion(t *testing.T) {
	s := startStack(t, map[string]string{"group.share.assignment.interval.ms": "0"})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl := s.client(t)
	adm := kadm.NewClient(cl)
	made, err := adm.CreateTopics(ctx, 2, 1, nil, "events")
	if err != nil {
		t.Fatal(err)
	}
	id := made["events"].ID
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "events", Value: []byte("a")}, &kgo.Record{Topic: "events", Value: []byte("b")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for adm.FindGroupCoordinators(ctx, "g").Error() != nil { // the first time, the offsets topic is to be made
		if ctx.Err() != nil {
			t.Fatal("no coordinator")
		}
	}
	c := dial(t, s.addr)
	beat := func(epoch int32, topics ...string) *kmsg.ShareGroupHeartbeatResponse {
		q := kmsg.NewPtrShareGroupHeartbeatRequest()
		q.Version, q.GroupID, q.MemberID, q.MemberEpoch, q.SubscribedTopicNames = 1, "g", "m", epoch, topics
		return c.ask(q).(*kmsg.ShareGroupHeartbeatResponse)
	}
	var a *kmsg.ShareGroupHeartbeatResponse
	for epoch := int32(0); ; {
		if a = beat(epoch, "events"); a.ErrorCode == codeNone {
			epoch = a.MemberEpoch
			if a.Assignment != nil && len(a.Assignment.TopicPartitions) == 1 && len(a.Assignment.TopicPartitions[0].Partitions) == 2 {
				break
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("nothing assigned: %+v", a)
		}
	}
	d := kmsg.NewPtrShareGroupDescribeRequest()
	d.Version, d.GroupIDs = 1, []string{"g"}
	if g := c.ask(d).(*kmsg.ShareGroupDescribeResponse).Groups[0]; g.GroupState != "Stable" || g.Assignor != "simple" || len(g.Members) != 1 ||
		g.Members[0].Assignment.TopicPartitions[0].Topic != "events" {
		t.Fatalf("described as %+v", g)
	}
	// The leader takes partition 0 over, as a share fetch has it do, and one record is done.
	x := NewShareState(1, s.deps.Shares, nil)
	key := coordinator.ShareKey{Group: "g", Topic: [16]byte(id), Partition: 0}
	r := x.Read(ctx, []coordinator.ShareRead{{ShareKey: key, LeaderEpoch: 1}})[0]
	if r.Err != nil || r.Start != coordinator.NoOffset {
		t.Fatalf("read %+v", r)
	}
	if err := x.Write(ctx, []coordinator.ShareWrite{{ShareKey: key, StateEpoch: r.StateEpoch, LeaderEpoch: 1, Start: 0, DeliveryCompleteCount: 1,
		Batches: []coordinator.ShareBatch{{First: 0, Last: 0, State: coordinator.ShareAcknowledged, DeliveryCount: 1}}}})[0]; err != nil {
		t.Fatal(err)
	}
	o := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	o.Version = 1
	og := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	og.GroupID = "g"
	o.Groups = append(o.Groups, og)
	ends, err := adm.ListEndOffsets(ctx, "events")
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup("events", 0)
	parts := c.ask(o).(*kmsg.DescribeShareGroupOffsetsResponse).Groups[0].Topics[0].Partitions
	if p := parts[0]; len(parts) != 2 || p.StartOffset != 0 || p.LeaderEpoch != 1 || p.Lag != end.Offset-1 || parts[1].StartOffset != -1 || parts[1].Lag != -1 {
		t.Fatalf("offsets %+v; the end is %d", parts, end.Offset)
	}
	alter := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	alter.GroupID = "g"
	at := kmsg.NewAlterShareGroupOffsetsRequestTopic()
	at.Topic = "events"
	ap := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
	ap.StartOffset = end.Offset
	at.Partitions = append(at.Partitions, ap)
	alter.Topics = append(alter.Topics, at)
	if got := c.ask(alter).(*kmsg.AlterShareGroupOffsetsResponse); got.ErrorCode != codeNonEmptyGroup {
		t.Fatalf("altered while somebody is in the group: %+v", got)
	}
	if got := beat(-1); got.ErrorCode != codeNone {
		t.Fatalf("left: %+v", got)
	}
	if got := c.ask(alter).(*kmsg.AlterShareGroupOffsetsResponse); got.ErrorCode != codeNone || got.Topics[0].Partitions[0].ErrorCode != codeNone {
		t.Fatalf("altered: %+v", got)
	}
	// Whoever still works with the state of before is fenced.
	if err := x.Write(ctx, []coordinator.ShareWrite{{ShareKey: key, StateEpoch: r.StateEpoch, LeaderEpoch: 1, Start: 1}})[0]; !errors.Is(err, coordinator.ErrFencedStateEpoch) {
		t.Fatalf("written under the old state epoch: %v", err)
	}
	if p := c.ask(o).(*kmsg.DescribeShareGroupOffsetsResponse).Groups[0].Topics[0].Partitions[0]; p.StartOffset != end.Offset || p.Lag != 0 {
		t.Fatalf("offsets after: %+v", p)
	}
	if list, err := adm.ListGroups(ctx); err != nil || list["g"].State != "Empty" || list["g"].ProtocolType != "share" {
		t.Fatalf("listed: %+v, %v", list, err)
	}
	if _, err := adm.DeleteGroup(ctx, "g"); err != nil {
		t.Fatal(err)
	}
	if sum := x.Summary(ctx, []coordinator.ShareKey{key})[0]; sum.Err != nil || sum.Start != coordinator.NoOffset || sum.StateEpoch != 0 {
		t.Fatalf("state after the group is deleted: %+v", sum)
	}
	if got := c.ask(o).(*kmsg.DescribeShareGroupOffsetsResponse).Groups[0]; got.ErrorCode != codeNone || len(got.Topics) > 0 {
		t.Fatalf("offsets of a deleted group: %+v", got)
	}
}
