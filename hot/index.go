package hot

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"math/bits"
	"sort"
	"sync/atomic"
)

// Index file (%020d.index), big-endian: a run of 24-byte entries.
//
//	offset size field
//	     0    4  offset, relative to the segment's base, of the batch at position
//	     4    4  position of that batch in the log file
//	     8    8  largest max timestamp of the data batches before position, -1 none
//	    16    4  relative base offset of the first batch that has it, 2^32-1 none
//	    20    4  CRC-32C of the segment's base offset (8 bytes) and bytes 0..19
//
// Offsets, positions and timestamps rise; offset and position strictly. An
// entry is added before a batch when more than index.interval.bytes were
// written since the last one; the first batch has none. The last entry of a
// sealed segment is its footer: position is the size of the log file, offset
// its end. A footer is written only after the log file was synced.
// Torn tail: entries end at the first one whose checksum or order is wrong.
const indexEntrySize = 24

const noRelative = math.MaxUint32

type indexEntry struct {
	rel    uint32 // offset − base
	pos    uint32
	maxTs  int64  // over data batches before pos, -1 none
	relMax uint32 // where maxTs was first reached
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func indexSeed(base int64) uint32 {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], uint64(base))
	return crc32.Checksum(b[:], castagnoli)
}

func appendIndexEntry(dst []byte, seed uint32, e indexEntry) []byte {
	at := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, e.rel)
	dst = binary.BigEndian.AppendUint32(dst, e.pos)
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.maxTs))
	dst = binary.BigEndian.AppendUint32(dst, e.relMax)
	return binary.BigEndian.AppendUint32(dst, crc32.Update(seed, castagnoli, dst[at:]))
}

func parseIndexEntry(b []byte, seed uint32) (indexEntry, bool) {
	e := indexEntry{
		rel:    binary.BigEndian.Uint32(b),
		pos:    binary.BigEndian.Uint32(b[4:]),
		maxTs:  int64(binary.BigEndian.Uint64(b[8:])),
		relMax: binary.BigEndian.Uint32(b[16:]),
	}
	return e, crc32.Update(seed, castagnoli, b[:20]) == binary.BigEndian.Uint32(b[20:])
}

// parseIndex reads entries up to the first bad one or the first beyond size
// bytes of log. whole says that nothing was left over.
func parseIndex(b []byte, base, size int64) (ix *segIndex, whole bool) {
	ix = newSegIndex(base)
	seed := indexSeed(base)
	var last indexEntry
	for len(b) >= indexEntrySize {
		e, ok := parseIndexEntry(b, seed)
		if !ok || int64(e.pos) > size || e.maxTs < -1 {
			return ix, false
		}
		if ix.len() > 0 && (e.rel <= last.rel || e.pos <= last.pos || e.maxTs < last.maxTs) {
			return ix, false
		}
		ix.add(e)
		last = e
		b = b[indexEntrySize:]
	}
	return ix, len(b) == 0
}

// segIndex is a segment's index in the heap. One appender adds; readers look
// without a lock. Entries lie in chunks of 8, 16, 32, … so that a small
// segment costs little and growing never moves an entry.
type segIndex struct {
	base   int64
	n      atomic.Int64
	chunks atomic.Pointer[[][]indexEntry]
	used   atomic.Bool // touched since the cache last looked
}

const indexChunkMin = 8

func newSegIndex(base int64) *segIndex { return &segIndex{base: base} }

func (x *segIndex) len() int { return int(x.n.Load()) }

func chunkOf(i int) (chunk, at int) {
	chunk = bits.Len(uint(i/indexChunkMin+1)) - 1
	return chunk, i - indexChunkMin*(1<<chunk-1)
}

func (x *segIndex) add(e indexEntry) {
	i := int(x.n.Load())
	c, at := chunkOf(i)
	var chunks [][]indexEntry
	if p := x.chunks.Load(); p != nil {
		chunks = *p
	}
	if c == len(chunks) {
		next := make([][]indexEntry, c+1)
		copy(next, chunks)
		next[c] = make([]indexEntry, indexChunkMin<<c)
		x.chunks.Store(&next)
		chunks = next
	}
	chunks[c][at] = e
	x.n.Store(int64(i + 1))
}

func (x *segIndex) at(i int) indexEntry {
	c, at := chunkOf(i)
	return (*x.chunks.Load())[c][at]
}

func (x *segIndex) last() (indexEntry, bool) {
	n := x.len()
	if n == 0 {
		return indexEntry{}, false
	}
	return x.at(n - 1), true
}

// heapBytes is about what the index costs.
func (x *segIndex) heapBytes() int64 { return int64(x.len())*indexEntrySize + 128 }

// clip is a copy of the entries at or before position size.
func (x *segIndex) clip(size int64) *segIndex {
	c := newSegIndex(x.base)
	for i := range x.len() {
		e := x.at(i)
		if int64(e.pos) > size {
			break
		}
		c.add(e)
	}
	return c
}

// floorOffset is the last entry whose batch starts at or before offset; ok is
// false when the walk must start at position 0.
func (x *segIndex) floorOffset(offset int64) (indexEntry, bool) {
	return x.floor(func(e indexEntry) bool { return x.base+int64(e.rel) <= offset })
}

// floorPosition is the last entry at or before position pos.
func (x *segIndex) floorPosition(pos int64) (indexEntry, bool) {
	return x.floor(func(e indexEntry) bool { return int64(e.pos) <= pos })
}

// floorTime is the last entry before which every timestamp is below ts.
func (x *segIndex) floorTime(ts int64) (indexEntry, bool) {
	return x.floor(func(e indexEntry) bool { return e.maxTs < ts })
}

func (x *segIndex) floor(in func(indexEntry) bool) (indexEntry, bool) {
	n := x.len()
	i := sort.Search(n, func(i int) bool { return !in(x.at(i)) })
	if i == 0 {
		return indexEntry{}, false
	}
	return x.at(i - 1), true
}

// encode is entries [from, to) as the file has them.
func (x *segIndex) encode(from, to int) []byte {
	b := make([]byte, 0, (to-from)*indexEntrySize)
	seed := indexSeed(x.base)
	for i := from; i < to; i++ {
		b = appendIndexEntry(b, seed, x.at(i))
	}
	return b
}
