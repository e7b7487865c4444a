package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/varvelog/varve/integration/nodetest"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

// TestBucketOutageDelaysOnlyTheArchive cuts the node off its bucket: producing
// goes on, what is on local disk is served beside what is not, cold reads fail
// with an error that clients retry and a log line that says why, the node even
// starts, and the backlog drains when the bucket is back.
func TestBucketOutageDelaysOnlyTheArchive(t *testing.T) {
	server := objstoretest.StartVersityGW(t)
	if err := server.MakeBucket("archive"); err != nil {
		t.Fatal(err)
	}
	for _, pair := range server.Env() {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
	link := startProxy(t, strings.TrimPrefix(server.Endpoint, "http://"))
	store := fmt.Sprintf("s3://archive/v?endpoint=http://%s&region=%s&path-style=true", link.Addr, server.Region)
	dir := t.TempDir()
	n := nodetest.Start(t, dir, "--store", store)
	n.CreateTopic("cold", 1, allRemote())
	n.CreateTopic("hot", 1, nil)
	produceNumbers(t, n, "cold", 0, 500)
	produceNumbers(t, n, "hot", 0, 10)
	waitAllRemote(t, n.Client(), "cold", 0, time.Minute)

	link.Cut()
	n.Kill() // what it read is not in memory any more
	n.Restart()
	produceNumbers(t, n, "cold", 500, 500)
	cold, hot := fetchBoth(t, n)
	if !kerr.IsRetriable(cold.err) || cold.records != 0 {
		t.Errorf("cold read during the outage: %v with %d bytes, want a retriable error and none", cold.err, cold.records)
	}
	if hot.err != nil || hot.records == 0 {
		t.Errorf("hot read in the same request: %v with %d bytes, want records", hot.err, hot.records)
	}
	nodetest.Eventually(t, 30*time.Second, "the log says what cannot be reached", func() error {
		b, err := os.ReadFile(filepath.Join(dir, "varve.log"))
		if err == nil && !(strings.Contains(string(b), "cold") && strings.Contains(string(b), link.Addr)) {
			err = errors.New("no line names the topic and the store")
		}
		return err
	})

	link.Heal()
	waitAllRemote(t, n.Client(), "cold", 0, 2*time.Minute)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	records := readPartition(ctx, t, n, "cold", 0)
	if len(records) != 1000 {
		t.Fatalf("%d records after the outage, want 1000", len(records))
	}
	for i, r := range records {
		if string(r.Value) != fmt.Sprint(i) {
			t.Fatalf("record %d is %q", i, r.Value)
		}
	}
}

func produceNumbers(t *testing.T, n *nodetest.Node, topic string, first, count int) {
	t.Helper()
	cl := n.Client(kgo.DefaultProduceTopic(topic))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for i := first; i < first+count; i++ {
		cl.Produce(ctx, &kgo.Record{Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("produce to %s: %v", topic, err)
			}
		})
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

type answer struct {
	err     error
	records int
}

// fetchBoth asks for the start of both topics in one raw request.
func fetchBoth(t *testing.T, n *nodetest.Node) (cold, hot answer) {
	t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.ReplicaID, req.SessionEpoch = 10_000, 1, 4<<20, -1, -1
	for _, topic := range []string{"cold", "hot"} {
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic = topic
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.CurrentLeaderEpoch, rp.LastFetchedEpoch, rp.PartitionMaxBytes = -1, -1, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(req.Key(), 12) // names instead of ids
	cl := n.Client(kgo.MaxVersions(versions))
	var got [2]answer
	// The hot part is answered at once; the cold one may need another round.
	nodetest.Eventually(t, 50*time.Second, "both topics have answered", func() error {
		resp, err := cl.Broker(1).Request(ctx, req)
		if err != nil {
			return err
		}
		for _, rt := range resp.(*kmsg.FetchResponse).Topics {
			i := 0
			if rt.Topic == "hot" {
				i = 1
			}
			p := rt.Partitions[0]
			if p.ErrorCode != 0 || len(p.RecordBatches) > 0 {
				got[i] = answer{kerr.ErrorForCode(p.ErrorCode), len(p.RecordBatches)}
			}
		}
		if got[0].err == nil || got[1].records == 0 {
			return fmt.Errorf("cold %+v, hot %+v", got[0], got[1])
		}
		return nil
	})
	return got[0], got[1]
}
