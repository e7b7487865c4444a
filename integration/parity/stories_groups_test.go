package parity

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

func groupStories() []story {
	return []story{
		{"find coordinator", findCoordinator},
		{"join, sync, heartbeat, leave", groupLife},
		{"join, odd requests", joinOdd},
		{"commit and fetch offsets", commitAndFetch},
		{"describe, list and delete groups", describeListDelete},
	}
}

// found waits until a coordinator is named for a group: its partition of the
// offsets topic must have been made and be led.
func found(s *session, group string) {
	nodetest.Eventually(s.t, 60*time.Second, "coordinator is found", func() error {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey = group
		resp, _ := s.quiet(3, req).(*kmsg.FindCoordinatorResponse)
		if resp == nil || resp.ErrorCode != 0 {
			return errors.New("not found yet")
		}
		return nil
	})
}

// coordinator waits until the group coordinator serves.
func coordinator(s *session, group string) {
	found(s, group)
	nodetest.Eventually(s.t, 60*time.Second, "coordinator serves", func() error {
		probe := kmsg.NewPtrOffsetFetchRequest()
		probe.Group = group
		got, _ := s.quiet(5, probe).(*kmsg.OffsetFetchResponse)
		if got == nil || got.ErrorCode != 0 {
			return errors.New("still loading")
		}
		return nil
	})
}

func findCoordinator(s *session) {
	for _, group := range []string{"fc", "", "other"} {
		found(s, group)
	}
	versions(0, 3, func(v int16) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey = "fc"
		s.ask("group", v, req)
		req = kmsg.NewPtrFindCoordinatorRequest()
		s.ask("empty group", v, req)
	})
	versions(4, 6, func(v int16) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKeys = []string{"fc", "other"}
		s.ask("two groups", v, req)
	})
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = 9, []string{"x"}
	s.ask("unknown type", 4, req)
}

func joinRequest(group, member string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID = group, member
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 10_000, 10_000
	req.ProtocolType = "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte{0, 1}
	req.Protocols = append(req.Protocols, p)
	return req
}

// joined brings one member into a group, quietly, up to a stable group.
func joined(s *session, group string) (member string, generation int32) {
	coordinator(s, group)
	resp, _ := s.quiet(3, joinRequest(group, "")).(*kmsg.JoinGroupResponse)
	if resp == nil || resp.ErrorCode != 0 {
		s.note("setup", "join: %+v", resp)
		return "", -1
	}
	s.quiet(3, syncRequest(group, resp.MemberID, resp.Generation, true))
	return resp.MemberID, resp.Generation
}

func syncRequest(group, member string, generation int32, leader bool) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	req.ProtocolType, req.Protocol = ptr("consumer"), ptr("range")
	if leader {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = member, []byte{7, 7}
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	return req
}

func heartbeatRequest(group, member string, generation int32) *kmsg.HeartbeatRequest {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	return req
}

func leaveRequest(group, member string) *kmsg.LeaveGroupRequest {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = group, member
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = member
	req.Members = append(req.Members, m)
	return req
}

func groupLife(s *session) {
	coordinator(s, "life")
	for _, c := range []struct{ join, sync, heartbeat, leave int16 }{{2, 0, 0, 0}, {3, 1, 1, 1}, {5, 3, 3, 3}, {7, 4, 4, 4}, {9, 5, 4, 5}} {
		member := ""
		resp, _ := s.ask("join", c.join, joinRequest("life", "")).(*kmsg.JoinGroupResponse)
		if resp == nil {
			return
		}
		if member = resp.MemberID; resp.ErrorCode != 0 {
			if resp, _ = s.ask("join with the id given", c.join, joinRequest("life", member)).(*kmsg.JoinGroupResponse); resp == nil {
				return
			}
		}
		s.ask("sync", c.sync, syncRequest("life", member, resp.Generation, true))
		s.ask("sync again", c.sync, syncRequest("life", member, resp.Generation, false))
		s.ask("heartbeat", c.heartbeat, heartbeatRequest("life", member, resp.Generation))
		s.ask("heartbeat of an old generation", c.heartbeat, heartbeatRequest("life", member, resp.Generation-1))
		s.ask("heartbeat of a stranger", c.heartbeat, heartbeatRequest("life", "who", resp.Generation))
		s.ask("sync of a stranger", c.sync, syncRequest("life", "who", resp.Generation, false))
		s.ask("leave of a stranger", c.leave, leaveRequest("life", "who"))
		s.ask("leave", c.leave, leaveRequest("life", member))
		s.ask("heartbeat after", c.heartbeat, heartbeatRequest("life", member, resp.Generation))
	}
}

