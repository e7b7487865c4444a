package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// StreamsGroupDescribe (89): versions 0–1 (KIP-1071).
//
//	v1 topology descriptions (KIP-1331), of which there are none without Kafka's plugin; the assignor (KIP-1357)
var apiStreamsGroupDescribe = api{key: 89, name: "StreamsGroupDescribe", min: 0, max: 1, handle: typed((*Server).streamsGroupDescribe)}

// descriptionNotStored is the status of a topology description that was asked for and that there is not.
const descriptionNotStored int8 = 1

func (s *Server) streamsGroupDescribe(r *request, q *kmsg.StreamsGroupDescribeRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrStreamsGroupDescribeResponse()
	for _, id := range q.Groups {
		g := kmsg.NewStreamsGroupDescribeResponseGroup()
		g.Group, g.AuthorizedOperations = id, noOperations
		if s.cfg.NoStreamsGroups {
			g.ErrorCode = codeUnsupportedVersion
			resp.Groups = append(resp.Groups, g)
			continue
		}
		d, err := s.deps.Groups.DescribeStreams(r.ctx, id)
		if err != nil {
			g.ErrorCode, g.ErrorMessage = s.codeOf(r, err), refusal(err)
			resp.Groups = append(resp.Groups, g)
			continue
		}
		g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName = d.State, d.Epoch, d.AssignmentEpoch, &d.Assignor
		g.Topology = describeTopology(d.Topology)
		for i := range d.Members {
			g.Members = append(g.Members, describeStreamsMember(&d.Members[i]))
		}
		if q.IncludeAuthorizedOperations {
			g.AuthorizedOperations = groupOperations
		}
		if q.IncludeTopologyDescription {
			g.TopologyDescriptionStatus = descriptionNotStored
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func describeTopology(t *coordinator.Topology) *kmsg.StreamsGroupDescribeResponseGroupTopology {
	if t == nil {
		return nil
	}
	out := kmsg.NewStreamsGroupDescribeResponseGroupTopology()
	out.Epoch = t.Epoch
	out.Subtopologies = []kmsg.StreamsGroupDescribeResponseGroupTopologySubtopology{}
	for i := range t.Subtopologies {
		from := &t.Subtopologies[i]
		to := kmsg.NewStreamsGroupDescribeResponseGroupTopologySubtopology()
		to.SubtopologyID, to.SourceTopics, to.RepartitionSinkTopics = from.ID, from.Sources, from.Sinks
		to.StateChangelogTopics, to.RepartitionSourceTopics = topicInfos(from.Changelogs), topicInfos(from.Repartition)
		out.Subtopologies = append(out.Subtopologies, to)
	}
	return &out
}

func topicInfos(list []coordinator.InternalTopic) []kmsg.TopicInfo {
	out := make([]kmsg.TopicInfo, len(list))
	for i := range list {
		out[i] = kmsg.NewTopicInfo()
		out[i].Topic, out[i].NumPartitions, out[i].ReplicationFactor = list[i].Name, list[i].Partitions, list[i].Replicas
		for _, c := range list[i].Configs {
			x := kmsg.NewTopicInfoConfig()
			x.Key, x.Value = c.Name, c.Value
			out[i].Configs = append(out[i].Configs, x)
		}
	}
	return out
}

func describeStreamsMember(from *coordinator.StreamsMemberDescription) kmsg.StreamsGroupDescribeResponseGroupMember {
	m := kmsg.NewStreamsGroupDescribeResponseGroupMember()
	m.MemberID, m.InstanceID, m.RackID, m.MemberEpoch = from.MemberID, from.InstanceID, from.RackID, from.Epoch
	m.ClientID, m.ClientHost, m.TopologyEpoch, m.ProcessID = from.ClientID, from.ClientHost, from.TopologyEpoch, from.ProcessID
	if from.Endpoint != nil {
		e := kmsg.NewStreamsGroupDescribeResponseGroupMemberUserEndpoint()
		e.Host, e.Port = from.Endpoint.Host, from.Endpoint.Port
		m.UserEndpoint = &e
	}
	for _, t := range from.ClientTags {
		x := kmsg.NewStreamsGroupDescribeResponseGroupMemberClientTag()
		x.Key, x.Value = t.Name, t.Value
		m.ClientTags = append(m.ClientTags, x)
	}
	m.TaskOffsets, m.TaskEndOffsets = taskOffsets(from.Offsets), taskOffsets(from.EndOffsets)
	m.Assignment, m.TargetAssignment = streamsAssignment(&from.Assigned), streamsAssignment(&from.Target)
	return m
}

func taskOffsets(list []coordinator.TaskOffset) []kmsg.TaskOffset {
	out := make([]kmsg.TaskOffset, len(list))
	for i := range list {
		out[i] = kmsg.NewTaskOffset()
		out[i].SubtopologyID, out[i].Partition, out[i].Offset = list[i].Subtopology, list[i].Partition, list[i].Offset
	}
	return out
}

func streamsAssignment(t *coordinator.OwnedTasks) kmsg.StreamsAssignment {
	a := kmsg.NewStreamsAssignment()
	a.ActiveTasks, a.StandbyTasks, a.WarmupTasks = taskIDs(t.Active), taskIDs(t.Standby), taskIDs(t.Warmup)
	return a
}
