package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// simMember is a client in a group, and what it has reason to believe.
type simMember struct {
	classic bool
	mixed   bool // it changes between the protocols whenever it starts
	group   string
	id      string
	at      int32 // generation or epoch
	state   string
	owns    map[int32]bool // partitions of t
	heard   int64          // when the oldest request was sent that the last good answer may be to
	unheard int64          // when the oldest request without one was sent; 0: none
	joined  int            // counts its starts
	sent    uint64         // counts its requests: an answer to an older one says nothing
	topics  []string
	full    bool // the next heartbeat says everything
	// members are whom it leads, as it was told.
	members []string
	since   int64
	// late is what it was in the generation or epoch before: requests of then may come late.
	late struct {
		id   string
		at   int32
		owns map[int32]bool
	}
}

// moves notes that the member is in another generation or epoch.
func (x *simMember) moves(at int32) {
	if at != x.at {
		x.late.id, x.late.at, x.late.owns = x.id, x.at, x.owns
	}
	x.at = at
}

// What members ask for, in milliseconds. A member that is not heard of for the shorter of its session and the time it has to
// give something up has to take itself for nobody's.
const (
	simSession   = 10_000
	simRebalance = 8_000
)

// simMembers are the members of a classic group and of a consumer group.
type simMembers struct {
	w         *simWorld
	list      []*simMember
	read      reading
	tokens    map[[2]string]string // group and generation → who has assigned it
	value     int64
	fences    map[int64]*simProducing // of the offsets topic, by producer
	commits   int
	lates     int
	accepted  int
	rejoins   int
	regulars  int
	consumers int
}

func (m *simMembers) init(w *simWorld) {
	m.w, m.tokens, m.fences = w, map[[2]string]string{}, map[int64]*simProducing{}
	m.read = reading{offsets: map[[2]string]readOffset{}, pending: map[int64]map[[2]string]readOffset{}}
	w.cfg.ConsumerSessionMillis = simSession
	for i := range 6 {
		x := &simMember{classic: i < 3, group: "classic", topics: []string{"t"}}
		if !x.classic {
			x.group = "consumer"
		}
		m.list = append(m.list, x)
	}
}

// producing is what the log of the offsets topic knows of a producer.
func (m *simMembers) producing(who Producer) *simProducing {
	s := m.fences[who.ID]
	if s == nil {
		s = &simProducing{epoch: noEpoch}
		m.fences[who.ID] = s
	}
	return s
}

func (m *simMembers) step() {
	x := m.list[m.w.rng.IntN(len(m.list))]
	switch {
	case x.id != "" && m.w.one(40):
		m.leave(x)
	case x.id != "" && x.id == x.late.id && x.late.at > 0 && m.w.one(12):
		m.late(x)
	case x.classic:
		m.classic(x)
	default:
		m.beat(x)
	}
}

// lose has a member take itself for nobody's.
func (x *simMember) lose() {
	x.id, x.at, x.state, x.owns, x.members, x.unheard = "", 0, "", nil, nil, 0
	x.joined++
}

// believes says whether the member has reason to think that what it was given is its own.
func (x *simMember) believes(now int64) bool {
	return now < x.heard+min(simSession, simRebalance)
}

// ask sends a request of a member. Its answer counts unless the member has sent another one or begun anew since.
func (m *simMembers) ask(x *simMember, body any, answered func(result any, err error)) {
	x.sent++
	sent, joined := x.sent, x.joined
	_, commits := body.(*CommitRequest)
	if !commits && x.unheard == 0 {
		x.unheard = m.w.now
	}
	m.w.request(simGroups, body, func(result any, err error) {
		if x.sent != sent || x.joined != joined || errors.Is(err, errSimLost) || errors.Is(err, ErrNotCoordinator) {
			return
		}
		// A commit that is taken says nothing of what the member has yet to give up.
		if err == nil && x.state != "joining" && !commits {
			x.heard, x.unheard = x.unheard, 0
		}
		answered(result, err)
	})
}

