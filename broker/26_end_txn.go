package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// EndTxn (26): versions 0–5.
//
//	v2 PRODUCER_FENCED    v3 flexible    v4 TRANSACTION_ABORTABLE    v5 the epoch to go on with (KIP-890)
var apiEndTxn = api{key: 26, name: "EndTxn", min: 0, max: 5, handle: typed((*Server).endTxn)}

func (s *Server) endTxn(r *request, q *kmsg.EndTxnRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrEndTxnResponse()
	e := &coordinator.EndTxnRequest{
		TransactionalID: q.TransactionalID, Producer: coordinator.Producer{ID: q.ProducerID, Epoch: q.ProducerEpoch},
		Commit: q.Commit, Version: txnV1,
	}
	if r.version >= 5 {
		e.Version = txnV2
	}
	p, err := s.deps.Transactions.End(r.ctx, e)
	resp.ProducerID, resp.ProducerEpoch = p.ID, p.Epoch
	resp.ErrorCode = s.txnCode(r, err, r.version >= 2)
	return resp, nil
}
