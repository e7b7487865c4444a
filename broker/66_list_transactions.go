package broker

import (
	"regexp"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// ListTransactions (66): versions 0–2.
//
//	v1 duration filter (KIP-994)    v2 pattern (KIP-1152)
var apiListTransactions = api{key: 66, name: "ListTransactions", min: 0, max: 2, handle: typed((*Server).listTransactions)}

func (s *Server) listTransactions(r *request, q *kmsg.ListTransactionsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrListTransactionsResponse()
	l := &coordinator.ListTxnsRequest{ProducerIDs: q.ProducerIDFilters, OlderMillis: -1}
	for _, name := range q.StateFilters {
		if state, ok := coordinator.ParseTxnState(name); ok {
			l.States = append(l.States, state)
		} else {
			resp.UnknownStateFilters = append(resp.UnknownStateFilters, name)
		}
	}
	if len(q.StateFilters) > 0 && len(l.States) == 0 {
		return resp, nil
	}
	if r.version >= 1 {
		l.OlderMillis = q.DurationFilterMillis
	}
	if r.version >= 2 && q.TransactionalIDPattern != nil && *q.TransactionalIDPattern != "" {
		re, err := regexp.Compile("^(?:" + *q.TransactionalIDPattern + ")$")
		if err != nil {
			resp.ErrorCode = codeInvalidRegularExpression
			return resp, nil
		}
		l.Pattern = re
	}
	list, err := s.deps.Transactions.List(r.ctx, l)
	if err != nil {
		resp.ErrorCode = s.codeOf(r, err)
		return resp, nil
	}
	for _, x := range list {
		t := kmsg.NewListTransactionsResponseTransactionState()
		t.TransactionalID, t.ProducerID, t.TransactionState = x.TransactionalID, x.ProducerID, x.State.String()
		resp.TransactionStates = append(resp.TransactionStates, t)
	}
	return resp, nil
}
