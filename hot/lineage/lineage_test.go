package lineage_test

import (
	"math/rand/v2"
	"testing"

	"github.com/varvelog/varve/hot/lineage"
)

type chain = lineage.Chain

func wantChain(t *testing.T, what string, got, want chain) {
	t.Helper()
	if !got.Equal(want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

func TestAssignAppendsAndDropsContradictions(t *testing.T) {
	var c chain
	c = c.Assign(0, 0).Assign(3, 100).Assign(3, 150).Assign(5, 200)
	wantChain(t, "assign", c, chain{{0, 0}, {3, 100}, {5, 200}})
	wantChain(t, "epoch without records gives way", c.Assign(6, 200), chain{{0, 0}, {3, 100}, {6, 200}})
	wantChain(t, "later offsets give way", c.Assign(7, 120), chain{{0, 0}, {3, 100}, {7, 120}})
	wantChain(t, "later epochs give way", c.Assign(4, 300), chain{{0, 0}, {3, 100}, {4, 300}})
	wantChain(t, "same epoch lower", c.Assign(5, 150), chain{{0, 0}, {3, 100}, {5, 150}})
	wantChain(t, "no epoch", c.Assign(-1, 300), c)
}

func TestMethodsLeaveReceiverAlone(t *testing.T) {
	c := chain{{0, 0}, {3, 100}, {5, 200}}
	a := c.TruncateEnd(150)
	a = a.Assign(9, 150)
	_ = c.TruncateEnd(150).Assign(8, 140)
	_ = c.TruncateStart(120)
	_ = c.Slice(50, 250)
	wantChain(t, "receiver", c, chain{{0, 0}, {3, 100}, {5, 200}})
	wantChain(t, "other result", a, chain{{0, 0}, {3, 100}, {9, 150}})
}

func TestEndOffsetFor(t *testing.T) {
	c := chain{{2, 10}, {3, 100}, {5, 200}}
	for _, q := range []struct {
		epoch, wantEpoch int32
		wantEnd          int64
	}{
		{5, 5, 300}, {3, 3, 200}, {4, 3, 200}, {2, 2, 100},
		{1, 1, 10}, {0, 0, 10},
		{6, -1, -1}, {-1, -1, -1},
	} {
		epoch, end := c.EndOffsetFor(q.epoch, 300)
		if epoch != q.wantEpoch || end != q.wantEnd {
			t.Errorf("end of epoch %d: (%d, %d), want (%d, %d)", q.epoch, epoch, end, q.wantEpoch, q.wantEnd)
		}
	}
	if epoch, end := (chain)(nil).EndOffsetFor(0, 5); epoch != -1 || end != -1 {
		t.Errorf("empty chain: (%d, %d)", epoch, end)
	}
}

func TestEpochAt(t *testing.T) {
	c := chain{{2, 10}, {3, 100}}
	for offset, want := range map[int64]int32{9: -1, 10: 2, 99: 2, 100: 3, 1 << 40: 3} {
		if got := c.EpochAt(offset); got != want {
			t.Errorf("epoch at %d: %d, want %d", offset, got, want)
		}
	}
	if c.Before(3) != 2 || c.Before(2) != -1 || c.Before(9) != 3 {
		t.Error("epoch before")
	}
	if s, ok := c.StartOf(3); s != 100 || !ok {
		t.Error("start of 3")
	}
	if _, ok := c.StartOf(1); ok {
		t.Error("start of an unknown epoch")
	}
}

func TestTruncate(t *testing.T) {
	c := chain{{2, 10}, {3, 100}, {5, 200}}
	wantChain(t, "end inside", c.TruncateEnd(150), chain{{2, 10}, {3, 100}})
	wantChain(t, "end at a start", c.TruncateEnd(100), chain{{2, 10}})
	wantChain(t, "end below all", c.TruncateEnd(10), chain{})
	wantChain(t, "end above all", c.TruncateEnd(201), c)
	wantChain(t, "start inside", c.TruncateStart(150), chain{{3, 150}, {5, 200}})
	wantChain(t, "start at a start", c.TruncateStart(100), chain{{3, 100}, {5, 200}})
	wantChain(t, "start below all", c.TruncateStart(5), c)
	wantChain(t, "start above all", c.TruncateStart(900), chain{{5, 900}})
	wantChain(t, "slice", c.Slice(150, 200), chain{{3, 150}})
}

func TestWithinComparesTheSharedPart(t *testing.T) {
	c := chain{{1, 50}, {3, 100}, {5, 200}}
	for _, q := range []struct {
		name       string
		seg        chain
		start, end int64
		want       bool
	}{
		{"same", chain{{1, 60}, {3, 100}}, 60, 150, true},
		{"its own chain is longer than the segment", chain{{0, 0}, {1, 50}, {3, 100}, {5, 200}}, 60, 150, true},
		{"abandoned epoch", chain{{1, 60}, {2, 90}}, 60, 150, false},
		{"same epochs, other border", chain{{1, 60}, {3, 110}}, 60, 150, false},
		{"extends past a later truncation", chain{{3, 100}}, 100, 250, false},
		{"wholly below the known start", chain{{0, 0}}, 0, 50, true},
		{"across the known start", chain{{0, 0}, {1, 40}, {3, 100}}, 0, 150, true},
		{"later epoch below the known start", chain{{0, 0}, {4, 20}}, 0, 50, false},
		{"does not say", chain{{3, 120}}, 100, 150, false},
		{"nothing known", nil, 100, 150, false},
		{"no offsets", nil, 100, 100, true},
	} {
		if got := c.Within(q.seg, q.start, q.end); got != q.want {
			t.Errorf("%s: %v", q.name, got)
		}
	}
	if (chain)(nil).Within(chain{{0, 0}}, 0, 10) {
		t.Error("an empty history vouches for nothing")
	}
}

func TestMergeJoinsArchiveAndLog(t *testing.T) {
	for _, q := range []struct {
		name               string
		newer, older, want chain
		ok                 bool
	}{
		{"disjoint", chain{{3, 100}}, chain{{0, 0}, {2, 40}}, chain{{0, 0}, {2, 40}, {3, 100}}, true},
		{"trimmed inside an epoch", chain{{2, 80}, {3, 100}}, chain{{0, 0}, {2, 40}}, chain{{0, 0}, {2, 40}, {3, 100}}, true},
		{"overlap", chain{{2, 40}, {3, 100}}, chain{{0, 0}, {2, 40}, {3, 100}}, chain{{0, 0}, {2, 40}, {3, 100}}, true},
		{"nothing older", chain{{3, 100}}, nil, chain{{3, 100}}, true},
		{"nothing newer", nil, chain{{3, 100}}, chain{{3, 100}}, true},
	} {
		got, ok := q.newer.Merge(q.older)
		if ok != q.ok || !got.Equal(q.want) {
			t.Errorf("%s: %q %v, want %q", q.name, got, ok, q.want)
		}
	}
}

// TestChainAgreesWithOffsetByOffsetModel drives random assignments and cuts
// beside a model that stores the epoch of every single offset.
func TestChainAgreesWithOffsetByOffsetModel(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var c chain
		var epochs []int32 // of offset start+i
		start, epoch := int64(0), int32(0)
		for range 60 {
			switch rng.IntN(5) {
			case 0:
				epoch += int32(1 + rng.IntN(2))
				c = c.Assign(epoch, start+int64(len(epochs)))
			case 1:
				keep := rng.IntN(len(epochs) + 1)
				epochs = epochs[:keep]
				c = c.TruncateEnd(start + int64(keep))
				if l := c.Latest(); l >= 0 && rng.IntN(2) == 0 {
					epoch = max(epoch, l)
				}
				epoch++
				c = c.Assign(epoch, start+int64(keep))
			case 2:
				drop := rng.IntN(len(epochs) + 1)
				epochs = epochs[drop:]
				start += int64(drop)
				c = c.TruncateStart(start)
			default:
				if len(c) == 0 {
					c = c.Assign(epoch, start+int64(len(epochs)))
				}
				for range rng.IntN(20) {
					epochs = append(epochs, c.Latest())
				}
			}
			if !c.Valid() {
				t.Fatalf("seed %d: %q is not valid", seed, c)
			}
			for i, want := range epochs {
				if got := c.EpochAt(start + int64(i)); got != want {
					t.Fatalf("seed %d: offset %d has epoch %d in %q, want %d", seed, start+int64(i), got, c, want)
				}
			}
			end := start + int64(len(epochs))
			for i, e := range epochs {
				if i+1 < len(epochs) && epochs[i+1] == e {
					continue
				}
				want := start + int64(i) + 1
				if i+1 == len(epochs) && e == c.Latest() {
					want = end
				}
				gotEpoch, got := c.EndOffsetFor(e, end)
				if gotEpoch != e || got != want {
					t.Fatalf("seed %d: end of epoch %d is (%d, %d) in %q, want %d", seed, e, gotEpoch, got, c, want)
				}
			}
			if !c.Within(c.Slice(start, end), start, end) {
				t.Fatalf("seed %d: %q is not within itself", seed, c)
			}
		}
	}
}
