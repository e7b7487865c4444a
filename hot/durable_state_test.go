package hot

import (
	"fmt"
	"sync"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
)

func tieredLog(c *LogConfig) { c.Tiered, c.LocalRetentionMillis, c.FileDeleteDelay = true, 1, 0 }

// expectRepeat sends a batch once more and wants its original offset.
func expectRepeat(t *testing.T, l *Log, b batch.Batch, base int64) {
	t.Helper()
	a, err := l.Append(b, AppendOptions{Origin: Client, LeaderEpoch: max(l.LatestEpoch(), 0), TxnVerified: true})
	if err != nil || !a.Duplicate || a.BaseOffset != base {
		t.Fatalf("the retry gave %+v, %v; want the duplicate at offset %d", a, err, base)
	}
}

// trimmed is a log of three producer batches, each in its own epoch and
// segment, whose local copies are gone: offsets 0 to 2.
func trimmed(t *testing.T, mem *vfs.Mem) *Store {
	t.Helper()
	return trimmedOn(t, mem)
}

func trimmedOn(t *testing.T, fs vfs.FS) *Store {
	t.Helper()
	s := openStore(t, fs, "data")
	l := openLog(t, s, tieredLog)
	for seq := range int32(3) {
		if err := l.AssignEpoch(seq); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, produced(7, 0, seq, 1, false), func(o *AppendOptions) { o.LeaderEpoch = seq })
		if err := l.Roll(0); err != nil {
			t.Fatal(err)
		}
	}
	waitDurable(t, l, 3)
	l.SetHighWatermark(3)
	l.SetRemoteEnd(3)
	eventually(t, func() bool {
		mustRetain(t, l, 1<<20)
		return l.Offsets().LocalStart == 3
	})
	return s
}

// What retention deletes nothing can rebuild: producers and leader epochs at
// the new local start are durable before the batches below go.
func TestProducersAndEpochsOutliveTheirBatches(t *testing.T) {
	mem := vfs.NewMem(1)
	s := trimmed(t, mem)
	defer s.Abandon()
	images := []*vfs.Mem{mem.Clone()}
	for seed := range uint64(40) {
		images = append(images, mem.CrashSeed(seed))
	}
	for _, image := range images {
		s := openStore(t, image, "data")
		l := openLog(t, s, tieredLog)
		want := lineage.Chain{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 1}, {Epoch: 2, Start: 2}}
		if got := l.Lineage(); !got.Equal(want) {
			t.Fatalf("leader epochs %v, want %v", got, want)
		}
		for seq := range int32(3) {
			expectRepeat(t, l, produced(7, 0, seq, 1, false), int64(seq))
		}
		mustAppend(t, l, produced(7, 0, 3, 1, false), func(o *AppendOptions) { o.LeaderEpoch = 2 })
		closeStore(t, s)
	}
}

// A later checkpoint at the same offset must not write over the only snapshot
// in place.
func TestTheOnlySnapshotIsNotWrittenOver(t *testing.T) {
	mem := vfs.NewMem(2)
	s := trimmed(t, mem)
	defer s.Abandon()
	l := s.opened()[0]
	l.stateMu.Lock()
	for id := range int64(20) { // other bytes, in more than one sector
		l.producers.byID[100+id] = newProducer(100 + id)
	}
	l.stateMu.Unlock()
	l.changed.Store(true)
	if err := s.checkpoint([]*Log{l}, false); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(40) {
		s := openStore(t, mem.CrashSeed(seed), "data")
		expectRepeat(t, openLog(t, s, tieredLog), produced(7, 0, 2, 1, false), 2)
		s.Abandon()
	}
}

// The log is empty at its start when all on disk was deleted and the segment
// after it was lost; producers are still known.
func TestProducersAreKnownWhenTheLogRestartsAtItsStart(t *testing.T) {
	mem := vfs.NewMem(3)
	s := trimmed(t, mem)
	image := mem.Clone()
	s.Abandon()
	// What power loss may do: a deleted segment's name is back, the active
	// one's is lost.
	dir := "data/" + partitionDirName(onlyPartition(t, image))
	if err := image.Remove(dir + "/" + offsetName(3, logExt)); err != nil {
		t.Fatal(err)
	}
	f, err := image.Create(dir + "/" + offsetName(1, logExt))
	if err != nil {
		t.Fatal(err)
	}
	b := produced(7, 0, 1, 1, false)
	b.SetBaseOffset(1)
	b.SetLeaderEpoch(1)
	if _, err := f.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // and over a clean close
		s = openStore(t, image, "data")
		l := openLog(t, s, tieredLog)
		if o := l.Offsets(); o.End != 3 || o.LocalStart != 3 {
			t.Fatalf("offsets are %+v, want an empty log at 3", o)
		}
		for seq := range int32(3) {
			expectRepeat(t, l, produced(7, 0, seq, 1, false), int64(seq))
		}
		closeStore(t, s)
	}
}

