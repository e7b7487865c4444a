package parity

import (
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

func shareGroupStories() []story {
	return []story{
		{"share state of share-partitions", shareState},
		{"members of a share group", shareGroupLife},
		{"share groups, odd requests", shareGroupOdd},
		{"share groups, offsets", shareGroupOffsets},
	}
}

// shareStates are the requests between brokers about one share-partition.
type shareStates struct {
	s     *session
	group string
	id    [16]byte
	index int32
}

func (x *shareStates) init(step string, state int32, start int64) {
	q := kmsg.NewPtrInitializeShareGroupStateRequest()
	q.GroupID = x.group
	t := kmsg.NewInitializeShareGroupStateRequestTopic()
	t.TopicID = x.id
	p := kmsg.NewInitializeShareGroupStateRequestTopicPartition()
	p.Partition, p.StateEpoch, p.StartOffset = x.index, state, start
	t.Partitions = append(t.Partitions, p)
	q.Topics = append(q.Topics, t)
	x.s.ask("init "+step, 0, q)
}

func (x *shareStates) read(step string, leader int32) {
	q := kmsg.NewPtrReadShareGroupStateRequest()
	q.GroupID = x.group
	t := kmsg.NewReadShareGroupStateRequestTopic()
	t.TopicID = x.id
	p := kmsg.NewReadShareGroupStateRequestTopicPartition()
	p.Partition, p.LeaderEpoch = x.index, leader
	t.Partitions = append(t.Partitions, p)
	q.Topics = append(q.Topics, t)
	x.s.ask("read "+step, 0, q)
}

func (x *shareStates) write(step string, version int16, state, leader int32, start int64, done int32, batches ...kmsg.WriteShareGroupStateRequestTopicPartitionStateBatch) {
	q := kmsg.NewPtrWriteShareGroupStateRequest()
	q.GroupID = x.group
	t := kmsg.NewWriteShareGroupStateRequestTopic()
	t.TopicID = x.id
	p := kmsg.NewWriteShareGroupStateRequestTopicPartition()
	p.Partition, p.StateEpoch, p.LeaderEpoch, p.StartOffset, p.DeliveryCompleteCount, p.StateBatches = x.index, state, leader, start, done, batches
	t.Partitions = append(t.Partitions, p)
	q.Topics = append(q.Topics, t)
	x.s.ask("write "+step, version, q)
}

func stateBatch(first, last int64, state int8, count int16) kmsg.WriteShareGroupStateRequestTopicPartitionStateBatch {
	b := kmsg.NewWriteShareGroupStateRequestTopicPartitionStateBatch()
	b.FirstOffset, b.LastOffset, b.DeliveryState, b.DeliveryCount = first, last, state, count
	return b
}

func (x *shareStates) summary(step string) {
	versions(0, 1, func(v int16) {
		q := kmsg.NewPtrReadShareGroupStateSummaryRequest()
		q.GroupID = x.group
		t := kmsg.NewReadShareGroupStateSummaryRequestTopic()
		t.TopicID = x.id
		p := kmsg.NewReadShareGroupStateSummaryRequestTopicPartition()
		p.Partition, p.LeaderEpoch = x.index, -1
		t.Partitions = append(t.Partitions, p)
		q.Topics = append(q.Topics, t)
		x.s.ask("summary "+step, v, q)
	})
}

func (x *shareStates) remove(step string) {
	q := kmsg.NewPtrDeleteShareGroupStateRequest()
	q.GroupID = x.group
	t := kmsg.NewDeleteShareGroupStateRequestTopic()
	t.TopicID = x.id
	p := kmsg.NewDeleteShareGroupStateRequestTopicPartition()
	p.Partition = x.index
	t.Partitions = append(t.Partitions, p)
	q.Topics = append(q.Topics, t)
	x.s.ask("delete "+step, 0, q)
}

// shareCoordinator waits until the coordinator of a share-partition serves.
func shareCoordinator(s *session, group string, id [16]byte, partition int32) {
	nodetest.Eventually(s.t, 60*time.Second, "the share coordinator serves", func() error {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.CoordinatorType, find.CoordinatorKeys = 2, []string{shareKey(group, id, partition)}
		if r, _ := s.quiet(6, find).(*kmsg.FindCoordinatorResponse); r == nil || len(r.Coordinators) != 1 || r.Coordinators[0].ErrorCode != 0 {
			return errors.New("not found")
		}
		q := kmsg.NewPtrReadShareGroupStateSummaryRequest()
		q.GroupID = group
		t := kmsg.NewReadShareGroupStateSummaryRequestTopic()
		t.TopicID = id
		p := kmsg.NewReadShareGroupStateSummaryRequestTopicPartition()
		p.Partition, p.LeaderEpoch = partition, -1
		t.Partitions = append(t.Partitions, p)
		q.Topics = append(q.Topics, t)
		if r, _ := s.quiet(1, q).(*kmsg.ReadShareGroupStateSummaryResponse); r == nil || len(r.Topics) != 1 || r.Topics[0].Partitions[0].ErrorCode != 0 {
			return fmt.Errorf("not served: %+v", r)
		}
		return nil
	})
}

func shareKey(group string, id [16]byte, partition int32) string {
	return fmt.Sprintf("%s:%s:%d", group, base64.RawURLEncoding.EncodeToString(id[:]), partition)
}

func shareState(s *session) {
	id := createTopic(s, "ss-topic", 2, nil)
	shareCoordinator(s, "ss", id, 0)
	x := &shareStates{s: s, group: "ss", id: id}
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorType, find.CoordinatorKeys = 2, []string{"a", "a:b", ":x:1", "a:notatopicid:0", "ss:AAAAAAAAAAAAAAAAAAAAAQ:0x"}
	s.ask("find, odd keys", 6, find)
	find.CoordinatorKeys = []string{"ss:AAAAAAAAAAAAAAAAAAAAAQ:0"}
	s.ask("find, old version", 5, find)
	x.summary("of nothing")
	x.read("of nothing", 0)
	x.write("to nothing", 1, 0, 0, 0, 0)
	x.remove("of nothing")
	x.init("of a negative epoch", -1, 0)
	x.init("first", 3, 5)
	x.summary("begun")
	x.read("taken over", 2)
	x.read("again", 2)
	x.read("by an older leader", 1)
	x.read("of a negative epoch", -1)
	x.write("two runs", 1, 3, 2, 5, 4, stateBatch(5, 9, 2, 1), stateBatch(10, 14, 0, 1))
	x.read("written", 2)
	x.write("in between", 1, 3, 2, 5, 6, stateBatch(7, 12, 4, 5), stateBatch(20, 24, 0, 2))
	x.read("joined", 2)
	x.write("of fewer deliveries", 1, 3, 2, 5, 2, stateBatch(5, 24, 0, 1))
	x.read("after fewer deliveries", 2)
	x.summary("written")
	x.write("in version 0", 0, 3, 2, 8, 0, stateBatch(30, 30, 2, 1))
	x.summary("after version 0")
	x.write("further", 1, 3, 2, 11, 1)
	x.read("further", 2)
	x.write("back", 1, 3, 2, 6, 9, stateBatch(6, 8, 2, 9))
	x.read("not back", 2)
	x.summary("not back")
	x.write("under an old state epoch", 1, 2, 2, 12, 1)
	x.write("under an old leader epoch", 1, 3, 1, 12, 1)
	x.write("of negative epochs", 1, -1, -1, 12, 1)
	x.write("under a new leader epoch", 1, 3, 3, 12, 1)
	x.summary("under a new leader epoch")
	x.init("under an old state epoch", 2, 0)
	x.init("anew", 4, 50)
	x.summary("anew")
	x.read("anew", 3)
	x.init("where the group says", 5, -1)
	x.summary("where the group says")
	x.index = 9
	x.init("of no partition", 0, 0)
	x.read("of no partition", 0)
	x.summary("of no partition")
	x.remove("of no partition")
	x.index = -1
	x.init("of a negative partition", 0, 0)
	x.write("to a negative partition", 1, 0, 0, 0, 0)
	x.summary("of a negative partition")
	x.remove("of a negative partition")
	x.index = 0
	x.remove("done")
	x.remove("again")
	x.summary("deleted")
	x.group = ""
	x.init("without a group", 0, 0)
	x.read("without a group", 0)
	x.write("without a group", 1, 0, 0, 0, 0)
	x.summary("without a group")
	x.remove("without a group")
	shareRecords(s, "__share_group_state", shareKey("ss", id, 0), id)
}

// times are moments of the run, in hex as records hold them.
var times = regexp.MustCompile(`000001[9ab][0-9a-f]{9}`)

// shareRecords writes down the records that an internal topic holds for a key's coordinator, as bytes: topic ids by name, moments as such.
// The hash in a share group's record is each broker's own.
func shareRecords(s *session, topic, key string, id [16]byte) {
	partition := max(javaHash(key), -javaHash(key)) % 50
	resp, _ := s.quiet(12, fetchRequest(want{topic: topic, partition: partition})).(*kmsg.FetchResponse)
	if resp == nil || len(resp.Topics) != 1 {
		s.note("fetch", "%+v", resp)
		return
	}
	group, _, _ := strings.Cut(key, ":")
	mask := func(b []byte) string {
		if b == nil {
			return "null"
		}
		return times.ReplaceAllString(strings.ReplaceAll(hex.EncodeToString(b), hex.EncodeToString(id[:]), "<topic>"), "<moment>")
	}
	for b := resp.Topics[0].Partitions[0].RecordBatches; len(b) > 0; {
		var rb kmsg.RecordBatch
		if err := rb.ReadFrom(b); err != nil {
			s.note("batch", "%v", err)
			return
		}
		b = b[12+rb.Length:]
		for _, r := range readRecords(s, &rb) {
			if len(r.Key) < 4 || !strings.HasPrefix(string(r.Key[4:]), group) {
				continue
			}
			value := mask(r.Value)
			if r.Key[1] == 11 && r.Value != nil {
				value = mask(r.Value[:6]) + "<hash>"
			}
			s.note("record of "+topic, "%s = %s", mask(r.Key), value)
		}
	}
}

func shareBeat(group, member string, epoch int32, topics ...string) *kmsg.ShareGroupHeartbeatRequest {
	q := kmsg.NewPtrShareGroupHeartbeatRequest()
	q.GroupID, q.MemberID, q.MemberEpoch, q.SubscribedTopicNames = group, member, epoch, topics
	return q
}

// shareAtOnce lets a share group's assignments follow each other at once, and waits until its coordinators serve and know the topic.
func shareAtOnce(s *session, group, topic string, id [16]byte) {
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "share.assignment.interval.ms", ptr("0")
	r.Configs = append(r.Configs, c)
	alter.Resources = append(alter.Resources, r)
	s.ask("assign at once", 1, alter)
	coordinator(s, group+"-probe")
	coordinator(s, group)
	shareCoordinator(s, group, id, 0)
	assignAtOnce(s, group+"-known", topic) // which a consumer's heartbeat shows
}

const (
	shareA = "AAAAAAAAAAAAAAAAAAAAAQ"
	shareB = "BBBBBBBBBBBBBBBBBBBBBQ"
)

// assignedShare has a member ask until it is given something to read.
func assignedShare(s *session, group, member string, epoch int32) int32 {
	nodetest.Eventually(s.t, 60*time.Second, "something is assigned", func() error {
		r, _ := s.quiet(1, shareBeat(group, member, epoch)).(*kmsg.ShareGroupHeartbeatResponse)
		if r == nil || r.ErrorCode != 0 {
			return fmt.Errorf("heartbeat: %+v", r)
		}
		if r.MemberEpoch == epoch {
			return errors.New("not yet")
		}
		epoch = r.MemberEpoch
		return nil
	})
	return epoch
}

func describeShare(s *session, step string, groups ...string) {
	q := kmsg.NewPtrShareGroupDescribeRequest()
	q.GroupIDs, q.IncludeAuthorizedOperations = groups, true
	s.ask(step, 1, q)
}

func shareGroupLife(s *session) {
	id := createTopic(s, "sg-topic", 1, nil)
	shareAtOnce(s, "shg", "sg-topic", id)
	r, _ := s.ask("join", 1, shareBeat("shg", shareA, 0, "sg-topic")).(*kmsg.ShareGroupHeartbeatResponse)
	if r == nil || r.ErrorCode != 0 {
		s.t.Fatalf("join: %+v", r)
	}
	epoch := assignedShare(s, "shg", shareA, r.MemberEpoch)
	s.note("epoch", "%d", epoch)
	s.ask("nothing new", 1, shareBeat("shg", shareA, epoch))
	s.ask("says its topics again", 1, shareBeat("shg", shareA, epoch, "sg-topic"))
	s.ask("the second joins", 1, shareBeat("shg", shareB, 0, "sg-topic"))
	s.ask("the first is told", 1, shareBeat("shg", shareA, epoch))
	for _, g := range []string{"shg", "sg-none", "sg-known-probe"} { // Kafka answers in any order
		describeShare(s, "described "+g, g)
	}
	s.ask("the epoch before", 1, shareBeat("shg", shareA, epoch))
	s.ask("an epoch too far", 1, shareBeat("shg", shareA, epoch+7))
	s.ask("an epoch long gone", 1, shareBeat("shg", shareA, 1))
	s.ask("joins again", 1, shareBeat("shg", shareA, 0, "sg-topic"))
	s.ask("other topics", 1, shareBeat("shg", shareB, epoch+1, "sg-topic", "sg-other"))
	list := kmsg.NewPtrListGroupsRequest()
	list.TypesFilter = []string{"share"}
	for _, g := range s.quiet(5, list).(*kmsg.ListGroupsResponse).Groups {
		if g.Group == "shg" {
			s.note("listed", "%s %s %s", g.ProtocolType, g.GroupState, g.GroupType)
		}
	}
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{"shg"}
	s.ask("deleted with members", 2, remove)
	s.ask("leaves", 1, shareBeat("shg", shareA, -1))
	s.ask("leaves again", 1, shareBeat("shg", shareA, -1))
	s.ask("the last leaves", 1, shareBeat("shg", shareB, -1))
	describeShare(s, "described empty", "shg")
	s.ask("joins after", 1, joinRequest("shg", ""))
	s.ask("consumer joins", 1, consumerBeat("shg", shareA, 0, []string{"sg-topic"}, nil))
	s.ask("commits", 8, commitRequest(8, "shg", "", -1, "sg-topic", id, 0, 5, ""))
	fetch := kmsg.NewPtrOffsetFetchRequest()
	fetch.Group = "shg"
	s.ask("fetches offsets", 5, fetch)
	d := kmsg.NewPtrDescribeGroupsRequest()
	d.Groups = []string{"shg"}
	s.ask("described as classic", 5, d)
	s.ask("deleted", 2, remove)
	describeShare(s, "described deleted", "shg")
	shareRecords(s, "__consumer_offsets", "shg", id)
}

func shareGroupOdd(s *session) {
	id := createTopic(s, "sgo-topic", 1, nil)
	shareAtOnce(s, "sgo", "sgo-topic", id)
	ask := func(step string, change func(*kmsg.ShareGroupHeartbeatRequest)) {
		q := shareBeat("sgo", shareA, 0, "sgo-topic")
		change(q)
		s.ask(step, 1, q)
	}
	ask("no group", func(q *kmsg.ShareGroupHeartbeatRequest) { q.GroupID = "" })
	ask("no member", func(q *kmsg.ShareGroupHeartbeatRequest) { q.MemberID = "" })
	ask("blank member", func(q *kmsg.ShareGroupHeartbeatRequest) { q.MemberID = " " })
	ask("empty rack", func(q *kmsg.ShareGroupHeartbeatRequest) { q.RackID = ptr("") })
	ask("no topics", func(q *kmsg.ShareGroupHeartbeatRequest) { q.SubscribedTopicNames = nil })
	ask("empty topics", func(q *kmsg.ShareGroupHeartbeatRequest) { q.SubscribedTopicNames = []string{} })
	ask("epoch -2", func(q *kmsg.ShareGroupHeartbeatRequest) { q.MemberEpoch = -2 })
	ask("epoch of nobody", func(q *kmsg.ShareGroupHeartbeatRequest) { q.MemberEpoch = 4 })
	ask("leave of nobody", func(q *kmsg.ShareGroupHeartbeatRequest) { q.MemberEpoch = -1 })
	s.quiet(8, commitRequest(8, "sgo", "", -1, "sgo-topic", id, 0, 5, ""))
	ask("a group with offsets", func(q *kmsg.ShareGroupHeartbeatRequest) {})
	ask("leave of a group with offsets", func(q *kmsg.ShareGroupHeartbeatRequest) { q.MemberEpoch = -1 })
	describeShare(s, "described", "sgo", "")
}

func describeShareOffsets(s *session, step, group string, topics ...kmsg.DescribeShareGroupOffsetsRequestGroupTopic) {
	versions(0, 1, func(v int16) {
		q := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
		g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
		g.GroupID, g.Topics = group, topics
		q.Groups = append(q.Groups, g)
		s.ask(step, v, q)
	})
}

func alterShareOffsets(group, topic string, partition int32, start int64) *kmsg.AlterShareGroupOffsetsRequest {
	q := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	q.GroupID = group
	t := kmsg.NewAlterShareGroupOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
	p.Partition, p.StartOffset = partition, start
	t.Partitions = append(t.Partitions, p)
	q.Topics = append(q.Topics, t)
	return q
}

func deleteShareOffsets(group string, topics ...string) *kmsg.DeleteShareGroupOffsetsRequest {
	q := kmsg.NewPtrDeleteShareGroupOffsetsRequest()
	q.GroupID = group
	for _, name := range topics {
		t := kmsg.NewDeleteShareGroupOffsetsRequestTopic()
		t.Topic = name
		q.Topics = append(q.Topics, t)
	}
	return q
}

func shareGroupOffsets(s *session) {
	id := createTopic(s, "sof-topic", 1, nil)
	shareAtOnce(s, "sof", "sof-topic", id)
	named := kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
	named.Topic, named.Partitions = "sof-topic", []int32{0}
	other := kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
	other.Topic, other.Partitions = "sof-none", []int32{0}
	describeShareOffsets(s, "of no group", "sof")
	describeShareOffsets(s, "of no group, topics named", "sof", named, other)
	describeShareOffsets(s, "without a name", "")
	s.ask("deleted of no group", 0, deleteShareOffsets("sof", "sof-topic"))
	s.ask("altered without a name", 0, alterShareOffsets("", "sof-topic", 0, 3))
	s.ask("deleted without a name", 0, deleteShareOffsets("", "sof-topic"))
	r, _ := s.quiet(1, shareBeat("sof", shareA, 0, "sof-topic")).(*kmsg.ShareGroupHeartbeatResponse)
	if r == nil || r.ErrorCode != 0 {
		s.t.Fatalf("join: %+v", r)
	}
	assignedShare(s, "sof", shareA, r.MemberEpoch)
	describeShareOffsets(s, "begun", "sof")
	s.ask("altered with members", 0, alterShareOffsets("sof", "sof-topic", 0, 3))
	s.ask("deleted with members", 0, deleteShareOffsets("sof", "sof-topic"))
	s.quiet(1, shareBeat("sof", shareA, -1))
	s.ask("altered", 0, alterShareOffsets("sof", "sof-topic", 0, 3))
	s.ask("altered, no partition", 0, alterShareOffsets("sof", "sof-topic", 4, 3))
	s.ask("altered, no topic", 0, alterShareOffsets("sof", "sof-none", 0, 3))
	describeShareOffsets(s, "altered", "sof")
	describeShareOffsets(s, "altered, topics named", "sof", named, other)
	s.ask("deleted, one unknown", 0, deleteShareOffsets("sof", "sof-topic", "sof-none"))
	s.ask("deleted again", 0, deleteShareOffsets("sof", "sof-topic"))
	describeShareOffsets(s, "deleted", "sof")
	s.ask("altered of a new group", 0, alterShareOffsets("sof-new", "sof-topic", 0, 3))
	describeShareOffsets(s, "of a new group", "sof-new")
	describeShare(s, "described", "sof")
	describeShare(s, "described new", "sof-new")
	s.quiet(8, commitRequest(8, "sof-old", "", -1, "sof-topic", id, 0, 5, ""))
	describeShareOffsets(s, "of another kind of group", "sof-old")
	s.ask("altered of another kind of group", 0, alterShareOffsets("sof-old", "sof-topic", 0, 3))
	s.ask("deleted of another kind of group", 0, deleteShareOffsets("sof-old", "sof-topic"))
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{"sof", "sof-new", "sof-never"}
	s.ask("groups deleted", 2, remove)
	x := &shareStates{s: s, group: "sof", id: id}
	x.summary("of a deleted group")
}
