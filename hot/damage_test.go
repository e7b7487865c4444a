package hot

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// copyOf is every batch of a log, by base offset.
type copyOf []batch.Batch

// between is the bytes of the batches of an offset range.
func (c copyOf) between(start, end int64) (b []byte) {
	for _, one := range c {
		if one.BaseOffset() >= start && one.NextOffset() <= end {
			b = append(b, one...)
		}
	}
	return b
}

// readChecked reads the whole log as a consumer would, with every byte checked, and
// compares it with the sound copy. It returns the offsets that were refused.
func readChecked(t *testing.T, l *Log, sound copyOf) (refused int64) {
	t.Helper()
	o := l.Offsets()
	for at := o.LocalStart; at < o.End; {
		s, err := l.Read(at, 500, o.End, true)
		if err == nil {
			if err = s.Verify(); err != nil {
				s.Release()
			}
		}
		if errors.Is(err, ErrSegmentGone) {
			t.Fatalf("read at %d: %v", at, err)
		}
		if errors.Is(err, ErrCorrupt) {
			// Once more: what is sound before the damage can be read now.
			if s, err = l.Read(at, 500, o.End, true); errors.Is(err, ErrCorrupt) {
				next := int64(-1)
				for _, d := range l.Damaged() {
					if d.Start <= at && at < d.End {
						next = d.End
					}
				}
				if next < 0 {
					t.Fatalf("read at %d: %v, which is none of %+v", at, err, l.Damaged())
				}
				refused += next - at
				at = next
				continue
			}
		}
		if err != nil {
			t.Fatalf("read at %d: %v", at, err)
		}
		b, err := s.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if want := sound.between(s.StartOffset(), s.NextOffset()); !bytes.Equal(b, want) || len(b) == 0 || s.StartOffset() > at {
			t.Fatalf("read at %d gives %d bytes of offsets %d to %d that are not what was written", at, len(b), s.StartOffset(), s.NextOffset())
		}
		at = s.NextOffset()
		s.Release()
	}
	return refused
}

// TestEveryFlippedByteIsFoundBarredAndRepaired flips every byte of a sealed
// segment and of the active one, one after the other.
func TestEveryFlippedByteIsFoundBarredAndRepaired(t *testing.T) {
	mem, _ := segmented(t, 14)
	s := openStore(t, mem.Clone(), "data")
	l := openLog(t, s, smallSegments)
	sound := copyOf(readAll(t, l, 1<<20))
	segs := l.list()
	for _, i := range []int{1, len(segs) - 1} {
		size, err := segs[i].bytes()
		if err != nil || size < 300 {
			t.Fatalf("segment of %d bytes, %v", size, err)
		}
		for at := range size {
			flipOne(t, mem.Clone(), sound, i, at)
		}
	}
	s.Abandon()
}

func flipOne(t *testing.T, fs vfs.FS, sound copyOf, i int, at int64) {
	t.Helper()
	s := openStore(t, fs, "data")
	defer s.Abandon()
	l := openLog(t, s, smallSegments)
	if _, err := l.loadChain(); err != nil {
		t.Fatal(err)
	}
	flip(t, fs, l.list()[i].path(logExt), at)
	if refused := readChecked(t, l, sound); refused == 0 || refused > 6 {
		t.Fatalf("byte %d of segment %d: %d offsets refused, a batch has 3", at, i, refused)
	}
	if i+1 == len(l.list()) { // the log goes on behind it
		mustAppend(t, l, records(3, 40, 1))
		waitDurable(t, l, l.Offsets().End)
	}
	for _, d := range l.Damaged() {
		bad := sound.between(d.Start, d.End)
		if len(bad) == 0 {
			t.Fatalf("byte %d: nothing to repair %+v with", at, d)
		}
		bad = bytes.Clone(bad)
		bad[len(bad)-1] ^= 1
		if err := l.Repair(d, bad); err == nil {
			t.Fatal("bytes that are damaged, too, were taken")
		}
		if err := l.Repair(d, sound.between(d.Start, d.End)); err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
	}
	if len(l.Damaged()) != 0 || s.Stats().Repaired.Load() == 0 {
		t.Fatalf("byte %d: left is %+v", at, l.Damaged())
	}
	if got := readAll(t, l, 1<<20); len(got) < len(sound) {
		t.Fatalf("%d batches after the repair, %d before", len(got), len(sound))
	}
	if _, err := l.Sealed(0, 1<<60); err != nil {
		t.Fatal(err)
	}
}

