package hot

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
)

// Mutants that were made by hand, one line each, and the test that turned red
// (besides the seeded TestAcknowledgedRecordsSurvivePowerLossAtAnyOperation,
// where marked with *):
//
//	dropBeyond         no h.file.Sync after Truncate       TestTruncatedBatchesDoNotFollowNewOnes
//	planCompaction     stable without saved.recovery       TestCompactionStaysBelowTheRecoveryPoint
//	raiseRecovery      returns nil at once              *  TestProducersAndEpochsOutliveTheirBatches
//	syncFile           closes without syncing           *  TestProducersAndEpochsOutliveTheirBatches
//	writeSnapshot      writes in place                     TestTheOnlySnapshotIsNotWrittenOver
//	restartAt          no producers                        TestProducersAreKnownWhenTheLogRestartsAtItsStart
//	load               prunes below the log start       *  TestSegmentsBelowTheLogStartCountUntilTheyAreDeleted
//	load               never needs producers            *  TestLastStableOffsetIsRightAfterARestartWithoutRecovery
//	load               no dropOrphans                      TestSegmentsWithoutTheUnsyncedOneBeforeThemAreDropped
//	dropOrphans        does not look for footers           TestSegmentThatIsMissingBelowAFooterIsNotForgotten
//	stands             no comparison of recovery points    TestCheckpointThatRetentionOvertookDoesNotCount
//	syncBulk           no second SyncFS                    TestBulkCheckpointKeepsTheEpochsOfOffloadedBatches

// twoSegments is a store whose one log has a first segment with offset 0 and a
// second one with offset 1. opened is called before there is a log.
func twoSegments(t *testing.T, fs vfs.FS, opened func()) *Store {
	t.Helper()
	s := openStore(t, fs, "data", func(c *Config) { c.Durability, c.FlushInterval = Replicated, 1<<40 })
	opened()
	l := openLog(t, s)
	mustAppend(t, l, produced(7, 0, 0, 1, false))
	if err := l.Roll(0); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, produced(7, 0, 1, 1, false))
	if err := s.journal.sync(); err != nil { // the partition is known: this comes first in a round
		t.Fatal(err)
	}
	return s
}

// hasSegments says which of the two segments an image has a name for.
func hasSegments(t *testing.T, image vfs.FS) (first, second bool) {
	t.Helper()
	dir := "data/" + partitionDirName(onlyPartition(t, image))
	has := func(base int64) bool {
		_, err := image.Stat(dir + "/" + offsetName(base, logExt))
		if err != nil && !errors.Is(err, vfs.ErrNotExist) {
			t.Fatal(err)
		}
		return err == nil
	}
	return has(0), has(1)
}

// Earlier releases did not sync the first segment's name before there was a
// second: power loss could keep the second's alone, which is made here by hand.
// Nothing of either was acknowledged as durable, so the log goes on empty; it is
// not offline for a segment that it never promised.
func TestSegmentsWithoutTheUnsyncedOneBeforeThemAreDropped(t *testing.T) {
	mem := vfs.NewMem(11)
	var held atomic.Bool // no file of the partition is synced
	release := make(chan struct{})
	fs := &hookFS{FS: mem, hook: func(op, n string) {
		if held.Load() && (op == "syncfs" || op == "sync" && strings.HasPrefix(n, "data/events")) {
			<-release
		}
	}}
	old := twoSegments(t, fs, func() { held.Store(true) })
	var images []*vfs.Mem
	for seed := range uint64(100) {
		images = append(images, mem.CrashSeed(seed))
	}
	close(release)
	old.Abandon()
	orphans := 0
	for i, image := range images {
		if !hasPartition(image) {
			continue
		}
		if _, second := hasSegments(t, image); !second {
			continue
		}
		if err := image.Remove("data/" + partitionDirName(onlyPartition(t, image)) + "/" + offsetName(0, logExt)); err != nil {
			t.Fatal(err)
		}
		orphans++
		for range 2 {
			s := openStore(t, image, "data")
			l := openLog(t, s)
			if err := l.Err(); err != nil {
				t.Fatalf("image %d: %v", i, err)
			}
			if o := l.Offsets(); o.End != 0 {
				t.Fatalf("image %d: %+v, want an empty log", i, o)
			}
			s.Abandon()
		}
		s := openStore(t, image, "data")
		l := openLog(t, s)
		if a := mustAppend(t, l, produced(7, 0, 0, 1, false)); a.BaseOffset != 0 {
			t.Fatalf("image %d: appended at %d", i, a.BaseOffset)
		}
		s.Abandon()
	}
	if orphans == 0 {
		t.Fatal("no image kept the second name: nothing was shown")
	}
}

