package hot

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// journalEnd is the size of an image's journal.
func journalEnd(t *testing.T, fs vfs.FS) int64 {
	t.Helper()
	info, err := fs.Stat("data/" + journalName)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// damageJournal flips a bit of the first record at or behind a place.
func damageJournal(t *testing.T, fs *vfs.Mem, at int64) {
	t.Helper()
	flip(t, fs, "data/"+journalName, at+20)
}

// damageLastHeader flips a bit of the header of the shared log that counts.
func damageLastHeader(t *testing.T, fs *vfs.Mem) {
	t.Helper()
	f, err := fs.Open("data/" + sharedName)
	if err != nil {
		t.Fatal(err)
	}
	g, err := readSharedHeader(f, sharedBytesMin)
	if err != nil {
		t.Fatal(err)
	}
	flip(t, fs, "data/"+sharedName, g.place(sharedBytesMin)+17)
}

// staleLog is a log whose ten first records are in the shared log, of which the last
// nine are there alone.
func staleLog(t *testing.T, seed uint64, change ...func(*LogConfig)) (mem *vfs.Mem, s *Store, l *Log) {
	t.Helper()
	mem = vfs.NewMem(seed)
	s = sharedStore(t, mem)
	l = openLog(t, s, change...)
	appendDurable(t, l, 1)
	s.syncer.flush()
	appendDurable(t, l, 9)
	return mem, s, l
}

// hasOnly opens an image and says what its log has; it fails when any of it is not
// what the log had.
func hasOnly(t *testing.T, what string, image *vfs.Mem, want []batch.Batch, end int64, change ...func(*LogConfig)) (had int64, lost bool) {
	t.Helper()
	s := openStore(t, image, "data")
	defer s.Abandon()
	l := openLog(t, s, change...)
	if err := l.Err(); errors.Is(err, ErrCorrupt) {
		return -1, true // it knows that bytes are gone
	}
	sound := map[int64]batch.Batch{}
	for _, b := range want {
		sound[b.BaseOffset()] = b
	}
	for _, b := range readAll(t, l, 1<<20) {
		if w := sound[b.BaseOffset()]; !bytes.Equal(w, b) {
			t.Fatalf("%s: the batch at %d is %d bytes of something else", what, b.BaseOffset(), len(b))
		}
	}
	_, _, lost = l.Lost()
	if had = l.Offsets().End; had < end && !lost {
		t.Fatalf("%s: ends at %d, %d was acknowledged, and it does not know", what, had, end)
	}
	return had, lost
}

// other appends records that differ from those of appendDurable, of the same size.
func other(t *testing.T, l *Log, n int) {
	t.Helper()
	for range n {
		a := mustAppend(t, l, records(1, 50, 9))
		waitDurable(t, l, a.LastOffset+1)
	}
}

// The journal loses the record of what made bytes of the shared log void: they are
// not written over what took their place.
func TestJournalThatLostACutDoesNotBringBackWhatWasCut(t *testing.T) {
	for name, change := range map[string]func(*testing.T, *Store, *Log) *Log{
		"truncation": func(t *testing.T, s *Store, l *Log) *Log {
			if err := l.TruncateTo(4); err != nil {
				t.Fatal(err)
			}
			return l
		},
		"reset": func(t *testing.T, s *Store, l *Log) *Log {
			if err := l.ResetTo(0, nil, nil); err != nil {
				t.Fatal(err)
			}
			return l
		},
		"made anew": func(t *testing.T, s *Store, l *Log) *Log {
			if err := s.Delete(l.Partition()); err != nil {
				t.Fatal(err)
			}
			return openLog(t, s)
		},
	} {
		for _, how := range []string{"in place", "shared", "shared, header damaged"} {
			shared, blind := how != "in place", how == "shared, header damaged"
			mem, s, l := staleLog(t, 41)
			at := journalEnd(t, mem)
			l = change(t, s, l)
			if !shared {
				s.syncer.sharedMin.Store(100)
			}
			other(t, l, 3)
			want, end := readAll(t, l, 1<<20), l.Offsets().End
			for seed := range uint64(12) {
				image := mem.CrashSeed(seed)
				if seed == 0 {
					image = mem.Clone()
				}
				damageJournal(t, image, at)
				if blind { // what tells of a later cut is an entry, then
					damageLastHeader(t, image)
				}
				hasOnly(t, fmt.Sprintf("%s, %s, seed %d", name, how, seed), image, want, end)
			}
			s.Abandon()
		}
	}
}

// A compacted segment is not written into by entries of the one that it replaces.
func TestJournalThatLostACompactionDoesNotUndoIt(t *testing.T) {
	mem := vfs.NewMem(42)
	s := sharedStore(t, mem)
	defer s.Abandon()
	l := openLog(t, s, compacted)
	put := func(value string, keys ...string) {
		t.Helper()
		var kv []string
		for _, k := range keys {
			kv = append(kv, k, value)
		}
		a := mustAppend(t, l, keyed(1, batch.Options{}, kv...))
		waitDurable(t, l, a.LastOffset+1)
	}
	put("1", "a")
	s.syncer.flush()
	for range 2 { // few: a checkpoint has the file begun anew when it is a quarter full
		put("1", "a", "b")
	}
	if s.stats.SharedRounds.Load() < 2 { // the first record may be in one, too
		t.Fatalf("%d rounds in the shared log", s.stats.SharedRounds.Load())
	}
	if err := l.Roll(0); err != nil {
		t.Fatal(err)
	}
	put("2", "c")
	l.SetHighWatermark(l.Offsets().End)
	eventually(t, func() bool { s.finishSealed(); return l.list()[0].is(segTrusted) })
	at := journalEnd(t, mem)
	if err := s.checkpoint([]*Log{l}, false); err != nil {
		t.Fatal(err)
	}
	if r := mustCompact(t, l, 10); !r.Ran {
		t.Fatalf("%+v", r)
	}
	if s.stats.SharedRenewed.Load() > 0 {
		t.Fatal("begun anew")
	}
	want := readAll(t, l, 1<<20)
	image := mem.Clone()
	damageJournal(t, image, at)
	hasOnly(t, "compacted", image, want, 0, compacted)
}

// A journal that lost nothing that matters is trusted: what the shared log has is
// applied.
func TestJournalThatLostLittleIsTrusted(t *testing.T) {
	mem, s, l := staleLog(t, 43)
	defer s.Abandon()
	want := readAll(t, l, 1<<20)
	at := journalEnd(t, mem)
	l.SetHighWatermark(10)
	s.journalWatermarks()
	if err := s.journal.sync(); err != nil {
		t.Fatal(err)
	}
	if journalEnd(t, mem) == at {
		t.Fatal("nothing was written into the journal")
	}
	for seed := range uint64(12) {
		image := mem.CrashSeed(seed)
		damageJournal(t, image, at)
		if had, lost := hasOnly(t, fmt.Sprint("seed ", seed), image, want, 10); had != 10 || lost {
			t.Fatalf("seed %d: ends at %d, lost %v", seed, had, lost)
		}
	}
}

// Any bit of the journal turns, after any of what may happen to a log: nothing that
// was acknowledged is missing without the log knowing, and nothing else is there.
func TestDamagedJournalNeverMakesTheSharedLogWrong(t *testing.T) {
	seeds := uint64(300)
	if longRun() {
		seeds = 1000
	}
	applied, lost := 0, 0
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 44))
		mem := vfs.NewMem(seed)
		s := sharedStore(t, mem)
		l := openLog(t, s)
		appendDurable(t, l, 1)
		for range 4 + rng.IntN(12) {
			o := l.Offsets()
			switch rng.IntN(8) {
			case 0:
				s.syncer.flush()
			case 1:
				if err := s.checkpoint([]*Log{l}, false); err != nil {
					t.Fatal(err)
				}
			case 2:
				if err := l.TruncateTo(o.LocalStart + rng.Int64N(o.End-o.LocalStart)); err != nil {
					t.Fatal(err)
				}
			case 3:
				if err := s.Delete(testPartition); err != nil {
					t.Fatal(err)
				}
				eventually(t, func() bool {
					_, err := mem.Stat("data/" + partitionDirName(testPartition) + deleteSuffix)
					return errors.Is(err, vfs.ErrNotExist)
				})
				l = openLog(t, s)
			case 4:
				if err := l.Roll(0); err != nil {
					t.Fatal(err)
				}
			}
			s.syncer.sharedMin.Store(int64(1 + 9*rng.IntN(2)))
			for range 1 + rng.IntN(3) {
				a := mustAppend(t, l, records(1, 50, rng.Int64N(1<<40)))
				waitDurable(t, l, a.LastOffset+1)
			}
			s.syncer.sharedMin.Store(1)
		}
		want, end := readAll(t, l, 1<<20), l.Offsets().End
		image := mem.CrashSeed(seed)
		if rng.IntN(4) == 0 {
			image = mem.Clone()
		}
		at := journalHeaderSize + rng.Int64N(journalEnd(t, image)-journalHeaderSize)
		flip(t, image, "data/"+journalName, at)
		had, gone := hasOnly(t, fmt.Sprintf("seed %d, bit in byte %d", seed, at), image, want, end)
		if gone {
			lost++
		}
		if had == end {
			applied++
		}
		s.Abandon()
	}
	t.Logf("%d of %d have all, %d know that they lack some", applied, seeds, lost)
	if applied == 0 || lost == 0 {
		t.Fatal("one-sided")
	}
}
