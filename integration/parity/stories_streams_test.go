package parity

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

func streamsStories() []story {
	return []story{
		{"members of a streams group", streamsLife},
		{"topologies of streams groups", streamsTopologies},
		{"streams groups, odd requests", streamsOdd},
		{"streams groups and other groups", streamsTypes},
	}
}

// streamsTopology reads from a topic, through a repartition topic of its own, into a store with a changelog.
func streamsTopology(source, own string) *kmsg.StreamsGroupHeartbeatRequestTopology {
	t := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	first, second := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology(), kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
	first.SubtopologyID, first.SourceTopics, first.RepartitionSinkTopics = "0", []string{source}, []string{own + "-rep"}
	second.SubtopologyID = "1"
	second.RepartitionSourceTopics = []kmsg.TopicInfo{streamsTopic(own + "-rep")}
	second.StateChangelogTopics = []kmsg.TopicInfo{streamsTopic(own+"-log", "cleanup.policy", "compact")}
	t.Subtopologies = append(t.Subtopologies, first, second)
	return &t
}

func streamsTopic(name string, settings ...string) kmsg.TopicInfo {
	x := kmsg.NewTopicInfo()
	x.Topic = name
	for i := 0; i < len(settings); i += 2 {
		c := kmsg.NewTopicInfoConfig()
		c.Key, c.Value = settings[i], settings[i+1]
		x.Configs = append(x.Configs, c)
	}
	return x
}

// streamsBeat is a heartbeat of a member that says nothing of what it has; with a topology it joins.
func streamsBeat(group, member string, epoch int32, topology *kmsg.StreamsGroupHeartbeatRequestTopology) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch, req.Topology = group, member, epoch, topology
	if epoch == 0 {
		req.RebalanceTimeoutMillis = 60_000
		req.ProcessID = ptr("process-of-" + member)
		req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
	}
	return req
}

func tasks(list ...kmsg.TaskIDs) []kmsg.TaskIDs { return append([]kmsg.TaskIDs{}, list...) }

func streamsTasks(subtopology string, partitions ...int32) kmsg.TaskIDs {
	t := kmsg.NewTaskIDs()
	t.SubtopologyID, t.Partitions = subtopology, partitions
	return t
}

// having adds what a member says it has.
func having(req *kmsg.StreamsGroupHeartbeatRequest, active ...kmsg.TaskIDs) *kmsg.StreamsGroupHeartbeatRequest {
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = tasks(active...), tasks(), tasks()
	return req
}

// streamsAtOnce has a streams group work out assignments without delay.
func streamsAtOnce(s *session, group string, more ...string) {
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	settings := append([]string{"streams.initial.rebalance.delay.ms", "0", "streams.assignment.interval.ms", "0"}, more...)
	for i := 0; i < len(settings); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = settings[i], ptr(settings[i+1])
		r.Configs = append(r.Configs, c)
	}
	alter.Resources = append(alter.Resources, r)
	s.ask("settings", 1, alter)
}

// streamsReady waits until a member's group has no status any more: its internal topics have been made. It is the last answer.
func streamsReady(s *session, group, member string, epoch int32) *kmsg.StreamsGroupHeartbeatResponse {
	var last *kmsg.StreamsGroupHeartbeatResponse
	nodetest.Eventually(s.t, 60*time.Second, "the internal topics are there", func() error {
		last, _ = s.quiet(1, streamsBeat(group, member, epoch, nil)).(*kmsg.StreamsGroupHeartbeatResponse)
		if last == nil {
			return errors.New("no answer")
		}
		if last.ErrorCode == 0 {
			epoch = last.MemberEpoch
		}
		if len(last.Status) > 0 || len(last.ActiveTasks) == 0 {
			return fmt.Errorf("not yet: %+v", last)
		}
		return nil
	})
	return last
}

func describeStreams(s *session, step string, groups ...string) {
	for _, v := range []int16{0, 1} {
		req := kmsg.NewPtrStreamsGroupDescribeRequest()
		req.Groups, req.IncludeTopologyDescription = groups, v == 1
		s.ask(step, v, req)
	}
}

