package parity

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
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
		{"two members of a group", twoMembers},
		{"static members of a group", staticMembers},
		{"records of the offsets topic", offsetRecords},
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
	versions(0, 5, func(v int16) { s.ask("leaves no group", v, leaveRequest("jodd-none", "who")) })
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
	list := func(step string, v int16, states, types []string) {
		req := kmsg.NewPtrListGroupsRequest()
		req.StatesFilter, req.TypesFilter = states, types
		resp, _ := s.quiet(v, req).(*kmsg.ListGroupsResponse)
		if resp == nil {
			s.note(step, "connection closed")
			return
		}
		s.note(step, "v%d error %d", v, resp.ErrorCode)
		for _, g := range resp.Groups { // other stories' groups come and go
			if g.Group == "dl" {
				s.note(step, "v%d %s %q %q %q", v, g.Group, g.ProtocolType, g.GroupState, g.GroupType)
			}
		}
	}
	versions(0, 5, func(v int16) { list("list", v, nil, nil) })
	for _, states := range [][]string{{"Stable"}, {"sTaBlE"}, {"Empty", "Stable"}, {"Dead"}, {"nonsense"}, {""}, {" Stable "}} {
		list(fmt.Sprintf("list those that are %q", states), 4, states, nil)
	}
	for _, types := range [][]string{{"classic"}, {"Classic"}, {"consumer"}, {"share", "classic"}, {"nonsense"}, {""}} {
		list(fmt.Sprintf("list those of type %q", types), 5, nil, types)
	}
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

// aside asks over a connection of its own, so that a request may wait while the
// story goes on.
func aside(s *session, version int16, req kmsg.Request) func() kmsg.Response {
	req.SetVersion(version)
	done := make(chan kmsg.Response, 1)
	go func() {
		defer close(done)
		c, err := dial(s.addr)
		if err != nil {
			return
		}
		defer c.Close()
		if resp, err := c.request(req); err == nil {
			done <- resp
		}
	}()
	return func() kmsg.Response { return <-done }
}

// answer writes down what an aside was answered.
func answer(s *session, step string, wait func() kmsg.Response) kmsg.Response {
	resp := wait()
	if resp == nil {
		s.note(step, "connection closed")
		return nil
	}
	s.response(step, resp)
	return resp
}

// rebalancing waits until the group is, as heartbeats tell.
func rebalancing(s *session, group, member string, generation int32) {
	nodetest.Eventually(s.t, 10*time.Second, "group rebalances", func() error {
		resp, _ := s.quiet(3, heartbeatRequest(group, member, generation)).(*kmsg.HeartbeatResponse)
		if resp == nil || resp.ErrorCode != 27 {
			return errors.New("not yet")
		}
		return nil
	})
}

func withProtocols(req *kmsg.JoinGroupRequest, names ...string) *kmsg.JoinGroupRequest {
	req.Protocols = nil
	for i, name := range names {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name, p.Metadata = name, []byte{byte(i)}
		req.Protocols = append(req.Protocols, p)
	}
	return req
}

