package tier

import (
	"fmt"
	"math"
	"slices"

	"github.com/varvelog/varve/hot/lineage"
)

// editor applies one edit to one manifest: a pure function of the two, of the
// page bodies it asks for and of the random numbers it is given.
type editor struct {
	m      *manifest // the copy being changed
	e      *Edit
	load   func(pageRef) (*page, error)
	random func() uint64
	made   []madePage // pages to be written before the head
}

// madePage is a page that the edited head refers to and the bucket lacks. Size
// and crc of its reference are set when it is encoded.
type madePage struct {
	index int // in m.pages
	body  page
}

// applyEdit returns the manifest that e makes of m, and the pages that must be
// in the bucket before it.
func applyEdit(m *manifest, e *Edit, id uint64, load func(pageRef) (*page, error), random func() uint64) (*manifest, []madePage, error) {
	if e.LeaderEpoch < m.leaderEpoch {
		return nil, nil, fmt.Errorf("edit under epoch %d, manifest held by %d: %w", e.LeaderEpoch, m.leaderEpoch, ErrFenced)
	}
	ed := &editor{m: m.clone(), e: e, random: random}
	ed.load = func(ref pageRef) (*page, error) {
		for i := range ed.made {
			if ed.m.pages[ed.made[i].index].id == ref.id {
				return &ed.made[i].body, nil
			}
		}
		return load(ref)
	}
	ed.m.leaderEpoch = e.LeaderEpoch
	ed.m.sequence++
	for _, step := range []func() error{ed.purge, ed.add, ed.replace, ed.renew, ed.advance, ed.drop, ed.mark, ed.reset, ed.cut} {
		if err := step(); err != nil {
			return nil, nil, err
		}
	}
	if e.Topic != nil {
		ed.m.info = e.Topic.clone()
	}
	ed.m.retired = ed.m.retired || e.Retire
	ed.m.edits = append(ed.m.edits, id)
	if n := len(ed.m.edits) - editsKept; n > 0 {
		ed.m.edits = slices.Delete(ed.m.edits, 0, n)
	}
	return ed.m, ed.made, nil
}

func conflict(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, ErrConflict)...)
}

// add appends segments: T4, each continues exactly at the end.
func (ed *editor) add() error {
	m := ed.m
	if len(ed.e.Add) > 0 && (m.retired || m.dropped) {
		return conflict("add to a retired or dropped partition")
	}
	for i := range ed.e.Add {
		a := &ed.e.Add[i]
		if err := checkAdd(a, ed.e.LeaderEpoch); err != nil {
			return err
		}
		base, end := a.Segment.ID.Base, a.Segment.End
		if err := ed.fits(base, end); err != nil {
			return err
		}
		if m.start < 0 {
			m.start = base
		}
		chain, err := extendChain(m.chain, a.Lineage, base, end)
		if err != nil {
			return err
		}
		m.chain, m.end = chain, end
		m.tail = append(m.tail, a.Segment)
	}
	return nil
}

// fits says whether a segment [base, end) may come next: T4, exactly at the end.
// An archive that holds nothing any more goes on with the segment that holds
// its start.
func (ed *editor) fits(base, end int64) error {
	m := ed.m
	empty := len(m.tail) == 0 && len(m.pages) == 0
	switch {
	case m.end < 0 && m.start < 0:
		return nil
	case empty && m.start > m.end:
		if base > m.start || end <= m.start || base < m.end {
			return conflict("segment [%d, %d) does not hold the start %d", base, end, m.start)
		}
		return nil
	case base != m.end:
		return conflict("segment [%d, %d) does not continue at %d", base, end, m.end)
	}
	return nil
}

// checkAdd refuses what could not be stored or read.
func checkAdd(a *AddSegment, epoch int32) error {
	s := &a.Segment
	switch {
	case epoch < 0 || s.ID.Epoch != epoch:
		return conflict("segment uploaded under epoch %d committed under %d", s.ID.Epoch, epoch)
	case s.ID.Base < 0 || s.End <= s.ID.Base || s.End-s.ID.Base > math.MaxUint32:
		return conflict("segment range [%d, %d)", s.ID.Base, s.End)
	case s.RawBytes <= 0 || s.RawBytes > math.MaxUint32, s.StoredBytes <= 0 || s.StoredBytes > math.MaxUint32:
		return conflict("segment of %d raw and %d stored bytes", s.RawBytes, s.StoredBytes)
	case s.lookupAt <= 0 || s.lookupBytes <= 0 || s.lookupAt+s.lookupBytes > s.StoredBytes:
		return conflict("lookup region [%d, +%d) of %d bytes", s.lookupAt, s.lookupBytes, s.StoredBytes)
	case !a.Lineage.Valid() || !a.Lineage.Covers(s.ID.Base, s.End):
		return conflict("lineage %v does not cover [%d, %d)", a.Lineage, s.ID.Base, s.End)
	}
	return nil
}

