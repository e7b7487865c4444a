package hot

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// sharedStore is a store with a shared log that every round uses if it can.
func sharedStore(t testing.TB, fs vfs.FS, change ...func(*Config)) *Store {
	t.Helper()
	s := openStore(t, fs, "data", append(change, func(c *Config) {
		if c.SharedLogBytes == 0 {
			c.SharedLogBytes = sharedBytesMin
		}
	})...)
	s.syncer.sharedMin.Store(1)
	haveShared(t, s)
	return s
}

// behindStore is a sharedStore whose log has one batch in place and n more that only the shared log makes durable.
func behindStore(t testing.TB, fs vfs.FS, n int) (*Store, *Log) {
	t.Helper()
	s := sharedStore(t, fs)
	l := openLog(t, s)
	appendDurable(t, l, 1)
	s.syncer.flush()
	appendDurable(t, l, n)
	return s, l
}

// haveShared makes a store's shared log now instead of after many rounds.
func haveShared(t testing.TB, s *Store) {
	t.Helper()
	x, err := s.makeShared()
	if err != nil {
		t.Fatal(err)
	}
	s.syncer.making.Store(true)
	s.syncer.made.Store(x)
	s.syncer.await(false)
}

// appendDurable appends and waits for its round.
func appendDurable(t testing.TB, l *Log, n int) {
	t.Helper()
	for range n {
		a := mustAppend(t, l, records(1, 50, 1))
		waitDurable(t, l, a.LastOffset+1)
	}
}

// sharedOnly is a file system whose one log has ten records, of which the shared
// log alone has the last nine; at is where the first of them begins.
func sharedOnly(t *testing.T, seed uint64) (mem *vfs.Mem, at, third int64) {
	t.Helper()
	mem = vfs.NewMem(seed)
	s := sharedStore(t, mem)
	s.syncer.sharedMin.Store(2) // not the first
	l := openLog(t, s)
	appendDurable(t, l, 1)
	s.syncer.flush()
	s.syncer.sharedMin.Store(1)
	at = l.Active().SizeBytes
	third = s.syncer.shared.at + 2*sharedBlock
	before := s.stats.SharedRounds.Load()
	appendDurable(t, l, 9)
	if n := s.stats.SharedRounds.Load() - before; n != 9 {
		t.Fatalf("%d rounds in the shared log", n)
	}
	if got := l.offsets.flushPoint(); got != 1 || l.Offsets().Durable != 10 {
		t.Fatalf("synced in place up to %d, durable up to %d", got, l.Offsets().Durable)
	}
	// As the disk has it when nothing was written back.
	image := mem.Clone()
	s.Abandon()
	f, err := image.OpenAppend("data/" + partitionDirName(onlyPartition(t, image)) + "/" + offsetName(0, logExt))
	if err == nil {
		err = errors.Join(f.Truncate(at), f.Sync())
	}
	if err != nil {
		t.Fatal(err)
	}
	return image, at, third
}

func TestSharedLogIsAppliedBeforeTheTailIsCut(t *testing.T) {
	const was = sharedBytesMin
	for _, on := range []int64{was, 2 * was, 0} { // and whoever does not use it any more
		mem, _, _ := sharedOnly(t, 1)
		s := openStore(t, mem, "data", func(c *Config) { c.SharedLogBytes = on })
		l := openLog(t, s)
		if o := l.Offsets(); o.End != 10 || l.Err() != nil {
			t.Fatalf("shared log of %d: %+v, %v", on, o, l.Err())
		}
		if _, _, lost := l.Lost(); lost {
			t.Fatal("lost")
		}
		// It is used again or goes; one of another size is made when there is work for it.
		_, err := mem.Stat("data/" + sharedName)
		if there := err == nil; there != (on == was) {
			t.Fatalf("shared log of %d: file is there: %v", on, there)
		}
		s.Abandon()
	}
}

// changeShared changes the shared log of an image.
func changeShared(t *testing.T, mem *vfs.Mem, change func([]byte) []byte) {
	t.Helper()
	b, err := vfs.ReadFile(mem, "data/"+sharedName, 1<<20)
	if err == nil {
		err = vfs.WriteFileAtomic(mem, "data/"+sharedName, change(b))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// What the shared log alone had of a log, and cannot give any more, makes that log
// one that has lost its end.
func TestLogOfADamagedEntryDoesNotCount(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b []byte, third int64)
		end    int64
	}{
		"bytes":            {func(b []byte, third int64) { b[third+200] ^= 1 }, 3},
		"head of an entry": {func(b []byte, third int64) { b[third+sharedRoundHead+9] ^= 1 }, 3},
		"head of a round":  {func(b []byte, third int64) { b[third+9] ^= 1 }, 3},
		"both headers":     {func(b []byte, _ int64) { b[20] ^= 1; b[len(b)-sharedBlock+20] ^= 1 }, 1},
	} {
		mem, _, third := sharedOnly(t, 2)
		changeShared(t, mem, func(b []byte) []byte { c.change(b, third); return b })
		for range 2 { // the second start knows it, too
			s := sharedStore(t, mem)
			l := openLog(t, s)
			if _, _, lost := l.Lost(); !lost || l.Offsets().End != c.end {
				t.Fatalf("%s: lost %v, %+v, want the end at %d", name, lost, l.Offsets(), c.end)
			}
			s.Abandon()
		}
		if _, err := mem.Stat("data/" + sharedName + damagedSuffix); err != nil {
			t.Fatalf("%s: the damaged file is not kept: %v", name, err)
		}
	}
}

