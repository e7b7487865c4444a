package coordinator

import (
	"fmt"
	"slices"
	"strings"
)

// simModern is the other half of the simulation: members of share groups and of streams groups, a group that changes between the
// classic and the consumer protocol and back, and brokers that lead share-partitions. The log, the brokers and their faults are
// the same. What must hold besides:
//
//   - no task is active with two members, in the machine or among those that have reason to think themselves members, and no
//     process has a task twice; left alone, every task is active once and has its standbys;
//   - while a group changes protocols no partition has two owners, nobody commits what another one owns, and no commit is lost;
//   - a share group gives out no share-partition that its coordinator does not keep; left alone, each is read and nobody is idle;
//   - what a share group was told is acknowledged is not given out again by that leader or a later one; what is done was
//     acknowledged, rejected, or delivered as often as may be; nobody gets what somebody else holds; left alone, all is done.
type simModern struct {
	w       *simWorld
	streams simThreads
	takers  simTakers
	leads   []*simLead
	later   []func() // what is on its way between brokers
	topics  []string
	images  uint64
}

func newSimModern(w *simWorld) *simModern {
	m := &simModern{w: w, images: 1}
	w.cfg.Migration = migrationOf("bidirectional")
	w.members.list = nil
	for i := range 4 {
		w.members.list = append(w.members.list, &simMember{classic: i < 2, mixed: true, group: "mixed", topics: []string{"t"}})
	}
	w.shares.list = nil
	m.change()
	m.streams.init(w)
	m.takers.init(w)
	for p := range int32(2) {
		m.leads = append(m.leads, newSimLead(m, p))
	}
	return m
}

// change makes the topics of the streams application come and go.
func (m *simModern) change() {
	m.topics = []string{"t:4", "u:2"}
	for _, x := range []string{"rep:4", "store:4"} {
		if m.w.quiet || m.w.rng.IntN(4) > 0 {
			m.topics = append(m.topics, x)
		}
	}
	m.images++
	m.w.view = m.w.view.next(testTopics(m.w, m.images, m.topics...))
	for _, l := range m.w.logs {
		l.shadow.setTopics(m.w.view)
	}
}

func (m *simModern) step() {
	if m.w.quiet && len(m.topics) < 4 {
		m.change()
	}
	switch n := m.w.rng.IntN(100); {
	case n < 25:
		m.w.members.step()
	case n < 45:
		m.streams.step()
	case n < 60:
		m.takers.step()
	case n < 70 && len(m.later) > 0:
		i := m.w.rng.IntN(len(m.later)) // in any order
		do := m.later[i]
		m.later = slices.Delete(m.later, i, i+1)
		if m.w.one(15) {
			m.w.tell("what one broker says to another is lost")
			return
		}
		do()
	case n < 71 && !m.w.quiet:
		m.change()
	default:
		m.leads[m.w.rng.IntN(len(m.leads))].step()
	}
}

// begin has the share coordinator begin share-partitions, as Coordinator.beginShares does: the same start of the groups'
// coordinator is told what came of it.
func (m *simModern) begin(s *simShard, begin []ShareInitialize) {
	core := s.core
	m.later = append(m.later, func() {
		note := shareBegun{group: begin[0].Group}
		for i := range begin {
			failed := true
			m.w.request(simStates, &begin[i], func(_ any, err error) { failed = err != nil })
			if failed {
				note.failed = append(note.failed, begin[i].ShareKey)
			} else {
				note.begun = append(note.begun, begin[i].ShareKey)
			}
		}
		m.later = append(m.later, func() {
			if s.core == core && s.core != nil {
				m.w.turn(s, note, func(any, error) {})
			}
		})
	})
}

func (m *simModern) check() {
	m.streams.check()
	m.takers.check()
	for _, x := range m.leads {
		x.check()
	}
	c, ok := m.w.shards[m.w.logs[simGroups].leader][simGroups].core.(*core)
	if !ok || m.w.shards[m.w.logs[simGroups].leader][simGroups].epoch != m.w.logs[simGroups].epoch {
		return
	}
	for _, g := range c.groups {
		switch {
		case g.streams != nil:
			checkStreamsGroup(m.w, g.streams)
		case g.share != nil:
			m.takers.checkGroup(g)
		}
	}
}

