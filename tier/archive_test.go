package tier

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/tier/objstore"
)

func isErr(err, target error) bool { return errors.Is(err, target) }

func TestWhatWasUploadedIsReadBackByteForByte(t *testing.T) {
	for _, c := range []struct {
		name  string
		codec batch.Codec
		noise bool
		value int
	}{
		{"plain", batch.None, false, 100},
		{"incompressible", batch.None, true, 400},
		{"compressed", batch.Zstd, true, 300},
		{"batches above a chunk", batch.None, true, 300_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(1)
			w.codec, w.noise, w.value = c.codec, c.noise, c.value
			a := openTest(t, testConfig(t), objstore.NewMem(0), "")
			r := a.Partition(testPartition)
			ctx := context.Background()
			if err := r.Claim(ctx, 0); err != nil {
				t.Fatal(err)
			}
			records := 50
			if c.value > 100_000 {
				records = 2
			}
			for range 3 {
				offload(t, r, 0, w.segment(20, records))
			}
			for _, maxBytes := range []int{1, 50_000, 1 << 20, 64 << 20} {
				if got := readAll(t, r, 0, maxBytes); !bytes.Equal(got, w.raw(0)) {
					t.Fatalf("max %d: read %d bytes, wrote %d", maxBytes, len(got), len(w.raw(0)))
				}
			}
			mid := w.next / 2
			if got := readAll(t, r, mid, 1<<20); !bytes.Equal(got, w.raw(mid)) {
				t.Fatalf("from %d: read %d bytes, wrote %d", mid, len(got), len(w.raw(mid)))
			}
		})
	}
}

func TestReadStopsBeforeUpperAndFitsMaxBytes(t *testing.T) {
	w := newWorld(2)
	a := openTest(t, testConfig(t), objstore.NewMem(0), "")
	r := a.Partition(testPartition)
	offload(t, r, 0, w.segment(50, 5))
	ctx := context.Background()
	for from := int64(0); from < w.next; from += 3 {
		for _, upper := range []int64{from + 1, from + 7, w.next} {
			for _, maxBytes := range []int{1, 900, 5000} {
				c, err := r.Read(ctx, from, maxBytes, upper)
				if err != nil {
					t.Fatal(err)
				}
				rest, n := c.Bytes(), 0
				for len(rest) > 0 {
					b, after, err := batch.Next(rest)
					if err != nil {
						t.Fatal(err)
					}
					if b.NextOffset() > upper {
						t.Fatalf("read [%d, %d): batch up to %d", from, upper, b.NextOffset())
					}
					if n++; n == 1 && (b.BaseOffset() > from || b.NextOffset() <= from) {
						t.Fatalf("read at %d starts with [%d, %d)", from, b.BaseOffset(), b.NextOffset())
					}
					rest = after
				}
				if n > 1 && c.Len() > maxBytes {
					t.Fatalf("%d batches of %d bytes for %d", n, c.Len(), maxBytes)
				}
			}
		}
	}
}
