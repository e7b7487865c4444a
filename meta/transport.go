package meta

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/broker/secure"
)

const (
	transportPool    = 3
	transportTimeout = 10 * time.Second
	// strangersMax bounds the connections whose first byte is waited for; more
	// are closed as they come.
	strangersMax = 64
)

// Listen opens raft's transport over TCP: it listens on address and tells
// others to use advertise, a host name or address with a port; port 0 stands
// for the one it listens on.
func Listen(address, advertise string, log *slog.Logger) (raft.Transport, error) {
	return ListenTLS(address, advertise, TLS{}, log)
}

// TLS secures the quorum's connections. Both sides show a certificate: Serve
// asks for one, and Dial shows one. The zero value is plain text.
type TLS struct {
	Serve *tls.Config
	// Dial opens a connection and makes sure whose it is.
	Dial func(ctx context.Context, address string) (net.Conn, error)
}

// ListenTLS is Listen over TLS.
func ListenTLS(address, advertise string, over TLS, log *slog.Logger) (raft.Transport, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for the metadata quorum on %s: %w", address, err)
	}
	host, port, err := net.SplitHostPort(advertise)
	if err != nil || host == "" {
		return nil, errors.Join(fmt.Errorf("advertise %q for the metadata quorum: no address to reach: %w", advertise, err), l.Close())
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); ok && port == "0" {
		_, port, _ = net.SplitHostPort(tcp.String())
	}
	return newTransport(l, advertised(net.JoinHostPort(host, port)), over, log), nil
}

// newTransport is raft's transport on a listener, which it closes.
func newTransport(l net.Listener, self advertised, over TLS, log *slog.Logger) *transport {
	s := &stream{listener: l, self: self, tls: over, raft: make(chan net.Conn), lost: make(chan struct{}, 1), conns: make(map[net.Conn]struct{})}
	s.strangers.Logger, s.strangers.Level = log, slog.LevelWarn
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.accept)
	t := &transport{stream: s}
	t.NetworkTransport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: s, MaxPool: transportPool, Timeout: transportTimeout, Logger: raftLogger(log, slog.LevelWarn),
	})
	return t
}

// transport is raft's transport over a stream of connections that carry
// greetings too.
type transport struct {
	*raft.NetworkTransport
	stream     *stream
	followers  followers
	unanswered time.Duration // set before raft has it
}

// advertised is an address as others are told it.
type advertised string

// Network implements net.Addr.
func (a advertised) Network() string { return "tcp" }

// String implements net.Addr.
func (a advertised) String() string { return string(a) }

// stream makes raft's connections and takes them. Each is known by its first
// byte: raft's begin with the number of a call, a greeting with greetByte. It
// implements raft.StreamLayer.
type stream struct {
	listener net.Listener
	self     advertised
	tls      TLS
	raft     chan net.Conn // what Accept returns

	// open says that raft may be called; until then its connections are closed.
	open atomic.Bool
	// answer answers greetings; nil before a Node has the transport.
	answer atomic.Pointer[func(greeting) greeting]

	// strangers tells of connections that came to nothing.
	strangers secure.Refusals
	// lost is told when a connection that another node made has ended.
	lost chan struct{}

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu     sync.Mutex // guards the following
	conns  map[net.Conn]struct{}
	closed bool
}

// accept takes connections and has each sorted. Close stops it.
func (s *stream) accept() {
	strangers := make(chan struct{}, strangersMax)
	for pause := time.Duration(0); ; {
		c, err := s.listener.Accept()
		if err != nil {
			// Out of files, most likely: it will pass.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
				continue
			case <-s.ctx.Done():
				return
			}
		}
		pause = 0
		select {
		case strangers <- struct{}{}:
		default:
			_ = c.Close() // too many that say nothing
			continue
		}
		s.wg.Go(func() { // ends when the connection has been sorted, or by its deadline
			s.sort(c)
			<-strangers
		})
	}
}

