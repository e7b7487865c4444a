package meta

import (
	"maps"
	"slices"
	"time"
)

// Sessions is the controller's view of which brokers live: a pure state machine
// over what it hears from them. It wants changes of brokers and probes of their
// addresses; what it wants is not true before it is in the image that the next
// step is given. A new controller begins with new Sessions.
//
// A broker is fenced when it has been silent for a session timeout. A process
// that is gone is seen at once: the connection that carried its heartbeats ends
// and its address refuses connections. A paused or cut-off process does neither.
type Sessions struct {
	cfg     SessionConfig
	index   uint64 // of the image that brokers is of
	last    time.Time
	brokers map[int32]*session
}

// SessionConfig has the rules for Sessions.
type SessionConfig struct {
	// Self is the controller's own broker. It lives as long as the controller
	// does, so its silence says nothing.
	Self int32
	// Timeout is broker.session.timeout.ms.
	Timeout time.Duration
	// ProbeAgain is how long after a probe that found a broker's address open
	// another follows, while the broker has not been heard from.
	ProbeAgain time.Duration
	// Stall is how long the steps may be apart. If they are further apart the
	// controller itself was paused: that time is not held against anybody.
	Stall time.Duration
}

// DefaultSessionConfig returns the rules for a session timeout.
func DefaultSessionConfig(self int32, timeout time.Duration) SessionConfig {
	return SessionConfig{Self: self, Timeout: timeout, ProbeAgain: 200 * time.Millisecond, Stall: timeout / 4}
}

// session is one start of a broker.
type session struct {
	epoch     int64
	deadline  time.Time // it is fenced unless it is heard from before
	heard     time.Time // its newest heartbeat; zero before the first
	caughtUp  time.Time // when it was last known to have the controller's image
	index     uint64    // of its image, as of its newest heartbeat
	connected bool      // the connection that its heartbeats came over stands
	probed    time.Time // when the newest probe began
	probing   bool      // it has not been answered
	moved     uint64    // the image in which its leaderships are moved away
	fenced    uint64    // an image in which it is fenced, none of before; 0: it is not
	fencing   bool      // that it be fenced was wanted, and is in no image yet
}

// SessionEvent is what Sessions are told.
type SessionEvent interface{ sessionEvent() }

// The events. Every one of them also lets time pass.
type (
	// SessionTick lets time pass: due when Next says.
	SessionTick struct{}
	// SessionHeartbeat is a heartbeat of a registered broker, with its epoch.
	SessionHeartbeat struct{ Heartbeat }
	// SessionDisconnected says that the connection of a broker's heartbeats ended.
	SessionDisconnected struct {
		ID    int32
		Epoch int64
	}
	// SessionProbed answers a wanted probe. Gone is true if the broker's
	// process is known not to be there.
	SessionProbed struct {
		ID    int32
		Epoch int64
		Gone  bool
	}
)

func (SessionTick) sessionEvent()         {}
func (SessionHeartbeat) sessionEvent()    {}
func (SessionDisconnected) sessionEvent() {}
func (SessionProbed) sessionEvent()       {}

// SessionWishes is what a step wants to be done.
type SessionWishes struct {
	Changes []ChangeBroker
	Probes  []Broker
}

// NewSessions begins the view of a node that has just become controller: every
// broker that may serve gets a full session, and a probe at once, for it may be
// the end of such a broker that made this node controller.
func NewSessions(cfg SessionConfig, img *Image, now time.Time) *Sessions {
	s := &Sessions{cfg: cfg, last: now, brokers: make(map[int32]*session)}
	s.follow(img, now)
	return s
}

// Step takes one event. img is the newest image.
func (s *Sessions) Step(img *Image, e SessionEvent, now time.Time) SessionWishes {
	s.pass(now)
	s.follow(img, now)
	var w SessionWishes
	switch e := e.(type) {
	case SessionHeartbeat:
		s.heartbeat(img, e.Heartbeat, now, &w)
	case SessionDisconnected:
		if b := s.brokers[e.ID]; b != nil && b.epoch == e.Epoch {
			b.connected = false
			b.probed = time.Time{} // whatever an earlier probe found, it was before
		}
	case SessionProbed:
		s.answered(img, e, &w)
	}
	s.due(img, now, &w)
	return w
}

// pass extends the sessions by the time in which the controller did not run.
func (s *Sessions) pass(now time.Time) {
	if gap := now.Sub(s.last); gap > s.cfg.Stall {
		for _, b := range s.brokers {
			b.deadline = b.deadline.Add(gap)
		}
	}
	s.last = now
}

// follow takes over which brokers there are.
func (s *Sessions) follow(img *Image, now time.Time) {
	if img.Index == s.index && len(s.brokers) == len(img.Brokers) {
		return
	}
	s.index = img.Index
	for id := range s.brokers {
		if !img.registered(id) {
			delete(s.brokers, id)
		}
	}
	for id, b := range img.Brokers {
		have := s.brokers[id]
		if have == nil || have.epoch != b.Epoch {
			have = &session{epoch: b.Epoch, deadline: now.Add(s.cfg.Timeout)}
			s.brokers[id] = have
		}
		if !b.ShuttingDown {
			have.moved = 0
		} else if have.moved == 0 {
			have.moved = img.Index
		}
		if !b.Fenced {
			have.fenced = 0
		} else {
			have.fencing = false
			if have.fenced == 0 {
				have.fenced = img.Index
			}
		}
	}
}

