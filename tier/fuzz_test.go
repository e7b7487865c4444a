package tier

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/integration/fuzztest"
	"github.com/varvelog/varve/tier/objstore"
)

// sealed puts a right checksum under a mutated manifest object, so that the
// fuzzer gets past it.
func sealed(b []byte) []byte {
	if len(b) < 4 {
		return b
	}
	e := encoder{b: bytes.Clone(b[:len(b)-4])}
	return e.sum()
}

func FuzzHead(f *testing.F) {
	m, _, _ := goldenManifest()
	f.Add(m.encode())
	f.Add(emptyManifest(testPartition.ID, 0).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, in := range [][]byte{b, sealed(b)} {
			var got *manifest
			var err error
			fuzztest.Bounded(t, len(in), func() { got, err = decodeHead(in) })
			if err != nil {
				continue
			}
			again, err := decodeHead(got.encode())
			if err != nil || !reflect.DeepEqual(again, got) {
				t.Fatalf("round trip: %v\n%+v\n%+v", err, got, again)
			}
		}
	})
}

func FuzzPage(f *testing.F) {
	m, body, _ := goldenManifest()
	f.Add(body.encode(m.topic, m.partition))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, in := range [][]byte{b, sealed(b)} {
			var got *page
			var err error
			fuzztest.Bounded(t, len(in), func() { got, _, _, err = decodePage(in) })
			if err != nil {
				continue
			}
			again, _, _, err := decodePage(got.encode(m.topic, m.partition))
			if err != nil || !reflect.DeepEqual(again, got) {
				t.Fatalf("round trip: %v\n%+v\n%+v", err, got, again)
			}
		}
	})
}

func FuzzFooter(f *testing.F) {
	f.Add(make([]byte, footerBytes), int64(1000))
	seed := footer{topic: testPartition.ID, end: 10, raw: 100, chunks: 1, batches: 1}
	seed.sections[0] = sectionPlace{8, 36}
	seed.sections[1] = sectionPlace{44, 20}
	seed.sections[4] = sectionPlace{64, 28}
	f.Add(seed.encode(), int64(92+footerBytes))
	f.Fuzz(func(t *testing.T, b []byte, size int64) {
		ins := [][]byte{b}
		if len(b) == footerBytes {
			e := encoder{b: bytes.Clone(b[:136])}
			e.sum()
			e.bytes([]byte(objectMagic))
			ins = append(ins, e.b)
		}
		for _, in := range ins {
			var got *footer
			var err error
			fuzztest.Bounded(t, len(in), func() { got, err = decodeFooter(in, size) })
			if err != nil {
				continue
			}
			if !bytes.Equal(got.encode(), in) {
				t.Fatalf("round trip of %+v", got)
			}
			s := got.segment(size)
			if s.lookupAt < 0 || s.lookupBytes <= 0 || s.lookupAt+s.lookupBytes > size {
				t.Fatalf("lookup region [%d, +%d) of %d", s.lookupAt, s.lookupBytes, size)
			}
		}
	})
}

func FuzzIndex(f *testing.F) {
	seg := testSegmentEntry(1000, 2000, 1, 5)
	seg.lookupAt, seg.HasAborted = 5000, true
	x := &objectIndex{chunks: []chunkInfo{{base: 1000, at: 8, stored: 100, raw: 200, encoding: encodingZstd}, {base: 1500, at: 108, stored: 90, raw: 90}}}
	x.aborted = goldenAborted
	var places [sectionTypes]sectionPlace
	f.Add(x.encode(1000, nil, 5000, &places))
	f.Fuzz(func(t *testing.T, b []byte) {
		var got *objectIndex
		var err error
		fuzztest.Bounded(t, len(b), func() { got, err = decodeIndex(b, &seg) })
		if err != nil {
			return
		}
		if !bytes.Equal(got.encode(seg.ID.Base, nil, 5000, &places), b) {
			t.Fatalf("round trip of %+v", got)
		}
		for o := seg.ID.Base; o < seg.End; o += 99 {
			if i := got.chunkFor(o); i < 0 || i >= len(got.chunks) {
				t.Fatalf("chunk %d of %d for offset %d", i, len(got.chunks), o)
			}
		}
	})
}

// FuzzChunk: a chunk's memory is the raw size that the index gives it (held to
// the archive's limit when the index is read) and what the bytes themselves
// take, whatever zstd's own header claims. zstd's tables and its buffers of a
// block and of its output, at most 128 KiB each and grown by doubling, come on
// top, however small the chunk.
func FuzzChunk(f *testing.F) {
	a := openTest(f, testConfig(f), objstore.NewMem(0), "")
	w := newWorld(1)
	s := w.segment(3, 3)
	f.Add(s.data, false)
	f.Add(a.encoder.EncodeAll(s.data, nil), true)
	// A header that claims 768 MiB.
	f.Add(append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x80, 0x30, 0, 0, 0, 0x30}, make([]byte, 4096)...), true)
	f.Fuzz(func(t *testing.T, b []byte, zstd bool) {
		c := chunkInfo{stored: uint32(len(b)), raw: uint32(len(b)), crc: crc32c(b)}
		if zstd {
			c.encoding, c.raw = encodingZstd, uint32(len(s.data))
		}
		zstdBytes := 0
		if zstd {
			zstdBytes = 512 << 10
		}
		var raw *block
		var err error
		fuzztest.Within(t, fuzztest.Factor*(len(b)+int(c.raw))+fuzztest.Floor+zstdBytes, func() { raw, err = a.decodeChunk(&c, w.next, &block{b: b}) })
		if err != nil {
			return
		}
		for from := int64(0); from < w.next; from++ {
			part, start, next, _ := cutBatches(raw.b, from, 100, w.next, true)
			if len(part) > 0 && (start > from+int64(len(raw.b)) || next <= from) {
				t.Fatalf("cut at %d: [%d, %d)", from, start, next)
			}
		}
	})
}

func FuzzKey(f *testing.F) {
	cfg := Config{Prefix: "a/b"}
	f.Add(cfg.PartitionPrefix(testPartition.ID, 3) + "head")
	f.Add(cfg.PartitionPrefix(testPartition.ID, 3) + "seg/" + SegmentID{1, 2, 3}.name())
	f.Add(cfg.PartitionPrefix(testPartition.ID, 3) + "page/" + SegmentID{1, 2, 3}.name())
	f.Fuzz(func(t *testing.T, key string) {
		var k KeyInfo
		var ok bool
		fuzztest.Bounded(t, len(key), func() { k, ok = cfg.ParseKey(key) })
		if !ok {
			return
		}
		again := cfg.PartitionPrefix(k.Topic, k.Partition)
		switch k.Kind {
		case KeyHead:
			again += "head"
		case KeyPage:
			again += "page/" + k.ID.name()
		case KeySegment:
			again += "seg/" + k.ID.name()
		}
		if again != key {
			t.Fatalf("%q parsed as %q", key, again)
		}
	})
}

var goldenAborted = []batch.AbortedTxn{{ProducerID: 1, FirstOffset: 1000, LastOffset: 1010, LastStable: 1011}}