func (m *simMembers) leave(x *simMember) {
	m.w.tell("%s leaves %s", x.id, x.group)
	id, was := x.id, x.classic
	x.lose()
	if x.mixed {
		x.classic = m.w.rng.IntN(2) == 0
	}
	if m.w.rng.IntN(2) == 0 {
		return // without a word
	}
	var body any = &LeaveRequest{Group: x.group, Members: []LeavingMember{{MemberID: id}}}
	if !was {
		body = &ConsumerHeartbeatRequest{Group: x.group, MemberID: id, MemberEpoch: leaveEpoch, NamesItself: true, RebalanceMillis: -1}
	}
	m.w.request(simGroups, body, func(any, error) {})
}

func (m *simMembers) classic(x *simMember) {
	if x.state == "joining" && m.w.now-x.since < 2*simRebalance && m.w.rng.IntN(4) > 0 {
		return // the answer comes when the others have joined
	}
	switch {
	case x.state == "" || x.state == "joining":
		m.join(x)
	case x.state == "joined":
		m.sync(x)
	case m.w.rng.IntN(3) == 0:
		m.commit(x)
	case m.w.one(30):
		m.join(x) // it wants something else, say
	default:
		m.ask(x, &HeartbeatRequest{Group: x.group, MemberID: x.id, Generation: x.at}, func(_ any, err error) { m.troubled(x, err) })
	}
}

// troubled has a member do what an error tells it.
func (m *simMembers) troubled(x *simMember, err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrRebalancing):
		x.state, x.owns = "", nil // it gives up what it has and joins again
	case errors.Is(err, ErrIllegalGeneration):
		x.state, x.owns = "", nil
	case errors.Is(err, ErrUnknownMember), errors.Is(err, ErrFencedMemberEpoch), errors.Is(err, ErrStaleMemberEpoch), errors.Is(err, ErrUnknownGroup):
		x.lose()
	}
}

func (m *simMembers) join(x *simMember) {
	x.state, x.owns, x.since = "joining", nil, m.w.now
	m.rejoins++
	q := &JoinRequest{Group: x.group, MemberID: x.id, ClientID: "c", ClientHost: "/h", ProtocolType: "sim", SessionMillis: simSession, RebalanceMillis: simRebalance,
		Protocols: []Protocol{{Name: "split"}}, NeedMemberID: true}
	if x.mixed {
		q.ProtocolType = consumerProtocol
		q.Protocols = []Protocol{{Name: "range", Metadata: (&kmsg.ConsumerMemberMetadata{Version: 1, Topics: []string{"t"}}).AppendTo(nil)}}
	}
	sentAt := m.w.now
	m.ask(x, q, func(result any, err error) {
		r := result.(*JoinResult)
		switch {
		case errors.Is(err, ErrMemberIDRequired):
			x.id, x.state = r.MemberID, ""
		case err != nil:
			x.state = ""
			m.troubled(x, err)
		default:
			x.id = r.MemberID
			x.moves(r.Generation)
			x.state, x.members, x.heard = "joined", nil, max(sentAt, m.w.now-1)
			for _, j := range r.Members {
				x.members = append(x.members, j.MemberID)
			}
			m.w.tell("%s has joined generation %d, with %v", x.id, x.at, x.members)
		}
	})
}

// sync asks for the assignment; the leader makes it, by its own name.
func (m *simMembers) sync(x *simMember) {
	q := &SyncRequest{Group: x.group, MemberID: x.id, Generation: x.at}
	for i, id := range x.members {
		text := fmt.Sprintf("%s.%d.%d:", x.id, x.at, x.joined)
		for p := range 4 {
			if p%len(x.members) == i {
				text += fmt.Sprint(p)
			}
		}
		data := []byte(text)
		if x.mixed {
			data = mixedAssignment(text)
		}
		q.Assignments = append(q.Assignments, Assignment{MemberID: id, Data: data})
	}
	generation := x.at
	m.ask(x, q, func(result any, err error) {
		if err != nil {
			m.troubled(x, err)
			return
		}
		data := string(result.(*SyncResult).Assignment)
		if x.mixed {
			data = mixedText(m.w, []byte(data))
		}
		token, partitions, _ := strings.Cut(data, ":")
		at := [2]string{x.group, fmt.Sprint(generation)}
		if was := m.tokens[at]; was != "" && token != "" && was != token {
			m.w.fail("generation %d of %s was assigned by %s and by %s", generation, x.group, was, token)
		}
		m.tokens[at] = token
		x.state, x.owns = "stable", map[int32]bool{}
		for _, p := range partitions {
			x.owns[p-'0'] = true
		}
		m.regulars++
		m.w.tell("%s has %q in generation %d", x.id, partitions, generation)
	})
}

