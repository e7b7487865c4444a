package coordinator

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/varvelog/varve/meta/topic"
)

// mixedWorld is one group whose clients speak either protocol, and change over, at any time. What must hold is said of what the
// clients believe: no two of them read the same partition.
type mixedWorld struct {
	t       *rapid.T
	cfg     Config
	core    *core
	now     int64
	ticket  uint64
	parked  map[uint64]func(reply)
	clients []*mixedClient
	parts   int32
	id      topic.ID
}

// mixedClient is what a client knows. It reads what it has as long as it is in the group.
type mixedClient struct {
	name        string
	classic     bool
	cooperative bool
	member      string
	epoch       int32 // or generation
	has         map[int32]bool
	step        mixedStep
	leads       []JoinedMember
}

type mixedStep int8

const (
	mixedOut  mixedStep = iota // is to join
	mixedWait                  // waits for the answer to a join or sync
	mixedSync                  // is to sync
	mixedIn                    // is in
)

func (w *mixedWorld) ask(body any, answered func(reply)) {
	w.ticket++
	w.parked[w.ticket] = answered
	w.core.step(event{ticket: w.ticket, newID: fmt.Sprint(w.ticket), body: body}, w.now)
	w.settle()
}

// settle hands out the answers that there are.
func (w *mixedWorld) settle() {
	for _, r := range w.core.take().replies {
		fn := w.parked[r.ticket]
		delete(w.parked, r.ticket)
		fn(r)
	}
}

// out has a client forget its membership, and with it what it reads.
func (c *mixedClient) out() {
	c.step, c.member, c.epoch = mixedOut, "", 0
	clear(c.has)
}

func (c *mixedClient) refused(err error) {
	switch {
	case errors.Is(err, ErrRebalancing): // it joins again with what it has
		c.step = mixedOut
	case errors.Is(err, ErrIllegalGeneration): // it has missed something, and joins again with nothing
		c.step, c.epoch = mixedOut, 0
		clear(c.has)
	default:
		c.out()
	}
}

func (c *mixedClient) protocol() string {
	if c.cooperative {
		return "cooperative-sticky"
	}
	return "range"
}

// act takes a client one step on.
func (w *mixedWorld) act(c *mixedClient) {
	switch {
	case !c.classic:
		w.beat(c)
	case c.step == mixedOut:
		w.join(c)
	case c.step == mixedSync:
		w.sync(c)
	case c.step == mixedIn:
		w.ask(&HeartbeatRequest{Group: "g", MemberID: c.member, Generation: c.epoch}, func(r reply) {
			if r.err != nil {
				c.refused(r.err)
			}
		})
	}
}

func (w *mixedWorld) join(c *mixedClient) {
	if !c.cooperative {
		clear(c.has) // eager: it gives up everything before it joins
	}
	c.step = mixedWait
	m := kmsg.ConsumerMemberMetadata{Version: 1, Topics: []string{"a"}}
	if len(c.has) > 0 {
		m.OwnedPartitions = []kmsg.ConsumerMemberMetadataOwnedPartition{{Topic: "a", Partitions: slices.Sorted(maps.Keys(c.has))}}
	}
	q := &JoinRequest{
		Group: "g", MemberID: c.member, ClientID: c.name, SessionMillis: 1_000_000, RebalanceMillis: 1_000_000, ProtocolType: consumerProtocol,
		NeedMemberID: true, Protocols: []Protocol{{Name: c.protocol(), Metadata: m.AppendTo(nil)}},
	}
	w.ask(q, func(r reply) {
		x := r.result.(*JoinResult)
		if r.err != nil {
			if errors.Is(r.err, ErrMemberIDRequired) {
				c.step, c.member = mixedOut, x.MemberID
				return
			}
			if errors.Is(r.err, ErrInconsistentProtocol) {
				w.t.Fatalf("%s cannot join: %v", c.name, r.err)
			}
			c.refused(r.err)
			return
		}
		c.step, c.member, c.epoch, c.leads = mixedSync, x.MemberID, x.Generation, nil
		if x.Leader == x.MemberID {
			c.leads = x.Members
		}
	})
}

// sync asks for what a client is to read; a leader assigns, round robin, cooperative ones in two steps.
func (w *mixedWorld) sync(c *mixedClient) {
	q := &SyncRequest{Group: "g", MemberID: c.member, Generation: c.epoch}
	if len(c.leads) > 0 {
		q.Assignments = w.assign(c.leads, c.cooperative)
	}
	c.step = mixedWait
	w.ask(q, func(r reply) {
		if r.err != nil {
			c.refused(r.err)
			return
		}
		var a kmsg.ConsumerMemberAssignment
		if err := a.ReadFrom(r.result.(*SyncResult).Assignment); err != nil {
			w.t.Fatalf("%s is assigned %x: %v", c.name, r.result.(*SyncResult).Assignment, err)
		}
		now := map[int32]bool{}
		for _, t := range a.Topics {
			for _, p := range t.Partitions {
				now[p] = true
			}
		}
		c.step = mixedIn
		for p := range c.has {
			if !now[p] && c.cooperative {
				c.step = mixedOut // what it gave up is for others: it joins again
			}
		}
		c.has = now
	})
}

