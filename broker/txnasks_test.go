package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
)

// heldBrokers answers questions about transactions when it is let, each with what verdict says.
type heldBrokers struct {
	let     chan struct{}
	verdict func(id string, partition int32) int16
	err     error

	mu   sync.Mutex // guards the following
	seen []*kmsg.AddPartitionsToTxnRequest
}

func (h *heldBrokers) Ask(ctx context.Context, _ int32, q kmsg.Request) (kmsg.Response, error) {
	x := q.(*kmsg.AddPartitionsToTxnRequest)
	h.mu.Lock()
	h.seen = append(h.seen, x)
	h.mu.Unlock()
	select {
	case <-h.let:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if h.err != nil {
		return nil, h.err
	}
	r := kmsg.NewPtrAddPartitionsToTxnResponse()
	for i := range x.Transactions {
		t := kmsg.NewAddPartitionsToTxnResponseTransaction()
		t.TransactionalID = x.Transactions[i].TransactionalID
		for _, topic := range x.Transactions[i].Topics {
			rt := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			rt.Topic = topic.Topic
			for _, p := range topic.Partitions {
				a := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
				a.Partition, a.ErrorCode = p, h.verdict(t.TransactionalID, p)
				rt.Partitions = append(rt.Partitions, a)
			}
			t.Topics = append(t.Topics, rt)
		}
		r.Transactions = append(r.Transactions, t)
	}
	return r, nil
}

// asking runs fn with the questions of a server whose coordinators are h, in a bubble.
func asking(t *testing.T, h *heldBrokers, fn func(x *txnAsks)) {
	synctest.Test(t, func(t *testing.T) {
		h.let = make(chan struct{})
		if h.verdict == nil {
			h.verdict = func(string, int32) int16 { return codeNone }
		}
		s := New(DefaultConfig(), Deps{Brokers: h})
		fn(&s.txnAsks)
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.txnAsks.queues) != 0 {
			t.Errorf("queues are left: %v", s.txnAsks.queues)
		}
	})
}

// idle says whether nothing is asked.
func (x *txnAsks) idle() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.queues) == 0
}

func question(id string, partition int32, add bool) *txnAsk {
	return &txnAsk{id: id, who: coordinator.Producer{ID: 1}, at: coordinator.TxnPartition{Topic: "a", Partition: partition}, add: add}
}

func TestQuestionsThatComeMeanwhileGoTogether(t *testing.T) {
	h := &heldBrokers{verdict: func(id string, p int32) int16 {
		if id == "t3" {
			return codeConcurrentTransactions
		}
		if p == 7 {
			return codeTransactionAbortable
		}
		return codeNone
	}}
	asking(t, h, func(x *txnAsks) {
		errs := make(map[string]error)
		var mu sync.Mutex // guards errs
		ask := func(id string, p int32, add bool) {
			go func() {
				err := x.ask(context.Background(), 5, question(id, p, add))
				mu.Lock()
				errs[fmt.Sprint(id, "/", p, add)] = err
				mu.Unlock()
			}()
		}
		ask("first", 0, true)
		synctest.Wait()
		for i := range 5 {
			ask(fmt.Sprint("t", i), 1, true)
			ask(fmt.Sprint("t", i), 7, true)
			ask(fmt.Sprint("t", i), 7, false)
		}
		synctest.Wait()
		if len(h.seen) != 1 {
			t.Fatalf("%d requests while the first is not answered", len(h.seen))
		}
		close(h.let)
		synctest.Wait()
		if len(h.seen) != 2 || len(h.seen[1].Transactions) != 10 {
			t.Fatalf("%d requests, the second of %d transactions", len(h.seen), len(h.seen[1].Transactions))
		}
		if len(errs) != 16 {
			t.Fatalf("%d of 16 questions are answered", len(errs))
		}
		for q, err := range errs {
			var want error
			switch {
			case q[:2] == "t3":
				want = coordinator.ErrConcurrentTransactions
			case len(q) > 3 && q[3] == '7':
				want = coordinator.ErrTxnAbortable
			}
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", q, err, want)
			}
		}
	})
}

func TestQuestionsBeyondTheBoundAreRefused(t *testing.T) {
	asking(t, &heldBrokers{}, func(x *txnAsks) {
		answered := make(chan error, txnAsksQueued+2)
		for range txnAsksQueued + 1 { // one is under way
			go func() { answered <- x.ask(context.Background(), 5, question("t", 0, true)) }()
			if x.idle() {
				synctest.Wait()
			}
		}
		synctest.Wait()
		if err := x.ask(context.Background(), 5, question("t", 0, true)); !errors.Is(err, errTxnUnverified) {
			t.Errorf("one too many: %v", err)
		}
		close(x.server.deps.Brokers.(*heldBrokers).let)
		for range txnAsksQueued + 1 {
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestQuestionsThatCannotBeAskedAreUnverified(t *testing.T) {
	h := &heldBrokers{err: errors.New("away")}
	asking(t, h, func(x *txnAsks) {
		given, cancel := context.WithCancel(context.Background())
		left := make(chan error, 1)
		go func() { left <- x.ask(given, 5, question("t", 0, false)) }()
		synctest.Wait()
		cancel() // its connection is gone
		if err := <-left; !errors.Is(err, errTxnUnverified) {
			t.Errorf("given up: %v", err)
		}
		close(h.let)
		if err := x.ask(context.Background(), 5, question("t", 0, false)); !errors.Is(err, errTxnUnverified) {
			t.Errorf("nobody there: %v", err)
		}
	})
}

func TestClosingAnswersQuestions(t *testing.T) {
	left := make(chan error, 1)
	asking(t, &heldBrokers{}, func(x *txnAsks) {
		go func() { left <- x.ask(context.Background(), 5, question("t", 0, false)) }()
		synctest.Wait()
	})
	if err := <-left; !errors.Is(err, errTxnUnverified) {
		t.Errorf("at the end: %v", err)
	}
}