// crashed makes a log that is one segment long, ends without a checkpoint at its
// last records, and whose journal has its watermark.
func crashed(t *testing.T) (mem *vfs.Mem, sound copyOf, path string) {
	t.Helper()
	mem = vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	for range 20 {
		mustAppend(t, l, records(3, 40, 1))
	}
	waitDurable(t, l, l.Offsets().End)
	l.SetHighWatermark(l.Offsets().End - 6)
	s.journalWatermarks()
	if err := s.journal.sync(); err != nil {
		t.Fatal(err)
	}
	sound = readAll(t, l, 1<<20)
	path = l.active().path(logExt)
	s.Abandon()
	return mem, sound, path
}

func TestWhatIsBadBelowTheWatermarkIsNoTornTail(t *testing.T) {
	mem, sound, path := crashed(t)
	each := int64(len(sound[0]))
	flip(t, mem, path, 5*each+100)
	flip(t, mem, path, 9*each+9) // a length
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	if got := l.Offsets().End; got != 60 || s.Stats().CutBytes.Load() != 0 {
		t.Fatalf("log ends at %d, %d bytes cut", got, s.Stats().CutBytes.Load())
	}
	bad := l.Damaged()
	if len(bad) != 2 || bad[0].Start != 15 || bad[0].End != 18 || bad[1].Start != 27 || bad[1].End != 30 {
		t.Fatalf("damage is %+v", bad)
	}
	if n := readChecked(t, l, sound); n != 6 {
		t.Fatalf("%d offsets refused", n)
	}
	if _, _, lost := l.Lost(); lost {
		t.Fatal("its end is there")
	}
	for _, d := range bad {
		if err := l.Repair(d, sound.between(d.Start, d.End)); err != nil {
			t.Fatal(err)
		}
	}
	checkDense(t, readAll(t, l, 1<<20), 0, 60)
}

func TestTornTailAboveTheWatermarkIsStillCut(t *testing.T) {
	mem, sound, path := crashed(t)
	flip(t, mem, path, 18*int64(len(sound[0]))+100)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	if got := l.Offsets().End; got != 54 || len(l.Damaged()) != 0 {
		t.Fatalf("log ends at %d, damage %+v", got, l.Damaged())
	}
	if had, _, lost := l.Lost(); lost {
		t.Fatalf("nothing that was committed is missing, below %d", had)
	}
}

