package broker

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/varvelog/varve/broker/secure"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica"
)

// Server is the Kafka listener of one broker.
type Server struct {
	cfg       Config
	deps      Deps
	log       *slog.Logger
	table     *table
	budgets   budgets
	sessions  *sessions
	shares    *shares
	txnAsks   txnAsks
	quotas    *quotas
	unfollow  func() // the metadata's changes
	stats     counters
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	wg        sync.WaitGroup
	pids      producerIDs
	limit     logLimit
	strangers secure.Refusals        // who came to nothing at the door
	limits    atomic.Pointer[limits] // of the newest settings
	followers replica.Throttle       // leader.replication.throttled.rate
	draining  chan struct{}          // closed when Close begins

	mu        sync.Mutex // guards the following
	closed    bool
	listeners map[net.Listener]*Door
	conns     map[*conn]struct{}
	perIP     map[string]int
	rate      acceptRate               // of all doors together
	delayed   map[net.Conn]*time.Timer // connections beyond their address's quota, until they are closed
	sweeping  bool
}

// New makes a server; it does nothing before Serve. It panics on a Config that does not validate.
func New(cfg Config, deps Deps) *Server {
	if err := cfg.Validate(); err != nil {
		panic("broker: " + err.Error())
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		cfg: cfg, deps: deps, log: deps.Logger, table: newTable(served(apis, deps)),
		budgets:   newBudgets(cfg.RequestMemoryBytes),
		sessions:  newSessions(cfg.FetchSessionSlots, cfg.FetchSessionEvict.Milliseconds()),
		listeners: map[net.Listener]*Door{}, conns: map[*conn]struct{}{}, perIP: map[string]int{}, delayed: map[net.Conn]*time.Timer{},
	}
	s.quotas, s.unfollow = newQuotas(&cfg), func() {}
	if m, ok := deps.Metadata.(interface {
		Subscribe(func(prev, next *meta.Image)) (cancel func())
	}); ok {
		s.unfollow = m.Subscribe(s.quotas.follow)
	}
	s.strangers.Logger, s.strangers.Level = s.log, slog.LevelInfo
	s.shares = newShares(s, cfg.ShareSessionSlots)
	s.txnAsks.server = s
	s.draining = make(chan struct{})
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

func (s *Server) nowMillis() int64 { return time.Now().UnixMilli() }

// Serve accepts connections from l until l fails or Close is called; then it returns ErrServerClosed.
func (s *Server) Serve(l net.Listener, d Door) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		l.Close()
		return ErrServerClosed
	}
	s.listeners[l] = &d
	s.mu.Unlock()
	defer func() {
		l.Close()
		s.mu.Lock()
		delete(s.listeners, l)
		s.mu.Unlock()
	}()
	pause := time.Duration(0)
	for {
		nc, err := l.Accept()
		if err != nil {
			if s.isDraining() {
				return ErrServerClosed
			}
			if !temporary(err) {
				return err
			}
			// Out of descriptors or memory: accepting faster will not help.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			s.log.Warn("accept failed, waiting", "err", err, "wait", pause)
			if !s.sleep(pause) {
				return ErrServerClosed
			}
			continue
		}
		pause = 0
		if wait := s.holdBack(&d); wait > 0 && !s.sleep(wait) {
			reset(nc)
			nc.Close()
			return ErrServerClosed
		}
		if !s.quotas.tooMany(s, nc, &d) {
			s.admit(nc, &d)
		}
	}
}

// temporary says whether accepting may succeed again.
func temporary(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOBUFS) ||
		errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EINTR)
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// sleep waits for d; false means that the server was closed meanwhile.
func (s *Server) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.draining:
		return false
	}
}

// drainMax is how long Close lets requests under way come to their end.
const drainMax = 2 * time.Second

