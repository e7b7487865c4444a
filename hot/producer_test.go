package hot

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// produced is a batch of n records of a producer.
func produced(id int64, epoch int16, seq int32, n int, txn bool) batch.Batch {
	b := batch.NewBuilder(batch.Options{Transactional: txn, Producer: &batch.Producer{ID: id, Epoch: epoch, Sequence: seq}})
	for i := range n {
		if err := b.Append(int64(i), []byte{'k'}, []byte("v"), nil); err != nil {
			panic(err)
		}
	}
	return slices.Clone(b.Bytes())
}

// step is one append of a producer scenario.
type step struct {
	batch batch.Batch
	opts  AppendOptions
	want  error
	dup   int64 // expected base offset of a duplicate, -1 otherwise
}

func data(id int64, epoch int16, seq int32, n int, want error, dup int64) step {
	return step{batch: produced(id, epoch, seq, n, false), want: want, dup: dup}
}

func TestProducerRulesFollowKafka(t *testing.T) {
	verified := AppendOptions{TxnVerified: true}
	v2 := AppendOptions{TxnVerified: true, TxnV2: true}
	marker := func(kind batch.ControlType, epoch int16, coord int32) batch.Batch {
		return batch.EndTxn(batch.Marker{Type: kind, CoordinatorEpoch: coord}, 1, epoch, 5)
	}
	coord := AppendOptions{Origin: Coordinator}
	coordV2 := AppendOptions{Origin: Coordinator, TxnV2: true}
	for name, steps := range map[string][]step{
		"next sequence follows": {data(1, 0, 0, 3, nil, -1), data(1, 0, 3, 1, nil, -1), data(1, 0, 5, 1, ErrOutOfOrderSequence, -1)},
		"repeat returns the original offset": {
			data(1, 0, 0, 3, nil, -1), data(1, 0, 3, 2, nil, -1), data(1, 0, 0, 3, nil, 0), data(1, 0, 3, 2, nil, 3),
			data(1, 0, 3, 1, ErrOutOfOrderSequence, -1),
		},
		"only five batches are remembered": {
			data(1, 0, 0, 1, nil, -1), data(1, 0, 1, 1, nil, -1), data(1, 0, 2, 1, nil, -1), data(1, 0, 3, 1, nil, -1),
			data(1, 0, 4, 1, nil, -1), data(1, 0, 5, 1, nil, -1), data(1, 0, 1, 1, nil, 1), data(1, 0, 0, 1, ErrOutOfOrderSequence, -1),
		},
		"unknown producer starts anywhere": {data(1, 0, 77, 2, nil, -1), data(1, 0, 79, 1, nil, -1)},
		"new epoch starts at zero":         {data(1, 0, 0, 1, nil, -1), data(1, 1, 1, 1, ErrOutOfOrderSequence, -1), data(1, 1, 0, 1, nil, -1)},
		"old epoch is refused":             {data(1, 3, 0, 1, nil, -1), data(1, 2, 0, 1, ErrStaleProducerEpoch, -1)},
		"sequence wraps":                   {data(1, 0, math.MaxInt32-1, 2, nil, -1), data(1, 0, 0, 1, nil, -1), data(1, 0, 1, 1, nil, -1)},
		"sequence wraps inside a batch":    {data(1, 0, math.MaxInt32, 2, nil, -1), data(1, 0, 1, 1, nil, -1)},
		"transaction must be verified": {
			{batch: produced(1, 0, 0, 1, true), want: ErrInvalidTxnState},
			{batch: produced(1, 0, 0, 1, true), opts: verified, dup: -1},
			{batch: produced(1, 0, 1, 1, true), dup: -1},
			{batch: produced(1, 0, 2, 1, false), want: ErrInvalidTxnState},
			{batch: marker(batch.Commit, 0, 1), opts: coord, dup: -1},
			{batch: produced(1, 0, 2, 1, false), dup: -1},
			{batch: produced(1, 0, 3, 1, true), want: ErrInvalidTxnState},
		},
		"transactions of version 2 start at zero when the producer is unknown": {
			{batch: produced(1, 0, 4, 1, true), opts: v2, want: ErrOutOfOrderSequence},
			{batch: produced(1, 0, 0, 1, true), opts: v2, dup: -1},
		},
		"a transaction of an older epoch takes in nothing of the next": {
			{batch: produced(1, 0, 0, 1, true), opts: v2, dup: -1},
			{batch: produced(1, 1, 0, 1, true), opts: AppendOptions{TxnV2: true}, want: ErrInvalidTxnState},
			{batch: marker(batch.Abort, 1, 0), opts: coordV2, dup: -1},
			{batch: produced(1, 1, 0, 1, true), opts: v2, dup: -1},
		},
		"an end that came while the coordinator was asked makes its answer worthless": {
			{batch: produced(1, 0, 0, 1, true), opts: AppendOptions{TxnVerified: true, TxnGuard: 1}, dup: -1},
			{batch: marker(batch.Abort, 0, 0), opts: coord, dup: -1},
			{batch: produced(1, 0, 1, 1, true), opts: AppendOptions{TxnVerified: true, TxnGuard: 1}, want: ErrTxnEndedMeanwhile},
			{batch: produced(1, 0, 1, 1, true), opts: AppendOptions{TxnVerified: true, TxnGuard: 2}, dup: -1},
		},
		"marker of an old coordinator is refused": {
			{batch: produced(1, 0, 0, 1, true), opts: verified, dup: -1},
			{batch: marker(batch.Abort, 0, 5), opts: coord, dup: -1},
			{batch: marker(batch.Abort, 0, 4), opts: coord, want: ErrStaleCoordinator},
		},
		"marker of an old epoch is refused": {
			{batch: produced(1, 4, 0, 1, true), opts: verified, dup: -1},
			{batch: marker(batch.Abort, 3, 0), opts: coord, want: ErrStaleProducerEpoch},
		},
		"marker of version 2 raises the epoch, and its repeat passes": {
			{batch: produced(1, 4, 0, 1, true), opts: v2, dup: -1},
			{batch: marker(batch.Commit, 4, 0), opts: coordV2, want: ErrStaleProducerEpoch},
			{batch: marker(batch.Commit, 5, 0), opts: coordV2, dup: -1},
			{batch: marker(batch.Commit, 5, 0), opts: coordV2, dup: -1},
			{batch: produced(1, 4, 1, 1, true), opts: v2, want: ErrStaleProducerEpoch},
		},
	} {
		t.Run(name, func(t *testing.T) { play(t, steps) })
	}
}

