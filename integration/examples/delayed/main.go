package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/examples/local"
)

const (
	inbox = "delayed"
	topic = "reminders" // where the demonstration's messages go
)

var (
	delays = flag.String("delays", "1h,1m,1s", "how long a hop takes, longest first")
	id     = flag.String("id", "1", "this scheduler's name among its like")
)

func main() { local.Main(work, demonstrate) }

func newScheduler() (scheduler, error) {
	s := scheduler{topic: inbox}
	for text := range strings.SplitSeq(*delays, ",") {
		d, err := time.ParseDuration(text)
		if err != nil {
			return s, err
		}
		s.delays = append(s.delays, d)
	}
	return s, nil
}

func ensureTopics(ctx context.Context, seeds []string, s scheduler) error {
	return local.EnsureTopics(ctx, seeds, 3, nil, append(s.topics(), topic, "undeliverable")...)
}

func work(ctx context.Context, seeds []string) error {
	s, err := newScheduler()
	if err != nil {
		return err
	}
	if err := ensureTopics(ctx, seeds, s); err != nil {
		return err
	}
	return s.run(ctx, seeds, *id)
}

// demonstrate hands in messages in the wrong order, and shows when they come.
func demonstrate(ctx context.Context, seeds []string) error {
	s, err := newScheduler()
	if err != nil {
		return err
	}
	if err := ensureTopics(ctx, seeds, s); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		return err
	}
	defer cl.Close()
	began := time.Now()
	waits := []time.Duration{6 * time.Second, 2 * time.Second, 4 * time.Second, 0}
	for _, wait := range waits {
		r := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "a reminder after %v", wait)}
		if err := cl.ProduceSync(ctx, delayed(inbox, r, began.Add(wait))).FirstErr(); err != nil {
			return err
		}
	}
	for left := len(waits); left > 0; {
		f := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.EachRecord(func(r *kgo.Record) {
			fmt.Printf("%v: %s\n", time.Since(began).Round(time.Millisecond), r.Value)
			left--
		})
	}
	return nil
}
