package coordinator

import (
	"maps"
	"slices"
	"strings"

	"github.com/varvelog/varve/meta/topic"
)

// assign works out who is to read what, as Kafka's assignor "simple" does: every partition that may be given out goes to as many
// members as are needed so that everybody has some, everybody has as many as the others but for one, and as much as possible
// stays where it is. When not all members read the same topics, that holds for each topic by itself.
func (g *shareGroup) assign(view *topicsView) map[string]assignment {
	members := slices.SortedFunc(maps.Values(g.members), func(a, b *shareMember) int { return strings.Compare(a.id, b.id) })
	out := make(map[string]assignment, len(members))
	for _, m := range members {
		out[m.id] = make(assignment)
	}
	homogeneous := true
	for _, m := range members {
		homogeneous = homogeneous && slices.Equal(m.names, members[0].names)
	}
	var parts []tp
	for _, name := range g.topics() {
		list := g.assignable(view, name)
		if homogeneous {
			parts = append(parts, list...)
			continue
		}
		readers := slices.DeleteFunc(slices.Clone(members), func(m *shareMember) bool {
			_, ok := slices.BinarySearch(m.names, name)
			return !ok
		})
		g.assignSimply(readers, list, out)
	}
	if homogeneous {
		g.assignSimply(members, parts, out)
	}
	return out
}

// assignable are the partitions of a topic of which there are share-partitions, in order.
func (g *shareGroup) assignable(view *topicsView, name string) (list []tp) {
	t := view.byName(name)
	if t == nil {
		return nil
	}
	ready := g.initialized[t.ID]
	if ready == nil {
		return nil
	}
	for i := range t.Partitions {
		if _, ok := ready.parts[int32(i)]; ok {
			list = append(list, tp{topic.ID(t.ID), int32(i)})
		}
	}
	return list
}

// shareSpread is one run of the assignor: members by their index, and who has what.
type shareSpread struct {
	desired []int // how many partitions each member is to have
	has     []map[tp]struct{}
	by      map[tp]map[int]struct{}
}

func (s *shareSpread) give(m int, p tp) {
	s.has[m][p] = struct{}{}
	s.by[p][m] = struct{}{}
}

func (s *shareSpread) take(m int, p tp) {
	delete(s.has[m], p)
	delete(s.by[p], m)
}

// assignSimply spreads partitions over members.
func (g *shareGroup) assignSimply(members []*shareMember, parts []tp, out map[string]assignment) {
	if len(parts) == 0 || len(members) == 0 {
		return
	}
	sharing := (len(members) + len(parts) - 1) / len(parts) // members for each partition
	s := &shareSpread{desired: make([]int, len(members)), has: make([]map[tp]struct{}, len(members)), by: make(map[tp]map[int]struct{}, len(parts))}
	for _, p := range parts {
		s.by[p] = make(map[int]struct{})
	}
	total, n := sharing*len(parts), len(members)
	for i, m := range members {
		// Of total shares, each gets as many as lie between its own marks on an even scale.
		s.desired[i] = (total*(i+1)+n-1)/n - (total*i+n-1)/n
		s.has[i] = make(map[tp]struct{})
		for p := range g.target[m.id] {
			if s.by[p] != nil {
				s.give(i, p)
			}
		}
	}
	for i := range members {
		for _, p := range slices.Backward(slices.SortedFunc(maps.Keys(s.has[i]), compareTP)) {
			if len(s.has[i]) > s.desired[i] {
				s.take(i, p)
			}
		}
	}
	for _, p := range parts {
		for _, i := range slices.Backward(slices.Sorted(maps.Keys(s.by[p]))) {
			if len(s.by[p]) > sharing {
				s.take(i, p)
			}
		}
	}
	s.fill(parts, sharing)
	for i, m := range members {
		for p := range s.has[i] {
			out[m.id][p] = g.epoch
		}
	}
}

// fill gives each partition to as many members as it lacks, in turn to those that have too few.
func (s *shareSpread) fill(parts []tp, sharing int) {
	var wanting []int
	for i := range s.desired {
		if len(s.has[i]) < s.desired[i] {
			wanting = append(wanting, i)
		}
	}
	at := 0
	for _, p := range parts {
		for passed := 0; len(s.by[p]) < sharing && passed < len(wanting); {
			at %= len(wanting)
			m := wanting[at]
			if _, ok := s.by[p][m]; ok {
				at, passed = at+1, passed+1
				continue
			}
			s.give(m, p)
			passed = 0
			if len(s.has[m]) >= s.desired[m] {
				wanting = slices.Delete(wanting, at, at+1)
			} else {
				at++
			}
		}
	}
}