// TestNothingIsTornWhileTheKernelRuns: what a killed process wrote is there, so a bad
// batch with sound ones behind it is damage wherever the watermark is, and only
// the end of the last write may be missing.
func TestNothingIsTornWhileTheKernelRuns(t *testing.T) {
	for _, after := range []string{"run 1", "run 2", ""} {
		mem := vfs.NewMem(1)
		open := func(boot string) (*Store, *Log) {
			s := openRun(t, mem, boot)
			return s, openLog(t, s)
		}
		s, l := open("run 1")
		for range 10 {
			mustAppend(t, l, records(3, 40, 1))
		}
		waitDurable(t, l, 30)
		sound := copyOf(readAll(t, l, 1<<20))
		path, each := l.active().path(logExt), int64(len(sound[0]))
		s.Abandon()
		flip(t, mem, path, 5*each+100)
		f, err := mem.OpenAppend(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(f.Truncate(10*each-20), f.Close()); err != nil {
			t.Fatal(err)
		}
		s, l = open(after)
		want, bad := int64(15), 0
		if after == "run 1" {
			want, bad = 27, 1
		}
		if got := l.Offsets().End; got != want || len(l.Damaged()) != bad {
			t.Fatalf("in %q the log ends at %d, damage %+v", after, got, l.Damaged())
		}
		s.Abandon()
	}
}

func TestMissingEndIsRememberedUntilItIsBack(t *testing.T) {
	mem, sound, path := crashed(t)
	f, err := mem.OpenAppend(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(10*int64(len(sound[0]))), f.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // by every start
		s := openStore(t, mem, "data")
		l := openLog(t, s)
		if had, _, lost := l.Lost(); !lost || had != 54 || l.Offsets().End != 30 || l.HighWatermark() != 30 {
			t.Fatalf("lost %t below %d, log ends at %d, watermark %d", lost, had, l.Offsets().End, l.HighWatermark())
		}
		waitDurable(t, l, 30)
		closeStore(t, s)
	}
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	if _, err := l.Append(sound.between(30, 54), AppendOptions{Origin: Follower, Now: 1}); err != nil {
		t.Fatal(err)
	}
	if _, _, lost := l.Lost(); !lost {
		t.Fatal("nobody knows whether everything is back")
	}
	l.ForgetLost()
	waitDurable(t, l, 54)
	closeStore(t, s)
	l = openLog(t, openStore(t, mem, "data"))
	if _, _, lost := l.Lost(); lost {
		t.Fatal("it was let in")
	}
}

func TestWhatWasCheckedNotLongAgoIsSentUnchecked(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data", func(c *Config) { c.VerifyInterval = time.Hour })
	l := openLog(t, s)
	now := s.now()
	for range 4 {
		mustAppend(t, l, records(3, 40, 1), func(o *AppendOptions) { o.Now = now })
	}
	waitDurable(t, l, 12)
	path := l.active().path(logExt)
	flip(t, mem, path, 100)
	verify := func(l *Log) error {
		sl, err := l.Read(0, 1<<20, 12, true)
		if err != nil {
			return err
		}
		defer sl.Release()
		return sl.Verify()
	}
	if err := verify(l); err != nil {
		t.Fatalf("it was appended this hour: %v", err)
	}
	flip(t, mem, path, 100)
	closeStore(t, s)
	s = openStore(t, mem, "data", func(c *Config) { c.VerifyInterval = time.Hour })
	l = openLog(t, s)
	if err := verify(l); err != nil {
		t.Fatal(err)
	}
	flip(t, mem, path, 100)
	if err := verify(l); err != nil {
		t.Fatalf("it was read this hour: %v", err)
	}
	seg := l.active()
	seg.proof.Store(&proof{seg.proof.Load().to, now + 2*time.Hour.Milliseconds()})
	if err := verify(l); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("the clock was set back, so nobody knows when it was checked: %v", err)
	}
	seg.bad.Store(nil)
	seg.proof.Store(&proof{seg.proof.Load().to, now - 2*time.Hour.Milliseconds()})
	if err := verify(l); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("it has not been checked for two hours: %v", err)
	}
}

func TestAClockSetBackMakesNothingFresh(t *testing.T) {
	const hour = int64(3_600_000)
	var f freshness
	f.noted(10, 100*hour, hour)
	if !f.covers(10, 101*hour, hour) || f.covers(9, 100*hour, hour) || f.covers(10, 99*hour, hour) {
		t.Fatal("fresh is what was appended within two intervals, by a clock that goes on")
	}
	f.noted(20, 50*hour, hour)
	if f.covers(10, 50*hour, hour) || !f.covers(20, 51*hour, hour) || f.covers(20, 53*hour, hour) {
		t.Fatal("after the clock was set back, fresh is what was appended since")
	}
}

