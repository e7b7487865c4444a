package tier

import (
	"slices"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/meta/topic"
)

// How much of a manifest stays in the head. A head of 100,000 segments is then
// about 55 KiB: at most tailEntriesMax entries and 391 page references.
const (
	pageEntries    = 256 // entries cut into one page
	tailEntriesMax = 320 // more entries than these in the head start a page
	editsKept      = 32  // ids of the latest edits, for resolving lost answers
)

// manifest is a partition's head, decoded. It is immutable once published: an
// edit makes a new one.
//
// Invariants: pages and tail are contiguous, without gaps, and end at end; only
// the first page can have dead entries at its front; chain covers the tail.
type manifest struct {
	etag string // of the head object this was decoded from; "" when there is none

	topic       topic.ID
	partition   int32
	leaderEpoch int32  // the claim; -1 unclaimed
	sequence    uint64 // rises with every committed head
	edits       []uint64
	start, end  int64 // -1 when nothing was ever committed
	retired     bool
	dropped     bool
	info        TopicInfo
	pages       []pageRef
	tail        []RemoteSegment
	chain       lineage.Chain // epochs of the tail's offsets
	marked      []Marked      // Key left empty

	pagesGone bool // the edit that made it dropped pages; not stored
}

// pageRef is the head's knowledge of a manifest page. Numbers are of the live
// entries alone.
type pageRef struct {
	id               SegmentID // base of its first entry, epoch and random part of its own
	end              int64
	count            uint32 // entries in the page object
	dead             uint32 // entries at its front that were marked or purged
	raw, stored      int64
	minTime, maxTime int64
	firstEpoch       int32 // leader epochs of its offsets
	lastEpoch        int32
	size             uint32 // of the page object
	crc              uint32 // of the page object, its last four bytes included
	aborted          bool   // some entry has aborted transactions
}

func (p pageRef) live() uint32 { return p.count - p.dead }

// page is a manifest page, decoded.
type page struct {
	entries []RemoteSegment
	chain   lineage.Chain // epochs of the entries' offsets
}

func emptyManifest(id topic.ID, partition int32) *manifest {
	return &manifest{topic: id, partition: partition, leaderEpoch: -1, start: -1, end: -1}
}

// clone copies m deep enough for an edit: the slices an edit appends to or
// writes into are copied, their elements are values.
func (m *manifest) clone() *manifest {
	n := *m
	n.pagesGone = false
	n.edits = slices.Clone(m.edits)
	n.pages = slices.Clone(m.pages)
	n.tail = slices.Clone(m.tail)
	n.chain = m.chain.Clone()
	n.marked = slices.Clone(m.marked)
	return &n
}

func (m *manifest) state() State {
	s := State{
		Start: m.start, End: m.end, LeaderEpoch: m.leaderEpoch, EndEpoch: lineage.NoEpoch, Marked: len(m.marked),
		Retired: m.retired, Dropped: m.dropped, Sequence: m.sequence,
	}
	switch {
	case len(m.tail) > 0:
		s.EndEpoch = m.chain.EpochAt(m.end - 1)
	case len(m.pages) > 0:
		s.EndEpoch = m.pages[len(m.pages)-1].lastEpoch
	}
	for _, p := range m.pages {
		s.Segments += int64(p.live())
		s.RawBytes += p.raw
		s.StoredBytes += p.stored
	}
	for i := range m.tail {
		s.Segments++
		s.RawBytes += m.tail[i].RawBytes
		s.StoredBytes += m.tail[i].StoredBytes
	}
	return s
}

// tailBase is the first offset of the tail, or the end when the tail is empty.
func (m *manifest) tailBase() int64 {
	if len(m.tail) > 0 {
		return m.tail[0].ID.Base
	}
	return m.end
}

func (m *manifest) hasEdit(id uint64) bool { return slices.Contains(m.edits, id) }

// pageNamed is the index of the page of that name, or -1.
func (m *manifest) pageNamed(id SegmentID) int {
	return slices.IndexFunc(m.pages, func(p pageRef) bool { return p.id == id })
}

// pageFor is the index of the page that holds offset, or len(m.pages).
func (m *manifest) pageFor(offset int64) int {
	i, _ := slices.BinarySearchFunc(m.pages, offset, func(p pageRef, o int64) int {
		if p.end <= o {
			return -1
		}
		return 1
	})
	return i
}

// entryFor is the index of the first entry that ends above offset.
func entryFor(entries []RemoteSegment, offset int64) int {
	i, _ := slices.BinarySearchFunc(entries, offset, func(s RemoteSegment, o int64) int {
		if s.End <= o {
			return -1
		}
		return 1
	})
	return i
}

// newPage describes entries as a page that an edit under epoch cuts off.
func newPage(entries []RemoteSegment, chain lineage.Chain, epoch int32, random uint64) (pageRef, page) {
	base, end := entries[0].ID.Base, entries[len(entries)-1].End
	ref := pageRef{
		id:    SegmentID{Base: base, Epoch: epoch, Random: random},
		end:   end,
		count: uint32(len(entries)),
	}
	p := page{entries: slices.Clone(entries), chain: chain.Slice(base, end).Clone()}
	ref.firstEpoch, ref.lastEpoch = p.chain.EpochAt(base), p.chain.Latest()
	ref.sum(entries)
	return ref, p
}

// sum sets the numbers of the live entries.
func (p *pageRef) sum(live []RemoteSegment) {
	p.raw, p.stored, p.minTime, p.maxTime, p.aborted = 0, 0, NoTimestamp, NoTimestamp, false
	for i := range live {
		s := &live[i]
		p.raw += s.RawBytes
		p.stored += s.StoredBytes
		p.maxTime = max(p.maxTime, s.MaxTimestamp)
		if s.MinTimestamp != NoTimestamp && (p.minTime == NoTimestamp || s.MinTimestamp < p.minTime) {
			p.minTime = s.MinTimestamp
		}
		p.aborted = p.aborted || s.HasAborted
	}
}

// sizeBytes estimates the memory it takes.
func (p *page) sizeBytes() int64 { return 128 + int64(len(p.entries))*120 + int64(len(p.chain))*16 }

func (m *manifest) sizeBytes() int64 {
	return 512 + int64(len(m.tail))*120 + int64(len(m.pages))*120 + int64(len(m.marked))*80 + int64(len(m.chain))*16 +
		int64(len(m.info.Configs))*96
}
