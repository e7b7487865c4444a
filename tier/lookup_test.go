package tier

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/tier/objstore"
)

// firstAfter is the brute-force answer of a time lookup.
func (w *world) firstAfter(ts, from int64) (TimeOffset, bool) {
	for _, r := range w.records {
		if r.Offset >= from && r.Timestamp >= ts {
			return r, true
		}
	}
	return TimeOffset{}, false
}

func (w *world) maxTimestamp(from int64) (best TimeOffset, ok bool) {
	for _, r := range w.records {
		if r.Offset >= from && (!ok || r.Timestamp > best.Timestamp) {
			best, ok = r, true
		}
	}
	return best, ok
}

// drawWorld is a log with times in every disorder: ties, back-fills, times far
// ahead, markers between the data.
func drawWorld(t *rapid.T) *world {
	w := newWorld(rapid.Uint64().Draw(t, "seed"))
	w.value = rapid.SampledFrom([]int{1, 100, 20_000}).Draw(t, "value")
	w.codec = rapid.SampledFrom([]batch.Codec{batch.None, batch.Gzip, batch.Zstd}).Draw(t, "codec")
	w.noise = rapid.Bool().Draw(t, "noise")
	spread := rapid.SampledFrom([]int64{0, 1, 5, 1000}).Draw(t, "spread")
	step := rapid.SampledFrom([]int64{0, 1, 10, -3}).Draw(t, "step")
	jumps := rapid.Bool().Draw(t, "jumps")
	w.time = func(o int64) int64 {
		ts := 10_000 + o*step
		if spread > 0 {
			ts += w.rng.Int64N(spread)
		}
		if jumps && w.rng.IntN(40) == 0 {
			ts += 100_000 // a clock far ahead
		}
		return max(ts, 0)
	}
	for range rapid.IntRange(1, 6).Draw(t, "segments") {
		if rapid.IntRange(0, 3).Draw(t, "new leader") == 0 {
			w.epoch++
		}
		s := w.segment(rapid.IntRange(1, 12).Draw(t, "batches"), 15)
		if rapid.Bool().Draw(t, "abort") {
			w.abort(s, 7, s.base)
		}
	}
	return w
}

func TestLookupsEqualBruteForce(t *testing.T) {
	cfg := testConfig(t)
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		a := openTest(t, cfg, objstore.NewMem(0), "")
		defer closeTest(t, a)
		r := a.Partition(testPartition)
		ctx := context.Background()
		offload(t, r, w.epoch, w.segments...)

		for range 20 {
			from := rapid.Int64Range(0, w.next).Draw(rt, "from")
			ts := rapid.Int64Range(-1, 12_000).Draw(rt, "ts")
			if rapid.Bool().Draw(rt, "exact") {
				ts = w.records[rapid.IntRange(0, len(w.records)-1).Draw(rt, "record")].Timestamp
			}
			want, wantOK := w.firstAfter(ts, from)
			got, ok, err := r.OffsetForTime(ctx, ts, from)
			if err != nil || ok != wantOK || got != want {
				rt.Fatalf("first at %d from %d: %v %v %v, want %v %v", ts, from, got, ok, err, want, wantOK)
			}
			want, wantOK = w.maxTimestamp(from)
			got, ok, err = r.MaxTimestamp(ctx, from)
			if err != nil || ok != wantOK || got != want {
				rt.Fatalf("max from %d: %v %v %v, want %v %v", from, got, ok, err, want, wantOK)
			}
			upper := rapid.Int64Range(from, w.next+2).Draw(rt, "upper")
			checkAborted(rt, w, r, from, upper)
			if from < w.next {
				epoch, err := r.EpochAt(ctx, from)
				if want := w.epochAt(from); err != nil || epoch != want {
					rt.Fatalf("epoch at %d: %d %v, want %d", from, epoch, err, want)
				}
			}
		}
	})
}

func (w *world) epochAt(offset int64) int32 {
	for _, b := range w.batches {
		if b.NextOffset() > offset {
			return b.LeaderEpoch()
		}
	}
	return -1
}

func checkAborted(t *rapid.T, w *world, r *Remote, from, upper int64) {
	var want []batch.AbortedTxn
	for _, s := range w.segments {
		for _, x := range s.aborted {
			if x.LastOffset >= from && x.FirstOffset < upper {
				want = append(want, x)
			}
		}
	}
	got, err := r.AbortedTxns(context.Background(), from, upper)
	if err != nil || len(got) != len(want) {
		t.Fatalf("aborted in [%d, %d): %v %v, want %v", from, upper, got, err, want)
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("aborted in [%d, %d): %v, want %v", from, upper, got, want)
		}
	}
}
