package broker

import (
	"cmp"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// ShareGroupDescribe (77): version 1 (KIP-932).
var apiShareGroupDescribe = api{key: 77, name: "ShareGroupDescribe", min: 1, max: 1, handle: typed((*Server).shareGroupDescribe)}

func (s *Server) shareGroupDescribe(r *request, q *kmsg.ShareGroupDescribeRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrShareGroupDescribeResponse()
	// Names that cannot be come first, as in Kafka.
	slices.SortStableFunc(q.GroupIDs, func(a, b string) int { return cmp.Compare(min(len(a), 1), min(len(b), 1)) })
	for _, id := range q.GroupIDs {
		g := kmsg.NewShareGroupDescribeResponseGroup()
		g.GroupID, g.AuthorizedOperations = id, noOperations
		d, err := s.deps.Groups.DescribeShare(r.ctx, id)
		if err != nil {
			g.ErrorCode, g.ErrorMessage = s.codeOf(r, err), refusal(err)
			resp.Groups = append(resp.Groups, g)
			continue
		}
		g.GroupState, g.GroupEpoch, g.AssignmentEpoch, g.Assignor = d.State, d.Epoch, d.AssignmentEpoch, d.Assignor
		for i := range d.Members {
			g.Members = append(g.Members, describeShareMember(&d.Members[i]))
		}
		if q.IncludeAuthorizedOperations {
			g.AuthorizedOperations = groupOperations
		}
		resp.Groups = append(resp.Groups, g)
	}
	return resp, nil
}

func describeShareMember(from *coordinator.ShareMemberDescription) kmsg.ShareGroupDescribeResponseGroupMember {
	m := kmsg.NewShareGroupDescribeResponseGroupMember()
	m.MemberID, m.RackID, m.MemberEpoch = from.MemberID, from.RackID, from.Epoch
	m.ClientID, m.ClientHost, m.SubscribedTopicNames = from.ClientID, from.ClientHost, from.Topics
	for _, t := range from.Assigned {
		x := kmsg.NewShareGroupDescribeResponseGroupMemberAssignmentTopicPartition()
		x.TopicID, x.Topic, x.Partitions = t.Topic, t.Name, t.Partitions
		m.Assignment.TopicPartitions = append(m.Assignment.TopicPartitions, x)
	}
	return m
}
