package tier

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/varvelog/varve/meta/topic"
)

// Object, version 1, big-endian. Format: do not renumber.
//
//	+-----------------------------------------------------------+
//	| magic "VARVESG\n"                                  8 bytes |
//	+-----------------------------------------------------------+
//	| chunks, back to back, as the offset index says            |
//	+-----------------------------------------------------------+
//	| section: offset index       \                             |
//	| section: time index          > the lookup region          |
//	| section: transaction index  /  (absent when empty)        |
//	| section: producer snapshot     (absent when empty)        |
//	| section: leader-epoch chain                               |
//	+-----------------------------------------------------------+
//	| footer                                           148 bytes |
//	+-----------------------------------------------------------+
//
// Section: type (2), version (2), length of the body (4), CRC-32C of these
// eight bytes and the body (4), body.
//
// Footer:
//
//	  0  40  section table: for types 1 to 5 the position (4) and the length with
//	         its header (4) of the section, both 0 when absent
//	 40  16  topic id
//	 56   4  partition
//	 60   4  leader epoch of the upload
//	 64   8  random part of the name
//	 72   8  base offset
//	 80   8  end offset, exclusive
//	 88   8  raw bytes
//	 96   8  smallest timestamp of the data batches, -2^63 none
//	104   8  largest timestamp of the data batches, -2^63 none
//	112   8  time of the upload, ms
//	120   4  chunks
//	124   4  batches
//	128   4  flags: bit 0 has aborted transactions
//	132   2  version, 1
//	134   2  length of the footer, 148
//	136   4  CRC-32C of the footer's first 136 bytes
//	140   8  magic "VARVESG\n"
const (
	objectMagic   = "VARVESG\n"
	objectVersion = 1
	footerBytes   = 148

	sectionHeaderBytes = 12
	sectionVersion     = 1
)

// Section types. Format: do not renumber.
const (
	sectionOffsets   = 1
	sectionTimes     = 2
	sectionAborted   = 3
	sectionProducers = 4
	sectionLineage   = 5
	sectionTypes     = 5
)

type sectionPlace struct{ at, n uint32 }

// footer is the end of an object, decoded.
type footer struct {
	sections   [sectionTypes]sectionPlace // by type less one
	topic      topic.ID
	partition  int32
	id         SegmentID
	end        int64
	raw        int64
	minTime    int64
	maxTime    int64
	created    int64
	chunks     uint32
	batches    uint32
	hasAborted bool
}

func (f *footer) encode() []byte {
	e := &encoder{b: make([]byte, 0, footerBytes)}
	for _, s := range f.sections {
		e.u32(s.at)
		e.u32(s.n)
	}
	e.bytes(f.topic[:])
	e.i32(f.partition)
	e.i32(f.id.Epoch)
	e.u64(f.id.Random)
	e.i64(f.id.Base)
	e.i64(f.end)
	e.i64(f.raw)
	e.i64(f.minTime)
	e.i64(f.maxTime)
	e.i64(f.created)
	e.u32(f.chunks)
	e.u32(f.batches)
	e.bool32(f.hasAborted)
	e.u16(objectVersion)
	e.u16(footerBytes)
	e.sum()
	e.bytes([]byte(objectMagic))
	return e.b
}

