package hot

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
)

// ofEpochs gives batches that follow each other from an offset on, one of each epoch.
func ofEpochs(from int64, epochs ...int32) (b batch.Batch) {
	for _, epoch := range epochs {
		one := records(3, 40, 1)
		one.SetBaseOffset(from)
		one.SetLeaderEpoch(epoch)
		from = one.NextOffset()
		b = append(b, one...)
	}
	return b
}

// TestEpochOfARefusedAppendIsNotHeldAgainstTheEarlierOne has a full disk refuse, whole or in part, what a follower is sent of later
// epochs. The next leader has more records of the epoch that the log has: they are acknowledged, a checkpoint comes or not, and the
// process ends, or the power fails.
func TestEpochOfARefusedAppendIsNotHeldAgainstTheEarlierOne(t *testing.T) {
	for _, c := range []struct {
		name  string
		op    vfs.Op
		sent  []int32
		skip  int
		wrote lineage.Chain // of what was sent
	}{
		{"the write", vfs.OpWrite, []int32{1}, 0, nil},
		{"the next segment", vfs.OpOpen, []int32{1}, 0, nil},
		{"the second write", vfs.OpWrite, []int32{0, 1}, 1, nil},
		{"the second write, in a later epoch", vfs.OpWrite, []int32{1, 2}, 1, lineage.Chain{{Epoch: 1, Start: 3}}},
	} {
		for kind := range 4 {
			power, checkpoint := kind&1 != 0, kind&2 != 0
			t.Run(fmt.Sprintf("%s/%d", c.name, kind), func(t *testing.T) {
				mem := vfs.NewMem(1)
				faults := vfs.NewFaults(mem)
				s := openStore(t, faults, "data", rarely)
				one := int64(len(ofEpochs(0, 0)))
				small := func(l *LogConfig) { l.SegmentBytes = one } // each batch has a segment
				l := openLog(t, s, small)
				followEpoch(t, l, 0, 1)
				full := faults.Inject(vfs.Rule{Ops: []vfs.Op{c.op}, Path: "*.log", Skip: c.skip, Err: syscall.ENOSPC})
				_, err := l.Append(ofEpochs(3, c.sent...), AppendOptions{Origin: Follower, Now: 1})
				if full.Hits() != 1 || !errors.Is(err, ErrDiskFull) && !isDiskEnd(err) || l.Err() != nil {
					t.Fatalf("%v; log: %v", err, l.Err())
				}
				s.measure() // there is space again
				want := append(lineage.Chain{{Epoch: 0, Start: 0}}, c.wrote...)
				followEpoch(t, l, want.Latest(), 3)
				end := l.Offsets().End
				l.SetHighWatermark(end)
				s.journalWatermarks()
				if checkpoint {
					if err := s.checkpoint([]*Log{l}, false); err != nil {
						t.Fatal(err)
					}
					followEpoch(t, l, want.Latest(), 1)
					end = l.Offsets().End
				}
				after := mem.Clone()
				if power {
					after = mem.CrashSeed(uint64(kind))
				}
				s.Abandon()
				for range 2 {
					s = openStore(t, after, "data", rarely)
					l = openLog(t, s, small)
					if got := l.Lineage(); !got.Equal(want) || l.Offsets().End != end || l.Err() != nil {
						t.Fatalf("chain %v, end %d, %v; want %v, %d", got, l.Offsets().End, l.Err(), want, end)
					}
					checkDense(t, readAll(t, l, 1<<20), 0, end)
					closeStore(t, s)
				}
			})
		}
	}
}

// TestWatermarkJournaledBetweenTwoEpochsOfAnAppendKnowsTheLater journals the watermark while an append that begins two epochs has
// begun one.
func TestWatermarkJournaledBetweenTwoEpochsOfAnAppendKnowsTheLater(t *testing.T) {
	mem := vfs.NewMem(1)
	faults := vfs.NewFaults(mem)
	s := openStore(t, faults, "data", rarely)
	one := int64(len(ofEpochs(0, 0)))
	l := openLog(t, s, func(l *LogConfig) { l.SegmentBytes = one })
	followEpoch(t, l, 0, 1)
	var at []lineage.Entry
	faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpWrite}, Path: "*.log", Count: -1, Do: func() {
		l.SetHighWatermark(l.Offsets().End)
		s.journalWatermarks()
		st, _ := s.journal.state(keyOf(l.part))
		at = append(at, st.epoch)
	}})
	mustAppend(t, l, ofEpochs(3, 1, 2), func(o *AppendOptions) { o.Origin = Follower })
	later := lineage.Entry{Epoch: 2, Start: 6}
	if want := []lineage.Entry{later, later}; !slices.Equal(at, want) {
		t.Fatalf("the journal had %v, want %v", at, want)
	}
	if l.told.Load() != nil {
		t.Fatal("the append is over")
	}
}
