package hot

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// TestFirstWriteOrSyncErrorEndsAppends injects EIO at every k-th write or
// sync of a segment file: from then on the log takes nothing, acknowledges
// nothing, and serves what it has.
func TestFirstWriteOrSyncErrorEndsAppends(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpWrite, vfs.OpSync, vfs.OpSyncFS, vfs.OpSyncDir, vfs.OpTruncate} {
		for _, filesMax := range []int{0, 4} {
			hit := 0
			for k := range 12 {
				if faultAt(t, op, k, filesMax) {
					hit++
				}
			}
			reachable := op != vfs.OpSyncFS || filesMax == 0
			reachable = reachable && (op == vfs.OpWrite || op == vfs.OpTruncate || op == vfs.OpSyncFS || filesMax > 0)
			if reachable && hit == 0 {
				t.Errorf("%s with %d files: no fault was reached", op, filesMax)
			}
		}
	}
}

func faultAt(t *testing.T, op vfs.Op, k, filesMax int) bool {
	t.Helper()
	mem := vfs.NewMem(uint64(k))
	fs := vfs.NewFaults(mem)
	s := openStore(t, fs, "data", func(c *Config) { c.SyncFilesMax = filesMax })
	defer s.Abandon()
	l := openLog(t, s, func(c *LogConfig) { c.SegmentBytes = 600 })
	path := "*.log"
	if op == vfs.OpSyncFS || op == vfs.OpSyncDir {
		path = ""
	}
	fault := fs.Inject(vfs.Rule{Ops: []vfs.Op{op}, Path: path, Skip: k, Err: syscall.EIO, Count: 1})
	var acked int64
	for range 30 {
		if _, err := l.Append(records(3, 30, 1), AppendOptions{Now: 1}); err != nil {
			if !errors.Is(err, ErrOffline) {
				t.Fatalf("%s %d: %v", op, k, err)
			}
			break
		}
		want := l.Offsets().End
		eventually(t, func() bool { return l.Offsets().Durable >= want || l.Err() != nil })
		if l.Err() == nil {
			acked = want
		}
	}
	if fault.Hits() == 0 {
		return false
	}
	if !errors.Is(l.Err(), ErrOffline) || !strings.Contains(l.Err().Error(), "disk needs attention") {
		t.Fatalf("%s %d: err is %v", op, k, l.Err())
	}
	o := l.Offsets()
	for range 3 {
		if _, err := l.Append(records(1, 10, 1), AppendOptions{}); !errors.Is(err, ErrOffline) {
			t.Fatalf("%s %d: append after the error: %v", op, k, err)
		}
	}
	if got := l.Offsets(); got != o {
		t.Fatalf("%s %d: offsets moved from %+v to %+v after the error", op, k, o, got)
	}
	if o.Durable < acked {
		t.Fatalf("%s %d: durable %d, acknowledged %d", op, k, o.Durable, acked)
	}
	for at := int64(0); at < acked; {
		sl, err := l.Read(at, 1<<20, acked, true)
		if err != nil {
			t.Fatalf("%s %d: read of an offline log: %v", op, k, err)
		}
		at = sl.NextOffset()
		sl.Release()
	}
	if err := s.Close(context.Background()); !errors.Is(err, ErrOffline) {
		t.Fatalf("%s %d: close of a store with an offline log: %v", op, k, err)
	}
	if _, err := mem.Stat(filepath.Join("data", markerName)); err == nil {
		t.Fatalf("%s %d: clean marker after an error", op, k)
	}
	return true
}

