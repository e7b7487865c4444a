package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/integration/nodetest"
)

// lostReplicas is a topic of which every replica goes, while its records are in
// the bucket.
const lostReplicas = "archive"

// TestATopicComesBackFromTheBucketAfterAllItsReplicasAreLost takes every local
// copy away. Nobody leads on his own then: an operator says so by an unclean
// election, and the bucket gives records, epochs, producers and aborted
// transactions back.
func TestATopicComesBackFromTheBucketAfterAllItsReplicasAreLost(t *testing.T) {
	c := nodetest.StartCluster(t, nodetest.ClusterOptions{})
	settings := allRemote()
	settings["min.insync.replicas"] = "2"
	c.CreateTopic(lostReplicas, 1, 3, settings)
	c.WaitInSync(time.Minute, lostReplicas)

	producer := idempotent(t, c)
	for seq := range int32(3) {
		if base, err := producer.send(t, c, 2*seq, 2); err != nil || base != int64(2*seq) {
			t.Fatalf("batch %d: offset %d, %v", seq, base, err)
		}
	}
	transact(t, c, "kept", kgo.TryCommit)
	transact(t, c, "dropped", kgo.TryAbort)
	want := []string{"0", "1", "2", "3", "4", "5", "kept 0", "kept 1"}
	if got := committedValues(t, c, len(want)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("before the loss %q, want %q", got, want)
	}
	waitAllRemote(t, c.Client(), lostReplicas, 0, time.Minute)
	end, _, err := nodetest.OffsetAt(t.Context(), c.Client(), lostReplicas, 0, nodetest.Latest)
	if err != nil {
		t.Fatal(err)
	}

	for _, n := range c.Nodes() {
		n.Stop() // in order: each knows then what it had
	}
	for _, n := range c.Nodes() {
		loseReplicas(t, n)
		n.Launch()
	}
	for _, n := range c.Nodes() {
		n.AwaitReady()
	}
	electUncleanly(t, c)
	c.WaitInSync(time.Minute, lostReplicas)

	if got := committedValues(t, c, len(want)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after the loss %q, want %q", got, want)
	}
	if at, _, err := nodetest.OffsetAt(t.Context(), c.Client(), lostReplicas, 0, nodetest.Latest); err != nil || at != end {
		t.Errorf("the log ends at %d, %v; it ended at %d", at, err, end)
	}
	if base, err := producer.send(t, c, 4, 2); err != nil || base != 4 {
		t.Errorf("a repeated batch is at %d, %v; it was at 4", base, err)
	}
	if _, err := producer.send(t, c, 8, 2); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
		t.Errorf("a batch after a gap: %v", err)
	}
	if base, err := producer.send(t, c, 6, 2); err != nil || base != end {
		t.Errorf("the next batch is at %d, %v; want %d", base, err, end)
	}
	older := producer
	older.epoch--
	if _, err := older.send(t, c, 0, 1); !errors.Is(err, kerr.InvalidProducerEpoch) {
		t.Errorf("a batch of an older epoch: %v", err)
	}
	transact(t, c, "later", kgo.TryCommit)
	want = append(want, "6", "7", "later 0", "later 1")
	if got := committedValues(t, c, len(want)); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("afterwards %q, want %q", got, want)
	}
}

// rawProducer is an idempotent producer whose every batch is chosen.
type rawProducer struct {
	id    int64
	epoch int16
}

// idempotent gets a producer id; its epoch is 1, so that there is an older one.
func idempotent(t *testing.T, c *nodetest.Cluster) rawProducer {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.ProducerID, req.ProducerEpoch = -1, -1
	resp, err := req.RequestWith(t.Context(), c.Client())
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rawProducer{resp.ProducerID, resp.ProducerEpoch + 1}
}

// send produces n records whose values are their sequence numbers from seq on.
func (p rawProducer) send(t *testing.T, c *nodetest.Cluster, seq, n int32) (int64, error) {
	t.Helper()
	b := batch.NewBuilder(batch.Options{Producer: &batch.Producer{ID: p.id, Epoch: p.epoch, Sequence: seq}})
	for i := range n {
		if err := b.Append(time.Now().UnixMilli(), nil, fmt.Append(nil, seq+i), nil); err != nil {
			t.Fatal(err)
		}
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rp.Records = b.Bytes()
	rt.Topic, rt.Partitions = lostReplicas, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	var base int64
	var refused error
	nodetest.Eventually(t, time.Minute, "the batch is answered", func() error {
		cl := c.Client(kgo.MaxVersions(kversion.V3_0_0()))
		r, err := cl.Broker(int(c.Leader(lostReplicas, 0))).Request(t.Context(), req)
		if err != nil {
			return err
		}
		answer := r.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		base, refused = answer.BaseOffset, kerr.ErrorForCode(answer.ErrorCode)
		if refused != nil && kerr.IsRetriable(refused) && !errors.Is(refused, kerr.OutOfOrderSequenceNumber) {
			return refused
		}
		return nil
	})
	return base, refused
}

// transact writes two records in a transaction and ends it.
func transact(t *testing.T, c *nodetest.Cluster, name string, how kgo.TransactionEndTry) {
	t.Helper()
	cl := c.Client(kgo.TransactionalID("loss"), kgo.DefaultProduceTopic(lostReplicas))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Value: fmt.Appendf(nil, "%s %d", name, i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.EndTransaction(t.Context(), how); err != nil {
		t.Fatal(err)
	}
}

// committedValues reads n committed records from the start on.
func committedValues(t *testing.T, c *nodetest.Cluster, n int) (values []string) {
	t.Helper()
	cl := c.Client(kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{lostReplicas: {0: kgo.NewOffset().AtStart()}}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for len(values) < n && ctx.Err() == nil {
		cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { values = append(values, string(r.Value)) })
	}
	return values
}

// loseReplicas removes the topic's directories of a node that does not run.
func loseReplicas(t *testing.T, n *nodetest.Node) {
	t.Helper()
	var dirs []string
	err := filepath.WalkDir(n.DataDir(), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			if ok, _ := filepath.Match(lostReplicas+"-0.*", d.Name()); ok {
				dirs = append(dirs, path)
				return filepath.SkipDir
			}
		}
		return err
	})
	if err != nil || len(dirs) != 1 {
		t.Fatalf("node %d has %q, %v", n.ID, dirs, err)
	}
	if err := os.RemoveAll(dirs[0]); err != nil {
		t.Fatal(err)
	}
}

// electUncleanly has somebody lead who may lack records, once nobody does.
func electUncleanly(t *testing.T, c *nodetest.Cluster) {
	t.Helper()
	set := kadm.TopicsSet{}
	set.Add(lostReplicas, 0)
	nodetest.Eventually(t, time.Minute, "the topic has a leader", func() error {
		m, err := c.Metadata(1, lostReplicas)
		if err != nil {
			return err
		}
		if m.Topics[lostReplicas].Partitions[0].Leader >= 0 {
			return errors.New("somebody leads without being told to")
		}
		results, err := c.Admin().ElectLeaders(t.Context(), kadm.ElectLiveReplica, set)
		if err != nil {
			return err
		}
		return results[lostReplicas][0].Err
	})
}
