package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AllocateProducerIds (67): version 0, between brokers.
var apiAllocateProducerIDs = api{key: 67, name: "AllocateProducerIds", min: 0, max: 0, internal: true, handle: typed((*Server).allocateProducerIDs)}

func (s *Server) allocateProducerIDs(r *request, q *kmsg.AllocateProducerIDsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAllocateProducerIDsResponse()
	ctx, cancel := s.controllerContext(r)
	defer cancel()
	block, err := s.deps.Controlled.AllocateProducerIDs(ctx, q.BrokerID, q.BrokerEpoch)
	resp.ProducerIDStart, resp.ProducerIDLen = block.First, block.Count
	resp.ErrorCode = s.controllerCode(r, err, &resp.UnknownTags)
	return resp, nil
}
