package batch_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/hot/batch"
)

// Positions of header fields, as the format documents them.
const (
	atLength, atMagic, atCRC, atAttributes, atLastDelta, atMaxTimestamp, atProducerID, atSequence, atCount = 8, 16, 17, 21, 23, 35, 43, 53, 57
)

// sign recomputes the CRC of a batch that a test has changed.
func sign(b []byte) []byte {
	binary.BigEndian.PutUint32(b[atCRC:], crc32.Checksum(b[atAttributes:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func put16(b []byte, at int, v int16) { binary.BigEndian.PutUint16(b[at:], uint16(v)) }
func put32(b []byte, at int, v int32) { binary.BigEndian.PutUint32(b[at:], uint32(v)) }
func put64(b []byte, at int, v int64) { binary.BigEndian.PutUint64(b[at:], uint64(v)) }

const now = 1_700_000_100_000

// three is a plain producer's batch of three records.
func three(t testing.TB, codec batch.Codec) []byte {
	b := batch.NewBuilder(batch.Options{Codec: codec, LeaderEpoch: -1})
	for i, ts := range []int64{now - 5, now, now - 9} {
		if err := b.Append(ts, []byte{byte('k'), byte('0' + i)}, []byte("value"), nil); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// refusals are batches that must be refused: what is done to a good one, and
// the answer.
var refusals = []struct {
	name    string
	change  func(b []byte) []byte
	options func(o *batch.ValidateOptions)
	kind    error
	message string
}{
	{name: "nothing", change: func(b []byte) []byte { return nil },
		kind: batch.ErrInvalidRecord, message: "Produce requests with version 12 must have at least one record batch per partition"},
	{name: "cut short", change: func(b []byte) []byte { return b[:len(b)-1] },
		kind: batch.ErrInvalidRecord, message: "Produce requests with version 12 must have at least one record batch per partition"},
	{name: "length below a legacy message", change: func(b []byte) []byte { put32(b, atLength, 13); return b },
		kind: batch.ErrCorrupt, message: "Record size 13 is less than the minimum record overhead (14)"},
	{name: "negative length", change: func(b []byte) []byte { put32(b, atLength, -1); return b },
		kind: batch.ErrCorrupt, message: "Record size -1 is less than the minimum record overhead (14)"},
	{name: "length below the header", change: func(b []byte) []byte { put32(b, atLength, 48); return b[:60] },
		kind: batch.ErrCorrupt, message: "Record batch is corrupt (the size 60 is smaller than the minimum allowed overhead 61)"},
	{name: "magic 1", change: func(b []byte) []byte { b[atMagic] = 1; return b },
		kind: batch.ErrInvalidRecord, message: "Produce requests with version 12 are only allowed to contain record batches with magic version 2"},
	{name: "magic 3", change: func(b []byte) []byte { b[atMagic] = 3; return b },
		kind: batch.ErrCorrupt, message: "Invalid magic found in record: 3"},
	{name: "two batches", change: func(b []byte) []byte { return append(b, b...) },
		kind: batch.ErrInvalidRecord, message: "Produce requests with version 12 are only allowed to contain exactly one record batch per partition"},
	{name: "trailing bytes", change: func(b []byte) []byte { return append(b, 1, 2, 3) },
		kind: batch.ErrCorrupt, message: "is followed by 3 bytes that are no batch"},
	{name: "base offset", change: func(b []byte) []byte { put64(b, 0, 7); return b },
		kind: batch.ErrInvalidRecord, message: "The baseOffset of the record batch in the append to t-0 should be 0, but it is 7"},
	{name: "size", options: func(o *batch.ValidateOptions) { o.MaxBytes = 90 },
		kind: batch.ErrTooLarge, message: "The record batch size in the append to t-0 is 103 bytes which exceeds the maximum configured value of 90)."},
	{name: "size comes before CRC", change: func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		options: func(o *batch.ValidateOptions) { o.MaxBytes = 90 }, kind: batch.ErrTooLarge},
	{name: "CRC", change: func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		kind: batch.ErrCorrupt, message: "Record is corrupt (stored crc = "},
	{name: "codec 5", change: func(b []byte) []byte { put16(b, atAttributes, 5); return sign(b) },
		kind: batch.ErrUnsupportedCompression, message: "Unknown compression type id: "},
	{name: "offset range", change: func(b []byte) []byte { put32(b, atLastDelta, -1); return sign(b) },
		kind: batch.ErrInvalidRecord, message: "Batch has an invalid offset range: [0, -1] in topic partition t-0"},
	{name: "no count", change: func(b []byte) []byte { put32(b, atCount, 0); return sign(b) },
		kind: batch.ErrInvalidRecord, message: "Invalid reported count for record batch: 0 in topic partition t-0"},
	{name: "negative count", change: func(b []byte) []byte { put32(b, atCount, -3); return sign(b) },
		kind: batch.ErrInvalidRecord, message: "Invalid reported count for record batch: -3 in topic partition t-0"},
	{name: "count and range", change: func(b []byte) []byte { put32(b, atCount, 2); return sign(b) },
		kind: batch.ErrInvalidRecord, message: "Inconsistent batch offset range [0, 2] and count of records 2 in topic partition t-0"},
	{name: "control batch", change: func(b []byte) []byte { put16(b, atAttributes, 0x30); return sign(b) },
		kind: batch.ErrInvalidRecord, message: "Clients are not allowed to write control records in topic partition t-0"},
	{name: "producer without sequence", change: func(b []byte) []byte { put64(b, atProducerID, 9); return sign(b) },
		kind: batch.ErrInvalidRecord, message: "Invalid sequence number -1 in record batch with producerId 9 in topic partition t-0"},
	{name: "more records than counted", change: func(b []byte) []byte { put32(b, atCount, 2); put32(b, atLastDelta, 1); return sign(b) },
		kind: batch.ErrInvalidRecord, message: "Incorrect declared batch size, records still remaining in file"},
	{name: "fewer records than counted", change: func(b []byte) []byte { put32(b, atCount, 4); put32(b, atLastDelta, 3); return sign(b) },
		kind: batch.ErrInvalidRecord, message: "Incorrect declared batch size, premature EOF reached"},
	{name: "record longer than its fields", change: func(b []byte) []byte { b[len(b)-1] = 2; return sign(b) },
		kind: batch.ErrInvalidRecord, message: "Found invalid number of record headers"},
	{name: "key beyond the record", change: func(b []byte) []byte { b[batch.HeaderSize+4] = 200; return sign(b) },
		kind: batch.ErrInvalidRecord, message: "Found invalid record structure"},
	{name: "not the codec it says", change: func(b []byte) []byte { put16(b, atAttributes, int16(batch.Gzip)); return sign(b) },
		kind: batch.ErrInvalidRecord, message: "Failed to decompress record stream"},
	{name: "too far in the future", options: func(o *batch.ValidateOptions) { o.Now = now - 3_600_001 },
		kind: batch.ErrInvalidTimestamp, message: "One or more records have been rejected due to invalid timestamp"},
	{name: "too old", options: func(o *batch.ValidateOptions) { o.BeforeMaxMs = 8 },
		kind: batch.ErrInvalidTimestamp, message: "One or more records have been rejected due to invalid timestamp"},
	{name: "client's append time on an append time topic", change: func(b []byte) []byte { put16(b, atAttributes, 8); return sign(b) },
		options: func(o *batch.ValidateOptions) { o.TimestampType = batch.LogAppendTime },
		kind:    batch.ErrInvalidTimestamp, message: "One or more records have been rejected due to invalid timestamp"},
}

func TestValidateRefuses(t *testing.T) {
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			b, o := three(t, batch.None), options()
			if c.change != nil {
				b = c.change(b)
			}
			if c.options != nil {
				c.options(&o)
			}
			before := bytes.Clone(b)
			_, err := batch.Validate(b, o)
			if !errors.Is(err, c.kind) || err == nil || !strings.Contains(err.Error(), c.message) {
				t.Fatalf("got %v (%T)\nwant %q, kind %v", err, err, c.message, c.kind)
			}
			if !bytes.Equal(before, b) {
				t.Fatal("a refused batch has been changed")
			}
		})
	}
}

func TestValidateTakesAClientsAppendTimeForCreateTime(t *testing.T) {
	for _, compression := range []batch.Codec{batch.AsProduced, batch.Zstd} {
		b, o := three(t, batch.None), options()
		put16(b, atAttributes, 8)
		o.Compression = compression
		v, err := batch.Validate(sign(b), o)
		if err != nil {
			t.Fatal(err)
		}
		if v.Bytes.LogAppendTime() || v.MaxTimestamp != now || v.Bytes.VerifyCRC() != nil {
			t.Errorf("compression %v: stored as LogAppendTime %v, max timestamp %d, CRC %v", compression, v.Bytes.LogAppendTime(), v.MaxTimestamp, v.Bytes.VerifyCRC())
		}
		var stamps []int64
		for r, err := range v.Bytes.Records(batch.Limits{}) {
			if err != nil {
				t.Fatal(err)
			}
			stamps = append(stamps, r.Timestamp)
		}
		if want := []int64{now - 5, now, now - 9}; !slices.Equal(stamps, want) {
			t.Errorf("compression %v: stored with timestamps %v, want the records' own %v", compression, stamps, want)
		}
		put16(b, atAttributes, 8)
		o.Now = now - 3_600_001
		if _, err := batch.Validate(sign(b), o); !errors.Is(err, batch.ErrInvalidTimestamp) {
			t.Errorf("compression %v: a record's own timestamp out of bounds got %v", compression, err)
		}
	}
}

func TestValidateRefusesZstdBelowVersion7(t *testing.T) {
	o := options()
	o.ProduceVersion = 6
	_, err := batch.Validate(three(t, batch.Zstd), o)
	if !errors.Is(err, batch.ErrUnsupportedCompression) || err.Error() != "Produce requests with version 6 are not allowed to use ZStandard compression" {
		t.Fatal(err)
	}
	o.ProduceVersion = 7
	if _, err := batch.Validate(three(t, batch.Zstd), o); err != nil {
		t.Fatal(err)
	}
}

func TestValidateKeepsPlainBatchInPlace(t *testing.T) {
	for _, codec := range codecs {
		b := three(t, codec)
		before := bytes.Clone(b)
		v, err := batch.Validate(b, options())
		if err != nil {
			t.Fatal(err)
		}
		if &v.Bytes[0] != &b[0] || !bytes.Equal(b, before) || v.Rebuilt {
			t.Fatalf("%s: an impeccable batch was changed", codec)
		}
		want := batch.Validated{Bytes: b, Count: 3, MaxTimestamp: now, OffsetOfMaxTimestamp: 1, LogAppendTime: -1}
		if fmt.Sprint(v) != fmt.Sprint(want) {
			t.Fatalf("%s: got %v", codec, v)
		}
	}
}

func TestValidateRecomputesMaxTimestamp(t *testing.T) {
	for _, codec := range codecs {
		b := three(t, codec)
		put64(b, atMaxTimestamp, now+999)
		v, err := batch.Validate(sign(b), options())
		if err != nil {
			t.Fatal(err)
		}
		if v.Bytes.MaxTimestamp() != now || v.MaxTimestamp != now || v.Bytes.VerifyCRC() != nil {
			t.Fatalf("%s: max timestamp %d", codec, v.Bytes.MaxTimestamp())
		}
	}
}

func TestValidateStampsAppendTime(t *testing.T) {
	for _, codec := range codecs {
		o := options()
		o.TimestampType, o.Now, o.AfterMaxMs, o.BeforeMaxMs = batch.LogAppendTime, 42, 0, 0
		v, err := batch.Validate(three(t, codec), o)
		if err != nil {
			t.Fatal(err)
		}
		if !v.Bytes.LogAppendTime() || v.Bytes.MaxTimestamp() != 42 || v.LogAppendTime != 42 || v.MaxTimestamp != 42 || v.OffsetOfMaxTimestamp != 0 {
			t.Fatalf("%s: %v", codec, v)
		}
		if err := v.Bytes.VerifyCRC(); err != nil {
			t.Fatal(err)
		}
		for _, r := range readAll(t, v.Bytes) {
			if r.timestamp != 42 {
				t.Fatalf("%s: record at %d", codec, r.timestamp)
			}
		}
	}
}

func TestValidateAcceptsAbsentAndNegativeTimestamps(t *testing.T) {
	b := batch.NewBuilder(batch.Options{})
	for _, ts := range []int64{-1, -5, -1} {
		if err := b.Append(ts, nil, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	v, err := batch.Validate(b.Bytes(), options())
	if err != nil || v.MaxTimestamp != batch.NoTimestamp {
		t.Fatalf("%v, %v", v, err)
	}
}

func TestValidateNamesRecordsAtFault(t *testing.T) {
	for _, codec := range codecs {
		b := batch.NewBuilder(batch.Options{Codec: codec})
		for i := range 5 {
			var key []byte
			if i%2 == 0 {
				key = []byte{}
			}
			if err := b.Append(now, key, []byte("v"), nil); err != nil {
				t.Fatal(err)
			}
		}
		o := options()
		if _, err := batch.Validate(bytes.Clone(b.Bytes()), o); err != nil {
			t.Fatal(err)
		}
		o.Compacted = true
		v, err := batch.Validate(b.Bytes(), o)
		want := "One or more records have been rejected due to 2 record errors in total, and only showing the first three errors at most: " +
			"[RecordError(batchIndex=1, message='Compacted topic cannot accept message without key in topic partition t-0'), " +
			"RecordError(batchIndex=3, message='Compacted topic cannot accept message without key in topic partition t-0')]"
		if !errors.Is(err, batch.ErrInvalidRecord) || err.Error() != want {
			t.Fatalf("%s: %v", codec, err)
		}
		if len(v.RecordErrors) != 2 || v.RecordErrors[0].Index != 1 || v.RecordErrors[1].Index != 3 {
			t.Fatalf("%s: %v", codec, v.RecordErrors)
		}
	}
}

func TestValidateBoundsRecordErrors(t *testing.T) {
	b := batch.NewBuilder(batch.Options{Codec: batch.Zstd})
	for range 5000 {
		if err := b.Append(now, nil, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	o := options()
	o.Compacted = true
	v, err := batch.Validate(b.Bytes(), o)
	if len(v.RecordErrors) != 1000 || !strings.Contains(err.Error(), "due to 5000 record errors") {
		t.Fatalf("%d errors, %v", len(v.RecordErrors), err)
	}
}

func TestValidateNamesTimestampBounds(t *testing.T) {
	o := options()
	o.BeforeMaxMs = 8
	o.Now = now
	v, err := batch.Validate(three(t, batch.None), o)
	if err == nil || len(v.RecordErrors) != 1 || v.RecordErrors[0].Index != 2 {
		t.Fatalf("%v, %v", v.RecordErrors, err)
	}
	want := fmt.Sprintf("Timestamp %d of message with offset 2 is out of range. The timestamp should be within [%d, %d]", int64(now-9), int64(now-8), int64(now+3_600_000))
	if v.RecordErrors[0].Message != want {
		t.Fatalf("%q", v.RecordErrors[0].Message)
	}
}

func TestValidateRecompresses(t *testing.T) {
	for _, from := range codecs {
		for _, to := range codecs {
			t.Run(fmt.Sprintf("%s to %s", from, to), func(t *testing.T) {
				recs := sample(500)
				in := build(t, batch.Options{Codec: from, Transactional: true, Producer: &batch.Producer{ID: 7, Epoch: 3, Sequence: 11}}, recs)
				o := options()
				o.Compression = to
				v, err := batch.Validate(in, o)
				if err != nil {
					t.Fatal(err)
				}
				b := v.Bytes
				if b.Codec() != to || v.Rebuilt != (from != to) || b.VerifyCRC() != nil || v.Count != 500 {
					t.Fatalf("codec %s, rebuilt %v, count %d", b.Codec(), v.Rebuilt, v.Count)
				}
				if b.ProducerID() != 7 || b.ProducerEpoch() != 3 || b.BaseSequence() != 11 || !b.Transactional() || b.BaseOffset() != 0 || b.LastOffsetDelta() != 499 {
					t.Fatal("header fields are lost")
				}
				if v.MaxTimestamp != b.MaxTimestamp() || v.OffsetOfMaxTimestamp != 6 {
					t.Fatalf("max timestamp %d at %d", v.MaxTimestamp, v.OffsetOfMaxTimestamp)
				}
				sameRecords(t, readAll(t, b), recs)
			})
		}
	}
}

func TestValidateChecksSizeAfterRecompression(t *testing.T) {
	in := build(t, batch.Options{Codec: batch.Zstd}, sample(500))
	o := options()
	o.Compression, o.MaxBytes = batch.None, len(in)+10
	_, err := batch.Validate(in, o)
	if !errors.Is(err, batch.ErrTooLarge) || !strings.Contains(err.Error(), "in append to partition t-0 which exceeds the maximum configured size of") {
		t.Fatal(err)
	}
}

func TestValidateHonoursLevels(t *testing.T) {
	recs := sample(3000)
	sizes := map[string]int{}
	for _, c := range []struct {
		name string
		set  func(*batch.ValidateOptions)
	}{
		{"gzip 1", func(o *batch.ValidateOptions) { o.Compression, o.GzipLevel = batch.Gzip, 1 }},
		{"gzip 9", func(o *batch.ValidateOptions) { o.Compression, o.GzipLevel = batch.Gzip, 9 }},
		{"lz4 9", func(o *batch.ValidateOptions) { o.Compression, o.LZ4Level = batch.LZ4, 9 }},
		{"lz4 8", func(o *batch.ValidateOptions) { o.Compression, o.LZ4Level = batch.LZ4, 8 }},
		{"zstd 1", func(o *batch.ValidateOptions) { o.Compression, o.ZstdLevel = batch.Zstd, 1 }},
		{"zstd 19", func(o *batch.ValidateOptions) { o.Compression, o.ZstdLevel = batch.Zstd, 19 }},
	} {
		o := options()
		c.set(&o)
		v, err := batch.Validate(build(t, batch.Options{}, recs), o)
		if err != nil {
			t.Fatal(err)
		}
		sizes[c.name] = len(v.Bytes)
	}
	if sizes["gzip 9"] >= sizes["gzip 1"] || sizes["lz4 8"] >= sizes["lz4 9"] || sizes["zstd 19"] >= sizes["zstd 1"] {
		t.Fatalf("sizes %v", sizes)
	}
}

func TestValidatePutsOffsetsInOrder(t *testing.T) {
	for _, codec := range codecs {
		b := batch.NewBuilder(batch.Options{Codec: codec})
		for _, offset := range []int64{1, 2, 3} {
			if err := b.AppendAt(offset, now, nil, []byte{byte(offset)}, nil); err != nil {
				t.Fatal(err)
			}
		}
		in := b.Bytes()
		put32(in, atLastDelta, 2)
		v, err := batch.Validate(sign(in), options())
		if err != nil || !v.Rebuilt {
			t.Fatalf("%s: %v", codec, err)
		}
		for i, r := range readAll(t, v.Bytes) {
			if r.offset != int64(i) || r.value[0] != byte(i+1) {
				t.Fatalf("%s: record %d at offset %d holds %v", codec, i, r.offset, r.value)
			}
		}
	}
}

func TestValidateDropsClientsDeleteHorizon(t *testing.T) {
	b := three(t, batch.None)
	put16(b, atAttributes, 0x40)
	v, err := batch.Validate(sign(b), options())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := v.Bytes.DeleteHorizon(); ok || v.Bytes.VerifyCRC() != nil {
		t.Fatal("a client has set the delete horizon, which is compaction's")
	}
}

func TestValidateTrustsCoordinator(t *testing.T) {
	o := options()
	o.Origin, o.Compression = batch.FromCoordinator, batch.Gzip
	v, err := batch.Validate(batch.EndTxn(batch.Marker{Type: batch.Commit, CoordinatorEpoch: 5}, 9, 1, now), o)
	if err != nil || v.Bytes.Codec() != batch.None || !v.Bytes.Control() {
		t.Fatalf("%v, %v", v, err)
	}
}

// bomb is a batch whose one record inflates to size bytes of zeros.
func bomb(t testing.TB, codec batch.Codec, size int) batch.Batch {
	b := batch.NewBuilder(batch.Options{Codec: codec})
	if err := b.Append(now, nil, make([]byte, size), nil); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestValidateBoundsInflation(t *testing.T) {
	for _, codec := range codecs[1:] {
		in := bomb(t, codec, 40<<20)
		o := options()
		o.MaxBytes = 0
		o.Limits = batch.Limits{MaxBytes: 32 << 20}
		_, err := batch.Validate(bytes.Clone(in), o)
		if !errors.Is(err, batch.ErrInflated) || !errors.Is(err, batch.ErrInvalidRecord) ||
			!strings.Contains(err.Error(), "exceeds the configured maximum record size of 33554432.") {
			t.Fatalf("%s over the byte limit: %v", codec, err)
		}
		o.Limits = batch.Limits{MaxRatio: 2}
		if _, err := batch.Validate(bytes.Clone(in), o); !errors.Is(err, batch.ErrInflated) {
			t.Fatalf("%s over the ratio: %v", codec, err)
		}
		for _, err := range in.Records(o.Limits) {
			if !errors.Is(err, batch.ErrInflated) || !errors.Is(err, batch.ErrCorrupt) {
				t.Fatalf("%s walked over the ratio: %v", codec, err)
			}
		}
		o.Limits = batch.Limits{MaxRatio: 1 << 20}
		if _, err := batch.Validate(in, o); err != nil {
			t.Fatalf("%s within limits: %v", codec, err)
		}
	}
}

func TestValidateOfHugeRecordKeepsLittleMemory(t *testing.T) {
	for _, codec := range []batch.Codec{batch.Gzip, batch.Zstd} {
		in := bomb(t, codec, 64<<20)
		o := options()
		o.Limits = batch.Limits{MaxRatio: 1 << 20}
		if _, err := batch.Validate(in, o); err != nil { // fills the pools
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range 4 {
			if _, err := batch.Validate(in, o); err != nil {
				t.Fatal(err)
			}
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 32<<20 {
			t.Errorf("%s: %d bytes allocated for 4 records of 64 MiB", codec, got)
		}
	}
}

func TestValidateAllocatesNothing(t *testing.T) {
	for _, codec := range codecs {
		in, o := produced(t, codec, 100), options()
		got := testing.AllocsPerRun(200, func() {
			if _, err := batch.Validate(in, o); err != nil {
				t.Fatal(err)
			}
		})
		if codec == batch.None && got != 0 {
			t.Errorf("plain batch: %v allocations", got)
		}
		// A pool may be emptied at any time; that must not be the rule.
		if got > 2 {
			t.Errorf("%s: %v allocations for %d records", codec, got, in.Count())
		}
	}
}

func TestRecordsAllocatesNothingPerRecord(t *testing.T) {
	for _, codec := range codecs {
		in := produced(t, codec, 100)
		got := testing.AllocsPerRun(200, func() {
			for _, err := range in.Records(batch.Limits{}) {
				if err != nil {
					t.Fatal(err)
				}
			}
		})
		if got > 4 {
			t.Errorf("%s: %v allocations for %d records", codec, got, in.Count())
		}
	}
}