func TestDamageIsCutWithWhatFollows(t *testing.T) {
	mem, _ := segmented(t, 14)
	s := openStore(t, mem, "data")
	l := openLog(t, s, smallSegments)
	sound := copyOf(readAll(t, l, 1<<20))
	base := l.active().base
	flip(t, mem, l.active().path(logExt), int64(len(sound[0]))+16) // the magic of the second batch
	end := l.Offsets().End
	if n := readChecked(t, l, sound); n != 3 {
		t.Fatalf("%d offsets refused", n)
	}
	for _, to := range []int64{end - 1, base + 4} {
		if err := l.TruncateTo(to); err != nil {
			t.Fatalf("truncate to %d: %v", to, err)
		}
	}
	if got := l.Offsets().End; got != base+3 || len(l.Damaged()) != 0 {
		t.Fatalf("log ends at %d of %d, damage %+v", got, base, l.Damaged())
	}
	if _, err := l.Append(sound.between(base+3, end), AppendOptions{Origin: Follower, Now: 1}); err != nil {
		t.Fatal(err)
	}
	if n := readChecked(t, l, sound); n != 0 {
		t.Fatalf("%d offsets refused after the damage was replaced", n)
	}
}

// TestRepairOfASegmentThatIsBeingSealed repairs one whose index and snapshot are yet to be
// written.
func TestRepairOfASegmentThatIsBeingSealed(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data", func(c *Config) { c.Durability, c.FlushInterval, c.VerifyInterval = Replicated, time.Hour, 0 })
	l := openLog(t, s, smallSegments)
	var seg *segment // that was rolled, and is not sealed yet
	for i := 0; seg == nil; i++ {
		if i == 1000 {
			t.Fatal("segments are sealed as soon as they are rolled")
		}
		mustAppend(t, l, records(3, 40, 1))
		if segs := l.list(); len(segs) > 2 && segs[len(segs)-2].sealing.Load() != nil {
			seg = segs[len(segs)-2]
		}
	}
	sound := copyOf(readAll(t, l, 1<<20))
	flip(t, mem, seg.path(logExt), 100)
	if readChecked(t, l, sound) == 0 {
		t.Fatal("not found")
	}
	for _, d := range l.Damaged() {
		if err := l.Repair(d, sound.between(d.Start, d.End)); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	l = openLog(t, openStore(t, mem, "data"), smallSegments)
	if n := readChecked(t, l, sound); n != 0 || len(l.Damaged()) != 0 {
		t.Fatalf("%d offsets refused after a restart", n)
	}
	for _, seg := range l.list()[:2] {
		if footed, err := l.hasFooter(seg); err != nil || !footed {
			t.Fatalf("segment %d has no footer: %v", seg.base, err)
		}
	}
}

// TestAnAppendUnderWayIsNoDamage looks through the active segment when the bytes of an
// append are there already, and its offsets are not published.
func TestAnAppendUnderWayIsNoDamage(t *testing.T) {
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s)
	for range 5 {
		mustAppend(t, l, records(3, 40, 1))
	}
	waitDurable(t, l, 15)
	sound := copyOf(readAll(t, l, 1<<20))
	before, at := l.offsets.loadEdge()
	mustAppend(t, l, records(3, 40, 1))
	after, next := l.offsets.loadEdge()
	l.offsets.setEdge(at, false) // the size is that of the append
	if bad, err := l.CheckAt(0); bad || err != nil || len(l.Damaged()) != 0 {
		t.Fatalf("damage of a sound log: %t, %v, %+v", bad, err, l.Damaged())
	}
	if err := l.active().damaged(0, errors.New("test")); !errors.Is(err, ErrCorrupt) || l.active().bad.Load() != nil {
		t.Fatalf("a sound log is barred: %v", err)
	}
	l.offsets.setEdge(next, false)
	if before.End != 15 || after.End != 18 {
		t.Fatalf("ends are %d and %d", before.End, after.End)
	}
	if n := readChecked(t, l, append(sound, readAll(t, l, 1<<20)[5:]...)); n != 0 {
		t.Fatalf("%d offsets refused", n)
	}
}

