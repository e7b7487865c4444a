package hot

import (
	"errors"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// killed makes a log of sealed segments with footers whose recovery point
// never moved, kills the process and takes the footer of the second segment
// away, as power loss may.
func killed(t *testing.T) (mem *vfs.Mem, second string, end int64) {
	t.Helper()
	mem = vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s, smallSegments)
	for range 30 {
		mustAppend(t, l, records(3, 40, 1))
	}
	end = l.Offsets().End
	waitDurable(t, l, end)
	segs := l.list()
	for _, seg := range segs[:len(segs)-1] {
		eventually(t, func() bool { return seg.is(segTrusted) })
	}
	s.Abandon()
	if err := mem.Remove(segs[1].path(indexExt)); err != nil {
		t.Fatal(err)
	}
	return mem, segs[1].path(logExt), end
}

// TestDamageBelowAFooterIsQuarantinedNotCut: a later segment's footer proves
// that the damaged one had been synced, so what follows it stays.
func TestDamageBelowAFooterIsQuarantinedNotCut(t *testing.T) {
	mem, second, end := killed(t)
	flip(t, mem, second, 100)
	s := openStore(t, mem, "data")
	l := openLog(t, s, smallSegments)
	if got := l.Offsets().End; got != end {
		t.Fatalf("log ends at %d after recovery, %d were durable", got, end)
	}
	if s.Stats().CutBytes.Load() != 0 || s.Stats().Quarantined.Load() != 1 {
		t.Fatalf("%d bytes cut, %d segments quarantined", s.Stats().CutBytes.Load(), s.Stats().Quarantined.Load())
	}
	segs := l.list()
	if _, err := l.Read(segs[1].base, 1<<20, end, true); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("read of the damaged segment: %v", err)
	}
	for at := segs[2].base; at < end; {
		sl, err := l.Read(at, 1<<20, end, true)
		if err != nil {
			t.Fatal(err)
		}
		at = sl.NextOffset()
		sl.Release()
	}
	mustAppend(t, l, records(3, 40, 1))
	// It is damage for the next start, too.
	waitDurable(t, l, l.Offsets().End)
	closeStore(t, s)
	l = openLog(t, openStore(t, mem, "data"), smallSegments)
	if _, err := l.Read(segs[1].base, 1<<20, end, true); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("read of the damaged segment after a restart: %v", err)
	}
}

// TestMissingDurableBatchesAreNotCutOver takes whole batches off the end of a
// segment that had been synced: the log says so and opens offline.
func TestMissingDurableBatchesAreNotCutOver(t *testing.T) {
	mem, second, end := killed(t)
	f, err := mem.OpenAppend(second)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(int64(records(3, 40, 1).SizeBytes())), f.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s := openStore(t, mem, "data")
		l := openLog(t, s, smallSegments)
		if err := l.Err(); !errors.Is(err, ErrOffline) || !errors.Is(err, ErrCorrupt) {
			t.Fatalf("log opens with %v", err)
		}
		segs := l.list()
		if s.Stats().CutBytes.Load() != 0 || segs[len(segs)-1].base < end-10 {
			t.Fatalf("%d bytes cut, last segment starts at %d of %d", s.Stats().CutBytes.Load(), segs[len(segs)-1].base, end)
		}
		s.Abandon()
	}
}
