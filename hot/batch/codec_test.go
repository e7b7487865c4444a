package batch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/varvelog/varve/hot/batch"
)

// recoded is the batch of recs with its records compressed by encode.
func recoded(t testing.TB, codec batch.Codec, recs []rec, encode func([]byte) []byte) batch.Batch {
	t.Helper()
	plain := build(t, batch.Options{}, recs)
	b := append(bytes.Clone(plain[:batch.HeaderSize]), encode(plain[batch.HeaderSize:])...)
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-12))
	put16(b, atAttributes, int16(codec))
	return sign(b)
}

func written(t testing.TB, w io.WriteCloser, out *bytes.Buffer, p []byte) []byte {
	t.Helper()
	// In pieces, so that encoders that would otherwise know the length
	// stream.
	for len(p) > 0 {
		n := min(len(p), 10_000)
		if _, err := w.Write(p[:n]); err != nil {
			t.Fatal(err)
		}
		p = p[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestReadsEveryShapeOfCodec covers what clients other than Java's write.
func TestReadsEveryShapeOfCodec(t *testing.T) {
	recs := sample(9000)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		codec  batch.Codec
		encode func(p []byte) []byte
	}{
		{"gzip of several members", batch.Gzip, func(p []byte) []byte {
			var out bytes.Buffer
			written(t, gzip.NewWriter(&out), &out, p[:1000])
			return written(t, gzip.NewWriter(&out), &out, p[1000:])
		}},
		{"snappy without framing", batch.Snappy, func(p []byte) []byte { return snappy.Encode(nil, p) }},
		{"lz4 of 4 MiB blocks with checksums and size", batch.LZ4, func(p []byte) []byte {
			var out bytes.Buffer
			w := lz4.NewWriter(&out)
			must(w.Apply(lz4.BlockSizeOption(lz4.Block4Mb), lz4.BlockChecksumOption(true), lz4.ChecksumOption(true), lz4.SizeOption(uint64(len(p)))))
			return written(t, w, &out, p)
		}},
		{"zstd of known size", batch.Zstd, func(p []byte) []byte {
			w, err := zstd.NewWriter(nil)
			must(err)
			return w.EncodeAll(p, nil)
		}},
		{"zstd with checksum and the default window", batch.Zstd, func(p []byte) []byte {
			var out bytes.Buffer
			w, err := zstd.NewWriter(&out, zstd.WithEncoderCRC(true))
			must(err)
			return written(t, w, &out, p)
		}},
		{"zstd that asks for a window of 128 MiB", batch.Zstd, func(p []byte) []byte {
			var out bytes.Buffer
			w, err := zstd.NewWriter(&out, zstd.WithWindowSize(128<<20), zstd.WithEncoderConcurrency(1))
			must(err)
			return written(t, w, &out, p)
		}},
		{"zstd of several frames", batch.Zstd, func(p []byte) []byte {
			w, err := zstd.NewWriter(nil)
			must(err)
			return w.EncodeAll(p[5000:], w.EncodeAll(p[:5000], nil))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := recoded(t, c.codec, recs, c.encode)
			o := options()
			o.MaxBytes = 0
			v, err := batch.Validate(in, o)
			if err != nil || v.Rebuilt {
				t.Fatal(err)
			}
			sameRecords(t, readAll(t, v.Bytes), recs)
		})
	}
}

func TestZstdWindowIsBounded(t *testing.T) {
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, zstd.WithWindowSize(512<<20), zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	recs := sample(9000)
	in := recoded(t, batch.Zstd, recs, func(p []byte) []byte { return written(t, w, &out, p) })
	header := zstd.Header{}
	if err := header.Decode(in[batch.HeaderSize:]); err != nil || header.WindowSize < 256<<20 {
		t.Fatalf("the frame asks for %d bytes of window only, %v", header.WindowSize, err)
	}
	used := allocated(func() {
		for range 4 {
			sameRecords(t, readAll(t, in)[:10], recs[:10])
		}
	})
	if used > 128<<20 {
		t.Fatalf("%d bytes allocated", used)
	}
	runtime.KeepAlive(in)
}

func TestHostileCompressionIsRefused(t *testing.T) {
	xerial := append([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}, 0, 0, 0, 1, 0, 0, 0, 1)
	for _, c := range []struct {
		name  string
		codec batch.Codec
		body  []byte
	}{
		{"gzip of nothing", batch.Gzip, nil},
		{"gzip cut short", batch.Gzip, []byte{0x1f, 0x8b, 8, 0, 0}},
		{"snappy of nothing", batch.Snappy, nil},
		{"snappy that declares 4 GiB", batch.Snappy, []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0}},
		{"snappy block that declares 1 GiB", batch.Snappy, append(bytes.Clone(xerial), 0, 0, 0, 6, 0x80, 0x80, 0x80, 0x80, 0x04, 0)},
		{"snappy block longer than the batch", batch.Snappy, append(bytes.Clone(xerial), 0x7f, 0xff, 0xff, 0xff, 1)},
		{"snappy block of negative length", batch.Snappy, append(bytes.Clone(xerial), 0xff, 0xff, 0xff, 0xff, 1)},
		{"snappy framing cut short", batch.Snappy, append(bytes.Clone(xerial), 0, 0)},
		{"lz4 of nothing", batch.LZ4, nil},
		{"lz4 with a bad header checksum", batch.LZ4, []byte{0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x00, 0, 0, 0, 0}},
		{"zstd of nothing", batch.Zstd, nil},
		{"zstd of one segment of 1 TiB", batch.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0, 0}},
		{"zstd with a dictionary", batch.Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x21, 0x05, 0x10, 1, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			plain := three(t, batch.None)
			b := append(plain[:batch.HeaderSize:batch.HeaderSize], c.body...)
			binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-12))
			put16(b, atAttributes, int16(c.codec))
			sign(b)
			var err error
			if used := allocated(func() { _, err = batch.Validate(b, options()) }); used > 64<<20 {
				t.Errorf("%d bytes allocated", used)
			}
			if !errors.Is(err, batch.ErrInvalidRecord) {
				t.Fatal(err)
			}
		})
	}
}

