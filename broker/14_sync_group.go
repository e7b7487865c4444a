package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// SyncGroup (14): versions 0–5.
//
//	v3 group instance id (KIP-345)    v4 flexible    v5 protocol type and name, which must be given (KIP-559)
//
// The answer waits until the group's leader has assigned.
var apiSyncGroup = api{key: 14, name: "SyncGroup", min: 0, max: 5, handle: typed((*Server).syncGroup)}

func (s *Server) syncGroup(r *request, q *kmsg.SyncGroupRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.MemberAssignment = []byte{}
	if r.version >= 5 && (q.ProtocolType == nil || q.Protocol == nil) {
		resp.ErrorCode = codeInconsistentGroupProtocol
		return resp, nil
	}
	y := &coordinator.SyncRequest{
		Group: q.Group, MemberID: q.MemberID, InstanceID: q.InstanceID, Generation: q.Generation,
		ProtocolType: q.ProtocolType, Protocol: q.Protocol,
	}
	for i := range q.GroupAssignment {
		a := &q.GroupAssignment[i]
		y.Assignments = append(y.Assignments, coordinator.Assignment{MemberID: a.MemberID, Data: copied(a.MemberAssignment)})
	}
	result, err := s.deps.Groups.Sync(r.ctx, y)
	resp.ErrorCode = s.codeOf(r, err)
	resp.ProtocolType, resp.Protocol = result.ProtocolType, result.Protocol
	if result.Assignment != nil {
		resp.MemberAssignment = result.Assignment
	}
	return resp, nil
}
