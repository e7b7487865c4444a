package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// LeaveGroup (13): versions 0–5.
//
//	v3 several members, static ones too (KIP-345)    v4 flexible    v5 reason (KIP-800)
var apiLeaveGroup = api{key: 13, name: "LeaveGroup", min: 0, max: 5, handle: typed((*Server).leaveGroup)}

func (s *Server) leaveGroup(r *request, q *kmsg.LeaveGroupRequest) (kmsg.Response, error) {
	l := &coordinator.LeaveRequest{Group: q.Group}
	if r.version < 3 {
		l.Members = []coordinator.LeavingMember{{MemberID: q.MemberID}}
	}
	for i := range q.Members {
		l.Members = append(l.Members, coordinator.LeavingMember{MemberID: q.Members[i].MemberID, InstanceID: q.Members[i].InstanceID})
	}
	result, err := s.deps.Groups.Leave(r.ctx, l)
	resp := kmsg.NewPtrLeaveGroupResponse()
	resp.ErrorCode = s.codeOf(r, err)
	switch {
	case err != nil:
	case r.version < 3: // the one member's error is that of the answer
		resp.ErrorCode = s.codeOf(r, result.Errs[0])
	default:
		for i, err := range result.Errs {
			m := kmsg.NewLeaveGroupResponseMember()
			m.MemberID, m.InstanceID, m.ErrorCode = l.Members[i].MemberID, l.Members[i].InstanceID, s.codeOf(r, err)
			resp.Members = append(resp.Members, m)
		}
	}
	return resp, nil
}
