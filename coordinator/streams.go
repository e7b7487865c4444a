package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// streamsProtocol is the protocol type of streams groups in lists.
const streamsProtocol = "streams"

// streamsGroup is what a group of the streams protocol (KIP-1071) has besides offsets. The application's topology says which
// tasks there are; the coordinator decides which member runs which, and has the topics made that the topology needs.
type streamsGroup struct {
	epoch       int32             // rises whenever members, topics or settings change
	hash        int64             // of the topology's topics, as the epoch knows them
	seen        int64             // topicsView.version that hash was compared with
	validated   int32             // the topology epoch whose topics are all there; noTopology: of none
	configs     map[string]string // the settings that the newest assignment followed
	stored      int32             // epochs of topology descriptions, which only Kafka's plugin has a use for
	failed      int32
	targetEpoch int32
	assigned    int64 // when the target was worked out, time of day in milliseconds; 0: the next may be at once
	target      map[string]taskSets
	members     map[string]*streamsMember
	static      map[string]string // instance id → member id
	topology    *Topology         // nil: not known yet
	seq         int64

	// What follows is not of the log.
	configured    *configuredTopology
	shutdown      string // the member that wants the application to end; "": nobody
	endpointEpoch int32
	delayed       bool // the first assignment waits for more members
}

// streamsMember is one member: a stream thread of a process.
type streamsMember struct {
	id, clientID, clientHost string
	seq                      int64
	instance, rack           *string
	rebalanceMillis          int32
	topologyEpoch            int32
	process                  string
	endpoint                 *Endpoint
	tags                     map[string]string
	epoch, previous          int32
	state                    memberState
	assigned                 taskSets // what it runs
	revoking                 taskSets // what it has yet to give up

	offsets, ends map[task]int64 // as it reports them; not of the log
}

// noTopology stands for the epoch of a topology that there is not.
const noTopology int32 = -1

// task names a subtopology on one partition.
type task struct {
	subtopology string
	index       int32
}

func compareTasks(a, b task) int {
	return cmp.Or(strings.Compare(a.subtopology, b.subtopology), cmp.Compare(a.index, b.index))
}

// taskSet is a set of tasks, each with the group's epoch in which the member got it; 0 where that does not matter.
type taskSet map[task]int32

func (s taskSet) sorted() []task { return slices.SortedFunc(maps.Keys(s), compareTasks) }

func (s taskSet) has(t task) bool { _, ok := s[t]; return ok }

// taskSets is tasks by what is done with them.
type taskSets struct {
	active  taskSet // they process records
	standby taskSet // their state is kept up to date
	warmup  taskSet // their state is brought up to date, to be active later
}

func newTaskSets() taskSets {
	return taskSets{active: taskSet{}, standby: taskSet{}, warmup: taskSet{}}
}

// same says whether both hold the same tasks, assigned in the same epochs.
func (s taskSets) same(o taskSets) bool {
	return maps.Equal(s.active, o.active) && maps.Equal(s.standby, o.standby) && maps.Equal(s.warmup, o.warmup)
}

func (s taskSets) empty() bool { return len(s.active)+len(s.standby)+len(s.warmup) == 0 }

// overlaps says whether a task is in both, in the same role.
func (s taskSets) overlaps(o taskSets) bool {
	meets := func(a, b taskSet) bool {
		for t := range a {
			if b.has(t) {
				return true
			}
		}
		return false
	}
	return meets(s.active, o.active) || meets(s.standby, o.standby) || meets(s.warmup, o.warmup)
}

func newStreamsGroup() *streamsGroup {
	return &streamsGroup{
		epoch: firstEpoch, validated: noTopology, stored: noTopology, failed: noTopology, target: make(map[string]taskSets),
		members: make(map[string]*streamsMember), static: make(map[string]string),
	}
}

// list is the members in the order in which they came.
func (g *streamsGroup) list() []*streamsMember {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *streamsMember) int { return cmp.Compare(a.seq, b.seq) })
}

// settled says whether a member has what the group's newest assignment gives it.
func (g *streamsGroup) settled(m *streamsMember) bool {
	return m.state == memberStable && m.epoch == g.targetEpoch
}