// One header that is damaged costs nothing.
func TestSharedLogIsAppliedByTheHeaderThatIsLeft(t *testing.T) {
	for _, last := range []bool{false, true} {
		mem, _, _ := sharedOnly(t, 2)
		changeShared(t, mem, func(b []byte) []byte {
			at := 20
			if last {
				at += len(b) - sharedBlock
			}
			b[at] ^= 1
			return b
		})
		s := sharedStore(t, mem)
		l := openLog(t, s)
		if _, _, lost := l.Lost(); lost || l.Offsets().End != 10 {
			t.Fatalf("last %v: lost %v, %+v", last, lost, l.Offsets())
		}
		s.Abandon()
	}
}

func TestSharedLogThatIsGoneOrCutShortIsDamage(t *testing.T) {
	mem, _, _ := sharedOnly(t, 3)
	if err := mem.Remove("data/" + sharedName); err != nil {
		t.Fatal(err)
	}
	s := sharedStore(t, mem)
	if _, _, lost := openLog(t, s).Lost(); !lost {
		t.Fatal("the file is gone, and the log counts")
	}
	s.Abandon()
}

func TestSharedLogOfALaterVersionIsNotPassedOver(t *testing.T) {
	mem, _, _ := sharedOnly(t, 4)
	changeShared(t, mem, func(b []byte) []byte {
		g := sharedGeneration{number: 1, serial: 1 << 40}.append(nil)
		binary.BigEndian.PutUint32(g[8:], sharedVersion+1)
		binary.BigEndian.PutUint32(g[40:], crc32.Checksum(g[:40], castagnoli))
		copy(b, g[:44])
		return b
	})
	if _, err := Open(DefaultConfig("data"), Deps{FS: mem}); !errors.Is(err, errSharedVersion) {
		t.Fatalf("opened: %v", err)
	}
}

func TestEntryThatLeavesAGapMakesTheLogLost(t *testing.T) {
	mem, at, _ := sharedOnly(t, 5)
	f, err := mem.OpenAppend("data/" + partitionDirName(onlyPartition(t, mem)) + "/" + offsetName(0, logExt))
	if err == nil {
		err = errors.Join(f.Truncate(at-1), f.Sync())
	}
	if err != nil {
		t.Fatal(err)
	}
	s := sharedStore(t, mem)
	defer s.Abandon()
	l := openLog(t, s)
	if _, _, lost := l.Lost(); !lost || l.Offsets().End != 0 {
		t.Fatalf("lost %v, %+v", lost, l.Offsets())
	}
}

func TestCleanCloseLeavesWhatAnOlderProgramReads(t *testing.T) {
	mem := vfs.NewMem(6)
	s := sharedStore(t, mem)
	l := openLog(t, s)
	appendDurable(t, l, 5)
	if j := rereadJournal(t, mem); j.version != journalVersionCut {
		t.Fatalf("journal of version %d while the shared log is in use", j.version)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		image := mem.CrashSeed(seed)
		if j := rereadJournal(t, image); j.version != journalVersion {
			t.Fatalf("journal of version %d after a clean close", j.version)
		}
		s := openStore(t, image, "data")
		if l := openLog(t, s); !s.Clean() || l.Offsets().End != 5 {
			t.Fatalf("clean %v, %+v", s.Clean(), l.Offsets())
		}
		s.Abandon()
	}
}

