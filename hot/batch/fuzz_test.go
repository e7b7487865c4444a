package batch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/snappy"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/integration/fuzztest"
)

// seed adds good batches of every codec and shape to a corpus.
func seed(f *testing.F) {
	for _, codec := range codecs {
		f.Add([]byte(three(f, codec)))
		f.Add([]byte(build(f, batch.Options{Codec: codec}, sample(12))))
		if codec != batch.None {
			f.Add([]byte(bomb(f, codec, 256<<10)))
		}
	}
	for _, name := range []string{"transactional.hex", "commit.hex", "snappy.hex"} {
		f.Add(golden(f, name))
	}
	// The shortest forms of what takes most memory: headers, and records.
	for _, n := range []int{1, 5000} {
		recs := make([]rec, n)
		for i := range recs {
			recs[i] = rec{offset: int64(i), headers: slices.Repeat([]batch.Header{{Key: []byte{}}}, 5000/n)}
		}
		f.Add([]byte(build(f, batch.Options{}, recs)))
	}
	bare := three(f, batch.None)
	bare = append(bare[:batch.HeaderSize:batch.HeaderSize], snappy.Encode(nil, bare[batch.HeaderSize:])...)
	put16(bare, atAttributes, int16(batch.Snappy))
	f.Add(repair(bare))
}

// repair makes bytes a framed, signed batch, so that the fuzzer reaches what
// lies behind length and CRC.
func repair(b []byte) []byte {
	if len(b) < batch.HeaderSize {
		return b
	}
	b = bytes.Clone(b)
	binary.BigEndian.PutUint32(b[atLength:], uint32(len(b)-12))
	b[atMagic] = batch.Magic
	return sign(b)
}

// fuzzLimits keep a run small enough to measure.
var fuzzLimits = batch.Limits{MaxBytes: 4 << 20}

// allocated runs f and returns the bytes it allocated.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// allocationMax is what a decoder may allocate: 8 bytes per byte of an
// uncompressed batch and 64 KiB for errors and fixed parts. A compressed batch
// is bounded by its Limits instead, however few its bytes: the codecs' windows
// and tables (pooled, at their largest the first time) and a multiple of the 4
// MiB that fuzzLimits let it inflate to.
func allocationMax(b []byte, codecs ...batch.Codec) int {
	if len(b) >= batch.HeaderSize {
		codecs = append(codecs, batch.Batch(b).Codec())
	}
	for _, c := range codecs {
		if c != batch.None && c != batch.AsProduced {
			return 96 << 20
		}
	}
	return 8*len(b) + 64<<10
}

func FuzzNext(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		rest := in
		for {
			var b batch.Batch
			var after []byte
			var err error
			fuzztest.Within(t, 64<<10, func() { b, after, err = batch.Next(rest) })
			if err != nil {
				if !errors.Is(err, batch.ErrShort) && !errors.Is(err, batch.ErrCorrupt) {
					t.Fatalf("Next: %v", err)
				}
				return
			}
			if len(b) < batch.HeaderSize || len(b) != b.SizeBytes() || len(b)+len(after) != len(rest) {
				t.Fatalf("framed %d bytes, %d left of %d", len(b), len(after), len(rest))
			}
			h, err := batch.PeekHeader(rest)
			if err != nil || !bytes.Equal(h, b[:batch.HeaderSize]) {
				t.Fatalf("PeekHeader: %v", err)
			}
			// Whatever the header says must be readable without a panic.
			_, _ = b.DeleteHorizon()
			_ = b.LastSequence() + int32(b.NextOffset()) + int32(b.Codec())
			_ = b.VerifyCRC()
			rest = after
		}
	})
}

// headerMax is what a decoded header takes (two slices) with the allocator's
// rounding. A header is two bytes at least, so that a record of empty headers is
// held to 27 bytes per byte instead of 8; the slice that has them is reused from
// record to record.
const headerMax = 54

func FuzzRecords(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		b, _, err := batch.Next(repair(in))
		if err != nil {
			return
		}
		var recs []rec
		whole := true
		headers := 0
		for r, err := range b.Records(fuzzLimits) {
			if err != nil {
				if !errors.Is(err, batch.ErrCorrupt) {
					t.Fatalf("Records: %v", err)
				}
				whole = false
				break
			}
			headers += len(r.Headers)
			if len(recs) < 1000 {
				recs = append(recs, rec{offset: r.Offset, timestamp: r.Timestamp, key: bytes.Clone(r.Key), value: bytes.Clone(r.Value)})
			}
		}
		fuzztest.Within(t, allocationMax(b)+headerMax*headers, func() {
			for range b.Records(fuzzLimits) {
			}
		})
		if _, _, err := b.EndTxnMarker(); err != nil && !errors.Is(err, batch.ErrCorrupt) {
			t.Fatalf("EndTxnMarker: %v", err)
		}
		offset, ts, found, err := batch.FindMaxTimestamp(b, fuzzLimits)
		if whole != (err == nil) {
			t.Fatalf("walk says whole %v, lookup says %v", whole, err)
		}
		if whole && len(recs) > 0 && len(recs) < 1000 {
			want := recs[0]
			for _, r := range recs {
				if r.timestamp > want.timestamp {
					want = r
				}
			}
			if !found || offset != want.offset || ts != want.timestamp {
				t.Fatalf("max timestamp %d at %d, want %d at %d", ts, offset, want.timestamp, want.offset)
			}
		}
	})
}