// onlyPartition is the partition of the one log in the store's directory.
func onlyPartition(t *testing.T, fs vfs.FS) (p topic.Partition) {
	t.Helper()
	entries, err := fs.ReadDir("data")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if p, _, ok := parsePartitionDirName(e.Name()); ok && e.IsDir() {
			return p
		}
	}
	t.Fatal("no partition")
	return p
}

// A segment below the log start that retention has not deleted yet may hold
// what the recovery point does not sum up.
func TestSegmentsBelowTheLogStartCountUntilTheyAreDeleted(t *testing.T) {
	mem := vfs.NewMem(4)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	mustAppend(t, l, produced(7, 0, 0, 1, true), func(o *AppendOptions) { o.TxnVerified = true })
	if err := s.checkpoint([]*Log{l}, false); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Commit}, 7, 0, 1), func(o *AppendOptions) { o.Origin = Coordinator })
	mustAppend(t, l, produced(8, 0, 0, 1, false))
	if err := l.Roll(0); err != nil {
		t.Fatal(err)
	}
	waitDurable(t, l, 3)
	l.SetHighWatermark(3)
	if err := l.AdvanceLogStart(3); err != nil {
		t.Fatal(err)
	}
	image := mem.Clone()
	s.Abandon()
	_ = image.Remove(l.path(3, snapshotExt)) // not synced: power loss may take it
	s = openStore(t, image, "data")
	defer closeStore(t, s)
	l = openLog(t, s)
	l.SetHighWatermark(3)
	if got := l.LastStable(); got != 3 {
		t.Fatalf("last stable offset %d, want 3: the transaction was committed", got)
	}
	expectRepeat(t, l, produced(8, 0, 0, 1, false), 2)
}

// The last stable offset of a log that needs no recovery comes from the
// journal; it must neither be too high (after truncation nobody noted what is
// open) nor stay too low (a marker beyond the high watermark of then).
func TestLastStableOffsetIsRightAfterARestartWithoutRecovery(t *testing.T) {
	open := func(o *AppendOptions) { o.TxnVerified = true }
	t.Run("truncated", func(t *testing.T) {
		mem := vfs.NewMem(5)
		s := openStore(t, mem, "data")
		l := openLog(t, s)
		mustAppend(t, l, produced(7, 0, 0, 1, true), open)
		if err := s.checkpoint([]*Log{l}, false); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, records(1, 10, 1))
		if err := l.TruncateTo(1); err != nil {
			t.Fatal(err)
		}
		expectStable(t, mem.Clone(), s, 1, 0)
	})
	t.Run("marker not committed then", func(t *testing.T) {
		mem := vfs.NewMem(6)
		s := openStore(t, mem, "data")
		l := openLog(t, s)
		mustAppend(t, l, produced(7, 0, 0, 1, true), open)
		mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Commit}, 7, 0, 1), func(o *AppendOptions) { o.Origin = Coordinator })
		if err := s.checkpoint([]*Log{l}, false); err != nil {
			t.Fatal(err)
		}
		expectStable(t, mem.Clone(), s, 2, 2)
	})
}

func expectStable(t *testing.T, image *vfs.Mem, old *Store, hw, want int64) {
	t.Helper()
	old.Abandon()
	s := openStore(t, image, "data")
	defer closeStore(t, s)
	l := openLog(t, s)
	l.SetHighWatermark(hw)
	if got := l.LastStable(); got != want {
		t.Fatalf("last stable offset %d, want %d", got, want)
	}
}

// A crash at any step of TruncateTo leaves the epochs of the batches that are
// still there; one at any step of ResetTo a log that opens.
func TestCrashInTheMiddleOfTruncationOrResetLeavesAWholeLog(t *testing.T) {
	for _, reset := range []bool{false, true} {
		for step := 1; ; step++ {
			if !crashAtStep(t, reset, step) {
				if step < 5 {
					t.Fatalf("only %d steps seen", step)
				}
				break
			}
		}
	}
}