func TestDiskNearlyFullRefusesAppendsServesReadsAndRecovers(t *testing.T) {
	mem := vfs.NewMem(1)
	mem.SetCapacity(1 << 20)
	s := openStore(t, mem, "data", func(c *Config) { c.ReserveBytes = 200 << 10 })
	l := openLog(t, s)
	var n int
	for ; n < 1000; n++ {
		_, err := l.Append(records(1, 10_000, 1), AppendOptions{Now: 1})
		if errors.Is(err, ErrDiskFull) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		// However fast the writer, the reserve is never touched.
		if _, free, _ := mem.Usage("data"); free < 200<<10 {
			t.Fatalf("%d bytes free after %d batches", free, n)
		}
	}
	if n < 50 || n > 90 {
		t.Fatalf("refused after %d batches of 10 kB; 1 MiB less 200 KiB reserve", n)
	}
	if l.Err() != nil {
		t.Fatalf("usage %+v, err %v", s.Usage(), l.Err())
	}
	checkDense(t, readAll(t, l, 1<<20), 0, int64(n))
	mem.SetCapacity(4 << 20)
	s.measure()
	mustAppend(t, l, records(1, 10, 1))
	closeStore(t, s)
}

func TestWriteThatMeetsTheEndOfTheDiskIsUndone(t *testing.T) {
	mem := vfs.NewMem(1)
	mem.SetCapacity(100 << 10)
	s := openStore(t, mem, "data", func(c *Config) { c.ReserveBytes = 1 })
	l := openLog(t, s)
	for {
		if _, err := l.Append(records(1, 30_000, 1), AppendOptions{Now: 1}); err != nil {
			if !errors.Is(err, ErrDiskFull) || l.Err() != nil {
				t.Fatalf("%v; log: %v", err, l.Err())
			}
			break
		}
	}
	end := l.Offsets().End
	mem.SetCapacity(0)
	s.measure()
	mustAppend(t, l, records(1, 30_000, 1))
	checkDense(t, readAll(t, l, 1<<20), 0, end+1)
	s.Abandon()
	l = openLog(t, openStore(t, mem, "data"))
	checkDense(t, readAll(t, l, 1<<20), 0, end+1)
}

// damaged makes a log of several segments and returns its file system, closed.
func segmented(t *testing.T, n int) (*vfs.Mem, []batch.Batch) {
	t.Helper()
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s, smallSegments)
	var all []batch.Batch
	for range n {
		b := records(3, 40, 1)
		mustAppend(t, l, b)
		all = append(all, b)
	}
	waitDurable(t, l, l.Offsets().End)
	l.SetHighWatermark(l.Offsets().End)
	closeStore(t, s)
	return mem, all
}

func smallSegments(c *LogConfig) {
	c.SegmentBytes, c.IndexIntervalBytes, c.RetentionMillis = 900, 200, -1
}

func flip(t *testing.T, fs vfs.FS, name string, at int64) {
	t.Helper()
	f, err := fs.OpenAppend(name)
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x55
	if _, err := f.WriteAt(b[:], at); err != nil {
		t.Fatal(err)
	}
	f.Close()
}

func TestDamageInASealedSegmentIsQuarantinedAndNeverCut(t *testing.T) {
	mem, all := segmented(t, 40)
	s := openStore(t, mem, "data")
	l := openLog(t, s, smallSegments)
	seg := l.list()[2]
	size, err := seg.bytes()
	if err != nil {
		t.Fatal(err)
	}
	flip(t, mem, seg.path(logExt), 16) // magic of its first batch
	_, err = l.Read(seg.base, 1<<20, 1<<60, true)
	var ce *CorruptError
	if !errors.Is(err, ErrCorrupt) || !errors.As(err, &ce) || !strings.Contains(ce.Path, offsetName(seg.base, logExt)) {
		t.Fatalf("read of a damaged segment: %v", err)
	}
	if s.Stats().Quarantined.Load() != 1 {
		t.Fatal("quarantine is not counted")
	}
	if got, _ := seg.bytes(); got != size {
		t.Fatalf("segment was cut to %d", got)
	}
	sealed, err := l.Sealed(0, 1<<60)
	if err != nil || len(sealed) != 2 {
		t.Fatalf("%d segments before the damaged one are offered for upload, want 2: %v", len(sealed), err)
	}
	sl, err := l.Read(all[0].BaseOffset(), 1<<20, 1<<60, true)
	if err != nil {
		t.Fatalf("read of another segment: %v", err)
	}
	sl.Release()
	mustAppend(t, l, records(1, 5, 1))
}

