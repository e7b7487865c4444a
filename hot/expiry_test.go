package hot

import (
	"testing"
	"time"

	"github.com/varvelog/varve/hot/vfs"
)

// TestBackfilledProducerKeepsItsStateUntilItIsSilent appends events that are
// years old: a producer's silence counts from its last append, whatever its
// records say, also after a restart.
func TestBackfilledProducerKeepsItsStateUntilItIsSilent(t *testing.T) {
	ttl := DefaultLogConfig().ProducerExpirationMillis
	keep := func(c *LogConfig) { c.RetentionMillis = -1 }
	now := time.Now().UnixMilli()
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s, keep)
	at := func(o *AppendOptions) { o.Now = now }
	first := mustAppend(t, l, produced(7, 0, 0, 2, false), at) // records of 1970
	l.ExpireProducers(now + ttl - 1)
	if a := mustAppend(t, l, produced(7, 0, 0, 2, false), at); !a.Duplicate || a.BaseOffset != first.BaseOffset {
		t.Fatalf("repeat of an acknowledged batch became %+v", a)
	}
	list, err := l.Producers()
	if err != nil || len(list) != 1 || list[0].LastTimestamp != 1 {
		t.Fatalf("producers %+v, %v; the timestamp listed is that of the records", list, err)
	}
	closeStore(t, s)
	s = openStore(t, mem, "data")
	l = openLog(t, s, keep)
	if _, err := l.Producers(); err != nil {
		t.Fatal(err)
	}
	l.ExpireProducers(now + ttl - 1)
	if a := mustAppend(t, l, produced(7, 0, 0, 2, false), at); !a.Duplicate {
		t.Fatalf("after a restart the repeat became %+v", a)
	}
	// The time of the append came with the snapshot: a restart does not start
	// the clock anew.
	l.ExpireProducers(now + ttl)
	if list, err := l.Producers(); err != nil || len(list) != 0 {
		t.Fatalf("producers %+v, %v after the time of silence", list, err)
	}
}

// TestReplayedProducerCountsAsHeardAtTheReplay kills the process: what was
// appended since the snapshot has no time of append, so its producers get the
// whole time of silence again.
func TestReplayedProducerCountsAsHeardAtTheReplay(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	mustAppend(t, l, produced(7, 0, 0, 2, false))
	waitDurable(t, l, 2)
	s.Abandon()
	before := time.Now().UnixMilli()
	l = openLog(t, openStore(t, mem, "data"))
	l.ExpireProducers(before + DefaultLogConfig().ProducerExpirationMillis - 1)
	if a := mustAppend(t, l, produced(7, 0, 0, 2, false)); !a.Duplicate {
		t.Fatalf("after a kill the repeat became %+v", a)
	}
}

// TestSnapshotOfVersionOneIsRead: files written before append times were kept
// stay good; their producers count as heard when they are read.
func TestSnapshotOfVersionOneIsRead(t *testing.T) {
	ps, at, err := decodeSnapshot(unhex(t, "5650534e00010000e6e53e3b000000000000000300000001000000000000000900020001ffffffff000000000000000cffffffffffffffff0000000400000006000000020000000000000002000000000000000c"))
	if err != nil || at != 3 || len(ps.byID) != 1 {
		t.Fatalf("%d producers at %d, %v", len(ps.byID), at, err)
	}
	ps.heard(5000)
	if n := ps.expire(5000+99, 100); n != 0 {
		t.Fatal("expired early")
	}
	if n := ps.expire(5000+100, 100); n != 1 {
		t.Fatal("not expired")
	}
}