func crashAtStep(t *testing.T, reset bool, step int) bool {
	t.Helper()
	mem := vfs.NewMem(7)
	var image *vfs.Mem
	var mu sync.Mutex // guards the hook's state: the syncer calls it too
	left, armed := step, false
	arm := func(on bool) {
		mu.Lock()
		armed = on
		mu.Unlock()
	}
	fs := &hookFS{FS: mem, hook: func(op, name string) {
		mu.Lock()
		defer mu.Unlock()
		if armed {
			if left--; left == 0 {
				image = mem.Clone()
			}
		}
	}}
	s := openStore(t, fs, "data")
	l := openLog(t, s)
	for epoch := range int32(4) {
		mustAppend(t, l, produced(7, 0, epoch, 1, false), func(o *AppendOptions) { o.LeaderEpoch = epoch })
		if err := l.Roll(0); err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, l, produced(7, 0, 4, 1, false), func(o *AppendOptions) { o.LeaderEpoch = 4 })
	if err := s.checkpoint([]*Log{l}, false); err != nil {
		t.Fatal(err)
	}
	s.syncer.flush()
	l.maintMu.Lock() // the maintenance goroutine is not to count as a step
	arm(true)
	l.maintMu.Unlock()
	var err error
	if reset {
		err = l.ResetTo(20, l.Lineage(), nil)
	} else {
		err = l.TruncateTo(1)
	}
	arm(false)
	if err != nil {
		t.Fatal(err)
	}
	s.Abandon()
	if image == nil {
		return false
	}
	s = openStore(t, image, "data")
	defer closeStore(t, s)
	l = openLog(t, s)
	if err := l.Err(); err != nil {
		t.Fatalf("reset %v, step %d: the log is offline: %v", reset, step, err)
	}
	o := l.Offsets()
	for off := int64(0); !reset && off < o.End; off++ {
		if got := l.Lineage().EpochAt(off); got != int32(off) {
			t.Fatalf("step %d: offset %d has epoch %d, want %d: %s", step, off, got, off, fmt.Sprint(l.Lineage()))
		}
	}
	return true
}

// Leader epochs of offloaded batches are in their file alone: a checkpoint of
// many logs, which syncs the file system instead of files, must not put an
// unsynced file in its place.
func TestBulkCheckpointKeepsTheEpochsOfOffloadedBatches(t *testing.T) {
	mem := vfs.NewMem(8)
	var images []*vfs.Mem
	var mu sync.Mutex // guards the hook's state: the syncer calls it too
	armed := false
	arm := func(on bool) {
		mu.Lock()
		armed = on
		mu.Unlock()
	}
	s := trimmedOn(t, &hookFS{FS: mem, hook: func(op, name string) {
		mu.Lock()
		defer mu.Unlock()
		for seed := uint64(0); armed && seed < 20; seed++ {
			images = append(images, mem.CrashSeed(seed))
		}
	}})
	defer s.Abandon()
	s.config.SyncFilesMax = 0
	l := s.opened()[0]
	mustAppend(t, l, produced(7, 0, 3, 1, false), func(o *AppendOptions) { o.LeaderEpoch = 3 })
	mustAppend(t, l, produced(7, 0, 4, 1, false), func(o *AppendOptions) { o.LeaderEpoch = 4 })
	waitDurable(t, l, 5)
	l.maintMu.Lock()
	arm(true)
	l.maintMu.Unlock()
	err := s.checkpoint([]*Log{l}, false)
	arm(false)
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(40) {
		images = append(images, mem.CrashSeed(100+seed))
	}
	want := lineage.Chain{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 1}, {Epoch: 2, Start: 2}, {Epoch: 3, Start: 3}, {Epoch: 4, Start: 4}}
	for i, image := range images {
		s := openStore(t, image, "data")
		if got := openLog(t, s, tieredLog).Lineage(); !got.Equal(want) {
			t.Fatalf("image %d: leader epochs %v, want %v", i, got, want)
		}
		s.Abandon()
	}
}

