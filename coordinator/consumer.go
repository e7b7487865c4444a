package coordinator

import (
	"cmp"
	"maps"
	"slices"

	"github.com/varvelog/varve/meta/topic"
)

// tp names a partition whose topic is known by id.
type tp struct {
	topic topic.ID
	index int32
}

func compareTP(a, b tp) int {
	return cmp.Or(slices.Compare(a.topic[:], b.topic[:]), cmp.Compare(a.index, b.index))
}

// assignment is a set of partitions, each with the group's epoch in which the member got it.
type assignment map[tp]int32

// sorted is the partitions in order.
func (a assignment) sorted() []tp { return slices.SortedFunc(maps.Keys(a), compareTP) }

// same says whether two assignments hold the same partitions.
func (a assignment) same(b assignment) bool {
	if len(a) != len(b) {
		return false
	}
	for p := range a {
		if _, ok := b[p]; !ok {
			return false
		}
	}
	return true
}

// memberState is how far a member has got with its target. The numbers are Kafka's, in records. Format: do not renumber.
type memberState int8

const (
	memberStable     memberState = iota // has what it is to have
	memberUnrevoked                     // has yet to give up partitions
	memberUnreleased                    // waits for partitions that others have yet to give up
	memberUnknown    memberState = 127  // a later release's
)

// consumerGroup is what a group of the consumer protocol (KIP-848) has besides offsets. The coordinator decides who reads what;
// members are told one by one, first what to give up and then what to take, while the rest read on.
type consumerGroup struct {
	epoch       int32 // rises whenever members or topics change
	hash        int64 // of the subscribed topics, as the epoch knows them
	seen        int64 // topicsView.version that hash was compared with
	targetEpoch int32 // the epoch that target is for
	targetAt    int64 // time of day at which it was worked out, milliseconds; 0: the next may be at once
	target      map[string]assignment
	members     map[string]*consumerMember
	static      map[string]string // instance id → member id
	owners      map[tp]int32      // partitions that a member has or has yet to give up → that member's epoch
	regexes     map[string]*resolved
	seq         int64
	created     int64 // time of day, milliseconds
}

// resolved is what a regular expression stands for.
type resolved struct {
	topics  []string // sorted
	version int64    // topicsView.version; not of the log
	at      int64    // time of day, milliseconds
}

// consumerMember is one member.
type consumerMember struct {
	id, clientID, clientHost string
	seq                      int64
	instance, rack           *string
	names                    []string // sorted
	regex                    string   // "": none
	assignor                 *string
	rebalanceMillis          int32
	epoch, previous          int32
	state                    memberState
	assigned                 assignment     // what it may read
	revoking                 assignment     // what it has yet to give up
	classic                  *classicMember // nil: it speaks the consumer protocol
}

// firstEpoch is a group's before anybody has joined, as Kafka counts.
const firstEpoch int32 = 1

func newConsumerGroup(now int64) *consumerGroup {
	return &consumerGroup{
		epoch: firstEpoch, target: make(map[string]assignment), members: make(map[string]*consumerMember), static: make(map[string]string),
		owners: make(map[tp]int32), regexes: make(map[string]*resolved), created: now,
	}
}

// list is the members in the order in which they came.
func (g *consumerGroup) list() []*consumerMember {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *consumerMember) int { return cmp.Compare(a.seq, b.seq) })
}

// stateName is Kafka's name for what the group is doing.
func (g *consumerGroup) stateName() string {
	switch {
	case len(g.members) == 0:
		return "Empty"
	case g.epoch > g.targetEpoch:
		return "Assigning"
	}
	for _, m := range g.members {
		if m.state != memberStable || m.epoch != g.targetEpoch {
			return "Reconciling"
		}
	}
	return "Stable"
}

// put makes m the member of that id, and its partitions its own.
func (g *consumerGroup) put(m *consumerMember) {
	if old := g.members[m.id]; old != nil {
		g.release(old)
		m.seq = old.seq
	} else if m.seq == 0 {
		g.seq++
		m.seq = g.seq
	}
	g.members[m.id] = m
	if m.instance != nil {
		g.static[*m.instance] = m.id
	}
	for p := range m.assigned {
		g.owners[p] = m.epoch
	}
	for p := range m.revoking {
		g.owners[p] = m.epoch
	}
}

// drop removes a member. What it had is free.
func (g *consumerGroup) drop(m *consumerMember) {
	g.release(m)
	delete(g.members, m.id)
	delete(g.target, m.id)
	if m.instance != nil && g.static[*m.instance] == m.id {
		delete(g.static, *m.instance)
	}
}

func (g *consumerGroup) release(m *consumerMember) {
	for p := range m.assigned {
		delete(g.owners, p)
	}
	for p := range m.revoking {
		delete(g.owners, p)
	}
}

// subscribed is the topics that a member reads: those it names, and those its regular expression stands for.
func (g *consumerGroup) subscribed(m *consumerMember) []string {
	if m.regex == "" || g.regexes[m.regex] == nil {
		return m.names
	}
	all := slices.Concat(m.names, g.regexes[m.regex].topics)
	slices.Sort(all)
	return slices.Compact(all)
}

// reads says whether a member reads a topic.
func (g *consumerGroup) reads(name string) bool {
	for _, m := range g.members {
		if _, ok := slices.BinarySearch(g.subscribed(m), name); ok {
			return true
		}
	}
	return false
}

// assignorName is the one that most members ask for; the first configured if none does.
func (g *consumerGroup) assignorName(configured []string) string {
	votes := make(map[string]int)
	for _, m := range g.members {
		if m.assignor != nil {
			votes[*m.assignor]++
		}
	}
	best := configured[0]
	for _, name := range configured {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// holds is what a member has and what it has yet to give up.
func (m *consumerMember) holds() assignment {
	if len(m.revoking) == 0 {
		return m.assigned
	}
	all := maps.Clone(m.assigned)
	maps.Copy(all, m.revoking)
	return all
}

func (m *consumerMember) clone() *consumerMember {
	c := *m
	return &c
}
