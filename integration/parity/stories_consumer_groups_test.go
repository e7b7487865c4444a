package parity

import "github.com/twmb/franz-go/pkg/kmsg"

func consumerGroupStories() []story {
	return []story{
		{"members of a consumer group", consumerGroupLife},
		{"consumer groups, odd requests", consumerGroupOdd},
	}
}

// consumerBeat is a heartbeat of a member; owned nil says nothing of what it
// owns.
func consumerBeat(group, member string, epoch int32, topics []string, owned []kmsg.ConsumerGroupHeartbeatRequestTopic) *kmsg.ConsumerGroupHeartbeatRequest {
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = group, member, epoch
	req.SubscribedTopicNames, req.Topics = topics, owned
	if epoch == 0 {
		req.RebalanceTimeoutMillis = 60_000
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	}
	return req
}

func consumerGroupLife(s *session) {
	const group = "cg"
	createTopic(s, "cg-topic", 4, nil)
	coordinator(s, group)
	assignAtOnce(s, group, "cg-topic")
	a, b := "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"
	topics := []string{"cg-topic"}
	join := func(member string) *kmsg.ConsumerGroupHeartbeatResponse {
		r, _ := s.ask("join", 1, consumerBeat(group, member, 0, topics, nil)).(*kmsg.ConsumerGroupHeartbeatResponse)
		return r
	}
	first := join(a)
	if first == nil || first.Assignment == nil || len(first.Assignment.Topics) == 0 {
		return
	}
	owns := func(partitions ...int32) []kmsg.ConsumerGroupHeartbeatRequestTopic {
		t := kmsg.NewConsumerGroupHeartbeatRequestTopic()
		t.TopicID, t.Partitions = first.Assignment.Topics[0].TopicID, partitions
		return []kmsg.ConsumerGroupHeartbeatRequestTopic{t}
	}
	s.ask("nothing new", 1, consumerBeat(group, a, 2, nil, nil))
	join(b)
	s.ask("gives up", 1, consumerBeat(group, a, 2, nil, nil))
	s.ask("has yet to", 1, consumerBeat(group, a, 2, nil, owns(0, 1, 2, 3)))
	s.ask("waits", 1, consumerBeat(group, b, 3, nil, nil))
	s.ask("has given up", 1, consumerBeat(group, a, 2, nil, owns(0, 1)))
	s.ask("takes", 1, consumerBeat(group, b, 3, nil, nil))
	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Groups = []string{group, "cg-none"}
	s.ask("described", 1, describe)
	old := kmsg.NewPtrDescribeGroupsRequest()
	old.Groups = []string{group}
	s.ask("described as a classic group", 5, old)
	s.ask("described as a classic group", 6, old)
	commit := func(step, member string, epoch int32) {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.MemberID, req.Generation = group, member, epoch
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic = "cg-topic"
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Offset, p.LeaderEpoch = 3, -1
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		s.ask(step, 9, req)
	}
	commit("commit", a, 3)
	commit("commit in a later epoch", a, 4)
	commit("commit in the epoch before", a, 2)
	commit("commit before it was there", a, 1)
	commit("commit of another's partition in an old epoch", b, 2)
	commit("commit of a stranger", "nobody", 3)
	commit("commit of nobody", "", -1)
	s.ask("ahead", 1, consumerBeat(group, a, 7, nil, nil))
	s.ask("one behind, owning what it may", 1, consumerBeat(group, a, 2, nil, owns(0)))
	s.ask("one behind, owning more", 1, consumerBeat(group, a, 2, nil, owns(0, 3)))
	s.ask("classic join", 4, joinRequest(group, ""))
	s.ask("commit that knows no epochs", 8, commitRequest(8, group, a, 3, "cg-topic", [16]byte{}, 0, 3, ""))
	s.ask("delete", 2, func() *kmsg.DeleteGroupsRequest {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{group}
		return req
	}())
	s.ask("leaves", 1, consumerBeat(group, b, -1, nil, nil))
	s.ask("leaves again", 1, consumerBeat(group, b, -1, nil, nil))
	s.ask("leaves", 1, consumerBeat(group, a, -1, nil, nil))
	s.ask("described, empty", 1, describe)
}

func consumerGroupOdd(s *session) {
	const group = "cgo"
	createTopic(s, "cgo-topic", 1, nil)
	coordinator(s, group)
	m := "CCCCCCCCCCCCCCCCCCCCCC"
	topics := []string{"cgo-topic"}
	ask := func(step string, change func(*kmsg.ConsumerGroupHeartbeatRequest)) {
		req := consumerBeat(group, m, 0, topics, nil)
		change(req)
		s.ask(step, 1, req)
	}
	ask("no group", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" })
	ask("no member", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberID = "" })
	ask("no rebalance timeout", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 })
	ask("no subscription", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicNames = nil })
	ask("nothing owned is not said", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil })
	ask("empty instance", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = ptr("") })
	ask("empty rack", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RackID = ptr("") })
	ask("unknown assignor", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = ptr("best") })
	ask("epoch -2 without instance", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -2 })
	ask("epoch -3", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -3 })
	ask("epoch of nobody", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 4 })
	ask("leave of nobody", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = -1 })
	ask("static", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = ptr("i") })
	ask("static, another at the same time", func(r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.InstanceID, r.MemberID = ptr("i"), "DDDDDDDDDDDDDDDDDDDDDD"
	})
	ask("static, leaves for a while", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID, r.MemberEpoch = ptr("i"), -2 })
	ask("static, comes back as another", func(r *kmsg.ConsumerGroupHeartbeatRequest) {
		r.InstanceID, r.MemberID = ptr("i"), "DDDDDDDDDDDDDDDDDDDDDD"
	})
	ask("static, the old one", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID, r.MemberEpoch = ptr("i"), 1 })
	ask("static, unknown instance", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID, r.MemberEpoch = ptr("j"), 1 })
	joined(s, "cgo-classic")
	ask("a classic group", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group, r.MemberEpoch = "cgo-classic", 3 })
	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Groups = []string{"cgo-classic", ""}
	s.ask("a classic group described", 0, describe)
}