// play appends a scenario's batches to a new log.
func play(t *testing.T, steps []step) {
	t.Helper()
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s)
	for i, st := range steps {
		end := l.Offsets().End
		a, err := l.Append(slices.Clone(st.batch), st.opts)
		if !errors.Is(err, st.want) {
			t.Fatalf("step %d: %v, want %v", i, err, st.want)
		}
		if err != nil {
			if l.Offsets().End != end {
				t.Fatalf("step %d: refused, yet the log grew", i)
			}
			continue
		}
		if a.Duplicate && a.LogAppendTime != batch.Batch(st.batch).MaxTimestamp() {
			t.Fatalf("step %d: a repeat got the time %d, want that of the first", i, a.LogAppendTime)
		}
		if a.Duplicate != (st.dup >= 0) || a.Duplicate && a.BaseOffset != st.dup {
			t.Fatalf("step %d: %+v, want duplicate of %d", i, a, st.dup)
		}
	}
}

func TestLastStableOffsetWaitsForTheMarkerToBeCommitted(t *testing.T) {
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s)
	verified := func(o *AppendOptions) { o.TxnVerified = true }
	coord := func(o *AppendOptions) { o.Origin = Coordinator }
	mustAppend(t, l, records(2, 5, 1))                     // 0, 1
	mustAppend(t, l, produced(1, 0, 0, 2, true), verified) // 2, 3
	mustAppend(t, l, produced(2, 0, 0, 1, true), verified) // 4
	l.SetHighWatermark(5)
	expect := func(want int64) {
		t.Helper()
		if got := l.LastStable(); got != want {
			t.Fatalf("last stable offset %d, want %d", got, want)
		}
	}
	expect(2)
	mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Abort}, 1, 0, 9), coord) // 5
	expect(2)
	l.SetHighWatermark(6)
	expect(4)
	mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Commit}, 2, 0, 9), coord) // 6
	l.SetHighWatermark(7)
	expect(7)
	got, err := l.AbortedTxns(0, 7)
	want := []batch.AbortedTxn{{ProducerID: 1, FirstOffset: 2, LastOffset: 5, LastStable: 4}}
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("aborted %+v, want %+v: %v", got, want, err)
	}
	if got, err = l.AbortedTxns(6, 7); err != nil || len(got) != 0 {
		t.Fatalf("aborted beyond the marker: %+v %v", got, err)
	}
}

func TestOpenTransactionsAndAbortsSurviveRestart(t *testing.T) {
	for _, clean := range []bool{true, false} {
		mem := vfs.NewMem(1)
		s := openStore(t, mem, "data")
		small := func(c *LogConfig) { c.SegmentBytes = 300 }
		l := openLog(t, s, small)
		verified := func(o *AppendOptions) { o.TxnVerified = true }
		coord := func(o *AppendOptions) { o.Origin = Coordinator }
		mustAppend(t, l, produced(1, 0, 0, 2, true), verified)
		mustAppend(t, l, records(3, 60, 1))
		mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Abort}, 1, 0, 9), coord)
		mustAppend(t, l, records(3, 60, 1))
		mustAppend(t, l, produced(7, 0, 0, 2, true), verified)
		mustAppend(t, l, records(3, 60, 1))
		end := l.Offsets().End
		waitDurable(t, l, end)
		l.SetHighWatermark(end)
		want, err := l.AbortedTxns(0, end)
		if err != nil || len(want) != 1 {
			t.Fatalf("aborted %+v %v", want, err)
		}
		stable := l.LastStable()
		ps, err := l.Producers()
		if err != nil {
			t.Fatal(err)
		}
		if clean {
			closeStore(t, s)
		} else {
			s.Abandon()
		}
		s = openStore(t, mem, "data")
		l = openLog(t, s, small)
		l.SetHighWatermark(end)
		if got := l.LastStable(); got != stable {
			t.Fatalf("clean %v: last stable offset %d, want %d", clean, got, stable)
		}
		got, err := l.Producers()
		if err != nil || !slices.Equal(got, ps) {
			t.Fatalf("clean %v: producers %+v, want %+v: %v", clean, got, ps, err)
		}
		if got, err := l.AbortedTxns(0, end); err != nil || !slices.Equal(got, want) {
			t.Fatalf("clean %v: aborted %+v, want %+v: %v", clean, got, want, err)
		}
	}
}

