package hot

import (
	"slices"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// lacking is a log of several segments with what derives from its batches, of which two runs are damaged: the end of a
// transaction that was aborted with the last batch of a producer, and a batch of another producer further on.
type lacking struct {
	disk      *vfs.Mem
	sound     copyOf
	bad       [][2]int64 // offsets
	end       int64
	txns      []batch.AbortedTxn
	producers []ProducerState
}

// damagedDerived stops the log cleanly after a start that did without what is damaged, so that snapshots and transaction
// indexes lack it.
func damagedDerived(t *testing.T) *lacking {
	t.Helper()
	x := &lacking{disk: vfs.NewMem(1)}
	s := openStore(t, x.disk, "data")
	l := openLog(t, s, smallSegments)
	mustAppend(t, l, records(3, 40, 1))
	mustAppend(t, l, produced(2, 0, 0, 2, false))
	mustAppend(t, l, produced(1, 0, 0, 2, true), func(o *AppendOptions) { o.TxnVerified = true })
	from := l.Offsets().End
	mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Abort}, 1, 0, 9), func(o *AppendOptions) { o.Origin = Coordinator })
	mustAppend(t, l, produced(2, 0, 2, 2, false))
	x.bad = append(x.bad, [2]int64{from, l.Offsets().End})
	for range 6 {
		mustAppend(t, l, records(3, 100, 1))
	}
	from = l.Offsets().End
	mustAppend(t, l, produced(3, 0, 0, 2, false))
	x.bad = append(x.bad, [2]int64{from, l.Offsets().End})
	for range 6 {
		mustAppend(t, l, records(3, 100, 1))
	}
	x.end = l.Offsets().End
	waitDurable(t, l, x.end)
	l.SetHighWatermark(x.end)
	var err error
	if x.txns, err = l.AbortedTxns(0, x.end); err != nil || len(x.txns) != 1 {
		t.Fatalf("aborted %+v, %v", x.txns, err)
	}
	if x.producers, err = l.Producers(); err != nil {
		t.Fatal(err)
	}
	x.sound = copyOf(readAll(t, l, 1<<20))
	closeStore(t, s)
	for _, r := range x.bad {
		for _, seg := range l.list() {
			pos := int64(0)
			for _, b := range x.sound {
				if b.BaseOffset() < seg.base || b.BaseOffset() >= l.endOf(l.list(), slices.Index(l.list(), seg)) {
					continue
				}
				if b.BaseOffset() >= r[0] && b.BaseOffset() < r[1] {
					flip(t, x.disk, seg.path(logExt), pos+70)
				}
				pos += int64(len(b))
			}
		}
	}
	s = openStore(t, x.disk, "data")
	l = openLog(t, s, smallSegments)
	if len(l.list()) < 4 {
		t.Fatalf("%d segments", len(l.list()))
	}
	// As recovery and the loading of producers leave it.
	x.find(t, l)
	l.maintMu.Lock()
	l.appendMu.Lock()
	for i, seg := range l.list() {
		if i > 0 {
			ps, err := l.replayPastFrom(seg.base)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.writeSnapshot(seg.base, ps.encode(seg.base)); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.restoreTxns(seg, nil); err != nil {
			t.Fatal(err)
		}
	}
	ps, err := l.replayPastFrom(x.end)
	if err != nil {
		t.Fatal(err)
	}
	l.setProducers(ps)
	l.partial.Store(0) // nobody knows after the stop
	err = l.needTailLocked()
	l.appendMu.Unlock()
	l.maintMu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, records(1, 40, 1))
	waitDurable(t, l, l.Offsets().End)
	l.partial.Store(0)
	closeStore(t, s)
	return x
}

// replayPastFrom is replayPast without the snapshots that are there.
func (l *Log) replayPastFrom(offset int64) (*producers, error) {
	ps := newProducers()
	for _, seg := range l.list() {
		if seg.base >= offset {
			break
		}
		if _, err := ps.applySegment(seg, func(s *segment, from, to int64, fn func(batch.Batch) error) error {
			return l.walkPast(s, s.bad.Load(), from, to, fn)
		}, offset); err != nil {
			return nil, err
		}
	}
	return ps, nil
}

// find has both runs of damage found.
func (x *lacking) find(t *testing.T, l *Log) {
	t.Helper()
	for _, r := range x.bad {
		if _, err := l.CheckAt(r[0]); err != nil {
			t.Fatal(err)
		}
	}
}

// mend repairs all that is known to be damaged.
func (x *lacking) mend(t *testing.T, l *Log) {
	t.Helper()
	for _, d := range l.Damaged() {
		if err := l.Repair(d, x.sound.between(d.Start, d.End)); err != nil {
			t.Fatal(err)
		}
	}
}

// whole checks what derives from the log.
func (x *lacking) whole(t *testing.T, l *Log, when string, k int) {
	t.Helper()
	l.SetHighWatermark(l.Offsets().End)
	if got, err := l.AbortedTxns(0, x.end); err != nil || !slices.Equal(got, x.txns) {
		t.Fatalf("%s, step %d: aborted %+v, want %+v: %v", when, k, got, x.txns, err)
	}
	got, err := l.Producers()
	if err != nil || !slices.Equal(got, x.producers) {
		t.Fatalf("%s, step %d: producers %+v, want %+v: %v", when, k, got, x.producers, err)
	}
	if l.Incomplete() {
		t.Fatalf("%s, step %d: still incomplete", when, k)
	}
}

