package coordinator

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// world drives one core with clients that do anything at any time, right or wrong, and checks after every step what must
// always hold.
type world struct {
	t       *rapid.T
	cfg     Config
	core    *core
	now     int64
	ticket  uint64
	ids     int
	open    map[uint64]any // requests not answered yet
	records []record

	members     map[string][]string // group → ids ever given out
	generations map[string]int32    // group → the highest seen
	committed   map[string]int64    // group/topic/partition → offset acknowledged last
}

var (
	worldGroups    = []string{"g", "h"}
	worldInstances = []string{"one", "two"}
	worldSets      = [][]string{{"range"}, {"range", "sticky"}, {"sticky", "range"}, {"sticky"}}
)

func newWorld(t *rapid.T) *world {
	w := &world{
		t: t, cfg: testConfig(), now: 1_000_000, open: map[uint64]any{}, members: map[string][]string{},
		generations: map[string]int32{}, committed: map[string]int64{},
	}
	w.cfg.InitialRebalanceMillis = rapid.SampledFrom([]int32{0, 3000}).Draw(t, "delay")
	w.cfg.GroupSizeMax = rapid.SampledFrom([]int32{2, 100}).Draw(t, "size")
	w.core = newCore(&w.cfg, w.now)
	return w
}

func (w *world) send(body any) {
	w.ticket++
	w.ids++
	w.open[w.ticket] = body
	w.core.step(event{ticket: w.ticket, newID: fmt.Sprint(w.ids), body: body}, w.now)
	w.settle()
}

// settle takes the effects, as a shard whose append was committed does.
func (w *world) settle() {
	e := w.core.take()
	w.records = append(w.records, e.records...)
	for _, r := range e.replies {
		q, ok := w.open[r.ticket]
		if !ok {
			w.t.Fatalf("ticket %d is answered twice, or was never given", r.ticket)
		}
		delete(w.open, r.ticket)
		w.answered(q, r)
	}
}

func (w *world) answered(q any, r reply) {
	switch q := q.(type) {
	case *JoinRequest:
		j := r.result.(*JoinResult)
		if j.MemberID != "" && !slices.Contains(w.members[q.Group], j.MemberID) {
			w.members[q.Group] = append(w.members[q.Group], j.MemberID)
		}
		if r.err != nil {
			return
		}
		if j.Generation < w.generations[q.Group] {
			w.t.Fatalf("group %s goes back from generation %d to %d", q.Group, w.generations[q.Group], j.Generation)
		}
		w.generations[q.Group] = j.Generation
		if len(j.Members) > 0 && j.Leader != j.MemberID {
			w.t.Fatalf("%s is given the members, and %s leads", j.MemberID, j.Leader)
		}
	case *CommitRequest:
		if c := r.result.(*CommitResult); r.err == nil && c.Errs[0] == nil {
			w.committed[fmt.Sprint(q.Group, q.Partitions[0].Partition)] = q.Partitions[0].Offset
		}
	case *FetchOffsetsRequest:
		got := r.result.([]CommittedOffset)[0]
		want, ok := w.committed[fmt.Sprint(q.Group, got.Partition)]
		if !ok {
			want = NoOffset
		}
		if got.Offset != want {
			w.t.Fatalf("group %s partition %d: fetched %d, committed %d", q.Group, got.Partition, got.Offset, want)
		}
	case remove:
		if r.err == nil {
			delete(w.generations, q.group)
			for p := range int32(2) {
				delete(w.committed, fmt.Sprint(q.group, p))
			}
		}
	}
}

func (w *world) group() string { return rapid.SampledFrom(worldGroups).Draw(w.t, "group") }

// id is a member's id, an old one, or nobody's.
func (w *world) id(group string) string {
	known := w.members[group]
	if g := w.core.groups[group]; g != nil && rapid.IntRange(0, 4).Draw(w.t, "odd id") > 0 {
		if now := slices.Sorted(maps.Keys(g.members)); len(now) > 0 {
			known = now
		}
	}
	return rapid.SampledFrom(append([]string{"nobody"}, known...)).Draw(w.t, "id")
}

// generation is mostly the right one.
func (w *world) generation(group string) int32 {
	n := int32(0)
	if g := w.core.groups[group]; g != nil {
		n = g.generation
	}
	return n - rapid.SampledFrom([]int32{0, 0, 0, 0, 1}).Draw(w.t, "stale")
}

