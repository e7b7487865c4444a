package parity

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

func migrationStories() []story {
	return []story{
		{"from classic to consumer and back", migrationLife},
		{"static members change protocols", migrationStatic},
		{"migration, odd requests", migrationOdd},
	}
}

// subscribed makes a join name topics and what the member owns, as clients of the
// consumer protocol type do.
func subscribed(req *kmsg.JoinGroupRequest, topic string, owned ...int32) *kmsg.JoinGroupRequest {
	m := kmsg.ConsumerMemberMetadata{Version: 1, Topics: []string{topic}}
	if len(owned) > 0 {
		m.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: topic, Partitions: owned}}
	}
	req.Protocols[0].Metadata = m.AppendTo(nil)
	return req
}

// assigned makes a sync assign partitions of a topic to its own member.
func assigned(req *kmsg.SyncGroupRequest, topic string, partitions ...int32) *kmsg.SyncGroupRequest {
	a := kmsg.ConsumerMemberAssignment{Version: 1, Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: topic, Partitions: partitions}}}
	req.GroupAssignment[0].MemberAssignment = a.AppendTo(nil)
	return req
}

// assignAtOnce has a group's assignments made when they are due, and waits until
// the coordinator knows a topic.
func assignAtOnce(s *session, group, topicName string) (id [16]byte) {
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = "consumer.assignment.interval.ms", ptr("0")
	r.Configs = append(r.Configs, c)
	alter.Resources = append(alter.Resources, r)
	s.ask("assign at once", 1, alter)
	probe := "PPPPPPPPPPPPPPPPPPPPPP"
	nodetest.Eventually(s.t, 60*time.Second, "the coordinator knows the topic", func() error {
		r, _ := s.quiet(1, consumerBeat(group+"-probe", probe, 0, []string{topicName}, nil)).(*kmsg.ConsumerGroupHeartbeatResponse)
		s.quiet(1, consumerBeat(group+"-probe", probe, -1, nil, nil))
		if r == nil || r.Assignment == nil || len(r.Assignment.Topics) == 0 {
			return errors.New("not yet")
		}
		id = r.Assignment.Topics[0].TopicID
		return nil
	})
	return id
}

func described(s *session, group string) {
	d := kmsg.NewPtrConsumerGroupDescribeRequest()
	d.Groups = []string{group}
	s.ask("described", 1, d)
	old := kmsg.NewPtrDescribeGroupsRequest()
	old.Groups = []string{group}
	s.ask("described as a classic group", 6, old)
}