// beat is all that a member of a consumer group says.
func (m *simMembers) beat(x *simMember) {
	if x.id != "" && x.state == "stable" && m.w.rng.IntN(4) == 0 {
		m.commit(x)
		return
	}
	if x.id == "" {
		x.id, x.at, x.owns, x.state = fmt.Sprintf("m%d-%d", slices.Index(m.list, x), x.joined), joinEpoch, nil, ""
	}
	q := &ConsumerHeartbeatRequest{Group: x.group, MemberID: x.id, MemberEpoch: x.at, RebalanceMillis: -1, NamesItself: true}
	if m.w.one(30) {
		x.topics = [][]string{{"t"}, {"t", "u"}, {"u"}}[m.w.rng.IntN(3)]
		x.full = true
	}
	if x.at == joinEpoch || x.full || m.w.rng.IntN(3) == 0 {
		q.RebalanceMillis, q.Topics, q.Owned = simRebalance, x.topics, []TopicPartitions{}
		if x.at != joinEpoch && len(x.owns) > 0 {
			q.Owned = []TopicPartitions{{Topic: testTopicID("t"), Partitions: slices.Sorted(keysOf(x.owns))}}
		}
	}
	m.ask(x, q, func(result any, err error) {
		if err != nil {
			m.troubled(x, err)
			return
		}
		r := result.(*ConsumerHeartbeatResult)
		x.moves(r.MemberEpoch)
		x.state, x.full = "stable", true // it says at once what it owns
		if !r.HasAssignment {
			return
		}
		x.owns = map[int32]bool{}
		for _, t := range r.Assigned {
			for _, p := range t.Partitions {
				if t.Topic == testTopicID("t") {
					x.owns[p] = true
				}
			}
		}
		m.consumers++
		m.w.tell("%s has %v in epoch %d", x.id, slices.Sorted(keysOf(x.owns)), x.at)
	})
}

// commit commits an offset of a partition: its own, or one that it had once.
func (m *simMembers) commit(x *simMember) {
	p := int32(m.w.rng.IntN(4))
	m.value++
	value := m.value
	q := &CommitRequest{Group: x.group, MemberID: x.id, Generation: x.at, RetentionMillis: -1, NamesGroup: true, Partitions: []CommitPartition{{
		Topic: "t", ID: testTopicID("t"), Partition: p, Offset: value, LeaderEpoch: NoEpoch}}}
	if !x.owns[p] {
		return // a client commits what it has read, be it its own no more
	}
	m.commits++
	owned := m.owner(x.group, p)
	m.ask(x, q, func(result any, err error) {
		if err == nil {
			err = result.(*CommitResult).Errs[0]
		}
		if err != nil {
			m.troubled(x, err)
			return
		}
		m.accepted++
		if owned != nil && owned != x {
			m.w.fail("%s commits t/%d, which %s owns", x.id, p, owned.id)
		}
		if got := m.w.logged(x.group, p, value); !got {
			m.w.fail("the commit of %d by %s is acknowledged and not in the log", value, x.id)
		}
	})
}

// late sends what was on its way since the generation or epoch before, in which the member is no more.
func (m *simMembers) late(x *simMember) {
	if !x.classic && m.w.rng.IntN(2) == 0 {
		q := &ConsumerHeartbeatRequest{Group: x.group, MemberID: x.id, MemberEpoch: x.late.at, RebalanceMillis: -1, NamesItself: true}
		at := x.at
		m.w.request(simGroups, q, func(_ any, err error) {
			if err == nil {
				m.w.fail("%s is in epoch %d, and its heartbeat of epoch %d is taken", q.MemberID, at, q.MemberEpoch)
			}
		})
		return
	}
	m.value++
	p := int32(m.w.rng.IntN(4))
	q := &CommitRequest{Group: x.group, MemberID: x.id, Generation: x.late.at, RetentionMillis: -1, NamesGroup: true, Partitions: []CommitPartition{{
		Topic: "t", ID: testTopicID("t"), Partition: p, Offset: m.value, LeaderEpoch: NoEpoch}}}
	at := x.at
	m.lates++
	m.w.request(simGroups, q, func(result any, err error) {
		if err != nil || result.(*CommitResult).Errs[0] != nil {
			return
		}
		if !m.mayHave(q, p) {
			m.w.fail("%s is in %d, and its commit of %d for t/%d is taken", q.MemberID, at, q.Generation, p)
		}
	})
}

