package tier

import (
	"math"

	"github.com/varvelog/varve/hot/lineage"
)

// Segment entry, 64 bytes, big-endian. Format: do not renumber.
//
//	 0  8  base offset
//	 8  4  end offset (exclusive) less base offset
//	12  4  leader epoch of the upload
//	16  8  random part of the name
//	24  8  smallest timestamp of the data batches, -2^63 none
//	32  8  largest timestamp of the data batches, -2^63 none
//	40  4  raw bytes
//	44  4  stored bytes, the object's size
//	48  4  position of the object's lookup region
//	52  4  length of the lookup region
//	56  4  CRC-32C of the whole object
//	60  4  bit 31: has aborted transactions; bits 0-30: seconds since 1970 of the upload
//
// Chain entry, 12 bytes: leader epoch (4), first offset (8).
const (
	entryBytes      = 64
	chainEntryBytes = 12

	entryHasAborted = 1 << 31
)

func (e *encoder) entry(s *RemoteSegment) {
	e.i64(s.ID.Base)
	e.u32(uint32(s.End - s.ID.Base))
	e.i32(s.ID.Epoch)
	e.u64(s.ID.Random)
	e.i64(s.MinTimestamp)
	e.i64(s.MaxTimestamp)
	e.u32(uint32(s.RawBytes))
	e.u32(uint32(s.StoredBytes))
	e.u32(uint32(s.lookupAt))
	e.u32(uint32(s.lookupBytes))
	e.u32(s.ObjectCRC)
	last := uint32(min(max(s.Created/1000, 0), entryHasAborted-1))
	if s.HasAborted {
		last |= entryHasAborted
	}
	e.u32(last)
}

func (d *decoder) entry() RemoteSegment {
	var s RemoteSegment
	s.ID.Base = d.i64()
	span := int64(d.u32())
	s.ID.Epoch = d.i32()
	s.ID.Random = d.u64()
	s.MinTimestamp = d.i64()
	s.MaxTimestamp = d.i64()
	s.RawBytes = int64(d.u32())
	s.StoredBytes = int64(d.u32())
	s.lookupAt = int64(d.u32())
	s.lookupBytes = int64(d.u32())
	s.ObjectCRC = d.u32()
	last := d.u32()
	s.HasAborted = last&entryHasAborted != 0
	s.Created = int64(last&^uint32(entryHasAborted)) * 1000
	switch {
	case d.err != nil:
	case s.ID.Base < 0 || span == 0 || s.ID.Base > math.MaxInt64-span:
		d.fail("segment at %d spans %d offsets", s.ID.Base, span)
	case s.ID.Epoch < 0:
		d.fail("segment at %d has leader epoch %d", s.ID.Base, s.ID.Epoch)
	case s.lookupAt+s.lookupBytes > s.StoredBytes:
		d.fail("segment at %d has its lookup region beyond its end", s.ID.Base)
	}
	s.End = s.ID.Base + span
	return s
}

// entries takes n contiguous entries.
func (d *decoder) entries(n int) []RemoteSegment {
	if n == 0 {
		return nil
	}
	out := make([]RemoteSegment, 0, n)
	for range n {
		s := d.entry()
		if d.err != nil {
			return nil
		}
		if k := len(out); k > 0 && out[k-1].End != s.ID.Base {
			d.fail("segment at %d follows one that ends at %d", s.ID.Base, out[k-1].End)
			return nil
		}
		out = append(out, s)
	}
	return out
}

func (e *encoder) chain(c lineage.Chain) {
	e.u32(uint32(len(c)))
	for _, x := range c {
		e.i32(x.Epoch)
		e.i64(x.Start)
	}
}

func (d *decoder) chain() lineage.Chain {
	n := d.count(chainEntryBytes)
	if n == 0 {
		return nil
	}
	c := make(lineage.Chain, 0, n)
	for range n {
		epoch := d.i32()
		c = append(c, lineage.Entry{Epoch: epoch, Start: d.i64()})
	}
	if d.err == nil && !c.Valid() {
		d.fail("leader epochs do not rise: %v", c)
	}
	return c
}
