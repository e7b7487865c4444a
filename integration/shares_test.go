package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/nodetest"
)

// sharer is a member of a share group.
type sharer interface {
	// acknowledged lists the records that it has accepted: those for which the broker said yes, and those of which nobody knows.
	acknowledged() (sure, unsure []place)
	// stop has it leave.
	stop()
}

func (p *clientProcess) acknowledged() (sure, unsure []place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.records), slices.Clone(p.unsure)
}

func (p *clientProcess) stop() { p.leave() }

// franzSharer is franz-go's share consumer. It releases some records the first time that it gets them.
type franzSharer struct {
	client *kgo.Client
	done   chan struct{}

	mu           sync.Mutex // guards the following
	failed       map[int32]bool
	sure, unsure []place
}

func startFranzSharer(c *nodetest.Cluster, group, topic string) *franzSharer {
	s := &franzSharer{done: make(chan struct{}), failed: map[int32]bool{}}
	s.client = c.Client(kgo.ShareGroup(group), kgo.ConsumeTopics(topic), kgo.ShareMaxRecords(50), kgo.FetchMaxWait(300*time.Millisecond),
		kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, r := range results {
				if r.Err != nil {
					s.failed[r.Partition] = true
				}
			}
		}))
	go s.run()
	return s
}

func (s *franzSharer) run() {
	defer close(s.done)
	for {
		f := s.client.PollFetches(context.Background())
		if f.IsClientClosed() {
			return
		}
		var accepted []place
		f.EachRecord(func(r *kgo.Record) {
			if r.DeliveryCount() == 1 && r.Offset%5 == 0 {
				r.Ack(kgo.AckRelease)
				return
			}
			r.Ack(kgo.AckAccept)
			accepted = append(accepted, place{r.Partition, r.Offset})
		})
		s.mu.Lock()
		clear(s.failed)
		s.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		err := s.client.FlushAcks(ctx)
		cancel()
		s.mu.Lock()
		for _, p := range accepted {
			if err != nil || s.failed[p.partition] {
				s.unsure = append(s.unsure, p)
			} else {
				s.sure = append(s.sure, p)
			}
		}
		s.mu.Unlock()
	}
}

func (s *franzSharer) acknowledged() (sure, unsure []place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sure), slices.Clone(s.unsure)
}

func (s *franzSharer) stop() {
	s.client.Close()
	<-s.done
}

func configureGroup(t *testing.T, c *nodetest.Cluster, group string, settings map[string]string) {
	t.Helper()
	q := kmsg.NewPtrIncrementalAlterConfigsRequest()
	x := kmsg.NewIncrementalAlterConfigsRequestResource()
	x.ResourceType, x.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		s := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		value := settings[name]
		s.Name, s.Value = name, &value
		x.Configs = append(x.Configs, s)
	}
	q.Resources = append(q.Resources, x)
	nodetest.Eventually(t, 30*time.Second, "the group's settings are set", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r, err := q.RequestWith(ctx, c.Client())
		if err == nil && r.Resources[0].ErrorCode != 0 {
			err = fmt.Errorf("error %d: %v", r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage)
		}
		return err
	})
}

// sharing is one share group over a topic, and what has been written.
type sharing struct {
	t       *testing.T
	c       *nodetest.Cluster
	topic   string
	members []sharer
	written map[place]bool
}

// feed writes n more records.
func (x *sharing) feed(n int) {
	x.t.Helper()
	cl := x.c.Client(kgo.DefaultProduceTopic(x.topic))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var mu sync.Mutex
	for i := range n {
		cl.Produce(ctx, &kgo.Record{Value: fmt.Append(nil, i), Key: fmt.Append(nil, i)}, func(r *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				x.t.Error(err)
				return
			}
			x.written[place{r.Partition, r.Offset}] = true
		})
	}
	if err := cl.Flush(ctx); err != nil {
		x.t.Fatal(err)
	}
}

// count is how often each record was acknowledged for sure, and how often perhaps.
func (x *sharing) count() (sure, unsure map[place]int) {
	sure, unsure = map[place]int{}, map[place]int{}
	for _, m := range x.members {
		a, b := m.acknowledged()
		for _, p := range a {
			sure[p]++
		}
		for _, p := range b {
			unsure[p]++
		}
	}
	return sure, unsure
}

// progress waits until every record that was written has been acknowledged.
func (x *sharing) progress(when string) {
	x.t.Helper()
	nodetest.Eventually(x.t, 2*time.Minute, when+": every record is acknowledged", func() error {
		sure, unsure := x.count()
		var left []string
		for p := range x.written {
			if sure[p]+unsure[p] == 0 {
				left = append(left, fmt.Sprintf("%d/%d", p.partition, p.offset))
			}
		}
		if len(left) > 0 {
			slices.Sort(left)
			return fmt.Errorf("%d of %d are not: %s", len(left), len(x.written), strings.Join(left[:min(len(left), 20)], " "))
		}
		return nil
	})
}

