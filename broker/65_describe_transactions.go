package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeTransactions (65): version 0 (KIP-664).
var apiDescribeTransactions = api{key: 65, name: "DescribeTransactions", min: 0, max: 0, handle: typed((*Server).describeTransactions)}

func (s *Server) describeTransactions(r *request, q *kmsg.DescribeTransactionsRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrDescribeTransactionsResponse()
	for _, id := range q.TransactionalIDs {
		out := kmsg.NewDescribeTransactionsResponseTransactionState()
		out.TransactionalID = id
		d, err := s.deps.Transactions.Describe(r.ctx, id)
		if err != nil {
			out.ErrorCode = s.codeOf(r, err)
			resp.TransactionStates = append(resp.TransactionStates, out)
			continue
		}
		out.State, out.TimeoutMillis, out.StartTimestamp = d.State.String(), d.TimeoutMillis, d.StartMillis
		out.ProducerID, out.ProducerEpoch = d.Producer.ID, d.Producer.Epoch
		for _, p := range d.Partitions {
			if n := len(out.Topics); n > 0 && out.Topics[n-1].Topic == p.Topic {
				out.Topics[n-1].Partitions = append(out.Topics[n-1].Partitions, p.Partition)
				continue
			}
			t := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			t.Topic, t.Partitions = p.Topic, []int32{p.Partition}
			out.Topics = append(out.Topics, t)
		}
		resp.TransactionStates = append(resp.TransactionStates, out)
	}
	return resp, nil
}
