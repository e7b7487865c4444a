package coordinator

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta/topic"
)

// State is what a group is doing.
type State int8

// The states. A group that is Dead is not held any more: only descriptions name it.
const (
	Empty State = iota
	PreparingRebalance
	CompletingRebalance
	Stable
	Dead
)

// String is Kafka's name of the state.
func (s State) String() string {
	switch s {
	case Empty:
		return "Empty"
	case PreparingRebalance:
		return "PreparingRebalance"
	case CompletingRebalance:
		return "CompletingRebalance"
	case Stable:
		return "Stable"
	}
	return "Dead"
}

// consumerProtocol is the protocol type of consumers, whose metadata the coordinator can read.
const consumerProtocol = "consumer"

// group is one classic group: members, generation and offsets.
type group struct {
	id              string
	state, previous State
	since           int64 // when the state was entered; -1: not known (records before Kafka 2.1)
	protocolType    *string
	protocol        *string
	generation      int32
	leader          string // "": none

	members   map[string]*member
	seq       int64
	static    map[string]string   // instance id → member id
	pending   map[string]struct{} // ids given out whose members have yet to join with them
	unsynced  map[string]struct{} // members whose SyncGroup is awaited
	supported map[string]int      // protocol → members that speak it
	awaiting  int                 // members with a join parked

	// newcomer is set when a member came while the initial rebalance waits: the wait is prolonged. left and wait are that
	// wait's remaining and current length.
	newcomer   bool
	wait, left int64
	initial    bool // the join timer is that of the initial rebalance

	// subscribed are the topics of a consumer group's members, known when subscribedKnown is.
	subscribed      []string // sorted
	subscribedKnown bool

	offsets   map[string]map[int32]*offset   // topic → partition
	txns      map[int64]map[partition]offset // by producer: offsets that wait for the end of its transaction
	consumer  *consumerGroup                 // see modern: of a classic group, which all of the above is about, these are nil
	streams   *streamsGroup
	share     *shareGroup
	persisted bool // the log holds a metadata record
}

type member struct {
	id                   string
	seq                  int64 // members are listed in the order in which they came
	instance             *string
	clientID, clientHost string
	rebalanceMillis      int64
	sessionMillis        int64
	protocols            []Protocol
	assignment           []byte
	held                 []byte // the assignment before, until it has synced the next: it may still read what that names
	fresh                bool   // has never been answered: it cannot heartbeat yet
	join, sync           uint64 // tickets of parked requests; 0: none
}

type offset struct {
	offset      int64
	leaderEpoch int32
	metadata    string
	committed   int64 // milliseconds
	expires     int64 // milliseconds, -1: by the group's retention
	id          topic.ID
	seq         int64 // of two commits, the later has the larger
}

// partition names a partition whose topic is known by name.
type partition struct {
	topic string
	index int32
}

// newGroup makes a group without members. Most groups that a coordinator knows are just that, with a few offsets, and there may be
// a hundred thousand of them: what only groups with members need is made when it is needed (see put).
func newGroup(id string, now int64) *group {
	return &group{
		id: id, since: now, previous: Dead,
		offsets: make(map[string]map[int32]*offset),
	}
}

// put makes an entry in a map that is nil while it is empty.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = make(map[K]V)
	}
	(*m)[key] = value
}

func (g *group) to(s State, now int64) {
	g.previous, g.state, g.since = g.state, s, now
}

// list is the members in the order in which they came.
func (g *group) list() []*member {
	return slices.SortedFunc(maps.Values(g.members), func(a, b *member) int { return cmp.Compare(a.seq, b.seq) })
}

// add puts in a member with its join parked.
func (g *group) add(m *member) {
	g.seq++
	m.seq = g.seq
	put(&g.members, m.id, m)
	if m.instance != nil {
		put(&g.static, *m.instance, m.id)
	}
	g.count(m, 1)
	if g.leader == "" {
		g.leader = m.id
	}
	if m.join != 0 {
		g.awaiting++
	}
	delete(g.pending, m.id)
}

func (g *group) count(m *member, by int) {
	for i := range m.protocols {
		name := m.protocols[i].Name
		put(&g.supported, name, g.supported[name]+by)
		if g.supported[name] == 0 {
			delete(g.supported, name)
		}
	}
}

// remove takes out a member, or an id that was given out. Its parked requests must have been answered.
func (g *group) remove(id string) {
	if m := g.members[id]; m != nil {
		delete(g.members, id)
		g.count(m, -1)
		if m.join != 0 {
			g.awaiting--
		}
		if m.instance != nil {
			delete(g.static, *m.instance)
		}
	}
	if g.leader == id {
		// The one that came first. A sorted list for each of a large group's
		// members in turn is what ending all their sessions would cost.
		g.leader = ""
		first := int64(math.MaxInt64)
		for id, m := range g.members {
			if m.seq < first {
				g.leader, first = id, m.seq
			}
		}
	}
	delete(g.pending, id)
	delete(g.unsynced, id)
}

// speaks says whether a member with these protocols can be in the group.
func (g *group) speaks(protocolType string, protocols []Protocol) bool {
	if g.state == Empty {
		return protocolType != "" && len(protocols) > 0
	}
	if g.protocolType == nil || *g.protocolType != protocolType {
		return false
	}
	for i := range protocols {
		if g.supported[protocols[i].Name] == len(g.members) {
			return true
		}
	}
	return false
}