// TestDamageFoundInWhatWasCutMeanwhileIsForgotten stores no ranges of bytes that went after
// they were looked at.
func TestDamageFoundInWhatWasCutMeanwhileIsForgotten(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	for range 5 {
		mustAppend(t, l, records(3, 40, 1))
	}
	waitDurable(t, l, 15)
	sound := copyOf(readAll(t, l, 1<<20))
	seg := l.active()
	flip(t, mem, seg.path(logExt), 3*int64(len(sound[0]))+100)
	look, err := seg.lookThrough()
	if err != nil || len(look.ranges) != 1 {
		t.Fatalf("%+v, %v", look.ranges, err)
	}
	if err := l.TruncateTo(6); err != nil {
		t.Fatal(err)
	}
	if seg.barUnlessCut(&CorruptError{Err: errors.New("test")}, look) || len(l.Damaged()) != 0 {
		t.Fatalf("what was cut is barred: %+v", l.Damaged())
	}
	if _, err := l.Append(sound.between(6, 15), AppendOptions{Origin: Follower, Now: 1}); err != nil {
		t.Fatal(err)
	}
	if n := readChecked(t, l, sound); n != 0 {
		t.Fatalf("%d offsets refused", n)
	}
}

// TestSegmentBarredAsAWholeIsNotRepairedBlindly has a segment that could not be looked through.
func TestSegmentBarredAsAWholeIsNotRepairedBlindly(t *testing.T) {
	mem, _ := segmented(t, 14)
	s := openStore(t, mem, "data")
	l := openLog(t, s, smallSegments)
	sound := copyOf(readAll(t, l, 1<<20))
	seg := l.list()[1]
	flip(t, mem, seg.path(logExt), 100)
	seg.bad.Store(whole(&CorruptError{Path: seg.path(logExt), Err: errors.New("not readable")}))
	all := l.Damaged()
	if len(all) != 1 || !all[0].Whole {
		t.Fatalf("damage is %+v", all)
	}
	if err := l.Repair(all[0], sound.between(all[0].Start, all[0].End)); err == nil {
		t.Fatal("repaired what was not looked through")
	}
	if err := l.LookAgain(all[0]); err != nil {
		t.Fatal(err)
	}
	some := l.Damaged()
	if len(some) != 1 || some[0].Whole || some[0].Bytes >= all[0].Bytes {
		t.Fatalf("damage is %+v", some)
	}
	if err := l.Repair(some[0], sound.between(some[0].Start, some[0].End)); err != nil {
		t.Fatal(err)
	}
	seg.bad.Store(whole(&CorruptError{Path: seg.path(logExt), Err: errors.New("not readable")}))
	if err := l.LookAgain(all[0]); err != nil || len(l.Damaged()) != 0 {
		t.Fatalf("%v, damage is %+v", err, l.Damaged())
	}
	if n := readChecked(t, l, sound); n != 0 {
		t.Fatalf("%d offsets refused", n)
	}
}

