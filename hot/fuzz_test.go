package hot

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/integration/fuzztest"
)

// Every decoder takes any bytes: no panic, memory bounded by the input, and
// what it accepts it gives back. Checksums would keep the fuzzer out, so each
// target tries the bytes as they are and with the checksums put right.

// resum puts right the checksum at sumAt of the bytes from fromAt on.
func resum(b []byte, sumAt, fromAt int) []byte {
	if len(b) < fromAt {
		return b
	}
	b = bytes.Clone(b)
	binary.BigEndian.PutUint32(b[sumAt:], crc32.Checksum(b[fromAt:], castagnoli))
	return b
}

// resumEntries does so for entries of size bytes that end with a seeded checksum.
func resumEntries(b []byte, base int64, size int) []byte {
	b = bytes.Clone(b)
	for e := b; len(e) >= size; e = e[size:] {
		binary.BigEndian.PutUint32(e[size-4:], crc32.Update(indexSeed(base), castagnoli, e[:size-4]))
	}
	return b
}

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
	f.Fuzz(func(t *testing.T, in []byte, base, size int64) {
		for _, b := range [][]byte{in, resumEntries(in, base, indexEntrySize)} {
			var ix *segIndex
			var whole bool
			fuzztest.Bounded(t, len(b), func() { ix, whole = parseIndex(b, base, size) })
			enc := ix.encode(0, ix.len())
			if !bytes.HasPrefix(b, enc) || whole != (len(enc) == len(b)) {
				t.Fatalf("%d bytes give %d entries, whole %v", len(b), ix.len(), whole)
			}
			for i := 1; i < ix.len(); i++ {
				if p, e := ix.at(i-1), ix.at(i); e.rel <= p.rel || e.pos <= p.pos || e.maxTs < p.maxTs {
					t.Fatalf("entries %+v, %+v do not rise", p, e)
				}
			}
		}
	})
}

func FuzzTransactionIndex(f *testing.F) {
	f.Add(encodeTxns(7, []batch.AbortedTxn{{ProducerID: 1, FirstOffset: 7, LastOffset: 9, LastStable: 10}}), int64(7))
	f.Fuzz(func(t *testing.T, in []byte, base int64) {
		for _, b := range [][]byte{in, resumEntries(in, base, txnEntrySize)} {
			var txns []batch.AbortedTxn
			var whole bool
			fuzztest.Bounded(t, len(b), func() { txns, whole = parseTxns(b, base) })
			enc := encodeTxns(base, txns)
			if whole != (len(enc) == len(b)) {
				t.Fatalf("%d bytes, %d entries, whole %v", len(b), len(txns), whole)
			}
		}
	})
}

func FuzzSnapshot(f *testing.F) {
	ps := newProducers()
	ps.apply(produced(1, 0, 0, 3, true), nil, 5)
	ps.apply(produced(2, 1, 5, 1, false), nil, 5)
	f.Add(ps.encode(4))
	for i := range int64(3000) { // the least that a producer takes in the file
		ps.byID[i+10] = newProducer(i + 10)
	}
	f.Add(ps.encode(4))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, b := range [][]byte{in, resum(in, 8, 12)} {
			var ps *producers
			var at int64
			var err error
			fuzztest.Bounded(t, len(b), func() { ps, at, err = decodeSnapshot(b) })
			if err != nil {
				if !errors.Is(err, ErrCorrupt) {
					t.Fatal(err)
				}
				continue
			}
			again, at2, err := decodeSnapshot(ps.encode(at))
			if err != nil || at2 != at || !slices.Equal(again.list(), ps.list()) || !slices.Equal(again.open, ps.open) {
				t.Fatalf("not the same again: %v", err)
			}
		}
	})
}

func FuzzEpochs(f *testing.F) {
	f.Add(encodeEpochs(lineage.Chain{{Epoch: 1, Start: 0}, {Epoch: 4, Start: 10}}))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, b := range [][]byte{in, resum(in, 8, 12)} {
			var c lineage.Chain
			var err error
			fuzztest.Bounded(t, len(b), func() { c, err = decodeEpochs(b) })
			if err == nil && (!c.Valid() || len(b) != epochsHeaderSize+len(c)*epochEntrySize) {
				t.Fatalf("accepted %v", c)
			}
		}
	})
}

func FuzzJournal(f *testing.F) {
	st := newPartitionState(5)
	j := &journal{version: journalVersion, live: map[journalKey]*partitionState{keyOf(testPartition): &st}}
	f.Add(j.encodeLocked())
	st.cut, j.lastCut, j.version = 7, 9, journalVersionCut
	f.Add(j.encodeLocked())
	for i := range int32(1000) {
		p := testPartition
		p.Index = i
		j.live[keyOf(p)] = &st
	}
	f.Add(j.encodeLocked())
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzJournal(t, b)
		b = bytes.Clone(b)
		size := journalRecordSize
		if len(b) >= journalHeaderSize {
			size = recordSize(binary.BigEndian.Uint32(b[8:]))
		}
		for at := journalHeaderSize; at+size <= len(b); at += size {
			copy(b[at:], resum(b[at:at+size], 0, 4))
		}
		fuzzJournal(t, b)
	})
}