func streamsLife(s *session) {
	const group = "sg"
	createTopic(s, "sg-in", 2, nil)
	coordinator(s, group)
	streamsAtOnce(s, group)
	a, b := "AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB"
	s.ask("join", 1, streamsBeat(group, a, 0, streamsTopology("sg-in", "sg")))
	streamsReady(s, group, a, 2)
	describeStreams(s, "ready", group)
	s.ask("join", 1, streamsBeat(group, b, 0, streamsTopology("sg-in", "sg")))
	s.ask("gives up", 1, streamsBeat(group, a, 3, nil))
	s.ask("waits", 0, streamsBeat(group, b, 4, nil))
	s.ask("has yet to give up", 1, having(streamsBeat(group, a, 3, nil), streamsTasks("0", 0), streamsTasks("1", 0, 1)))
	s.ask("has given up", 1, having(streamsBeat(group, a, 3, nil), streamsTasks("0", 0), streamsTasks("1", 0)))
	s.ask("takes", 1, streamsBeat(group, b, 4, nil))
	s.ask("nothing new", 1, streamsBeat(group, b, 4, nil))
	describeStreams(s, "shared out", group, "sg-none")
	s.ask("ahead", 1, streamsBeat(group, a, 9, nil))
	s.ask("behind", 1, streamsBeat(group, a, 3, nil))
	s.ask("two behind", 1, having(streamsBeat(group, a, 2, nil)))
	shut := streamsBeat(group, b, 4, nil)
	shut.ShutdownApplication = true
	s.ask("wants all to end", 1, shut)
	s.ask("is told", 1, streamsBeat(group, a, 4, nil))
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{group}
	s.ask("delete", 2, remove)
	s.ask("leaves", 1, streamsBeat(group, b, -1, nil))
	s.ask("leaves again", 1, streamsBeat(group, b, -1, nil))
	s.ask("takes all", 1, having(streamsBeat(group, a, 4, nil), streamsTasks("0", 0), streamsTasks("1", 0)))
	s.ask("leaves", 1, streamsBeat(group, a, -1, nil))
	describeStreams(s, "empty", group)
	s.ask("delete", 2, remove)
	s.ask("heartbeat", 1, streamsBeat(group, a, 4, nil))
}

func streamsTopologies(s *session) {
	createTopic(s, "st-two", 2, nil)
	createTopic(s, "st-three", 3, nil)
	coordinator(s, "st")
	m := "MMMMMMMMMMMMMMMMMMMMMM"
	for i := range rune(10) { // all at first: a coordinator hears of settings a little later
		streamsAtOnce(s, "st-"+string('a'+i))
	}
	group := 0
	join := func(step string, change func(t *kmsg.StreamsGroupHeartbeatRequestTopology)) {
		name := "st-" + string(rune('a'+group))
		group++
		t := streamsTopology("st-two", name)
		change(t)
		s.ask(step, 1, streamsBeat(name, m, 0, t))
		s.quiet(1, streamsBeat(name, m, -1, nil))
	}
	join("a source is missing", func(t *kmsg.StreamsGroupHeartbeatRequestTopology) {
		t.Subtopologies[0].SourceTopics = []string{"st-none", "st-two"}
	})
	join("sources that are not even", func(t *kmsg.StreamsGroupHeartbeatRequestTopology) {
		t.Subtopologies[0].SourceTopics = []string{"st-two", "st-three"}
		t.Subtopologies[0].CopartitionGroups = []kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup{{SourceTopics: []int16{0, 1}}}
	})
	join("a repartition topic that cannot follow", func(t *kmsg.StreamsGroupHeartbeatRequestTopology) {
		t.Subtopologies[1].SourceTopics = []string{"st-three"}
		t.Subtopologies[1].RepartitionSourceTopics[0].NumPartitions = 5
		t.Subtopologies[1].CopartitionGroups = []kmsg.StreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup{
			{SourceTopics: []int16{0}, RepartitionSourceTopics: []int16{0}},
		}
	})
	join("an internal topic that is there", func(t *kmsg.StreamsGroupHeartbeatRequestTopology) {
		t.Subtopologies[1].StateChangelogTopics[0].Topic = "st-three"
	})
	join("a loop", func(t *kmsg.StreamsGroupHeartbeatRequestTopology) { t.Subtopologies[0].SourceTopics = nil })
	join("a repartition topic that nobody writes", func(t *kmsg.StreamsGroupHeartbeatRequestTopology) {
		t.Subtopologies[0].RepartitionSinkTopics = nil
	})
	join("a changelog with partitions", func(t *kmsg.StreamsGroupHeartbeatRequestTopology) {
		t.Subtopologies[1].StateChangelogTopics[0].NumPartitions = 3
	})
	join("an expression", func(t *kmsg.StreamsGroupHeartbeatRequestTopology) {
		t.Subtopologies[0].SourceTopicRegex = []string{"st.*"}
	})
	join("an internal topic of the broker's", func(t *kmsg.StreamsGroupHeartbeatRequestTopology) {
		t.Subtopologies[0].SourceTopics = []string{"__consumer_offsets"}
	})
	join("a name that is none", func(t *kmsg.StreamsGroupHeartbeatRequestTopology) {
		t.Subtopologies[0].SourceTopics = []string{"st two"}
	})
}