// Close stops accepting and drains: parked fetches answer with what there is, idle connections end, requests under way
// have drainMax (or until ctx ends). Then it cuts what is left and waits until all goroutines are gone or ctx ends. It is
// idempotent.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.draining)
		s.unfollow()
	}
	for l := range s.listeners {
		l.Close()
	}
	conns := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.dropDelayedLocked()
	s.mu.Unlock()
	for _, c := range conns {
		c.sock.SetReadDeadline(time.Unix(1, 0)) // the next read ends the connection once its answers are out
	}
	done := make(chan struct{})
	go func() {
		s.wg.Wait()
		close(done)
	}()
	s.drain(ctx, conns)
	s.cancel()
	for _, c := range conns {
		c.abort()
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain waits until the connections have ended by themselves, for as long as they may.
func (s *Server) drain(ctx context.Context, conns []*conn) {
	t := time.NewTimer(drainMax)
	defer t.Stop()
	for _, c := range conns {
		select {
		case <-c.gone:
		case <-t.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// isDraining says that Close has begun.
func (s *Server) isDraining() bool {
	select {
	case <-s.draining:
		return true
	default:
		return false
	}
}

// counters are the server's own figures; Stats is their copy for the outside.
type counters struct {
	accepted, refused, panics, expired atomic.Int64
	bytesIn, bytesOut                  atomic.Int64
	handshakesFailed                   atomic.Int64
	requests                           [keyMax + 1]atomic.Int64
	latency                            [keyMax + 1]latency
	messagesIn                         atomic.Int64
	produced, produceFailed            atomic.Int64
	fetched, fetchFailed               atomic.Int64
}

// answered notes how long the requests took whose answers have been written.
func (c *counters) answered(batch []*reply) {
	now := time.Now()
	for _, p := range batch {
		if !p.since.IsZero() {
			c.latency[p.key].add(now.Sub(p.since))
		}
	}
}

// Stats is a snapshot of what the front door has done and holds.
type Stats struct {
	Connections                int
	Accepted, Refused, Expired int64 // connections taken, turned away by a cap, closed by a deadline
	Panics                     int64
	HandshakesFailed           int64           // of TLS
	OpenDoors                  map[string]bool // by listener: what brokers ask of each other is answered to whoever asks
	BytesIn, BytesOut          int64
	RequestBytesHeld           int64 // of the request budget
	FetchSessions              int
	Shares                     ShareStats
	MessagesIn                 int64                // records appended for clients
	Produced, ProduceFailed    int64                // partitions that produce requests named, and those of them that were refused
	Fetched, FetchFailed       int64                // the same of clients' fetches
	Throttled                  map[string]Throttled // by what the quota is on
	Requests                   map[string]int64     // by API name
	Latencies                  map[string]Latency   // by API name, of those that were ever asked
}

// Stats returns a snapshot.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	conns, doors := len(s.conns), slices.Collect(maps.Values(s.listeners))
	s.mu.Unlock()
	st := Stats{
		Connections: conns, OpenDoors: openDoors(doors), Accepted: s.stats.accepted.Load(), Refused: s.stats.refused.Load(),
		Expired: s.stats.expired.Load(), HandshakesFailed: s.stats.handshakesFailed.Load(), Panics: s.stats.panics.Load(),
		BytesIn: s.stats.bytesIn.Load(), BytesOut: s.stats.bytesOut.Load(),
		RequestBytesHeld: s.budgets.used(), FetchSessions: s.sessions.len(), Shares: s.shares.statistics(), Requests: map[string]int64{}, Latencies: map[string]Latency{},
		MessagesIn: s.stats.messagesIn.Load(), Produced: s.stats.produced.Load(), ProduceFailed: s.stats.produceFailed.Load(),
		Fetched: s.stats.fetched.Load(), FetchFailed: s.stats.fetchFailed.Load(), Throttled: s.quotas.statistics(),
	}
	for k, a := range s.table.byKey {
		if a != nil {
			st.Requests[a.name] = s.stats.requests[k].Load()
			if st.Requests[a.name] > 0 {
				st.Latencies[a.name] = s.stats.latency[k].snapshot()
			}
		}
	}
	return st
}
