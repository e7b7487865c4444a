package hot

import (
	"errors"
	"slices"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// The producers at an offset within a segment are those of all batches below it,
// whoever rolled where.
func TestProducersAtAnOffsetWithinASegment(t *testing.T) {
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s, smallSegments)
	want := map[int64][]ProducerState{}
	ps := newProducers()
	for i := range int32(60) {
		b := produced(int64(i%3), 0, i/3, 1, false)
		at := mustAppend(t, l, b).BaseOffset
		b.SetBaseOffset(at)
		ps.apply(b, nil, 0)
		want[b.NextOffset()] = ps.list()
	}
	waitDurable(t, l, l.Offsets().End)
	eventually(t, func() bool { s.finishSealed(); n := len(l.list()); return n > 2 && l.list()[n-2].is(segTrusted) })
	sealed, err := l.Sealed(0, 1<<60)
	if err != nil || len(sealed) < 2 {
		t.Fatalf("%d sealed segments, %v", len(sealed), err)
	}
	for _, seg := range sealed {
		for at := seg.BaseOffset() + 1; at <= seg.EndOffset(); at++ {
			b, err := seg.ProducersAt(at)
			if err != nil {
				t.Fatal(err)
			}
			got, named, err := decodeSnapshot(b)
			if err != nil || named != at {
				t.Fatalf("snapshot of %d is of %d: %v", at, named, err)
			}
			same := slices.EqualFunc(got.list(), want[at], func(a, b ProducerState) bool {
				return a.ProducerID == b.ProducerID && a.Epoch == b.Epoch && a.LastSequence == b.LastSequence
			})
			if !same {
				t.Fatalf("at %d: %+v, want %+v", at, got.list(), want[at])
			}
		}
		for _, at := range []int64{seg.BaseOffset(), seg.EndOffset() + 1} {
			if _, err := seg.ProducersAt(at); !errors.Is(err, ErrOffsetOutOfRange) {
				t.Errorf("producers at %d of [%d, %d): %v", at, seg.BaseOffset(), seg.EndOffset(), err)
			}
		}
	}
}
