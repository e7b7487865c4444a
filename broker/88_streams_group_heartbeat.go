package broker

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/meta/topic"
)

// StreamsGroupHeartbeat (88): versions 0–1 (KIP-1071). All that a member of a streams group says, and is told.
//
//	v1 MISSING_CLIENT_TAGS, the lag as 64 bits, topology descriptions asked for (KIP-1331)
var apiStreamsGroupHeartbeat = api{key: 88, name: "StreamsGroupHeartbeat", min: 0, max: 1, handle: typed((*Server).streamsGroupHeartbeat)}

func (s *Server) streamsGroupHeartbeat(r *request, q *kmsg.StreamsGroupHeartbeatRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrStreamsGroupHeartbeatResponse()
	resp.AcceptableRecoveryLag, resp.Status = -1, []kmsg.StreamsGroupHeartbeatResponseStatus{}
	if s.cfg.NoStreamsGroups {
		resp.ErrorCode = codeUnsupportedVersion
		return resp, nil
	}
	if text := topologyTopics(q.Topology); text != nil {
		resp.ErrorCode, resp.ErrorMessage = codeStreamsInvalidTopology, text
		return resp, nil
	}
	h := &coordinator.StreamsHeartbeatRequest{
		Group: q.Group, MemberID: q.MemberID, MemberEpoch: q.MemberEpoch, EndpointEpoch: q.EndpointInformationEpoch,
		InstanceID: q.InstanceID, RackID: q.RackID, ClientID: r.client, ClientHost: "/" + r.c.remote,
		RebalanceMillis: q.RebalanceTimeoutMillis, Topology: topologyOf(q.Topology),
		Owned:     coordinator.OwnedTasks{Active: tasksOf(q.ActiveTasks), Standby: tasksOf(q.StandbyTasks), Warmup: tasksOf(q.WarmupTasks)},
		ProcessID: q.ProcessID, Offsets: offsetsOf(q.TaskOffsets), EndOffsets: offsetsOf(q.TaskEndOffsets), Shutdown: q.ShutdownApplication,
		KnowsTags: r.version >= 1,
	}
	if q.UserEndpoint != nil {
		h.Endpoint = &coordinator.Endpoint{Host: q.UserEndpoint.Host, Port: q.UserEndpoint.Port}
	}
	if q.ClientTags != nil {
		h.ClientTags = make(map[string]string, len(q.ClientTags))
		for i := range q.ClientTags {
			h.ClientTags[q.ClientTags[i].Key] = q.ClientTags[i].Value
		}
	}
	a, err := s.deps.Groups.StreamsHeartbeat(r.ctx, h)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.codeOf(r, err), refusal(err)
		return resp, nil
	}
	answerStreams(resp, a)
	return resp, nil
}

func answerStreams(resp *kmsg.StreamsGroupHeartbeatResponse, a *coordinator.StreamsHeartbeatResult) {
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = a.MemberID, a.MemberEpoch, a.HeartbeatMillis
	resp.TaskOffsetIntervalMillis, resp.AcceptableRecoveryLag = a.TaskOffsetMillis, a.RecoveryLag
	resp.EndpointInformationEpoch = a.EndpointEpoch
	for _, x := range a.Status {
		st := kmsg.NewStreamsGroupHeartbeatResponseStatus()
		st.StatusCode, st.StatusDetail = x.Code, x.Detail
		resp.Status = append(resp.Status, st)
	}
	if a.HasAssignment {
		resp.ActiveTasks, resp.StandbyTasks, resp.WarmupTasks = taskIDs(a.Active), taskIDs(a.Standby), taskIDs(a.Warmup)
	}
	if !a.HasEndpoints {
		return
	}
	resp.PartitionsByUserEndpoint = []kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpoint{}
	for _, e := range a.Endpoints {
		x := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpoint()
		x.UserEndpoint.Host, x.UserEndpoint.Port = e.Endpoint.Host, e.Endpoint.Port
		for _, t := range e.Active {
			p := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpointActivePartition()
			p.Topic, p.Partitions = t.Name, t.Partitions
			x.ActivePartitions = append(x.ActivePartitions, p)
		}
		for _, t := range e.Standby {
			p := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpointStandbyPartition()
			p.Topic, p.Partitions = t.Name, t.Partitions
			x.StandbyPartitions = append(x.StandbyPartitions, p)
		}
		resp.PartitionsByUserEndpoint = append(resp.PartitionsByUserEndpoint, x)
	}
}

