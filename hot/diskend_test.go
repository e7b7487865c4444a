package hot

import (
	"errors"
	"syscall"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// noSpace makes writes of files that match fail for want of space.
func noSpace(fs *vfs.Faults, paths ...string) {
	for _, p := range paths {
		fs.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpWrite}, Path: p, Err: syscall.ENOSPC, Count: -1, Short: 7})
	}
}

func working(t *testing.T, s *Store, l *Log) {
	t.Helper()
	if s.Err() != nil || l.Err() != nil {
		t.Fatalf("offline at the end of the disk: store %v, log %v", s.Err(), l.Err())
	}
}

// TestCheckpointAtTheEndOfTheDiskIsPutOff fills the disk to its last byte.
func TestCheckpointAtTheEndOfTheDiskIsPutOff(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data", func(c *Config) { c.ReserveBytes, c.PreallocateBytes = 1, 0 })
	l := openLog(t, s, smallSegments)
	var end int64
	for i := range 5 {
		end = mustAppend(t, l, produced(1, 0, int32(i), 1, false)).LastOffset + 1
	}
	waitDurable(t, l, end)
	mem.SetCapacity(1 << 20)
	_, free, _ := mem.Usage("data")
	mem.SetCapacity(1<<20 - int64(free))
	if err := s.checkpoint([]*Log{l}, false); !errors.Is(err, ErrDiskFull) && !isDiskEnd(err) {
		t.Fatalf("checkpoint: %v", err)
	}
	if err := l.AssignEpoch(3); err != nil {
		t.Fatal(err)
	}
	s.journalWatermarks()
	working(t, s, l)
	if _, err := l.Append(records(1, 10, 1), AppendOptions{LeaderEpoch: 3}); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("append: %v", err)
	}
	if !s.Usage().Full {
		t.Fatal("not full")
	}
	s.Abandon()
	// A node starts on a full disk, or nothing could be deleted.
	s = openStore(t, mem, "data", func(c *Config) { c.ReserveBytes, c.PreallocateBytes = 1, 0 })
	l = openLog(t, s, smallSegments)
	working(t, s, l)
	mem.SetCapacity(0)
	s.measure()
	waitDurable(t, l, mustAppend(t, l, records(1, 10, 1)).LastOffset+1)
	closeStore(t, s)
	l = openLog(t, openStore(t, mem, "data"), smallSegments)
	if o := l.Offsets(); o.End != end+1 || l.Err() != nil {
		t.Fatalf("%+v, %v", o, l.Err())
	}
}

// TestNothingIsDurableBeforeTheJournalHasSpace: the epoch of what was appended
// is not in the journal, so the append is not acknowledged until it is.
func TestNothingIsDurableBeforeTheJournalHasSpace(t *testing.T) {
	mem := vfs.NewMem(1)
	fs := vfs.NewFaults(mem)
	s := openStore(t, fs, "data")
	l := openLog(t, s)
	waitDurable(t, l, mustAppend(t, l, records(1, 10, 1)).LastOffset+1)
	noSpace(fs, journalName)
	if err := l.AssignEpoch(4); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(records(1, 10, 1), AppendOptions{LeaderEpoch: 4}); err != nil {
		t.Fatal(err)
	}
	s.syncer.flush()
	working(t, s, l)
	if o := l.Offsets(); o.Durable != 1 || o.End != 2 {
		t.Fatalf("%+v, the epoch is not journaled", o)
	}
	if !s.Usage().Full {
		t.Fatal("not full")
	}
	fs.Clear()
	waitDurable(t, l, 2)
	s.Abandon()
	l = openLog(t, openStore(t, mem, "data"))
	if l.LatestEpoch() != 4 || l.Offsets().End != 2 {
		t.Fatalf("epoch %d, %+v", l.LatestEpoch(), l.Offsets())
	}
}

