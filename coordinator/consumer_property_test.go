package coordinator

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// consumerWorld is a group of clients that do what clients of the protocol do, late and repeatedly.
type consumerWorld struct {
	t      *rapid.T
	cfg    Config
	core   *core
	now    int64
	images uint64
	ticket uint64
	log    []record
	peers  map[string]*consumerPeer
	topics []string
}

// consumerPeer is what a client knows.
type consumerPeer struct {
	id     string
	epoch  int32
	owned  []TopicPartitions // what it reads
	wanted []TopicPartitions // what it was told to
	topics []string
	regex  string
}

func (w *consumerWorld) beat(p *consumerPeer, full bool) (lost bool) {
	q := &ConsumerHeartbeatRequest{Group: "g", MemberID: p.id, MemberEpoch: p.epoch, RebalanceMillis: -1, NamesItself: true}
	if full || p.epoch == 0 {
		q.RebalanceMillis, q.Topics = 10_000, p.topics
		if q.Topics == nil {
			q.Topics = []string{}
		}
		if p.regex != "" {
			q.Regex = &p.regex
		}
		q.Owned = p.owned
		if q.Owned == nil {
			q.Owned = []TopicPartitions{}
		}
	}
	w.ticket++
	w.core.step(event{ticket: w.ticket, newID: fmt.Sprint(w.ticket), body: q}, w.now)
	out := w.core.take()
	w.log = append(w.log, out.records...)
	if rapid.IntRange(0, 9).Draw(w.t, "answer lost") == 0 {
		return true
	}
	for _, r := range out.replies {
		if r.ticket != w.ticket {
			continue
		}
		x := r.result.(*ConsumerHeartbeatResult)
		if r.err != nil {
			p.epoch, p.owned, p.wanted = 0, nil, nil
			return false
		}
		p.epoch = x.MemberEpoch
		if x.HasAssignment {
			p.wanted = x.Assigned
			// It gives up first what it is to give up, and says so with the next heartbeat.
			p.owned = x.Assigned
		}
	}
	return false
}

func (w *consumerWorld) check() {
	for _, id := range w.core.consumerIDs() {
		checkConsumerGroup(w.t, w.core.groups[id].consumer)
	}
}

// reload makes a new core of what is written.
func (w *consumerWorld) reload() {
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

func TestConsumerGroupsShareOutEveryPartitionOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &consumerWorld{t: t, cfg: DefaultConfig(), peers: map[string]*consumerPeer{}}
		w.core = newCore(&w.cfg, 0)
		change := func() {
			w.topics = nil
			for _, name := range []string{"a", "b", "ab"} {
				if n := rapid.IntRange(0, 5).Draw(t, "partitions of "+name); n > 0 {
					w.topics = append(w.topics, fmt.Sprintf("%s:%d", name, n))
				}
			}
			w.images++
			w.core.setTopics(w.core.view.next(testTopics(t, w.images, w.topics...)))
		}
		change()
		pick := func() *consumerPeer {
			id := fmt.Sprintf("m%d", rapid.IntRange(0, 4).Draw(t, "member"))
			p := w.peers[id]
			if p == nil {
				p = &consumerPeer{id: id}
				w.peers[id] = p
				switch rapid.IntRange(0, 3).Draw(t, "subscription") {
				case 0:
					p.topics = []string{"a"}
				case 1:
					p.regex = "a.*"
				default:
					p.topics = []string{"a", "b"}
				}
			}
			return p
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(*rapid.T) { w.check() },
			"beat": func(*rapid.T) {
				w.beat(pick(), rapid.Bool().Draw(t, "full"))
			},
			"leave": func(*rapid.T) {
				p := pick()
				w.ticket++
				w.core.step(event{ticket: w.ticket, body: &ConsumerHeartbeatRequest{Group: "g", MemberID: p.id, MemberEpoch: leaveEpoch, NamesItself: true}}, w.now)
				w.log = append(w.log, w.core.take().records...)
				p.epoch, p.owned = 0, nil
			},
			"time passes": func(*rapid.T) {
				w.now += int64(rapid.IntRange(0, 30_000).Draw(t, "ms"))
				w.core.tick(w.now)
				w.log = append(w.log, w.core.take().records...)
			},
			"topics change": func(*rapid.T) { change() },
			"reload":        func(*rapid.T) { w.reload() },
		})
		w.settle()
	})
}

// settle lets everybody speak until nothing changes; then everybody has its target, and the target is a fair one.
func (w *consumerWorld) settle() {
	for range 12 {
		w.now += int64(w.cfg.ConsumerAssignmentMillis) // they may have to wait for the next assignment
		for _, p := range w.peers {
			for w.beat(p, true) {
			}
		}
	}
	w.check()
	g := w.core.groups["g"]
	if len(w.peers) == 0 || g == nil || g.consumer == nil {
		return
	}
	checkTarget(w.t, g.consumer, w.core.view, false)
	for _, m := range g.consumer.list() {
		if m.state != memberStable || m.epoch != g.consumer.targetEpoch || !m.assigned.same(g.consumer.target[m.id]) {
			w.t.Fatalf("%s has %v in epoch %d and state %d, its target is %v in epoch %d", m.id, m.assigned.sorted(), m.epoch, m.state,
				g.consumer.target[m.id].sorted(), g.consumer.targetEpoch)
		}
	}
	before := g.consumer
	w.reload()
	after := w.core.groups["g"].consumer
	for id, m := range before.members {
		n := after.members[id]
		if n == nil || n.epoch != m.epoch || !n.assigned.same(m.assigned) || !after.target[id].same(before.target[id]) {
			w.t.Fatalf("read back, %s is %+v; it was %+v", id, n, m)
		}
	}
	if after.epoch != before.epoch || after.targetEpoch != before.targetEpoch {
		w.t.Fatalf("read back, the epochs are %d and %d; they were %d and %d", after.epoch, after.targetEpoch, before.epoch, before.targetEpoch)
	}
}
