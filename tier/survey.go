package tier

import (
	"cmp"
	"context"
	"slices"

	"github.com/varvelog/varve/tier/objstore"
)

// survey compares a listing of a partition's prefix with its manifest as it is known
// here: every object that this names must be there, with its size. What differs may
// have been replaced or deleted meanwhile, or may have been written by a leader of
// whom this one does not know: it is to be examined.
type survey struct {
	sizes   map[MarkID]int64 // of what has not been seen yet
	changed []MarkID         // seen, of another size
	head    bool             // the manifest itself was listed
}

// expect notes what a manifest names.
func (s *survey) expect(ctx context.Context, r *Remote, m *manifest) error {
	s.sizes = make(map[MarkID]int64, len(m.tail)+len(m.pages))
	for _, p := range m.pages {
		s.sizes[MarkID{KeyPage, p.id}] = int64(p.size)
	}
	if m.retired || m.dropped {
		return nil
	}
	return r.walk(ctx, m, m.start, nil, func(x RemoteSegment) bool {
		s.sizes[MarkID{KeySegment, x.ID}] = x.StoredBytes
		return true
	})
}

// see takes objects of the listing.
func (s *survey) see(cfg Config, listed []objstore.Object) {
	for _, o := range listed {
		k, ok := cfg.ParseKey(o.Key)
		if !ok {
			continue
		}
		s.head = s.head || k.Kind == KeyHead
		id := MarkID{k.Kind, k.ID}
		if size, named := s.sizes[id]; named {
			if size != o.Size {
				s.changed = append(s.changed, id)
			}
			delete(s.sizes, id)
		}
	}
}

// absent lists what is to be examined, the newest first: the likeliest to be on a
// disk still. A listing without the manifest's head is not one of this archive: it
// proves nothing, and another one is soon made.
func (s *survey) absent() (list []MarkID, again bool) {
	if !s.head {
		return nil, len(s.sizes) > 0
	}
	list = s.changed
	for id := range s.sizes {
		list = append(list, id)
	}
	slices.SortFunc(list, func(a, b MarkID) int { return cmp.Or(cmp.Compare(b.ID.Base, a.ID.Base), cmp.Compare(a.Kind, b.Kind)) })
	return list, false
}

// collected is the answer to a collection or a search.
func collected(e fxCollect, a answer, left bool, s *survey) evCollected {
	ev := evCollected{answer: a, search: e.search, orphans: e.orphans, survey: e.survey, left: left}
	if s != nil && a.err == nil {
		ev.absent, ev.again = s.absent()
	}
	return ev
}