func (m *simModern) settled() string {
	for _, open := range []func() string{m.w.members.settled, m.streams.settled, m.takers.settled} {
		if s := open(); s != "" {
			return s
		}
	}
	for _, x := range m.leads {
		if s := x.settled(); s != "" {
			return s
		}
	}
	return ""
}

// live is a group as its coordinator has it; nil: there is none, or nobody has read it.
func (w *simWorld) live(group string) *group {
	if c, ok := w.shards[w.logs[simGroups].leader][simGroups].core.(*core); ok {
		return c.groups[group]
	}
	return nil
}

// simPeer is what a client of either protocol has heard.
type simPeer struct {
	w              *simWorld
	id             string
	epoch          int32
	heard, unheard int64
	sent           uint64
	joined         int
	past           []int32 // the epochs before
}

// ask sends a heartbeat; its answer counts unless another has been sent, or the peer has begun anew.
func (x *simPeer) ask(body any, answered func(result any, err error)) {
	x.sent++
	sent, joined := x.sent, x.joined
	if x.unheard == 0 {
		x.unheard = x.w.now
	}
	x.w.request(simGroups, body, func(result any, err error) {
		if x.sent != sent || x.joined != joined || err == errSimLost || err == ErrNotCoordinator || err == ErrNotAvailable {
			return
		}
		if err == nil {
			x.heard, x.unheard = x.unheard, 0
		}
		answered(result, err)
	})
}

func (x *simPeer) moves(to int32) {
	if to != x.epoch && x.epoch > 0 {
		x.past = append(x.past, x.epoch)
	}
	x.epoch = to
}

func (x *simPeer) lose() {
	x.epoch, x.unheard, x.past = joinEpoch, 0, nil
	x.joined++
}

// strays has a peer leave now and then, with or without a word, or say again what is long past, which must be refused. epoch is
// the one in its heartbeat q.
func (x *simPeer) strays(q any, epoch *int32, gone func()) bool {
	id, w := x.id, x.w
	switch {
	case x.epoch > 0 && w.one(40):
		*epoch = leaveEpoch
		gone()
		x.id = ""
		if w.rng.IntN(2) == 0 {
			w.request(simGroups, q, func(any, error) {})
		}
		return true
	case len(x.past) > 1 && w.one(12):
		*epoch = x.past[w.rng.IntN(len(x.past)-1)]
		w.request(simGroups, q, func(_ any, err error) {
			if err == nil {
				w.fail("%s is in epoch %d, and its heartbeat of epoch %d is taken", id, x.epoch, *epoch)
			}
		})
		return true
	}
	return false
}

func (x *simPeer) believes() bool {
	return x.epoch > 0 && x.w.now < x.heard+min(simSession, simRebalance)
}

// simThreads are the threads of a streams application: two processes of two.
type simThreads struct {
	w        *simWorld
	list     []*simThread
	topology *Topology
	assigned int
}

type simThread struct {
	simPeer
	process string
	owned   OwnedTasks
	full    bool
}

func (m *simThreads) init(w *simWorld) {
	m.w = w
	w.cfg.StreamsSessionMillis, w.cfg.StreamsStandbys, w.cfg.StreamsIntervalMillis, w.cfg.StreamsInitialDelayMillis = simSession, int32(w.rng.IntN(2)), 0, 0
	m.topology = &Topology{Subtopologies: []Subtopology{
		{ID: "0", Sources: []string{"t"}, Sinks: []string{"rep"}},
		{ID: "1", Repartition: []InternalTopic{{Name: "rep"}}, Changelogs: []InternalTopic{{Name: "store"}}},
	}}
	for i := range 4 {
		m.list = append(m.list, &simThread{simPeer: simPeer{w: w}, process: fmt.Sprint("p", i%2)})
	}
}

