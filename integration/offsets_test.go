package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// waitAllRemote waits until every record before the end is in the bucket and
// gone from local disk. Topics that are to reach this state carry
// allRemote settings.
func waitAllRemote(t testing.TB, cl *kgo.Client, topic string, partition int32, limit time.Duration) {
	t.Helper()
	nodetest.Eventually(t, limit, fmt.Sprintf("%s-%d is all in the bucket", topic, partition), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var at [3]int64
		for i, ts := range []int64{nodetest.Latest, nodetest.LocalStart, nodetest.LastTiered} {
			var err error
			if at[i], _, err = nodetest.OffsetAt(ctx, cl, topic, partition, ts); err != nil {
				return err
			}
		}
		if at[1] != at[0] || at[2] != at[0]-1 {
			return fmt.Errorf("latest %d, local start %d, last tiered %d", at[0], at[1], at[2])
		}
		return nil
	})
}

// allRemote makes a topic's records leave local disk as soon as they are in
// the bucket, the active segment's too.
func allRemote() map[string]string {
	return map[string]string{
		"remote.storage.enable":   "true",
		"retention.ms":            "-1",
		"local.retention.ms":      "1",
		"varve.remote.max.lag.ms": "1000",
	}
}

// readPartition reads a partition from offset 0 to its end.
func readPartition(ctx context.Context, t testing.TB, n *nodetest.Node, topic string, partition int32) []*kgo.Record {
	t.Helper()
	cl := n.Client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	start, _, err := nodetest.OffsetAt(ctx, cl, topic, partition, nodetest.Earliest)
	if err != nil {
		t.Fatal(err)
	}
	end, _, err := nodetest.OffsetAt(ctx, cl, topic, partition, nodetest.Latest)
	if err != nil {
		t.Fatal(err)
	}
	var records []*kgo.Record
	for next := start; next < end; {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			t.Fatalf("read %s-%d at %d of %d: %v", topic, partition, next, end, err)
		}
		for _, r := range fetches.Records() {
			records = append(records, r)
			next = r.Offset + 1
		}
	}
	return records
}
