package tier

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/tier/objstore"
)

// benchArchive holds about mib MiB in segments of 16 MiB.
func benchArchive(b *testing.B, store objstore.Store, mib int, codec batch.Codec, noise bool) (*Remote, int64, int64) {
	b.Helper()
	a := openTest(b, testConfig(b), store, "")
	r := a.Partition(testPartition)
	w := newWorld(1)
	w.codec, w.noise, w.value = codec, noise, 1000
	var raw int64
	for raw < int64(mib)<<20 {
		s := w.segment(2000, 16)
		raw += s.SizeBytes()
		offload(b, r, 0, s)
		w.batches, w.segments = nil, nil
	}
	return r, w.next, raw
}

// BenchmarkReplay reads an archive from its start, cold: fetch, check, inflate.
// With latency every GET is delayed by so much.
func BenchmarkReplay(b *testing.B) {
	for _, c := range []struct {
		name    string
		noise   bool
		latency time.Duration
	}{{"text", false, 0}, {"text", false, 30 * time.Millisecond}, {"noise", true, 0}, {"noise", true, 30 * time.Millisecond}} {
		b.Run(fmt.Sprintf("%s/latency=%v", c.name, c.latency), func(b *testing.B) {
			mem := objstore.NewMem(0)
			_, end, raw := benchArchive(b, mem, 256, batch.None, c.noise)
			store := objstore.NewCounted(objstore.NewFaulty(mem, 1, objstore.Rule{Op: objstore.OpGet, Delay: c.latency}), nil)
			b.SetBytes(raw)
			b.ReportAllocs()
			before := store.Stats().Get.Requests
			for b.Loop() {
				b.StopTimer()
				a := openTest(b, testConfig(b), store, "")
				r := a.Partition(testPartition)
				b.StartTimer()
				replay(b, r, end)
				b.StopTimer()
				closeTest(b, a)
				b.StartTimer()
			}
			gets := float64(store.Stats().Get.Requests-before) / float64(b.N)
			b.ReportMetric(gets*(1<<30)/float64(raw), "GETs/GiB")
		})
	}
}

func replay(b *testing.B, r *Remote, end int64) {
	for offset := int64(0); offset < end; {
		c, err := r.Read(context.Background(), offset, 1<<20, 1<<62)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.WriteTo(io.Discard); err != nil {
			b.Fatal(err)
		}
		offset = c.NextOffset()
		c.Release()
	}
}

// BenchmarkReadHit reads what is cached.
func BenchmarkReadHit(b *testing.B) {
	for _, maxBytes := range []int{16 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("max=%dKiB", maxBytes>>10), func(b *testing.B) {
			r, end, _ := benchArchive(b, objstore.NewMem(0), 16, batch.None, true)
			replay(b, r, end)
			b.ReportAllocs()
			offset, n := int64(0), int64(0)
			for b.Loop() {
				c, err := r.Read(context.Background(), offset, maxBytes, 1<<62)
				if err != nil {
					b.Fatal(err)
				}
				n += int64(c.Len())
				if offset = c.NextOffset(); offset >= end {
					offset = 0
				}
			}
			b.SetBytes(n / int64(b.N))
		})
	}
}

// BenchmarkBuild turns a segment into an upload body: check and compress.
func BenchmarkBuild(b *testing.B) {
	for _, noise := range []bool{false, true} {
		b.Run(fmt.Sprintf("noise=%v", noise), func(b *testing.B) {
			a := openTest(b, testConfig(b), objstore.NewMem(0), "")
			w := newWorld(1)
			w.noise, w.value = noise, 1000
			s := w.segment(4000, 16)
			b.SetBytes(s.SizeBytes())
			b.ReportAllocs()
			for b.Loop() {
				o, err := a.Partition(testPartition).Build(context.Background(), s, BuildOptions{})
				if err != nil {
					b.Fatal(err)
				}
				o.Close()
			}
		})
	}
}
