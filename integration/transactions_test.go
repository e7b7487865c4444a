package integration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// transform copies what is in topic "in" to topic "out", exactly once, as a
// member of a group: until ctx ends. When its client is fenced or gives up it
// starts again under the same transactional id.
func transform(ctx context.Context, t *testing.T, seeds []string, opts ...kgo.Opt) {
	for ctx.Err() == nil {
		if err := transformOnce(ctx, seeds, opts...); err != nil && ctx.Err() == nil {
			t.Logf("the transforming client starts again: %v", err)
		}
	}
}

func transformOnce(ctx context.Context, seeds []string, opts ...kgo.Opt) error {
	s, err := kgo.NewGroupTransactSession(append([]kgo.Opt{
		kgo.SeedBrokers(seeds...), kgo.TransactionalID("etl"), kgo.TransactionTimeout(10 * time.Second), kgo.ConsumerGroup("etl"),
		kgo.ConsumeTopics("in"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DefaultProduceTopic("out"), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.SessionTimeout(6 * time.Second), kgo.RebalanceTimeout(10 * time.Second),
	}, opts...)...)
	if err != nil {
		return err
	}
	defer s.Close()
	for round := 0; ; round++ {
		f := s.PollFetches(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if f.NumRecords() == 0 {
			if err := f.Err0(); err != nil {
				return err
			}
			continue
		}
		if err := s.Begin(); err != nil {
			return err
		}
		var failed error
		e := kgo.AbortingFirstErrPromise(s.Client())
		f.EachRecord(func(r *kgo.Record) { s.Produce(ctx, &kgo.Record{Key: r.Key, Value: r.Value}, e.Promise()) })
		failed = e.Err()
		// Now and then a transaction is aborted for no reason: its records come again.
		if _, err := s.End(ctx, kgo.TransactionEndTry(failed == nil && round%7 != 3)); err != nil {
			return err
		}
	}
}

func TestTransformingIsExactlyOnceWhileBrokersAreKilled(t *testing.T) {
	kinds := []struct {
		name string
		opts []kgo.Opt
	}{{"consumer group", []kgo.Opt{kgo.ServerSideBalancer()}}, {"classic group", nil}}
	if os.Getenv("VARVE_LONG") == "" {
		kinds = kinds[:1]
	}
	for _, kind := range kinds {
		t.Run(kind.name, func(t *testing.T) {
			c := nodetest.StartCluster(t, nodetest.ClusterOptions{Nodes: 3, Settings: map[string]string{
				"group.initial.rebalance.delay.ms": "0", "group.consumer.min.heartbeat.interval.ms": "200",
				"group.consumer.heartbeat.interval.ms": "200", "offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4",
			}})
			c.CreateTopic("in", 3, 3, replicated)
			c.CreateTopic("out", 3, 3, replicated)
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				transform(ctx, t, strings.Split(c.Bootstrap(), ","), kind.opts...)
			}()
			defer func() { stop(); <-done }()
			in := startStream(t, c, "in")
			in.progress(200)
			for id := 1; id <= 3; id++ {
				c.Node(int32(id)).Kill()
				in.progress(100)
				c.Node(int32(id)).Restart()
				c.WaitInSync(time.Minute, "in", "out")
				in.progress(100)
			}
			in.stop()
			<-in.done
			sent := len(in.acked)
			seen := readCommitted(t, c, sent)
			for i := range sent {
				if n := seen[fmt.Sprint(i)]; n != 1 {
					t.Errorf("record %d is there %d times", i, n)
				}
			}
			if len(seen) != sent {
				t.Errorf("%d records came out, %d went in", len(seen), sent)
			}
		})
	}
}

// readCommitted reads what is committed in topic "out" until n different
// records have come, and a little longer: one too many has had its chance.
func readCommitted(t *testing.T, c *nodetest.Cluster, n int) map[string]int {
	t.Helper()
	cl := c.Client(kgo.ConsumeTopics("out"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	seen := map[string]int{}
	for len(seen) < n {
		f := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Errorf("only %d of %d records came out", len(seen), n)
			return seen
		}
		f.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
	}
	last, done := context.WithTimeout(ctx, time.Second)
	defer done()
	for last.Err() == nil {
		cl.PollFetches(last).EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
	}
	return seen
}
