package hot

import (
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// TestSegmentThatStartsFarBehindTheOneBeforeSurvivesPowerLoss has a follower of a compacted log skip more offsets than a segment
// can have, and loses what was not synced.
func TestSegmentThatStartsFarBehindTheOneBeforeSurvivesPowerLoss(t *testing.T) {
	for _, rolled := range []bool{false, true} {
		for seed := range uint64(32) {
			mem := vfs.NewMem(seed)
			s := openStore(t, mem, "data", rarely)
			l := openLog(t, s, compacted)
			next := int64(0)
			for _, skip := range []int64{0, 5, 3 << 30, 1 << 20, 1 << 32} {
				if rolled {
					if err := l.Roll(1); err != nil {
						t.Fatal(err)
					}
				}
				b := records(3, 40, 1)
				b.SetBaseOffset(next + skip)
				mustAppend(t, l, b, func(o *AppendOptions) { o.Origin = Follower })
				next = b.NextOffset()
			}
			waitDurable(t, l, next)
			after := mem.CrashSeed(seed)
			s.Abandon()
			l = openLog(t, openStore(t, after, "data", rarely), compacted)
			if got := readAll(t, l, 1<<20); l.Offsets().End != next || len(got) != 5 {
				t.Errorf("rolled %t, seed %d: the log ends at %d with %d batches, %d was acknowledged", rolled, seed, l.Offsets().End, len(got), next)
			}
		}
	}
}