// TestShareGroupsLoseNothingWhileNodesAreKilled kills each node in turn under a share group of franz-go's consumers, and of Java's
// where they are there: leaders of the topic's partitions and of the share coordinator's are among them. Every record is
// acknowledged; none is twice of which a member was told that it had succeeded.
func TestShareGroupsLoseNothingWhileNodesAreKilled(t *testing.T) {
	c := nodetest.StartCluster(t, nodetest.ClusterOptions{Settings: map[string]string{
		"share.coordinator.state.topic.num.partitions": "4", "share.coordinator.state.topic.replication.factor": "3",
		"share.coordinator.state.topic.min.isr": "2", "offsets.topic.num.partitions": "4", "offsets.topic.replication.factor": "3",
		"group.share.min.record.lock.duration.ms": "1000", "group.share.heartbeat.interval.ms": "500",
		"group.share.min.heartbeat.interval.ms": "500", "group.share.session.timeout.ms": "5000", "group.share.min.session.timeout.ms": "1000",
		"group.share.assignment.interval.ms": "0",
	}})
	const group, portion = "sharers", 300
	x := &sharing{t: t, c: c, topic: "shared", written: map[place]bool{}}
	c.CreateTopic(x.topic, 3, 3, replicated)
	configureGroup(t, c, group, map[string]string{
		"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "3000", "share.delivery.count.limit": "10",
	})
	x.feed(portion)
	for range 2 {
		x.members = append(x.members, startFranzSharer(c, group, x.topic))
	}
	if clientsDir() != "" && missing(clientTools["java"]) == "" {
		for i := range 2 {
			x.members = append(x.members, startClient(t, fmt.Sprint("java ", i), clientPrograms(t)["java"], "share", c.Bootstrap(), x.topic, group))
		}
	}
	x.progress("at first")
	nodetest.Eventually(t, 2*time.Minute, "every member takes part", func() error {
		x.feed(30)
		for i, m := range x.members {
			if a, _ := m.acknowledged(); len(a) == 0 {
				return fmt.Errorf("member %d of %d has nothing yet", i, len(x.members))
			}
		}
		return nil
	})
	for _, n := range c.Nodes() {
		t.Logf("node %d is killed", n.ID)
		x.feed(portion)
		n.Kill()
		x.feed(portion)
		x.progress("a node is dead")
		n.Restart()
		c.WaitInSync(time.Minute)
		x.feed(portion)
		x.progress("it is back")
	}
	for _, m := range x.members {
		m.stop()
	}
	sure, unsure := x.count()
	for p, n := range sure {
		if n > 1 {
			t.Errorf("%d/%d was acknowledged %d times", p.partition, p.offset, n)
		}
		if !x.written[p] {
			t.Errorf("%d/%d was acknowledged and never written", p.partition, p.offset)
		}
	}
	for i, m := range x.members {
		a, b := m.acknowledged()
		t.Logf("member %d acknowledged %d records for sure, %d perhaps", i, len(a), len(b))
		if len(a) == 0 {
			t.Errorf("member %d had no part in it", i)
		}
	}
	t.Logf("%d records written, %d acknowledged for sure, %d perhaps", len(x.written), len(sure), len(unsure))
	if len(unsure) > len(x.written)/2 {
		t.Errorf("%d of %d acknowledgements have no known outcome", len(unsure), len(x.written))
	}
	lagGone(t, c, group, x.topic)
}

// lagGone waits until the group's start offsets are the partitions' ends.
func lagGone(t *testing.T, c *nodetest.Cluster, group, topic string) {
	t.Helper()
	nodetest.Eventually(t, 30*time.Second, "the group's start offsets are at the end", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		ends, err := kadm.NewClient(c.Client()).ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		q := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
		g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
		g.GroupID = group
		q.Groups = append(q.Groups, g)
		r, err := q.RequestWith(ctx, c.Client())
		if err != nil {
			return err
		}
		if r.Groups[0].ErrorCode != 0 || len(r.Groups[0].Topics) != 1 {
			return fmt.Errorf("%+v", r.Groups[0])
		}
		for _, p := range r.Groups[0].Topics[0].Partitions {
			end, _ := ends.Lookup(topic, p.Partition)
			if p.StartOffset != end.Offset {
				return fmt.Errorf("partition %d: start %d, end %d", p.Partition, p.StartOffset, end.Offset)
			}
		}
		return nil
	})
}
