package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
)

// BrokerHeartbeat (63): versions 0–1, between brokers; v1 adds offline log directories.
//
// The connection that carries a broker's heartbeats is remembered: its end is told to the controller, which then looks
// whether the broker's process is gone.
var apiBrokerHeartbeat = api{key: 63, name: "BrokerHeartbeat", min: 0, max: 1, internal: true, handle: typed((*Server).brokerHeartbeat)}

func (s *Server) brokerHeartbeat(r *request, q *kmsg.BrokerHeartbeatRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrBrokerHeartbeatResponse()
	ctx, cancel := s.controllerContext(r)
	defer cancel()
	reply, err := s.deps.Controlled.Heartbeat(ctx, meta.Heartbeat{
		ID: q.BrokerID, Epoch: q.BrokerEpoch, Index: uint64(max(q.CurrentMetadataOffset, 0)), WantFence: q.WantFence, WantShutdown: q.WantShutdown,
	})
	if err == nil {
		r.c.beats = heartbeats{q.BrokerID, q.BrokerEpoch, true}
		resp.IsCaughtUp, resp.IsFenced, resp.ShouldShutdown = reply.CaughtUp, reply.Fenced, reply.ShouldShutdown
	}
	resp.ErrorCode = s.controllerCode(r, err, &resp.UnknownTags)
	return resp, nil
}

// heartbeats says whose heartbeats came over a connection.
type heartbeats struct {
	broker int32
	epoch  int64
	any    bool
}
