package hot

import (
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// TestLogWhoseOldSegmentsAreDeletedOpensWithoutTheNameOfTheNext has retention take all that the recovery point is about, and power
// loss the name of the segment that follows, of which nothing was synced.
func TestLogWhoseOldSegmentsAreDeletedOpensWithoutTheNameOfTheNext(t *testing.T) {
	for seed := range uint64(64) {
		mem := vfs.NewMem(seed)
		faults := vfs.NewFaults(mem)
		release := make(chan struct{})
		s := openStore(t, faults, "data", neverSynced)
		l := openLog(t, s)
		end := mustAppend(t, l, records(3, 40, 1)).LastOffset + 1
		l.SetHighWatermark(end)
		if err := s.checkpoint([]*Log{l}, false); err != nil {
			t.Fatal(err)
		}
		faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync}, Path: "*.log", Count: -1, Do: func() { <-release }})
		if err := l.Roll(1); err != nil {
			t.Fatal(err)
		}
		if err := l.AdvanceLogStart(end); err != nil {
			t.Fatal(err)
		}
		if r, err := l.Retain(1); err != nil || r.Segments != 1 {
			t.Fatalf("%+v, %v", r, err)
		}
		after := mem.CrashSeed(seed)
		close(release)
		s.Abandon()
		l = openLog(t, openStore(t, after, "data", neverSynced))
		if o := l.Offsets(); l.Err() != nil || o.LogStart != end || o.End != end {
			t.Errorf("seed %d: %+v: %v", seed, o, l.Err())
		}
	}
}
