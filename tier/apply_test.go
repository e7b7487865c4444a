package tier

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/hot/lineage"
)

// manifestModel is the slow, obvious version of a manifest.
type manifestModel struct {
	start, end int64
	epoch      int32
	live       []RemoteSegment
	marked     map[MarkID]bool // segments only
	lineage    []int32         // epoch of each offset ever added, by offset less first
	first      int64
}

// pageStore keeps the pages edits make, as the bucket would.
type pageStore map[SegmentID][]byte

func (s pageStore) load(ref pageRef) (*page, error) {
	b, ok := s[ref.id]
	if !ok {
		return nil, errors.New("page was never put")
	}
	p, _, _, err := decodePage(b)
	return p, err
}

// applied applies an edit as the commit loop does: pages first, then the head,
// which goes through its encoding.
func (s pageStore) applied(m *manifest, e *Edit, random func() uint64) (*manifest, error) {
	next, made, err := applyEdit(m, e, random(), s.load, random)
	if err != nil {
		return nil, err
	}
	for _, p := range made {
		ref := &next.pages[p.index]
		b := p.body.encode(next.topic, next.partition)
		ref.size, ref.crc = uint32(len(b)), crc32c(b)
		s[ref.id] = b
	}
	return decodeHead(next.encode())
}

func testSegmentEntry(base, end int64, epoch int32, random uint64) RemoteSegment {
	return RemoteSegment{
		ID: SegmentID{Base: base, Epoch: epoch, Random: random}, End: end, RawBytes: 100 + end - base, StoredBytes: 900,
		MinTimestamp: base, MaxTimestamp: end + int64(random%7), Created: 1_700_000_000_000, HasAborted: random%5 == 0,
		lookupAt: 100, lookupBytes: 200, ObjectCRC: uint32(random),
	}
}

func TestManifestFollowsItsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		counter := uint64(0)
		random := func() uint64 { counter++; return counter }
		pages := pageStore{}
		m := emptyManifest(testPartition.ID, testPartition.Index)
		model := &manifestModel{start: -1, end: -1, epoch: -1, marked: map[MarkID]bool{}}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				m = addSegments(t, m, model, pages, random, rapid.IntRange(1, 400).Draw(t, "n"))
			},
			"claim": func(t *rapid.T) {
				model.epoch++
				m = mustApply(t, pages, m, &Edit{LeaderEpoch: model.epoch}, random)
			},
			"fenced": func(t *rapid.T) {
				if model.epoch < 0 {
					t.Skip("unclaimed")
				}
				if _, err := pages.applied(m, &Edit{LeaderEpoch: model.epoch - 1}, random); !errors.Is(err, ErrFenced) {
					t.Fatalf("older epoch: %v", err)
				}
			},
			"gap": func(t *rapid.T) {
				if model.end < 0 || model.epoch < 0 {
					t.Skip("empty")
				}
				base := model.end + rapid.SampledFrom([]int64{-1, 1}).Draw(t, "off by")
				if base < 0 || (len(model.live) == 0 && model.start >= base) {
					t.Skip("no gap")
				}
				s := testSegmentEntry(base, base+50, model.epoch, random())
				e := &Edit{LeaderEpoch: model.epoch, Add: []AddSegment{{s, lineage.Chain{{Epoch: model.epoch, Start: base}}}}}
				if _, err := pages.applied(m, e, random); !errors.Is(err, ErrConflict) {
					t.Fatalf("segment at %d after end %d, start %d: %v", base, model.end, model.start, err)
				}
			},
			"advance": func(t *rapid.T) {
				if model.end < 0 {
					t.Skip("empty")
				}
				to := model.start + rapid.Int64Range(0, max(1, (model.end-model.start)/2)).Draw(t, "by")
				mark := rapid.Bool().Draw(t, "mark")
				m = mustApply(t, pages, m, &Edit{LeaderEpoch: model.epoch, AdvanceStart: to, MarkBelowStart: mark, MarkedAt: 5}, random)
				model.start = max(model.start, to)
				if mark {
					model.mark(t, m)
				}
			},
			"purge": func(t *rapid.T) {
				e := &Edit{LeaderEpoch: model.epoch}
				for i, k := range m.marked {
					if i%3 != 2 {
						e.Purge = append(e.Purge, k.MarkID)
						delete(model.marked, k.MarkID)
					}
				}
				m = mustApply(t, pages, m, e, random)
			},
			"replace": func(t *rapid.T) {
				m = replaceRun(t, m, model, pages, random)
			},
			"": func(t *rapid.T) { model.check(t, m, pages) },
		})
	})
}

func mustApply(t *rapid.T, pages pageStore, m *manifest, e *Edit, random func() uint64) *manifest {
	next, err := pages.applied(m, e, random)
	if err != nil {
		t.Fatalf("edit %+v: %v", e, err)
	}
	return next
}

