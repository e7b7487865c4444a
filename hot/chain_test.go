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
