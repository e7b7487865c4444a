package broker

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// Bounds of the questions to other brokers about transactions.
const (
	// txnAsksQueued bounds the questions that wait for one coordinator. Another is refused as unverified: its producer tries again.
	txnAsksQueued = 4096
	// txnAsksBatch bounds the questions of one request.
	txnAsksBatch = 1024
)

// txnAsks asks transactions' coordinators on other brokers (KIP-890). Each coordinator is sent one request at a time: what comes
// meanwhile goes together in the next, so that many producers that begin transactions at once share a round trip, and a commit of
// the coordinator's log.
type txnAsks struct {
	server *Server

	mu     sync.Mutex // guards the following
	queues map[int32]*txnAskQueue
}

// txnAskQueue is the questions that wait for one coordinator, guarded by txnAsks.mu. It is there while a goroutine serves it.
type txnAskQueue struct{ waiting []*txnAsk }

// txnAsk is one question: whether a partition is part of a producer's open transaction, or, with add, that it be put in.
type txnAsk struct {
	id   string
	who  coordinator.Producer
	at   coordinator.TxnPartition
	add  bool
	done chan error // of one
}

// ask has a coordinator asked and waits for the answer. Who gives up waiting may still have put its partition in: that does no
// harm, the transaction's end reaches it there.
func (x *txnAsks) ask(ctx context.Context, broker int32, a *txnAsk) error {
	a.done = make(chan error, 1)
	if !x.enqueue(broker, a) {
		return fmt.Errorf("%w: %d questions wait for broker %d", errTxnUnverified, txnAsksQueued, broker)
	}
	select {
	case err := <-a.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errTxnUnverified, ctx.Err())
	}
}

func (x *txnAsks) enqueue(broker int32, a *txnAsk) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	q := x.queues[broker]
	if q == nil {
		q = &txnAskQueue{}
		if x.queues == nil {
			x.queues = make(map[int32]*txnAskQueue)
		}
		x.queues[broker] = q
		x.server.wg.Go(func() { x.serve(broker, q) })
	}
	if len(q.waiting) >= txnAsksQueued {
		return false
	}
	q.waiting = append(q.waiting, a)
	return true
}

// serve sends what waits for a coordinator until nothing does. It owns the queue, and stops with the server: its requests fail then.
func (x *txnAsks) serve(broker int32, q *txnAskQueue) {
	for {
		x.mu.Lock()
		n := min(len(q.waiting), txnAsksBatch)
		if n == 0 {
			delete(x.queues, broker)
			x.mu.Unlock()
			return
		}
		batch := q.waiting[:n:n]
		q.waiting = q.waiting[n:]
		x.mu.Unlock()
		x.send(broker, batch)
	}
}

// send asks the questions of a batch in one request.
func (x *txnAsks) send(broker int32, batch []*txnAsk) {
	ctx, cancel := context.WithTimeout(x.server.ctx, x.server.cfg.RequestsTime)
	defer cancel()
	q, of := txnRequest(batch)
	resp, err := x.server.deps.Brokers.Ask(ctx, broker, q)
	if err != nil {
		err = fmt.Errorf("%w: %w", errTxnUnverified, err)
	}
	r, ok := resp.(*kmsg.AddPartitionsToTxnResponse)
	if err == nil && (!ok || len(r.Transactions) != len(q.Transactions)) {
		err = fmt.Errorf("%w: broker %d gave no answer", errTxnUnverified, broker)
	}
	for i, a := range batch {
		e := err
		if e == nil {
			e = txnAnswer(broker, &r.Transactions[of[i]], a)
		}
		a.done <- e
	}
}

// txnRequest makes one request of a batch, and says which of its transactions each question is in.
func txnRequest(batch []*txnAsk) (q *kmsg.AddPartitionsToTxnRequest, of []int) {
	q = kmsg.NewPtrAddPartitionsToTxnRequest()
	q.Version = apiAddPartitionsToTxn.max
	type key struct {
		id  string
		who coordinator.Producer
		add bool
	}
	at := make(map[key]int)
	of = make([]int, len(batch))
	for i, a := range batch {
		k := key{a.id, a.who, a.add}
		n, ok := at[k]
		if !ok {
			n = len(q.Transactions)
			at[k] = n
			t := kmsg.NewAddPartitionsToTxnRequestTransaction()
			t.TransactionalID, t.ProducerID, t.ProducerEpoch, t.VerifyOnly = a.id, a.who.ID, a.who.Epoch, !a.add
			q.Transactions = append(q.Transactions, t)
		}
		of[i] = n
		addTxnPartition(&q.Transactions[n], a.at)
	}
	return q, of
}

func addTxnPartition(t *kmsg.AddPartitionsToTxnRequestTransaction, at coordinator.TxnPartition) {
	for i := range t.Topics {
		if x := &t.Topics[i]; x.Topic == at.Topic {
			for _, p := range x.Partitions {
				if p == at.Partition {
					return
				}
			}
			x.Partitions = append(x.Partitions, at.Partition)
			return
		}
	}
	x := kmsg.NewAddPartitionsToTxnRequestTransactionTopic()
	x.Topic, x.Partitions = at.Topic, []int32{at.Partition}
	t.Topics = append(t.Topics, x)
}

// txnAnswer finds the answer to a question.
func txnAnswer(broker int32, r *kmsg.AddPartitionsToTxnResponseTransaction, a *txnAsk) error {
	if r.TransactionalID == a.id {
		for i := range r.Topics {
			if r.Topics[i].Topic != a.at.Topic {
				continue
			}
			for _, p := range r.Topics[i].Partitions {
				if p.Partition == a.at.Partition {
					return txnVerdict(broker, p.ErrorCode)
				}
			}
		}
	}
	return fmt.Errorf("%w: broker %d gave no answer", errTxnUnverified, broker)
}

// txnVerdict is the error that a coordinator's code stands for.
func txnVerdict(broker int32, code int16) error {
	switch code {
	case codeNone:
		return nil
	case codeConcurrentTransactions:
		return coordinator.ErrConcurrentTransactions
	case codeInvalidProducerIDMapping:
		return coordinator.ErrInvalidProducerIDMapping
	case codeProducerFenced, codeInvalidProducerEpoch:
		return coordinator.ErrProducerFenced
	case codeTransactionAbortable:
		return coordinator.ErrTxnAbortable
	case codeInvalidTxnState:
		return coordinator.ErrInvalidTxnState
	}
	return fmt.Errorf("%w: broker %d answered with error %d", errTxnUnverified, broker, code)
}
