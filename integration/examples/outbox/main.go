package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	bolt "go.etcd.io/bbolt"

	"github.com/varvelog/varve/integration/examples/local"
)

const topic = "orders"

var (
	path   = flag.String("db", filepath.Join(os.TempDir(), fmt.Sprintf("varve-example-outbox-%d.db", os.Getpid())), "the service's database; a service names one to keep")
	orders = flag.Int("orders", 300, "how many orders the service takes")
	// relayed is told where the relay stands.
	relayed = func(string) {}
)

func main() { local.Main(work, demonstrate) }

// work is a service that takes orders, and its relay.
func work(ctx context.Context, seeds []string) error {
	if err := ensureTopics(ctx, seeds); err != nil {
		return err
	}
	db, err := bolt.Open(*path, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("open %s: %w", *path, err)
	}
	defer db.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- serve(ctx, db) }() // ends with ctx, or after the last order
	err = relay{db: db, topic: topic, relayed: relayed}.run(ctx, seeds)
	cancel()
	<-served
	return err
}

func ensureTopics(ctx context.Context, seeds []string) error {
	if err := local.EnsureTopics(ctx, seeds, 1, nil, topic); err != nil {
		return err
	}
	return local.EnsureTopics(ctx, seeds, 1, map[string]string{"cleanup.policy": "compact"}, relay{topic: topic}.placeTopic())
}

var orderBucket = []byte("orders") // number → state

// serve takes orders: each is kept and told of in one transaction.
func serve(ctx context.Context, db *bolt.DB) error {
	for ctx.Err() == nil {
		taken := 0
		err := db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists(orderBucket)
			if err != nil {
				return err
			}
			number, err := b.NextSequence()
			if taken = int(number); err != nil || taken > *orders {
				return err
			}
			if err := b.Put(strconv.AppendUint(nil, number, 10), []byte("taken")); err != nil {
				return err
			}
			return addToOutbox(tx, fmt.Appendf(nil, "order %d is taken", number))
		})
		if err != nil || taken >= *orders {
			return err
		}
	}
	return ctx.Err()
}

func demonstrate(ctx context.Context, seeds []string) error {
	if err := ensureTopics(ctx, seeds); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return err
	}
	defer cl.Close()
	for left := 10; left > 0; {
		f := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.EachRecord(func(r *kgo.Record) {
			if left--; left >= 0 {
				fmt.Printf("%s\n", r.Value)
			}
		})
	}
	fmt.Println("and so on")
	return nil
}
