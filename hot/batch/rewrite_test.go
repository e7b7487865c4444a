package batch_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/varvelog/varve/hot/batch"
)

func keepAll(batch.Record) bool { return true }

func TestRewriteKeepsUntouchedBatchVerbatim(t *testing.T) {
	for _, codec := range codecs {
		in := build(t, batch.Options{BaseOffset: 40, Codec: codec}, sample(50))
		res, err := batch.Rewrite(in, keepAll, batch.RewriteOptions{DeleteHorizon: batch.NoTimestamp})
		if err != nil {
			t.Fatal(err)
		}
		if &res.Batch[0] != &in[0] || res.Kept != 50 || res.Removed != 0 {
			t.Fatalf("%s: rewrote a batch that keeps all its records", codec)
		}
	}
}

func TestRewriteKeepsOffsetsAndProducer(t *testing.T) {
	for _, codec := range codecs {
		recs := sample(50)
		in := build(t, batch.Options{BaseOffset: 1000, LeaderEpoch: 4, Codec: codec, Transactional: true,
			Producer: &batch.Producer{ID: 77, Epoch: 2, Sequence: 1<<31 - 10}}, recs)
		res, err := batch.Rewrite(in, func(r batch.Record) bool { return r.Offset%10 == 3 }, batch.RewriteOptions{DeleteHorizon: batch.NoTimestamp})
		if err != nil {
			t.Fatal(err)
		}
		b := res.Batch
		if res.Kept != 5 || res.Removed != 45 || b.Count() != 5 || b.VerifyCRC() != nil {
			t.Fatalf("%s: %+v", codec, res)
		}
		if b.BaseOffset() != 1000 || b.LastOffset() != 1049 || b.LeaderEpoch() != 4 || b.ProducerID() != 77 || b.ProducerEpoch() != 2 ||
			b.BaseSequence() != in.BaseSequence() || b.LastSequence() != in.LastSequence() || b.Codec() != codec || !b.Transactional() {
			t.Fatalf("%s: header fields changed", codec)
		}
		var want []rec
		best := rec{timestamp: -1}
		for _, r := range recs {
			if r.offset += 1000; r.offset%10 == 3 {
				want = append(want, r)
				if r.timestamp > best.timestamp {
					best = r
				}
			}
		}
		sameRecords(t, readAll(t, b), want)
		if res.MaxTimestamp != best.timestamp || res.OffsetOfMax != best.offset || b.MaxTimestamp() != best.timestamp {
			t.Fatalf("%s: max timestamp %d at %d, want %d at %d", codec, res.MaxTimestamp, res.OffsetOfMax, best.timestamp, best.offset)
		}
	}
}

func TestRewriteSetsDeleteHorizonOnce(t *testing.T) {
	recs := sample(5)
	in := build(t, batch.Options{}, recs)
	res, err := batch.Rewrite(in, keepAll, batch.RewriteOptions{DeleteHorizon: now})
	if err != nil {
		t.Fatal(err)
	}
	if h, ok := res.Batch.DeleteHorizon(); !ok || h != now {
		t.Fatalf("horizon %d, %v", h, ok)
	}
	sameRecords(t, readAll(t, res.Batch), recs) // timestamps are what they were
	res, err = batch.Rewrite(res.Batch, func(r batch.Record) bool { return r.Offset > 1 }, batch.RewriteOptions{DeleteHorizon: now + 5})
	if err != nil {
		t.Fatal(err)
	}
	if h, ok := res.Batch.DeleteHorizon(); !ok || h != now {
		t.Fatalf("horizon after the second pass: %d, %v", h, ok)
	}
	sameRecords(t, readAll(t, res.Batch), recs[2:])
}

func TestRewriteKeepsAppendTime(t *testing.T) {
	o := options()
	o.TimestampType = batch.LogAppendTime
	v, err := batch.Validate(build(t, batch.Options{}, sample(5)), o)
	if err != nil {
		t.Fatal(err)
	}
	res, err := batch.Rewrite(v.Bytes, func(r batch.Record) bool { return r.Offset == 4 }, batch.RewriteOptions{DeleteHorizon: batch.NoTimestamp})
	if err != nil {
		t.Fatal(err)
	}
	if got := readAll(t, res.Batch); !res.Batch.LogAppendTime() || len(got) != 1 || got[0].timestamp != o.Now {
		t.Fatalf("%v", got)
	}
}