func (w *mixedWorld) assign(members []JoinedMember, cooperative bool) (out []Assignment) {
	owner := map[int32]string{}
	lists := map[string][]int32{}
	for _, m := range members {
		var meta kmsg.ConsumerMemberMetadata
		if err := meta.ReadFrom(m.Metadata); err != nil {
			w.t.Fatal(err)
		}
		for _, o := range meta.OwnedPartitions {
			for _, p := range o.Partitions {
				if other, ok := owner[p]; ok {
					w.t.Fatalf("%d is owned by %s and by %s", p, other, m.MemberID)
				}
				owner[p] = m.MemberID
			}
		}
	}
	for p := range w.parts {
		to := members[int(p)%len(members)].MemberID
		if other, ok := owner[p]; cooperative && ok && other != to {
			continue // its owner gives it up first
		}
		lists[to] = append(lists[to], p)
	}
	for _, m := range members {
		a := kmsg.ConsumerMemberAssignment{}
		if len(lists[m.MemberID]) > 0 {
			a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "a", Partitions: lists[m.MemberID]}}
		}
		out = append(out, Assignment{MemberID: m.MemberID, Data: a.AppendTo(nil)})
	}
	return out
}

func (w *mixedWorld) beat(c *mixedClient) {
	q := &ConsumerHeartbeatRequest{Group: "g", MemberID: c.member, MemberEpoch: c.epoch, RebalanceMillis: -1, NamesItself: true}
	q.Owned = []TopicPartitions{}
	if c.step == mixedOut {
		if c.member == "" {
			c.member = fmt.Sprintf("%s-%d", c.name, w.ticket)
		}
		q.MemberID, q.MemberEpoch, q.RebalanceMillis, q.Topics = c.member, joinEpoch, 1_000_000, []string{"a"}
	} else if len(c.has) > 0 {
		q.Owned = []TopicPartitions{{Topic: w.id, Partitions: slices.Sorted(maps.Keys(c.has))}}
	}
	w.ask(q, func(r reply) {
		if r.err != nil {
			c.out()
			return
		}
		x := r.result.(*ConsumerHeartbeatResult)
		c.step, c.epoch = mixedIn, x.MemberEpoch
		if x.HasAssignment {
			clear(c.has)
			for _, t := range x.Assigned {
				for _, p := range t.Partitions {
					c.has[p] = true
				}
			}
		}
	})
}

// leave has a client leave, as a rolling restart does; it comes back speaking the protocol that it is given.
func (w *mixedWorld) leave(c *mixedClient, classic bool) {
	if c.step == mixedWait {
		return // its request is parked, and so is the client
	}
	switch {
	case c.member == "":
	case c.classic:
		w.ask(&LeaveRequest{Group: "g", Members: []LeavingMember{{MemberID: c.member}}}, func(reply) {})
	default:
		w.ask(&ConsumerHeartbeatRequest{Group: "g", MemberID: c.member, MemberEpoch: leaveEpoch, NamesItself: true}, func(reply) {})
	}
	c.out()
	c.classic = classic
}

func (w *mixedWorld) check() {
	owner := map[int32]string{}
	for _, c := range w.clients {
		for p := range c.has {
			if other, ok := owner[p]; ok {
				w.t.Fatalf("%s and %s both read %d", other, c.name, p)
			}
			owner[p] = c.name
		}
	}
	if g := w.core.groups["g"]; g != nil && g.consumer != nil {
		checkConsumerGroup(w.t, g.consumer)
	}
}

func TestNoPartitionIsReadTwiceWhileAGroupChangesProtocols(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &mixedWorld{t: t, cfg: testConfig(), parked: map[uint64]func(reply){}, parts: int32(rapid.IntRange(1, 6).Draw(t, "partitions"))}
		w.cfg.ConsumerSessionMillis = 1_000_000
		w.cfg.ConsumerAssignmentMillis = int32(rapid.SampledFrom([]int{0, 1000}).Draw(t, "interval"))
		w.cfg.Migration = migrationOf(rapid.SampledFrom([]string{"bidirectional", "upgrade"}).Draw(t, "policy"))
		w.core = newCore(&w.cfg, 0)
		w.core.setTopics(w.core.view.next(testTopics(t, 1, fmt.Sprintf("a:%d", w.parts))))
		w.id = testTopicID("a")
		cooperative := rapid.Bool().Draw(t, "cooperative")
		for i := range 3 {
			w.clients = append(w.clients, &mixedClient{name: fmt.Sprintf("c%d", i), classic: true, cooperative: cooperative, has: map[int32]bool{}})
		}
		pick := func() *mixedClient { return w.clients[rapid.IntRange(0, 2).Draw(t, "client")] }
		t.Repeat(map[string]func(*rapid.T){
			"":            func(*rapid.T) { w.check() },
			"act":         func(*rapid.T) { w.act(pick()) },
			"act again":   func(*rapid.T) { w.act(pick()) },
			"time passes": func(*rapid.T) { w.now += int64(rapid.IntRange(0, 500).Draw(t, "ms")); w.core.tick(w.now); w.settle() },
			"restart":     func(*rapid.T) { w.leave(pick(), rapid.Bool().Draw(t, "classic")) },
		})
		w.calm()
	})
}

// calm lets everybody act until nothing changes. Then everything is read by somebody.
func (w *mixedWorld) calm() {
	for range 40 {
		for _, c := range w.clients {
			w.act(c)
			w.check()
		}
		w.now += 1000
		w.core.tick(w.now)
		w.settle()
	}
	read := map[int32]bool{}
	for _, c := range w.clients {
		if c.step != mixedIn {
			w.t.Fatalf("%s is not in the group: %+v; %s", c.name, c, w.core.groups["g"].state)
		}
		maps.Copy(read, c.has)
	}
	if len(read) != int(w.parts) {
		w.t.Fatalf("of %d partitions %v are read; group %+v", w.parts, read, w.core.groups["g"].consumer)
	}
}
