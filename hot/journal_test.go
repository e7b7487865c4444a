package hot

import (
	"errors"
	"syscall"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// cutJournal is a journal of version 2 in a data directory of its own.
func cutJournal(t *testing.T, mem *vfs.Mem) *journal {
	t.Helper()
	j := newJournal(t, mem)
	if err := j.setVersion(journalVersionCut); err != nil {
		t.Fatal(err)
	}
	return j
}

// newJournal is a journal in a data directory of its own.
func newJournal(t *testing.T, fs vfs.FS) *journal {
	t.Helper()
	if err := fs.MkdirAll("data"); err != nil {
		t.Fatal(err)
	}
	j, _, err := openJournal(fs, "data")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// heldSync begins a sync of a journal, whose disk waits in it until release is called and answers with an error then, if there is
// one. done gives what the sync says.
func heldSync(j *journal, disk *vfs.Faults, answer error) (release func(), done chan error) {
	reached, gate := make(chan struct{}), make(chan struct{})
	disk.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync}, Count: 1, Err: answer, Do: func() {
		close(reached)
		<-gate
	}})
	done = make(chan error, 2)
	go func() { done <- j.sync() }()
	<-reached
	return func() { close(gate) }, done
}

// rereadJournal reads the journal as a start does.
func rereadJournal(t *testing.T, fs vfs.FS) *journal {
	t.Helper()
	j, _, err := readJournal(fs, "data")
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestJournalGivesNoCutTwice(t *testing.T) {
	mem := vfs.NewMem(1)
	j := cutJournal(t, mem)
	other := journalKey{index: 5}
	var last uint32
	give := func(k journalKey) {
		t.Helper()
		st := newPartitionState(3)
		if st.cut = j.nextCut(); st.cut <= last {
			t.Fatalf("cut %d after %d", st.cut, last)
		}
		last = st.cut
		if err := j.put(k, st); err != nil {
			t.Fatal(err)
		}
	}
	for range 6 { // past the rewrites that forget what is removed
		give(keyOf(testPartition))
		give(other)
		if err := j.remove(other); err != nil {
			t.Fatal(err)
		}
		j.mu.Lock()
		err := j.rewriteLocked()
		j.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		again := rereadJournal(t, mem)
		if again.version != journalVersionCut || again.lastCut != last {
			t.Fatalf("version %d, last cut %d, want 2 and %d", again.version, again.lastCut, last)
		}
		if got, want := *again.live[keyOf(testPartition)], *j.live[keyOf(testPartition)]; got != want {
			t.Fatalf("%+v became %+v", want, got)
		}
		if len(again.live) != 1 {
			t.Fatalf("%d logs, one was removed", len(again.live)-1)
		}
	}
}

func TestJournalIsOfVersionOneUnlessCutsCount(t *testing.T) {
	mem := vfs.NewMem(2)
	j := cutJournal(t, mem)
	st := newPartitionState(3)
	st.cut, st.recovery = j.nextCut(), 2
	if err := j.put(keyOf(testPartition), st); err != nil {
		t.Fatal(err)
	}
	if _, err := j.close(); err != nil {
		t.Fatal(err)
	}
	if again := rereadJournal(t, mem); again.version != journalVersionCut {
		t.Fatalf("closed with version %d", again.version)
	}
	j, _, err := openJournal(mem, "data")
	if err != nil {
		t.Fatal(err)
	}
	defer j.abandon()
	again := rereadJournal(t, mem)
	want := st
	want.cut = 0
	if got := *again.live[keyOf(testPartition)]; again.version != journalVersion || got != want {
		t.Fatalf("version %d, %+v; want 1, %+v", again.version, got, want)
	}
}

// A program that knows version 1 alone must not take the file for its own.
func TestJournalOfALaterVersionIsRefused(t *testing.T) {
	b := (&journal{version: journalVersionCut + 1}).encodeLocked()
	if err := (&journal{live: map[journalKey]*partitionState{}}).load(b); err == nil {
		t.Fatal("read a journal of version 3")
	}
}

func TestJournalStaysWhatItWasOnAFullDisk(t *testing.T) {
	mem := vfs.NewMem(3)
	j := cutJournal(t, mem)
	if err := j.setVersion(journalVersion); err != nil {
		t.Fatal(err)
	}
	st := newPartitionState(3)
	if err := j.put(keyOf(testPartition), st); err != nil {
		t.Fatal(err)
	}
	mem.SetCapacity(1)
	if err := j.setVersion(journalVersionCut); !isDiskEnd(err) {
		t.Fatalf("version 2 on a full disk: %v", err)
	}
	mem.SetCapacity(0)
	st.logStart = 9
	if err := j.put(keyOf(testPartition), st); err != nil {
		t.Fatal(err)
	}
	if err := j.sync(); err != nil {
		t.Fatal(err)
	}
	if again := rereadJournal(t, mem); again.version != journalVersion || *again.live[keyOf(testPartition)] != st {
		t.Fatalf("version %d, %+v", again.version, again.live[keyOf(testPartition)])
	}
}

// A rewrite that fails when the file has its name already has changed the journal,
// whatever the error.
func TestJournalDoesNotGoOnInAFileThatWasReplaced(t *testing.T) {
	mem := vfs.NewMem(4)
	j := cutJournal(t, mem)
	if err := j.setVersion(journalVersion); err != nil {
		t.Fatal(err)
	}
	faults := vfs.NewFaults(mem)
	j.fs = faults
	faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSyncDir}, Err: syscall.ENOSPC})
	if err := j.setVersion(journalVersionCut); err == nil || isDiskEnd(err) {
		t.Fatalf("replaced for want of space: %v", err)
	}
	if err := j.sync(); err == nil {
		t.Fatal("goes on in a file without a name")
	}
}

