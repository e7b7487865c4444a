package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/examples/local"
)

const topic = "orders"

var (
	delays = flag.String("delays", "1s,5s,30s", "before each further attempt")
	id     = flag.String("id", "1", "this worker's name among its like")
)

func main() { local.Main(work, demonstrate) }

func newRetrier() (retrier, error) {
	t := retrier{topic: topic, handle: handle}
	for text := range strings.SplitSeq(*delays, ",") {
		d, err := time.ParseDuration(text)
		if err != nil {
			return t, err
		}
		t.delays = append(t.delays, d)
	}
	return t, nil
}

func work(ctx context.Context, seeds []string) error {
	t, err := newRetrier()
	if err != nil {
		return err
	}
	if err := local.EnsureTopics(ctx, seeds, 3, nil, t.topics()...); err != nil {
		return err
	}
	return t.run(ctx, seeds, *id)
}

// handle stands for real work: it fails as often as the order's value says.
func handle(_ context.Context, r *kgo.Record, attempt int) error {
	failures := 0
	switch kind := string(r.Value); kind {
	case "poison":
		failures = 1 << 30
	case "fine":
	default:
		if _, err := fmt.Sscanf(kind, "fails %d times", &failures); err != nil {
			return fmt.Errorf("an order that nobody understands: %w", err)
		}
	}
	if attempt <= failures {
		fmt.Printf("failed %s attempt %d\n", r.Key, attempt)
		return errors.New("the warehouse does not answer")
	}
	fmt.Printf("handled %s\n", r.Key)
	return nil
}

func demonstrate(ctx context.Context, seeds []string) error {
	t, err := newRetrier()
	if err != nil {
		return err
	}
	if err := local.EnsureTopics(ctx, seeds, 3, nil, t.topics()...); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer cl.Close()
	for i, kind := range []string{"fine", "fails 1 times", "fine", "poison", "fails 3 times"} {
		if err := cl.ProduceSync(ctx, &kgo.Record{Key: fmt.Appendf(nil, "order-%d", i), Value: []byte(kind)}).FirstErr(); err != nil {
			return err
		}
	}
	fmt.Printf("five orders are in %s; one is poison and ends in %s.dead\n", topic, topic)
	return nil
}
