package tier

import (
	"slices"

	"github.com/varvelog/varve/hot/batch"
)

// Offset index body: count × 24 bytes, one per chunk, in order:
//
//	 0  4  base offset of the chunk's first batch less the object's base offset
//	 4  4  position in the object
//	 8  4  stored bytes
//	12  4  raw bytes
//	16  4  CRC-32C of the stored bytes
//	20  4  encoding: 0 as they are, 1 one zstd frame
//
// Time index body: count × 8 bytes, one per chunk, in order: the largest
// timestamp of the chunk's data batches, -2^63 when it has none. The running
// maximum over the chunks is what a lookup searches.
//
// Transaction index body: count × 32 bytes, in the order of the markers: producer
// id, first offset, last offset, last stable offset (8 each).
const (
	chunkEntryBytes   = 24
	timeEntryBytes    = 8
	abortedEntryBytes = 32

	encodingRaw  = 0
	encodingZstd = 1

	// chunkRawMax bounds what a reader allocates for a chunk on an index's word:
	// the largest request a broker takes is far below.
	chunkRawMax = 1 << 30
)

// chunkInfo is one chunk as the indexes describe it.
type chunkInfo struct {
	base     int64
	at       uint32
	stored   uint32
	raw      uint32
	crc      uint32
	encoding uint32
	maxTime  int64
}

// objectIndex is an object's lookup region, decoded. Immutable.
type objectIndex struct {
	chunks  []chunkInfo
	aborted []batch.AbortedTxn
}

// sizeBytes estimates the memory it takes.
func (x *objectIndex) sizeBytes() int64 {
	return 128 + int64(len(x.chunks))*40 + int64(len(x.aborted))*32
}

// encode appends the lookup region's sections to b and notes their places,
// which are relative to the object: b starts at position at.
func (x *objectIndex) encode(base int64, b []byte, at uint32, places *[sectionTypes]sectionPlace) []byte {
	var offsets, times, aborted encoder
	for i := range x.chunks {
		c := &x.chunks[i]
		offsets.u32(uint32(c.base - base))
		offsets.u32(c.at)
		offsets.u32(c.stored)
		offsets.u32(c.raw)
		offsets.u32(c.crc)
		offsets.u32(c.encoding)
		times.i64(c.maxTime)
	}
	for _, t := range x.aborted {
		aborted.i64(t.ProducerID)
		aborted.i64(t.FirstOffset)
		aborted.i64(t.LastOffset)
		aborted.i64(t.LastStable)
	}
	put := func(kind uint16, body []byte) {
		start := len(b)
		b = appendSection(b, kind, body)
		places[kind-1] = sectionPlace{at: at + uint32(start), n: uint32(len(b) - start)}
	}
	put(sectionOffsets, offsets.b)
	put(sectionTimes, times.b)
	if len(x.aborted) > 0 {
		put(sectionAborted, aborted.b)
	}
	return b
}

// decodeIndex reads the lookup region of the segment s.
func decodeIndex(b []byte, s *RemoteSegment) (*objectIndex, error) {
	d := &decoder{b: b}
	offsets := &decoder{b: d.section(sectionOffsets)}
	times := &decoder{b: d.section(sectionTimes)}
	x := &objectIndex{}
	if s.HasAborted {
		a := &decoder{b: d.section(sectionAborted)}
		if len(a.b) == 0 || len(a.b)%abortedEntryBytes != 0 {
			d.fail("transaction index of %d bytes", len(a.b))
		}
		for len(a.b) > 0 && d.err == nil {
			x.aborted = append(x.aborted, batch.AbortedTxn{ProducerID: a.i64(), FirstOffset: a.i64(), LastOffset: a.i64(), LastStable: a.i64()})
		}
	}
	if err := d.done(); err != nil {
		return nil, err
	}
	n := len(offsets.b) / chunkEntryBytes
	if n == 0 || len(offsets.b)%chunkEntryBytes != 0 || len(times.b) != n*timeEntryBytes {
		return nil, corrupt("offset index of %d bytes, time index of %d", len(offsets.b), len(times.b))
	}
	x.chunks = make([]chunkInfo, n)
	for i := range x.chunks {
		c := &x.chunks[i]
		c.base = s.ID.Base + int64(offsets.u32())
		c.at = offsets.u32()
		c.stored = offsets.u32()
		c.raw = offsets.u32()
		c.crc = offsets.u32()
		c.encoding = offsets.u32()
		c.maxTime = times.i64()
	}
	return x, x.check(s)
}

func (x *objectIndex) check(s *RemoteSegment) error {
	at, base := int64(len(objectMagic)), s.ID.Base-1
	for i := range x.chunks {
		c := &x.chunks[i]
		switch {
		case int64(c.at) != at || c.stored == 0 || at+int64(c.stored) > s.lookupAt:
			return corrupt("chunk %d lies at %d, +%d", i, c.at, c.stored)
		case c.base <= base || c.base >= s.End:
			return corrupt("chunk %d starts at offset %d", i, c.base)
		case c.raw < batch.HeaderSize || c.raw > chunkRawMax:
			return corrupt("chunk %d has %d raw bytes", i, c.raw)
		case c.encoding > encodingZstd || (c.encoding == encodingRaw && c.raw != c.stored):
			return corrupt("chunk %d has encoding %d, %d raw bytes in %d", i, c.encoding, c.raw, c.stored)
		}
		at, base = at+int64(c.stored), c.base
	}
	return nil
}

// chunkFor is the chunk that holds offset: the last one that starts at or below
// it, or the first when offset lies in a gap before it.
func (x *objectIndex) chunkFor(offset int64) int {
	i, found := slices.BinarySearchFunc(x.chunks, offset, func(c chunkInfo, o int64) int {
		switch {
		case c.base < o:
			return -1
		case c.base > o:
			return 1
		}
		return 0
	})
	if found || i == 0 {
		return i
	}
	return i - 1
}
