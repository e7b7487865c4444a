package replica

import (
	"context"
	"testing"
	"time"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// What a coordinator reads back it acts on: until it is committed another
// leader may not have it.
func TestAJournalIsReadWhenAllOfItIsCommitted(t *testing.T) {
	n := startNode(t)
	id := topic.NewID()
	p := n.want("groups", id, 3, nil)
	follow := func(partitionEpoch int32, isr ...int32) {
		n.m.mu.Lock()
		n.m.topicLocked(&meta.Topic{Name: "groups", ID: id, Partitions: []meta.Partition{{
			Leader: 1, LeaderEpoch: 4, PartitionEpoch: partitionEpoch, Replicas: []int32{1, 2}, ISR: isr,
		}}})
		n.m.mu.Unlock()
	}
	follow(4, 1, 2)
	n.wait("the new epoch", func() bool { e, err := p.Epoch(); return err == nil && e == 4 })
	if _, err := p.Append(build(t, batch.None, record{ts: now(), value: "a"}), AppendRequest{Acks: 1, Version: 12, Now: now()}); err != nil {
		t.Fatal(err)
	}
	read := make(chan error, 1)
	seen := make(chan int64, 1)
	go func() {
		read <- n.m.Journal("groups").Read(context.Background(), 0, func(b batch.Batch) error {
			seen <- b.LastOffset()
			return nil
		})
	}()
	<-seen
	select {
	case err := <-read:
		t.Fatalf("reading ended (%v) with a record that replica 2 does not have", err)
	case <-time.After(100 * time.Millisecond):
	}
	follow(5, 1)
	select {
	case err := <-read:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("reading goes on after everything is committed")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := n.m.Journal("groups").Read(ctx, 0, func(batch.Batch) error { return nil }); err == nil {
		t.Error("a cancelled reading gave no error")
	}
}
