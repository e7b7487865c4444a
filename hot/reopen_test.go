package hot

import (
	"errors"
	"fmt"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// TestLogWithUnmendedDamageOpensAgain repairs one of two runs of damage, and nobody has the other for a while: starts follow, of
// which the first ends cleanly or with a crash.
func TestLogWithUnmendedDamageOpensAgain(t *testing.T) {
	for _, crash := range []bool{false, true} {
		t.Run(fmt.Sprintf("crash=%t", crash), func(t *testing.T) {
			x := damagedDerived(t)
			s := openStore(t, x.disk, "data")
			l := openLog(t, s, smallSegments)
			x.find(t, l)
			d := l.Damaged()[1]
			if err := l.Repair(d, x.sound.between(d.Start, d.End)); err != nil {
				t.Fatal(err)
			}
			closeStore(t, s)
			for start := range 4 {
				s = openStore(t, x.disk, "data")
				l = openLog(t, s, smallSegments)
				if start == 0 && l.saved.snapshot == 0 {
					t.Fatal("the snapshots were given up although nothing better can be derived yet")
				}
				if !l.Incomplete() || len(l.Damaged()) != 1 || l.Complete() == nil {
					t.Fatalf("start %d: incomplete %t, damage %+v", start, l.Incomplete(), l.Damaged())
				}
				if start == 1 { // as a build had it that gave them up
					l.maintMu.Lock()
					l.appendMu.Lock()
					l.saved.snapshot, l.saved.firstUnstable = 0, -1
					err := l.store.journal.put(keyOf(l.part), l.saved)
					if err == nil {
						err = l.dropSnapshots(0)
					}
					l.appendMu.Unlock()
					l.maintMu.Unlock()
					if err != nil {
						t.Fatal(err)
					}
				}
				if crash {
					mustAppend(t, l, records(1, 40, 1))
					waitDurable(t, l, l.Offsets().End)
					s.Abandon()
				} else {
					closeStore(t, s)
				}
			}
			s = openStore(t, x.disk, "data")
			l = openLog(t, s, smallSegments)
			l.SetHighWatermark(l.Offsets().End)
			x.mend(t, l)
			x.whole(t, l, "at last", 0)
			closeStore(t, s)
		})
	}
}

// TestDamageFoundAsProducersAreLoadedIsJudged appends what was appended before, to a log that learns of its damage only then.
func TestDamageFoundAsProducersAreLoadedIsJudged(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	mustAppend(t, l, records(3, 40, 1))
	pos := l.active().size.Load()
	mustAppend(t, l, produced(2, 0, 0, 2, false))
	waitDurable(t, l, l.Offsets().End)
	flip(t, mem, l.active().path(logExt), pos+70)
	l.stateMu.Lock()
	l.producers = nil // as after a truncation that could not load them
	l.stateMu.Unlock()
	l.snapAt.Store(0)
	end := l.Offsets().End
	if _, err := l.Append(produced(2, 0, 0, 2, false), AppendOptions{MustJudge: true}); !errors.Is(err, ErrUnjudged) {
		t.Fatalf("a repeat of what is damaged: %v", err)
	}
	if _, err := l.Append(records(1, 40, 1), AppendOptions{MustJudge: true}); err != nil || l.Offsets().End != end+1 {
		t.Fatalf("there is nothing to judge: %v", err)
	}
	s.Abandon()
}

// TestDeletedDamageLacksNothing moves the log start past damage whose segment stays.
func TestDeletedDamageLacksNothing(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	mustAppend(t, l, records(3, 40, 1))
	pos, from := l.active().size.Load(), l.Offsets().End
	mustAppend(t, l, produced(2, 0, 0, 2, false))
	to := l.Offsets().End
	mustAppend(t, l, produced(3, 0, 0, 2, false))
	waitDurable(t, l, l.Offsets().End)
	flip(t, mem, l.active().path(logExt), pos+70)
	if bad, err := l.CheckAt(from); !bad || err != nil {
		t.Fatalf("%t, %v", bad, err)
	}
	l.passed(from)
	l.SetHighWatermark(l.Offsets().End)
	if err := l.Complete(); err == nil || !l.Incomplete() {
		t.Fatalf("it lacks what is damaged: %v", err)
	}
	if err := l.AdvanceLogStart(to); err != nil {
		t.Fatal(err)
	}
	if err := l.Complete(); err != nil || l.Incomplete() {
		t.Fatalf("incomplete %t: %v", l.Incomplete(), err)
	}
	if got, err := l.Producers(); err != nil || len(got) != 1 || got[0].ProducerID != 3 {
		t.Fatalf("producers %+v, %v", got, err)
	}
	s.Abandon()
}

// Power loss may keep the directory of a log that was made again and not the
// record that the one before was deleted: it is not to lack what that one had.
func TestLogMadeAgainIsNotHeldAgainstTheDeletedOne(t *testing.T) {
	mem := vfs.NewMem(21)
	s := openStore(t, mem, "data")
	defer s.Abandon()
	l := openLog(t, s)
	mustAppend(t, l, records(5, 50, 1))
	waitDurable(t, l, 5)
	l.SetHighWatermark(5)
	if err := s.checkpoint(s.opened(), false); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(testPartition); err != nil {
		t.Fatal(err)
	}
	openLog(t, s)
	there := 0
	for seed := range uint64(100) {
		image := mem.CrashSeed(seed)
		if hasPartition(image) {
			there++
		}
		again := openStore(t, image, "data")
		l := openLog(t, again)
		if _, _, lost := l.Lost(); l.Err() != nil || lost || l.Offsets().End != 0 {
			t.Fatalf("seed %d: %v, lost %v, %+v", seed, l.Err(), lost, l.Offsets())
		}
		again.Abandon()
	}
	if there == 0 {
		t.Fatal("no image has the directory: nothing was shown")
	}
}
