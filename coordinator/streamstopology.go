package coordinator

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
)

// configuredTopology is a topology against the topics that there are: how many tasks it has, and what is in its way.
type configuredTopology struct {
	parts map[string]*configuredPart // by subtopology; nil: not known, see problem
	// missing are internal topics to be made.
	missing []InternalTopic
	problem *StreamsStatus // nil: every topic is there
}

// configuredPart is one subtopology of it.
type configuredPart struct {
	tasks    int32
	stateful bool
	sources  []string         // all topics it reads, sorted
	counts   map[string]int32 // internal topic → partitions
}

// reader is the subtopology that reads a topic.
func (t *Topology) reader(name string) *Subtopology {
	for i := range t.Subtopologies {
		if s := &t.Subtopologies[i]; slices.Contains(s.Sources, name) || slices.ContainsFunc(s.Repartition, named(name)) {
			return s
		}
	}
	return nil
}

func named(name string) func(InternalTopic) bool {
	return func(x InternalTopic) bool { return x.Name == name }
}

// topics is every topic that the topology needs, sorted.
func (t *Topology) topics() []string {
	set := make(map[string]struct{})
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		for _, name := range s.Sources {
			set[name] = struct{}{}
		}
		for _, list := range [][]InternalTopic{s.Repartition, s.Changelogs} {
			for j := range list {
				set[list[j].Name] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// check is Kafka's check of a topology's form, with its texts.
func (t *Topology) check() error {
	if t.Epoch < 0 {
		return refuse(ErrInvalidTopology, "The topology epoch %d is negative.", t.Epoch)
	}
	for i := range t.Subtopologies {
		if len(t.Subtopologies[i].SourceRegexes) > 0 {
			return invalid("Regular expressions for source topics are not supported yet.")
		}
	}
	for i := range t.Subtopologies {
		s := &t.Subtopologies[i]
		for j := range s.Changelogs {
			if x := &s.Changelogs[j]; x.Partitions != 0 {
				return refuse(ErrInvalidTopology, "Changelog topic %s must have an undefined partition count, but it is set to %d.", x.Name, x.Partitions)
			}
		}
		for j := range s.Repartition {
			if x := &s.Repartition[j]; x.Partitions < 0 {
				return refuse(ErrInvalidTopology, "Repartition topic %s cannot have %d partitions.", x.Name, x.Partitions)
			}
		}
		for _, c := range s.Copartition {
			outside := func(list []int16, n int) bool {
				return slices.ContainsFunc(list, func(at int16) bool { return at < 0 || int(at) >= n })
			}
			if outside(c.Sources, len(s.Sources)) || outside(c.Repartition, len(s.Repartition)) {
				return refuse(ErrInvalidTopology, "Subtopology %s has a copartition group of topics that it does not have.", s.ID)
			}
		}
	}
	return nil
}

// hash sums up the topics that the topology needs: another hash means other topics, partitions or racks.
func (t *Topology) hash(view *topicsView) int64 {
	h := fnv.New64a()
	for _, name := range t.topics() {
		view.sum(h, name)
	}
	return int64(h.Sum64())
}

// topologyConfig works out a configuredTopology.
type topologyConfig struct {
	t      *Topology
	view   *topicsView
	counts map[string]int32 // internal topic → partitions, as decided so far
}

// configure works out how many partitions each internal topic has to have, and whether all topics are there. The error is that of
// a topology that cannot be, whatever topics there are.
func (t *Topology) configure(view *topicsView) (*configuredTopology, error) {
	c := &topologyConfig{t: t, view: view, counts: make(map[string]int32)}
	if missing := c.missingSources(); len(missing) > 0 {
		return troubled(StatusMissingSources, "Source topics %s are missing.", summary(missing)), nil
	}
	if err := c.repartition(); err != nil {
		return nil, err
	}
	if problem, err := c.copartition(); problem != nil || err != nil {
		return problem, err
	}
	out := &configuredTopology{parts: make(map[string]*configuredPart)}
	for i := range t.Subtopologies {
		p, err := c.part(&t.Subtopologies[i])
		if err != nil {
			return nil, err
		}
		out.parts[t.Subtopologies[i].ID] = p
	}
	if problem := c.internal(out); problem != nil {
		return problem, nil
	}
	if len(out.missing) > 0 {
		names := make([]string, len(out.missing))
		for i := range out.missing {
			names[i] = out.missing[i].Name
		}
		out.problem = &StreamsStatus{StatusMissingInternalTopics, "Internal topics are missing: " + summary(names)}
	}
	return out, nil
}

func troubled(code int8, format string, args ...any) *configuredTopology {
	return &configuredTopology{problem: &StreamsStatus{code, fmt.Sprintf(format, args...)}}
}

// summary names up to three topics.
func summary(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d additional topics", strings.Join(names[:3], ", "), len(names)-3)
}

func (c *topologyConfig) missingSources() []string {
	set := make(map[string]struct{})
	for i := range c.t.Subtopologies {
		for _, name := range c.t.Subtopologies[i].Sources {
			if c.view.byName(name) == nil {
				set[name] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// count is how many partitions a topic has or, while it is not there, is to have.
func (c *topologyConfig) count(name string) (int32, bool) {
	if t := c.view.byName(name); t != nil {
		return int32(len(t.Partitions)), true
	}
	n, ok := c.counts[name]
	return n, ok
}

// repartition decides on the repartition topics: those without a number of their own get as many partitions as the largest source
// of a subtopology that writes to them, which may follow from other repartition topics.
func (c *topologyConfig) repartition() error {
	for i := range c.t.Subtopologies {
		for _, x := range c.t.Subtopologies[i].Repartition {
			if x.Partitions != 0 {
				c.counts[x.Name] = x.Partitions
			}
		}
	}
	for open := true; open; {
		open = false
		progress := false
		for i := range c.t.Subtopologies {
			s := &c.t.Subtopologies[i]
			for _, sink := range s.Sinks {
				if _, ok := c.counts[sink]; ok {
					continue
				}
				if n := c.largest(s); n > 0 {
					c.counts[sink], progress = n, true
				} else {
					open = true
				}
			}
		}
		if open && !progress {
			return refuse(ErrInvalidTopology, "Failed to compute number of partitions for all repartition topics. There may be loops in the topology that cannot be resolved.")
		}
	}
	for i := range c.t.Subtopologies {
		for _, x := range c.t.Subtopologies[i].Repartition {
			if _, ok := c.counts[x.Name]; !ok {
				return refuse(ErrInvalidTopology, "Failed to compute number of partitions for all repartition topics, because a repartition source topic is never used as a sink topic.")
			}
		}
	}
	return nil
}

// largest is the most partitions of a subtopology's sources as far as they are known; 0: of none.
func (c *topologyConfig) largest(s *Subtopology) (most int32) {
	for i := range s.Repartition {
		most = max(most, c.counts[s.Repartition[i].Name])
	}
	for _, name := range s.Sources {
		if n, ok := c.count(name); ok {
			most = max(most, n)
		}
	}
	return most
}

// copartition has the topics of each copartition group get equally many partitions, or says which cannot.
func (c *topologyConfig) copartition() (*configuredTopology, error) {
	fixed := make(map[string]bool) // repartition topic → whether the topology sets its partitions
	for i := range c.t.Subtopologies {
		for _, x := range c.t.Subtopologies[i].Repartition {
			fixed[x.Name] = x.Partitions != 0
		}
	}
	for i := range c.t.Subtopologies {
		s := &c.t.Subtopologies[i]
		for _, g := range s.Copartition {
			ours, others := make(map[string]int32), make(map[string]int32)
			add := func(name string) {
				n, _ := c.count(name)
				if _, ok := fixed[name]; ok {
					ours[name] = n
				} else {
					others[name] = n
				}
			}
			for _, at := range g.Sources {
				add(s.Sources[at])
			}
			for _, at := range g.Repartition {
				add(s.Repartition[at].Name)
			}
			if len(ours)+len(others) == 0 {
				continue
			}
			if problem := c.even(ours, others, fixed); problem != nil {
				return problem, nil
			}
		}
	}
	return nil, nil
}

// even decides on one copartition group of repartition topics (ours) and others.
func (c *topologyConfig) even(ours, others map[string]int32, fixed map[string]bool) *configuredTopology {
	same := func(counts, shown map[string]int32) (int32, *configuredTopology) {
		n := int32(-1)
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			if n >= 0 && counts[name] != n {
				return 0, troubled(StatusIncorrectlyPartitioned, "Following topics do not have the same number of partitions: [%s]", listed(shown))
			}
			n = counts[name]
		}
		return n, nil
	}
	n := int32(0)
	var problem *configuredTopology
	if len(others) > 0 {
		n, problem = same(others, others)
	} else if set := c.fixedCounts(fixed); len(set) > 0 {
		n, problem = same(set, ours)
	} else {
		n = slices.Max(slices.Collect(maps.Values(ours)))
	}
	if problem != nil {
		return problem
	}
	for _, name := range slices.Sorted(maps.Keys(ours)) {
		if fixed[name] && ours[name] != n {
			return troubled(StatusIncorrectlyPartitioned,
				"Number of partitions [%d] of repartition topic [%s] doesn't match number of partitions [%d] of the source topic.", ours[name], name, n)
		}
		c.counts[name] = n
	}
	return nil
}

// fixedCounts is the repartition topics whose partitions the topology sets: all of the topology's, as Kafka takes them.
func (c *topologyConfig) fixedCounts(fixed map[string]bool) map[string]int32 {
	out := make(map[string]int32)
	for name, is := range fixed {
		if is {
			out[name], _ = c.count(name)
		}
	}
	return out
}

// listed prints topics and their partitions as Java prints a map.
func listed(counts map[string]int32) string {
	parts := make([]string, 0, len(counts))
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s=%d", name, counts[name]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// part works out one subtopology: as many tasks as its largest source has partitions, and changelogs of as many.
func (c *topologyConfig) part(s *Subtopology) (*configuredPart, error) {
	p := &configuredPart{stateful: len(s.Changelogs) > 0, counts: make(map[string]int32)}
	names := slices.Clone(s.Sources)
	for i := range s.Repartition {
		names = append(names, s.Repartition[i].Name)
	}
	for _, name := range names {
		if n, ok := c.count(name); ok {
			p.tasks = max(p.tasks, n)
		}
	}
	if p.tasks == 0 {
		return nil, refuse(ErrInvalidTopology, "No source topics found for subtopology %s", s.ID)
	}
	p.sources = sortedDistinct(names)
	for i := range s.Changelogs {
		c.counts[s.Changelogs[i].Name] = p.tasks
		p.counts[s.Changelogs[i].Name] = p.tasks
	}
	for i := range s.Repartition {
		name := s.Repartition[i].Name
		p.counts[name] = c.counts[name]
		if n := s.Repartition[i].Partitions; n != 0 {
			p.counts[name] = n
		}
	}
	return p, nil
}

// internal finds the internal topics that are missing, or one that is there with other partitions than it has to have.
func (c *topologyConfig) internal(out *configuredTopology) *configuredTopology {
	wanted := make(map[string]InternalTopic)
	for i := range c.t.Subtopologies {
		s := &c.t.Subtopologies[i]
		for _, list := range [][]InternalTopic{s.Repartition, s.Changelogs} {
			for _, x := range list {
				x.Partitions = out.parts[s.ID].counts[x.Name]
				wanted[x.Name] = x
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		t := c.view.byName(name)
		switch n := wanted[name].Partitions; {
		case t == nil:
			out.missing = append(out.missing, wanted[name])
		case int32(len(t.Partitions)) != n:
			return troubled(StatusIncorrectlyPartitioned, "Existing topic %s has different number of partitions: expected %d, found %d", name, n, len(t.Partitions))
		}
	}
	return nil
}