func joinOdd(s *session) {
	coordinator(s, "jodd")
	alter := func(step string, change func(*kmsg.JoinGroupRequest)) {
		req := joinRequest("jodd", "")
		change(req)
		s.ask(step, 9, req)
	}
	alter("empty group", func(r *kmsg.JoinGroupRequest) { r.Group = "" })
	alter("session too short", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 10 })
	alter("session too long", func(r *kmsg.JoinGroupRequest) { r.SessionTimeoutMillis = 1 << 30 })
	alter("unknown member", func(r *kmsg.JoinGroupRequest) { r.MemberID = "stranger" })
	alter("no protocols", func(r *kmsg.JoinGroupRequest) { r.Protocols = nil })
	alter("no protocol type", func(r *kmsg.JoinGroupRequest) { r.ProtocolType = "" })
	member, _ := joined(s, "jodd-live")
	other := joinRequest("jodd-live", "")
	other.ProtocolType = "connect"
	s.ask("another protocol type", 3, other)
	other = joinRequest("jodd-live", "")
	other.Protocols[0].Name = "sticky"
	s.ask("no protocol in common", 3, other)
	static := joinRequest("jodd-static", "")
	static.InstanceID = ptr("one")
	s.ask("static member", 5, static)
	bad := joinRequest("jodd-static", "")
	bad.InstanceID = ptr("bad/name")
	s.ask("bad instance id", 5, bad)
	s.quiet(3, leaveRequest("jodd-live", member))
}

func commitRequest(v int16, group, member string, generation int32, topic string, id [16]byte, partition int32, offset int64, metadata string) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = topic, id
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = partition, offset, 0, &metadata
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func offsetFetch(v int16, group, topic string, id [16]byte, partitions ...int32) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	if v < 8 {
		req.Group = group
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = topic, partitions
		req.Topics = []kmsg.OffsetFetchRequestTopic{t}
		return req
	}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberEpoch = group, -1
	t := kmsg.NewOffsetFetchRequestGroupTopic()
	t.Topic, t.TopicID, t.Partitions = topic, id, partitions
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{t}
	req.Groups = append(req.Groups, g)
	return req
}

func commitAndFetch(s *session) {
	id := createTopic(s, "cf", 2, nil)
	coordinator(s, "cf")
	versions(2, 10, func(v int16) {
		s.ask("commit as nobody", v, commitRequest(v, "cf", "", -1, "cf", id, 0, 10+int64(v), "note"))
		s.ask("commit to an unknown topic", v, commitRequest(v, "cf", "", -1, "cf-none", [16]byte{3}, 0, 1, ""))
		s.ask("commit to an unknown partition", v, commitRequest(v, "cf", "", -1, "cf", id, 9, 1, ""))
		s.ask("commit as a stranger", v, commitRequest(v, "cf", "who", 1, "cf", id, 0, 1, ""))
	})
	long := make([]byte, 5000)
	for i := range long {
		long[i] = 'm'
	}
	s.ask("metadata too long", 8, commitRequest(8, "cf", "", -1, "cf", id, 0, 1, string(long)))
	s.ask("negative offset", 8, commitRequest(8, "cf", "", -1, "cf", id, 1, -5, ""))
	s.ask("empty group", 8, commitRequest(8, "", "", -1, "cf", id, 0, 1, ""))
	versions(1, 10, func(v int16) {
		s.ask("fetch", v, offsetFetch(v, "cf", "cf", id, 0, 1, 9))
		s.ask("fetch of an unknown group", v, offsetFetch(v, "cf-none", "cf", id, 0))
		s.ask("fetch of an unknown topic", v, offsetFetch(v, "cf", "cf-none", [16]byte{3}, 0))
	})
	versions(2, 7, func(v int16) {
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group = "cf"
		s.ask("fetch all", v, req)
	})
	member, generation := joined(s, "cf-live")
	s.ask("commit as nobody to a live group", 8, commitRequest(8, "cf-live", "", -1, "cf", id, 0, 3, ""))
	s.ask("commit as the member", 8, commitRequest(8, "cf-live", member, generation, "cf", id, 0, 4, ""))
	s.ask("commit of an old generation", 8, commitRequest(8, "cf-live", member, generation-1, "cf", id, 0, 5, ""))
	s.quiet(3, leaveRequest("cf-live", member))
}

func describeListDelete(s *session) {
	member, _ := joined(s, "dl")
	versions(0, 6, func(v int16) {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups, req.IncludeAuthorizedOperations = []string{"dl", "dl-none"}, true
		s.ask("describe", v, req)
	})
	versions(0, 5, func(v int16) {
		req := kmsg.NewPtrListGroupsRequest()
		resp, _ := s.quiet(v, req).(*kmsg.ListGroupsResponse)
		if resp == nil {
			s.note("list", "connection closed")
			return
		}
		for _, g := range resp.Groups { // other stories' groups come and go
			if g.Group == "dl" {
				s.note("list", "v%d %s %q %q %q", v, g.Group, g.ProtocolType, g.GroupState, g.GroupType)
			}
		}
	})
	remove := func(step string, v int16) {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{"dl", "dl-none"}
		s.ask(step, v, req)
	}
	remove("delete a live group", 2)
	s.quiet(3, leaveRequest("dl", member))
	versions(0, 2, func(v int16) { remove("delete", v) })
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{"dl"}
	s.ask("describe after delete", 5, req)
}