func TestSilentProducersExpireUnlessInATransaction(t *testing.T) {
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s, func(c *LogConfig) { c.ProducerExpirationMillis = 100 })
	mustAppend(t, l, produced(1, 0, 0, 1, false))
	mustAppend(t, l, produced(2, 0, 0, 1, true), func(o *AppendOptions) { o.TxnVerified = true })
	l.ExpireProducers(1099)
	if ps, _ := l.Producers(); len(ps) != 2 {
		t.Fatalf("%+v", ps)
	}
	l.ExpireProducers(1100)
	if ps, _ := l.Producers(); len(ps) != 1 || ps[0].ProducerID != 2 {
		t.Fatalf("%+v", ps)
	}
}

func TestSnapshotsRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ps := newProducers()
		next := int64(0)
		for range rapid.IntRange(0, 40).Draw(rt, "n") {
			id := rapid.Int64Range(1, 5).Draw(rt, "id")
			b := produced(id, 0, rapid.Int32Range(0, 100).Draw(rt, "seq"), rapid.IntRange(1, 3).Draw(rt, "count"), rapid.Bool().Draw(rt, "txn"))
			var m *marker
			if rapid.IntRange(0, 3).Draw(rt, "marker") == 0 {
				b = batch.EndTxn(batch.Marker{Type: batch.Abort}, id, 0, 3)
				m = &marker{}
			}
			b.SetBaseOffset(next)
			next = b.NextOffset()
			ps.apply(b, m, 5)
		}
		enc := ps.encode(next)
		got, at, err := decodeSnapshot(enc)
		if err != nil || at != next || !slices.Equal(got.list(), ps.list()) || !slices.Equal(got.open, ps.open) {
			rt.Fatalf("%+v, want %+v: %v", got.list(), ps.list(), err)
		}
		if string(got.encode(next)) != string(enc) {
			rt.Fatal("encodes differently")
		}
		i := rapid.IntRange(0, len(enc)-1).Draw(rt, "flip")
		enc[i] ^= 0x40
		if _, _, err := decodeSnapshot(enc); err == nil && i != 6 && i != 7 {
			rt.Fatalf("a flipped byte %d was not noticed", i)
		}
	})
}

// A tiered log may be trimmed past its recovery point, which the journal still
// holds from before the first producer came. A retry after a kill must still
// be known as one.
func TestProducersAreKnownAfterAKillOfALogTrimmedPastItsRecoveryPoint(t *testing.T) {
	mem := vfs.NewMem(1)
	tiered := func(c *LogConfig) { c.Tiered, c.LocalRetentionMillis, c.FileDeleteDelay = true, 1, 0 }
	s := openStore(t, mem, "data")
	l := openLog(t, s, tiered)
	for seq := range int32(3) {
		mustAppend(t, l, produced(7, 0, seq, 1, false))
		if err := l.Roll(0); err != nil {
			t.Fatal(err)
		}
	}
	waitDurable(t, l, 3)
	l.SetHighWatermark(3)
	l.SetRemoteEnd(3)
	eventually(t, func() bool {
		mustRetain(t, l, 1<<40)
		return l.Offsets().LocalStart == 3
	})
	again := mem.Clone()
	s.Abandon()

	s = openStore(t, again, "data")
	defer closeStore(t, s)
	l = openLog(t, s, tiered)
	a, err := l.Append(produced(7, 0, 2, 1, false), AppendOptions{Origin: Client})
	if err != nil || !a.Duplicate || a.BaseOffset != 2 {
		t.Fatalf("the retry of sequence 2 gave %+v, %v; want the duplicate at offset 2", a, err)
	}
}

func TestTxnGuardCountsEndsAndKnowsOpenTransactions(t *testing.T) {
	s := openStore(t, vfs.NewMem(1), "data")
	l := openLog(t, s)
	want := func(epoch int16, guard int32, open bool) {
		t.Helper()
		if g, o, err := l.TxnGuard(1, epoch); err != nil || g != guard || o != open {
			t.Errorf("guard %d, open %v, %v; want %d, %v", g, o, err, guard, open)
		}
	}
	want(0, 1, false)
	mustAppend(t, l, produced(1, 0, 0, 1, true), func(o *AppendOptions) { o.TxnVerified = true })
	want(0, 1, true)
	want(1, 1, false)
	mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Commit}, 1, 1, 5), func(o *AppendOptions) { o.Origin = Coordinator })
	want(1, 2, false)
}
