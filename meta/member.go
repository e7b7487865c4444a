package meta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/meta/topic"
)

const (
	// memberRetry is the pause after a call that was refused or lost.
	memberRetry = 200 * time.Millisecond
	// partingInterval is how often a broker that is to stop asks whether it may.
	partingInterval = 100 * time.Millisecond
)

// Membership is what a Member needs of the metadata quorum; *Node is one.
type Membership interface {
	RegisterBroker(ctx context.Context, r Registration) (Broker, error)
	Heartbeat(ctx context.Context, h Heartbeat) (HeartbeatReply, error)
	Image() *Image
	Subscribe(fn func(prev, next *Image)) (cancel func())
}

var _ Membership = (*Node)(nil)

// MemberConfig says who a Member is and how it behaves.
type MemberConfig struct {
	// Registration is how the broker registers; a zero Incarnation is made up.
	// The broker registers fenced.
	Registration Registration
	// Interval is broker.heartbeat.interval.ms, Timeout
	// broker.session.timeout.ms, Patience
	// initial.broker.registration.timeout.ms.
	Interval time.Duration
	Timeout  time.Duration
	Patience time.Duration
}

// MemberDeps are what a Member works with.
type MemberDeps struct {
	Quorum Membership
	// Ready reports whether the broker can serve: as long as it cannot it asks
	// to stay fenced. It is asked before every heartbeat, and when Poke says
	// that its answer may have changed. nil means always.
	Ready func() bool
	// Registered is told of the first registration and of every other one that
	// the broker had to make since: its epoch is another. From one goroutine;
	// nil is told nothing.
	Registered func(Broker)
	Logger     *slog.Logger // nil discards
}

// Member is this broker's membership in the cluster: it registers the broker,
// sends its heartbeats, and knows whether the controller still counts on it.
type Member struct {
	cfg  MemberConfig
	deps MemberDeps
	log  *slog.Logger

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	poke   chan struct{}
	gone   chan struct{} // closed when the controller has let the broker go
	began  time.Time

	self    atomic.Pointer[Broker]
	lease   atomic.Int64 // nanoseconds after began until which the controller keeps the session
	parting atomic.Bool
	fenced  atomic.Bool
}

// Join registers a broker and keeps its membership until Close. It returns when
// the broker is registered, which it tries until ctx ends, Patience has passed,
// or the cluster refuses it for good.
func Join(ctx context.Context, cfg MemberConfig, deps MemberDeps) (*Member, error) {
	m := &Member{cfg: cfg, deps: deps, log: deps.Logger, poke: make(chan struct{}, 1), gone: make(chan struct{}), began: time.Now()}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.cfg.Registration.Incarnation.IsZero() {
		m.cfg.Registration.Incarnation = topic.NewID()
	}
	m.cfg.Registration.Fenced = true
	m.fenced.Store(true)
	if cfg.Patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.Patience)
		defer cancel()
	}
	if err := m.register(ctx); err != nil {
		return nil, err
	}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	m.wg.Go(m.run)
	return m, nil
}

// register registers the broker, again and again while nobody can say.
func (m *Member) register(ctx context.Context) error {
	r := &m.cfg.Registration
	r.Replaces = -1
	if b, ok := m.deps.Quorum.Image().Brokers[r.ID]; ok {
		r.Replaces = b.Epoch
	}
	for waited := false; ; waited = true {
		sent := time.Now()
		b, err := m.deps.Quorum.RegisterBroker(ctx, *r)
		var stale *StaleRegistration
		switch {
		case err == nil:
			if m.self.Swap(&b) == nil {
				m.extend(sent)
			} // else its image is of before: it has a lease when the controller lets it go on
			m.log.Info("broker registered", "broker", b.ID, "epoch", b.Epoch)
			if m.deps.Registered != nil {
				m.deps.Registered(b)
			}
			return nil
		case errors.As(err, &stale) && stale.Epoch != r.Replaces && ctx.Err() == nil:
			r.Replaces = stale.Epoch // the image here was not the newest
			continue
		case ctx.Err() != nil, permanent(err):
			return fmt.Errorf("register broker %d: %w", m.cfg.Registration.ID, err)
		case !waited:
			m.log.Warn("broker is not registered yet", "broker", m.cfg.Registration.ID, "err", err)
		}
		if !m.pause(ctx, memberRetry) {
			return fmt.Errorf("register broker %d: %w", m.cfg.Registration.ID, errors.Join(ctx.Err(), err))
		}
	}
}

// permanent reports whether trying again is in vain. A duplicate is not: the
// broker's former process may yet be found to be gone.
func permanent(err error) bool {
	return errors.Is(err, ErrInconsistentCluster) || errors.Is(err, ErrDirectoryReplaced) || errors.Is(err, ErrClosed) || errors.Is(err, ErrFailed)
}