// TestRepairBringsBackWhatRecoveryCouldNotSee damages an abort marker and the last batch of an idempotent producer, starts
// anew, cleanly once more so that a snapshot lacks them, and repairs.
func TestRepairBringsBackWhatRecoveryCouldNotSee(t *testing.T) {
	for _, restarts := range []int{0, 1, 2} {
		mem := vfs.NewMem(1)
		s := openStore(t, mem, "data")
		l := openLog(t, s)
		coord := func(o *AppendOptions) { o.Origin = Coordinator }
		mustAppend(t, l, records(3, 40, 1))
		mustAppend(t, l, produced(2, 0, 0, 2, false))
		mustAppend(t, l, produced(1, 0, 0, 2, true), func(o *AppendOptions) { o.TxnVerified = true })
		from := l.Offsets().End
		mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Abort}, 1, 0, 9), coord)
		mustAppend(t, l, produced(2, 0, 2, 2, false))
		to := l.Offsets().End
		mustAppend(t, l, records(3, 40, 1))
		end := l.Offsets().End
		waitDurable(t, l, end)
		l.SetHighWatermark(end)
		s.journalWatermarks()
		if err := s.journal.sync(); err != nil {
			t.Fatal(err)
		}
		wantTxns, err := l.AbortedTxns(0, end)
		if err != nil || len(wantTxns) != 1 {
			t.Fatalf("aborted %+v, %v", wantTxns, err)
		}
		wantProducers, err := l.Producers()
		if err != nil {
			t.Fatal(err)
		}
		stable := l.LastStable()
		sound, pos := copyOf(readAll(t, l, 1<<20)), int64(0)
		path := l.active().path(logExt)
		s.Abandon()
		for _, b := range sound {
			if b.BaseOffset() >= from && b.BaseOffset() < to {
				flip(t, mem, path, pos+70)
			}
			pos += int64(len(b))
		}
		s = openStore(t, mem, "data")
		l = openLog(t, s)
		for range restarts {
			if got, err := l.AbortedTxns(0, end); err != nil || len(got) != 0 {
				t.Fatalf("aborted %+v, %v, and the marker is damaged", got, err)
			}
			mustAppend(t, l, records(1, 40, 1))
			waitDurable(t, l, l.Offsets().End)
			closeStore(t, s)
			s = openStore(t, mem, "data")
			l = openLog(t, s)
		}
		if restarts > 0 {
			if _, err := l.CheckAt(from); err != nil {
				t.Fatal(err)
			}
		}
		l.SetHighWatermark(end)
		if d := l.Damaged(); len(d) != 1 || d[0].Start != from || d[0].End != to {
			t.Fatalf("damage is %+v, damaged %d to %d", d, from, to)
		}
		if err := l.Repair(l.Damaged()[0], sound.between(from, to)); err != nil {
			t.Fatal(err)
		}
		check := func(when string) {
			t.Helper()
			l.SetHighWatermark(end)
			if got, err := l.AbortedTxns(0, end); err != nil || !slices.Equal(got, wantTxns) {
				t.Fatalf("%s, %d restarts: aborted %+v, want %+v: %v", when, restarts, got, wantTxns, err)
			}
			got, err := l.Producers()
			if err != nil || !slices.EqualFunc(got, wantProducers, func(a, b ProducerState) bool { return a == b }) {
				t.Fatalf("%s, %d restarts: producers %+v, want %+v: %v", when, restarts, got, wantProducers, err)
			}
			if got := l.LastStable(); got < stable {
				t.Fatalf("%s: last stable offset %d, was %d", when, got, stable)
			}
			if a, err := l.Append(produced(2, 0, 2, 2, false), AppendOptions{Now: 1}); err != nil || !a.Duplicate {
				t.Fatalf("%s: a repeat is %+v, %v", when, a, err)
			}
		}
		check("after the repair")
		s.Abandon()
		s = openStore(t, mem, "data")
		l = openLog(t, s)
		check("after a crash")
		closeStore(t, s)
		s = openStore(t, mem, "data")
		l = openLog(t, s)
		check("after a stop")
		closeStore(t, s)
	}
}

// TestTruncationAboveDamageGoesOn cuts a log whose producers lie beyond what is damaged.
func TestTruncationAboveDamageGoesOn(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	for i := range 6 {
		mustAppend(t, l, produced(2, 0, int32(2*i), 2, false))
	}
	waitDurable(t, l, 12)
	sound := copyOf(readAll(t, l, 1<<20))
	flip(t, mem, l.active().path(logExt), int64(len(sound[0]))+70)
	if bad, err := l.CheckAt(2); !bad || err != nil {
		t.Fatalf("%t, %v", bad, err)
	}
	if err := l.TruncateTo(8); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(sound.between(8, 12), AppendOptions{Origin: Follower, Now: 1}); err != nil {
		t.Fatal(err)
	}
	if err := l.TruncateTo(8); err != nil {
		t.Fatal(err)
	}
	d := l.Damaged()
	if len(d) != 1 || l.Offsets().End != 8 {
		t.Fatalf("damage %+v, end %d", d, l.Offsets().End)
	}
	if err := l.Repair(d[0], sound.between(2, 4)); err != nil {
		t.Fatal(err)
	}
	if a, err := l.Append(produced(2, 0, 6, 2, false), AppendOptions{Now: 1}); err != nil || !a.Duplicate {
		t.Fatalf("a repeat of what is there is %+v, %v", a, err)
	}
	if a, err := l.Append(produced(2, 0, 8, 2, false), AppendOptions{Now: 1}); err != nil || a.Duplicate || a.BaseOffset != 8 {
		t.Fatalf("a repeat of what was cut is %+v, %v", a, err)
	}
}