func migrationLife(s *session) {
	const group, topicName = "mg", "mg-topic"
	createTopic(s, topicName, 4, nil)
	coordinator(s, group)
	id := assignAtOnce(s, group, topicName)
	owns := func(partitions ...int32) []kmsg.ConsumerGroupHeartbeatRequestTopic {
		t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		t.TopicID, t.Partitions = id, partitions
		return []kmsg.ConsumerGroupHeartbeatRequestTopic{t}
	}
	b := "BBBBBBBBBBBBBBBBBBBBBB"
	topics := []string{topicName}
	join := func(step, member string, owned ...int32) (string, int32) {
		r, _ := s.ask(step, 5, subscribed(joinRequest(group, member), topicName, owned...)).(*kmsg.JoinGroupResponse)
		if r == nil {
			return "", -1
		}
		return r.MemberID, r.Generation
	}
	a, _ := join("classic join", "")
	_, gen := join("classic join", a)
	s.ask("leader's sync", 5, assigned(syncRequest(group, a, gen, true), topicName, 0, 1, 2, 3))
	s.ask("commit", 8, commitRequest(8, group, a, gen, topicName, id, 3, 30, ""))
	beat := func(step string, epoch int32, owned []kmsg.ConsumerGroupHeartbeatRequestTopic) {
		names := topics
		if epoch != 0 {
			names = nil
		}
		s.ask(step, 1, consumerBeat(group, b, epoch, names, owned))
	}
	beat("consumer joins", 0, nil)
	described(s, group)
	s.ask("fetch", 8, offsetFetch(8, group, topicName, id, 3))
	s.ask("heartbeat", 4, heartbeatRequest(group, a, gen))
	s.ask("heartbeat of another generation", 4, heartbeatRequest(group, a, gen+1))
	s.ask("heartbeat of the consumer", 4, heartbeatRequest(group, b, gen+1))
	s.ask("sync", 5, syncRequest(group, a, gen, false))
	s.ask("sync of a stranger", 5, syncRequest(group, "who", gen, false))
	_, gen = join("join, owning all", a, 0, 1, 2, 3)
	s.ask("sync", 5, syncRequest(group, a, gen, false))
	s.ask("commit of what is being given up", 8, commitRequest(8, group, a, gen, topicName, id, 3, 31, ""))
	described(s, group)
	_, gen = join("join, owning half", a, 0, 1)
	s.ask("sync", 5, syncRequest(group, a, gen, false))
	s.ask("heartbeat", 4, heartbeatRequest(group, a, gen))
	beat("consumer takes", gen, nil)
	s.ask("commit", 8, commitRequest(8, group, a, gen, topicName, id, 0, 1, ""))
	s.ask("commit of the generation before", 8, commitRequest(8, group, a, gen-1, topicName, id, 0, 1, ""))
	s.ask("commit of a later generation", 8, commitRequest(8, group, a, gen+1, topicName, id, 0, 1, ""))
	s.ask("commit of another's", 8, commitRequest(8, group, a, gen-1, topicName, id, 3, 1, ""))
	s.ask("commit of the consumer", 9, commitRequest(9, group, b, gen, topicName, id, 3, 32, ""))
	s.ask("commit of the consumer", 8, commitRequest(8, group, b, gen, topicName, id, 3, 32, ""))
	fetch := func(step, member string, epoch int32) {
		req := offsetFetch(9, group, topicName, id, 3)
		req.Groups[0].MemberID, req.Groups[0].MemberEpoch = &member, epoch
		s.ask(step, 9, req)
	}
	fetch("fetch of the classic member", a, gen)
	fetch("fetch of the classic member", a, gen-1)
	fetch("fetch of the consumer", b, gen)
	fetch("fetch of the consumer", b, gen-1)
	s.ask("leave of a stranger", 5, leaveRequest(group, "who"))
	beat("consumer leaves", -1, nil)
	described(s, group)
	s.ask("heartbeat", 4, heartbeatRequest(group, a, gen))
	_, gen = join("classic join", a, 0, 1)
	s.ask("leader's sync", 5, assigned(syncRequest(group, a, gen, true), topicName, 0, 1, 2, 3))
	s.ask("heartbeat", 4, heartbeatRequest(group, a, gen))
	described(s, group)
	beat("consumer joins", 0, nil)
	s.ask("classic member leaves", 5, leaveRequest(group, a))
	beat("consumer takes all", gen+1, nil)
	beat("consumer takes all", gen+2, owns(0, 1, 2, 3))
	described(s, group)
	beat("consumer leaves", -1, nil)
	described(s, group)
}

func migrationStatic(s *session) {
	const group, topicName = "ms", "ms-topic"
	createTopic(s, topicName, 2, nil)
	coordinator(s, group)
	assignAtOnce(s, group, topicName)
	static := func(req *kmsg.JoinGroupRequest) *kmsg.JoinGroupRequest {
		req.InstanceID = ptr("i")
		return subscribed(req, topicName)
	}
	join := func(step, member string) (string, int32) {
		r, _ := s.ask(step, 5, static(joinRequest(group, member))).(*kmsg.JoinGroupResponse)
		if r == nil {
			return "", -1
		}
		return r.MemberID, r.Generation
	}
	sync := func(step, member string, gen int32) {
		req := syncRequest(group, member, gen, true)
		req.InstanceID = ptr("i")
		s.ask(step, 5, assigned(req, topicName, 0, 1))
	}
	heartbeat := func(step, member string, gen int32) {
		req := heartbeatRequest(group, member, gen)
		req.InstanceID = ptr("i")
		s.ask(step, 4, req)
	}
	beat := func(step, member string, epoch int32) {
		var topics []string
		if epoch == 0 {
			topics = []string{topicName}
		}
		req := consumerBeat(group, member, epoch, topics, nil)
		req.InstanceID = ptr("i")
		s.ask(step, 1, req)
	}
	a, gen := join("classic join", "")
	sync("leader's sync", a, gen)
	b, c := "BBBBBBBBBBBBBBBBBBBBBB", "CCCCCCCCCCCCCCCCCCCCCC"
	beat("goes on as a consumer", b, 0)
	described(s, group)
	heartbeat("heartbeat of its former self", a, gen)
	join("join of its former self", a)
	beat("another takes its name", c, 0)
	beat("leaves for a while", b, -2)
	a, gen = join("comes back as a classic member", "")
	described(s, group)
	sync("sync", a, gen)
	heartbeat("heartbeat", a, gen)
	beat("goes on as a consumer", b, 0)
	a, gen = join("comes back as a classic member without a word", "")
	heartbeat("heartbeat", a, gen)
	beat("goes on as a consumer", b, 0)
	s.ask("another consumer joins", 1, consumerBeat(group, c, 0, []string{topicName}, nil))
	a, gen = join("joins as a classic member", "")
	sync("sync", a, gen)
	described(s, group)
	join("joins again", a)
	join("join of a stranger under its name", "who")
	leave := leaveRequest(group, "")
	leave.Members[0].InstanceID = ptr("i")
	s.ask("is removed by name", 5, leave)
	s.ask("the other leaves", 1, consumerBeat(group, c, -1, nil, nil))
	described(s, group)
}

