package broker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// member is one group consumer that polls in the background and counts what it gets.
type member struct {
	client *kgo.Client
	done   chan struct{}

	mu   sync.Mutex // guards the following
	seen map[string]int
}

func (s *stack) member(t *testing.T, group string, opts ...kgo.Opt) *member {
	t.Helper()
	m := &member{done: make(chan struct{}), seen: map[string]int{}}
	m.client = s.client(t, append([]kgo.Opt{
		kgo.ConsumerGroup(group), kgo.ConsumeTopics("events"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.HeartbeatInterval(100 * time.Millisecond), kgo.AutoCommitInterval(100 * time.Millisecond),
	}, opts...)...)
	go func() {
		defer close(m.done)
		for {
			f := m.client.PollFetches(context.Background())
			if f.IsClientClosed() {
				return
			}
			m.mu.Lock()
			f.EachRecord(func(r *kgo.Record) { m.seen[string(r.Value)]++ })
			m.mu.Unlock()
		}
	}()
	return m
}

func (m *member) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, k := range m.seen {
		n += k
	}
	return n
}

// leave commits, leaves the group and ends the member.
func (m *member) leave() {
	m.client.CloseAllowingRebalance()
	<-m.done
}

// waitUntil polls for a condition that other goroutines bring about.
func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	limit := time.After(30 * time.Second)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-limit:
			t.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func (s *stack) produce(t *testing.T, from, to int) {
	t.Helper()
	p := s.client(t, kgo.DefaultProduceTopic("events"))
	for i := from; i < to; i++ {
		p.Produce(context.Background(), &kgo.Record{Value: []byte(fmt.Sprint(i)), Key: []byte(fmt.Sprint(i))}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := p.Flush(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestTwoMembersShareATopicAndTheirOffsetsOutliveThem(t *testing.T) {
	s := startStack(t, nil)
	ctx := context.Background()
	adm := kadm.NewClient(s.client(t))
	if _, err := adm.CreateTopic(ctx, 4, 1, nil, "events"); err != nil {
		t.Fatal(err)
	}
	s.produce(t, 0, 1000)

	a := s.member(t, "readers")
	waitUntil(t, "the first member reads everything", func() bool { return a.count() == 1000 })
	b := s.member(t, "readers")
	described := func() kadm.DescribedGroup {
		d, err := adm.DescribeGroups(ctx, "readers")
		if err != nil {
			t.Fatal(err)
		}
		return d["readers"]
	}
	waitUntil(t, "two members, both with partitions", func() bool {
		d := described()
		if d.State != "Stable" || len(d.Members) != 2 {
			return false
		}
		for _, m := range d.Members {
			if c, ok := m.Assigned.AsConsumer(); !ok || len(c.Topics) != 1 || len(c.Topics[0].Partitions) != 2 {
				return false
			}
		}
		return true
	})
	s.produce(t, 1000, 2000)
	waitUntil(t, "both read the rest", func() bool { return a.count()+b.count() == 2000 })
	if b.count() == 0 {
		t.Error("the second member has read nothing")
	}
	a.leave()
	waitUntil(t, "the member that stays has everything", func() bool {
		d := described()
		if d.State != "Stable" || len(d.Members) != 1 {
			return false
		}
		c, ok := d.Members[0].Assigned.AsConsumer()
		return ok && len(c.Topics) == 1 && len(c.Topics[0].Partitions) == 4
	})
	b.leave()
	if d := described(); d.State != "Empty" {
		t.Errorf("state %s after everybody left", d.State)
	}
	offsets, err := adm.FetchOffsets(ctx, "readers")
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) { total += o.At })
	if total != 2000 {
		t.Errorf("committed %d of 2000", total)
	}
	c := s.member(t, "readers")
	s.produce(t, 2000, 2100)
	waitUntil(t, "a new member goes on where they ended", func() bool { return c.count() >= 100 })
	c.leave()
	if c.count() != 100 {
		t.Errorf("read %d, want the 100 new ones", c.count())
	}
	if _, err := adm.DeleteGroup(ctx, "readers"); err != nil {
		t.Errorf("delete: %v", err)
	}
	if d := described(); d.State != "Dead" {
		t.Errorf("state %s after the deletion", d.State)
	}
}
