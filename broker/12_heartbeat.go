package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// Heartbeat (12): versions 0–4.
//
//	v3 group instance id (KIP-345)    v4 flexible
var apiHeartbeat = api{key: 12, name: "Heartbeat", min: 0, max: 4, handle: typed((*Server).heartbeat)}

func (s *Server) heartbeat(r *request, q *kmsg.HeartbeatRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.ErrorCode = s.codeOf(r, s.deps.Groups.Heartbeat(r.ctx, &coordinator.HeartbeatRequest{
		Group: q.Group, MemberID: q.MemberID, InstanceID: q.InstanceID, Generation: q.Generation,
	}))
	return resp, nil
}
