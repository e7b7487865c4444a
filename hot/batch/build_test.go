package batch_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/varvelog/varve/hot/batch"
)

func BenchmarkBuilder(b *testing.B) {
	for _, codec := range codecs {
		b.Run(fmt.Sprintf("codec=%s", codec), func(b *testing.B) {
			value := bytes.Repeat([]byte("0123456789abcdef"), 7)[:100]
			builder := batch.NewBuilder(batch.Options{Codec: codec})
			b.SetBytes(16 << 10)
			b.ReportAllocs()
			for b.Loop() {
				builder.Reset(batch.Options{Codec: codec})
				for i := 0; builder.RawBytes() < 16<<10; i++ {
					if err := builder.Append(int64(i), nil, value, nil); err != nil {
						b.Fatal(err)
					}
				}
				builder.Bytes()
			}
		})
	}
}

func TestBuilderAllocatesNothingPerRecord(t *testing.T) {
	for _, codec := range codecs {
		builder := batch.NewBuilder(batch.Options{Codec: codec})
		headers := []batch.Header{{Key: []byte("h"), Value: []byte("v")}}
		value := make([]byte, 100)
		got := testing.AllocsPerRun(100, func() {
			builder.Reset(batch.Options{Codec: codec})
			for i := range 100 {
				if err := builder.Append(int64(i), value[:8], value, headers); err != nil {
					t.Fatal(err)
				}
			}
			builder.Bytes()
		})
		if got > 4 {
			t.Errorf("%s: %v allocations for 100 records", codec, got)
		}
	}
}

func TestBuilderResetStartsOver(t *testing.T) {
	for _, codec := range codecs {
		builder := batch.NewBuilder(batch.Options{Codec: codec})
		if builder.Bytes() != nil {
			t.Fatal("a batch of no records")
		}
		for _, r := range sample(50) {
			if err := builder.Append(r.timestamp, r.key, r.value, r.headers); err != nil {
				t.Fatal(err)
			}
		}
		// Given up half way, as when a batch turns out to be too large.
		want := sample(20)
		builder.Reset(batch.Options{Codec: codec, BaseOffset: 5})
		for _, r := range want {
			if err := builder.Append(r.timestamp, r.key, r.value, r.headers); err != nil {
				t.Fatal(err)
			}
		}
		if max, at := builder.MaxTimestamp(); max != want[6].timestamp || at != 11 || builder.Count() != 20 {
			t.Fatalf("%s: max %d at %d of %d", codec, max, at, builder.Count())
		}
		for i := range want {
			want[i].offset += 5
		}
		sameRecords(t, readAll(t, builder.Bytes()), want)
	}
}

func TestBuilderPanicsOnOffsetsOutOfOrder(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Fatal("accepted an offset twice")
		}
	}()
	builder := batch.NewBuilder(batch.Options{BaseOffset: 10})
	_ = builder.AppendAt(10, 0, nil, nil, nil)
	_ = builder.AppendAt(10, 0, nil, nil, nil)
}
