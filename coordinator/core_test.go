package coordinator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
)

// script drives one core from a file of testdata/core. Each command is an event or lets time pass; its output is what the
// core did: replies by ticket, and records.
//
//	config NAME=VALUE…                     before the first event
//	join|sync|heartbeat|leave|commit|fetch|describe|list|delete|delete-offsets|topic-gone  NAME=VALUE…
//	commit pid=N epoch=N … [guard=ENDS] is part of a transaction, end-marker pid=N epoch=N do=commit|abort ends it
//	topics NAME:PARTITIONS,…               what topics there are from now on
//	beat id=ID [epoch=N] [topics=a,b] [regex=RE] [owned=a/0,a/1|none] [instance=I] [assignor=A] [rebalance=MS] [v=0]   ConsumerGroupHeartbeat
//	describe-consumer
//	topology …, streams …, describe-streams  see streams_test.go
//	advance MILLIS                         fires what is due, in steps
//	reload                                 a new core from the records so far
//	join owned=T/P,…                       the member says what it has; sync assign=ID:T/P+T/P,… encodes assignments
//	config interval=MS consumers=N migration=POLICY   of groups of the consumer protocol
//	state                                  groups and deadlines
//
// Of share groups, what the share coordinator does comes back by commands of its own:
//
//	share-beat id=ID [epoch=N] [topics=a,b] [rack=R]   ShareGroupHeartbeat
//	share-begun | share-failed                         what was last to be begun is, or could not be
//	share-alter topic=T p=N at=OFFSET | share-delete-offsets topic=T | share-forgotten topic=T [all=yes] | shares | describe-share
type script struct {
	t       *testing.T
	cfg     Config
	core    *core
	now     int64
	ticket  uint64
	ids     int
	records []record
	open    map[uint64]bool
	images  uint64

	topologies map[string]*Topology
	begins     []ShareInitialize // what the share coordinator was last told to begin
}

const scriptStart = 1_000_000

func newScript(t *testing.T) *script {
	s := &script{t: t, cfg: testConfig(), now: scriptStart, open: map[uint64]bool{}}
	return s
}

func TestCoreScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/core", func(t *testing.T, path string) {
		s := newScript(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(d) })
	})
}

func (s *script) run(d *datadriven.TestData) string {
	if d.Cmd == "topology" {
		s.topology(d)
		return ""
	}
	if d.Cmd == "config" {
		for _, a := range d.CmdArgs {
			n, _ := strconv.ParseInt(a.Vals[0], 10, 64)
			switch a.Key {
			case "delay":
				s.cfg.InitialRebalanceMillis = int32(n)
			case "size":
				s.cfg.GroupSizeMax = int32(n)
			case "batch":
				s.cfg.BatchBytesMax = int(n)
			case "streams-delay":
				s.cfg.StreamsInitialDelayMillis = int32(n)
			case "streams-interval":
				s.cfg.StreamsIntervalMillis = int32(n)
			case "streams-size":
				s.cfg.StreamsSizeMax = int32(n)
			case "share-size":
				s.cfg.ShareSizeMax = int32(n)
			case "standbys":
				s.cfg.StreamsStandbys = int32(n)
			case "tags":
				s.cfg.StreamsRackTags = a.Vals
			case "retention":
				s.cfg.OffsetsRetentionMillis = n
			case "interval":
				s.cfg.ConsumerAssignmentMillis = int32(n)
			case "consumers":
				s.cfg.ConsumerSizeMax = int32(n)
			case "migration":
				s.cfg.Migration = migrationOf(a.Vals[0])
			case "check":
				s.cfg.OffsetsRetentionCheckMillis = n
			default:
				d.Fatalf(s.t, "config %s", a.Key)
			}
		}
		return ""
	}
	if s.core == nil {
		s.core = newCore(&s.cfg, s.now)
	}
	switch d.Cmd {
	case "topics":
		s.topics(d)
		return ""
	case "advance":
		n, err := strconv.ParseInt(d.CmdArgs[0].Key, 10, 64)
		if err != nil {
			d.Fatalf(s.t, "%v", err)
		}
		return s.advance(n)
	case "reload":
		view := s.core.view
		s.core = newCore(&s.cfg, s.now)
		s.core.setTopics(view)
		for _, r := range s.records {
			producer := noProducer
			if r.txn != nil {
				producer = r.txn.ID
			}
			if r.end != nil {
				s.core.replayMarker(producer, r.end.Type == batch.Commit)
			} else if err := s.core.replay(producer, r.key, r.value); err != nil {
				d.Fatalf(s.t, "%v", err)
			}
		}
		s.core.loaded(s.now)
		s.open = map[uint64]bool{}
		return s.effects() + s.state()
	case "state":
		return s.state()
	}
	s.ticket++
	s.ids++
	s.open[s.ticket] = true
	s.core.step(event{ticket: s.ticket, newID: fmt.Sprint(s.ids), body: s.named(s.parse(d))}, s.now)
	out := s.effects()
	if s.open[s.ticket] {
		out += fmt.Sprintf("%d waits\n", s.ticket)
	}
	return out
}