// TestDamageBelowACrashIsQuarantinedToo flips a byte in a sealed segment that
// recovery scans because its journal record is old.
func TestDamageThatRecoveryMeetsInASealedSegmentIsNotATornTail(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s, smallSegments)
	for range 40 {
		mustAppend(t, l, records(3, 40, 1))
	}
	end := l.Offsets().End
	waitDurable(t, l, end)
	segs := l.list()
	eventually(t, func() bool { return segs[len(segs)-2].is(segTrusted) })
	s.Abandon()
	flip(t, mem, segs[3].path(logExt), 70)
	s = openStore(t, mem, "data")
	l = openLog(t, s, smallSegments)
	if got := l.Offsets().End; got != end {
		t.Fatalf("end %d, want %d: records after the damage were dropped", got, end)
	}
	if _, err := l.Read(segs[3].base, 1<<20, end, true); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("read of the damaged segment: %v", err)
	}
	sl, err := l.Read(segs[4].base, 1<<20, end, true)
	if err != nil {
		t.Fatal(err)
	}
	sl.Release()
}

func TestLostDurableBytesTakeTheLogOfflineInsteadOfCuttingIt(t *testing.T) {
	for name, spoil := range map[string]func(*vfs.Mem, *Log) error{
		"active segment shortened": func(m *vfs.Mem, l *Log) error {
			f, err := m.OpenAppend(l.active().path(logExt))
			if err == nil {
				err = f.Truncate(10)
			}
			return err
		},
		"active segment removed": func(m *vfs.Mem, l *Log) error { return m.Remove(l.active().path(logExt)) },
	} {
		t.Run(name, func(t *testing.T) {
			mem, _ := segmented(t, 41)
			s := openStore(t, mem, "data")
			l := openLog(t, s, smallSegments)
			if err := spoil(mem, l); err != nil {
				t.Fatal(err)
			}
			s.Abandon()
			s = openStore(t, mem, "data")
			l = openLog(t, s, smallSegments)
			if !errors.Is(l.Err(), ErrOffline) || !errors.Is(l.Err(), ErrCorrupt) {
				t.Fatalf("err is %v", l.Err())
			}
			if _, err := l.Append(records(1, 1, 1), AppendOptions{}); !errors.Is(err, ErrOffline) {
				t.Fatalf("append: %v", err)
			}
			sl, err := l.Read(0, 1000, 3, true)
			if err != nil {
				t.Fatalf("read of what is left: %v", err)
			}
			sl.Release()
		})
	}
}

// answers is everything a log says about itself.
func answers(t *testing.T, l *Log) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "%+v %v\n", l.Offsets(), l.Lineage())
	for _, one := range readAll(t, l, 500) {
		fmt.Fprintf(&b, "%d %d %08x\n", one.BaseOffset(), one.LastOffset(), one.CRC())
	}
	for ts := int64(0); ts < 6; ts++ {
		at, ok, err := l.OffsetForTime(ts)
		fmt.Fprintf(&b, "%d: %+v %v %v\n", ts, at, ok, err)
	}
	ps, err := l.Producers()
	fmt.Fprintf(&b, "%+v %v\n", ps, err)
	txns, err := l.AbortedTxns(0, 1<<60)
	fmt.Fprintf(&b, "%+v %v\n", txns, err)
	return b.String()
}

// derived builds a log that has every kind of derived file, and closes it.
func derived(t *testing.T) *vfs.Mem {
	t.Helper()
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s, smallSegments)
	seq := int32(0)
	for i := range 30 {
		if i%10 == 3 {
			if err := l.AssignEpoch(int32(i)); err != nil {
				t.Fatal(err)
			}
		}
		mustAppend(t, l, records(2, 40, int64(i%5)))
		mustAppend(t, l, produced(5, 0, seq, 2, i%3 == 0), func(o *AppendOptions) { o.TxnVerified = true })
		seq += 2
		if i%3 == 0 {
			mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Abort}, 5, 0, 4), func(o *AppendOptions) { o.Origin = Coordinator })
		}
	}
	waitDurable(t, l, l.Offsets().End)
	l.SetHighWatermark(l.Offsets().End)
	closeStore(t, s)
	return mem
}

