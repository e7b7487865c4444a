package hot

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
)

// Every decoder takes any bytes: no panic, and what it accepts it gives back.

func FuzzIndex(f *testing.F) {
	x := newIndexer(100, 0)
	pos := int64(0)
	for i := range 5 {
		b := records(2, 30, int64(i))
		b.SetBaseOffset(100 + int64(2*i))
		x.add(b, pos)
		pos += int64(len(b))
	}
	x.footer()
	f.Add(x.ix.encode(0, x.ix.len()), int64(100), pos)
	f.Fuzz(func(t *testing.T, b []byte, base, size int64) {
		ix, whole := parseIndex(b, base, size)
		enc := ix.encode(0, ix.len())
		if !bytes.HasPrefix(b, enc) || whole != (len(enc) == len(b)) {
			t.Fatalf("%d bytes give %d entries, whole %v", len(b), ix.len(), whole)
		}
		for i := 1; i < ix.len(); i++ {
			if p, e := ix.at(i-1), ix.at(i); e.rel <= p.rel || e.pos <= p.pos || e.maxTs < p.maxTs {
				t.Fatalf("entries %+v, %+v do not rise", p, e)
			}
		}
	})
}

func FuzzTransactionIndex(f *testing.F) {
	f.Add(encodeTxns(7, []batch.AbortedTxn{{ProducerID: 1, FirstOffset: 7, LastOffset: 9, LastStable: 10}}), int64(7))
	f.Fuzz(func(t *testing.T, b []byte, base int64) {
		txns, whole := parseTxns(b, base)
		enc := encodeTxns(base, txns)
		if whole != (len(enc) == len(b)) {
			t.Fatalf("%d bytes, %d entries, whole %v", len(b), len(txns), whole)
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	ps := newProducers()
	ps.apply(produced(1, 0, 0, 3, true), nil, 5)
	ps.apply(produced(2, 1, 5, 1, false), nil, 5)
	f.Add(ps.encode(4))
	f.Fuzz(func(t *testing.T, b []byte) {
		ps, at, err := decodeSnapshot(b)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		again, at2, err := decodeSnapshot(ps.encode(at))
		if err != nil || at2 != at || !slices.Equal(again.list(), ps.list()) {
			t.Fatalf("not the same again: %v", err)
		}
	})
}

func FuzzEpochs(f *testing.F) {
	f.Add(encodeEpochs(lineage.Chain{{Epoch: 1, Start: 0}, {Epoch: 4, Start: 10}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decodeEpochs(b)
		if err == nil && (!c.Valid() || len(b) != epochsHeaderSize+len(c)*epochEntrySize) {
			t.Fatalf("accepted %v", c)
		}
	})
}

func FuzzJournal(f *testing.F) {
	st := newPartitionState(5)
	j := &journal{live: map[journalKey]*partitionState{keyOf(testPartition): &st}}
	f.Add(j.encodeLocked())
	f.Fuzz(func(t *testing.T, b []byte) {
		j := &journal{live: map[journalKey]*partitionState{}}
		if err := j.load(b); err != nil {
			return
		}
		again := &journal{live: map[journalKey]*partitionState{}}
		if err := again.load(j.encodeLocked()); err != nil || len(again.live) != len(j.live) {
			t.Fatalf("not the same again: %v", err)
		}
		for k, s := range j.live {
			if *again.live[k] != *s {
				t.Fatalf("%+v became %+v", *s, *again.live[k])
			}
		}
	})
}

// FuzzRecovery appends any bytes to a good segment, as a crash may: recovery
// keeps the good part, takes no bad batch, and the log goes on.
func FuzzRecovery(f *testing.F) {
	next := records(2, 10, 5)
	next.SetBaseOffset(6)
	f.Add([]byte{})
	f.Add([]byte(next))
	f.Add([]byte(next)[:40])
	f.Add(append(slices.Clone([]byte(next)), 1, 2, 3))
	f.Fuzz(func(t *testing.T, tail []byte) {
		mem := vfs.NewMem(1)
		s := openStore(t, mem, "data")
		l := openLog(t, s)
		for range 2 {
			mustAppend(t, l, records(3, 20, 1))
		}
		waitDurable(t, l, 6)
		path := l.active().path(logExt)
		s.Abandon()
		file, err := mem.OpenAppend(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.Write(tail); err != nil {
			t.Fatal(err)
		}
		file.Close()
		s = openStore(t, mem, "data")
		l = openLog(t, s)
		end := l.Offsets().End
		if end < 6 {
			t.Fatalf("end %d", end)
		}
		readAll(t, l, 1<<20)
		if a := mustAppend(t, l, records(1, 1, 1)); a.BaseOffset != end {
			t.Fatalf("went on at %d, end was %d", a.BaseOffset, end)
		}
		s.Abandon()
	})
}

func FuzzNames(f *testing.F) {
	f.Add("events-3.AQIDAAAAAAAAAAAAAAAAAA")
	f.Add(swapName(3, 9))
	f.Add(offsetName(42, logExt))
	f.Fuzz(func(t *testing.T, name string) {
		if p, cut, ok := parsePartitionDirName(name); ok && !cut && partitionDirName(p) != name && len(p.Topic) <= dirTopicMax {
			t.Fatalf("%q became %q", name, partitionDirName(p))
		}
		if base, end, ok := parseSwapName(name); ok && swapName(base, end) != name {
			t.Fatalf("%q became %q", name, swapName(base, end))
		}
		if o, ext, ok := parseOffsetName(name); ok && offsetName(o, ext) != name {
			t.Fatalf("%q became %q", name, offsetName(o, ext))
		}
	})
}
