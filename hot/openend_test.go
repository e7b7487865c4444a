package hot

import (
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// transactional appends to a transaction.
func transactional(t *testing.T, l *Log, id int64, seq int32) int64 {
	t.Helper()
	return mustAppend(t, l, produced(id, 0, seq, 2, true), func(o *AppendOptions) { o.TxnVerified = true }).BaseOffset
}

func ended(t *testing.T, l *Log, id int64) int64 {
	t.Helper()
	return mustAppend(t, l, batch.EndTxn(batch.Marker{Type: batch.Abort}, id, 0, 9), func(o *AppendOptions) { o.Origin = Coordinator }).BaseOffset
}

// TestDeletedDamageLeavesNoTransactionOpen moves the log start past a damaged marker whose segment stays. A transaction that goes
// on beyond the start is open there still.
func TestDeletedDamageLeavesNoTransactionOpen(t *testing.T) {
	for _, goesOn := range []bool{false, true} {
		mem := vfs.NewMem(1)
		s := openStore(t, mem, "data")
		l := openLog(t, s)
		transactional(t, l, 1, 0)
		transactional(t, l, 2, 0)
		pos := l.active().size.Load()
		marker := ended(t, l, 1)
		start := mustAppend(t, l, records(3, 40, 1)).BaseOffset
		open := int64(-1)
		if goesOn {
			open = transactional(t, l, 2, 2)
		}
		end := mustAppend(t, l, records(3, 40, 1)).LastOffset + 1
		waitDurable(t, l, end)
		flip(t, mem, l.active().path(logExt), pos+70)
		l.SetHighWatermark(end)
		if bad, err := l.CheckAt(marker); !bad || err != nil {
			t.Fatalf("%t, %v", bad, err)
		}
		l.passed(marker)
		if err := l.AdvanceLogStart(start); err != nil {
			t.Fatal(err)
		}
		if err := l.Complete(); err != nil || l.Incomplete() {
			t.Fatalf("incomplete %t: %v", l.Incomplete(), err)
		}
		want := end
		if goesOn {
			want = open
		}
		if got := l.LastStable(); got != want {
			t.Fatalf("goes on %t: last stable offset %d, want %d", goesOn, got, want)
		}
		if goesOn {
			ended(t, l, 2)
			l.SetHighWatermark(l.Offsets().End)
			if txns, err := l.AbortedTxns(start, l.Offsets().End); err != nil || len(txns) != 1 || txns[0].FirstOffset != open {
				t.Fatalf("aborted %+v, %v", txns, err)
			}
		}
		s.Abandon()
	}
}

// TestLogThatIsEmptyAtItsStartHasNoTransactionOpen loses power after all records were deleted and before the end of a transaction
// was synced.
func TestLogThatIsEmptyAtItsStartHasNoTransactionOpen(t *testing.T) {
	hit := 0
	for seed := range uint64(20) {
		mem := vfs.NewMem(seed)
		replicated := func(c *Config) { c.Durability, c.FlushInterval = Replicated, 1<<50 }
		s := openStore(t, mem, "data", replicated)
		l := openLog(t, s)
		transactional(t, l, 1, 0)
		s.syncer.flush()
		s.checkpoint(s.opened(), false)
		end := ended(t, l, 1) + 1
		l.SetHighWatermark(end)
		if err := l.AdvanceLogStart(end); err != nil {
			t.Fatal(err)
		}
		after := mem.CrashSeed(seed)
		s.Abandon()
		s = openStore(t, after, "data", replicated)
		l = openLog(t, s)
		if o := l.Offsets(); o.LogStart != end || o.End != end {
			t.Fatalf("the log has %+v, its start was %d", o, end)
		}
		if len(l.list()) == 1 && l.list()[0].base == end {
			hit++
		}
		next := mustAppend(t, l, records(1, 40, 1)).LastOffset + 1
		l.SetHighWatermark(next)
		if got, err := l.Producers(); err != nil || l.LastStable() != next || len(got) != 1 || got[0].TxnStart != -1 {
			t.Fatalf("last stable offset %d of %d, producers %+v, %v", l.LastStable(), next, got, err)
		}
		s.Abandon()
	}
	if hit == 0 {
		t.Fatal("the end of the transaction was never lost")
	}
}