// check finds the member, as a request names it.
func (g *group) check(id string, instance *string) (*member, error) {
	if instance != nil {
		switch current, ok := g.static[*instance]; {
		case !ok:
			return nil, ErrUnknownMember
		case current != id:
			return nil, ErrFencedInstance
		}
	}
	m := g.members[id]
	if m == nil {
		return nil, ErrUnknownMember
	}
	return m, nil
}

func (g *group) allJoined() bool { return len(g.members) == g.awaiting && len(g.pending) == 0 }

// rebalanceMillis is the longest that any member needs to rejoin.
func (g *group) rebalanceMillis() int64 {
	longest := int64(0)
	for _, m := range g.members {
		longest = max(longest, m.rebalanceMillis)
	}
	return longest
}

// elect keeps the leader if it has joined, else takes the first member that has. It reports whether there is a leader.
func (g *group) elect() bool {
	leader := g.members[g.leader]
	if leader == nil {
		return false
	}
	if leader.join != 0 {
		return true
	}
	for _, m := range g.list() {
		if m.join != 0 {
			g.leader = m.id
			return true
		}
	}
	return false
}

// vote picks the protocol that all members speak and most prefer. Of equals, the one that the leader prefers.
func (g *group) vote() string {
	votes := make(map[string]int)
	for _, m := range g.members {
		for i := range m.protocols {
			if g.supported[m.protocols[i].Name] == len(g.members) {
				votes[m.protocols[i].Name]++
				break
			}
		}
	}
	best, most := "", 0
	consider := func(protocols []Protocol) {
		for i := range protocols {
			if n := votes[protocols[i].Name]; n > most {
				best, most = protocols[i].Name, n
			}
		}
	}
	if leader := g.members[g.leader]; leader != nil {
		consider(leader.protocols)
	}
	for _, m := range g.list() {
		consider(m.protocols)
	}
	return best
}

// advance begins the next generation, once the join phase has ended.
func (g *group) advance(now int64) {
	g.generation++
	clear(g.unsynced)
	if len(g.members) == 0 {
		g.protocol = nil
		g.to(Empty, now)
	} else {
		p := g.vote()
		g.protocol = &p
		g.to(CompletingRebalance, now)
	}
	g.readSubscriptions()
}

// readSubscriptions finds out which topics the members of a consumer group read, from the metadata of the chosen protocol.
func (g *group) readSubscriptions() {
	g.subscribed, g.subscribedKnown = nil, false
	if g.protocolType == nil || *g.protocolType != consumerProtocol {
		return
	}
	var topics []string
	distinct := 0
	if len(g.members) > 0 && g.protocol == nil {
		return
	}
	for _, m := range g.members {
		var meta kmsg.ConsumerMemberMetadata
		if meta.ReadFrom(m.metadata(*g.protocol)) != nil {
			return
		}
		// A sorted list, not a set: members may name many short topics, and a
		// map would take far more than the bytes that they sent. Most say the
		// same, so that repeats go before they pile up.
		if topics = append(topics, meta.Topics...); len(topics) > 2*distinct {
			topics = sortedDistinct(topics)
			distinct = len(topics)
		}
	}
	g.subscribed, g.subscribedKnown = sortedDistinct(topics), true
}

func sortedDistinct(list []string) []string {
	slices.Sort(list)
	return slices.Compact(list)
}

// reads says whether members may read the topic: offsets of such a topic are not to be deleted.
func (g *group) reads(topic string) bool {
	if g.subscribedKnown {
		_, yes := slices.BinarySearch(g.subscribed, topic)
		return yes
	}
	return g.protocolType != nil && *g.protocolType == consumerProtocol
}

// void says that nothing would be lost by forgetting the group.
func (g *group) void() bool {
	return g.state == Empty && len(g.members) == 0 && len(g.pending) == 0 && len(g.offsets) == 0 && len(g.txns) == 0 && !g.persisted &&
		(g.modern() == nil || !g.modern().written())
}

// joined is the members as the leader needs them.
func (g *group) joined() []JoinedMember {
	list := g.list()
	out := make([]JoinedMember, len(list))
	for i, m := range list {
		out[i] = JoinedMember{MemberID: m.id, InstanceID: m.instance, Metadata: m.metadata(*g.protocol)}
	}
	return out
}

// metadata is the member's for one protocol.
func (m *member) metadata(protocol string) []byte {
	for i := range m.protocols {
		if m.protocols[i].Name == protocol {
			return m.protocols[i].Metadata
		}
	}
	return nil
}

// same says whether these protocols are those the member has joined with.
func (m *member) same(protocols []Protocol) bool {
	return slices.EqualFunc(m.protocols, protocols, func(a, b Protocol) bool {
		return a.Name == b.Name && string(a.Metadata) == string(b.Metadata)
	})
}

// present says that the member's request is parked here, so that silence is no sign of death. One that has never been
// answered may be the leftover of a client that has gone away.
func (m *member) present() bool { return !m.fresh && (m.join != 0 || m.sync != 0) }