// stateName is Kafka's name for what the group is doing.
func (g *streamsGroup) stateName() string {
	switch {
	case len(g.members) == 0:
		return "Empty"
	case g.topology == nil || g.topology.Epoch != g.validated:
		return "NotReady"
	case g.epoch > g.targetEpoch:
		return "Assigning"
	}
	for _, m := range g.members {
		if !g.settled(m) {
			return "Reconciling"
		}
	}
	return "Stable"
}

// put makes m the member of that id.
func (g *streamsGroup) put(m *streamsMember) {
	if old := g.members[m.id]; old != nil {
		m.seq = old.seq
		if old.instance != nil && g.static[*old.instance] == m.id {
			delete(g.static, *old.instance)
		}
	} else if m.seq == 0 {
		g.seq++
		m.seq = g.seq
	}
	g.members[m.id] = m
	if m.instance != nil {
		g.static[*m.instance] = m.id
	}
}

// drop removes a member. What it had is free.
func (g *streamsGroup) drop(m *streamsMember) {
	delete(g.members, m.id)
	delete(g.target, m.id)
	if m.instance != nil && g.static[*m.instance] == m.id {
		delete(g.static, *m.instance)
	}
	if len(g.members) == 0 {
		g.shutdown = ""
	}
}

func newStreamsMember(id string) *streamsMember {
	return &streamsMember{
		id: id, rebalanceMillis: -1, topologyEpoch: noTopology, tags: map[string]string{}, assigned: newTaskSets(), revoking: newTaskSets(),
	}
}

func (m *streamsMember) clone() *streamsMember {
	c := *m
	return &c
}

var _ modern = (*streamsGroup)(nil)

func (g *streamsGroup) groupType() GroupType { return StreamsGroup }

func (g *streamsGroup) protocolType() string { return streamsProtocol }

func (g *streamsGroup) size() int { return len(g.members) }

func (g *streamsGroup) written() bool {
	return g.epoch > firstEpoch || len(g.members) > 0 || g.topology != nil
}

// reads says whether the topology reads a topic, while there are members.
func (g *streamsGroup) reads(name string) bool {
	return len(g.members) > 0 && g.topology != nil && g.topology.reader(name) != nil
}

func (g *streamsGroup) tombstones(group string) []record {
	return []record{
		{key: streamsKey(keyStreamsTargetEpoch, group, "")}, {key: streamsKey(keyStreamsGroup, group, "")},
		{key: streamsKey(keyStreamsTopology, group, "")},
	}
}

// mayCommit decides whether a commit is allowed: of a member in its epoch, or in an earlier one for tasks that it has had since;
// of nobody in particular while the group has no members.
func (g *streamsGroup) mayCommit(q *CommitRequest) error {
	if q.Generation < 0 && len(g.members) == 0 || q.Producer != nil && q.Generation == NoGeneration && q.MemberID == "" && q.InstanceID == nil {
		return nil
	}
	m := g.members[q.MemberID]
	switch {
	case m == nil:
		return ErrUnknownMember
	case q.Producer == nil && !q.NamesGroup:
		return ErrUnsupported
	case q.Generation == m.epoch:
		return nil
	case q.Generation > m.epoch || g.topology == nil:
		return ErrStaleMemberEpoch
	}
	for i := range q.Partitions {
		s := g.topology.reader(q.Partitions[i].Topic)
		if s == nil {
			return ErrStaleMemberEpoch
		}
		t := task{s.ID, q.Partitions[i].Partition}
		at, ok := m.assigned.active[t]
		if !ok {
			at, ok = m.revoking.active[t]
		}
		if !ok || q.Generation < at {
			return ErrStaleMemberEpoch
		}
	}
	return nil
}

// mayFetch checks the member that asks for offsets, if one says who it is (OffsetFetch 9+).
func (g *streamsGroup) mayFetch(q *FetchOffsetsRequest) error {
	if q.MemberID == nil {
		return nil
	}
	m := g.members[*q.MemberID]
	switch {
	case m == nil:
		return ErrUnknownMember
	case q.MemberEpoch != m.epoch:
		return ErrStaleMemberEpoch
	}
	return nil
}