// topologyTopics says what is wrong with the names of a topology's topics, in Kafka's words; nil: nothing.
func topologyTopics(t *kmsg.StreamsGroupHeartbeatRequestTopology) *string {
	if t == nil {
		return nil
	}
	var internal, invalid []string
	seen := make(map[string]bool)
	look := func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		if topic.IsInternal(name) {
			internal = append(internal, name)
		}
		if topic.ValidateName(name) != nil {
			invalid = append(invalid, name)
		}
	}
	for i := range t.Subtopologies {
		x := &t.Subtopologies[i]
		for _, list := range [][]string{x.SourceTopics, x.RepartitionSinkTopics} {
			for _, name := range list {
				look(name)
			}
		}
		for _, list := range [][]kmsg.TopicInfo{x.RepartitionSourceTopics, x.StateChangelogTopics} {
			for j := range list {
				look(list[j].Topic)
			}
		}
	}
	text := ""
	switch {
	case len(internal) > 0:
		text = "Use of Kafka internal topics " + strings.Join(internal, ",") + " in a Kafka Streams topology is prohibited."
	case len(invalid) > 0:
		text = "Topic names " + strings.Join(invalid, ",") + " are not valid topic names."
	default:
		return nil
	}
	return &text
}

func topologyOf(t *kmsg.StreamsGroupHeartbeatRequestTopology) *coordinator.Topology {
	if t == nil {
		return nil
	}
	out := &coordinator.Topology{Epoch: t.Epoch, Subtopologies: make([]coordinator.Subtopology, len(t.Subtopologies))}
	for i := range t.Subtopologies {
		from := &t.Subtopologies[i]
		to := coordinator.Subtopology{
			ID: from.SubtopologyID, Sources: from.SourceTopics, SourceRegexes: from.SourceTopicRegex, Sinks: from.RepartitionSinkTopics,
			Changelogs: internalOf(from.StateChangelogTopics), Repartition: internalOf(from.RepartitionSourceTopics),
		}
		for _, g := range from.CopartitionGroups {
			to.Copartition = append(to.Copartition, coordinator.CopartitionGroup{
				Sources: g.SourceTopics, SourceRegexes: g.SourceTopicRegex, Repartition: g.RepartitionSourceTopics,
			})
		}
		out.Subtopologies[i] = to
	}
	return out
}

func internalOf(list []kmsg.TopicInfo) []coordinator.InternalTopic {
	out := make([]coordinator.InternalTopic, len(list))
	for i := range list {
		out[i] = coordinator.InternalTopic{Name: list[i].Topic, Partitions: list[i].NumPartitions, Replicas: list[i].ReplicationFactor}
		for _, c := range list[i].Configs {
			out[i].Configs = append(out[i].Configs, coordinator.TopicConfig{Name: c.Key, Value: c.Value})
		}
	}
	return out
}

// tasksOf and offsetsOf keep nil, which means unchanged.
func tasksOf(list []kmsg.TaskIDs) []coordinator.Tasks {
	if list == nil {
		return nil
	}
	out := make([]coordinator.Tasks, len(list))
	for i := range list {
		out[i] = coordinator.Tasks{Subtopology: list[i].SubtopologyID, Partitions: list[i].Partitions}
	}
	return out
}

func offsetsOf(list []kmsg.TaskOffset) []coordinator.TaskOffset {
	if list == nil {
		return nil
	}
	out := make([]coordinator.TaskOffset, len(list))
	for i := range list {
		out[i] = coordinator.TaskOffset{Subtopology: list[i].SubtopologyID, Partition: list[i].Partition, Offset: list[i].Offset}
	}
	return out
}

func taskIDs(list []coordinator.Tasks) []kmsg.TaskIDs {
	out := make([]kmsg.TaskIDs, len(list))
	for i := range list {
		out[i] = kmsg.NewTaskIDs()
		out[i].SubtopologyID, out[i].Partitions = list[i].Subtopology, list[i].Partitions
	}
	return out
}