// A log that is reset before anything of it was synced must outlive power
// loss with its new start: the directory's own name too.
func TestResetOfANewLogIsDurable(t *testing.T) {
	mem := vfs.NewMem(9)
	s := openStore(t, mem, "data")
	defer s.Abandon()
	if err := openLog(t, s).ResetTo(24, nil, nil); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(40) {
		s := openStore(t, mem.CrashSeed(seed), "data")
		if end := openLog(t, s).Offsets().End; end != 24 {
			t.Fatalf("seed %d: the log ends at %d, want 24", seed, end)
		}
		s.Abandon()
	}
}

// A shorter length that is not synced may be lost while what was appended
// next is kept: old batches would follow new ones.
func TestTruncatedBatchesDoNotFollowNewOnes(t *testing.T) {
	mem := vfs.NewMem(10)
	s := openStore(t, mem, "data", func(c *Config) { c.PreallocateBytes = 0 })
	defer s.Abandon()
	l := openLog(t, s)
	const n = 8
	for range n {
		mustAppend(t, l, records(1, 700, 1))
	}
	waitDurable(t, l, n)
	if err := l.TruncateTo(1); err != nil {
		t.Fatal(err)
	}
	// What power loss makes of the file alone, before the next round syncs it.
	f, err := mem.OpenAppend(l.path(0, logExt))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	fresh := records(1, 700, 2)
	fresh.SetBaseOffset(1)
	fresh.SetLeaderEpoch(0)
	at, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(fresh, at); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(100) {
		s := openStore(t, mem.CrashSeed(seed), "data")
		if end := openLog(t, s).Offsets().End; end > 2 {
			t.Fatalf("seed %d: the log ends at %d: truncated batches follow the new one", seed, end)
		}
		s.Abandon()
	}
}

// Recovery starts from a position in a segment: compaction must not rewrite a
// segment that the recovery point has not passed.
func TestCompactionStaysBelowTheRecoveryPoint(t *testing.T) {
	mem := vfs.NewMem(11)
	s := openStore(t, mem, "data")
	l := openLog(t, s, compacted)
	for range 4 {
		mustAppend(t, l, keyed(1, batch.Options{}, "a", "1", "b", "1"))
	}
	if err := s.checkpoint([]*Log{l}, false); err != nil { // in the middle of the segment
		t.Fatal(err)
	}
	mustAppend(t, l, keyed(2, batch.Options{}, "a", "2", "b", "2"))
	if err := l.Roll(0); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, keyed(3, batch.Options{}, "c", "3"))
	waitDurable(t, l, l.Offsets().End)
	l.SetHighWatermark(l.Offsets().End)
	eventually(t, func() bool { s.finishSealed(); return l.list()[0].is(segTrusted) })
	if r := mustCompact(t, l, 10); r.Ran {
		t.Fatalf("compaction ran beyond the recovery point: %+v", r)
	}
	image := mem.Clone()
	s.Abandon()
	s = openStore(t, image, "data")
	defer closeStore(t, s)
	l = openLog(t, s, compacted)
	if err := l.Err(); err != nil {
		t.Fatalf("the log is offline: %v", err)
	}
	if end := l.Offsets().End; end != 11 {
		t.Fatalf("the log ends at %d, want 11", end)
	}
}

// An epoch that only the journal knows, because nothing was written in it
// before a clean close, must get into the file before the next one takes its
// place in the journal.
func TestEpochAssignedBeforeACleanCloseOutlivesTheNextOne(t *testing.T) {
	mem := vfs.NewMem(12)
	epoch := func(e int32) func(*AppendOptions) { return func(o *AppendOptions) { o.LeaderEpoch = e } }
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	mustAppend(t, l, records(1, 10, 1), epoch(0))
	if err := s.checkpoint([]*Log{l}, false); err != nil {
		t.Fatal(err)
	}
	if err := l.AssignEpoch(1); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	s = openStore(t, mem, "data")
	l = openLog(t, s)
	mustAppend(t, l, records(1, 10, 1), epoch(1))
	if err := s.checkpoint([]*Log{l}, false); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, records(1, 10, 1), epoch(2))
	image := mem.Clone()
	s.Abandon()
	s = openStore(t, image, "data")
	defer closeStore(t, s)
	want := lineage.Chain{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 1}, {Epoch: 2, Start: 2}}
	if got := openLog(t, s).Lineage(); !got.Equal(want) {
		t.Fatalf("leader epochs %v, want %v", got, want)
	}
}
