package broker

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// ConsumerGroupHeartbeat (68): versions 0–1 (KIP-848). All that a member of a consumer group says, and is told.
//
//	v1 regular expressions (KIP-848), the member makes up its id (KIP-1082)
var apiConsumerGroupHeartbeat = api{key: 68, name: "ConsumerGroupHeartbeat", min: 0, max: 1, handle: typed((*Server).consumerGroupHeartbeat)}

func (s *Server) consumerGroupHeartbeat(r *request, q *kmsg.ConsumerGroupHeartbeatRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrConsumerGroupHeartbeatResponse()
	if s.cfg.NoConsumerGroups {
		resp.ErrorCode = codeUnsupportedVersion
		return resp, nil
	}
	h := &coordinator.ConsumerHeartbeatRequest{
		Group: q.Group, MemberID: q.MemberID, MemberEpoch: q.MemberEpoch, InstanceID: q.InstanceID, RackID: q.RackID,
		ClientID: r.client, ClientHost: "/" + r.c.remote, RebalanceMillis: q.RebalanceTimeoutMillis, Topics: q.SubscribedTopicNames,
		Regex: q.SubscribedTopicRegex, Assignor: q.ServerAssignor, NamesItself: r.version >= 1,
	}
	if q.Topics != nil {
		h.Owned = make([]coordinator.TopicPartitions, len(q.Topics))
		for i := range q.Topics {
			h.Owned[i] = coordinator.TopicPartitions{Topic: q.Topics[i].TopicID, Partitions: q.Topics[i].Partitions}
		}
	}
	a, err := s.deps.Groups.ConsumerHeartbeat(r.ctx, h)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.codeOf(r, err), refusal(err)
		return resp, nil
	}
	resp.MemberID, resp.MemberEpoch, resp.HeartbeatIntervalMillis = &a.MemberID, a.MemberEpoch, a.HeartbeatMillis
	if a.HasAssignment {
		out := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
		for _, t := range a.Assigned {
			rt := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
			rt.TopicID, rt.Partitions = t.Topic, t.Partitions
			out.Topics = append(out.Topics, rt)
		}
		resp.Assignment = &out
	}
	return resp, nil
}

// refusal is the coordinator's text for a client; nil when there is none.
func refusal(err error) *string {
	var x *coordinator.Refusal
	if errors.As(err, &x) {
		return &x.Text
	}
	return nil
}
