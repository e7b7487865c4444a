package hot

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
)

// TestLogOpensWithoutItsEpochsAndWithDamage damages the sealed segment in which an epoch begins, or one in the middle of an epoch, and
// loses the file of leader epochs, before a start that scans nothing and before one that scans all.
func TestLogOpensWithoutItsEpochsAndWithDamage(t *testing.T) {
	for _, boundary := range []bool{true, false} {
		for _, journal := range []bool{true, false} {
			mem := vfs.NewMem(1)
			s := openStore(t, mem, "data")
			l := openLog(t, s, smallSegments)
			var at, pos int64
			var path string
			for epoch := range int32(4) {
				if err := l.AssignEpoch(epoch); err != nil {
					t.Fatal(err)
				}
				for i := range 8 {
					before := l.active()
					size := before.size.Load()
					a := mustAppend(t, l, records(3, 40, 1))
					if epoch == 2 && (i == 0) == boundary && at == 0 {
						at, pos, path = a.BaseOffset, size, before.path(logExt)
						if l.active() != before {
							pos, path = 0, l.active().path(logExt)
						}
					}
				}
			}
			end := l.Offsets().End
			waitDurable(t, l, end)
			l.SetHighWatermark(end)
			want := slices.Clone(l.Lineage())
			sound := copyOf(readAll(t, l, 1<<20))
			closeStore(t, s)
			flip(t, mem, path, pos+70)
			lose := []string{filepath.Join(l.dir, epochsName)}
			if !journal {
				lose = append(lose, "data/"+journalName)
			}
			for _, name := range lose {
				if err := mem.Remove(name); err != nil {
					t.Fatal(err)
				}
			}
			for start := range 2 {
				s = openStore(t, mem, "data")
				l = openLog(t, s, smallSegments)
				got := l.Lineage()
				if l.Err() != nil || l.Offsets().End != end || len(got) < 3 || got.Latest() != 3 {
					t.Fatalf("boundary %t, journal %t, start %d: %v, %+v, chain %v", boundary, journal, start, l.Err(), l.Offsets(), got)
				}
				if d := l.Damaged(); len(d) != 1 || d[0].Start != at || !l.Incomplete() || l.Doubtful() != boundary {
					t.Fatalf("boundary %t, journal %t, start %d: damage %+v, incomplete %t, doubtful %t", boundary, journal, start, d, l.Incomplete(), l.Doubtful())
				}
				if boundary == got.Equal(want) {
					t.Fatalf("boundary %t: chain %v, was %v", boundary, got, want)
				}
				closeStore(t, s)
			}
			s = openStore(t, mem, "data")
			l = openLog(t, s, smallSegments)
			l.Lineage()
			d := l.Damaged()[0]
			if err := l.Repair(d, sound.between(d.Start, d.End)); err != nil {
				t.Fatal(err)
			}
			checkChain(t, l, want)
			closeStore(t, s)
			s = openStore(t, mem, "data")
			l = openLog(t, s, smallSegments)
			checkChain(t, l, want)
			s.Abandon()
		}
	}
}

func checkChain(t *testing.T, l *Log, want lineage.Chain) {
	t.Helper()
	if got := l.Lineage(); !got.Equal(want) || l.Doubtful() || l.Incomplete() {
		t.Fatalf("chain %v, was %v; doubtful %t, incomplete %t", got, want, l.Doubtful(), l.Incomplete())
	}
}

// killedInDoubt kills a follower whose log has an epoch that begins in a batch damaged since, behind the checkpoint, and
// starts it again in the same run of the kernel.
func killedInDoubt(t *testing.T) (mem *vfs.Mem, s *Store, l *Log, sound copyOf, bad int64) {
	t.Helper()
	mem = vfs.NewMem(1)
	s, l = openInRun(t, mem)
	followEpoch(t, l, 0, 5)
	followEpoch(t, l, 1, 5)
	closeStore(t, s)
	s, l = openInRun(t, mem)
	followEpoch(t, l, 1, 2)
	bad = l.Offsets().End
	followEpoch(t, l, 2, 5)
	sound = copyOf(readAll(t, l, 1<<20))
	path, at := l.active().path(logExt), int64(70)
	for _, b := range sound {
		if b.BaseOffset() < bad {
			at += int64(len(b))
		}
	}
	s.Abandon()
	flip(t, mem, path, at)
	s, l = openInRun(t, mem)
	if d := l.Damaged(); len(d) != 1 || d[0].Start != bad || d[0].End != bad+3 || !l.Doubtful() {
		t.Fatalf("damage %+v, doubtful %t", d, l.Doubtful())
	}
	return mem, s, l, sound, bad
}

