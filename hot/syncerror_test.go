package hot

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// checkAfterCrashes opens what many crashes of this moment leave.
func checkAfterCrashes(t *testing.T, mem *vfs.Mem, l *Log, end int64) {
	t.Helper()
	for seed := range uint64(30) {
		s := sharedStore(t, mem.CrashSeed(seed))
		again, err := s.Log(l.part, DefaultLogConfig())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, lost := again.Lost(); lost || again.Offsets().End < end {
			t.Fatalf("seed %d: lost %v, %+v, want the end at %d", seed, lost, again.Offsets(), end)
		}
		s.Abandon()
	}
}

// The second sync of a file says nothing of what the first could not write: the
// shared log keeps the only copy, whoever asks how often.
func TestFileWhoseSyncFailedIsNeverInPlace(t *testing.T) {
	for name, broken := range map[string]func(*Store, *Log){
		"round":        func(s *Store, _ *Log) { s.syncer.flush() },
		"before a cut": func(_ *Store, l *Log) { _ = l.voidShared() },
	} {
		mem := vfs.NewMem(21)
		faults := vfs.NewFaults(mem)
		s, l := behindStore(t, faults, 9)
		fault := faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync}, Path: "*" + logExt, Err: syscall.EIO, Unwritten: true})
		broken(s, l)
		if fault.Hits() != 1 || !errors.Is(l.Err(), ErrOffline) {
			t.Fatalf("%s: %d hits, %v", name, fault.Hits(), l.Err())
		}
		for range 3 {
			s.syncer.flush()
		}
		checkAfterCrashes(t, mem, l, 10)
		s.Abandon()
	}
}

// A sync of the file system that fails beside a round takes every log offline; the
// round's own does not see the error any more.
func TestFailedSyncOfTheFileSystemLeavesNothingInPlace(t *testing.T) {
	mem := vfs.NewMem(22)
	s, _ := behindStore(t, mem, 9)
	defer s.Abandon()
	s.failAll("sync", syscall.EIO)
	for range 3 {
		s.syncer.flush()
	}
	if len(s.syncer.behind) != 1 || !s.syncer.stuck {
		t.Fatal("what is behind counts as in place")
	}
}

// inOneRound has what append does made durable by one round.
func inOneRound(t *testing.T, s *Store, faults *vfs.Faults, other *Log, appends func()) {
	t.Helper()
	entered, leave := make(chan struct{}), make(chan struct{})
	faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync}, Path: sharedName, Do: func() { close(entered); <-leave }})
	mustAppend(t, other, records(1, 50, 1))
	<-entered
	appends()
	close(leave)
	s.syncer.await(false)
}

// When the shared log finds no space all is synced in its own files; what failed
// there before, in the same round, has failed.
func TestErrorOfAFileOutlivesTheShortageOfTheSharedLog(t *testing.T) {
	mem := vfs.NewMem(23)
	faults := vfs.NewFaults(mem)
	s := sharedStore(t, faults)
	defer s.Abandon()
	logs := make([]*Log, 3)
	for i := range logs {
		l, err := s.Log(scalePartition(i), DefaultLogConfig())
		if err != nil {
			t.Fatal(err)
		}
		logs[i] = l
		appendDurable(t, l, 2)
	}
	a, b := logs[0], logs[1]
	inOneRound(t, s, faults, logs[2], func() {
		faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync}, Path: filepath.Join(b.dir, "*"+logExt), Err: syscall.EIO, Unwritten: true})
		faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpWrite}, Path: sharedName, Err: syscall.ENOSPC})
		if err := b.Roll(0); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, b, records(1, 50, 1))
		mustAppend(t, a, records(1, 50, 1))
	})
	if a.Err() != nil || a.Offsets().Durable != 3 || !s.syncer.stuck {
		t.Fatalf("%v, %+v", a.Err(), a.Offsets())
	}
	if !errors.Is(b.Err(), ErrOffline) || b.Offsets().Durable != 2 {
		t.Fatalf("%v, %+v", b.Err(), b.Offsets())
	}
}

// A roll may seal a segment after its round was chosen to go into the shared log.
func TestSegmentOfASharedRoundIsNotSynced(t *testing.T) {
	s := sharedStore(t, vfs.NewMem(24))
	defer s.Abandon()
	l := openLog(t, s)
	appendDurable(t, l, 3)
	y, seg := s.syncer, l.active()
	y.await(false)
	h, err := s.files.acquire(seg, false)
	if err != nil {
		t.Fatal(err)
	}
	y.files = append(y.files[:0], unsynced{seg, h})
	y.spans = append(y.spans[:0], syncSpan{log: l, to: 1, shared: true})
	y.sealed = append(y.sealed[:0], true)
	y.publish(nil)
	if seg.is(segSynced) {
		t.Fatal("a segment counts as synced that is durable by the shared log alone")
	}
}

// After a sync of the file system each file that is behind is asked by itself: what
// the kernel could not write of it long before is told to nobody else.
func TestSyncOfTheFileSystemAsksEachFile(t *testing.T) {
	mem := vfs.NewMem(25)
	faults := vfs.NewFaults(mem)
	s, l := behindStore(t, faults, 9)
	defer s.Abandon()
	s.config.SyncFilesMax = 0
	before := faults.Calls(vfs.OpSyncFS)
	fault := faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync}, Path: "*" + logExt, Err: syscall.EIO, Unwritten: true})
	s.syncer.flush()
	if faults.Calls(vfs.OpSyncFS) == before {
		t.Fatal("the file system was not asked")
	}
	if fault.Hits() != 1 || !errors.Is(l.Err(), ErrOffline) {
		t.Fatalf("%d hits, %v", fault.Hits(), l.Err())
	}
	s.syncer.flush()
	if len(s.syncer.behind) != 1 {
		t.Fatal("a file whose bytes the kernel could not write counts as in place")
	}
}

// What is behind is written back by and by, so that little of it is left for the
// round that must wait for all.
func TestWriteBackIsAskedForBeforeTheFileIsFull(t *testing.T) {
	faults := vfs.NewFaults(vfs.NewMem(26))
	s := sharedStore(t, faults)
	defer s.Abandon()
	l := openLog(t, s)
	appendDurable(t, l, 1)
	var left []int64
	for s.stats.SharedRenewed.Load() == 0 {
		before := faults.Calls(vfs.OpSyncFS)
		appendDurable(t, l, 1)
		s.syncer.await(false) // the round is over
		eventually(t, func() bool { return !s.syncer.hinting.Load() })
		if faults.Calls(vfs.OpSyncFS) > before && s.stats.SharedRenewed.Load() == 0 {
			left = append(left, s.syncer.hinted)
		}
	}
	if len(left) < 3 || left[0] > sharedBytesMin/2 || left[1] > left[0]/2 || left[2] > left[1]/2 {
		t.Fatalf("asked for with room of %v bytes in a file of %d", left, sharedBytesMin)
	}
}
