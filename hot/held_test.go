package hot

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
)

// rarely has no checkpoint be made while a test runs.
func rarely(c *Config) { c.CheckpointInterval = time.Hour }

// TestDirectoryRemovedBeforeTheFirstCheckpointIsMissed acknowledges records, of a leader and of a follower, and removes the log's
// directory when the process has died, or the power has failed.
func TestDirectoryRemovedBeforeTheFirstCheckpointIsMissed(t *testing.T) {
	for _, power := range []bool{false, true} {
		for _, origin := range []Origin{Client, Follower} {
			mem := vfs.NewMem(1)
			s := openStore(t, mem, "data", rarely)
			l := openLog(t, s)
			b := records(3, 40, 1)
			if origin == Client {
				if err := l.AssignEpoch(7); err != nil {
					t.Fatal(err)
				}
			}
			b.SetLeaderEpoch(7)
			mustAppend(t, l, b, func(o *AppendOptions) { o.Origin, o.LeaderEpoch = origin, 7 })
			waitDurable(t, l, 3)
			dir, after := l.Dir(), mem
			if power {
				after = mem.CrashSeed(3)
			}
			s.Abandon()
			if err := after.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the next start knows, too
				s = openStore(t, after, "data", rarely)
				l = openLog(t, s)
				if _, epoch, lost := l.Lost(); !lost || epoch != 7 || l.Offsets().End != 0 {
					t.Fatalf("power %t, origin %d: lost %t of epoch %d", power, origin, lost, epoch)
				}
				s.Abandon()
			}
		}
	}
}

// TestDirectoryThatNeverHeldRecordsIsNotMissed loses one without records, and loses power at every step up to the first records that
// count: a directory that was never durable had nothing that anybody was told of.
func TestDirectoryThatNeverHeldRecordsIsNotMissed(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data", rarely)
	l := openLog(t, s)
	if err := l.AssignEpoch(7); err != nil {
		t.Fatal(err)
	}
	dir := l.Dir()
	s.Abandon()
	if err := mem.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, mem, "data", rarely)
	if _, _, lost := openLog(t, s).Lost(); lost {
		t.Fatal("nothing was appended, so nothing is lost")
	}
	s.Abandon()
	gone := 0
	for step := 0; ; step++ {
		mem := vfs.NewMem(uint64(step))
		faults := vfs.NewFaults(mem)
		s := openStore(t, faults, "data", rarely)
		var after *vfs.Mem
		faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpMkdir, vfs.OpOpen, vfs.OpWrite, vfs.OpSync, vfs.OpSyncDir, vfs.OpSyncFS}, Skip: step,
			Do: func() { after = mem.CrashSeed(uint64(step)) }})
		l := openLog(t, s)
		mustAppend(t, l, records(3, 40, 1))
		waitDurable(t, l, 3)
		s.Abandon()
		if after == nil {
			break
		}
		s = openStore(t, after, "data", rarely)
		there := s.Has(testPartition)
		if _, _, lost := openLog(t, s).Lost(); lost {
			t.Fatalf("step %d, directory there %t: records are missed that nobody was told of", step, there)
		}
		if !there {
			gone++
		}
		s.Abandon()
	}
	if gone == 0 {
		t.Fatal("the directory was durable from the beginning")
	}
}

// TestFirstRecordOfALaterEpochLeavesTheEarlierOne stops a follower after its first append failed:
// of a log whose journal does not say yet that it got records, because an earlier release wrote it, or because it begins anew.
func TestFirstRecordOfALaterEpochLeavesTheEarlierOne(t *testing.T) {
	for _, reset := range []bool{false, true} {
		mem := vfs.NewMem(1)
		faults := vfs.NewFaults(mem)
		s := openStore(t, faults, "data", rarely)
		l := openLog(t, s)
		want := lineage.Chain{{Epoch: 0, Start: 0}}
		if reset {
			if err := l.ResetTo(100, want, nil); err != nil {
				t.Fatal(err)
			}
		} else {
			followEpoch(t, l, 0, 5)
			closeStore(t, s)
			s = openStore(t, faults, "data", rarely)
			st := s.journal.live[keyOf(testPartition)]
			st.held = false
			if l = openLog(t, s); l.held {
				t.Fatal("the journal says that there are records")
			}
		}
		end := l.Offsets().End
		begun := end
		faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpWrite}, Path: "*.log", Err: syscall.EIO})
		b := records(3, 40, 1)
		b.SetBaseOffset(end)
		b.SetLeaderEpoch(1)
		if _, err := l.Append(b, AppendOptions{Origin: Follower, Now: 1}); !errors.Is(err, ErrOffline) {
			t.Fatal(err)
		}
		s.Abandon()
		for range 2 {
			s = openStore(t, mem, "data", rarely)
			l = openLog(t, s)
			if got := l.Lineage(); !got.Equal(want.Assign(1, begun)) || l.Offsets().End != end {
				t.Fatalf("reset %t: chain %v, end %d", reset, got, l.Offsets().End)
			}
			followEpoch(t, l, 1, 1)
			if got := l.Lineage(); len(got) != 2 || got[0] != want[0] {
				t.Fatalf("reset %t: chain %v", reset, got)
			}
			end = l.Offsets().End
			closeStore(t, s)
		}
	}
}