func TestRewriteOfNothingLeft(t *testing.T) {
	in := build(t, batch.Options{BaseOffset: 7, LeaderEpoch: 3, Codec: batch.LZ4, Producer: &batch.Producer{ID: 5, Epoch: 1, Sequence: 9}}, sample(4))
	res, err := batch.Rewrite(in, func(batch.Record) bool { return false }, batch.RewriteOptions{DeleteHorizon: batch.NoTimestamp})
	if err != nil || res.Batch != nil || res.Removed != 4 {
		t.Fatalf("%+v, %v", res, err)
	}
	e := batch.Empty(in)
	framed, rest, err := batch.Next(e)
	if err != nil || len(rest) != 0 || framed.VerifyCRC() != nil {
		t.Fatalf("empty batch: %v", err)
	}
	if e.Count() != 0 || e.BaseOffset() != 7 || e.LastOffset() != 10 || e.LastSequence() != in.LastSequence() || e.ProducerEpoch() != 1 || e.LeaderEpoch() != 3 || e.MaxTimestamp() != in.MaxTimestamp() {
		t.Fatal("empty batch lost header fields")
	}
	if got := readAll(t, e); len(got) != 0 {
		t.Fatalf("%d records", len(got))
	}
}

func TestRewriteReportsCorruption(t *testing.T) {
	in := bytes.Clone(build(t, batch.Options{Codec: batch.Zstd}, sample(50)))
	in[batch.HeaderSize+20] ^= 0xff
	if _, err := batch.Rewrite(in, keepAll, batch.RewriteOptions{}); !errors.Is(err, batch.ErrCorrupt) {
		t.Fatal(err)
	}
}

func TestFindTimestampIsExact(t *testing.T) {
	for _, codec := range codecs {
		recs := sample(200)
		in := build(t, batch.Options{BaseOffset: 90, Codec: codec}, recs)
		for target := recs[0].timestamp - 2; target < recs[0].timestamp+100; target++ {
			wantOffset, wantTime, want := int64(-1), int64(-1), false
			for _, r := range recs {
				if r.timestamp >= target {
					wantOffset, wantTime, want = r.offset+90, r.timestamp, true
					break
				}
			}
			offset, ts, found, err := batch.FindTimestamp(in, target, batch.Limits{})
			if err != nil || offset != wantOffset || ts != wantTime || found != want {
				t.Fatalf("%s: %d: got %d %d %v %v, want %d %d %v", codec, target, offset, ts, found, err, wantOffset, wantTime, want)
			}
		}
		offset, ts, found, err := batch.FindMaxTimestamp(in, batch.Limits{})
		if err != nil || !found || offset != 96 || ts != in.MaxTimestamp() {
			t.Fatalf("%s: max %d at %d, %v %v", codec, ts, offset, found, err)
		}
	}
}

func TestFindTimestampOfAppendTimeBatch(t *testing.T) {
	o := options()
	o.TimestampType = batch.LogAppendTime
	v, err := batch.Validate(build(t, batch.Options{}, sample(5)), o)
	if err != nil {
		t.Fatal(err)
	}
	offset, ts, found, err := batch.FindTimestamp(v.Bytes, o.Now, batch.Limits{})
	if err != nil || !found || offset != 0 || ts != o.Now {
		t.Fatalf("%d %d %v %v", offset, ts, found, err)
	}
	if _, _, found, _ := batch.FindTimestamp(v.Bytes, o.Now+1, batch.Limits{}); found {
		t.Fatal("found a record later than the append time")
	}
}

func TestEndTxnRoundTrips(t *testing.T) {
	for _, m := range []batch.Marker{{Type: batch.Commit, CoordinatorEpoch: 12}, {Type: batch.Abort, CoordinatorEpoch: 0}} {
		b := batch.EndTxn(m, 4000, 7, now)
		if b.VerifyCRC() != nil || !b.Control() || !b.Transactional() || b.ProducerID() != 4000 || b.ProducerEpoch() != 7 || b.BaseSequence() != -1 || b.Count() != 1 {
			t.Fatal("header of the marker")
		}
		got, ok, err := b.EndTxnMarker()
		if err != nil || !ok || got != m {
			t.Fatalf("%v %v %v", got, ok, err)
		}
	}
	if _, ok, err := build(t, batch.Options{}, sample(1)).EndTxnMarker(); ok || err != nil {
		t.Fatal("data taken for a marker")
	}
	leaderChange := batch.ControlBatch(batch.Options{}, now, []byte{0, 0, 0, 2}, []byte{0})
	if _, ok, err := leaderChange.EndTxnMarker(); ok || err != nil {
		t.Fatal("another control type taken for a marker")
	}
	short := batch.ControlBatch(batch.Options{}, now, []byte{0, 0, 0, 1}, []byte{0, 0})
	if _, _, err := short.EndTxnMarker(); !errors.Is(err, batch.ErrCorrupt) {
		t.Fatalf("short marker: %v", err)
	}
	if _, err := batch.ParseControl([]byte{0xff, 0xff, 0, 1}); !errors.Is(err, batch.ErrInvalidRecord) {
		t.Fatal("negative version accepted")
	}
}

func TestSequencesWrap(t *testing.T) {
	b := build(t, batch.Options{Producer: &batch.Producer{ID: 1, Sequence: 1<<31 - 2}}, sample(3))
	if b.LastSequence() != 0 {
		t.Fatalf("last sequence %d after the largest int32", b.LastSequence())
	}
}
