package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/examples/local"
)

var (
	topics   = []string{"jobs.high", "jobs.normal", "jobs.low"}
	id       = flag.String("id", "1", "this worker's name among its like")
	fairness = flag.Int("fairness", 10, "of so many jobs one may be less urgent than it could")
	takes    = flag.Duration("takes", 20*time.Millisecond, "how long a job takes")
)

func main() { local.Main(work, demonstrate) }

func work(ctx context.Context, seeds []string) error {
	if err := local.EnsureTopics(ctx, seeds, 3, nil, topics...); err != nil {
		return err
	}
	w := worker{topics: topics, group: "workers", id: *id, fairness: *fairness, do: func(ctx context.Context, r *kgo.Record) error {
		select { // stands for real work
		case <-time.After(*takes):
		case <-ctx.Done():
			return ctx.Err()
		}
		fmt.Printf("done %s\n", r.Value)
		return nil
	}}
	return w.run(ctx, seeds)
}

func demonstrate(ctx context.Context, seeds []string) error {
	if err := local.EnsureTopics(ctx, seeds, 3, nil, topics...); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, batch := range []struct {
		topic string
		jobs  int
	}{{"jobs.low", 100}, {"jobs.normal", 20}, {"jobs.high", 20}} {
		for i := range batch.jobs {
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: batch.topic, Value: fmt.Appendf(nil, "%s %d", batch.topic, i)}).FirstErr(); err != nil {
				return err
			}
		}
	}
	fmt.Println("100 low jobs were there first, then 20 normal and 20 high ones came")
	return nil
}