func streamsOdd(s *session) {
	const group = "so"
	createTopic(s, "so-in", 2, nil)
	coordinator(s, group)
	m, n := "CCCCCCCCCCCCCCCCCCCCCC", "DDDDDDDDDDDDDDDDDDDDDD"
	streamsAtOnce(s, group, "streams.num.standby.replicas", "1", "streams.rack.aware.assignment.tags", "zone,host")
	topology := func() *kmsg.StreamsGroupHeartbeatRequestTopology {
		t := streamsTopology("so-in", "so")
		t.Epoch, t.Subtopologies = 3, t.Subtopologies[:1]
		t.Subtopologies[0].RepartitionSinkTopics = nil
		return t
	}
	ask := func(step string, change func(*kmsg.StreamsGroupHeartbeatRequest)) {
		req := streamsBeat(group, m, 0, topology())
		change(req)
		s.ask(step, 1, req)
	}
	ask("no group", func(r *kmsg.StreamsGroupHeartbeatRequest) { r.Group = "" })
	ask("no member", func(r *kmsg.StreamsGroupHeartbeatRequest) { r.MemberID = "" })
	ask("no rebalance timeout", func(r *kmsg.StreamsGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 })
	ask("no topology", func(r *kmsg.StreamsGroupHeartbeatRequest) { r.Topology = nil })
	ask("empty instance", func(r *kmsg.StreamsGroupHeartbeatRequest) { r.InstanceID = ptr("") })
	ask("empty rack", func(r *kmsg.StreamsGroupHeartbeatRequest) { r.RackID = ptr(" ") })
	ask("joins with tasks", func(r *kmsg.StreamsGroupHeartbeatRequest) { having(r, streamsTasks("0", 0)) })
	ask("says half of what it has", func(r *kmsg.StreamsGroupHeartbeatRequest) { r.StandbyTasks = nil })
	ask("epoch -2 without instance", func(r *kmsg.StreamsGroupHeartbeatRequest) { r.MemberEpoch, r.Topology = -2, nil })
	ask("epoch -3", func(r *kmsg.StreamsGroupHeartbeatRequest) { r.MemberEpoch, r.Topology = -3, nil })
	ask("topology later", func(r *kmsg.StreamsGroupHeartbeatRequest) { r.MemberEpoch = 4 })
	ask("epoch of nobody", func(r *kmsg.StreamsGroupHeartbeatRequest) { r.MemberEpoch, r.Topology = 4, nil })
	ask("leave of nobody", func(r *kmsg.StreamsGroupHeartbeatRequest) { r.MemberEpoch, r.Topology = -1, nil })
	static := func(step, member string, epoch int32, change func(*kmsg.StreamsGroupHeartbeatRequest)) {
		req := streamsBeat(group, member, epoch, nil)
		if req.InstanceID = ptr("i"); epoch == 0 {
			req.Topology = topology()
		}
		if change != nil {
			change(req)
		}
		s.ask(step, 1, req)
	}
	static("static", m, 0, func(r *kmsg.StreamsGroupHeartbeatRequest) {
		tag := kmsg.NewStreamsGroupHeartbeatRequestClientTag()
		tag.Key, tag.Value = "zone", "z1"
		r.ClientTags = append(r.ClientTags, tag)
		e := kmsg.NewStreamsGroupHeartbeatRequestUserEndpoint()
		e.Host, e.Port = "host", 1234
		r.UserEndpoint, r.RackID = &e, ptr("r1")
		o := kmsg.NewTaskOffset()
		o.SubtopologyID, o.Partition, o.Offset = "0", 1, 17
		r.TaskOffsets, r.TaskEndOffsets = []kmsg.TaskOffset{o}, []kmsg.TaskOffset{o}
	})
	describeStreams(s, "described", group)
	static("static, another at the same time", n, 0, nil)
	static("static, leaves for a while", m, -2, nil)
	static("static, comes back as another", n, 0, nil)
	static("static, the old one", m, 2, nil)
	static("tasks that there are not", n, 3, func(r *kmsg.StreamsGroupHeartbeatRequest) { having(r, streamsTasks("0", 2)) })
	static("subtopologies that there are not", n, 3, func(r *kmsg.StreamsGroupHeartbeatRequest) { having(r, streamsTasks("5", 0)) })
	static("another instance", n, 3, func(r *kmsg.StreamsGroupHeartbeatRequest) { r.InstanceID = ptr("j") })
	newer := topology()
	newer.Epoch = 4
	s.ask("a newer topology", 1, streamsBeat(group, m, 0, newer))
	older := topology()
	older.Epoch = 2
	s.ask("an older topology", 1, streamsBeat(group, m, 0, older))
	update := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
	update.Group, update.MemberID = group, n
	s.ask("topology description", 0, update)
	static("leaves", n, -1, nil)
	s.ask("leaves", 1, streamsBeat(group, m, -1, nil))
}