// A footer is written once its segment is synced, and the round that synced it
// synced what lies below: here something durable is gone, and that is not to be
// passed over.
func TestSegmentThatIsMissingBelowAFooterIsNotForgotten(t *testing.T) {
	mem := vfs.NewMem(12)
	s := twoSegments(t, mem, func() {})
	l := s.opened()[0]
	if err := l.Roll(0); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, produced(7, 0, 2, 1, false))
	s.syncer.flush()
	l.maintMu.Lock()
	err := l.finishSeals()
	l.maintMu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	image := mem.Clone()
	s.Abandon()
	dir := "data/" + partitionDirName(onlyPartition(t, image))
	if err := image.Remove(dir + "/" + offsetName(0, logExt)); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, image, "data")
	defer s.Abandon()
	l = openLog(t, s)
	if !errors.Is(l.Err(), ErrOffline) {
		t.Fatalf("the log is %v, want offline", l.Err())
	}
	if _, second := hasSegments(t, image); !second {
		t.Fatal("the segment with a footer was deleted")
	}
}

// A checkpoint takes a log's state and writes it down some time later. When
// retention has deleted batches beyond it meanwhile, the state it put into the
// journal instead stands: the one taken earlier does not know the producers of
// what is gone.
func TestCheckpointThatRetentionOvertookDoesNotCount(t *testing.T) {
	mem := vfs.NewMem(13)
	s := openStore(t, mem, "data")
	defer s.Abandon()
	l := openLog(t, s, tieredLog)
	add := func(seq int32) {
		t.Helper()
		if err := l.AssignEpoch(seq); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, produced(7, 0, seq, 1, false), func(o *AppendOptions) { o.LeaderEpoch = seq })
	}
	add(0)
	waitDurable(t, l, 1)
	l.maintMu.Lock()
	at, err := l.capture(false)
	l.maintMu.Unlock()
	if err != nil || at == nil {
		t.Fatalf("captured %v, %v", at, err)
	}
	for seq := range int32(2) {
		add(seq + 1)
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
	s.syncer.flush()
	l.maintMu.Lock()
	err = errors.Join(l.write(at, false), l.commit(at))
	l.maintMu.Unlock()
	if err = errors.Join(err, s.journal.sync()); err != nil {
		t.Fatal(err)
	}
	images := []*vfs.Mem{mem.Clone()}
	for seed := range uint64(20) {
		images = append(images, mem.CrashSeed(seed))
	}
	for i, image := range images {
		s := openStore(t, image, "data")
		l := openLog(t, s, tieredLog)
		if err := l.Err(); err != nil {
			t.Fatalf("image %d: %v", i, err)
		}
		want := lineage.Chain{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 1}, {Epoch: 2, Start: 2}}
		if got := l.Lineage(); !got.Equal(want) {
			t.Fatalf("image %d: leader epochs %v, want %v", i, got, want)
		}
		for seq := range int32(3) {
			expectRepeat(t, l, produced(7, 0, seq, 1, false), int64(seq))
		}
		mustAppend(t, l, produced(7, 0, 3, 1, false), func(o *AppendOptions) { o.LeaderEpoch = 2 })
		s.Abandon()
	}
}

// hasPartition says whether an image has a partition's directory.
func hasPartition(image vfs.FS) bool {
	entries, err := image.ReadDir("data")
	for _, e := range entries {
		if err == nil && e.IsDir() {
			return true
		}
	}
	return false
}