func (w *world) instance() *string {
	if i := rapid.IntRange(0, 5).Draw(w.t, "instance"); i < len(worldInstances) {
		return &worldInstances[i]
	}
	return nil
}

func (w *world) join(id string, instance *string) {
	q := &JoinRequest{
		Group: w.group(), InstanceID: instance, ClientID: "c", ClientHost: "/127.0.0.1", ProtocolType: consumerProtocol,
		SessionMillis:     rapid.SampledFrom([]int32{6000, 20_000}).Draw(w.t, "session"),
		RebalanceMillis:   rapid.SampledFrom([]int32{5000, 30_000}).Draw(w.t, "rebalance"),
		NeedMemberID:      rapid.Bool().Draw(w.t, "need id"),
		MaySkipAssignment: rapid.Bool().Draw(w.t, "may skip"),
	}
	if id != "" {
		q.MemberID = w.id(q.Group)
	}
	for _, name := range rapid.SampledFrom(worldSets).Draw(w.t, "protocols") {
		q.Protocols = append(q.Protocols, Protocol{Name: name, Metadata: []byte{byte(rapid.IntRange(0, 1).Draw(w.t, "metadata"))}})
	}
	w.send(q)
}

func (w *world) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"join new":    func(*rapid.T) { w.join("", nil) },
		"join again":  func(*rapid.T) { w.join("known", nil) },
		"join static": func(*rapid.T) { w.join("", w.instance()) },
		"sync": func(*rapid.T) {
			g := w.group()
			q := &SyncRequest{Group: g, MemberID: w.id(g), Generation: w.generation(g)}
			if held := w.core.groups[g]; held != nil {
				for _, id := range slices.Sorted(maps.Keys(held.members)) {
					if rapid.Bool().Draw(w.t, "assigned") {
						q.Assignments = append(q.Assignments, Assignment{MemberID: id, Data: []byte(id)})
					}
				}
			}
			w.send(q)
		},
		"sync of the leader": func(*rapid.T) {
			g := w.group()
			if held := w.core.groups[g]; held != nil && held.leader != "" {
				w.send(&SyncRequest{Group: g, MemberID: held.leader, Generation: held.generation})
			}
		},
		"heartbeat": func(*rapid.T) {
			g := w.group()
			w.send(&HeartbeatRequest{Group: g, MemberID: w.id(g), Generation: w.generation(g)})
		},
		"leave": func(*rapid.T) {
			g := w.group()
			w.send(&LeaveRequest{Group: g, Members: []LeavingMember{{MemberID: w.id(g)}, {InstanceID: w.instance()}}})
		},
		"commit": func(*rapid.T) {
			g := w.group()
			q := &CommitRequest{Group: g, Generation: NoGeneration, RetentionMillis: -1, Partitions: []CommitPartition{{
				Topic: "t", Partition: rapid.Int32Range(0, 1).Draw(w.t, "partition"), Offset: rapid.Int64Range(0, 1000).Draw(w.t, "offset"),
			}}}
			if rapid.Bool().Draw(w.t, "as member") {
				q.MemberID, q.Generation = w.id(g), w.generation(g)
			}
			w.send(q)
		},
		"fetch": func(*rapid.T) {
			w.send(&FetchOffsetsRequest{Group: w.group(), Partitions: []OffsetPartition{{Topic: "t", Partition: rapid.Int32Range(0, 1).Draw(w.t, "partition")}}})
		},
		"delete": func(*rapid.T) { w.send(remove{w.group()}) },
		"time": func(*rapid.T) {
			w.now += rapid.Int64Range(1, 8000).Draw(w.t, "millis")
			w.core.tick(w.now)
			w.settle()
		},
		"restart": func(*rapid.T) { w.restart() },
		"":        func(*rapid.T) { w.check() },
	}
}

