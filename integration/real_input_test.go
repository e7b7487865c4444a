package integration

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

const (
	realSegmentBytes = 16 << 10
	realLookups      = 500
)

// TestRealEventsReplayAndSeekFromS3 is the main job on real input: each source
// of real events in a topic of its own, offloaded through a real S3 server,
// then read back and searched by time, before and after kill -9.
func TestRealEventsReplayAndSeekFromS3(t *testing.T) {
	server := objstoretest.StartVersityGW(t)
	const bucket = "archive"
	if err := server.MakeBucket(bucket); err != nil {
		t.Fatal(err)
	}
	for _, pair := range server.Env() {
		name, value, _ := bytes.Cut([]byte(pair), []byte("="))
		t.Setenv(string(name), string(value))
	}
	events := loadEvents(t)
	n := nodetest.Start(t, t.TempDir(), "--store", server.URL(bucket, "varve"))
	for source, list := range events {
		produceEvents(t, n, source, list)
	}
	check := func(when string) {
		for source, list := range events {
			t.Run(when+"/"+source, func(t *testing.T) {
				n := nodetest.At(t, n.Bootstrap)
				waitSealedRemote(t, n, source, list)
				checkReplay(t, n, source, list)
				checkLookups(t, n, source, list)
			})
		}
	}
	check("first")
	checkBucket(t, n, server, bucket, "varve", events)
	n.Kill()
	n.Restart()
	check("after kill -9")
}

func produceEvents(t *testing.T, n *nodetest.Node, topic string, list []event) {
	t.Helper()
	n.CreateTopic(topic, 1, map[string]string{
		"remote.storage.enable":  "true",
		"retention.ms":           "-1",
		"local.retention.ms":     "1",
		"internal.segment.bytes": fmt.Sprint(realSegmentBytes),
		// Records years apart share a segment: it is rolled by size alone.
		"segment.ms": "9223372036854775807",
	})
	cl := n.Client(kgo.DefaultProduceTopic(topic), kgo.ProducerBatchMaxBytes(4<<10), kgo.ProducerBatchCompression(kgo.NoCompression()))
	records := make([]*kgo.Record, len(list))
	for i, e := range list {
		records[i] = &kgo.Record{Key: []byte(e.Key), Value: e.line, Timestamp: time.UnixMilli(e.TS)}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
		t.Fatalf("produce to %s: %v", topic, err)
	}
}

// waitSealedRemote waits until all but the active segment is in the bucket and
// gone from local disk.
func waitSealedRemote(t *testing.T, n *nodetest.Node, topic string, list []event) {
	t.Helper()
	cl := n.Client()
	nodetest.Eventually(t, 2*time.Minute, topic+" has only its active segment on local disk", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		local, _, err := nodetest.OffsetAt(ctx, cl, topic, 0, nodetest.LocalStart)
		if err != nil {
			return err
		}
		tiered, _, err := nodetest.OffsetAt(ctx, cl, topic, 0, nodetest.LastTiered)
		if err != nil {
			return err
		}
		left := 0
		for _, e := range list[local:] {
			left += len(e.line) + len(e.Key)
		}
		if local != tiered+1 || left > realSegmentBytes {
			return fmt.Errorf("local start %d, last tiered %d, %d bytes local", local, tiered, left)
		}
		return nil
	})
}

func checkReplay(t *testing.T, n *nodetest.Node, topic string, list []event) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	records := readPartition(ctx, t, n, topic, 0)
	if len(records) != len(list) {
		t.Fatalf("replay gave %d records of %d", len(records), len(list))
	}
	for i, r := range records {
		if e := list[i]; r.Offset != int64(i) || r.Timestamp.UnixMilli() != e.TS || string(r.Key) != e.Key || !bytes.Equal(r.Value, e.line) {
			t.Fatalf("record %d: offset %d timestamp %d key %q value %q, want %d %q %q", i, r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value, e.TS, e.Key, e.line)
		}
	}
}

// checkLookups asks for times of every kind and holds the answers against a
// walk over the input.
func checkLookups(t *testing.T, n *nodetest.Node, topic string, list []event) {
	t.Helper()
	cl := n.Client()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, target := range lookupTargets(list) {
		want, wantTS := int64(-1), int64(-1)
		for i, e := range list {
			if e.TS >= target {
				want, wantTS = int64(i), e.TS
				break
			}
		}
		got, gotTS, err := nodetest.OffsetAt(ctx, cl, topic, 0, target)
		if err != nil || got != want || gotTS != wantTS {
			t.Fatalf("first record at or after %d: offset %d timestamp %d (%v), want %d %d", target, got, gotTS, err, want, wantTS)
		}
	}
}

// lookupTargets are realLookups times: before the first, after the last, exact
// hits, beside hits (so inside runs of ties and of disorder), and random.
func lookupTargets(list []event) []int64 {
	least, most := list[0].TS, list[0].TS
	for _, e := range list {
		least, most = min(least, e.TS), max(most, e.TS)
	}
	r := rand.New(rand.NewPCG(7, uint64(len(list))))
	targets := []int64{0, least - 1, least, least + 1, most - 1, most, most + 1, most + 1e9}
	for len(targets) < realLookups {
		hit := list[r.IntN(len(list))].TS
		targets = append(targets, hit, hit-1, hit+1, least+r.Int64N(most-least+1))
	}
	return targets[:realLookups]
}