// twoMembers follows a group from one member to two and back.
func twoMembers(s *session) {
	id := createTopic(s, "two", 1, nil)
	coordinator(s, "two")
	first, _ := s.ask("first joins", 3, withProtocols(joinRequest("two", ""), "a", "b")).(*kmsg.JoinGroupResponse)
	if first == nil {
		return
	}
	s.ask("first syncs", 3, syncOf("two", first.MemberID, first.Generation, "a", first.MemberID))
	joining := aside(s, 3, withProtocols(joinRequest("two", ""), "b", "a"))
	rebalancing(s, "two", first.MemberID, first.Generation)
	s.ask("commit while it rebalances", 8, commitRequest(8, "two", first.MemberID, first.Generation, "two", id, 0, 1, ""))
	s.ask("sync while it rebalances", 3, syncOf("two", first.MemberID, first.Generation, "a"))
	again, _ := s.ask("first joins again", 5, withProtocols(joinRequest("two", first.MemberID), "a", "b")).(*kmsg.JoinGroupResponse)
	second, _ := answer(s, "second joins", joining).(*kmsg.JoinGroupResponse)
	if again == nil || second == nil {
		return
	}
	s.ask("commit while it assigns", 8, commitRequest(8, "two", first.MemberID, again.Generation, "two", id, 0, 2, ""))
	s.ask("heartbeat while it assigns", 3, heartbeatRequest("two", first.MemberID, again.Generation))
	s.ask("describe while it assigns", 5, describeGroup("two"))
	s.ask("second joins again unchanged", 5, withProtocols(joinRequest("two", second.MemberID), "b", "a"))
	syncing := aside(s, 3, syncOf("two", second.MemberID, again.Generation, *again.Protocol))
	s.ask("leader syncs, leaving itself out", 3, syncOf("two", first.MemberID, again.Generation, *again.Protocol, second.MemberID))
	answer(s, "second syncs", syncing)
	s.ask("sync with another protocol", 5, syncOf("two", first.MemberID, again.Generation, "zzz"))
	s.ask("second joins unchanged when stable", 5, withProtocols(joinRequest("two", second.MemberID), "b", "a"))
	s.ask("describe when stable", 5, describeGroup("two"))
	s.ask("a stranger without a common protocol", 5, withProtocols(joinRequest("two", ""), "c"))
	s.ask("commit as the member", 9, commitRequest(9, "two", second.MemberID, again.Generation, "two", id, 0, 5, ""))
	deleting := kmsg.NewPtrOffsetDeleteRequest()
	deleting.Group = "two"
	t := kmsg.NewOffsetDeleteRequestTopic()
	t.Topic = "two"
	for _, p := range []int32{0, 7} {
		tp := kmsg.NewOffsetDeleteRequestTopicPartition()
		tp.Partition = p
		t.Partitions = append(t.Partitions, tp)
	}
	deleting.Topics = append(deleting.Topics, t)
	s.ask("delete offsets of a live group", 0, deleting)
	s.ask("second leaves", 3, leaveRequest("two", second.MemberID))
	rebalancing(s, "two", first.MemberID, again.Generation)
	s.quiet(3, leaveRequest("two", first.MemberID))
	s.ask("describe when empty", 5, describeGroup("two"))
	s.ask("delete offsets", 0, deleting)
	s.ask("delete offsets again", 0, deleting)
	deleting.Group = "two-none"
	s.ask("delete offsets of no group", 0, deleting)
}

