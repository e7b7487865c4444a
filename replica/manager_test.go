package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// startQuorum starts a node that follows a real metadata quorum of one.
func startQuorum(t *testing.T) *node {
	t.Helper()
	n := newNode(t)
	n.callTimeout = 500 * time.Millisecond
	b, err := conf.ParseBroker(n.broker)
	n.must(err)
	n.quorum, err = meta.Open(meta.Config{Dir: t.TempDir(), NodeID: 1, Broker: b}, meta.Deps{})
	n.must(err)
	t.Cleanup(func() { n.quorum.Close(context.Background()) })
	_, err = n.quorum.RegisterBroker(context.Background(), meta.Registration{ID: 1, Host: "localhost", Port: 9092, Incarnation: topic.NewID()})
	n.must(err)
	n.start()
	return n
}

func (n *node) create(name string, partitions int32, configs ...string) topic.ID {
	n.t.Helper()
	nt := meta.NewTopic{Name: name, Partitions: partitions, ReplicationFactor: -1}
	for i := 0; i < len(configs); i += 2 {
		nt.Configs = append(nt.Configs, meta.ConfigValue{Name: configs[i], Value: &configs[i+1]})
	}
	made, err := n.quorum.CreateTopics(context.Background(), []meta.NewTopic{nt}, false)
	n.must(err)
	n.must(made[0].Err)
	for i := range partitions {
		n.wait("the topic to be served", func() bool { return n.m.Ready(name, i) })
	}
	return made[0].ID
}

func (n *node) delete(name string) {
	n.t.Helper()
	results, err := n.quorum.DeleteTopics(context.Background(), []meta.TopicRef{{Name: name}})
	n.must(err)
	n.must(results[0].Err)
}

func (n *node) partition(name string, index int32) *Partition {
	n.t.Helper()
	p, err := n.m.Partition(name, index)
	n.must(err)
	return p
}

func (n *node) onDisk(id topic.ID) int {
	found := 0
	for _, p := range n.hot.Partitions() {
		if p.ID == id {
			found++
		}
	}
	return found
}

func TestTopicIsServedThenDeletedByItsTombstone(t *testing.T) {
	n := startQuorum(t)
	defer n.stop()
	id := n.create("events", 3, "remote.storage.enable", "true", "internal.segment.bytes", "4096")
	p := n.partition("events", 1)
	n.produce(p, batch.None, record{ts: now(), value: "a"})
	n.must(p.log.Roll(now()))
	n.wait("the segment to be offloaded", func() bool { s, ok := p.remote.Cached(); return ok && s.End == 1 })
	if _, err := n.m.PartitionByID(id, 3); !errors.Is(err, ErrUnknownPartition) {
		t.Fatalf("partition 3 of 3: %v", err)
	}
	if _, err := n.m.PartitionByID(topic.NewID(), 0); !errors.Is(err, ErrUnknownTopicID) {
		t.Fatalf("unknown id: %v", err)
	}

	n.delete("events")
	n.wait("the name to be gone", func() bool { _, err := n.m.Partition("events", 1); return errors.Is(err, ErrUnknownPartition) })
	n.wait("the tombstone to be confirmed", func() bool { return len(n.quorum.Image().DeletedTopics()) == 0 })
	if found := n.onDisk(id); found != 0 {
		t.Fatalf("%d directories left", found)
	}
	if _, err := p.Append(build(t, batch.None, record{ts: 1, value: "b"}), AppendRequest{Acks: 1, Version: 12, Now: now()}); !errors.Is(err, ErrUnknownPartition) {
		t.Fatalf("append to a deleted topic: %v", err)
	}
	if again := n.create("events", 1); again == id {
		t.Fatal("a topic created again must have a new id")
	}
	if end := n.partition("events", 0).log.Offsets().End; end != 0 {
		t.Fatalf("a topic created again begins at %d", end)
	}
}