// TestDerivedFilesAreRebuiltWhenDamagedOrGone spoils each derived file in
// turn, three ways, and compares with the untouched twin.
func TestDerivedFilesAreRebuiltWhenDamagedOrGone(t *testing.T) {
	twin := derived(t)
	s := openStore(t, twin, "data")
	want := answers(t, openLog(t, s, smallSegments))
	s.Abandon()
	dir := filepath.Join("data", partitionDirName(testPartition))
	entries, err := twin.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), logExt) {
			names = append(names, e.Name())
		}
	}
	if len(names) < 10 || !slices.Contains(names, epochsName) {
		t.Fatalf("files: %v", names)
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		for how, spoil := range map[string]func(vfs.FS) error{
			"gone": func(fs vfs.FS) error { return fs.Remove(path) },
			"short": func(fs vfs.FS) error {
				f, err := fs.OpenAppend(path)
				if err != nil {
					return err
				}
				n, err := f.Size()
				return errors.Join(err, f.Truncate(n/2), f.Close())
			},
			"flipped": func(fs vfs.FS) error {
				info, err := fs.Stat(path)
				if err == nil && info.Size() > 0 {
					flip(t, fs, path, info.Size()-1)
				}
				return err
			},
		} {
			if how == "gone" && strings.HasSuffix(name, txnExt) {
				// Its absence means "no aborts"; the directory listing is
				// the record of which segments have one.
				continue
			}
			mem := derived(t)
			if err := spoil(mem); err != nil {
				t.Fatal(err)
			}
			s := openStore(t, mem, "data")
			l := openLog(t, s, smallSegments)
			if got := answers(t, l); got != want {
				t.Errorf("%s %s: answers differ:\n%s\nwant:\n%s", name, how, got, want)
			}
			mustAppend(t, l, records(1, 1, 1))
			s.Abandon()
		}
	}
}

func TestUnreadableJournalStopsTheStoreAndALostOneIsRebuilt(t *testing.T) {
	mem, all := segmented(t, 40)
	path := filepath.Join("data", journalName)
	flip(t, mem, path, 0)
	if _, err := Open(DefaultConfig("data"), Deps{FS: mem}); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("open with a journal that is none: %v", err)
	}
	if err := mem.Remove(path); err != nil {
		t.Fatal(err)
	}
	s := openStore(t, mem, "data")
	if s.Clean() {
		t.Fatal("clean without its journal")
	}
	l := openLog(t, s, smallSegments)
	checkDense(t, readAll(t, l, 1<<20), 0, all[len(all)-1].LastOffset()+1)
}

// TestRecoveredTailIsNotDurableBeforeItIsSynced: bytes that a scan finds after
// a kill are in the page cache, not on disk; a power loss right afterwards may
// still take them, so they must not be promised.
func TestRecoveredTailIsNotDurableBeforeItIsSynced(t *testing.T) {
	for seed := range uint64(100) {
		mem := vfs.NewMem(seed)
		s := openStore(t, mem, "data", func(c *Config) { c.Durability, c.FlushInterval = Replicated, time.Hour })
		l := openLog(t, s)
		for range 10 {
			mustAppend(t, l, records(2, 100, 1))
		}
		s.Abandon()
		s = openStore(t, mem, "data")
		durable := openLog(t, s).Offsets().Durable
		lost := mem.Crash()
		s.Abandon()
		s = openStore(t, lost, "data")
		if end := openLog(t, s).Offsets().End; end < durable {
			t.Fatalf("seed %d: %d was durable after the kill, power loss left %d", seed, durable, end)
		}
		s.Abandon()
	}
}