// restart reads the state back from the records. Requests that wait are lost with their connections.
func (w *world) restart() {
	before := w.core
	w.core = newCore(&w.cfg, w.now)
	for _, r := range w.records {
		if err := w.core.replay(noProducer, r.key, r.value); err != nil {
			w.t.Fatal(err)
		}
	}
	clear(w.open)
	for id, g := range before.groups {
		h := w.core.groups[id]
		if g.state == Stable || g.state == Empty && g.persisted {
			if h == nil || h.state != g.state || h.generation != g.generation || len(h.members) != len(g.members) || h.leader != g.leader {
				w.t.Fatalf("group %s was %s in generation %d, and is read back as %+v", id, g.state, g.generation, h)
			}
			for mid, m := range g.members {
				if n := h.members[mid]; n == nil || string(n.assignment) != string(m.assignment) {
					w.t.Fatalf("member %s is not read back as it was", mid)
				}
			}
		}
		if len(g.offsets) > 0 && (h == nil || !maps.EqualFunc(g.offsets, h.offsets, func(a, b map[int32]*offset) bool {
			return maps.EqualFunc(a, b, func(x, y *offset) bool { return x.offset == y.offset })
		})) {
			w.t.Fatalf("offsets of group %s are not read back as they were", id)
		}
		delete(w.generations, id) // a generation that nobody could write was never one
	}
	w.core.loaded(w.now)
	w.settle()
}

// check is what must hold between any two steps.
func (w *world) check() {
	for id, g := range w.core.groups {
		w.checkGroup(id, g)
	}
	if at, ok := w.core.deadline(); ok && at <= w.now && len(w.core.timers.heap) != len(w.core.timers.by) {
		w.t.Fatalf("timers: %d in the heap, %d by key", len(w.core.timers.heap), len(w.core.timers.by))
	}
}

func (w *world) checkGroup(id string, g *group) {
	fail := func(format string, args ...any) {
		w.t.Helper()
		w.t.Fatalf("group %s (%s, generation %d): %s", id, g.state, g.generation, fmt.Sprintf(format, args...))
	}
	awaiting, supported, static := 0, map[string]int{}, map[string]string{}
	for mid, m := range g.members {
		if m.id != mid {
			fail("member %s is filed under %s", m.id, mid)
		}
		if m.join != 0 {
			awaiting++
			if _, ok := w.open[m.join]; !ok {
				fail("member %s waits with ticket %d, which nobody holds", mid, m.join)
			}
		}
		if m.sync != 0 {
			if _, ok := w.open[m.sync]; !ok {
				fail("member %s waits with ticket %d, which nobody holds", mid, m.sync)
			}
			if g.state != CompletingRebalance {
				fail("member %s waits for an assignment", mid)
			}
		}
		for _, p := range m.protocols {
			supported[p.Name]++
		}
		if m.instance != nil {
			if static[*m.instance] != "" {
				fail("two members are instance %s", *m.instance)
			}
			static[*m.instance] = mid
		}
		if w.core.timers.by[timerKey{timerSession, id, mid}] == nil && !m.present() {
			fail("member %s would live for ever", mid)
		}
	}
	switch {
	case awaiting != g.awaiting:
		fail("%d members wait to join, %d are counted", awaiting, g.awaiting)
	case !maps.Equal(supported, g.supported):
		fail("protocols %v are counted as %v", supported, g.supported)
	case !maps.Equal(static, g.static):
		fail("instances %v are filed as %v", static, g.static)
	case len(g.members) > 0 && g.members[g.leader] == nil:
		fail("leader %q is no member", g.leader)
	case g.state == Empty && len(g.members) > 0:
		fail("it has members")
	case g.state != Empty && g.state != PreparingRebalance && len(g.members) == 0:
		fail("it has no members")
	case g.state == PreparingRebalance && w.core.timers.by[timerKey{kind: timerJoin, group: id}] == nil:
		fail("the join phase would not end")
	case g.state == CompletingRebalance && len(g.unsynced) > 0 && w.core.timers.by[timerKey{kind: timerSync, group: id}] == nil:
		fail("the sync phase would not end")
	case g.state != PreparingRebalance && awaiting > 0:
		fail("joins wait for nothing")
	}
	for mid := range g.unsynced {
		if g.members[mid] == nil {
			fail("the sync of %s is awaited, who is no member", mid)
		}
	}
	for mid, m := range g.members {
		if g.state == Stable && m.assignment == nil {
			fail("member %s has no assignment", mid)
		}
	}
}

func TestGroupsHoldTheirPromisesUnderAnyClients(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(w.actions())
		// Left alone, every request is answered.
		for len(w.open) > 0 {
			at, ok := w.core.deadline()
			if !ok || w.now > 3_000_000 {
				t.Fatalf("%d requests are never answered", len(w.open))
			}
			w.now = max(w.now, at)
			w.core.tick(w.now)
			w.settle()
			w.check()
		}
	})
}
