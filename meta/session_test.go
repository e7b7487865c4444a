package meta

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"pgregory.net/rapid"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// sessionStory drives Sessions over an image. What they want is done at once,
// as the shell does it, unless the story says that the controller is deaf.
type sessionStory struct {
	script
	sessions *Sessions
	start    time.Time
}

func TestSessionStories(t *testing.T) {
	datadriven.Walk(t, "testdata/session", func(t *testing.T, path string) {
		s := &sessionStory{script: script{img: newImage()}, start: time.Now()}
		var err error
		if s.broker, err = conf.ParseBroker(nil); err != nil {
			t.Fatal(err)
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			s.tell(&out, d)
			return out.String()
		})
	})
}

func (s *sessionStory) at(d *datadriven.TestData) time.Time {
	return s.start.Add(time.Duration(argInt(d, "at", 0)) * time.Millisecond)
}

func (s *sessionStory) tell(out *strings.Builder, d *datadriven.TestData) {
	now, id := s.at(d), int32(argInt(d, "id", 0))
	epoch := argInt(d, "epoch", s.img.Brokers[id].Epoch)
	switch d.Cmd {
	case "register":
		r := Registration{ID: id, Host: "h", Port: int32(argInt(d, "port", 9000+int64(id))), Incarnation: topic.ID{byte(argInt(d, "incarnation", 1))}, Fenced: true}
		alive := s.sessions != nil && s.sessions.Alive(s.img, r, now)
		changes, err := decideRegister(s.img, &s.broker, r, alive)
		if err == nil {
			err = s.apply(changes)
		}
		if err != nil {
			fmt.Fprintf(out, "error: %s\n", describe(err))
		} else {
			fmt.Fprintf(out, "epoch %d\n", s.img.Brokers[id].Epoch)
		}
	case "controller":
		s.sessions = NewSessions(DefaultSessionConfig(id, 9*time.Second), s.img, now)
		s.step(out, SessionTick{}, now)
	case "tick":
		s.step(out, SessionTick{}, now)
	case "disconnect":
		s.step(out, SessionDisconnected{ID: id, Epoch: epoch}, now)
	case "probed":
		s.step(out, SessionProbed{ID: id, Epoch: epoch, Gone: d.HasArg("gone")}, now)
	case "heartbeat":
		h := Heartbeat{ID: id, Epoch: epoch, Index: uint64(argInt(d, "index", int64(s.img.Index))), WantFence: d.HasArg("want-fence"), WantShutdown: d.HasArg("want-shutdown")}
		if _, err := s.img.checkBrokerEpoch(id, epoch); err != nil {
			fmt.Fprintf(out, "error: %s\n", describe(err))
			return
		}
		s.step(out, SessionHeartbeat{h}, now)
		r := sessionReply(s.img, h)
		fmt.Fprintf(out, "reply:%s%s%s\n", word(r.CaughtUp, " caught-up"), word(r.Fenced, " fenced"), word(r.ShouldShutdown, " should-shutdown"))
	default:
		fmt.Fprintf(out, "unknown directive %s\n", d.Cmd)
	}
}

func word(yes bool, text string) string {
	if yes {
		return text
	}
	return ""
}

func (s *sessionStory) step(out *strings.Builder, e SessionEvent, now time.Time) {
	w := s.sessions.Step(s.img, e, now)
	for _, c := range w.Changes {
		fmt.Fprintf(out, "broker %d:%s%s\n", c.ID, word(c.Fenced, " fenced"), word(c.ShuttingDown, " shutting-down"))
		if changes, err := decideBroker(s.img, &s.broker, c); err != nil {
			fmt.Fprintf(out, "error: %s\n", describe(err))
		} else if err := s.apply(changes); err != nil {
			fmt.Fprintf(out, "error: %s\n", describe(err))
		}
	}
	for _, b := range w.Probes {
		fmt.Fprintf(out, "probe %d at %s:%d\n", b.ID, b.Host, b.Port)
	}
	fmt.Fprintf(out, "next at %d\n", s.sessions.Next(s.img).Sub(s.start).Milliseconds())
}

// sessionModel is what must be true of Sessions whatever they are told: it
// knows when each broker was last heard from and what it last said.
type sessionModel struct {
	t        *rapid.T
	cfg      SessionConfig
	broker   conf.Broker
	img      *Image
	sessions *Sessions
	now      time.Time
	last     time.Time           // of the newest step
	begun    map[int32]time.Time // the session's beginning or newest extension
	indexes  map[int32]uint64
	probing  map[int32]int64 // the epoch of the probe under way
	up       map[int32]bool  // the heartbeats' connection stands
}

