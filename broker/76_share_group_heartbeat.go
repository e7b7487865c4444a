package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// ShareGroupHeartbeat (76): version 1 (KIP-932). All that a member of a share group says of its membership, and is told.
var apiShareGroupHeartbeat = api{key: 76, name: "ShareGroupHeartbeat", min: 1, max: 1, handle: typed((*Server).shareGroupHeartbeat)}

func (s *Server) shareGroupHeartbeat(r *request, q *kmsg.ShareGroupHeartbeatRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrShareGroupHeartbeatResponse()
	a, err := s.deps.Groups.ShareHeartbeat(r.ctx, &coordinator.ShareHeartbeatRequest{
		Group: q.GroupID, MemberID: q.MemberID, MemberEpoch: q.MemberEpoch, RackID: q.RackID,
		ClientID: r.client, ClientHost: "/" + r.c.remote, Topics: q.SubscribedTopicNames,
	})
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.codeOf(r, err), refusal(err)
		return resp, nil
	}
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = &a.MemberID, a.MemberEpoch, a.HeartbeatMillis
	if a.HasAssignment {
		out := kmsg.NewShareGroupHeartbeatResponseAssignment()
		for _, t := range a.Assigned {
			rt := kmsg.NewShareGroupHeartbeatResponseAssignmentTopicPartition()
			rt.TopicID, rt.Partitions = t.Topic, t.Partitions
			out.TopicPartitions = append(out.TopicPartitions, rt)
		}
		resp.Assignment = &out
	}
	return resp, nil
}
