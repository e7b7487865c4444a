package batch_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/varvelog/varve/hot/batch"
)

// produced is a batch of about 16 KiB of records, as a busy producer sends.
func produced(t testing.TB, codec batch.Codec, valueBytes int) batch.Batch {
	b := batch.NewBuilder(batch.Options{Codec: codec})
	value := bytes.Repeat([]byte("0123456789abcdef"), valueBytes/16+1)[:valueBytes]
	for i := 0; b.RawBytes() < 16<<10; i++ {
		copy(value, fmt.Sprintf("%08d", i*7919))
		if err := b.Append(1_700_000_000_000+int64(i), nil, value, nil); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func options() batch.ValidateOptions {
	return batch.ValidateOptions{Now: 1_700_000_100_000, MaxBytes: 1 << 20, BeforeMaxMs: 1<<63 - 1, AfterMaxMs: 3_600_000,
		Compression: batch.AsProduced, ProduceVersion: 12, Partition: "t-0"}
}

func BenchmarkValidate(b *testing.B) {
	for _, size := range []int{100, 1000} {
		for _, codec := range codecs {
			b.Run(fmt.Sprintf("codec=%s/record=%dB", codec, size), func(b *testing.B) {
				in := produced(b, codec, size)
				o := options()
				b.SetBytes(int64(size) * int64(in.Count()))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := batch.Validate(in, o); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(in.Count()), "ns/record")
			})
		}
	}
}

func BenchmarkVerifyCRC(b *testing.B) {
	in := produced(b, batch.None, 100)
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		if err := in.VerifyCRC(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRecords(b *testing.B) {
	for _, codec := range codecs {
		b.Run(fmt.Sprintf("codec=%s", codec), func(b *testing.B) {
			in := produced(b, codec, 100)
			b.SetBytes(100 * int64(in.Count()))
			b.ReportAllocs()
			for b.Loop() {
				for _, err := range in.Records(batch.Limits{}) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