func (m *simThreads) step() {
	i := m.w.rng.IntN(len(m.list))
	x := m.list[i]
	if x.id == "" {
		x.id = fmt.Sprintf("s%d-%d", i, x.joined)
	}
	q := &StreamsHeartbeatRequest{Group: "streams", MemberID: x.id, MemberEpoch: x.epoch, RebalanceMillis: -1}
	if x.strays(q, &q.MemberEpoch, x.gone) {
		return
	}
	if x.epoch == joinEpoch {
		x.owned, x.full = OwnedTasks{Active: []Tasks{}, Standby: []Tasks{}, Warmup: []Tasks{}}, true
		q.RebalanceMillis, q.Topology, q.ProcessID = simRebalance, m.topology, &x.process
	}
	if x.full || m.w.rng.IntN(3) == 0 {
		q.Owned = x.owned
	}
	m.ask(x, q)
}

func (x *simThread) gone() {
	x.lose()
	x.owned = OwnedTasks{}
}

func (m *simThreads) ask(x *simThread, q *StreamsHeartbeatRequest) {
	x.ask(q, func(result any, err error) {
		if err != nil {
			x.gone()
			return
		}
		r := result.(*StreamsHeartbeatResult)
		x.moves(r.MemberEpoch)
		if r.HasAssignment {
			x.owned, x.full = OwnedTasks{r.Active, r.Standby, r.Warmup}, true
			m.assigned++
			m.w.tell("%s has %v in epoch %d", x.id, x.owned, x.epoch)
		}
	})
}

func (m *simThreads) check() {
	active := map[task]string{}
	for _, x := range m.list {
		if !x.believes() {
			continue
		}
		for t := range x.owned.sets().active {
			if other := active[t]; other != "" {
				m.w.fail("%v is active with %s and with %s", t, other, x.id)
			}
			active[t] = x.id
		}
	}
}

func (m *simThreads) settled() string {
	g := m.w.live("streams")
	if g == nil || g.streams == nil || g.streams.stateName() != "Stable" || len(g.streams.members) != len(m.list) {
		return "the streams group is not stable"
	}
	running := map[task]bool{}
	for _, x := range m.list {
		if !x.believes() {
			return x.id + " is no member of the streams group"
		}
		for t := range x.owned.sets().active {
			running[t] = true
		}
		if fmt.Sprint(x.owned) != fmt.Sprint(g.streams.target[x.id].lists()) {
			return fmt.Sprintf("%s has %v, and is to have %v", x.id, x.owned, g.streams.target[x.id].lists())
		}
	}
	if len(running) != 8 {
		return fmt.Sprintf("%d tasks of 8 are active", len(running))
	}
	checkTaskTarget(m.w, g.streams)
	return ""
}

// simTakers are the members of a share group.
type simTakers struct {
	w        *simWorld
	list     []*simTaker
	assigned int
}

type simTaker struct {
	simPeer
	has    []string
	topics []string
}

func (m *simTakers) init(w *simWorld) {
	m.w = w
	w.cfg.ShareSessionMillis, w.cfg.ShareAssignmentMillis = simSession, 0
	for range 3 {
		m.list = append(m.list, &simTaker{simPeer: simPeer{w: w}, topics: []string{"t"}})
	}
}

func (m *simTakers) step() {
	i := m.w.rng.IntN(len(m.list))
	x := m.list[i]
	if x.id == "" {
		x.id = fmt.Sprintf("k%d-%d", i, x.joined)
	}
	q := &ShareHeartbeatRequest{Group: "share", MemberID: x.id, MemberEpoch: x.epoch, ClientID: "c", ClientHost: "/h"}
	if x.strays(q, &q.MemberEpoch, func() { x.lose(); x.has = nil }) {
		return
	}
	if m.w.one(20) {
		x.topics = [][]string{{"t"}, {"u"}, {"t", "u"}}[m.w.rng.IntN(3)]
	}
	if m.w.quiet {
		x.topics = []string{"t", "u"}
	}
	if x.epoch == joinEpoch || m.w.rng.IntN(3) == 0 {
		q.Topics = x.topics
	}
	asked := q.Topics
	x.ask(q, func(result any, err error) {
		if err != nil {
			x.lose()
			x.has = nil
			return
		}
		r := result.(*ShareHeartbeatResult)
		x.moves(r.MemberEpoch)
		if !r.HasAssignment {
			return
		}
		x.has = nil
		for _, t := range r.Assigned {
			name := showTopicID(t.Topic)
			if asked != nil && !slices.Contains(asked, name) {
				m.w.fail("%s is given %s, and reads %v", x.id, name, asked)
			}
			for _, p := range t.Partitions {
				x.has = append(x.has, fmt.Sprint(name, "/", p))
			}
		}
		m.assigned++
		m.w.tell("%s has %v in epoch %d", x.id, x.has, x.epoch)
	})
}

