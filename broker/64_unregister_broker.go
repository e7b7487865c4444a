package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// UnregisterBroker (64): version 0. The controller forgets a broker; what it holds counts no more.
var apiUnregisterBroker = api{key: 64, name: "UnregisterBroker", min: 0, max: 0, forwarded: true, handle: typed((*Server).unregisterBroker)}

func (s *Server) unregisterBroker(r *request, q *kmsg.UnregisterBrokerRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrUnregisterBrokerResponse()
	resp.ErrorMessage = kmsg.StringPtr("")
	ctx, cancel := context.WithTimeout(r.ctx, s.cfg.RequestsTime)
	defer cancel()
	if err := s.decider(r).UnregisterBroker(ctx, q.BrokerID); err != nil {
		resp.ErrorCode, resp.ErrorMessage = s.codeOf(r, err), message(err)
	}
	return resp, nil
}
