package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// errTxnUnverified is returned when the transaction coordinator could not be asked whether the producer's transaction is open.
var errTxnUnverified = errors.New("broker: the transaction could not be verified")

// Between the end of one transaction and the beginning of the next the coordinator says CONCURRENT_TRANSACTIONS for a moment;
// a leader that asks on a producer's behalf waits that out (add.partitions.to.txn.retry.backoff.ms and .max.ms).
const (
	txnRetryPause = 5 * time.Millisecond
	txnRetryMax   = time.Second
	// txnAsksMax bounds how often a partition's batch is verified anew because a marker came meanwhile. A producer that begins a
	// transaction has one to wait for, that of its last one.
	txnAsksMax = 3
)

// verifyTxn asks the transaction's coordinator whether a partition is part of the producer's open transaction, or, with add,
// has it put in (KIP-890): a write of a transaction that nobody would end must not get into the log. before is called ahead of
// each time that it asks.
func (s *Server) verifyTxn(ctx context.Context, id string, who coordinator.Producer, at coordinator.TxnPartition, add bool, before func() error) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestsTime)
	defer cancel()
	var pause *time.Timer
	for began := time.Now(); ; {
		if err := before(); err != nil {
			return err
		}
		err := s.askTxn(ctx, id, who, at, add)
		if !errors.Is(err, coordinator.ErrConcurrentTransactions) || time.Since(began) > txnRetryMax {
			return err
		}
		if pause == nil {
			pause = time.NewTimer(txnRetryPause)
			defer pause.Stop()
		} else {
			pause.Reset(txnRetryPause)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return err
		}
	}
}

func (s *Server) askTxn(ctx context.Context, id string, who coordinator.Producer, at coordinator.TxnPartition, add bool) error {
	if s.deps.Transactions == nil {
		return coordinator.ErrTxnAbortable
	}
	broker, err := s.txnCoordinator(id)
	if err != nil {
		return err
	}
	version := txnV1
	if add {
		version = txnV2
	}
	if broker == s.cfg.NodeID {
		r, err := s.deps.Transactions.AddPartitions(ctx, &coordinator.AddPartitionsRequest{
			TransactionalID: id, Producer: who, Partitions: []coordinator.TxnPartition{at}, Version: version, VerifyOnly: !add})
		if err != nil {
			return fmt.Errorf("%w: %w", errTxnUnverified, err)
		}
		return r.Errs[0]
	}
	return s.txnAsks.ask(ctx, broker, &txnAsk{id: id, who: who, at: at, add: add})
}

// txnCoordinator is the broker that coordinates a transactional id, by the metadata alone.
func (s *Server) txnCoordinator(id string) (int32, error) {
	img := s.deps.Metadata.Image()
	t := img.Topic(topic.TransactionState)
	if t == nil {
		return 0, coordinator.ErrInvalidProducerIDMapping
	}
	leader := t.Partitions[coordinator.Partition(id, int32(len(t.Partitions)))].Leader
	if leader == meta.NoLeader || leader != s.cfg.NodeID && s.deps.Brokers == nil {
		return 0, fmt.Errorf("%w: its coordinator is away", errTxnUnverified)
	}
	return leader, nil
}

// verified fills in what an append of a transactional batch needs: whether the partition knows of the transaction, or the
// coordinator does. Batches that are not transactional need nothing, and those of the old protocol none when
// transaction.partition.verification.enable is off.
func (s *Server) verified(r *request, op *produceOp, p Partition, records []byte, a *replica.AppendRequest) error {
	b := batch.Batch(records)
	if op.req.TransactionID == nil || len(b) < batch.HeaderSize || !b.Transactional() || b.ProducerID() < 0 {
		return nil
	}
	a.TxnV2 = r.version >= 12
	if b := s.settings(); b != nil && !b.TransactionVerification && !a.TxnV2 {
		a.TxnVerified = true // taken at its word; with KIP-890 the partition gets into the transaction by being asked for
		return nil
	}
	id := p.ID()
	who := coordinator.Producer{ID: b.ProducerID(), Epoch: b.ProducerEpoch()}
	err := s.verifyTxn(r.ctx, *op.req.TransactionID, who, coordinator.TxnPartition{Topic: id.Topic, Partition: id.Index}, a.TxnV2,
		func() (err error) {
			var open bool
			if a.TxnGuard, open, err = p.TxnGuard(who.ID, who.Epoch); err == nil && open {
				err = errTxnOpen
			}
			return err
		})
	if errors.Is(err, errTxnOpen) {
		return nil
	}
	a.TxnVerified = err == nil
	return produceTxnError(err, r.version)
}

// errTxnOpen is returned when there is nothing to ask: the partition knows of the transaction.
var errTxnOpen = errors.New("broker: the transaction is open here")

// produceTxnError is what a producer is told when its transaction was not verified. Older ones know fewer errors and take
// NOT_ENOUGH_REPLICAS for what it is meant to be: try again.
func produceTxnError(err error, version int16) error {
	switch {
	case errors.Is(err, errTxnUnverified), errors.Is(err, coordinator.ErrConcurrentTransactions) && version < 12:
		return fmt.Errorf("%w: %w", replica.ErrISRTooSmall, err)
	case errors.Is(err, coordinator.ErrTxnAbortable) && version < 11:
		return withMessage(coordinator.ErrInvalidTxnState, "Partition was not added to the transaction")
	case errors.Is(err, coordinator.ErrProducerFenced):
		return replica.ErrStaleProducerEpoch // as Kafka has it in answers to Produce
	}
	return err
}
