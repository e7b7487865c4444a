package hot

import (
	"errors"
	"syscall"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// TestNamesThatAFileOfTheDirectoryCouldNotSyncCarryNoRecords has the disk say once, to who puts a file of the data directory in
// its place, that names there are lost. A record in a directory that has such a name is not acknowledged: the power fails, and the
// directory may be gone.
func TestNamesThatAFileOfTheDirectoryCouldNotSyncCarryNoRecords(t *testing.T) {
	for name, meet := range map[string]func(s *Store){
		"the place of the scrubber": func(s *Store) { s.saveScrubPlace(scrubPlace{}) },
		"the broker epoch":          func(s *Store) { _ = s.SetBrokerEpoch(3) },
		"the kernel's run":          func(s *Store) { s.noteBoot() },
		"the journal":               func(s *Store) { _ = s.journal.setVersion(journalVersionCut) },
		"the shared log":            func(s *Store) { _ = s.zeroShared("data/"+sharedName, sharedBytesMin) },
	} {
		acked := 0
		for seed := range uint64(16) {
			mem := vfs.NewMem(seed)
			faults := vfs.NewFaults(mem)
			s := openStore(t, faults, "data", rarely)
			l := openLog(t, s)
			s.newDir() // no round has made it durable
			faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSyncDir}, Path: "data", Err: syscall.EIO, Unwritten: true})
			meet(s)
			_, err := l.Append(records(3, 40, 1), AppendOptions{Now: 1})
			if err == nil {
				eventually(t, func() bool { return l.Offsets().Durable == 3 || l.Err() != nil })
			}
			if err == nil && l.Err() == nil {
				acked++
			} else if err != nil && !errors.Is(err, ErrOffline) {
				t.Fatal(err)
			}
			after := mem.CrashSeed(seed)
			s.Abandon()
			s = openStore(t, after, "data", rarely)
			if end := openLog(t, s).Offsets().End; err == nil && end < 3 && acked > 0 {
				t.Errorf("%s, seed %d: the log ends at %d, 3 were acknowledged", name, seed, end)
			}
			s.Abandon()
		}
		if acked > 0 {
			t.Errorf("%s: %d records of 16 count on a name that was never durable", name, acked)
		}
	}
}

// TestLogThatCouldNotSyncItsNamesIsOffline has the disk say once, to who puts a file of a log's directory in its place, that names
// there are lost.
func TestLogThatCouldNotSyncItsNamesIsOffline(t *testing.T) {
	for skip := range 12 {
		mem := vfs.NewMem(1)
		faults := vfs.NewFaults(mem)
		s := openStore(t, faults, "data", rarely)
		l := openLog(t, s)
		rule := faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSyncDir}, Path: "data/*", Err: syscall.EIO, Unwritten: true, Skip: skip})
		for epoch := range int32(4) {
			_ = l.AssignEpoch(epoch)
			_, _ = l.Append(records(3, 40, 1), AppendOptions{Now: 1, LeaderEpoch: epoch})
			_ = l.Roll(1)
			_ = s.checkpoint([]*Log{l}, false)
		}
		s.syncer.flush() // a round that has met it tells the log
		if rule.Hits() > 0 && l.Err() == nil {
			t.Errorf("sync %d of the log's directory has failed, and the log goes on", skip)
		}
		s.Abandon()
	}
}

// TestNamesOfTheProcessBeforeAreMadeDurable has a process die before the name of a log's directory is durable, and the next one
// start on a full disk, where the journal is not written anew.
func TestNamesOfTheProcessBeforeAreMadeDurable(t *testing.T) {
	for seed := range uint64(16) {
		mem := vfs.NewMem(seed)
		faults := vfs.NewFaults(mem)
		s := openStore(t, faults, "data", rarely)
		openLog(t, s)
		s.Abandon()
		full := faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpWrite}, Path: "journal.tmp", Err: syscall.ENOSPC, Count: -1})
		s = openStore(t, faults, "data", rarely)
		if full.Hits() == 0 {
			t.Fatal("the disk was not full")
		}
		full.Remove()
		l := openLog(t, s)
		mustAppend(t, l, records(3, 40, 1))
		waitDurable(t, l, 3)
		after := mem.CrashSeed(seed)
		s.Abandon()
		s = openStore(t, after, "data", rarely)
		if end := openLog(t, s).Offsets().End; end != 3 {
			t.Errorf("seed %d: the log ends at %d, 3 were acknowledged", seed, end)
		}
		s.Abandon()
	}
}
