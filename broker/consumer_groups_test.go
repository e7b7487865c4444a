package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// nextGen are the settings of a broker whose consumer groups are quick.
var nextGen = map[string]string{
	"group.consumer.min.heartbeat.interval.ms": "50", "group.consumer.heartbeat.interval.ms": "50",
}

func TestConsumerProtocolSharesPartitionsAmongMembers(t *testing.T) {
	s := startStack(t, nextGen)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p := s.client(t)
	adm := kadm.NewClient(p)
	if _, err := adm.CreateTopic(ctx, 6, 1, nil, "events"); err != nil {
		t.Fatal(err)
	}
	const n = 600
	produce := func(from int) {
		for i := from; i < from+n; i++ {
			p.Produce(ctx, &kgo.Record{Topic: "events", Key: fmt.Append(nil, i), Value: fmt.Append(nil, i)}, nil)
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	produce(0)
	a := s.member(t, "g", kgo.ServerSideBalancer())
	wait := func(what string, done func() bool) {
		t.Helper()
		for !done() {
			select {
			case <-ctx.Done():
				t.Fatalf("%s: a has %d records, %v", what, a.count(), describe848(ctx, p, "g"))
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	wait("all with the first", func() bool { return a.count() == n })
	b := s.member(t, "g", kgo.ServerSideBalancer())
	wait("shared", func() bool {
		d := describe848(ctx, p, "g")
		return d.State == "Stable" && len(d.Members) == 2 && partitionsOf(d.Members[0].Assignment) == 3 && partitionsOf(d.Members[1].Assignment) == 3
	})
	produce(n)
	wait("all of the second round", func() bool { return a.count()+b.count() == 2*n })
	if a.count() == 2*n || b.count() == 0 {
		t.Errorf("a got %d, b %d", a.count(), b.count())
	}
	a.leave()
	produce(2 * n)
	wait("all with the second", func() bool { return a.count()+b.count() == 3*n })
	b.leave()
	list, err := adm.ListGroups(ctx)
	if err != nil || list["g"].State != "Empty" || list["g"].GroupType != "consumer" {
		t.Errorf("listed as %+v, %v", list["g"], err)
	}
	if r, err := adm.DeleteGroup(ctx, "g"); err != nil || r.Err != nil {
		t.Errorf("delete: %v %v", err, r.Err)
	}
}

func describe848(ctx context.Context, c *kgo.Client, group string) kmsg.ConsumerGroupDescribeResponseGroup {
	q := kmsg.NewPtrConsumerGroupDescribeRequest()
	q.Groups = []string{group}
	for _, shard := range c.RequestSharded(ctx, q) {
		if r, ok := shard.Resp.(*kmsg.ConsumerGroupDescribeResponse); ok && len(r.Groups) == 1 {
			return r.Groups[0]
		}
	}
	return kmsg.ConsumerGroupDescribeResponseGroup{}
}

func partitionsOf(a kmsg.Assignment) int {
	n := 0
	for _, t := range a.TopicPartitions {
		n += len(t.Partitions)
	}
	return n
}