// advance lets time pass, from deadline to deadline.
func (s *script) advance(millis int64) (out string) {
	s.now, out = advanceMachine(s.core, s.now, millis, s.effects)
	return out
}

// advanceMachine lets time pass for a machine, from deadline to deadline, and gives the time then and what happened.
func advanceMachine(m machine, now, millis int64, effects func() string) (then int64, text string) {
	var out strings.Builder
	end := now + millis
	for {
		at, ok := m.deadline()
		if !ok || at > end {
			return end, out.String()
		}
		now = max(now, at)
		m.tick(now)
		if e := effects(); e != "" {
			fmt.Fprintf(&out, "at +%d\n%s", now-scriptStart, e)
		}
	}
}

// args reads a command's NAME=VALUE arguments.
type args map[string]string

func (a args) int(name string, otherwise int64) int64 {
	if v, ok := a[name]; ok {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	return otherwise
}

func (a args) pointer(name string) *string {
	if v, ok := a[name]; ok {
		return &v
	}
	return nil
}

func (a args) or(name, otherwise string) string {
	if v, ok := a[name]; ok {
		return v
	}
	return otherwise
}

// producer is the one whose transaction the command belongs to; nil: none.
func (a args) producer() *Producer {
	if _, ok := a["pid"]; !ok {
		return nil
	}
	return &Producer{ID: a.int("pid", 0), Epoch: int16(a.int("epoch", 0))}
}

// parse makes a request of a command.
func (s *script) parse(d *datadriven.TestData) any {
	if d.Cmd == "streams" {
		return s.streams(d)
	}
	return parse(s.t, d)
}

// parse makes a request of a command that needs nothing of the script.
func parse(t *testing.T, d *datadriven.TestData) any {
	a := args{}
	for _, x := range d.CmdArgs {
		a[x.Key] = strings.Join(x.Vals, ",")
	}
	g := a.or("g", "g")
	switch d.Cmd {
	case "join":
		q := &JoinRequest{
			Group: g, MemberID: a["id"], InstanceID: a.pointer("instance"), ClientID: a.or("client", "c"), ClientHost: "/127.0.0.1",
			SessionMillis: int32(a.int("session", 10_000)), RebalanceMillis: int32(a.int("rebalance", 30_000)),
			ProtocolType: a.or("type", consumerProtocol),
			NeedMemberID: a.int("v", 3) >= 4, MaySkipAssignment: a.int("v", 3) >= 9,
		}
		for _, p := range strings.Fields(strings.ReplaceAll(a.or("protocols", "range:t"), ",", " ")) {
			name, topics, _ := strings.Cut(p, ":")
			meta := kmsg.ConsumerMemberMetadata{Topics: strings.Split(topics, "+"), Version: 1}
			for _, o := range encodable(strings.Split(a["owned"], ",")) {
				meta.OwnedPartitions = append(meta.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition(o))
			}
			q.Protocols = append(q.Protocols, Protocol{Name: name, Metadata: meta.AppendTo(nil)})
		}
		return q
	case "sync":
		q := &SyncRequest{
			Group: g, MemberID: a["id"], InstanceID: a.pointer("instance"), Generation: int32(a.int("gen", 0)),
			ProtocolType: a.pointer("type"), Protocol: a.pointer("protocol"),
		}
		for _, x := range strings.Fields(strings.ReplaceAll(a["assign"], ",", " ")) {
			id, data, _ := strings.Cut(x, ":")
			x := Assignment{MemberID: id, Data: []byte(data)}
			if topics := encodable(strings.Split(data, "+")); topics != nil {
				x.Data = (&kmsg.ConsumerMemberAssignment{Topics: topics}).AppendTo(nil)
			}
			q.Assignments = append(q.Assignments, x)
		}
		return q
	case "heartbeat":
		return &HeartbeatRequest{Group: g, MemberID: a["id"], InstanceID: a.pointer("instance"), Generation: int32(a.int("gen", 0))}
	case "leave":
		q := &LeaveRequest{Group: g}
		for _, id := range strings.Fields(strings.ReplaceAll(a["ids"], ",", " ")) {
			q.Members = append(q.Members, LeavingMember{MemberID: id, InstanceID: a.pointer("instance")})
		}
		if len(q.Members) == 0 {
			q.Members = []LeavingMember{{InstanceID: a.pointer("instance")}}
		}
		return q
	case "end-marker":
		return &EndMarker{Producer: *a.producer(), Commit: a["do"] == "commit", CoordinatorEpoch: 3}
	case "commit":
		return &CommitRequest{
			Producer: a.producer(), Group: g, MemberID: a["id"], InstanceID: a.pointer("instance"), Generation: int32(a.int("gen", -1)),
			RetentionMillis: a.int("retention", -1), NamesGroup: a.int("v", 8) >= 9,
			Guarded: a["guard"] != "", Guard: uint64(a.int("guard", 0)),
			Partitions: []CommitPartition{{
				Topic: a.or("topic", "t"), ID: topic.ID{15: byte(a.int("topic-id", 0))}, Partition: int32(a.int("p", 0)),
				Offset: a.int("at", 0), LeaderEpoch: 7, Metadata: strings.Repeat("m", int(a.int("metadata", 1))),
			}},
		}
	case "fetch":
		return &FetchOffsetsRequest{
			MemberID: a.pointer("id"), MemberEpoch: int32(a.int("epoch", 0)), RequireStable: a["stable"] != "", Group: g, All: a["topic"] == "",
			Partitions: []OffsetPartition{{Topic: a["topic"], ID: topic.ID{15: byte(a.int("topic-id", 0))}, Partition: int32(a.int("p", 0))}},
		}
	case "delete-offsets":
		return &DeleteOffsetsRequest{Group: g, Partitions: []OffsetPartition{{Topic: a.or("topic", "t"), Partition: int32(a.int("p", 0))}}}
	case "describe":
		return describe{g}
	case "delete":
		return remove{g}
	case "list":
		return list{}
	case "beat":
		q := &ConsumerHeartbeatRequest{
			Group: g, MemberID: a["id"], MemberEpoch: int32(a.int("epoch", 0)), InstanceID: a.pointer("instance"), RackID: a.pointer("rack"),
			ClientID: "c", ClientHost: "/127.0.0.1", RebalanceMillis: int32(a.int("rebalance", -1)), Regex: a.pointer("regex"),
			Assignor: a.pointer("assignor"), NamesItself: a.int("v", 1) >= 1,
		}
		if q.MemberEpoch == joinEpoch && a["rebalance"] == "" {
			q.RebalanceMillis = 60_000
		}
		if v, ok := a["topics"]; ok {
			q.Topics = strings.Split(v, ",")
		}
		if owned, ok := a["owned"]; ok || q.MemberEpoch == joinEpoch {
			q.Owned = []TopicPartitions{}
			for _, p := range strings.FieldsFunc(owned, func(r rune) bool { return r == ',' }) {
				name, n, found := strings.Cut(p, "/")
				if !found {
					continue // none
				}
				var index int32
				fmt.Sscan(n, &index)
				q.Owned = append(q.Owned, TopicPartitions{Name: name, Partitions: []int32{index}})
			}
		}
		return q
	case "describe-consumer":
		return describeConsumer{g}
	case "describe-streams":
		return describeStreams{g}
	case "share-beat", "describe-share", "share-begun", "share-failed", "shares", "share-alter", "share-delete-offsets", "share-forgotten":
		return shareBody(g, d.Cmd, a)
	case "topic-gone":
		return topicGone{topic: a["topic"], id: testTopicID(a["topic"]), keep: topic.ID{15: byte(a.int("keep", 0))}}
	}
	d.Fatalf(t, "unknown command")
	return nil
}

// effects prints what the core has done, and checks that no ticket is answered twice.
func (s *script) effects() string {
	var out strings.Builder
	e := s.core.take()
	s.records = append(s.records, e.records...)
	for _, r := range e.records {
		fmt.Fprintln(&out, "write", showRecord(r))
	}
	for _, begin := range e.begins {
		fmt.Fprintln(&out, "begin"+showBegin(begin))
		s.begins = begin
	}
	for _, r := range e.replies {
		if !s.open[r.ticket] {
			s.t.Fatalf("ticket %d is answered twice, or was never given", r.ticket)
		}
		delete(s.open, r.ticket)
		fmt.Fprintf(&out, "%d: %s\n", r.ticket, showReply(r))
	}
	return out.String()
}

func text(p *string) string {
	if p == nil {
		return "-"
	}
	return *p
}

func showErr(err error) string {
	return strings.TrimPrefix(err.Error(), "coordinator: ")
}

func showReply(r reply) string {
	out := "ok"
	if r.err != nil {
		out = showErr(r.err)
	}
	errs := func(list []error) {
		for _, err := range list {
			if err == nil {
				out += " [ok]"
			} else {
				out += " [" + showErr(err) + "]"
			}
		}
	}
	switch x := r.result.(type) {
	case *JoinResult:
		out += fmt.Sprintf(" member=%s", x.MemberID)
		if r.err == nil {
			out += fmt.Sprintf(" gen=%d type=%s protocol=%s leader=%s", x.Generation, text(x.ProtocolType), text(x.Protocol), x.Leader)
		}
		for _, m := range x.Members {
			out += fmt.Sprintf(" {%s instance=%s %s}", m.MemberID, text(m.InstanceID), showMetadata(m.Metadata))
		}
		if x.SkipAssignment {
			out += " skip-assignment"
		}
	case *SyncResult:
		if r.err == nil {
			out += fmt.Sprintf(" type=%s protocol=%s %s", text(x.ProtocolType), text(x.Protocol), showAssignment(x.Assignment))
		}
	case *LeaveResult:
		errs(x.Errs)
	case *CommitResult:
		errs(x.Errs)
	case *DeleteOffsetsResult:
		errs(x.Errs)
	case []CommittedOffset:
		for _, o := range x {
			out += fmt.Sprintf(" %s/%d=%d", o.Topic, o.Partition, o.Offset)
			if o.Err != nil {
				out += " (" + showErr(o.Err) + ")"
			}
		}
	case *Description:
		out += fmt.Sprintf(" %s type=%q protocol=%q", x.State, x.ProtocolType, x.Protocol)
		for _, m := range x.Members {
			out += fmt.Sprintf(" {%s instance=%s client=%s host=%s %s %s}", m.MemberID, text(m.InstanceID), m.ClientID, m.ClientHost,
				showMetadata(m.Metadata), showAssignment(m.Assignment))
		}
	case []Listed:
		for _, l := range x {
			out += fmt.Sprintf(" %s(%s,%q)", l.Group, l.State, l.ProtocolType)
		}
	case *ShareHeartbeatResult:
		out += fmt.Sprintf(" %s epoch=%d", x.MemberID, x.MemberEpoch)
		if x.HasAssignment {
			out += " reads" + showTopics(x.Assigned)
		}
		out += showSoon(x.HeartbeatMillis)
	case *ShareDescription, []ShareKey, *alteredShares, *deletedShares, *doomedShares:
		out += showShareAnswer(x)
	case *ConsumerHeartbeatResult:
		out += fmt.Sprintf(" %s epoch=%d", x.MemberID, x.MemberEpoch)
		if x.HasAssignment {
			out += " reads" + showTopics(x.Assigned)
		}
		out += showSoon(x.HeartbeatMillis)
	case *StreamsHeartbeatResult:
		out += showStreamsResult(x, r.err)
	case *StreamsDescription:
		out += showStreamsDescription(x)
	case *ConsumerDescription:
		out += fmt.Sprintf(" %s epoch=%d/%d assignor=%s", x.State, x.Epoch, x.AssignmentEpoch, x.Assignor)
		for _, m := range x.Members {
			out += fmt.Sprintf(" {%s%s epoch=%d topics=%v regex=%s has%s of%s}", m.MemberID, map[bool]string{true: " classic"}[m.Classic], m.Epoch, m.Topics, text(m.Regex), showTopics(m.Assigned), showTopics(m.Target))
		}
	}
	return out
}

// encodable reads partitions, each TOPIC/PARTITION; nil if that is not what they are.
func encodable(list []string) (out []kmsg.ConsumerMemberAssignmentTopic) {
	for _, x := range list {
		name, n, ok := strings.Cut(x, "/")
		if !ok {
			return nil
		}
		index, err := strconv.ParseInt(n, 10, 32)
		if err != nil {
			return nil
		}
		if at := len(out) - 1; at >= 0 && out[at].Topic == name {
			out[at].Partitions = append(out[at].Partitions, int32(index))
		} else {
			out = append(out, kmsg.ConsumerMemberAssignmentTopic{Topic: name, Partitions: []int32{int32(index)}})
		}
	}
	return out
}

func showAssignment(b []byte) string {
	var a kmsg.ConsumerMemberAssignment
	if len(b) == 0 || a.ReadFrom(b) != nil {
		return fmt.Sprintf("assignment=%q", b)
	}
	out := fmt.Sprintf("reads(v%d)", a.Version)
	for _, t := range a.Topics {
		for _, p := range t.Partitions {
			out += fmt.Sprintf(" %s/%d", t.Topic, p)
		}
	}
	if len(a.Topics) == 0 {
		out += " nothing"
	}
	return out
}

func showMetadata(b []byte) string {
	var m kmsg.ConsumerMemberMetadata
	if len(b) == 0 || m.ReadFrom(b) != nil {
		return fmt.Sprintf("metadata=%q", b)
	}
	return "topics=" + strings.Join(m.Topics, "+")
}

func showRecord(r record) string {
	if r.txn != nil {
		who := fmt.Sprintf("in %d/%d: ", r.txn.ID, r.txn.Epoch)
		if r.end != nil {
			return who + r.end.Type.String()
		}
		plain := r
		plain.txn = nil
		return who + showRecord(plain)
	}
	switch kind := int16(r.key[1]); {
	case kind >= keyStreamsGroup:
		return showStreamsRecord(r)
	case kind >= keyShareMember && kind <= keyShareTopics:
		return showShareGroupRecord(r)
	case kind >= keyConsumerGroup:
		return showConsumerRecord(r)
	}
	switch r.key[1] {
	case 1:
		var k kmsg.OffsetCommitKey
		if err := k.ReadFrom(r.key); err != nil {
			panic(err)
		}
		name := fmt.Sprintf("offset %s %s/%d", k.Group, k.Topic, k.Partition)
		if r.value == nil {
			return name + " tombstone"
		}
		var v kmsg.OffsetCommitValue
		if err := v.ReadFrom(r.value); err != nil {
			panic(err)
		}
		return fmt.Sprintf("%s=%d v%d epoch=%d committed=+%d", name, v.Offset, v.Version, v.LeaderEpoch, v.CommitTimestamp-scriptStart)
	default:
		var k kmsg.GroupMetadataKey
		if err := k.ReadFrom(r.key); err != nil {
			panic(err)
		}
		if r.value == nil {
			return "group " + k.Group + " tombstone"
		}
		var v kmsg.GroupMetadataValue
		if err := v.ReadFrom(r.value); err != nil {
			panic(err)
		}
		out := fmt.Sprintf("group %s v%d gen=%d type=%s protocol=%s leader=%s since=+%d", k.Group, v.Version, v.Generation, v.ProtocolType,
			text(v.Protocol), text(v.Leader), v.CurrentStateTimestamp-scriptStart)
		for _, m := range v.Members {
			out += fmt.Sprintf(" {%s instance=%s session=%d rebalance=%d %s %s}", m.MemberID, text(m.InstanceID),
				m.SessionTimeoutMillis, m.RebalanceTimeoutMillis, showMetadata(m.Subscription), showAssignment(m.Assignment))
		}
		return out
	}
}

// state prints the groups and the deadlines.
func (s *script) state() string {
	var out strings.Builder
	for _, id := range s.core.groupIDs() {
		g := s.core.groups[id]
		fmt.Fprintf(&out, "group %s %s gen=%d leader=%s members=%d pending=%d offsets=%d\n", id, g.state, g.generation, g.leader,
			len(g.members), len(g.pending), countOffsets(g))
	}
	list := slices.Clone(s.core.timers.heap)
	slices.SortFunc(list, func(a, b *timer) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return int(a.seq - b.seq)
	})
	for _, t := range list {
		if t.kind != timerRetention {
			fmt.Fprintf(&out, "timer %s %s +%d\n", [...]string{"session", "join", "sync", "retention", "revocation"}[t.kind], strings.TrimSpace(t.group+" "+t.member), t.at-scriptStart)
		}
	}
	return out.String()
}

