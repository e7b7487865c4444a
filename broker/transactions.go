package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// Transactions is the transaction coordinator as the handlers use it; *coordinator.Transactions is one.
type Transactions interface {
	Locate(ctx context.Context, id string) (broker int32, err error)
	InitProducer(ctx context.Context, q *coordinator.InitProducerRequest) (coordinator.Producer, error)
	AddPartitions(ctx context.Context, q *coordinator.AddPartitionsRequest) (*coordinator.AddPartitionsResult, error)
	End(ctx context.Context, q *coordinator.EndTxnRequest) (coordinator.Producer, error)
	Describe(ctx context.Context, id string) (*coordinator.TxnDescription, error)
	List(ctx context.Context, q *coordinator.ListTxnsRequest) ([]coordinator.ListedTxn, error)
}

var _ Transactions = (*coordinator.Transactions)(nil)

// Brokers asks another broker of the cluster.
type Brokers interface {
	Ask(ctx context.Context, broker int32, q kmsg.Request) (kmsg.Response, error)
}

// Versions of the transaction protocol (transaction.version).
const (
	txnV1 int8 = 1
	txnV2 int8 = 2
)

// txnCode is the code of a transaction coordinator's error. Clients of old versions know a fenced producer only as one of an
// invalid epoch.
func (s *Server) txnCode(r *request, err error, knowsFenced bool) int16 {
	c := s.codeOf(r, err)
	if c == codeProducerFenced && !knowsFenced {
		return codeInvalidProducerEpoch
	}
	return c
}
