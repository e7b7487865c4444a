package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/examples/local"
)

const topic = "events"

var (
	group = flag.String("group", "alerts", "the group to read in")
	id    = flag.String("id", "1", "this reader's name among its like")
	since = flag.String("since", "", "where a new group begins, such as 2024-03-03T14:05:00Z (default: now)")
)

func main() { local.Main(work, demonstrate) }

// archived keeps what is older than a moment in the bucket only.
var archived = map[string]string{
	"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.ms": "1", "segment.bytes": "1048576",
	"varve.remote.max.lag.ms": "1000",
}

func work(ctx context.Context, seeds []string) error {
	if err := local.EnsureTopics(ctx, seeds, 3, archived, topic); err != nil {
		return err
	}
	m := reader{group: *group, id: *id, topic: topic, do: func(r *kgo.Record) error {
		fmt.Printf("%s read %s %s\n", *group, r.Timestamp.UTC().Format(time.RFC3339), r.Value)
		return nil
	}}
	if *since != "" {
		at, err := time.Parse(time.RFC3339, *since)
		if err != nil {
			return fmt.Errorf("-since: %w", err)
		}
		m.since = at
	}
	return m.run(ctx, seeds)
}

// demonstrate writes three years of events, reads two of them again in a group
// of its own, and leaves the other group to what comes now.
func demonstrate(ctx context.Context, seeds []string) error {
	if err := local.EnsureTopics(ctx, seeds, 3, archived, topic); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer cl.Close()
	now := time.Now()
	for month := 36; month >= 0; month-- {
		r := &kgo.Record{Value: fmt.Appendf(nil, "%d months ago", month), Timestamp: now.AddDate(0, -month, 0)}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	left := 24
	replay := reader{group: "rebuild", id: "1", topic: topic, since: now.AddDate(-2, 0, 0), do: func(r *kgo.Record) error {
		fmt.Printf("rebuild read %s %s\n", r.Timestamp.UTC().Format(time.RFC3339), r.Value)
		if left--; left == 0 {
			cancel()
		}
		return nil
	}}
	if err := replay.run(ctx, seeds); left > 0 {
		return err
	}
	return nil
}