func (m *simTakers) check() {}

// checkGroup: what is given out is kept by the share coordinator, and what a member has is of the group's target.
func (m *simTakers) checkGroup(g *group) {
	states := m.w.logs[simStates].shadow.(*shareCore)
	for id, t := range g.share.initialized {
		for _, k := range t.keys(g.id, id) {
			if states.parts[k] == nil {
				m.w.fail("%v counts as begun, and nobody keeps it", k)
			}
		}
	}
	for _, x := range g.share.list() {
		for p := range x.assigned {
			if t := g.share.initialized[p.topic]; t == nil {
				m.w.fail("%s has %v, which is not begun", x.id, p)
			} else if _, ok := t.parts[p.index]; !ok {
				m.w.fail("%s has %v, which is not begun", x.id, p)
			}
		}
		if x.epoch > g.share.targetEpoch || g.share.targetEpoch > g.share.epoch {
			m.w.fail("%s is in epoch %d, the target in %d, the group in %d", x.id, x.epoch, g.share.targetEpoch, g.share.epoch)
		}
	}
}

func (m *simTakers) settled() string {
	g := m.w.live("share")
	if g == nil || g.share == nil || len(g.share.members) != len(m.list) {
		return "the share group has not its members"
	}
	read := map[string]bool{}
	for _, x := range m.list {
		if !x.believes() || x.epoch != g.share.epoch {
			return fmt.Sprintf("%s is in epoch %d of the share group, which is in %d", x.id, x.epoch, g.share.epoch)
		}
		if len(x.has) != 2 {
			return fmt.Sprintf("%s reads %v", x.id, x.has)
		}
		for _, p := range x.has {
			read[p] = true
		}
	}
	if len(read) != 6 {
		return fmt.Sprintf("%d of 6 share-partitions are read", len(read))
	}
	return ""
}

func fingerprintStreams(out *strings.Builder, id string, g *streamsGroup) {
	fmt.Fprintf(out, "%s epoch %d target %d validated %d\n", id, g.epoch, g.targetEpoch, g.validated)
	for _, mid := range slices.Sorted(keysOf(g.members)) {
		m := g.members[mid]
		fmt.Fprintf(out, "  %s of %s epoch %d previous %d state %d has %v gives up %v is to have %v\n", mid, m.process, m.epoch, m.previous, m.state,
			m.assigned.lists(), m.revoking.lists(), g.target[mid].lists())
	}
}

func fingerprintShare(out *strings.Builder, id string, g *shareGroup) {
	fmt.Fprintf(out, "%s epoch %d target %d\n", id, g.epoch, g.targetEpoch)
	for _, t := range sortedIDs(g.initialized) {
		fmt.Fprintf(out, "  keeps%s\n", showShareKeys(g.initialized[t].keys(id, t)))
	}
	for _, t := range sortedIDs(g.initializing) {
		fmt.Fprintf(out, "  begins%s\n", showShareKeys(g.initializing[t].keys(id, t)))
	}
	for _, mid := range slices.Sorted(keysOf(g.members)) {
		m := g.members[mid]
		fmt.Fprintf(out, "  %s epoch %d previous %d reads %v has %v is to have %v\n", mid, m.epoch, m.previous, m.names, m.assigned.sorted(), g.target[mid].sorted())
	}
}