// sort finds out what a connection is for and sees to it.
func (s *stream) sort(c net.Conn) {
	raw := c
	if s.tls.Serve != nil {
		c = tls.Server(c, s.tls.Serve)
	}
	tracked, err := s.track(c)
	if err != nil {
		return
	}
	first := make([]byte, 1)
	err = tracked.SetDeadline(time.Now().Add(transportTimeout))
	if shake, ok := c.(*tls.Conn); ok && err == nil {
		if err := shake.Handshake(); err != nil {
			_ = tracked.Close()
			if s.ctx.Err() == nil {
				s.strangers.Accepted("of the metadata quorum", raw.RemoteAddr(), err)
			}
			return
		}
	}
	if err == nil {
		_, err = io.ReadFull(tracked, first)
	}
	if err == nil {
		err = tracked.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = tracked.Close()
		return
	}
	if first[0] == greetByte {
		if answer := s.answer.Load(); answer != nil {
			answerGreeting(tracked, *answer)
		}
		_ = tracked.Close()
		return
	}
	if !s.open.Load() {
		_ = tracked.Close()
		return
	}
	tracked.first, tracked.taken = first, true
	select {
	case s.raft <- tracked:
	case <-s.ctx.Done():
		_ = tracked.Close()
	}
}

// Accept implements net.Listener.
func (s *stream) Accept() (net.Conn, error) {
	select {
	case c := <-s.raft:
		return c, nil
	case <-s.ctx.Done():
		return nil, net.ErrClosed
	}
}

// Addr implements net.Listener: the address that others use.
func (s *stream) Addr() net.Addr { return s.self }

// Dial implements raft.StreamLayer.
func (s *stream) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(s.ctx, timeout)
	defer cancel()
	return s.dial(ctx, string(address))
}

func (s *stream) dial(ctx context.Context, address string) (net.Conn, error) {
	dial := s.tls.Dial
	if dial == nil {
		dial = dialPlain
	}
	c, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	return s.track(c)
}

func dialPlain(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// Close implements net.Listener: it ends every connection, whichever side made
// it, so that nothing is read any more when it returns.
func (s *stream) Close() error {
	s.cancel()
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	s.mu.Lock()
	s.closed = true
	open := make([]net.Conn, 0, len(s.conns))
	for c := range s.conns {
		open = append(open, c)
	}
	s.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
	s.wg.Wait()
	return err
}

// tracked is a connection that Close can end. first is what was read of it
// already.
type tracked struct {
	net.Conn
	stream *stream
	first  []byte
	taken  bool // by raft, from another node
}

func (s *stream) track(c net.Conn) (*tracked, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errors.Join(net.ErrClosed, c.Close())
	}
	s.conns[c] = struct{}{}
	return &tracked{Conn: c, stream: s}, nil
}

// Read implements net.Conn.
func (t *tracked) Read(b []byte) (int, error) {
	if len(t.first) > 0 && len(b) > 0 {
		n := copy(b, t.first)
		t.first = t.first[n:]
		return n, nil
	}
	n, err := t.Conn.Read(b)
	if err != nil && t.taken {
		select {
		case t.stream.lost <- struct{}{}:
		default:
		}
	}
	return n, err
}

// Close implements net.Conn.
func (t *tracked) Close() error {
	t.stream.mu.Lock()
	delete(t.stream.conns, t.Conn)
	t.stream.mu.Unlock()
	return t.Conn.Close()
}

var _ raft.StreamLayer = (*stream)(nil)

// raftLogger sends raft's log lines to slog, its warnings at the given level: a
// quorum of one has nobody to wait for, so what raft warns of there is news of
// every start.
func raftLogger(log *slog.Logger, warn slog.Level) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Debug, Output: nopWriter{}})
	l.RegisterSink(&raftSink{log: log, warn: warn})
	return l
}

type nopWriter struct{}

func (nopWriter) Write(b []byte) (int, error) { return len(b), nil }
