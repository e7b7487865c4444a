package coordinator

import (
	"cmp"
	"slices"
	"strings"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
)

// Assignors of the consumer protocol. Both are deterministic: equal groups get equal assignments.
const (
	assignorUniform = "uniform"
	assignorRange   = "range"
)

// assign works out who is to read what. Members get no partition of a topic that they do not subscribe to, and every partition
// of a subscribed topic goes to exactly one member.
func (g *consumerGroup) assign(name string, view *topicsView) map[string]assignment {
	a := newAssigner(g, view)
	if name == assignorRange {
		a.byRange()
	} else {
		a.uniform()
	}
	return a.result(g)
}

// assigner is one assignment being worked out.
type assigner struct {
	view    *topicsView
	members []*assignee
	topics  []*assignedTopic // by name
}

type assignee struct {
	m      *consumerMember
	rack   string
	had    assignment // what it was to have
	has    map[tp]struct{}
	topics map[topic.ID]int // the topics it reads → their partitions
}

type assignedTopic struct {
	t       *meta.Topic
	readers []*assignee
}

func newAssigner(g *consumerGroup, view *topicsView) *assigner {
	a := &assigner{view: view}
	at := make(map[string]int)
	for _, m := range sortedMembers(g) {
		x := &assignee{m: m, had: g.target[m.id], has: make(map[tp]struct{}), topics: make(map[topic.ID]int)}
		if m.rack != nil {
			x.rack = *m.rack
		}
		for _, name := range g.subscribed(m) {
			t := view.byName(name)
			if t == nil {
				continue
			}
			i, ok := at[name]
			if !ok {
				i = len(a.topics)
				at[name] = i
				a.topics = append(a.topics, &assignedTopic{t: t})
			}
			a.topics[i].readers = append(a.topics[i].readers, x)
			x.topics[t.ID] = len(t.Partitions)
		}
		a.members = append(a.members, x)
	}
	slices.SortFunc(a.topics, func(x, y *assignedTopic) int { return strings.Compare(x.t.Name, y.t.Name) })
	return a
}

// sortedMembers orders members so that a static member keeps its place when it comes back under another id.
func sortedMembers(g *consumerGroup) []*consumerMember {
	list := g.list()
	slices.SortFunc(list, func(a, b *consumerMember) int {
		if a.instance != nil && b.instance != nil {
			return strings.Compare(*a.instance, *b.instance)
		}
		if (a.instance == nil) != (b.instance == nil) {
			if a.instance != nil {
				return -1
			}
			return 1
		}
		return strings.Compare(a.id, b.id)
	})
	return list
}

// byRange gives each reader of a topic a run of its partitions, so that topics with the same readers and partitions are split
// the same way.
func (a *assigner) byRange() {
	for _, t := range a.topics {
		n, readers := len(t.t.Partitions), len(t.readers)
		at := 0
		for i, r := range t.readers {
			count := n / readers
			if i < n%readers {
				count++
			}
			for range count {
				r.has[tp{t.t.ID, int32(at)}] = struct{}{}
				at++
			}
		}
	}
}

// uniform spreads partitions evenly over those who may read them, moving as few as it can from where they are.
func (a *assigner) uniform() {
	free := a.keep()
	a.spread(free)
	a.level()
}

// keep leaves members what they are to have already, up to their even share where all read the same, and returns the rest.
func (a *assigner) keep() []freePartition {
	most, larger, same := a.share()
	holder := make(map[tp]*assignee)
	for _, x := range a.members {
		mine := x.had.sorted()
		if same {
			// Whoever has more than its share gives up what lies outside its rack first.
			slices.SortStableFunc(mine, func(p, q tp) int { return cmp.Compare(a.distance(x, p), a.distance(x, q)) })
		}
		for _, p := range mine {
			if holder[p] != nil || !x.mayRead(p) {
				continue
			}
			if same {
				limit := most
				if larger == 0 {
					limit = most - 1
				}
				if len(x.has) >= max(limit, 0) {
					continue
				}
				if limit == most && len(x.has) == most-1 {
					larger--
				}
			}
			holder[p] = x
			x.has[p] = struct{}{}
		}
	}
	var free []freePartition
	for _, t := range a.topics {
		for i := range t.t.Partitions {
			if p := (tp{t.t.ID, int32(i)}); holder[p] == nil {
				free = append(free, freePartition{p, t})
			}
		}
	}
	return free
}

type freePartition struct {
	tp
	of *assignedTopic
}

// share is the most partitions that a member gets when all read the same topics, and how many members get that many; the
// others get one less.
func (a *assigner) share() (most, larger int, same bool) {
	total := 0
	for _, t := range a.topics {
		if len(t.readers) != len(a.members) {
			return 0, 0, false
		}
		total += len(t.t.Partitions)
	}
	if len(a.members) == 0 {
		return 0, 0, false
	}
	most = (total + len(a.members) - 1) / len(a.members)
	larger = total - (most-1)*len(a.members)
	return most, larger, true
}

// spread gives each free partition to the reader that has least, and among those to one in whose rack it lies.
func (a *assigner) spread(free []freePartition) {
	// The fewer may read a partition, the earlier it is placed: the others can still make up for it.
	slices.SortStableFunc(free, func(x, y freePartition) int { return cmp.Compare(len(x.of.readers), len(y.of.readers)) })
	for _, p := range free {
		best := slices.MinFunc(p.of.readers, func(x, y *assignee) int {
			return cmp.Or(cmp.Compare(len(x.has), len(y.has)), cmp.Compare(a.distance(x, p.tp), a.distance(y, p.tp)))
		})
		best.has[p.tp] = struct{}{}
	}
}

// level moves partitions from members that have two more than another that could read them. Each move lessens the sum of
// squares, so it ends.
func (a *assigner) level() {
	for moved := true; moved; {
		moved = false
		for _, t := range a.topics {
			for i := range t.t.Partitions {
				p := tp{t.t.ID, int32(i)}
				var from, to *assignee
				for _, r := range t.readers {
					if _, ok := r.has[p]; ok {
						from = r
					}
					if to == nil || len(r.has) < len(to.has) {
						to = r
					}
				}
				if from != nil && len(from.has) > len(to.has)+1 {
					delete(from.has, p)
					to.has[p] = struct{}{}
					moved = true
				}
			}
		}
	}
}

// distance is 0 for a partition that has a replica in the member's rack, else 1.
func (a *assigner) distance(x *assignee, p tp) int {
	if x.rack == "" {
		return 0
	}
	if t := a.view.byID(p.topic); t != nil && int(p.index) < len(t.Partitions) && a.view.in(x.rack, &t.Partitions[p.index]) {
		return 0
	}
	return 1
}

func (x *assignee) mayRead(p tp) bool {
	n, ok := x.topics[p.topic]
	return ok && int(p.index) < n
}

func (a *assigner) result(g *consumerGroup) map[string]assignment {
	out := make(map[string]assignment, len(a.members))
	for _, x := range a.members {
		mine := make(assignment, len(x.has))
		for p := range x.has {
			mine[p] = g.epoch
		}
		out[x.m.id] = mine
	}
	return out
}