func openInRun(t *testing.T, fs vfs.FS) (*Store, *Log) {
	t.Helper()
	s := openRun(t, fs, "run 1")
	return s, openLog(t, s)
}

// followEpoch appends batches of three records of a leader epoch, as a follower does.
func followEpoch(t *testing.T, l *Log, epoch int32, batches int) {
	t.Helper()
	for range batches {
		b := records(3, 40, 1)
		b.SetBaseOffset(l.Offsets().End)
		b.SetLeaderEpoch(epoch)
		mustAppend(t, l, b, func(o *AppendOptions) { o.Origin = Follower })
	}
	waitDurable(t, l, l.Offsets().End)
}

// TestDoubtOutlivesAStart has an epoch begin behind damage, and another one follow it before the log is opened again: once in
// order and once by a crash at the end of a checkpoint.
func TestDoubtOutlivesAStart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		mem, s, l, sound, bad := killedInDoubt(t)
		followEpoch(t, l, 3, 5)
		end := l.Offsets().End
		l.SetHighWatermark(end)
		if clean {
			closeStore(t, s)
		} else {
			if err := s.checkpoint(s.opened(), false); err != nil {
				t.Fatal(err)
			}
			s.Abandon()
			mem = mem.CrashSeed(7)
		}
		for start := range 2 {
			s, l = openInRun(t, mem)
			for at := int64(0); at < end; at += 3 {
				if found, err := l.CheckAt(at); err != nil || found != (at == bad) {
					t.Fatalf("clean %t, start %d: offset %d is damaged: %t, %v", clean, start, at, found, err)
				}
			}
			if !l.Doubtful() || l.LatestEpoch() != 3 || len(l.Lineage()) != 4 {
				t.Fatalf("clean %t, start %d: doubtful %t, chain %v", clean, start, l.Doubtful(), l.Lineage())
			}
			if start == 0 {
				closeStore(t, s)
			}
		}
		d := l.Damaged()[0]
		if err := l.Repair(d, sound.between(d.Start, d.End)); err != nil {
			t.Fatal(err)
		}
		want := lineage.Chain{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 15}, {Epoch: 2, Start: bad}, {Epoch: 3, Start: end - 15}}
		checkChain(t, l, want)
		closeStore(t, s)
		s, l = openInRun(t, mem)
		checkChain(t, l, want)
		s.Abandon()
	}
}

// TestTruncationBelowDamageEndsDoubt cuts off the damage and what follows it.
func TestTruncationBelowDamageEndsDoubt(t *testing.T) {
	mem, s, l, _, bad := killedInDoubt(t)
	if err := l.TruncateTo(bad - 3); err != nil {
		t.Fatal(err)
	}
	want := lineage.Chain{{Epoch: 0, Start: 0}, {Epoch: 1, Start: 15}}
	checkChain(t, l, want)
	closeStore(t, s)
	_, l = openInRun(t, mem)
	checkChain(t, l, want)
}

// TestEpochInTheRestOfADamagedSegmentIsDoubtful has a scan pass the rest of a segment whose footer says that all of it was
// synced, and in which an epoch begins.
func TestEpochInTheRestOfADamagedSegmentIsDoubtful(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data", rarely)
	l := openLog(t, s, smallSegments)
	for len(l.list()) < 3 {
		followEpoch(t, l, 1, 1)
	}
	seg := l.active()
	from := l.Offsets().End
	followEpoch(t, l, 2, 1)
	if l.active() != seg {
		t.Fatal("no room in the segment")
	}
	for len(l.list()) < 5 {
		followEpoch(t, l, 2, 1)
	}
	eventually(t, func() bool { return seg.is(segTrusted) })
	end := l.Offsets().End
	s.Abandon()
	flip(t, mem, seg.path(logExt), 70)
	s = openStore(t, mem, "data", rarely)
	l = openLog(t, s, smallSegments)
	if found, err := l.CheckAt(from); found || err != nil || !l.Doubtful() || l.Offsets().End != end {
		t.Fatalf("damaged %t, %v; doubtful %t, chain %v", found, err, l.Doubtful(), l.Lineage())
	}
}