// FuzzValidate checks that what Validate lets through is a batch the log can
// live with, whichever of its paths let it through.
func FuzzValidate(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, to := range []batch.Codec{batch.AsProduced, batch.None, batch.Zstd} {
			b, o := repair(in), options()
			o.Limits, o.Compression, o.MaxBytes = fuzzLimits, to, 0
			var v batch.Validated
			var err error
			// Validate works in place: each run gets the bytes as they came.
			fresh := bytes.Clone(b)
			fuzztest.Within(t, allocationMax(b, to), func() {
				copy(b, fresh)
				v, err = batch.Validate(b, o)
			})
			if err != nil {
				var r *batch.RejectError
				if !errors.As(err, &r) {
					t.Fatalf("refused with %T: %v", err, err)
				}
				continue
			}
			checkAccepted(t, v, o)
		}
	})
}

func checkAccepted(t *testing.T, v batch.Validated, o batch.ValidateOptions) {
	t.Helper()
	b, rest, err := batch.Next(v.Bytes)
	if err != nil || len(rest) != 0 || b.VerifyCRC() != nil {
		t.Fatalf("accepted bytes are no batch: %v, %d left", err, len(rest))
	}
	if b.BaseOffset() != 0 || b.Count() != v.Count || b.LastOffset() != int64(v.Count)-1 || b.Control() || b.LogAppendTime() {
		t.Fatalf("accepted header: %d records, %d to %d", b.Count(), b.BaseOffset(), b.LastOffset())
	}
	maxTimestamp, maxAt := batch.NoTimestamp, int64(0)
	i := int64(0)
	for r, err := range b.Records(fuzzLimits) {
		if err != nil {
			t.Fatalf("accepted records cannot be read: %v", err)
		}
		if r.Offset != i {
			t.Fatalf("record %d has offset %d", i, r.Offset)
		}
		if r.Timestamp != batch.NoTimestamp && r.Timestamp > o.Now+o.AfterMaxMs {
			t.Fatalf("accepted timestamp %d", r.Timestamp)
		}
		if r.Timestamp > maxTimestamp {
			maxTimestamp, maxAt = r.Timestamp, i
		}
		i++
	}
	if i != int64(v.Count) || v.MaxTimestamp != maxTimestamp || b.MaxTimestamp() != maxTimestamp || v.OffsetOfMaxTimestamp != maxAt {
		t.Fatalf("%d records, max timestamp %d (header %d) at %d; read %d at %d", i, v.MaxTimestamp, b.MaxTimestamp(), v.OffsetOfMaxTimestamp, maxTimestamp, maxAt)
	}
}

func FuzzRewrite(f *testing.F) {
	seed(f)
	f.Fuzz(func(t *testing.T, in []byte) {
		b, _, err := batch.Next(repair(in))
		if err != nil {
			return
		}
		if v, err := batch.Validate(b, batch.ValidateOptions{Now: now, BeforeMaxMs: 1<<63 - 1, AfterMaxMs: 1 << 40, Compression: batch.AsProduced, ProduceVersion: 9, Limits: fuzzLimits}); err != nil || v.Count > 1000 {
			return
		} else {
			b = v.Bytes
		}
		headers := 0
		for r := range b.Records(fuzzLimits) {
			headers += len(r.Headers)
		}
		var res batch.Rewritten
		fuzztest.Within(t, allocationMax(b)+headerMax*headers, func() {
			res, err = batch.Rewrite(b, func(r batch.Record) bool { return r.Offset%2 == 1 }, batch.RewriteOptions{DeleteHorizon: now, Limits: fuzzLimits})
		})
		if err != nil {
			t.Fatal(err)
		}
		var want []rec
		for _, r := range readAll(t, b) {
			if r.offset%2 == 1 {
				want = append(want, r)
			}
		}
		if res.Batch == nil {
			if len(want) != 0 {
				t.Fatalf("%d records are gone", len(want))
			}
			return
		}
		if res.Batch.VerifyCRC() != nil || res.Batch.LastOffset() != b.LastOffset() {
			t.Fatal("header of the rewritten batch")
		}
		sameRecords(t, readAll(t, res.Batch), want)
	})
}
