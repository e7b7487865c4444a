package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

// Special timestamps of ListOffsets (KIP-79, KIP-405, KIP-1005).
const (
	latest     = -1
	earliest   = -2
	localStart = -4
	lastTiered = -5
)

// offsetAt asks the broker for one timestamp, special or real, of a partition.
func offsetAt(ctx context.Context, cl *kgo.Client, topic string, partition int32, timestamp int64) (int64, int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = partition, timestamp, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, 0, err
	}
	p := resp.Topics[0].Partitions[0]
	return p.Offset, p.Timestamp, kerr.ErrorForCode(p.ErrorCode)
}

// waitAllRemote waits until every record before the end is in the bucket and
// gone from local disk. Topics that are to reach this state carry
// allRemote settings.
func waitAllRemote(t testing.TB, cl *kgo.Client, topic string, partition int32, limit time.Duration) {
	t.Helper()
	nodetest.Eventually(t, limit, fmt.Sprintf("%s-%d is all in the bucket", topic, partition), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		var at [3]int64
		for i, ts := range []int64{latest, localStart, lastTiered} {
			var err error
			if at[i], _, err = offsetAt(ctx, cl, topic, partition, ts); err != nil {
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
	start, _, err := offsetAt(ctx, cl, topic, partition, earliest)
	if err != nil {
		t.Fatal(err)
	}
	end, _, err := offsetAt(ctx, cl, topic, partition, latest)
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