func TestStoreGoesWithoutASharedLogWhenThereIsNoSpace(t *testing.T) {
	mem := vfs.NewMem(7)
	mem.SetCapacity(sharedBytesMin / 2)
	s := openStore(t, mem, "data", func(c *Config) { c.ReserveBytes, c.SharedLogBytes = 1, sharedBytesMin })
	defer s.Abandon()
	s.syncer.sharedMin.Store(1)
	s.syncer.sharedAfter = 2
	l := openLog(t, s)
	for range 5 {
		appendDurable(t, l, 1)
		s.syncer.await(false)
	}
	eventually(t, func() bool { return s.syncer.retryAt.Load() > 0 && !s.syncer.making.Load() })
	appendDurable(t, l, 3)
	if s.stats.SharedRounds.Load() > 0 {
		t.Fatal("there is no space for it")
	}
	if _, err := mem.Stat("data/" + sharedName + tmpExt); err == nil {
		t.Fatal("half a file takes the space that is left")
	}
	// The disk has space again, and its time has come.
	mem.SetCapacity(0)
	s.measure()
	s.syncer.retryAt.Store(1)
	eventually(t, func() bool { appendDurable(t, l, 1); return s.stats.SharedRounds.Load() > 0 })
}

func TestErrorOfTheSharedLogTakesEveryLogOffline(t *testing.T) {
	mem := vfs.NewMem(8)
	fs := &failingShared{FS: mem}
	s := sharedStore(t, fs)
	defer s.Abandon()
	a := openLog(t, s)
	b, err := s.Log(scalePartition(7), DefaultLogConfig())
	if err != nil {
		t.Fatal(err)
	}
	appendDurable(t, a, 2)
	appendDurable(t, b, 2)
	fs.fail.Store(true)
	mustAppend(t, a, records(1, 50, 1))
	eventually(t, func() bool { return errors.Is(a.Err(), ErrOffline) && errors.Is(b.Err(), ErrOffline) })
	if d := a.Offsets().Durable; d != 2 {
		t.Fatalf("durable up to %d", d)
	}
}

// failingShared fails the shared log's syncs.
type failingShared struct {
	vfs.FS
	fail atomic.Bool
}

type failingFile struct {
	vfs.File
	fs *failingShared
}

func (f *failingShared) OpenAppend(name string) (vfs.File, error) {
	file, err := f.FS.OpenAppend(name)
	if err == nil && strings.HasSuffix(name, sharedName) {
		return &failingFile{file, f}, nil
	}
	return file, err
}

func (f *failingFile) Sync() error {
	if f.fs.fail.Load() {
		return fmt.Errorf("sync: %w", syscall.EIO)
	}
	return f.File.Sync()
}

// A reset makes what the shared log has of the log wrong, also for a log that
// begins where the old one did.
func TestResetVoidsWhatTheSharedLogHas(t *testing.T) {
	mem := vfs.NewMem(9)
	s := sharedStore(t, mem)
	l := openLog(t, s)
	appendDurable(t, l, 6)
	if err := l.ResetTo(0, nil, nil); err != nil {
		t.Fatal(err)
	}
	appendDurable(t, l, 1)
	want := readAll(t, l, 1<<20)
	for seed := range uint64(30) {
		s := sharedStore(t, mem.CrashSeed(seed))
		l := openLog(t, s)
		got := readAll(t, l, 1<<20)
		if len(got) != 1 || !bytes.Equal(got[0], want[0]) {
			t.Fatalf("seed %d: %d batches, want the one after the reset", seed, len(got))
		}
		s.Abandon()
	}
	s.Abandon()
}

// What lies below a recovery point that is not durable may be written into its
// segment again at the next open: a compacted one must not be in its place.
func TestCompactedSegmentWaitsForADurableRecoveryPoint(t *testing.T) {
	mem := vfs.NewMem(10)
	var s *Store
	swaps, early := 0, 0
	fs := &hookFS{FS: mem, hook: func(op, name string) {
		if op != "rename" || !strings.HasSuffix(name, swapExt) {
			return
		}
		swaps++
		s.journal.mu.Lock()
		defer s.journal.mu.Unlock()
		if s.journal.synced != s.journal.at {
			early++
		}
	}}
	s = sharedStore(t, fs)
	defer s.Abandon()
	l := openLog(t, s, compacted)
	mustAppend(t, l, keyed(1, batch.Options{}, "a", "1", "b", "1"))
	mustAppend(t, l, keyed(2, batch.Options{}, "a", "2", "b", "2"))
	if err := l.Roll(0); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, keyed(3, batch.Options{}, "c", "3"))
	waitDurable(t, l, l.Offsets().End)
	l.SetHighWatermark(l.Offsets().End)
	eventually(t, func() bool { s.finishSealed(); return l.list()[0].is(segTrusted) })
	if err := s.checkpoint([]*Log{l}, false); err != nil {
		t.Fatal(err)
	}
	// As between a checkpoint's record and its sync.
	l.maintMu.Lock()
	l.saved.highWatermark--
	err := s.journal.put(keyOf(l.part), l.saved)
	l.maintMu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if r := mustCompact(t, l, 10); !r.Ran || swaps == 0 {
		t.Fatalf("%+v, %d swaps", r, swaps)
	}
	if early > 0 {
		t.Fatalf("%d of %d swaps before the journal was synced", early, swaps)
	}
}