func fuzzJournal(t *testing.T, b []byte) {
	var j *journal
	var err error
	fuzztest.Bounded(t, len(b), func() {
		j = &journal{live: map[journalKey]*partitionState{}}
		err = j.load(b)
	})
	if err != nil {
		return
	}
	again := &journal{live: map[journalKey]*partitionState{}}
	if err := again.load(j.encodeLocked()); err != nil || len(again.live) != len(j.live) || again.lastCut != j.lastCut {
		t.Fatalf("not the same again: %v", err)
	}
	for k, s := range j.live {
		if *again.live[k] != *s {
			t.Fatalf("%+v became %+v", *s, *again.live[k])
		}
	}
}

// FuzzSharedLog reads a file of the shared log with right checksums around
// whatever a fuzzer makes of the rest.
func FuzzSharedLog(f *testing.F) {
	g := sharedGeneration{number: 1, salt: 2, first: 3}
	b := append(g.append(nil), make([]byte, sharedBlock-sharedHeaderSize)...)
	var older []byte
	for seq := range uint64(3) {
		at := len(b)
		b = g.appendRound(b, g.first+seq, older, sharedWrite{sharedEntry{base: 5}, []byte("bytes")}, sharedWrite{sharedEntry{cut: 1, pos: 7}, nil})
		older = headsOf(b, at)
	}
	f.Add(append(b, make([]byte, sharedBlock)...))
	f.Fuzz(func(t *testing.T, in []byte) {
		b := bytes.Clone(in)
		if len(b) >= sharedHeaderSize {
			binary.BigEndian.PutUint32(b[40:], crc32.Checksum(b[:40], castagnoli))
			binary.BigEndian.PutUint32(b[64:], crc32.Checksum(b[44:64], castagnoli))
		}
		for at := sharedBlock; at+sharedRoundHead <= len(b); at += sharedBlock {
			fixRound(b[at:])
		}
		for _, b := range [][]byte{in, b} {
			fuzzShared(t, b)
		}
	})
}

// fixRound makes the checksums of a round right, as far as it is there.
func fixRound(b []byte) {
	u := func(at int) int64 { return int64(binary.BigEndian.Uint32(b[at:])) }
	heads := sharedRoundHead + u(4)*sharedEntryHead
	if older := heads + u(32); older+u(36) <= int64(len(b)) {
		binary.BigEndian.PutUint32(b[40:], crc32.Checksum(b[older:older+u(36)], castagnoli))
	}
	if heads <= int64(len(b)) {
		binary.BigEndian.PutUint32(b, crc32.Checksum(b[4:heads], castagnoli))
	}
}

func fuzzShared(t *testing.T, b []byte) {
	entries, told := 0, 0
	var err error
	fuzztest.Bounded(t, len(b), func() {
		r := sharedReader{f: bytes.NewReader(b), size: int64(len(b))}
		var g sharedGeneration
		if g, err = readSharedHeader(r.f, r.size); err != nil {
			return
		}
		r.salt = g.salt
		var rounds []sharedRound
		rounds, err = r.scan()
		for i := range rounds {
			if err == nil {
				err = r.entries(&rounds[i], func(e sharedEntry, at int64) error {
					entries++
					_, _, _, err := r.bytes(&e, at)
					return err
				})
			}
			if err == nil {
				err = r.earlier(&rounds[i], func(uint64) {}, func(uint64, sharedEntry) { told++ })
			}
		}
	})
	if err != nil && !errors.Is(err, errSharedHeader) && !errors.Is(err, errSharedVersion) {
		t.Fatal(err)
	}
	if entries > len(b)/sharedEntryHead || told > len(b)/sharedEntryHead {
		t.Fatalf("%d entries and %d of earlier rounds in %d bytes", entries, told, len(b))
	}
}

// FuzzMetadata reads a partition's metadata file, which names a topic whose
// name is too long for a directory.
func FuzzMetadata(f *testing.F) {
	f.Add(formatMetadata(testPartition))
	f.Add([]byte("version: 0\ntopic: a/b\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var name string
		var ok bool
		fuzztest.Bounded(t, len(b), func() { name, ok = parseMetadata(b) })
		if !ok {
			return
		}
		p := testPartition
		p.Topic = name
		if again, ok := parseMetadata(formatMetadata(p)); !ok || again != name {
			t.Fatalf("%q became %q", name, again)
		}
	})
}

// FuzzRecovery appends any bytes to a good segment, as a crash may: recovery
// keeps the good part, takes no bad batch, and the log goes on. Memory is
// not measured here, where a whole store over a file system in memory would be
// counted: what recovery decodes with has its own targets, here and in batch.
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
