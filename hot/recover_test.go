package hot

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// TestRecoveryDerivesWhatTheBatchesSay kills a process before its first checkpoint,
// in the middle of a write: the next one finds epochs, producers and offsets by the
// batches alone, and takes off what is half there.
func TestRecoveryDerivesWhatTheBatchesSay(t *testing.T) {
	mem := vfs.NewMem(3)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	for epoch := range int32(3) {
		at := func(o *AppendOptions) { o.LeaderEpoch = epoch + 4 }
		mustAppend(t, l, produced(7, 0, epoch*3, 3, false), at)
		mustAppend(t, l, records(2, 40, 1), at)
	}
	want, end, lineage := everything(t, l, 0), l.Offsets().End, l.Lineage()
	producers, err := l.Producers()
	if err != nil || len(producers) != 1 || len(lineage) != 3 {
		t.Fatalf("producers %+v, epochs %v, %v", producers, lineage, err)
	}
	waitDurable(t, l, end)
	path := l.active().path(logExt)
	s.Abandon()
	f, err := mem.OpenAppend(path)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	half := slices.Clone(want[:50]) // the head of a batch, and not all of it
	if _, err := f.WriteAt(half, size); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}

	s = openStore(t, mem, "data")
	l = openLog(t, s)
	if got := l.Offsets().End; got != end || l.Err() != nil || s.Clean() {
		t.Fatalf("the log ends at %d of %d, %v, clean %t", got, end, l.Err(), s.Clean())
	}
	if got := everything(t, l, 0); !bytes.Equal(got, want) {
		t.Fatal("the records are not those that were written")
	}
	if got := l.Lineage(); !got.Equal(lineage) {
		t.Fatalf("epochs %v, want %v", got, lineage)
	}
	if got, err := l.Producers(); err != nil || len(got) != 1 || got[0] != producers[0] {
		t.Fatalf("producers %+v, want %+v, %v", got, producers, err)
	}
	if info, err := mem.Stat(path); err != nil || info.Size() != size {
		t.Fatalf("%v, %v: the torn write is still there, behind byte %d", info, err, size)
	}
	if a := mustAppend(t, l, records(1, 40, 1)); a.BaseOffset != end {
		t.Fatalf("goes on at %d of %d", a.BaseOffset, end)
	}
}

// An epoch in which nothing has been written yet is in the journal: the death of
// the process does not take it back.
func TestEpochWithoutRecordsOutlivesTheProcess(t *testing.T) {
	mem := vfs.NewMem(4)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	mustAppend(t, l, records(2, 40, 1))
	waitDurable(t, l, 2)
	if err := l.AssignEpoch(6); err != nil {
		t.Fatal(err)
	}
	s.Abandon()
	l = openLog(t, openStore(t, mem, "data"))
	if start, ok := l.Lineage().StartOf(6); !ok || start != 2 {
		t.Fatalf("epochs %v: 6 began at 2", l.Lineage())
	}
}
