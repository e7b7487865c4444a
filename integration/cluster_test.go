package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// replicated are the settings of a topic that survives the loss of a node.
var replicated = map[string]string{"min.insync.replicas": "2"}

// stream produces numbered records with acks=all, one after the other, until
// it is told to stop, and remembers which were acknowledged.
type stream struct {
	t     *testing.T
	topic string
	stop  context.CancelFunc
	done  chan struct{}

	mu      sync.Mutex // guards the following
	acked   []int
	longest time.Duration
	when    int // the record that waited longest
}

func startStream(t *testing.T, c *nodetest.Cluster, topic string) *stream {
	s := &stream{t: t, topic: topic, done: make(chan struct{})}
	cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()),
		kgo.ProducerLinger(0), kgo.RecordDeliveryTimeout(time.Minute))
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	go func() {
		defer close(s.done)
		for i := 0; ctx.Err() == nil; i++ {
			began := time.Now()
			err := cl.ProduceSync(context.Background(), &kgo.Record{Value: fmt.Append(nil, i)}).FirstErr()
			took := time.Since(began)
			s.mu.Lock()
			if err == nil {
				s.acked = append(s.acked, i)
			}
			if took > s.longest {
				s.longest, s.when = took, i
			}
			s.mu.Unlock()
			if err != nil {
				t.Errorf("record %d: %v", i, err)
				return
			}
		}
	}()
	t.Cleanup(func() { s.stop(); <-s.done })
	return s
}

// progress waits until n further records were acknowledged.
func (s *stream) progress(n int) {
	s.t.Helper()
	s.mu.Lock()
	from := len(s.acked)
	s.mu.Unlock()
	nodetest.Eventually(s.t, time.Minute, "records are acknowledged", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if got := len(s.acked) - from; got < n {
			return fmt.Errorf("%d of %d", got, n)
		}
		return nil
	})
}

// verify stops the stream and reads everything back: every acknowledged record
// is there, once.
func (s *stream) verify(c *nodetest.Cluster) {
	s.t.Helper()
	s.stop()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	s.t.Logf("%d records acknowledged; the longest took %v (record %d)", len(s.acked), s.longest.Round(time.Millisecond), s.when)
	cl := c.Client(kgo.ConsumeTopics(s.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	seen := map[string]int{}
	for len(seen) < len(s.acked) {
		fs := cl.PollFetches(ctx)
		if ctx.Err() != nil {
			s.t.Fatalf("%d of %d acknowledged records were read", len(seen), len(s.acked))
		}
		fs.EachError(func(topic string, p int32, err error) {
			if !errors.Is(err, kerr.NotLeaderForPartition) {
				s.t.Logf("fetch %s-%d: %v", topic, p, err)
			}
		})
		fs.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
	}
	for _, i := range s.acked {
		if n := seen[fmt.Sprint(i)]; n != 1 {
			s.t.Errorf("record %d was read %d times", i, n)
		}
	}
}

// startStreamed starts a cluster and a stream of records to its topic "events".
func startStreamed(t *testing.T, options nodetest.ClusterOptions) (*nodetest.Cluster, *stream) {
	t.Helper()
	c := nodetest.StartCluster(t, options)
	c.CreateTopic("events", 6, 3, replicated)
	return c, startStream(t, c, "events")
}

// Each of three nodes is killed in turn, and comes back.
func TestKillingAnyNodeLosesNothing(t *testing.T) {
	c, s := startStreamed(t, nodetest.ClusterOptions{})
	for _, n := range c.Nodes() {
		s.progress(50)
		n.Kill()
		s.progress(50)
		n.Restart()
		c.WaitInSync(time.Minute, "events")
	}
	s.progress(50)
	s.verify(c)
}

// All nodes are killed at once, as when a rack loses power.
func TestKillingAllNodesLosesNothing(t *testing.T) {
	c, s := startStreamed(t, nodetest.ClusterOptions{})
	for range 2 {
		s.progress(100)
		for _, n := range c.Nodes() {
			n.Kill()
		}
		for _, n := range c.Nodes() {
			n.Launch()
		}
		for _, n := range c.Nodes() {
			n.AwaitReady()
		}
		c.WaitInSync(time.Minute, "events")
	}
	s.progress(100)
	s.verify(c)
}

// Each node is stopped in order and comes back, the next one when the in-sync
// sets are full again. What a node leads is led by others before it goes.
func TestARollingRestartIsHardlySeen(t *testing.T) {
	c, s := startStreamed(t, nodetest.ClusterOptions{})
	for _, n := range c.Nodes() {
		s.progress(50)
		n.Stop()
		s.progress(50)
		n.Restart()
		c.WaitInSync(time.Minute, "events")
		if !strings.Contains(n.Log(), "leaderships handed over") {
			t.Errorf("node %d handed nothing over", n.ID)
		}
	}
	s.verify(c)
}

// The broker that coordinates a group is killed: another one does, from the
// same offsets.
func TestAGroupGoesOnWhenItsCoordinatorDies(t *testing.T) {
	c := nodetest.StartCluster(t, nodetest.ClusterOptions{})
	c.CreateTopic("events", 6, 3, replicated)
	const first, second = 300, 600
	produceKeyed(t, c, "events", 0, first)
	readers := []*reader{startReader(c, "readers", "events"), startReader(c, "readers", "events")}
	read := func(want int) {
		t.Helper()
		nodetest.Eventually(t, time.Minute, "the group has read everything", func() error {
			a, _ := readers[0].total()
			b, _ := readers[1].total()
			if a+b < want {
				return fmt.Errorf("%d of %d records", a+b, want)
			}
			return nil
		})
	}
	read(first)
	coordinator := groupCoordinator(t, c, "readers")
	committed := committedBy(t, c, "readers", "events", first)
	c.Node(coordinator).Kill()
	produceKeyed(t, c, "events", first, second)
	read(second)
	if now := groupCoordinator(t, c, "readers"); now == coordinator {
		t.Errorf("broker %d coordinates the group though it is dead", now)
	}
	if now := committedBy(t, c, "readers", "events", second); now < committed {
		t.Errorf("%d records were committed, and later %d", committed, now)
	}
	c.Node(coordinator).Restart()
	c.WaitInSync(time.Minute, "events", "__consumer_offsets")
	for _, r := range readers {
		r.stop()
	}
}

// freshAdmin is a client that remembers nothing: franz-go goes on asking a dead
// coordinator for committed offsets.
func freshAdmin(c *nodetest.Cluster) *kadm.Client { return kadm.NewClient(c.Client()) }

// groupCoordinator asks until somebody coordinates the group.
func groupCoordinator(t *testing.T, c *nodetest.Cluster, group string) int32 {
	t.Helper()
	id := int32(-1)
	nodetest.Eventually(t, time.Minute, "the group has a coordinator", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		adm := freshAdmin(c)
		defer adm.Close()
		r := adm.FindGroupCoordinators(ctx, group)[group]
		id = r.NodeID
		return r.Err
	})
	return id
}

// committedBy waits until a group has committed so many records of a topic.
func committedBy(t *testing.T, c *nodetest.Cluster, group, topic string, want int64) int64 {
	t.Helper()
	total := int64(0)
	nodetest.Eventually(t, time.Minute, "the group has committed", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		adm := freshAdmin(c)
		defer adm.Close()
		offsets, err := adm.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		total = 0
		for _, o := range offsets.Offsets()[topic] {
			total += o.At
		}
		if total < want {
			return fmt.Errorf("%d of %d", total, want)
		}
		return nil
	})
	return total
}