func syncOf(group, member string, generation int32, protocol string, assigned ...string) *kmsg.SyncGroupRequest {
	req := syncRequest(group, member, generation, false)
	req.Protocol = &protocol
	for _, m := range assigned {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = m, []byte{9}
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	return req
}

func describeGroup(group string) *kmsg.DescribeGroupsRequest {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{group}
	return req
}

// staticMembers: KIP-345.
func staticMembers(s *session) {
	id := createTopic(s, "static", 1, nil)
	coordinator(s, "static")
	as := func(member, instance string) *kmsg.JoinGroupRequest {
		req := joinRequest("static", member)
		req.InstanceID = &instance
		return req
	}
	first, _ := s.ask("joins", 5, as("", "one")).(*kmsg.JoinGroupResponse)
	if first == nil {
		return
	}
	sync := syncRequest("static", first.MemberID, first.Generation, true)
	sync.InstanceID = ptr("one")
	s.ask("syncs", 3, sync)
	for _, v := range []int16{5, 8, 9} {
		next, _ := s.ask("comes back", v, as("", "one")).(*kmsg.JoinGroupResponse)
		if next == nil {
			return
		}
		sync := syncRequest("static", next.MemberID, next.Generation, false)
		sync.InstanceID = ptr("one")
		s.ask("syncs after coming back", 5, sync)
		beat := heartbeatRequest("static", first.MemberID, first.Generation)
		beat.InstanceID = ptr("one")
		s.ask("its former self's heartbeat", 4, beat)
		s.ask("its former self's join", v, as(first.MemberID, "one"))
		s.ask("its former self's heartbeat, without the instance", 4, heartbeatRequest("static", first.MemberID, first.Generation))
		commit := commitRequest(8, "static", first.MemberID, first.Generation, "static", id, 0, 1, "")
		commit.InstanceID = ptr("one")
		s.ask("its former self's commit", 8, commit)
		leave := leaveRequest("static", first.MemberID)
		leave.Members[0].InstanceID = ptr("one")
		s.ask("its former self leaves", 5, leave)
		sync = syncRequest("static", first.MemberID, first.Generation, false)
		sync.InstanceID = ptr("one")
		s.ask("its former self syncs", 5, sync)
		first = next
	}
	s.ask("describe", 5, describeGroup("static"))
	leave := leaveRequest("static", "")
	leave.Members[0].InstanceID = ptr("nobody")
	s.ask("an unknown instance leaves", 5, leave)
	leave.Members[0].InstanceID = nil
	s.ask("nobody leaves", 5, leave)
	leave.Members[0].InstanceID = ptr("one")
	s.ask("leaves by instance", 5, leave)
	s.ask("describe after", 5, describeGroup("static"))
}

// offsetRecords compares what is in the offsets topic, byte for byte but for
// moments and member ids.
func offsetRecords(s *session) {
	id := createTopic(s, "recs", 2, nil)
	coordinator(s, "recs")
	for _, v := range []int16{2, 8, 10} {
		s.quiet(v, commitRequest(v, "recs", "", -1, "recs", id, 1, int64(v), "note"))
	}
	keep := commitRequest(3, "recs", "", -1, "recs", id, 0, 3, "kept for a while")
	keep.RetentionTimeMillis = 100_000_000
	s.quiet(3, keep)
	member, generation := joined(s, "recs")
	s.quiet(8, commitRequest(8, "recs", member, generation, "recs", id, 1, 77, ""))
	s.quiet(3, leaveRequest("recs", member))
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{"recs"}
	s.quiet(2, remove)

	partition := javaHash("recs") % 50
	resp, _ := s.quiet(12, fetchRequest(want{topic: "__consumer_offsets", partition: partition})).(*kmsg.FetchResponse)
	if resp == nil || len(resp.Topics) != 1 {
		s.note("fetch", "%+v", resp)
		return
	}
	for b := resp.Topics[0].Partitions[0].RecordBatches; len(b) > 0; {
		var rb kmsg.RecordBatch
		if err := rb.ReadFrom(b); err != nil {
			s.note("batch", "%v", err)
			return
		}
		b = b[12+rb.Length:]
		for _, r := range readRecords(s, &rb) {
			offsetRecord(s, r)
		}
	}
}

func offsetRecord(s *session, r kmsg.Record) {
	if len(r.Key) < 2 {
		s.note("record", "key %x", r.Key)
		return
	}
	if r.Key[1] <= 1 {
		var k kmsg.OffsetCommitKey
		if err := k.ReadFrom(r.Key); err != nil || k.Group != "recs" {
			return
		}
		s.note("offset key", "v%d %s %s %d", k.Version, k.Group, k.Topic, k.Partition)
		if r.Value == nil {
			s.note("offset", "tombstone")
			return
		}
		var v kmsg.OffsetCommitValue
		err := v.ReadFrom(r.Value)
		s.note("offset", "v%d %d epoch %d %q committed %v kept %v id %v %v", v.Version, v.Offset, v.LeaderEpoch, v.Metadata,
			v.CommitTimestamp > 0, v.ExpireTimestamp-v.CommitTimestamp > 0, v.TopicID != [16]byte{}, err)
		return
	}
	var k kmsg.GroupMetadataKey
	if err := k.ReadFrom(r.Key); err != nil || k.Group != "recs" {
		return
	}
	s.note("group key", "v%d %s", k.Version, k.Group)
	if r.Value == nil {
		s.note("group", "tombstone")
		return
	}
	var v kmsg.GroupMetadataValue
	err := v.ReadFrom(r.Value)
	s.note("group", "v%d %q generation %d at %v %v", v.Version, v.ProtocolType, v.Generation, v.CurrentStateTimestamp > 0, err)
	s.value("group protocol", "", reflect.ValueOf(v.Protocol))
	s.note("group leader", "%s", s.named("member", reflect.ValueOf(v.Leader)))
	for _, m := range v.Members {
		s.note("group member", "%s %v %q %q %d %d %x %x", s.name("member", m.MemberID), m.InstanceID, m.ClientID, m.ClientHost,
			m.RebalanceTimeoutMillis, m.SessionTimeoutMillis, m.Subscription, m.Assignment)
	}
}

// readRecords decodes the records of an uncompressed batch.
func readRecords(s *session, b *kmsg.RecordBatch) []kmsg.Record {
	var out []kmsg.Record
	for rest := b.Records; len(rest) > 0; {
		length, n := binary.Varint(rest)
		if n <= 0 || int(length) > len(rest)-n {
			s.note("record", "cut")
			return out
		}
		var r kmsg.Record
		if err := r.ReadFrom(rest[:n+int(length)]); err != nil {
			s.note("record", "%v", err)
			return out
		}
		out = append(out, r)
		rest = rest[n+int(length):]
	}
	return out
}

// javaHash is String.hashCode of ASCII text that hashes to a positive number.
func javaHash(text string) int32 {
	h := int32(0)
	for _, c := range []byte(text) {
		h = 31*h + int32(c)
	}
	return h
}