// pause waits, or returns false when ctx ends.
func (m *Member) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// run sends the heartbeats. Close stops it, and so does the controller when it
// lets a broker go that wanted to.
func (m *Member) run() {
	// When another broker is to stop, it waits until everybody has said that
	// they know; and this broker's own registration is what it waits for first.
	cancel := m.deps.Quorum.Subscribe(func(prev, next *Image) {
		if prev == nil || urgent(prev, next, m.Self()) {
			m.Poke()
		}
	})
	defer cancel()
	for {
		pause := m.cfg.Interval
		if m.beat() {
			close(m.gone)
			return
		}
		if m.parting.Load() {
			pause = min(pause, partingInterval)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-m.poke:
			timer.Stop()
		case <-m.ctx.Done():
			timer.Stop()
			return
		}
	}
}

// urgent reports whether the controller wants to hear soon that this broker has
// the image.
func urgent(prev, next *Image, self Broker) bool {
	if next.ControllerID != prev.ControllerID && next.ControllerID >= 0 {
		return true // it has a session to begin
	}
	if prev.Index < uint64(self.Epoch) && next.Index >= uint64(self.Epoch) {
		return true
	}
	if b := next.Brokers[self.ID]; b.Fenced && b.Epoch == self.Epoch {
		return true // it may be waited for
	}
	for id, b := range next.Brokers {
		if b.ShuttingDown && !b.Fenced && !prev.Brokers[id].ShuttingDown {
			return true
		}
	}
	return false
}

// beat sends one heartbeat and reports whether the broker may go.
func (m *Member) beat() bool {
	self := m.Self()
	ctx, cancel := context.WithTimeout(m.ctx, max(m.cfg.Timeout/2, m.cfg.Interval))
	defer cancel()
	sent := time.Now()
	h := Heartbeat{ID: self.ID, Epoch: self.Epoch, Index: m.deps.Quorum.Image().Index, WantShutdown: m.parting.Load()}
	h.WantFence = !h.WantShutdown && m.deps.Ready != nil && !m.deps.Ready()
	reply, err := m.deps.Quorum.Heartbeat(ctx, h)
	switch {
	case err == nil:
		was := m.fenced.Swap(reply.Fenced)
		switch {
		case !reply.Fenced:
			m.extend(sent)
		case !was:
			m.lease.Store(0) // the controller has given up on it, and its image may not say so yet
		}
		if was != reply.Fenced {
			if reply.Fenced {
				m.log.Info("the controller has fenced this broker: it leads nothing", "broker", self.ID)
			} else {
				m.log.Info("the controller lets this broker lead", "broker", self.ID)
			}
		}
		return h.WantShutdown && reply.ShouldShutdown
	case m.ctx.Err() != nil:
	case errors.Is(err, ErrStaleBrokerEpoch):
		m.log.Warn("the controller does not know this start of the broker; registering again", "broker", self.ID, "epoch", self.Epoch, "err", err)
		m.lease.Store(0)
		m.fenced.Store(true)
		if err := m.register(m.ctx); err != nil && m.ctx.Err() == nil {
			m.log.Error("broker cannot register again", "err", err)
			m.pause(m.ctx, m.cfg.Interval)
		}
		m.Poke()
	default:
		m.log.Warn("heartbeat failed", "broker", self.ID, "err", err)
		m.pause(m.ctx, memberRetry)
		m.Poke()
	}
	return false
}

// extend notes that the controller has answered something that was sent then:
// its session lasts for a timeout from a moment that was not earlier.
func (m *Member) extend(sent time.Time) {
	m.lease.Store(int64(sent.Add(m.cfg.Timeout).Sub(m.began)))
}

// Self is the broker as it is registered.
func (m *Member) Self() Broker { return *m.self.Load() }

// Lease reports whether the controller cannot have given up on the broker for
// its silence. Without a lease a leader must not acknowledge writes: there may
// be another by now. It is cheap, and goes by the monotonic clock.
func (m *Member) Lease() bool { return int64(time.Since(m.began)) < m.lease.Load() }

// Fenced reports whether the broker was fenced as of its newest heartbeat.
func (m *Member) Fenced() bool { return m.fenced.Load() }

// Poke sends the next heartbeat now: Ready's answer may have changed.
func (m *Member) Poke() {
	select {
	case m.poke <- struct{}{}:
	default:
	}
}

// Shutdown asks the controller to move away what the broker leads, and returns
// when it has: nobody counts on the broker any more, and no heartbeats follow.
// It returns ctx's error if ctx ends first; heartbeats go on then until Close.
func (m *Member) Shutdown(ctx context.Context) error {
	m.parting.Store(true)
	m.Poke()
	select {
	case <-m.gone:
		return nil
	case <-m.ctx.Done():
		return ErrClosed
	case <-ctx.Done():
		return fmt.Errorf("controlled shutdown: %w", ctx.Err())
	}
}

// Close ends the membership without asking: the controller finds out by the
// silence. It is safe to call again.
func (m *Member) Close() {
	m.cancel()
	m.wg.Wait()
}