// TestSealIsFinishedOnceThereIsSpace seals while derived files cannot grow.
func TestSealIsFinishedOnceThereIsSpace(t *testing.T) {
	mem := vfs.NewMem(1)
	fs := vfs.NewFaults(mem)
	s := openStore(t, fs, "data")
	l := openLog(t, s)
	noSpace(fs, "*.index", "*.snapshot")
	mustAppend(t, l, produced(1, 0, 0, 3, false))
	if err := l.Roll(1000); err != nil {
		t.Fatal(err)
	}
	waitDurable(t, l, 3)
	eventually(t, func() bool { return s.Usage().Full })
	working(t, s, l)
	if l.list()[0].is(segTrusted) {
		t.Fatal("sealed without its files")
	}
	fs.Clear()
	eventually(t, func() bool { return l.list()[0].is(segTrusted) })
	closeStore(t, s)
}

// TestAbortIsSeenThoughItsIndexHasNoSpace: readers must not get the records of
// a transaction whose abort the index could not take.
func TestAbortIsSeenThoughItsIndexHasNoSpace(t *testing.T) {
	mem := vfs.NewMem(1)
	fs := vfs.NewFaults(mem)
	s := openStore(t, fs, "data")
	l := openLog(t, s)
	noSpace(fs, "*"+txnExt, "*"+txnExt+".tmp")
	for i := range 2 {
		mustAppend(t, l, produced(int64(1+i), 0, 0, 1, true), func(o *AppendOptions) { o.TxnVerified = true })
		mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Abort}, int64(1+i), 0, 5), func(o *AppendOptions) { o.Origin = Coordinator })
		s.measure() // the disk has space, only these files do not
	}
	aborted := func(l *Log) {
		t.Helper()
		txns, err := l.AbortedTxns(0, 4)
		if err != nil || len(txns) != 2 || txns[0].ProducerID != 1 || txns[1].ProducerID != 2 {
			t.Fatalf("aborted %+v, %v", txns, err)
		}
	}
	working(t, s, l)
	aborted(l)
	waitDurable(t, l, 4)
	if err := s.checkpoint([]*Log{l}, false); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("the recovery point passed an index that is not written: %v", err)
	}
	aborted(l)
	fs.Clear()
	if err := s.checkpoint([]*Log{l}, false); err != nil {
		t.Fatal(err)
	}
	aborted(l)
	s.Abandon()
	aborted(openLog(t, openStore(t, mem, "data")))
}

// TestSnapshotInForceSurvivesAFailedRewrite: a checkpoint at the offset of the
// last one rewrites the snapshot the journal names, which must not be lost
// when there is no space for the new one.
func TestSnapshotInForceSurvivesAFailedRewrite(t *testing.T) {
	mem := vfs.NewMem(1)
	fs := vfs.NewFaults(mem)
	s := openStore(t, fs, "data")
	l := openLog(t, s, func(c *LogConfig) { c.ProducerExpirationMillis = 100 })
	mustAppend(t, l, produced(1, 0, 0, 1, false), func(o *AppendOptions) { o.Now = 1000 })
	mustAppend(t, l, produced(2, 0, 0, 1, false), func(o *AppendOptions) { o.Now = 2000 })
	waitDurable(t, l, 2)
	if err := s.checkpoint([]*Log{l}, false); err != nil {
		t.Fatal(err)
	}
	path := l.path(2, snapshotExt)
	before, err := vfs.ReadFile(mem, path, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	l.ExpireProducers(1500)
	noSpace(fs, "*"+snapshotExt, "*"+snapshotExt+".tmp")
	if err := s.checkpoint([]*Log{l}, false); !errors.Is(err, ErrDiskFull) {
		t.Fatalf("checkpoint: %v", err)
	}
	if after, err := vfs.ReadFile(mem, path, 1<<20); err != nil || string(after) != string(before) {
		t.Fatalf("the snapshot in force was overwritten: %d bytes of %d, %v", len(after), len(before), err)
	}
	working(t, s, l)
}
