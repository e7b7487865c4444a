package tier

import (
	"maps"
	"slices"
)

// Head manifest, version 1, big-endian. Format: do not renumber.
//
//	 0   8  magic "VARVEHD\n"
//	 8   2  version, 1
//	10   2  flags: bit 0 retired, bit 1 dropped
//	12  16  topic id
//	28   4  partition
//	32   4  leader epoch that holds the manifest, -1 none
//	36   8  sequence, rises with every head
//	44   8  start offset, -1 none
//	52   8  end offset, exclusive, -1 none
//	60   …  edits:   count (4), then 8 bytes each, newest last
//	        chain:   count (4), then 12 bytes each: epochs of the tail's offsets
//	        pages:   count (4), then 92 bytes each
//	        tail:    count (4), then 64 bytes each, segment entries
//	        marked:  count (4), then 40 bytes each
//	        topic:   length (4), name; count (4), then per setting, sorted by name:
//	                 length (4), name, length (4), value
//	last 4  CRC-32C of everything before
//
// Page reference, 92 bytes: base (8), end (8), epoch (4), random (8), entries (4),
// dead entries at the front (4), raw bytes (8), stored bytes (8), smallest (8) and
// largest (8) timestamp, first (4) and last (4) leader epoch, size of the page (4),
// CRC-32C of the page (4), flags (4): bit 0 has aborted transactions. Sums and
// timestamps are over the entries that are not dead.
//
// Mark, 40 bytes: kind (4: 2 page, 3 segment), epoch (4), base (8), random (8),
// time of the mark in ms (8), stored bytes (8).
const (
	headMagic    = "VARVEHD\n"
	headVersion  = 1
	headRetired  = 1
	headDropped  = 2
	headBytesMax = 64 << 20 // a larger head is not one of ours

	pageRefBytes = 92
	markBytes    = 40
)

func (m *manifest) encode() []byte {
	size := 128 + 8*len(m.edits) + chainEntryBytes*len(m.chain) + pageRefBytes*len(m.pages) +
		entryBytes*len(m.tail) + markBytes*len(m.marked) + len(m.info.Name)
	e := &encoder{b: make([]byte, 0, size)}
	e.bytes([]byte(headMagic))
	e.u16(headVersion)
	var flags uint16
	if m.retired {
		flags |= headRetired
	}
	if m.dropped {
		flags |= headDropped
	}
	e.u16(flags)
	e.bytes(m.topic[:])
	e.i32(m.partition)
	e.i32(m.leaderEpoch)
	e.u64(m.sequence)
	e.i64(m.start)
	e.i64(m.end)
	e.u32(uint32(len(m.edits)))
	for _, id := range m.edits {
		e.u64(id)
	}
	e.chain(m.chain)
	e.u32(uint32(len(m.pages)))
	for i := range m.pages {
		e.pageRef(&m.pages[i])
	}
	e.u32(uint32(len(m.tail)))
	for i := range m.tail {
		e.entry(&m.tail[i])
	}
	e.u32(uint32(len(m.marked)))
	for i := range m.marked {
		e.mark(&m.marked[i])
	}
	e.text(m.info.Name)
	e.u32(uint32(len(m.info.Configs)))
	for _, k := range slices.Sorted(maps.Keys(m.info.Configs)) {
		e.text(k)
		e.text(m.info.Configs[k])
	}
	return e.sum()
}

func (e *encoder) pageRef(p *pageRef) {
	e.i64(p.id.Base)
	e.i64(p.end)
	e.i32(p.id.Epoch)
	e.u64(p.id.Random)
	e.u32(p.count)
	e.u32(p.dead)
	e.i64(p.raw)
	e.i64(p.stored)
	e.i64(p.minTime)
	e.i64(p.maxTime)
	e.i32(p.firstEpoch)
	e.i32(p.lastEpoch)
	e.u32(p.size)
	e.u32(p.crc)
	e.bool32(p.aborted)
}

func (e *encoder) mark(k *Marked) {
	e.u32(uint32(k.Kind))
	e.i32(k.ID.Epoch)
	e.i64(k.ID.Base)
	e.u64(k.ID.Random)
	e.i64(k.At)
	e.i64(k.Bytes)
}