// mayHave says whether a commit was to be taken: of the generation that the group is in, a rebalance that was never written down
// having ended with its broker; or of a member of the consumer group that has had the partition since the epoch that it names.
func (m *simMembers) mayHave(q *CommitRequest, p int32) bool {
	c, ok := m.w.shards[m.w.logs[simGroups].leader][simGroups].core.(*core)
	if !ok || c.groups[q.Group] == nil {
		return false
	}
	g := c.groups[q.Group]
	if g.consumer == nil {
		return g.generation == q.Generation
	}
	x := g.consumer.members[q.MemberID]
	if x == nil {
		return false
	}
	for _, had := range []assignment{x.assigned, x.revoking} {
		if since, ok := had[tp{testTopicID("t"), p}]; ok && since <= q.Generation {
			return true
		}
	}
	return x.epoch == q.Generation
}

// logged says whether a commit is in what is committed of the log.
func (w *simWorld) logged(group string, p int32, value int64) bool {
	r := &w.members.read
	if err := r.take(w.logs[simGroups].committed); err != nil {
		w.fail("the log cannot be read: %v", err)
	}
	return r.offsets[[2]string{group, fmt.Sprint("t/", p)}].value >= value
}

// owner is the member that has reason to think a partition its own.
func (m *simMembers) owner(group string, p int32) *simMember {
	for _, x := range m.list {
		if x.group == group && x.state == "stable" && x.owns[p] && x.believes(m.w.now) {
			return x
		}
	}
	return nil
}

// check: nobody thinks a partition its own that another one rightly does.
func (m *simMembers) check() {
	type place struct {
		group string
		p     int32
	}
	owner := map[place]*simMember{}
	for _, x := range m.list {
		if x.state != "stable" || !x.believes(m.w.now) {
			continue
		}
		for p := range x.owns {
			at := place{x.group, p}
			if o := owner[at]; o != nil {
				m.w.fail("t/%d of %s is owned by %s in %d and by %s in %d", p, x.group, o.id, o.at, x.id, x.at)
			}
			owner[at] = x
		}
	}
}

// settled: once everything has had its time, every partition has an owner.
func (m *simMembers) settled() string {
	groups := map[string]bool{}
	for _, x := range m.list {
		groups[x.group] = true
	}
	for _, group := range slices.Sorted(keysOf(groups)) {
		for p := range int32(4) {
			if m.owner(group, p) == nil {
				return fmt.Sprintf("nobody owns t/%d of the group %s", p, group)
			}
		}
	}
	for _, producers := range m.read.pending {
		if len(producers) > 0 {
			return "an offset waits for the end of its transaction for ever"
		}
	}
	return ""
}

// mixedAssignment is an assignment as consumers write it: a group whose assignments say more cannot change its protocol.
func mixedAssignment(text string) []byte {
	_, partitions, _ := strings.Cut(text, ":")
	var a kmsg.ConsumerMemberAssignment
	t := kmsg.ConsumerMemberAssignmentTopic{Topic: "t"}
	for _, p := range partitions {
		t.Partitions = append(t.Partitions, p-'0')
	}
	if len(t.Partitions) > 0 {
		a.Topics = append(a.Topics, t)
	}
	return a.AppendTo(nil)
}

func mixedText(w *simWorld, data []byte) string {
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(data); err != nil {
		w.fail("an assignment cannot be read: %x: %v", data, err)
	}
	text := ":" // an empty group that changes its protocol counts from the beginning: generations have no name
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			text += fmt.Sprint(p)
		}
	}
	return text
}
