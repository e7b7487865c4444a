package meta

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// bigImage has so many topics with so many partitions each, on so many brokers:
// each partition has a replica on all of them, and each leads its share.
func bigImage(tb testing.TB, brokers, topics, partitions int) (*Image, *conf.Broker) {
	tb.Helper()
	b, err := conf.ParseBroker(nil)
	if err != nil {
		tb.Fatal(err)
	}
	img := newImage()
	apply := func(changes []Change) {
		next, err := img.Apply(Command{Base: img.Index, Changes: changes}, img.Index+1)
		if err != nil {
			tb.Fatal(err)
		}
		img = next
	}
	var registered []Change
	for id := range brokers {
		registered = append(registered, RegisterBroker{ID: int32(id + 1)})
	}
	apply(registered)
	for i := range topics {
		r, changes := decideCreateTopics(img, &b, []NewTopic{{Name: fmt.Sprintf("topic-%05d", i), Partitions: int32(partitions), ReplicationFactor: int16(brokers)}}, topic.NewID)
		if r[0].Err != nil {
			tb.Fatal(r[0].Err)
		}
		apply(changes)
	}
	return img, &b
}

// TestTenThousandPartitionsStayCheap holds sizes and times that a node with
// 10,000 partitions depends on, with room for slow machines.
func TestTenThousandPartitionsStayCheap(t *testing.T) {
	for _, shape := range []struct{ topics, partitions int }{{1, 10_000}, {10_000, 1}} {
		t.Run(fmt.Sprintf("%dx%d", shape.topics, shape.partitions), func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			img, b := bigImage(t, 1, shape.topics, shape.partitions)
			runtime.GC()
			runtime.ReadMemStats(&after)
			if per := int64(after.HeapAlloc-before.HeapAlloc) / 10_000; per > 700 {
				t.Errorf("%d bytes of heap for each partition", per)
			}
			if n := len(img.EncodeSnapshot()); n > 10_000*60 {
				t.Errorf("the snapshot has %d bytes", n)
			}
			start := worked(t)
			changes, err := decideRegister(img, b, Registration{ID: 1, Incarnation: idA}, false)
			if err != nil {
				t.Fatal(err)
			}
			c := Command{Base: img.Index, Changes: changes}
			encoded := c.Encode()
			next, err := img.Apply(c, img.Index+1)
			if err != nil {
				t.Fatal(err)
			}
			if p := next.Topics()[0].Partitions[0]; p.LeaderEpoch != 2 || p.Leader != 1 {
				t.Errorf("after the restart: %s", partitionText(&p))
			}
			took := worked(t) - start
			t.Logf("restart decided and applied in %v, %d bytes", took, len(encoded))
			if took > 2*time.Second {
				t.Errorf("a restart takes %v", took)
			}
			runtime.KeepAlive(img)
		})
	}
}

// worked is the processor's time that this process has had: on a busy machine the clock says nothing of how much work something is.
func worked(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFence is what a dead broker costs the controller: the decision, the
// command's encoding, and the new image. min.insync.replicas of 3 makes every
// partition get an ELR, too.
func BenchmarkFence(b *testing.B) {
	for _, shape := range []struct{ topics, partitions int }{{1, 10_000}, {1000, 10}} {
		for _, least := range []string{"1", "3"} {
			b.Run(fmt.Sprintf("topics=%d/partitions=10000/min=%s", shape.topics, least), func(b *testing.B) {
				img, broker := bigImage(b, 3, shape.topics, shape.partitions)
				rules, err := broker.With(map[string]string{"min.insync.replicas": least})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					changes, err := decideBroker(img, &rules, ChangeBroker{ID: 1, Epoch: img.Brokers[1].Epoch, Fenced: true})
					if err != nil {
						b.Fatal(err)
					}
					c := Command{Base: img.Index, Changes: changes}
					if len(c.Encode()) == 0 {
						b.Fatal("no command")
					}
					if _, err := img.Apply(c, img.Index+1); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkAlterPartitions is one leader's wishes, as when a follower falls
// behind with so many partitions.
func BenchmarkAlterPartitions(b *testing.B) {
	for _, wishes := range []int{1, 100, 3000} {
		b.Run(fmt.Sprintf("partitions=10000/wishes=%d", wishes), func(b *testing.B) {
			img, broker := bigImage(b, 3, 1000, 10)
			var list []AlterPartition
			for _, t := range img.Topics() {
				for i := range t.Partitions {
					p := &t.Partitions[i]
					if p.Leader == 1 && len(list) < wishes {
						list = append(list, AlterPartition{ID: t.ID, Index: int32(i), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch, ISR: []BrokerState{{1, -1}, {2, -1}}})
					}
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				_, changes, err := decideAlterPartition(img, broker, 1, img.Brokers[1].Epoch, list)
				if err != nil {
					b.Fatal(err)
				}
				c := Command{Base: img.Index, Changes: changes}
				if len(c.Encode()) == 0 {
					b.Fatal("no command")
				}
				if _, err := img.Apply(c, img.Index+1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkApplyOneTopic(b *testing.B) {
	for _, topics := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("topics=%d", topics), func(b *testing.B) {
			img, broker := bigImage(b, 1, topics, 1)
			b.ReportAllocs()
			for b.Loop() {
				_, changes := decideCreateTopics(img, broker, []NewTopic{{Name: "new", Partitions: 1, ReplicationFactor: 1}}, topic.NewID)
				if _, err := img.Apply(Command{Base: img.Index, Changes: changes}, img.Index+1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	img, _ := bigImage(b, 1, 1000, 10)
	encoded := img.EncodeSnapshot()
	b.Run("encode/partitions=10000", func(b *testing.B) {
		b.SetBytes(int64(len(encoded)))
		for b.Loop() {
			img.EncodeSnapshot()
		}
	})
	b.Run("decode/partitions=10000", func(b *testing.B) {
		b.SetBytes(int64(len(encoded)))
		for b.Loop() {
			if _, err := DecodeSnapshot(encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkCreateTopic(b *testing.B) {
	n, err := Open(Config{Dir: b.TempDir(), NodeID: 1}, Deps{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = n.Close(context.Background()) }()
	if _, err := n.RegisterBroker(context.Background(), Registration{ID: 1}); err != nil {
		b.Fatal(err)
	}
	i := 0
	for b.Loop() {
		i++
		r, err := n.CreateTopics(context.Background(), []NewTopic{{Name: fmt.Sprintf("t%d", i), Partitions: 1, ReplicationFactor: 1}}, false)
		if err != nil || r[0].Err != nil {
			b.Fatal(err, r)
		}
	}
}

func TestLookupsDoNotAllocate(t *testing.T) {
	img, _ := bigImage(t, 1, 100, 3)
	id := img.Topic("topic-00042").ID
	if n := testing.AllocsPerRun(100, func() {
		if _, p := img.Partition("topic-00042", 1); p == nil {
			t.Fatal("no partition")
		}
		if _, p := img.PartitionByID(id, 2); p == nil {
			t.Fatal("no partition")
		}
		img.Topics()
	}); n != 0 {
		t.Errorf("%v allocations for each lookup", n)
	}
}