func (m *sessionModel) commit(changes []Change) {
	next, err := m.img.Apply(Command{Base: m.img.Index, Changes: changes}, m.img.Index+1)
	if err != nil {
		m.t.Fatal(err)
	}
	m.img = next
}

// pass extends the sessions there are by the time the controller stood still.
func (m *sessionModel) pass() {
	if gap := m.now.Sub(m.last); gap > m.cfg.Stall {
		for id := range m.begun {
			m.begun[id] = m.begun[id].Add(gap)
		}
	}
	m.last = m.now
}

// step takes one step and checks every wish. may names the broker that the
// event itself may have fenced or asked to go.
func (m *sessionModel) step(e SessionEvent, may int32) {
	m.pass()
	w := m.sessions.Step(m.img, e, m.now)
	for _, b := range w.Probes {
		if _, twice := m.probing[b.ID]; twice && m.probing[b.ID] == b.Epoch {
			m.t.Fatalf("broker %d is probed twice at a time", b.ID)
		}
		if m.up[b.ID] || b.Fenced || b.ID == m.cfg.Self {
			m.t.Fatalf("broker %d is probed for nothing", b.ID)
		}
		m.probing[b.ID] = b.Epoch
	}
	for _, c := range w.Changes {
		have := m.img.Brokers[c.ID]
		switch {
		case have.Epoch != c.Epoch || have.Fenced == c.Fenced && have.ShuttingDown == c.ShuttingDown:
			m.t.Fatalf("%+v is no change of %+v", c, have)
		case !c.Fenced && have.Fenced && m.indexes[c.ID] < m.sessions.brokers[c.ID].fenced:
			m.t.Fatalf("broker %d is let go on though it has not heard that it was fenced", c.ID)
		case c.Fenced && !have.Fenced && c.ID != may:
			if c.ID == m.cfg.Self || m.now.Before(m.begun[c.ID].Add(m.cfg.Timeout)) {
				m.t.Fatalf("broker %d is fenced %v after it was heard", c.ID, m.now.Sub(m.begun[c.ID]))
			}
		case c.Fenced && !have.Fenced && c.ShuttingDown:
			h, ok := e.(SessionHeartbeat)
			if !ok || !h.WantShutdown {
				break
			}
			for id, b := range m.img.Brokers {
				if id != c.ID && b.Active() && m.indexes[id] < m.sessions.brokers[c.ID].moved {
					m.t.Fatalf("broker %d goes before broker %d knows", c.ID, id)
				}
			}
		}
		changes, err := decideBroker(m.img, &m.broker, c)
		if err != nil {
			m.t.Fatal(err)
		}
		m.commit(changes)
	}
	for id, b := range m.img.Brokers {
		if id != m.cfg.Self && !b.Fenced && !m.now.Before(m.begun[id].Add(m.cfg.Timeout)) {
			m.t.Fatalf("broker %d still serves after %v of silence", id, m.now.Sub(m.begun[id]))
		}
	}
}

func (m *sessionModel) register(id int32) {
	incarnation := topic.ID{byte(id), byte(m.img.Index), byte(m.img.Index >> 8)}
	changes, err := decideRegister(m.img, &m.broker, Registration{ID: id, Host: "h", Port: id, Incarnation: incarnation, Fenced: true}, false)
	if err != nil {
		m.t.Fatal(err)
	}
	m.commit(changes)
	delete(m.probing, id)
	m.begun[id], m.indexes[id], m.up[id] = m.now, 0, false
}

