package meta

import (
	"context"
	"sync"
	"time"
)

// Heartbeat is what a broker tells the controller every
// broker.heartbeat.interval.ms.
type Heartbeat struct {
	ID    int32
	Epoch int64
	// Index is the Index of the broker's newest image.
	Index uint64
	// WantFence says that the broker is not ready to serve, and is to be fenced
	// if it is not.
	WantFence bool
	// WantShutdown says that the broker is to stop as soon as ShouldShutdown
	// answers it.
	WantShutdown bool
}

// HeartbeatReply is the controller's answer.
type HeartbeatReply struct {
	// CaughtUp is true once the broker has applied its own registration.
	CaughtUp bool
	// Fenced is true while the broker may not serve.
	Fenced bool
	// ShouldShutdown is true once nobody counts on the broker any more.
	ShouldShutdown bool
}

// probeLimit bounds one look at a broker's address.
const probeLimit = time.Second

// liveness is the shell of Sessions: it has some while this node leads.
type liveness struct {
	n    *Node
	wake chan struct{} // the loop has something to do

	mu       sync.Mutex // guards the following
	sessions *Sessions  // nil while this node does not lead
	probes   []Broker   // wanted; the loop starts them. No more than there are brokers.
}

func newLiveness(n *Node) *liveness { return &liveness{n: n, wake: make(chan struct{}, 1)} }

func (l *liveness) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// begin starts anew: the node has become controller and has the newest image.
func (l *liveness) begin() {
	timeout := time.Duration(l.n.cfg.Broker.BrokerSessionTimeoutMillis) * time.Millisecond
	l.mu.Lock()
	l.sessions = NewSessions(DefaultSessionConfig(l.n.cfg.NodeID, timeout), l.n.Image(), time.Now())
	l.probes = nil
	l.mu.Unlock()
	l.poke()
}

func (l *liveness) end() {
	l.mu.Lock()
	l.sessions, l.probes = nil, nil
	l.mu.Unlock()
}

// leads reports whether this node leads and had the newest image when it began.
func (l *liveness) leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessions != nil
}

// step gives the sessions an event and does what they want. It reports whether
// this node leads; err is why a change was not made.
func (l *liveness) step(ctx context.Context, e SessionEvent) (leads bool, err error) {
	l.mu.Lock()
	if l.sessions == nil {
		l.mu.Unlock()
		return false, nil
	}
	w := l.sessions.Step(l.n.Image(), e, time.Now())
	l.probes = append(l.probes, w.Probes...)
	l.mu.Unlock()
	if len(w.Probes) > 0 {
		l.poke()
	}
	for _, c := range w.Changes {
		l.n.log.Info("broker changes", "broker", c.ID, "epoch", c.Epoch, "fenced", c.Fenced, "shutting_down", c.ShuttingDown)
		if failed := l.n.changeBroker(ctx, c); failed != nil && err == nil {
			err = failed
		}
	}
	return true, err
}

// run lets the sessions' time pass and makes their probes, while this node
// leads. Close stops it.
func (l *liveness) run() {
	for {
		next, probes := l.due()
		for _, b := range probes {
			l.n.wg.Go(func() { l.probe(b) }) // ends within probeLimit
		}
		var timer <-chan time.Time
		if !next.IsZero() {
			timer = time.After(time.Until(next))
		}
		select {
		case <-timer:
			if _, err := l.step(l.n.ctx, SessionTick{}); err != nil && l.n.ctx.Err() == nil {
				l.n.log.Warn("change a broker", "err", err)
			}
		case <-l.wake:
		case <-l.n.ctx.Done():
			return
		}
	}
}

func (l *liveness) due() (time.Time, []Broker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions == nil {
		return time.Time{}, nil
	}
	probes := l.probes
	l.probes = nil
	return l.sessions.Next(l.n.Image()), probes
}

// alive reports whether an earlier start of a broker stands against a
// registration. A node that has only begun to lead knows of nobody.
func (l *liveness) alive(img *Image, r Registration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessions != nil && l.sessions.Alive(img, r, time.Now())
}

// member is what heartbeats have said about one node.
func (l *liveness) member(id int32) (index uint64, heard, caughtUp time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sessions == nil {
		return 0, time.Time{}, time.Time{}
	}
	return l.sessions.member(id)
}

func (l *liveness) probe(b Broker) {
	ctx, cancel := context.WithTimeout(l.n.ctx, probeLimit)
	defer cancel()
	gone := l.n.deps.Probe != nil && l.n.deps.Probe(ctx, b)
	if _, err := l.step(l.n.ctx, SessionProbed{ID: b.ID, Epoch: b.Epoch, Gone: gone}); err != nil && l.n.ctx.Err() == nil {
		l.n.log.Warn("fence a broker whose process is gone", "broker", b.ID, "err", err)
	}
	l.poke()
}

// Disconnected says that the connection has ended over which broker id, as of
// epoch, sent its heartbeats. The controller then looks whether the broker's
// process is gone.
func (n *Node) Disconnected(id int32, epoch int64) {
	if _, err := n.liveness.step(n.ctx, SessionDisconnected{ID: id, Epoch: epoch}); err != nil && n.ctx.Err() == nil {
		n.log.Warn("change a broker", "err", err)
	}
}

// Heartbeat decides on a heartbeat.
func (l Local) Heartbeat(ctx context.Context, h Heartbeat) (HeartbeatReply, error) {
	n := l.n
	if err := n.err(); err != nil {
		return HeartbeatReply{}, err
	}
	// A node that has only begun to lead may not have applied the registration
	// yet: that it does not know it says nothing.
	if n.liveness.leads() {
		if _, err := n.Image().checkBrokerEpoch(h.ID, h.Epoch); err != nil && n.IsController() {
			return HeartbeatReply{}, err
		}
	}
	leads, err := n.liveness.step(ctx, SessionHeartbeat{h})
	switch {
	case err != nil:
		return HeartbeatReply{}, err
	case !leads || !n.IsController():
		return HeartbeatReply{}, ErrNotController
	}
	return sessionReply(n.Image(), h), nil
}
