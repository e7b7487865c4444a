package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// AddPartitionsToTxn (24): versions 0–5.
//
//	v2 PRODUCER_FENCED    v3 flexible    v4 several transactions, verify only; from brokers (KIP-890)    v5 TRANSACTION_ABORTABLE
//
// Up to version 3 a producer of the old protocol asks before it writes; from 4 on a partition's leader asks for it.
var apiAddPartitionsToTxn = api{key: 24, name: "AddPartitionsToTxn", min: 0, max: 5, handle: typed((*Server).addPartitionsToTxn)}

func (s *Server) addPartitionsToTxn(r *request, q *kmsg.AddPartitionsToTxnRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAddPartitionsToTxnResponse()
	if r.version < 4 {
		one := kmsg.NewAddPartitionsToTxnRequestTransaction()
		one.TransactionalID, one.ProducerID, one.ProducerEpoch = q.TransactionalID, q.ProducerID, q.ProducerEpoch
		for i := range q.Topics {
			t := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
			t.Topic, t.Partitions = q.Topics[i].Topic, q.Topics[i].Partitions
			one.Topics = append(one.Topics, t)
		}
		for _, t := range s.addPartitions(r, &one, txnV1) {
			out := kmsg.NewAddPartitionsToTxnResponseTopic()
			out.Topic = t.Topic
			for _, p := range t.Partitions {
				a := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
				a.Partition, a.ErrorCode = p.Partition, p.ErrorCode
				out.Partitions = append(out.Partitions, a)
			}
			resp.Topics = append(resp.Topics, out)
		}
		return resp, nil
	}
	// All at once: what they change is in one append of the coordinator's log, for each of its partitions.
	out := make([]kmsg.AddPartitionsToTxnResponseTransaction, len(q.Transactions))
	abreastOf(txnsAtOnce, len(out), func(i int) {
		out[i] = kmsg.NewAddPartitionsToTxnResponseTransaction()
		out[i].TransactionalID = q.Transactions[i].TransactionalID
		out[i].Topics = s.addPartitions(r, &q.Transactions[i], txnV2)
	})
	resp.Transactions = out
	return resp, nil
}

// txnsAtOnce bounds the transactions of one request that are looked at together.
const txnsAtOnce = 256

// addPartitions puts the partitions of one transaction in, all or none: when one of them does not exist, the others are not
// attempted.
func (s *Server) addPartitions(r *request, q *kmsg.AddPartitionsToTxnRequestTransaction, version int8) []kmsg.AddPartitionsToTxnResponseTransactionTopic {
	img := s.deps.Metadata.Image()
	a := &coordinator.AddPartitionsRequest{
		TransactionalID: q.TransactionalID, Producer: coordinator.Producer{ID: q.ProducerID, Epoch: q.ProducerEpoch},
		Version: version, VerifyOnly: q.VerifyOnly,
	}
	known := true
	var out []kmsg.AddPartitionsToTxnResponseTransactionTopic
	for i := range q.Topics {
		t := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
		t.Topic = q.Topics[i].Topic
		for _, index := range q.Topics[i].Partitions {
			p := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
			p.Partition, p.ErrorCode = index, codeOperationNotAttempted
			if _, at := img.Partition(t.Topic, index); at == nil {
				p.ErrorCode, known = codeUnknownTopicOrPartition, false
			}
			t.Partitions = append(t.Partitions, p)
			a.Partitions = append(a.Partitions, coordinator.TxnPartition{Topic: t.Topic, Partition: index})
		}
		out = append(out, t)
	}
	if !known {
		return out
	}
	result, err := s.deps.Transactions.AddPartitions(r.ctx, a)
	at := 0
	for i := range out {
		for j := range out[i].Partitions {
			e := err
			if e == nil {
				e = result.Errs[at]
			}
			at++
			out[i].Partitions[j].ErrorCode = s.txnCode(r, e, r.version >= 2)
		}
	}
	return out
}