func (m *sessionModel) event() {
	t := m.t
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 2500).Draw(t, "ms")) * time.Millisecond)
	id := rapid.Int32Range(1, 4).Draw(t, "broker")
	b := m.img.Brokers[id]
	switch rapid.SampledFrom([]string{"tick", "beat", "beat", "beat", "part", "fence", "disconnect", "probed", "gone", "register", "lead"}).Draw(t, "event") {
	case "tick":
		m.step(SessionTick{}, -1)
	case "beat", "part", "fence":
		want := rapid.SampledFrom([]string{"", "", "part", "fence"}).Draw(t, "want")
		index := rapid.Uint64Range(m.indexes[id], m.img.Index).Draw(t, "index")
		m.pass()
		m.begun[id], m.indexes[id], m.up[id] = m.now, index, true
		m.step(SessionHeartbeat{Heartbeat{ID: id, Epoch: b.Epoch, Index: index, WantFence: want == "fence", WantShutdown: want == "part"}}, id)
		if now := m.img.Brokers[id]; want == "" && !now.ShuttingDown && index >= max(uint64(b.Epoch), m.sessions.brokers[id].fenced) && now.Fenced {
			t.Fatalf("broker %d stays fenced", id)
		} else if !now.Fenced && b.Fenced && index < uint64(b.Epoch) {
			t.Fatalf("broker %d serves without its registration", id)
		}
	case "disconnect":
		m.up[id] = false
		m.step(SessionDisconnected{ID: id, Epoch: b.Epoch}, -1)
	case "probed", "gone":
		epoch, ok := m.probing[id]
		if !ok {
			return
		}
		delete(m.probing, id)
		may := int32(-1)
		if epoch == b.Epoch && !m.up[id] {
			may = id
		}
		m.step(SessionProbed{ID: id, Epoch: epoch, Gone: rapid.Bool().Draw(t, "gone")}, may)
	case "register":
		m.register(id)
	case "lead":
		m.cfg.Self = id
		m.sessions = NewSessions(m.cfg, m.img, m.now)
		m.last = m.now
		for id := range m.img.Brokers {
			delete(m.probing, id)
			m.begun[id], m.indexes[id], m.up[id] = m.now, 0, false
		}
	}
}

func TestSessionsFenceTheDeadAndNobodyElse(t *testing.T) {
	broker, err := conf.ParseBroker(nil)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		start := time.Now()
		m := &sessionModel{
			t: t, cfg: DefaultSessionConfig(1, 9*time.Second), broker: broker, img: newImage(), now: start, last: start,
			begun: map[int32]time.Time{}, indexes: map[int32]uint64{}, probing: map[int32]int64{}, up: map[int32]bool{},
		}
		for id := range int32(4) {
			m.register(id + 1)
		}
		m.sessions = NewSessions(m.cfg, m.img, m.now)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			m.event()
		}
	})
}

// TestABrokerThatIsBeingFencedIsNotHeardInBetween has a heartbeat come between
// the wish to fence its broker and the image that has it: an answer from that of
// before would give the broker a lease for another session.
func TestABrokerThatIsBeingFencedIsNotHeardInBetween(t *testing.T) {
	broker, err := conf.ParseBroker(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := script{img: newImage(), broker: broker}
	for id := range int32(2) {
		changes, err := decideRegister(s.img, &s.broker, Registration{ID: id + 1, Host: "h", Port: 1 + id, Incarnation: topic.ID{1, byte(id)}}, false)
		if err == nil {
			err = s.apply(changes)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	now, epoch := time.Now(), s.img.Brokers[2].Epoch
	heard := func() Heartbeat { return Heartbeat{ID: 2, Epoch: epoch, Index: s.img.Index} }
	for _, test := range []struct {
		name  string
		until func(*Sessions) SessionWishes
	}{
		{"silent", func(on *Sessions) SessionWishes { return on.Step(s.img, SessionTick{}, now) }},
		{"gone", func(on *Sessions) SessionWishes {
			return on.Step(s.img, SessionProbed{ID: 2, Epoch: epoch, Gone: true}, now)
		}},
		{"not ready", func(on *Sessions) SessionWishes {
			h := heard()
			h.WantFence = true
			return on.Step(s.img, SessionHeartbeat{h}, now)
		}},
	} {
		on := NewSessions(SessionConfig{Self: 1, Timeout: 9 * time.Second, Stall: time.Minute}, s.img, now)
		if test.name == "silent" {
			now = now.Add(10 * time.Second)
		}
		if w := test.until(on); len(w.Changes) != 1 || !w.Changes[0].Fenced || s.img.Brokers[2].Fenced {
			t.Fatalf("%s: %+v", test.name, w)
		}
		before := s.img
		w := on.Step(s.img, SessionHeartbeat{heard()}, now)
		if len(w.Changes) != 1 || !w.Changes[0].Fenced {
			t.Errorf("%s: a heartbeat before it is in the image is answered without it: %+v", test.name, w)
			continue
		}
		changes, err := decideBroker(s.img, &s.broker, w.Changes[0])
		if err == nil {
			err = s.apply(changes)
		}
		if err != nil {
			t.Fatal(err)
		}
		if w := on.Step(s.img, SessionHeartbeat{heard()}, now); len(w.Changes) != 1 || w.Changes[0].Fenced {
			t.Errorf("%s: stays fenced: %+v", test.name, w)
		}
		s.img = before
	}
}