func migrationOdd(s *session) {
	const topicName = "mo-topic"
	createTopic(s, topicName, 1, nil)
	coordinator(s, "mo-classic")
	assignAtOnce(s, "mo", topicName)
	b := "BBBBBBBBBBBBBBBBBBBBBB"
	topics := []string{topicName}
	beat := func(step, group string) { s.ask(step, 1, consumerBeat(group, b, 0, topics, nil)) }

	// Metadata and assignments that are no consumer's.
	member, _ := joined(s, "mo-classic")
	beat("into a group of malformed members", "mo-classic")
	s.ask("it is as it was", 4, heartbeatRequest("mo-classic", member, 1))
	s.quiet(3, leaveRequest("mo-classic", member))
	connect := joinRequest("mo-connect", "")
	connect.ProtocolType = "connect"
	s.ask("connect", 3, connect)
	beat("into a group of another type", "mo-connect")
	custom := subscribed(joinRequest("mo-custom", ""), topicName)
	r, _ := s.ask("custom assignor", 3, custom).(*kmsg.JoinGroupResponse)
	if r == nil {
		return
	}
	sync := syncRequest("mo-custom", r.MemberID, r.Generation, true)
	a := kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: topicName, Partitions: []int32{0}}}, UserData: []byte("x")}
	sync.GroupAssignment[0].MemberAssignment = a.AppendTo(nil)
	s.ask("custom assignor's assignment", 3, sync)
	beat("into a group of a custom assignor", "mo-custom")

	// Classic members of a consumer group.
	beat("consumer joins", "mo")
	s.ask("malformed subscription", 3, joinRequest("mo", ""))
	other := subscribed(joinRequest("mo", ""), topicName)
	other.ProtocolType = "connect"
	s.ask("another protocol type", 3, other)
	none := subscribed(joinRequest("mo", ""), topicName)
	none.Protocols = nil
	s.ask("no protocols", 3, none)
	s.ask("a made-up member id", 3, subscribed(joinRequest("mo", "made-up"), topicName))
	two := subscribed(joinRequest("mo", ""), topicName)
	two.Protocols[0].Name = "sticky"
	s.ask("no protocol in common", 3, two)
	for _, v := range []int16{0, 3} {
		s.ask("sync", v, syncRequest("mo", "made-up", 3, false))
	}
	wrong := syncRequest("mo", "made-up", 3, false)
	wrong.Protocol = ptr("sticky")
	s.ask("sync of another protocol", 5, wrong)
	s.ask("leave of a stranger and a member", 5, func() *kmsg.LeaveGroupRequest {
		l := leaveRequest("mo", "who")
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = "made-up"
		l.Members = append(l.Members, m)
		return l
	}())
	s.ask("consumer leaves", 1, consumerBeat("mo", b, -1, nil, nil))
	s.ask("sync to an empty group", 3, syncRequest("mo", "made-up", 3, false))
	s.ask("heartbeat to an empty group", 3, heartbeatRequest("mo", "made-up", 3))
	s.ask("leave of an empty group", 3, leaveRequest("mo", "made-up"))
}
