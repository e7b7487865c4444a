package coordinator

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/meta/topic"
)

// heldMarkers lets every request for markers wait, and counts them.
type heldMarkers struct {
	asked   atomic.Int32
	release chan struct{}
}

func (m *heldMarkers) WriteTxnMarkers(ctx context.Context, _ int32, markers []TxnMarker) ([][]error, error) {
	m.asked.Add(int32(len(markers)))
	select {
	case <-m.release:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	out := make([][]error, len(markers))
	for i := range markers {
		out[i] = make([]error, len(markers[i].Partitions))
	}
	return out, nil
}

// A shard that reads its state back finds a decision again whose markers are on their way. It must not send them twice: the
// second set may come when the producer, which keeps its epoch in the old protocol, is in its next transaction.
func TestTheEndOfATransactionIsCarriedOutOnceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, metadata := newMemLog(1), newMemMetadata(t, 0)
		metadata.topic(t, topic.TransactionState, topic.ID{2}, 1)
		metadata.topic(t, "t", topic.ID{3}, 1)
		markers := &heldMarkers{release: make(chan struct{})}
		cfg := testConfig()
		cfg.NodeID = 1
		next := int64(0)
		c, err := OpenTransactions(cfg, TxnDeps{Log: log, Metadata: metadata, Markers: markers,
			ProducerID: func(context.Context) (int64, error) { next++; return next, nil }})
		if err != nil {
			t.Fatal(err)
		}
		ctx := context.Background()
		defer func() {
			if err := c.Close(ctx); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		who, err := c.InitProducer(ctx, &InitProducerRequest{TransactionalID: "x", TimeoutMillis: 60_000, Current: Producer{ID: noProducer, Epoch: noEpoch}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.AddPartitions(ctx, &AddPartitionsRequest{TransactionalID: "x", Producer: who, Version: 1, Partitions: []TxnPartition{{"t", 0}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := c.End(ctx, &EndTxnRequest{TransactionalID: "x", Producer: who, Commit: true, Version: 1}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := markers.asked.Load(); n != 1 {
			t.Fatalf("%d markers are on their way", n)
		}
		log.set(func() { log.lose = 1 })
		if _, err := c.InitProducer(ctx, &InitProducerRequest{TransactionalID: "another", TimeoutMillis: 60_000, Current: Producer{ID: noProducer, Epoch: noEpoch}}); err == nil {
			t.Fatal("an append was lost, and nobody was told")
		}
		if d, err := c.Describe(ctx, "x"); err != nil || d.State != TxnPrepareCommit {
			t.Fatalf("read back: %+v, %v", d, err)
		}
		synctest.Wait()
		close(markers.release)
		synctest.Wait()
		if d, err := c.Describe(ctx, "x"); err != nil || d.State != TxnCompleteCommit {
			t.Fatalf("carried out: %+v, %v", d, err)
		}
		synctest.Wait()
		if n := markers.asked.Load(); n != 1 {
			t.Errorf("%d markers were sent", n)
		}
	})
}