// TestJournalTakesRecordsWhileItSyncs puts a record, and rewrites the file, while a sync of the journal waits for the disk: the
// record is taken at once, and counts as durable only when it is.
func TestJournalTakesRecordsWhileItSyncs(t *testing.T) {
	for _, rewritten := range []bool{false, true} {
		mem := vfs.NewMem(1)
		disk := vfs.NewFaults(mem)
		j := newJournal(t, disk)
		put := func(index int32) {
			t.Helper()
			if err := j.put(journalKey{index: index}, newPartitionState(7)); err != nil {
				t.Fatal(err)
			}
		}
		put(1)
		release, done := heldSync(j, disk, nil)
		put(2)
		if rewritten {
			j.mu.Lock()
			err := j.rewriteLocked()
			j.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
		}
		release()
		if err := <-done; err != nil {
			t.Fatalf("rewritten %t: %v", rewritten, err)
		}
		if durable := j.synced == j.at; durable != rewritten {
			t.Fatalf("rewritten %t: durable %t", rewritten, durable)
		}
		if err := j.sync(); err != nil {
			t.Fatal(err)
		}
		after := rereadJournal(t, mem.CrashSeed(1))
		if _, ok := after.state(journalKey{index: 2}); !ok {
			t.Fatalf("rewritten %t: what was synced is gone", rewritten)
		}
	}
}

// TestJournalTellsEveryoneOfAFailedSync has two wait for one: the error of the first is also the second's, whose own sync would not
// have met it.
func TestJournalTellsEveryoneOfAFailedSync(t *testing.T) {
	disk := vfs.NewFaults(vfs.NewMem(1))
	j := newJournal(t, disk)
	if err := j.put(keyOf(testPartition), newPartitionState(7)); err != nil {
		t.Fatal(err)
	}
	release, done := heldSync(j, disk, syscall.EIO)
	go func() { done <- j.sync() }()
	release()
	for range 2 {
		if err := <-done; !errors.Is(err, syscall.EIO) {
			t.Fatalf("a sync said %v", err)
		}
	}
}
