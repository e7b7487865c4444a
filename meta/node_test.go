package meta

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// silent are the settings of a broker that nobody is fenced by for being silent: brokers of these tests send no heartbeats, however
// long a test takes.
func silent(t testing.TB, settings map[string]string) conf.Broker {
	t.Helper()
	all := map[string]string{"broker.session.timeout.ms": "3600000"}
	maps.Copy(all, settings)
	b, err := conf.ParseBroker(all)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func openNode(t *testing.T, cfg Config, deps Deps) *Node {
	t.Helper()
	if cfg.Broker.NumPartitions == 0 {
		cfg.Broker = silent(t, nil)
	}
	if cfg.Dir == "" {
		cfg.Dir = t.TempDir()
	}
	if cfg.NodeID == 0 {
		cfg.NodeID = 1
	}
	n, err := Open(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeNode(t, n) })
	return n
}

func closeNode(t *testing.T, n *Node) {
	t.Helper()
	if err := n.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func register(t *testing.T, n *Node) Broker {
	t.Helper()
	b, err := n.RegisterBroker(context.Background(), Registration{ID: n.NodeID(), Host: "localhost", Port: 9092})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func createTopic(t *testing.T, n *Node, name string, partitions int32) CreatedTopic {
	t.Helper()
	r, err := n.CreateTopics(context.Background(), []NewTopic{{Name: name, Partitions: partitions, ReplicationFactor: 1}}, false)
	if err != nil {
		t.Fatal(err)
	}
	if r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	return r[0]
}

func TestANewNodeIsReadyWhenOpenReturns(t *testing.T) {
	start := time.Now()
	n := openNode(t, Config{}, Deps{})
	t.Logf("opened in %v", time.Since(start))
	img := n.Image()
	if img.ClusterID == "" || img.ControllerID != 1 || !n.IsController() {
		t.Errorf("cluster %q, controller %d", img.ClusterID, img.ControllerID)
	}
	b := register(t, n)
	created := createTopic(t, n, "a", 3)
	got := n.Image().Topic("a")
	if got == nil || got.ID != created.ID || len(got.Partitions) != 3 || n.Image().TopicByID(created.ID) != got {
		t.Fatalf("topic %+v", got)
	}
	if p := got.Partitions[2]; p.Leader != 1 || p.LeaderEpoch != 0 || p.PartitionEpoch != 0 || len(p.ISR) != 1 {
		t.Errorf("partition %+v", p)
	}
	if b.Epoch <= 0 || b.Fenced {
		t.Errorf("broker %+v", b)
	}
}

func TestARestartKeepsEverythingAndRaisesEpochs(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), NodeID: 1}
	n := openNode(t, cfg, Deps{})
	b1 := register(t, n)
	created := createTopic(t, n, "a", 2)
	block1, err := n.AllocateProducerIDs(context.Background(), 1, b1.Epoch)
	if err != nil || block1.Count != 1000 {
		t.Fatal(block1, err)
	}
	before := n.Image()
	closeNode(t, n)

	start := time.Now()
	n = openNode(t, cfg, Deps{})
	t.Logf("opened again in %v", time.Since(start))
	if !bytes.Equal(n.Image().EncodeSnapshot(), before.EncodeSnapshot()) {
		t.Error("the image changed over the restart")
	}
	b2 := register(t, n)
	if b2.Epoch <= b1.Epoch {
		t.Errorf("broker epoch %d after %d", b2.Epoch, b1.Epoch)
	}
	if _, err := n.AllocateProducerIDs(context.Background(), 1, b1.Epoch); !errors.Is(err, ErrStaleBrokerEpoch) {
		t.Errorf("the old epoch still counts: %v", err)
	}
	block2, err := n.AllocateProducerIDs(context.Background(), 1, b2.Epoch)
	if err != nil || block2.First < block1.First+int64(block1.Count) {
		t.Errorf("blocks %+v and %+v overlap, %v", block1, block2, err)
	}
	got := n.Image().TopicByID(created.ID)
	for i, p := range got.Partitions {
		// As in Kafka: down to no leader and back, an epoch each.
		if p.Leader != 1 || p.LeaderEpoch != 2 || p.PartitionEpoch != 2 || len(p.ISR) != 1 || len(p.ELR) != 0 {
			t.Errorf("partition %d after the restart: %+v", i, p)
		}
	}
}

func TestANodeThatLostItsLogDoesNotStartANewCluster(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), NodeID: 1}
	closeNode(t, openNode(t, cfg, Deps{}))
	if err := os.Remove(filepath.Join(cfg.Dir, "raft.db")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cfg, Deps{}); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("opened: %v", err)
	}
}

func TestDeletedTopicStaysATombstoneUntilItsDataIsGone(t *testing.T) {
	ctx := context.Background()
	n := openNode(t, Config{}, Deps{})
	register(t, n)
	created := createTopic(t, n, "a", 2)
	r, err := n.DeleteTopics(ctx, []TopicRef{{Name: "a"}})
	if err != nil || r[0].Err != nil || r[0].ID != created.ID {
		t.Fatal(r, err)
	}
	again := createTopic(t, n, "a", 1)
	if again.ID == created.ID {
		t.Fatal("a topic created again has the same id")
	}
	d, ok := n.Image().Deleted(created.ID)
	if !ok || d.Partitions != 2 || d.Tier || len(d.Brokers) != 1 {
		t.Fatalf("tombstone %+v, %t", d, ok)
	}
	for range 2 {
		if err := n.ConfirmDeleted(ctx, created.ID, 1, false); err != nil {
			t.Fatal(err)
		}
	}
	if len(n.Image().DeletedTopics()) != 0 {
		t.Error("the tombstone stays after the confirmation")
	}
	if err := n.ConfirmDeleted(ctx, topic.NewID(), 1, true); err != nil {
		t.Error(err)
	}
}
