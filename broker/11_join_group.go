package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// JoinGroup (11): versions 0–9.
//
//	v1 rebalance timeout    v4 members need an id (KIP-394)    v5 group instance id (KIP-345)    v6 flexible
//	v7 protocol type, nullable protocol    v8 reason (KIP-800)    v9 skip assignment (KIP-814)
//
// The answer waits until the group's join phase has ended, and the connection's further requests wait behind it, as in Kafka.
var apiJoinGroup = api{key: 11, name: "JoinGroup", min: 0, max: 9, handle: typed((*Server).joinGroup)}

func (s *Server) joinGroup(r *request, q *kmsg.JoinGroupRequest) (kmsg.Response, error) {
	j := &coordinator.JoinRequest{
		Group: q.Group, MemberID: q.MemberID, InstanceID: q.InstanceID, ClientID: r.client, ClientHost: "/" + r.c.remote,
		SessionMillis: q.SessionTimeoutMillis, RebalanceMillis: q.RebalanceTimeoutMillis, ProtocolType: q.ProtocolType,
		NeedMemberID: r.version >= 4, MaySkipAssignment: r.version >= 9,
	}
	if r.version == 0 {
		j.RebalanceMillis = q.SessionTimeoutMillis
	}
	for i := range q.Protocols {
		j.Protocols = append(j.Protocols, coordinator.Protocol{Name: q.Protocols[i].Name, Metadata: copied(q.Protocols[i].Metadata)})
	}
	result, err := s.deps.Groups.Join(r.ctx, j)
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.ErrorCode = s.codeOf(r, err)
	resp.MemberID, resp.Generation, resp.LeaderID = result.MemberID, result.Generation, result.Leader
	resp.ProtocolType, resp.Protocol, resp.SkipAssignment = result.ProtocolType, result.Protocol, result.SkipAssignment
	if resp.Protocol == nil && r.version < 7 {
		resp.Protocol = kmsg.StringPtr("")
	}
	for i := range result.Members {
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID, m.InstanceID, m.ProtocolMetadata = result.Members[i].MemberID, result.Members[i].InstanceID, result.Members[i].Metadata
		resp.Members = append(resp.Members, m)
	}
	return resp, nil
}
