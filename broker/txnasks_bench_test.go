package broker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica/peer"
)

// BenchmarkPartitionsEnterTransactionsOfAnotherBroker is what a partition's leader asks before the first batch of a transaction,
// of a coordinator that is another broker, for 64 producers at a time out of 1024, each of which writes to 16 partitions.
// Run it with -benchtime=16000x: more would find the partitions in the transactions already.
func BenchmarkPartitionsEnterTransactionsOfAnotherBroker(b *testing.B) {
	for _, durability := range []string{"fsync", "replicated"} {
		b.Run("durability="+durability, func(b *testing.B) {
			s := startStack(b, map[string]string{"varve.durability": durability, "transaction.state.log.num.partitions": "4"})
			pool := peer.NewPool(peer.Config{})
			b.Cleanup(func() { pool.Close() })
			leader := New(s.cfg, Deps{Metadata: s.deps.Metadata, Brokers: NewBrokers(pool, func() *meta.Image { return s.node.Image() }), Transactions: s.deps.Transactions})
			leader.cfg.NodeID = 2
			b.Cleanup(func() { leader.Close(context.Background()) })
			const producers = 1024
			who := txnProducers(b, s, producers)
			var next, failed atomic.Int64
			b.SetParallelism(32) // on two cores
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					n := int(next.Add(1) - 1)
					i := n % producers
					at := coordinator.TxnPartition{Topic: "bench", Partition: int32(n / producers % 16)}
					if err := leader.verifyTxn(context.Background(), fmt.Sprint("t", i), who[i], at, true, func() error { return nil }); err != nil {
						failed.Add(1)
					}
				}
			})
			if failed.Load() > 0 {
				b.Fatalf("%d of %d failed", failed.Load(), b.N)
			}
		})
	}
}

// txnProducers initialises transactional producers, and makes the topic that they write to.
func txnProducers(b *testing.B, s *stack, n int) []coordinator.Producer {
	b.Helper()
	c := s.client(b, kgo.RequestRetries(20))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	create := kmsg.NewCreateTopicsRequest()
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = "bench", 16, 1
	create.Topics, create.TimeoutMillis = append(create.Topics, topic), 30_000
	if _, err := create.RequestWith(ctx, c); err != nil {
		b.Fatal(err)
	}
	out := make([]coordinator.Producer, n)
	var wait sync.WaitGroup
	for w := range 32 {
		wait.Go(func() {
			for i := w; i < n; i += 32 {
				q := kmsg.NewInitProducerIDRequest()
				q.TransactionalID, q.TransactionTimeoutMillis = kmsg.StringPtr(fmt.Sprint("t", i)), 600_000
				r, err := q.RequestWith(ctx, c)
				if err != nil || r.ErrorCode != 0 {
					b.Errorf("%+v, %v", r, err)
					return
				}
				out[i] = coordinator.Producer{ID: r.ProducerID, Epoch: r.ProducerEpoch}
			}
		})
	}
	wait.Wait()
	return out
}