// decodeFooter reads the last footerBytes of an object of the given size.
func decodeFooter(b []byte, size int64) (*footer, error) {
	if len(b) != footerBytes || string(b[140:]) != objectMagic {
		return nil, corrupt("no object footer")
	}
	if v := binary.BigEndian.Uint16(b[132:]); v != objectVersion {
		return nil, fmt.Errorf("object has version %d, this build reads %d: %w", v, objectVersion, ErrUnsupported)
	}
	if got, sum := crc32c(b[:136]), binary.BigEndian.Uint32(b[136:]); got != sum {
		return nil, corrupt("footer CRC is %08x, stored %08x", got, sum)
	}
	d := &decoder{b: b[:136]}
	f := &footer{}
	for i := range f.sections {
		f.sections[i].at = d.u32()
		f.sections[i].n = d.u32()
	}
	copy(f.topic[:], d.take(16))
	f.partition = d.i32()
	f.id.Epoch = d.i32()
	f.id.Random = d.u64()
	f.id.Base = d.i64()
	f.end = d.i64()
	f.raw = d.i64()
	f.minTime = d.i64()
	f.maxTime = d.i64()
	f.created = d.i64()
	f.chunks = d.u32()
	f.batches = d.u32()
	f.hasAborted = d.bool32()
	d.take(2)
	if n := d.u16(); n != footerBytes {
		d.fail("footer length %d", n)
	}
	if err := d.done(); err != nil {
		return nil, err
	}
	return f, f.check(size)
}

func (f *footer) check(size int64) error {
	next := int64(len(objectMagic))
	for i, s := range f.sections {
		if s.at == 0 && s.n == 0 && i+1 != sectionOffsets && i+1 != sectionTimes && i+1 != sectionLineage {
			continue
		}
		if int64(s.at) < next || int64(s.n) < sectionHeaderBytes || int64(s.at)+int64(s.n) > size-footerBytes {
			return corrupt("section %d lies at %d, +%d of %d", i+1, s.at, s.n, size)
		}
		next = int64(s.at) + int64(s.n)
	}
	if f.id.Base < 0 || f.end <= f.id.Base || f.end-f.id.Base > math.MaxUint32 || f.id.Epoch < 0 || f.partition < 0 {
		return corrupt("object of [%d, %d), epoch %d, partition %d", f.id.Base, f.end, f.id.Epoch, f.partition)
	}
	if f.hasAborted != (f.sections[sectionAborted-1].n > 0) {
		return corrupt("aborted flag and transaction index disagree")
	}
	return nil
}

// lookup is the region of the three indexes.
func (f *footer) lookup() (at, n int64) {
	first := f.sections[sectionOffsets-1]
	last := f.sections[sectionTimes-1]
	if a := f.sections[sectionAborted-1]; a.n > 0 {
		last = a
	}
	return int64(first.at), int64(last.at) + int64(last.n) - int64(first.at)
}

// segment is the manifest entry of the object; its CRC is not known here.
func (f *footer) segment(size int64) RemoteSegment {
	at, n := f.lookup()
	return RemoteSegment{
		ID: f.id, End: f.end, RawBytes: f.raw, StoredBytes: size,
		MinTimestamp: f.minTime, MaxTimestamp: f.maxTime, Created: f.created / 1000 * 1000,
		HasAborted: f.hasAborted, lookupAt: at, lookupBytes: n,
	}
}

// appendSection frames a body.
func appendSection(b []byte, kind uint16, body []byte) []byte {
	e := encoder{b: b}
	start := len(b)
	e.u16(kind)
	e.u16(sectionVersion)
	e.u32(uint32(len(body)))
	sum := crc32cUpdate(crc32c(e.b[start:]), body)
	e.u32(sum)
	e.bytes(body)
	return e.b
}

// section takes a framed section of the given type from the front of d.
func (d *decoder) section(kind uint16) []byte {
	head := d.take(8)
	sum := d.u32()
	if d.err != nil {
		return nil
	}
	gotKind, version, n := binary.BigEndian.Uint16(head), binary.BigEndian.Uint16(head[2:]), binary.BigEndian.Uint32(head[4:])
	body := d.take(int(n))
	switch got := crc32cUpdate(crc32c(head), body); {
	case d.err != nil:
	case got != sum:
		d.fail("section %d has CRC %08x, stored %08x", gotKind, got, sum)
	case gotKind != kind:
		d.fail("section %d where %d belongs", gotKind, kind)
	case version != sectionVersion:
		d.err = fmt.Errorf("section %d has version %d, this build reads %d: %w", kind, version, sectionVersion, ErrUnsupported)
	}
	if d.err != nil {
		return nil
	}
	return body
}