func (s *Sessions) heartbeat(img *Image, h Heartbeat, now time.Time, w *SessionWishes) {
	b := s.brokers[h.ID]
	if b == nil || b.epoch != h.Epoch {
		return
	}
	b.heard, b.deadline = now, now.Add(s.cfg.Timeout)
	b.connected = true
	b.index = max(b.index, h.Index)
	if h.Index >= img.Index {
		b.caughtUp = now
	}
	have := img.Brokers[h.ID]
	want := ChangeBroker{ID: h.ID, Epoch: h.Epoch, Fenced: have.Fenced, ShuttingDown: have.ShuttingDown}
	switch {
	case h.WantShutdown:
		// It goes on serving until the others know who leads in its stead. One
		// that is fenced has nothing to hand over.
		want.ShuttingDown = true
		want.Fenced = have.Fenced || have.ShuttingDown && s.handedOver(img, h.ID)
	case h.WantFence:
		want.Fenced = true
	case have.Fenced && !have.ShuttingDown && h.Index >= max(uint64(have.Epoch), b.fenced):
		// It has heard what it leads no more. Who was cut off reaches the controller
		// before the log reaches it.
		want.Fenced = false
	}
	if b.fencing {
		want.Fenced = true // an answer from the image of before would give it a lease for another session
	}
	b.fencing = want.Fenced && !have.Fenced
	if want.Fenced != have.Fenced || want.ShuttingDown != have.ShuttingDown {
		w.Changes = append(w.Changes, want)
	}
}

// handedOver reports whether every broker that serves knows that the
// leaderships of broker id have moved.
func (s *Sessions) handedOver(img *Image, id int32) bool {
	moved := s.brokers[id].moved
	for other, b := range img.Brokers {
		if other != id && !b.Fenced && !b.ShuttingDown && s.brokers[other].index < moved {
			return false
		}
	}
	return true
}

func (s *Sessions) answered(img *Image, e SessionProbed, w *SessionWishes) {
	b := s.brokers[e.ID]
	if b == nil || b.epoch != e.Epoch {
		return
	}
	b.probing = false
	if e.Gone && !b.connected {
		s.fence(img, e.ID, w)
	}
}

func (s *Sessions) fence(img *Image, id int32, w *SessionWishes) {
	if have := img.Brokers[id]; !have.Fenced {
		s.brokers[id].fencing = true
		w.Changes = append(w.Changes, ChangeBroker{ID: id, Epoch: have.Epoch, Fenced: true, ShuttingDown: have.ShuttingDown})
	}
}

// due fences the silent and wants the probes that are due.
func (s *Sessions) due(img *Image, now time.Time, w *SessionWishes) {
	for _, id := range slices.Sorted(maps.Keys(s.brokers)) {
		b, have := s.brokers[id], img.Brokers[id]
		if have.Fenced || id == s.cfg.Self {
			continue
		}
		switch {
		case !now.Before(b.deadline):
			if !slices.ContainsFunc(w.Changes, func(c ChangeBroker) bool { return c.ID == id }) {
				s.fence(img, id, w)
			}
		case !b.connected && !b.probing && !now.Before(b.probeDue(s.cfg)):
			b.probing, b.probed = true, now
			w.Probes = append(w.Probes, have)
		}
	}
}

func (b *session) probeDue(cfg SessionConfig) time.Time {
	if b.probed.IsZero() {
		return time.Time{}
	}
	return b.probed.Add(cfg.ProbeAgain)
}

// Next is when a SessionTick is due, unless something happens before: at the
// latest when half of what counts as a stall has passed.
func (s *Sessions) Next(img *Image) time.Time {
	next := s.last.Add(s.cfg.Stall / 2)
	for id, b := range s.brokers {
		if have, ok := img.Brokers[id]; !ok || have.Fenced || id == s.cfg.Self {
			continue
		}
		at := b.deadline
		if due := b.probeDue(s.cfg); !b.connected && !b.probing && due.Before(at) {
			at = due
		}
		if at.Before(next) {
			next = at
		}
	}
	return next
}

// sessionReply answers a heartbeat after what it made the Sessions want has
// been done.
func sessionReply(img *Image, h Heartbeat) HeartbeatReply {
	b := img.Brokers[h.ID]
	return HeartbeatReply{
		CaughtUp:       h.Index >= uint64(b.Epoch),
		Fenced:         b.Fenced,
		ShouldShutdown: h.WantShutdown && b.ShuttingDown && b.Fenced,
	}
}

// Alive reports whether an earlier start of a broker still holds its id against
// a registration. At the same address there cannot be two processes: once the
// connection of the earlier one has ended, the newcomer is its successor.
func (s *Sessions) Alive(img *Image, r Registration, now time.Time) bool {
	have, ok := img.Brokers[r.ID]
	b := s.brokers[r.ID]
	switch {
	case !ok || b == nil || b.epoch != have.Epoch || have.Fenced || have.Incarnation == r.Incarnation:
		return false
	case r.ID == s.cfg.Self && b.heard.IsZero():
		return false // it is this very process that registers
	case !b.connected && have.Host == r.Host && have.Port == r.Port:
		return false
	}
	return now.Before(b.deadline)
}

// member tells what heartbeats have said about one broker's place in the log.
func (s *Sessions) member(id int32) (index uint64, heard, caughtUp time.Time) {
	if b := s.brokers[id]; b != nil {
		return b.index, b.heard, b.caughtUp
	}
	return 0, time.Time{}, time.Time{}
}