// extendChain appends the epochs of [base, end) to the chain of what lies below.
func extendChain(chain, segment lineage.Chain, base, end int64) (lineage.Chain, error) {
	next := chain.TruncateEnd(base).Clone()
	for _, e := range segment.Slice(base, end) {
		switch latest := next.Latest(); {
		case e.Epoch == latest:
		case e.Epoch < latest:
			return nil, conflict("segment at %d has leader epoch %d after %d", base, e.Epoch, latest)
		default:
			next = append(next, e)
		}
	}
	return next, nil
}

// replace swaps a run of segments for one with the same range.
func (ed *editor) replace() error {
	r := ed.e.Replace
	if r == nil {
		return nil
	}
	if err := checkAdd(&r.New, ed.e.LeaderEpoch); err != nil {
		return err
	}
	if len(r.Old) == 0 {
		return conflict("replacement of nothing")
	}
	if len(ed.m.marked)+len(r.Old)+1 > MaxMarked {
		return ErrTooManyMarked
	}
	base := r.Old[0].Base
	pi := ed.m.pageFor(base)
	if pi == len(ed.m.pages) {
		entries, err := swapRun(ed.m.tail, 0, r)
		if err != nil {
			return err
		}
		ed.markRun(r.Old, ed.m.tail)
		ed.m.tail = entries
		return nil
	}
	ref := ed.m.pages[pi]
	old, err := ed.load(ref)
	if err != nil {
		return err
	}
	entries, err := swapRun(old.entries, int(ref.dead), r)
	if err != nil {
		return err
	}
	ed.markRun(r.Old, old.entries)
	ed.remake(pi, entries, old.chain)
	return nil
}

// remake puts a page anew, with the entries that are not dead.
func (ed *editor) remake(i int, entries []RemoteSegment, chain lineage.Chain) {
	ref := ed.m.pages[i]
	ed.markPage(ref)
	next, body := newPage(entries[ref.dead:], chain, ed.e.LeaderEpoch, ed.random())
	ed.m.pages[i] = next
	ed.made = append(ed.made, madePage{index: i, body: body})
}

// renew puts a page anew whose object is damaged.
func (ed *editor) renew() error {
	if ed.e.RenewPage == nil {
		return nil
	}
	i := ed.m.pageNamed(*ed.e.RenewPage)
	if i < 0 {
		return conflict("page %s is not there to be put anew", ed.e.RenewPage.name())
	}
	if len(ed.m.marked)+1 > MaxMarked {
		return ErrTooManyMarked
	}
	p, err := ed.load(ed.m.pages[i])
	if err != nil {
		return err
	}
	ed.remake(i, p.entries, p.chain)
	return nil
}

// swapRun returns entries with the run r.Old replaced by r.New.
func swapRun(entries []RemoteSegment, from int, r *ReplaceSegments) ([]RemoteSegment, error) {
	i := slices.IndexFunc(entries[from:], func(s RemoteSegment) bool { return s.ID == r.Old[0] }) + from
	if i < from || i+len(r.Old) > len(entries) {
		return nil, conflict("segment %s is not there to be replaced", r.Old[0].name())
	}
	for k, id := range r.Old {
		if entries[i+k].ID != id {
			return nil, conflict("segment %s is not there to be replaced", id.name())
		}
	}
	if r.New.Segment.ID.Base != entries[i].ID.Base || r.New.Segment.End != entries[i+len(r.Old)-1].End {
		return nil, conflict("replacement [%d, %d) covers another range", r.New.Segment.ID.Base, r.New.Segment.End)
	}
	out := slices.Clone(entries)
	out[i] = r.New.Segment
	return slices.Delete(out, i+1, i+len(r.Old)), nil
}

func (ed *editor) markRun(ids []SegmentID, entries []RemoteSegment) {
	for _, id := range ids {
		i := slices.IndexFunc(entries, func(s RemoteSegment) bool { return s.ID == id })
		ed.markSegment(&entries[i])
	}
}

func (ed *editor) markSegment(s *RemoteSegment) {
	ed.m.marked = append(ed.m.marked, Marked{MarkID: MarkID{Kind: KeySegment, ID: s.ID}, At: ed.e.MarkedAt, Bytes: s.StoredBytes})
}

