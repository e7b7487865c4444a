package objstore_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

// cpuTime is what this process has used; a server in another process does not count.
func cpuTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		b.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// reportCPU adds the client's CPU seconds per GB moved.
func reportCPU(b *testing.B, size int, before time.Duration) {
	used := cpuTime(b) - before
	b.ReportMetric(used.Seconds()/(float64(size)*float64(b.N)/1e9), "cpu-s/GB")
}

// BenchmarkS3Put shows what signing bodies costs, on versitygw.
func BenchmarkS3Put(b *testing.B) {
	srv := objstoretest.StartVersityGW(b)
	for _, c := range []struct{ name, params string }{{"unsigned", ""}, {"signed", "&sign-payload=true"}} {
		for _, size := range []int{1 << 10, 32 << 20} {
			b.Run(fmt.Sprintf("%s/size=%d", c.name, size), func(b *testing.B) {
				st := openOn(b, srv, "", c.params)
				body := objstore.Bytes(make([]byte, size))
				b.SetBytes(int64(size))
				b.ReportAllocs()
				before := cpuTime(b)
				for b.Loop() {
					if _, err := st.Put(b.Context(), "k", body, objstore.PutOptions{}); err != nil {
						b.Fatal(err)
					}
				}
				reportCPU(b, size, before)
			})
		}
	}
}

func BenchmarkS3Get(b *testing.B) {
	srv := objstoretest.StartVersityGW(b)
	st := openOn(b, srv, "", "")
	if _, err := st.Put(b.Context(), "k", objstore.Bytes(make([]byte, 32<<20)), objstore.PutOptions{}); err != nil {
		b.Fatal(err)
	}
	for _, size := range []int{4 << 10, 1 << 20, 8 << 20} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			p := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			before := cpuTime(b)
			for b.Loop() {
				if _, err := objstore.ReadAt(b.Context(), st, "k", p, 12345); err != nil {
					b.Fatal(err)
				}
			}
			reportCPU(b, size, before)
		})
	}
}
