package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	bolt "go.etcd.io/bbolt"

	"github.com/varvelog/varve/integration/examples/local"
)

const topic = "payments"

var (
	path     = flag.String("db", filepath.Join(os.TempDir(), fmt.Sprintf("varve-example-ledger-%d.db", os.Getpid())), "the consumer's store, from which it goes on; a service names one to keep")
	remember = flag.Duration("remember", 24*time.Hour, "how long ids of events are remembered")
	every    = flag.Duration("print", time.Second, "how often balances are printed")
)

func main() { local.Main(work, demonstrate) }

func work(ctx context.Context, seeds []string) error {
	if err := local.EnsureTopics(ctx, seeds, 3, nil, topic); err != nil {
		return err
	}
	db, err := bolt.Open(*path, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("open %s: %w", *path, err)
	}
	defer db.Close()
	l := ledger{db: db, remember: *remember}
	if err := l.open(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	printed := make(chan error, 1)
	go func() { printed <- l.print(ctx) }() // ends with ctx
	err = l.run(ctx, seeds, topic)
	cancel()
	<-printed
	return err
}

// print shows the balances now and then, when they have changed.
func (l ledger) print(ctx context.Context) error {
	tick := time.NewTicker(*every)
	defer tick.Stop()
	for last := ""; ; {
		text := "balances"
		if err := l.db.View(func(tx *bolt.Tx) error {
			b := tx.Bucket(balanceBucket)
			return b.ForEach(func(account, _ []byte) error {
				text += fmt.Sprintf(" %s=%d", account, number(b, string(account)))
				return nil
			})
		}); err != nil {
			return err
		}
		if text != last {
			fmt.Println(text)
			last = text
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// payment is an event of an id.
func payment(id, account string, amount int) *kgo.Record {
	return &kgo.Record{Topic: topic, Key: []byte(account), Value: fmt.Append(nil, amount), Headers: []kgo.RecordHeader{{Key: headerID, Value: []byte(id)}}}
}

func demonstrate(ctx context.Context, seeds []string) error {
	if err := local.EnsureTopics(ctx, seeds, 3, nil, topic); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return err
	}
	defer cl.Close()
	for i := range 100 {
		r := payment(fmt.Sprint("payment-", i), []string{"ann", "bob"}[i%2], 1)
		again := *r // sent twice, as by a producer that has missed the answer
		if err := cl.ProduceSync(ctx, r, &again).FirstErr(); err != nil {
			return err
		}
	}
	fmt.Println("100 payments of 1 were sent, each twice: 50 for each account")
	return nil
}
