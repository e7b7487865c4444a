package coordinator

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// streamsWorld is an application whose threads do what Kafka Streams does, late and repeatedly.
type streamsWorld struct {
	t        *rapid.T
	cfg      Config
	core     *core
	now      int64
	images   uint64
	ticket   uint64
	log      []record
	peers    map[string]*streamsPeer
	topology *Topology
	calm     bool // no answer gets lost any more
}

// streamsPeer is what a thread knows.
type streamsPeer struct {
	id, process string
	instance    *string
	epoch       int32
	owned       OwnedTasks
}

func (w *streamsWorld) send(q *StreamsHeartbeatRequest) (x *StreamsHeartbeatResult, err error) {
	w.ticket++
	w.core.step(event{ticket: w.ticket, body: q}, w.now)
	out := w.core.take()
	w.log = append(w.log, out.records...)
	for _, r := range out.replies {
		if r.ticket == w.ticket {
			x, err = r.result.(*StreamsHeartbeatResult), r.err
		}
	}
	return x, err
}

// beat sends a heartbeat, with what the peer has when full.
func (w *streamsWorld) beat(p *streamsPeer, full bool) {
	q := &StreamsHeartbeatRequest{Group: "g", MemberID: p.id, MemberEpoch: p.epoch, InstanceID: p.instance, RebalanceMillis: -1}
	if p.epoch == joinEpoch {
		p.owned = OwnedTasks{Active: []Tasks{}, Standby: []Tasks{}, Warmup: []Tasks{}}
		q.RebalanceMillis, q.Topology, q.ProcessID = 10_000, w.topology, &p.process
		full = true
	}
	if full {
		q.Owned = p.owned
	}
	x, err := w.send(q)
	switch {
	case err != nil:
		p.epoch = joinEpoch
		return
	case !w.calm && rapid.IntRange(0, 9).Draw(w.t, "answer lost") == 0:
		return
	}
	p.epoch = x.MemberEpoch
	if x.HasAssignment {
		p.owned = OwnedTasks{x.Active, x.Standby, x.Warmup}
	}
}

func (w *streamsWorld) group() *streamsGroup {
	if g := w.core.groups["g"]; g != nil {
		return g.streams
	}
	return nil
}

// checkPeers checks that no two threads that are members take the same task for active.
func (w *streamsWorld) checkPeers(g *streamsGroup) {
	active := map[task]string{}
	for _, p := range w.peers {
		if g.members[p.id] == nil || p.epoch == joinEpoch {
			continue // it is to give up everything
		}
		for x := range p.owned.sets().active {
			if other, ok := active[x]; ok {
				w.t.Fatalf("%v runs in %s and in %s", x, other, p.id)
			}
			active[x] = p.id
		}
	}
}

func (w *streamsWorld) reload() {
	view := w.core.view
	w.core = newCore(&w.cfg, w.now)
	w.core.setTopics(view)
	for _, r := range w.log {
		if err := w.core.replay(noProducer, r.key, r.value); err != nil {
			w.t.Fatal(err)
		}
	}
	w.core.loaded(w.now)
}

// change makes other topics: sources may be missing, internal topics may be there, with partitions that fit or not.
func (w *streamsWorld) change(all bool) {
	var list []string
	for _, name := range []string{"a", "b", "rep", "store"} {
		n := 4
		if !all {
			n = rapid.SampledFrom([]int{0, 3, 4, 4, 4}).Draw(w.t, "partitions of "+name)
		}
		if n > 0 {
			list = append(list, fmt.Sprintf("%s:%d", name, n))
		}
	}
	w.images++
	w.core.setTopics(w.core.view.next(testTopics(w.t, w.images, list...)))
}

func TestStreamsGroupsRunEveryTaskOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &streamsWorld{t: t, cfg: DefaultConfig(), peers: map[string]*streamsPeer{}}
		w.cfg.StreamsStandbys = int32(rapid.IntRange(0, 2).Draw(t, "standbys"))
		w.cfg.StreamsIntervalMillis = rapid.SampledFrom([]int32{0, 1000}).Draw(t, "interval")
		w.cfg.StreamsInitialDelayMillis = rapid.SampledFrom([]int32{0, 3000}).Draw(t, "delay")
		w.topology = &Topology{Subtopologies: []Subtopology{
			{ID: "0", Sources: []string{"a", "b"}, Sinks: []string{"rep"}, Copartition: []CopartitionGroup{{Sources: []int16{0, 1}}}},
			{ID: "1", Repartition: []InternalTopic{{Name: "rep"}}, Changelogs: []InternalTopic{{Name: "store"}}},
		}}
		w.core = newCore(&w.cfg, 0)
		w.change(false)
		pick := func() *streamsPeer {
			n := rapid.IntRange(0, 5).Draw(t, "member")
			id := fmt.Sprintf("m%d", n)
			p := w.peers[id]
			if p == nil {
				p = &streamsPeer{id: id, process: fmt.Sprintf("p%d", n%3)}
				if n == 5 {
					p.instance = &p.process
				}
				w.peers[id] = p
			}
			return p
		}
		leave := func(p *streamsPeer, epoch int32) {
			_, _ = w.send(&StreamsHeartbeatRequest{Group: "g", MemberID: p.id, MemberEpoch: epoch, InstanceID: p.instance, RebalanceMillis: -1})
			p.epoch = joinEpoch
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if g := w.group(); g != nil {
					checkStreamsGroup(t, g)
					w.checkPeers(g)
				}
			},
			"beat":  func(*rapid.T) { w.beat(pick(), rapid.Bool().Draw(t, "full")) },
			"leave": func(*rapid.T) { leave(pick(), leaveEpoch) },
			"leave for a while": func(*rapid.T) {
				if p := pick(); p.instance != nil {
					leave(p, leaveStaticEpoch)
				}
			},
			"time passes": func(*rapid.T) {
				w.now += int64(rapid.IntRange(0, 30_000).Draw(t, "ms"))
				w.core.tick(w.now)
				w.log = append(w.log, w.core.take().records...)
			},
			"topics change": func(*rapid.T) { w.change(false) },
			"reload":        func(*rapid.T) { w.reload() },
		})
		w.settle()
	})
}

// settle lets everybody speak until nothing changes; then everybody has its target, every task is with somebody, and what is read
// back is what there was.
func (w *streamsWorld) settle() {
	w.change(true)
	w.calm = true
	for range 24 { // longer than a session: a static member whose first answer was lost is let in when that ends
		w.now += 5000
		w.core.tick(w.now)
		w.log = append(w.log, w.core.take().records...)
		for _, p := range w.peers {
			w.beat(p, true)
		}
	}
	g := w.group()
	if g == nil || len(w.peers) == 0 {
		return
	}
	checkStreamsGroup(w.t, g)
	checkTaskTarget(w.t, g)
	if g.stateName() != "Stable" {
		w.t.Fatalf("the group is %s: %+v", g.stateName(), g.configured.problem)
	}
	for _, m := range g.list() {
		mine := m.assigned.lists()
		if want := g.target[m.id].lists(); fmt.Sprint(mine) != fmt.Sprint(want) || fmt.Sprint(w.peers[m.id].owned) != fmt.Sprint(want) {
			w.t.Fatalf("%s has %v and takes it for %v; its target is %v", m.id, mine, w.peers[m.id].owned, want)
		}
	}
	w.reload()
	after := w.group()
	if after.epoch != g.epoch || after.targetEpoch != g.targetEpoch || after.hash != g.hash || after.validated != g.validated ||
		after.assigned != g.assigned || fmt.Sprint(after.configs) != fmt.Sprint(g.configs) || !after.topology.same(g.topology) {
		w.t.Fatalf("read back, the group is %+v; it was %+v", after, g)
	}
	for id, m := range g.members {
		n := after.members[id]
		if n == nil || !n.described(m) || n.epoch != m.epoch || n.previous != m.previous || n.state != m.state || !n.assigned.same(m.assigned) ||
			!n.revoking.same(m.revoking) || !after.target[id].same(g.target[id]) {
			w.t.Fatalf("read back, %s is %+v; it was %+v", id, n, m)
		}
	}
	if len(after.members) != len(g.members) || len(after.static) != len(g.static) {
		w.t.Fatalf("read back, there are %d members; there were %d", len(after.members), len(g.members))
	}
}