// TestRepairRewritesTheSnapshotsOfLaterSegments has many of them, sealed and with retention to follow.
func TestRepairRewritesTheSnapshotsOfLaterSegments(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s, smallSegments)
	for i := range 12 {
		mustAppend(t, l, produced(2, 0, int32(2*i), 2, false))
		mustAppend(t, l, produced(int64(10+i), 0, 0, 1, false))
		mustAppend(t, l, records(3, 40, 1))
	}
	end := l.Offsets().End
	waitDurable(t, l, end)
	l.SetHighWatermark(end)
	closeStore(t, s)
	s = openStore(t, mem, "data")
	l = openLog(t, s, smallSegments)
	want, err := l.Producers()
	if err != nil {
		t.Fatal(err)
	}
	sound := copyOf(readAll(t, l, 1<<20))
	flip(t, mem, l.list()[1].path(logExt), 70)
	if bad, err := l.CheckAt(l.list()[1].base); !bad || err != nil {
		t.Fatalf("%t, %v", bad, err)
	}
	d := l.Damaged()[0]
	// As a start that passed the damage leaves them: without producers.
	segs := l.list()
	for _, seg := range segs[2:] {
		if err := l.writeSnapshot(seg.base, newProducers().encode(seg.base)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Repair(d, sound.between(d.Start, d.End)); err != nil {
		t.Fatal(err)
	}
	for _, seg := range segs[2:] {
		b, err := vfs.ReadFile(mem, l.path(seg.base, snapshotExt), snapshotBytesMax)
		if err != nil {
			t.Fatal(err)
		}
		if ps, at, err := decodeSnapshot(b); err != nil || at != seg.base || ps.byID[10] == nil {
			t.Fatalf("snapshot at %d: %v", seg.base, err)
		}
	}
	if got, err := l.Producers(); err != nil || !slices.Equal(got, want) {
		t.Fatalf("producers %+v, want %+v: %v", got, want, err)
	}
}

// TestTruncationThatTakesTheLastDamageBringsBackTheRest repairs one of two damaged ranges and cuts the other off.
func TestTruncationThatTakesTheLastDamageBringsBackTheRest(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s, smallSegments)
	for i := range 6 {
		mustAppend(t, l, produced(int64(10+i), 0, 0, 2, false))
		mustAppend(t, l, records(3, 40, 1))
	}
	end := l.Offsets().End
	waitDurable(t, l, end)
	l.SetHighWatermark(end)
	closeStore(t, s)
	s = openStore(t, mem, "data")
	l = openLog(t, s, smallSegments)
	sound := copyOf(readAll(t, l, 1<<20))
	segs := l.list()
	for _, i := range []int{0, len(segs) - 1} {
		flip(t, mem, segs[i].path(logExt), 70)
		if bad, err := l.CheckAt(segs[i].base); !bad || err != nil {
			t.Fatalf("%t, %v", bad, err)
		}
	}
	for _, seg := range segs[1:] {
		if err := l.writeSnapshot(seg.base, newProducers().encode(seg.base)); err != nil {
			t.Fatal(err)
		}
	}
	d := l.Damaged()[0]
	if err := l.Repair(d, sound.between(d.Start, d.End)); err != nil {
		t.Fatal(err)
	}
	if err := l.TruncateTo(segs[len(segs)-1].base); err != nil || len(l.Damaged()) != 0 {
		t.Fatalf("%v, damage %+v", err, l.Damaged())
	}
	if got, err := l.Producers(); err != nil || len(got) == 0 || got[0].ProducerID != 10 || l.partial.Load() != 0 {
		t.Fatalf("producers are %+v, %v", got, err)
	}
}
