package replica

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
)

// onDisk starts a node over a real directory, in replicated mode: what is measured is this package and the log, not the disk.
func onDisk(tb testing.TB) (*node, *Partition) {
	tb.Helper()
	n := newNode(tb)
	n.fs, n.dir, n.durable = vfs.OS(), tb.TempDir(), hot.Replicated
	n.start()
	tb.Cleanup(n.stop)
	return n, n.want("events", topic.NewID(), 1, map[string]string{"retention.ms": "-1"})
}

func request(tb testing.TB, size int) batch.Batch {
	tb.Helper()
	return build(tb, batch.None, record{ts: now(), value: strings.Repeat("x", size)})
}

// allocations is the least of a few measurements: what runs in the background allocates too, the more the slower the machine is.
func allocations(runs int, f func()) float64 {
	least := testing.AllocsPerRun(runs, f)
	for range 4 {
		least = min(least, testing.AllocsPerRun(runs, f))
	}
	return least
}

// TestAppendAndReadAllocateLittle holds the hot paths to a few small allocations a batch, whatever is in it: what an append
// and its acknowledgement need, and what one read's answer needs.
func TestAppendAndReadAllocateLittle(t *testing.T) {
	_, p := onDisk(t)
	b := request(t, 1000)
	r := AppendRequest{Acks: -1, Version: 12, Now: now()}
	acked := 0
	ack := func(error) { acked++ }
	appends := allocations(500, func() {
		b.SetBaseOffset(0)
		a, err := p.Append(b, r)
		if err != nil {
			t.Fatal(err)
		}
		p.OnCommitted(a.LeaderEpoch, a.LastOffset, ack)
	})
	if acked == 0 {
		t.Fatal("nothing was acknowledged")
	}
	offset := int64(0)
	reads := allocations(500, func() {
		res, err := p.Read(ReadRequest{Offset: offset, MaxBytes: 1, MinOne: true, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, ReplicaID: NoReplica})
		if err != nil || res.Records == nil {
			t.Fatalf("%+v, %v", res, err)
		}
		res.Records.Release()
		offset++
	})
	t.Logf("%.1f allocations an append, %.1f a read", appends, reads)
	if appends > 1 || reads > 2 {
		t.Fatalf("%.1f allocations an append (at most 1), %.1f a read (at most 2)", appends, reads)
	}
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 512 << 10} {
		b.Run(fmt.Sprintf("batch=%dB", size), func(b *testing.B) {
			_, p := onDisk(b)
			records := request(b, size)
			r := AppendRequest{Acks: -1, Version: 12, Now: now()}
			b.SetBytes(int64(len(records)))
			b.ReportAllocs()
			for b.Loop() {
				records.SetBaseOffset(0)
				a, err := p.Append(records, r)
				if err != nil {
					b.Fatal(err)
				}
				p.OnCommitted(a.LeaderEpoch, a.LastOffset, func(error) {})
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	n, p := onDisk(b)
	for range 1000 {
		n.produce(p, batch.None, record{ts: now(), value: strings.Repeat("x", 16<<10)})
	}
	end := p.log.HighWatermark()
	b.ReportAllocs()
	offset := int64(0)
	var bytes int64
	for b.Loop() {
		res, err := p.Read(ReadRequest{Offset: offset, MaxBytes: 1 << 20, MinOne: true, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, ReplicaID: NoReplica})
		if err != nil {
			b.Fatal(err)
		}
		n, err := res.Records.WriteTo(io.Discard)
		if err != nil {
			b.Fatal(err)
		}
		bytes += n
		res.Records.Release()
		if offset += 60; offset >= end-60 {
			offset = 0
		}
	}
	b.SetBytes(bytes / int64(b.N))
}