func TestCompressedBytesAfterTheRecordsAreRefused(t *testing.T) {
	for _, codec := range codecs[1:] {
		b := batch.Batch(three(t, codec))
		put32(b, atCount, 2)
		put32(b, atLastDelta, 1)
		sign(b)
		if _, err := batch.Validate(b, options()); !errors.Is(err, batch.ErrInvalidRecord) {
			t.Fatalf("%s: %v", codec, err)
		}
	}
}

func TestCodecNames(t *testing.T) {
	for c := batch.AsProduced; c <= batch.Zstd; c++ {
		got, err := batch.ParseCodec(c.String())
		if got != c || err != nil {
			t.Errorf("%s: %v, %v", c, got, err)
		}
	}
	if c, err := batch.ParseCodec("NONE"); c != batch.None || err != nil {
		t.Errorf("none: %v, %v", c, err)
	}
	if _, err := batch.ParseCodec("brotli"); !errors.Is(err, batch.ErrUnsupportedCompression) {
		t.Errorf("brotli: %v", err)
	}
	if batch.Codec(7).Valid() || batch.Codec(7).String() != "codec(7)" {
		t.Error("codec 7")
	}
}

func TestPooledDecodersServeManyAtOnce(t *testing.T) {
	recs := sample(2000)
	var done sync.WaitGroup
	for _, codec := range codecs {
		in := build(t, batch.Options{Codec: codec}, recs)
		for i := range 4 {
			done.Go(func() {
				for range 20 {
					next := 0
					for r, err := range in.Records(batch.Limits{}) {
						if err != nil || !bytes.Equal(r.Value, recs[next].value) {
							t.Errorf("%s: record %d: %v", codec, next, err)
							return
						}
						if next++; i == 0 && next > 100 {
							break // decoders go back to the pool half used
						}
					}
					o := options()
					o.Compression = codecs[i+1]
					if v, err := batch.Validate(bytes.Clone(in), o); err != nil || v.Count != int32(len(recs)) {
						t.Errorf("%s: %v", codec, err)
						return
					}
				}
			})
		}
	}
	done.Wait()
}
