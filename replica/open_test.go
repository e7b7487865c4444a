package replica

import (
	"runtime"
	"testing"
	"time"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// wide dictates one topic of many partitions, all led here.
func (n *node) wide(id topic.ID, epoch int32, count int, configs map[string]string) {
	n.t.Helper()
	mt := &meta.Topic{Name: "wide", ID: id, Configs: configs}
	for range count {
		mt.Partitions = append(mt.Partitions, meta.Partition{Leader: 1, LeaderEpoch: epoch, PartitionEpoch: epoch, Replicas: []int32{1}, ISR: []int32{1}})
	}
	n.m.mu.Lock()
	n.m.topicLocked(mt)
	n.m.mu.Unlock()
}

func (n *node) allReady(count int) {
	n.t.Helper()
	n.wait("all partitions to be served", func() bool {
		for i := range int32(count) {
			if !n.m.Ready("wide", i) {
				return false
			}
		}
		return true
	})
}

// BenchmarkOpenPartitions opens a node with many idle partitions, and says what each takes in memory.
func BenchmarkOpenPartitions(b *testing.B) {
	const count = 10000
	n := newNode(b)
	n.fs, n.dir, n.durable = vfs.OS(), b.TempDir(), hot.Fsync
	id := topic.NewID()
	configs := map[string]string{"remote.storage.enable": "true"}
	n.start()
	n.wide(id, 1, count, configs)
	n.allReady(count)
	n.stop()
	epoch := int32(1)
	for b.Loop() {
		n.start()
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := time.Now()
		epoch += 2
		n.wide(id, epoch, count, configs)
		_, _ = n.m.Partition("wide", count-1)
		n.wait("the one asked for", func() bool { return n.m.Ready("wide", count-1) })
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/first")
		n.allReady(count)
		b.ReportMetric(float64(time.Since(began).Milliseconds()), "ms/all")
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc+after.StackInuse-before.StackInuse)/count, "B/partition")
		n.stop()
	}
}