// decodeHead reads a head object; the caller checks that it is the partition's.
func decodeHead(b []byte) (*manifest, error) {
	d, err := open(b, headMagic, headVersion)
	if err != nil {
		return nil, err
	}
	m := &manifest{}
	flags := d.u16()
	if flags&^(headRetired|headDropped) != 0 {
		d.fail("flags %04x", flags)
	}
	m.retired = flags&headRetired != 0
	m.dropped = flags&headDropped != 0
	copy(m.topic[:], d.take(16))
	m.partition = d.i32()
	m.leaderEpoch = d.i32()
	m.sequence = d.u64()
	m.start = d.i64()
	m.end = d.i64()
	for range d.count(8) {
		m.edits = append(m.edits, d.u64())
	}
	m.chain = d.chain()
	for range d.count(pageRefBytes) {
		m.pages = append(m.pages, d.pageRef())
	}
	m.tail = d.entries(d.count(entryBytes))
	for range d.count(markBytes) {
		m.marked = append(m.marked, d.mark())
	}
	m.info.Name = d.text()
	m.info.Configs = d.settings()
	if err := d.done(); err != nil {
		return nil, err
	}
	return m, m.check()
}

func (d *decoder) settings() map[string]string {
	n := d.count(8)
	if n == 0 {
		return nil
	}
	out := make(map[string]string, n)
	last := ""
	for i := range n {
		k := d.text()
		if i > 0 && k <= last {
			d.fail("setting %q after %q", k, last)
		}
		last, out[k] = k, d.text()
	}
	return out
}

func (d *decoder) pageRef() pageRef {
	var p pageRef
	p.id.Base = d.i64()
	p.end = d.i64()
	p.id.Epoch = d.i32()
	p.id.Random = d.u64()
	p.count = d.u32()
	p.dead = d.u32()
	p.raw = d.i64()
	p.stored = d.i64()
	p.minTime = d.i64()
	p.maxTime = d.i64()
	p.firstEpoch = d.i32()
	p.lastEpoch = d.i32()
	p.size = d.u32()
	p.crc = d.u32()
	p.aborted = d.bool32()
	return p
}

func (d *decoder) mark() Marked {
	var k Marked
	kind := d.u32()
	if kind != uint32(KeyPage) && kind != uint32(KeySegment) {
		d.fail("mark of kind %d", kind)
	}
	k.Kind = KeyKind(kind)
	k.ID.Epoch = d.i32()
	k.ID.Base = d.i64()
	k.ID.Random = d.u64()
	k.At = d.i64()
	k.Bytes = d.i64()
	return k
}

// check verifies the invariants a reader relies on.
func (m *manifest) check() error {
	if m.start < -1 || m.end < -1 || m.leaderEpoch < -1 || m.partition < 0 {
		return corrupt("start %d, end %d, leader epoch %d, partition %d", m.start, m.end, m.leaderEpoch, m.partition)
	}
	next := int64(-1)
	for i := range m.pages {
		p := &m.pages[i]
		switch {
		case p.id.Base < 0 || p.end <= p.id.Base || p.id.Epoch < 0:
			return corrupt("page [%d, %d) of epoch %d", p.id.Base, p.end, p.id.Epoch)
		case p.count == 0 || p.dead >= p.count || (p.dead > 0 && i > 0):
			return corrupt("page at %d has %d dead of %d entries", p.id.Base, p.dead, p.count)
		case next >= 0 && p.id.Base != next:
			return corrupt("page at %d follows one that ends at %d", p.id.Base, next)
		case p.raw < 0 || p.stored < 0:
			return corrupt("page at %d has %d raw and %d stored bytes", p.id.Base, p.raw, p.stored)
		}
		next = p.end
	}
	if len(m.tail) > 0 {
		if base := m.tail[0].ID.Base; next >= 0 && base != next {
			return corrupt("tail at %d follows a page that ends at %d", base, next)
		}
		next = m.tail[len(m.tail)-1].End
		if !m.chain.Covers(m.tail[0].ID.Base, next) {
			return corrupt("epochs %v do not cover the tail", m.chain)
		}
	}
	if next >= 0 && next != m.end {
		return corrupt("end is %d, the last segment ends at %d", m.end, next)
	}
	return nil
}
