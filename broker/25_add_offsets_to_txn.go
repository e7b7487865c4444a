package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/meta/topic"
)

// AddOffsetsToTxn (25): versions 0–4. It puts a group's partition of the offsets topic into the transaction.
//
//	v2 PRODUCER_FENCED    v3 flexible    v4 TRANSACTION_ABORTABLE
var apiAddOffsetsToTxn = api{key: 25, name: "AddOffsetsToTxn", min: 0, max: 4, handle: typed((*Server).addOffsetsToTxn)}

func (s *Server) addOffsetsToTxn(r *request, q *kmsg.AddOffsetsToTxnRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrAddOffsetsToTxnResponse()
	at, err := s.offsetsPartition(q.Group)
	if err != nil {
		resp.ErrorCode = s.codeOf(r, err)
		return resp, nil
	}
	result, err := s.deps.Transactions.AddPartitions(r.ctx, &coordinator.AddPartitionsRequest{
		TransactionalID: q.TransactionalID, Producer: coordinator.Producer{ID: q.ProducerID, Epoch: q.ProducerEpoch},
		Version: txnV1, Partitions: []coordinator.TxnPartition{at},
	})
	if err == nil {
		err = result.Errs[0]
	}
	resp.ErrorCode = s.txnCode(r, err, r.version >= 2)
	return resp, nil
}

// offsetsPartition is where a group keeps its offsets; coordinator.ErrNotAvailable before there is a topic for them.
func (s *Server) offsetsPartition(group string) (coordinator.TxnPartition, error) {
	t := s.deps.Metadata.Image().Topic(topic.ConsumerOffsets)
	if t == nil {
		return coordinator.TxnPartition{}, coordinator.ErrNotAvailable
	}
	return coordinator.TxnPartition{
		Topic: topic.ConsumerOffsets, Partition: coordinator.Partition(group, int32(len(t.Partitions)))}, nil
}
