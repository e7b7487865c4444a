package coordinator

import (
	"cmp"
	"maps"
	"slices"

	"github.com/varvelog/varve/meta/topic"
)

// shareProtocol is the protocol type of share groups.
const shareProtocol = "share"

// shareGroup is what a group of the share protocol (KIP-932) is: who takes part, and of which partitions. Several members may
// read one partition, so nobody waits for another to give something up. What has become of records is not kept here but by the
// share coordinator; here is which share-partitions it keeps. A partition is given to members once it is one of them.
type shareGroup struct {
	epoch       int32 // rises whenever members, topics or the share-partitions there are change
	hash        int64 // of the subscribed topics, as the epoch knows them
	seen        int64 // topicsView.version that hash was compared with
	targetEpoch int32
	targetAt    int64 // time of day of the target, milliseconds; 0: there has been none
	target      map[string]assignment
	members     map[string]*shareMember
	seq         int64

	// initializing are share-partitions that the share coordinator is being told of, initialized those it has, deleting topics
	// of which it is to forget what it has.
	initializing, initialized map[topic.ID]*shareTopic
	deleting                  map[topic.ID]string
	known                     bool // the log holds a record of these three

	deletions int // under way at the share coordinator: until they are through nobody joins, for their state would go with them
}

// shareTopic is partitions of a topic. It is not changed but replaced.
type shareTopic struct {
	name  string
	parts map[int32]struct{}
	since int64 // of those being initialized: when that began, in the machine's time; negative: before it was loaded
}

// shareMember is one member.
type shareMember struct {
	id, clientID, clientHost string
	seq                      int64
	rack                     *string
	names                    []string // sorted
	epoch, previous          int32
	assigned                 assignment
}

var _ modern = (*shareGroup)(nil)

func newShareGroup() *shareGroup {
	return &shareGroup{
		epoch: firstEpoch, targetEpoch: firstEpoch, target: make(map[string]assignment), members: make(map[string]*shareMember),
		initializing: make(map[topic.ID]*shareTopic), initialized: make(map[topic.ID]*shareTopic), deleting: make(map[topic.ID]string),
	}
}

func (g *shareGroup) groupType() GroupType { return ShareGroup }
func (g *shareGroup) protocolType() string { return shareProtocol }
func (g *shareGroup) size() int            { return len(g.members) }
func (g *shareGroup) written() bool        { return g.epoch > firstEpoch || len(g.members) > 0 || g.known }

// stateName is Kafka's name for what the group is doing.
func (g *shareGroup) stateName() string {
	if len(g.members) == 0 {
		return "Empty"
	}
	return "Stable"
}

// reads says whether a member reads a topic.
func (g *shareGroup) reads(name string) bool {
	for _, m := range g.members {
		if _, ok := slices.BinarySearch(m.names, name); ok {
			return true
		}
	}
	return false
}

// A share group has no offsets that a consumer could commit; who fetches some is told that there are none.
func (g *shareGroup) mayCommit(q *CommitRequest) error    { return notConsumer(q.Group) }
func (g *shareGroup) mayFetch(*FetchOffsetsRequest) error { return nil }

func notConsumer(group string) error {
	return refuse(ErrUnknownGroup, "Group %s is not a consumer group.", group)
}

// list is the members in the order in which they came.
func (g *shareGroup) list() []*shareMember {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *shareMember) int { return cmp.Compare(a.seq, b.seq) })
}

// put makes m the member of that id.
func (g *shareGroup) put(m *shareMember) {
	if old := g.members[m.id]; old != nil {
		m.seq = old.seq
	} else {
		g.seq++
		m.seq = g.seq
	}
	g.members[m.id] = m
}

// topics are those that members subscribe to, sorted.
func (g *shareGroup) topics() []string {
	all := make(map[string]struct{})
	for _, m := range g.members {
		for _, name := range m.names {
			all[name] = struct{}{}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func (m *shareMember) clone() *shareMember {
	c := *m
	return &c
}

// sameAs says whether two states of a member would be written down as the same.
func (m *shareMember) sameAs(o *shareMember) bool {
	return m.clientID == o.clientID && m.clientHost == o.clientHost && same(m.rack, o.rack) && slices.Equal(m.names, o.names)
}

// with is the topic with more partitions; nil is a topic without any.
func (t *shareTopic) with(name string, parts map[int32]struct{}, since int64) *shareTopic {
	n := &shareTopic{name: name, parts: maps.Clone(parts), since: since}
	if t != nil {
		maps.Copy(n.parts, t.parts)
	}
	return n
}

// without is the topic without those partitions; nil when none is left.
func (t *shareTopic) without(parts map[int32]struct{}) *shareTopic {
	if t == nil {
		return nil
	}
	n := &shareTopic{name: t.name, parts: maps.Clone(t.parts), since: t.since}
	for p := range parts {
		delete(n.parts, p)
	}
	if len(n.parts) == 0 {
		return nil
	}
	return n
}

// set puts t in place of what a map has of a topic; nil takes it out.
func setShareTopic(in map[topic.ID]*shareTopic, id topic.ID, t *shareTopic) {
	if t == nil {
		delete(in, id)
		return
	}
	in[id] = t
}

// keys are the share-partitions of a topic, in order.
func (t *shareTopic) keys(group string, id topic.ID) []ShareKey {
	var list []ShareKey
	for _, p := range slices.Sorted(maps.Keys(t.parts)) {
		list = append(list, ShareKey{Group: group, Topic: id, Partition: p})
	}
	return list
}

func sortedIDs[V any](m map[topic.ID]V) []topic.ID {
	return slices.SortedFunc(maps.Keys(m), func(a, b topic.ID) int { return slices.Compare(a[:], b[:]) })
}
