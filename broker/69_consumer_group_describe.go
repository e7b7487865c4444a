package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// ConsumerGroupDescribe (69): versions 0–1 (KIP-848).
//
//	v1 member type (KIP-1099)
var apiConsumerGroupDescribe = api{key: 69, name: "ConsumerGroupDescribe", min: 0, max: 1, handle: typed((*Server).consumerGroupDescribe)}

// Member types: of those that speak the classic protocol, and the consumer protocol.
const (
	classicMember  int8 = 0
	consumerMember int8 = 1
)

func (s *Server) consumerGroupDescribe(r *request, q *kmsg.ConsumerGroupDescribeRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrConsumerGroupDescribeResponse()
	for _, id := range q.Groups {
		g := kmsg.NewConsumerGroupDescribeResponseGroup()
		g.Group, g.AuthorizedOperations = id, noOperations
		if s.cfg.NoConsumerGroups {
			g.ErrorCode = codeUnsupportedVersion
			resp.Groups = append(resp.Groups, g)
			continue
		}
		d, err := s.deps.Groups.DescribeConsumer(r.ctx, id)
		if err != nil {
			g.ErrorCode, g.ErrorMessage = s.codeOf(r, err), refusal(err)
			resp.Groups = append(resp.Groups, g)
			continue
		}
		g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName = d.State, d.Epoch, d.AssignmentEpoch, d.Assignor
		for i := range d.Members {
			g.Members = append(g.Members, describeConsumer(&d.Members[i]))
		}
		if q.IncludeAuthorizedOperations {
			g.AuthorizedOperations = groupOperations
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func describeConsumer(from *coordinator.ConsumerMemberDescription) kmsg.ConsumerGroupDescribeResponseGroupMember {
	m := kmsg.NewConsumerGroupDescribeResponseGroupMember()
	m.MemberID, m.InstanceID, m.RackID, m.MemberEpoch = from.MemberID, from.InstanceID, from.RackID, from.Epoch
	m.ClientID, m.ClientHost, m.MemberType = from.ClientID, from.ClientHost, consumerMember
	if from.Classic {
		m.MemberType = classicMember
	}
	m.SubscribedTopics, m.SubscribedTopicRegex = from.Topics, from.Regex
	m.Assignment, m.TargetAssignment = describeAssignment(from.Assigned), describeAssignment(from.Target)
	return m
}

func describeAssignment(list []coordinator.TopicPartitions) kmsg.Assignment {
	a := kmsg.NewAssignment()
	for _, t := range list {
		x := kmsg.NewAssignmentTopicPartition()
		x.TopicID, x.Topic, x.Partitions = t.Topic, t.Name, t.Partitions
		a.TopicPartitions = append(a.TopicPartitions, x)
	}
	return a
}
