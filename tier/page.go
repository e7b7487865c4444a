package tier

import "github.com/varvelog/varve/meta/topic"

// Manifest page, version 1, big-endian. Format: do not renumber.
//
//	 0   8  magic "VARVEPG\n"
//	 8   2  version, 1
//	10   2  0
//	12  16  topic id
//	28   4  partition
//	32   4  count of entries
//	36   …  count × 64 bytes, segment entries
//	        chain: count (4), then 12 bytes each: epochs of the entries' offsets
//	last 4  CRC-32C of everything before
//
// A page never changes. The head says how many of its first entries are dead.
const (
	pageMagic    = "VARVEPG\n"
	pageVersion  = 1
	pageBytesMax = 16 << 20
)

func (p *page) encode(id topic.ID, partition int32) []byte {
	e := &encoder{b: make([]byte, 0, 64+entryBytes*len(p.entries)+chainEntryBytes*len(p.chain))}
	e.bytes([]byte(pageMagic))
	e.u16(pageVersion)
	e.u16(0)
	e.bytes(id[:])
	e.i32(partition)
	e.u32(uint32(len(p.entries)))
	for i := range p.entries {
		e.entry(&p.entries[i])
	}
	e.chain(p.chain)
	return e.sum()
}

func decodePage(b []byte) (p *page, id topic.ID, partition int32, err error) {
	d, err := open(b, pageMagic, pageVersion)
	if err != nil {
		return nil, topic.ID{}, 0, err
	}
	if v := d.u16(); v != 0 {
		d.fail("reserved field is %d", v)
	}
	copy(id[:], d.take(16))
	partition = d.i32()
	p = &page{entries: d.entries(d.count(entryBytes))}
	p.chain = d.chain()
	if err := d.done(); err != nil {
		return nil, topic.ID{}, 0, err
	}
	if len(p.entries) == 0 {
		return nil, topic.ID{}, 0, corrupt("page without entries")
	}
	base, end := p.entries[0].ID.Base, p.entries[len(p.entries)-1].End
	if !p.chain.Covers(base, end) {
		return nil, topic.ID{}, 0, corrupt("epochs %v do not cover [%d, %d)", p.chain, base, end)
	}
	return p, id, partition, nil
}
