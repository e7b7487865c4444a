package broker

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// TxnOffsetCommit (28): versions 0–5.
//
//	v2 leader epoch    v3 flexible, member (KIP-447)    v4 TRANSACTION_ABORTABLE    v5 the group's partition need not be in the
//	transaction yet (KIP-890)
var apiTxnOffsetCommit = api{key: 28, name: "TxnOffsetCommit", min: 0, max: 5, handle: typed((*Server).txnOffsetCommit)}

func (s *Server) txnOffsetCommit(r *request, q *kmsg.TxnOffsetCommitRequest) (kmsg.Response, error) {
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	img := s.deps.Metadata.Image()
	who := coordinator.Producer{ID: q.ProducerID, Epoch: q.ProducerEpoch}
	c := &coordinator.CommitRequest{
		Group: q.Group, MemberID: q.MemberID, InstanceID: q.InstanceID, Generation: coordinator.NoGeneration,
		RetentionMillis: -1, Producer: &who,
	}
	if r.version >= 3 {
		c.Generation = q.Generation
	}
	type place struct{ topic, partition int }
	var asked []place
	for i := range q.Topics {
		t := &q.Topics[i]
		answer := kmsg.NewTxnOffsetCommitResponseTopic()
		answer.Topic = t.Topic
		known := img.Topic(t.Topic)
		for j := range t.Partitions {
			p := &t.Partitions[j]
			a := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			a.Partition = p.Partition
			if known == nil || p.Partition < 0 || int(p.Partition) >= len(known.Partitions) {
				a.ErrorCode = codeUnknownTopicOrPartition
			} else {
				asked = append(asked, place{i, j})
				o := coordinator.CommitPartition{
					Topic: t.Topic, ID: known.ID, Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch,
				}
				if p.Metadata != nil {
					o.Metadata = *p.Metadata
				}
				c.Partitions = append(c.Partitions, o)
			}
			answer.Partitions = append(answer.Partitions, a)
		}
		resp.Topics = append(resp.Topics, answer)
	}
	if len(asked) == 0 {
		return resp, nil
	}
	result, err := s.commitInTxn(r, q, c)
	for i, at := range asked {
		e := err
		if e == nil {
			e = result.Errs[i]
		}
		resp.Topics[at.topic].Partitions[at.partition].ErrorCode = s.txnCommitCode(r, e)
	}
	return resp, nil
}

// txnCommitCode is the code of a commit that failed. That nobody could be asked about the transaction is told as what every
// client tries again without looking for another coordinator.
func (s *Server) txnCommitCode(r *request, err error) int16 {
	if errors.Is(err, errTxnUnverified) {
		return codeCoordinatorLoading
	}
	c := s.txnCode(r, err, false) // in every version, as in answers to Produce
	if c == codeTransactionAbortable && r.version < 4 {
		return codeInvalidTxnState
	}
	return c
}

// commitInTxn commits offsets in a transaction that its coordinator has verified. When a marker of the producer came meanwhile, that
// of the transaction before most likely, it is asked again.
func (s *Server) commitInTxn(r *request, q *kmsg.TxnOffsetCommitRequest, c *coordinator.CommitRequest) (result *coordinator.CommitResult, err error) {
	at, err := s.offsetsPartition(q.Group)
	if err != nil {
		return nil, err
	}
	c.Guarded = true
	for tries := 1; ; tries++ {
		err = s.verifyTxn(r.ctx, q.TransactionalID, *c.Producer, at, r.version >= 5, func() (err error) {
			c.Guard, err = s.deps.Groups.TxnGuard(q.Group)
			return err
		})
		if err != nil {
			return nil, err
		}
		result, err = s.deps.Groups.Commit(r.ctx, c)
		if tries == txnAsksMax || err != nil || len(result.Errs) == 0 || !errors.Is(result.Errs[0], coordinator.ErrTxnEndedMeanwhile) {
			return result, err
		}
	}
}