func (ed *editor) markPage(ref pageRef) {
	ed.m.pagesGone = true
	ed.m.marked = append(ed.m.marked, Marked{MarkID: MarkID{Kind: KeyPage, ID: ref.id}, At: ed.e.MarkedAt, Bytes: int64(ref.size)})
}

// advance raises the start: T11, it never moves back.
func (ed *editor) advance() error {
	if ed.e.AdvanceStart > ed.m.start && ed.e.AdvanceStart > 0 {
		ed.m.start = ed.e.AdvanceStart
	}
	return nil
}

// mark moves segments that lie wholly below the start from the live entries to
// the marks, oldest first, while the head has room.
func (ed *editor) mark() error {
	if !ed.e.MarkBelowStart {
		return nil
	}
	m := ed.m
	room := func() bool { return len(m.marked) < MaxMarked }
	for len(m.pages) > 0 && m.pages[0].id.Base < m.start && room() {
		done, err := ed.markInFirstPage()
		if err != nil {
			return err
		}
		if !done {
			return nil
		}
	}
	if len(m.pages) > 0 {
		return nil
	}
	n := 0
	for n < len(m.tail) && m.tail[n].End <= m.start && room() {
		ed.markSegment(&m.tail[n])
		n++
	}
	m.tail = slices.Delete(m.tail, 0, n)
	m.chain = m.chain.TruncateStart(m.tailBase())
	return nil
}

// markInFirstPage marks what it can of the first page; done when the page is
// empty and gone.
func (ed *editor) markInFirstPage() (done bool, err error) {
	m := ed.m
	ref := m.pages[0]
	body, err := ed.load(ref)
	if err != nil {
		return false, err
	}
	for ref.dead < ref.count && body.entries[ref.dead].End <= m.start {
		// The page's own mark must fit behind its last entry's.
		if len(m.marked)+1 >= MaxMarked {
			break
		}
		ed.markSegment(&body.entries[ref.dead])
		ref.dead++
	}
	if ref.dead == ref.count {
		ed.markPage(ref)
		m.pages = slices.Delete(m.pages, 0, 1)
		for i := range ed.made {
			ed.made[i].index--
		}
		ed.made = slices.DeleteFunc(ed.made, func(p madePage) bool { return p.index < 0 })
		return true, nil
	}
	ref.sum(body.entries[ref.dead:])
	m.pages[0] = ref
	return false, nil
}

// drop gives up everything the archive holds.
func (ed *editor) drop() error {
	if ed.e.Drop && ed.m.end >= 0 {
		ed.m.start, ed.m.dropped = max(ed.m.start, ed.m.end), true
	}
	return nil
}

// reset makes a dropped archive whose segments are all marked one that never had
// any.
func (ed *editor) reset() error {
	m := ed.m
	if !ed.e.Reset {
		return nil
	}
	if !m.dropped || len(m.pages) > 0 || len(m.tail) > 0 {
		return conflict("reset of an archive that was not dropped or holds segments")
	}
	m.start, m.end, m.chain, m.dropped = -1, -1, nil, false
	return nil
}

// purge drops marks of objects that are gone from the store.
func (ed *editor) purge() error {
	if len(ed.e.Purge) == 0 {
		return nil
	}
	gone := make(map[MarkID]bool, len(ed.e.Purge))
	for _, id := range ed.e.Purge {
		gone[id] = true
	}
	before := len(ed.m.marked)
	ed.m.marked = slices.DeleteFunc(ed.m.marked, func(k Marked) bool { return gone[k.MarkID] })
	if before-len(ed.m.marked) != len(gone) {
		return conflict("purge of %d marks of which %d exist", len(gone), before-len(ed.m.marked))
	}
	return nil
}

// cut moves the older part of an overlong tail into pages.
func (ed *editor) cut() error {
	m := ed.m
	for len(m.tail) > tailEntriesMax {
		ref, body := newPage(m.tail[:pageEntries], m.chain, ed.e.LeaderEpoch, ed.random())
		m.pages = append(m.pages, ref)
		ed.made = append(ed.made, madePage{index: len(m.pages) - 1, body: body})
		m.tail = slices.Delete(m.tail, 0, pageEntries)
		m.chain = m.chain.TruncateStart(m.tailBase())
	}
	return nil
}

func (t TopicInfo) clone() TopicInfo {
	c := TopicInfo{Name: t.Name, Configs: make(map[string]string, len(t.Configs))}
	for k, v := range t.Configs {
		c.Configs[k] = v
	}
	return c
}