// TestCrashDuringRepairsLeavesNothingDerivedWithoutThem cuts the power before every step of two repairs.
func TestCrashDuringRepairsLeavesNothingDerivedWithoutThem(t *testing.T) {
	x := damagedDerived(t)
	between, steps := 0, 0
	for k := 0; ; k++ {
		mem := x.disk.Clone()
		faults := vfs.NewFaults(mem)
		s := openStore(t, faults, "data")
		l := openLog(t, s, smallSegments)
		x.find(t, l)
		if len(l.Damaged()) != 2 {
			t.Fatalf("damage is %+v", l.Damaged())
		}
		var after *vfs.Mem
		faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpWrite, vfs.OpSync, vfs.OpTruncate, vfs.OpRename, vfs.OpRemove, vfs.OpSyncDir}, Skip: k,
			Do: func() { after = mem.CrashSeed(uint64(k)) }})
		x.mend(t, l)
		x.whole(t, l, "after the repairs", k)
		s.Abandon()
		if after == nil {
			steps = k
			break
		}
		s = openStore(t, after.Clone(), "data")
		l = openLog(t, s, smallSegments)
		x.find(t, l)
		if n := len(l.Damaged()); n == 1 {
			between++
		}
		x.mend(t, l)
		x.whole(t, l, "after a crash and the rest of the repairs", k)
		closeStore(t, s)
		// Nobody reads what is damaged still for a while.
		s = openStore(t, after, "data")
		l = openLog(t, s, smallSegments)
		mustAppend(t, l, records(1, 40, 1))
		waitDurable(t, l, l.Offsets().End)
		closeStore(t, s)
		s = openStore(t, after, "data")
		l = openLog(t, s, smallSegments)
		x.find(t, l)
		x.mend(t, l)
		x.whole(t, l, "two starts after a crash", k)
		s.Abandon()
	}
	if between == 0 || steps < 8 {
		t.Fatalf("%d steps, %d crashes between the repairs", steps, between)
	}
}

// TestRetentionThatTakesTheLastDamageBringsBackTheRest repairs the later of two runs; the other's segment expires.
func TestRetentionThatTakesTheLastDamageBringsBackTheRest(t *testing.T) {
	x := damagedDerived(t)
	s := openStore(t, x.disk, "data")
	l := openLog(t, s, smallSegments)
	x.find(t, l)
	d := l.Damaged()[1]
	if err := l.Repair(d, x.sound.between(d.Start, d.End)); err != nil {
		t.Fatal(err)
	}
	known := func() bool {
		got, err := l.Producers()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(got, func(p ProducerState) bool { return p.ProducerID == 3 })
	}
	if !l.Incomplete() || known() {
		t.Fatal("derived while there is damage before it")
	}
	l.SetHighWatermark(l.Offsets().End)
	segs := l.list()
	if err := l.AdvanceLogStart(segs[holding(segs, x.bad[0][1])+1].base); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Retain(s.now()); err != nil {
		t.Fatal(err)
	}
	if len(l.Damaged()) != 0 || l.Incomplete() || !known() {
		t.Fatalf("damage %+v, incomplete %t", l.Damaged(), l.Incomplete())
	}
	// The end of a transaction has gone with it.
	if l.LastStable() != l.HighWatermark() {
		t.Fatalf("last stable offset %d, watermark %d", l.LastStable(), l.HighWatermark())
	}
	s.Abandon()
	s = openStore(t, x.disk, "data")
	l = openLog(t, s, smallSegments)
	l.SetHighWatermark(l.Offsets().End)
	if _, err := l.Producers(); err != nil || l.LastStable() != l.HighWatermark() || l.Incomplete() {
		t.Fatalf("after a start: last stable offset %d, watermark %d, %v", l.LastStable(), l.HighWatermark(), err)
	}
}

// TestDamagedLengthTakesNoRoom has a batch claim to be as long as the rest of a large segment.
func TestDamagedLengthTakesNoRoom(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	for range 3 {
		mustAppend(t, l, records(1, 3<<20, 1))
	}
	waitDurable(t, l, 3)
	path := l.active().path(logExt)
	f, err := mem.OpenAppend(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	for _, length := range []int64{size - 12, size} { // all of it, and beyond
		if _, err := f.WriteAt([]byte{byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)}, 8); err != nil {
			t.Fatal(err)
		}
		sc := newScanner(f, 0, size)
		if _, err := sc.next(); !isDamage(err) || cap(sc.buf) > scanBytes {
			t.Fatalf("%v, with a buffer of %d bytes", err, cap(sc.buf))
		}
	}
	if bad, err := l.CheckAt(0); !bad || err != nil || len(l.Damaged()) != 1 || l.Damaged()[0].End != 1 {
		t.Fatalf("%t, %v, %+v", bad, err, l.Damaged())
	}
}