func countOffsets(g *group) int {
	n := 0
	for _, of := range g.offsets {
		n += len(of)
	}
	return n
}

func TestSettingTheClockEndsNoSession(t *testing.T) {
	cfg := testConfig()
	c := newCore(&cfg, 0)
	const day = 24 * 60 * 60 * 1000
	c.skew = 20_000 * day // it is 2024
	join := &JoinRequest{
		Group: "g", ClientID: "c", SessionMillis: 10_000, RebalanceMillis: 600_000, ProtocolType: consumerProtocol,
		Protocols: []Protocol{{Name: "range"}},
	}
	c.step(event{ticket: 1, newID: "1", body: join}, 0)
	c.step(event{ticket: 2, body: &CommitRequest{Group: "h", Generation: NoGeneration, RetentionMillis: -1, Partitions: []CommitPartition{{Topic: "t"}}}}, 0)
	for _, skew := range []int64{c.skew + 3*day, c.skew - 3*day, 0} {
		c.skew = skew
		c.step(event{ticket: 3, body: &HeartbeatRequest{Group: "g", MemberID: "c-1", Generation: 1}}, c.now+4000)
		if e := c.take(); e.replies[len(e.replies)-1].err != nil {
			t.Fatalf("heartbeat: %v", e.replies[len(e.replies)-1].err)
		}
		c.tick(c.now + 5000)
	}
	if len(c.groups["g"].members) != 1 || len(c.groups["h"].offsets) != 1 {
		t.Errorf("groups %+v", c.groups)
	}
	// The age of offsets is a matter of the time of day.
	c.skew = 20_008 * day
	c.tick(c.now + cfg.OffsetsRetentionCheckMillis)
	if c.groups["h"] != nil {
		t.Errorf("offsets of eight days ago: %+v", c.groups["h"])
	}
}

// showSoon says when a member is to ask again, if that is not at its regular time.
func showSoon(millis int32) string {
	if millis == 0 || millis == DefaultConfig().ConsumerHeartbeatMillis {
		return ""
	}
	return fmt.Sprintf(" again in %d ms", millis)
}