func addSegments(t *rapid.T, m *manifest, model *manifestModel, pages pageStore, random func() uint64, n int) *manifest {
	model.epoch = max(model.epoch, 0)
	e := &Edit{LeaderEpoch: model.epoch}
	base := model.end
	if model.end < 0 {
		base = rapid.Int64Range(0, 1000).Draw(t, "first")
		model.start, model.first = base, base
	}
	for range n {
		end := base + rapid.Int64Range(1, 20).Draw(t, "span")
		s := testSegmentEntry(base, end, model.epoch, random())
		e.Add = append(e.Add, AddSegment{s, lineage.Chain{{Epoch: model.epoch, Start: base}}})
		model.live = append(model.live, s)
		for range end - base {
			model.lineage = append(model.lineage, model.epoch)
		}
		base = end
	}
	model.end = base
	return mustApply(t, pages, m, e, random)
}

// mark moves what the manifest marked: a prefix below the start, all of it when
// there was room.
func (w *manifestModel) mark(t *rapid.T, m *manifest) {
	for len(w.live) > 0 && w.live[0].End <= w.start {
		id := MarkID{KeySegment, w.live[0].ID}
		if !slices.ContainsFunc(m.marked, func(k Marked) bool { return k.MarkID == id }) {
			if len(m.marked) < MaxMarked-1 {
				t.Fatalf("segment %v below start %d not marked, %d marks", id, w.start, len(m.marked))
			}
			return
		}
		w.marked[id] = true
		w.live = w.live[1:]
	}
}

func replaceRun(t *rapid.T, m *manifest, model *manifestModel, pages pageStore, random func() uint64) *manifest {
	if len(model.live) < 2 || len(model.marked) > MaxMarked-10 {
		t.Skip("nothing to replace")
	}
	i := rapid.IntRange(0, len(model.live)-2).Draw(t, "at")
	old := model.live[i : i+2]
	s := testSegmentEntry(old[0].ID.Base, old[1].End, model.epoch, random())
	e := &Edit{LeaderEpoch: model.epoch, MarkedAt: 9, Replace: &ReplaceSegments{
		Old: []SegmentID{old[0].ID, old[1].ID}, New: AddSegment{s, lineage.Chain{{Epoch: 0, Start: s.ID.Base}}},
	}}
	next, err := pages.applied(m, e, random)
	if errors.Is(err, ErrConflict) {
		// Across the edge of a page: refused, nothing changed.
		if m.pageFor(old[0].ID.Base) == m.pageFor(old[1].ID.Base) {
			t.Fatalf("replace within one page: %v", err)
		}
		return m
	}
	if errors.Is(err, ErrTooManyMarked) {
		return m
	}
	if err != nil {
		t.Fatalf("replace: %v", err)
	}
	model.marked[MarkID{KeySegment, old[0].ID}] = true
	model.marked[MarkID{KeySegment, old[1].ID}] = true
	model.live = slices.Concat(model.live[:i], []RemoteSegment{s}, model.live[i+2:])
	return next
}

func (w *manifestModel) check(t *rapid.T, m *manifest, pages pageStore) {
	if m.start != w.start || m.end != w.end {
		t.Fatalf("[%d, %d), want [%d, %d)", m.start, m.end, w.start, w.end)
	}
	var live []RemoteSegment
	for _, ref := range m.pages {
		p, err := pages.load(ref)
		if err != nil {
			t.Fatal(err)
		}
		got := ref
		got.sum(p.entries[ref.dead:])
		if got != ref {
			t.Fatalf("page %+v, its entries give %+v", ref, got)
		}
		live = append(live, p.entries[ref.dead:]...)
		for o := ref.id.Base; o < ref.end; o++ {
			if got, want := p.chain.EpochAt(o), w.lineage[o-w.first]; got != want {
				t.Fatalf("epoch at %d is %d in the page, want %d", o, got, want)
			}
		}
	}
	live = append(live, m.tail...)
	if !slices.Equal(live, w.live) {
		t.Fatalf("%d live segments, want %d: first difference at %v", len(live), len(w.live), firstDifference(live, w.live))
	}
	for o := m.tailBase(); o < m.end; o++ {
		if got, want := m.chain.EpochAt(o), w.lineage[o-w.first]; got != want {
			t.Fatalf("epoch at %d is %d in the tail, want %d", o, got, want)
		}
	}
	marked := map[MarkID]bool{}
	for _, k := range m.marked {
		if k.Kind == KeySegment {
			marked[k.MarkID] = true
		}
	}
	if len(marked) != len(w.marked) || len(m.marked) > MaxMarked {
		t.Fatalf("%d segments marked, want %d; %d marks in all", len(marked), len(w.marked), len(m.marked))
	}
	if len(m.tail) > tailEntriesMax {
		t.Fatalf("%d entries in the head", len(m.tail))
	}
	s := m.state()
	if s.Segments != int64(len(w.live)) {
		t.Fatalf("state says %d segments of %d", s.Segments, len(w.live))
	}
	for o := max(w.start, 0); o < w.end; o += max(1, (w.end-w.start)/5) {
		i := m.pageFor(o)
		if i < len(m.pages) && (o < m.pages[i].id.Base || o >= m.pages[i].end) {
			t.Fatalf("offset %d sent to page [%d, %d)", o, m.pages[i].id.Base, m.pages[i].end)
		}
	}
}

func firstDifference(a, b []RemoteSegment) [2]SegmentID {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return [2]SegmentID{a[i].ID, b[i].ID}
		}
	}
	return [2]SegmentID{}
}