func streamsTypes(s *session) {
	createTopic(s, "sx-in", 1, nil)
	for _, g := range []string{"sx", "sx-classic", "sx-consumer"} {
		coordinator(s, g)
		streamsAtOnce(s, g)
	}
	m := "EEEEEEEEEEEEEEEEEEEEEE"
	topology := func() *kmsg.StreamsGroupHeartbeatRequestTopology {
		t := streamsTopology("sx-in", "sx")
		t.Subtopologies = t.Subtopologies[:1]
		t.Subtopologies[0].RepartitionSinkTopics = nil
		return t
	}
	joined(s, "sx-classic")
	s.ask("join a classic group", 1, streamsBeat("sx-classic", m, 0, topology()))
	s.quiet(1, consumerBeat("sx-consumer", m, 0, []string{"sx-in"}, nil))
	s.ask("join a consumer group", 1, streamsBeat("sx-consumer", m, 0, topology()))
	s.ask("leave a consumer group", 1, streamsBeat("sx-consumer", m, -1, nil))
	describeStreams(s, "others described", "sx-classic", "sx-consumer", "")
	s.ask("join", 1, streamsBeat("sx", m, 0, topology()))
	s.ask("a consumer joins", 1, consumerBeat("sx", m, 0, []string{"sx-in"}, nil))
	s.ask("a classic member joins", 4, joinRequest("sx", ""))
	commit := func(step, member string, epoch int32, partition int32) {
		s.ask(step, 9, commitRequest(9, "sx", member, epoch, "sx-in", [16]byte{}, partition, 3, ""))
	}
	commit("commit", m, 2, 0)
	commit("commit of an epoch to come", m, 3, 0)
	commit("commit of an old epoch", m, 1, 0)
	commit("commit of a stranger", "nobody", 2, 0)
	commit("commit of nobody", "", -1, 0)
	s.ask("commit that knows no epochs", 8, commitRequest(8, "sx", m, 2, "sx-in", [16]byte{}, 0, 3, ""))
	old := kmsg.NewPtrDescribeGroupsRequest()
	old.Groups = []string{"sx"}
	s.ask("described as a classic group", 6, old)
	list := kmsg.NewPtrListGroupsRequest()
	list.TypesFilter = []string{"Streams"}
	s.ask("listed", 5, list)
	drop := kmsg.NewPtrOffsetDeleteRequest()
	drop.Group = "sx"
	t := kmsg.NewOffsetDeleteRequestTopic()
	t.Topic = "sx-in"
	t.Partitions = append(t.Partitions, kmsg.NewOffsetDeleteRequestTopicPartition())
	drop.Topics = append(drop.Topics, t)
	s.ask("delete an offset", 0, drop)
	s.ask("leaves", 1, streamsBeat("sx", m, -1, nil))
	s.ask("delete an offset", 0, drop)
	s.ask("a consumer joins an empty group", 1, consumerBeat("sx", m, 0, []string{"sx-in"}, nil))
	s.ask("a classic member joins an empty group", 4, joinRequest("sx", ""))
}