func TestDirectoryOfNoKnownTopicIsKept(t *testing.T) {
	n := newNode(t)
	n.start()
	id := topic.NewID()
	p := n.want("events", id, 1, nil)
	n.produce(p, batch.None, record{ts: now(), value: "a"})
	n.stop()

	b, err := conf.ParseBroker(n.broker)
	n.must(err)
	n.quorum, err = meta.Open(meta.Config{Dir: t.TempDir(), NodeID: 1, Broker: b}, meta.Deps{})
	n.must(err)
	defer n.quorum.Close(context.Background())
	n.start()
	defer n.stop()
	n.wait("the stray to be reported", func() bool { return len(n.m.Strays()) == 1 })
	if n.m.Strays()[0].ID != id || n.onDisk(id) != 1 {
		t.Fatalf("strays %v, %d directories", n.m.Strays(), n.onDisk(id))
	}
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	if len(n.m.slots) != 0 {
		t.Fatal("something is to be done to what the metadata does not know")
	}
}

// A topic that an image does not name any more, though nobody has deleted it, is served no more and keeps its files: perhaps it is
// the metadata that is missing something.
func TestTopicThatIsGoneFromTheMetadataKeepsItsFiles(t *testing.T) {
	n := startQuorum(t)
	n.create("events", 1)
	p := n.partition("events", 0)
	n.produce(p, batch.None, record{ts: now(), value: "a"})
	n.m.image(nil, &meta.Image{Index: n.quorum.Image().Index + 1_000_000})
	n.wait("the partition to be served no more", func() bool { return errors.Is(p.role.Load().err, ErrUnknownPartition) })
	n.stop()
	n.start()
	defer n.stop()
	n.wait("the topic to be served again", func() bool { return n.m.Ready("events", 0) })
	if got := n.readAll(n.partition("events", 0), 0, 1<<20); len(got) != 1 || got[0].value != "a" {
		t.Fatalf("read %v", got)
	}
}

func TestSettingsApplyLive(t *testing.T) {
	n := startQuorum(t)
	defer n.stop()
	n.create("events", 1)
	p := n.partition("events", 0)
	if _, err := p.Append(build(t, batch.None, record{ts: now(), value: "a"}), AppendRequest{Acks: -1, Version: 12, Now: now()}); err != nil {
		t.Fatal(err)
	}
	limit := "10"
	_, err := n.quorum.AlterConfigs(context.Background(), []meta.ConfigChange{{
		ConfigResource: meta.ConfigResource{Kind: meta.TopicConfig, Name: "events"},
		Edits:          []meta.ConfigEdit{{Name: "max.message.bytes", Value: &limit}},
	}}, false)
	n.must(err)
	n.wait("the new limit", func() bool { return p.settings.Load().topic.MaxMessageBytes == 10 })
	if _, err := p.Append(build(t, batch.None, record{ts: now(), value: "a"}), AppendRequest{Acks: -1, Version: 12, Now: now()}); !errors.Is(err, batch.ErrTooLarge) {
		t.Fatalf("append over the new limit: %v", err)
	}
}

func TestMorePartitionsAreServed(t *testing.T) {
	n := startQuorum(t)
	defer n.stop()
	n.create("events", 1)
	_, err := n.quorum.CreatePartitions(context.Background(), []meta.MorePartitions{{Name: "events", Count: 3}}, false)
	n.must(err)
	for i := range int32(3) {
		n.wait("every partition", func() bool { return n.m.Ready("events", i) })
	}
}

func TestCloseEndsEverythingWaiting(t *testing.T) {
	n := startQuorum(t)
	n.create("events", 1)
	p := n.partition("events", 0)
	w := n.m.NewWaiter(1)
	w.Watch(p, 0, ReadUncommitted)
	epoch, err := p.Epoch()
	n.must(err)
	got := make(chan error, 1)
	p.OnCommitted(epoch, 0, func(err error) { got <- err })
	n.stop()
	select {
	case err := <-got:
		if !errors.Is(err, ErrClosed) {
			t.Fatalf("waiting acknowledgement got %v", err)
		}
	case <-time.After(patience):
		t.Fatal("waiting acknowledgement got nothing")
	}
	if !fired(w) {
		t.Fatal("long poll sleeps on")
	}
	w.Close()
	if _, err := p.Append(build(t, batch.None, record{ts: 1, value: "a"}), AppendRequest{Acks: 1, Version: 12, Now: now()}); !errors.Is(err, ErrClosed) {
		t.Fatalf("append after Close: %v", err)
	}
}
