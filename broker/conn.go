package broker

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/secure"
)

// conn is one client connection. Its reading goroutine owns everything above mu.
type conn struct {
	srv    *Server
	door   *Door
	sock   net.Conn  // as it was accepted
	tls    *tls.Conn // over cork and sock; nil: plain text
	cork   *cork
	nc     net.Conn // what is read and written: sock or tls
	remote string   // IP, for the caps and for group member hosts
	ctx    context.Context
	cancel context.CancelFunc
	gone   chan struct{} // closed when the connection has ended

	in        inbox
	size      [4]byte // of the next frame
	sizeN     int     // bytes of size that have come
	frame     frame   // the frame at hand, unless it came whole
	req       request
	client    string // last client id, so that it is not made anew for each request
	known     bool   // ApiVersions or any other request was answered: the small cap is over
	worked    bool   // a request came that is no part of a client's dial
	appending bool   // a panic now must not be survived
	beats     heartbeats
	broker    bool        // it said that it is a broker's, where brokers may come in
	shares    bool        // share sessions began here: they end with the connection
	unproved  atomic.Bool // beyond max.connections, and not yet known as a broker's
	user      string      // whose connection it is
	granted   grants
	muted     time.Duration // until when, by the quotas' time, nothing is read; 0: it is not

	// Plain timestamps, read by the sweeper; 0 = not in that state.
	shakeMillis  atomic.Int64 // when the TLS handshake under way began; shakeLate when it missed its deadline
	activeMillis atomic.Int64 // last time a frame began or an answer was written
	frameMillis  atomic.Int64 // when the part of a frame being read began
	frameWant    atomic.Int64 // bytes of that part
	writeMillis  atomic.Int64 // when the write under way began
	handleMillis atomic.Int64 // when the request being handled began

	mu       sync.Mutex // guards the following
	space    sync.Cond  // signalled when the ring shrinks or the connection closes
	ring     []*reply   // answers in request order, from head
	head, n  int
	flushing bool
	closed   bool

	out net.Buffers // of the flusher
}

// request is one request while its handler runs.
type request struct {
	c        *conn
	ctx      context.Context
	api      *api
	version  int16
	flexible bool
	corr     int32
	client   string
	body     []byte        // a slice of the frame
	since    time.Time     // when it had been read
	size     int           // of all of it
	parked   time.Duration // how much of its handler's time it waited
	user     string
	exempt   bool          // it is of a broker: quotas do not count it
	held     time.Duration // for how long its client has to wait, for the controller's quota
	answered bool

	// Of requests that the controller decides (forward.go).
	enveloped bool // it came in an envelope
	own       bool // likewise, and no client stands behind it: a broker wants it for itself
	capture   bool // its answer is kept in captured instead of being sent
	captured  kmsg.Response
	undecided bool  // its handler found that this node is not the controller
	refusal   error // what every decision is refused with
}

func newConn(s *Server, nc net.Conn, remote string, d *Door) *conn {
	c := &conn{srv: s, door: d, sock: nc, nc: nc, remote: remote, user: secure.Anonymous, gone: make(chan struct{})}
	if d.TLS != nil {
		c.cork = &cork{Conn: nc}
		c.tls = tls.Server(c.cork, d.TLS)
		c.nc = c.tls
	}
	c.in = newInbox(c.nc)
	c.ctx, c.cancel = context.WithCancel(s.ctx)
	c.space.L = &c.mu
	c.activeMillis.Store(s.nowMillis())
	return c
}

// serve reads requests until the connection ends. It is the connection's one long-lived goroutine and stops when the
// peer closes, a limit is broken or the server closes the socket.
func (c *conn) serve() {
	defer close(c.gone)
	defer c.in.release()
	defer c.tellEnd()
	defer c.srv.shares.disconnected(c)
	defer c.shut()
	if !c.secure() {
		return
	}
	for {
		err := c.next()
		if err == nil {
			continue
		}
		if c.srv.isDraining() {
			c.settle()
			if !c.worked {
				reset(c.sock)
				return
			}
			c.farewell()
			return
		}
		if errors.Is(err, secure.ErrPlaintext) {
			c.srv.strangers.Accepted(c.door.Name, c.sock.RemoteAddr(), err)
			return
		}
		if errors.Is(err, errCrowded) {
			reset(c.sock)
			return
		}
		if !quiet(err) {
			c.srv.log.Warn("connection closed", "client", c.remote, "client_id", c.client, "err", err)
		}
		return
	}
}

// reset has a connection end with a reset instead of an orderly end. A client that is hung up on before the first answer after its
// dial, which ends with ApiVersions, takes that for a refusal of who it is (franz-go does, and gives up); a reset it takes for
// what it is, and comes again. Nothing is lost by it: nobody waits for an answer on such a connection.
func reset(nc net.Conn) {
	if t, ok := nc.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
}

// tellEnd tells the controller that a broker's heartbeats will not come this way any more.
func (c *conn) tellEnd() {
	if c.beats.any && !c.srv.isDraining() {
		c.srv.deps.Controlled.Disconnected(c.beats.broker, c.beats.epoch)
	}
}

// settle waits until every answer owed is out, or the connection is cut.
func (c *conn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for (c.n > 0 || c.flushing) && !c.closed {
		c.space.Wait()
	}
}

// quiet says that a connection's end needs no log line: the peer went away, or we closed it and said so there.
func quiet(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, errClosed) || errors.Is(err, io.ErrClosedPipe) || isReset(err)
}

// next reads and handles one request. One that came whole is handled where it was read; any other gets memory from the
// budget as it arrives.
func (c *conn) next() error {
	s := c.srv
	n, err := c.readSize()
	if err != nil {
		return err
	}
	var b []byte
	whole := n <= len(c.in.bytes())
	if whole {
		b = c.in.take(n)
	} else {
		err = c.readFrame(n)
		c.frameMillis.Store(0)
		if err != nil {
			c.frame.release(false)
			return err
		}
		b = c.frame.bytes()
	}
	s.stats.bytesIn.Add(int64(n) + 4)
	now := s.nowMillis()
	c.activeMillis.Store(now)
	c.handleMillis.Store(now)
	keep, err := c.handle(b)
	c.handleMillis.Store(0)
	if whole {
		c.in.done(keep)
	} else {
		c.frame.release(keep)
	}
	if c.muted != 0 && err == nil {
		return c.rest()
	}
	return err
}

// letGo gives the bytes of the request at hand back early: its handler has copied what it still needs.
func (c *conn) letGo() {
	c.frame.release(false)
	c.in.done(false)
}

// readSize reads the size of the next frame and checks it against the limit.
func (c *conn) readSize() (int, error) {
	for c.sizeN < len(c.size) {
		if len(c.in.bytes()) == 0 {
			if err := c.in.more(); err != nil {
				return 0, err
			}
		}
		k := copy(c.size[c.sizeN:], c.in.bytes())
		c.in.at += k
		if c.sizeN += k; c.sizeN < len(c.size) {
			c.frameWant.Store(0)
			c.frameMillis.Store(c.srv.nowMillis())
		}
	}
	c.sizeN = 0
	limit := c.srv.cfg.RequestBytesMax
	if c.srv.cfg.Authenticate && !c.known {
		limit = min(limit, c.srv.cfg.RequestBytesMaxUnknown)
	}
	n := int32(binary.BigEndian.Uint32(c.size[:]))
	if int(n) > limit && c.size[0] == tlsHandshake && c.size[1] == tlsMajor {
		return 0, secure.ErrPlaintext
	}
	if n <= 0 || int(n) > limit {
		return 0, fmt.Errorf("%w: %d, limit %d", errTooLarge, n, limit)
	}
	c.frameMillis.Store(0)
	return int(n), nil
}

// A TLS client's first bytes are the type and the version of a record. As the size of a frame that is 369 MB.
const (
	tlsHandshake = 22
	tlsMajor     = 3
)

// handle decodes the header, checks key and version before it looks at the body, and runs the handler.
func (c *conn) handle(b []byte) (keep bool, err error) {
	s := c.srv
	h, rest, err := parseHeaderStart(b)
	if err != nil {
		return false, err
	}
	a := s.table.lookup(h.key)
	if a == nil || a.betweenBrokers() && c.door.ClientsOnly {
		return false, fmt.Errorf("%w: key %d", errUnsupported, h.key)
	}
	if a.key != keyApiVersions || h.version > a.max {
		if err := c.prove(""); err != nil {
			return false, err
		}
	}
	flexible := h.version >= a.flexible
	if h.version < a.min || h.version > a.max {
		if a.key != keyApiVersions {
			return false, fmt.Errorf("%w: %s version %d", errUnsupported, a.name, h.version)
		}
		return false, c.answerUnknownApiVersions(&h)
	}
	body, err := h.parseRest(rest, flexible)
	if err != nil {
		return false, err
	}
	if string(h.client) != c.client {
		c.client = string(h.client)
	}
	c.req = request{
		c: c, ctx: c.ctx, api: a, version: h.version, flexible: flexible,
		corr: h.correlation, client: c.client, body: body, since: time.Now(), size: len(b), user: c.user, exempt: c.door.BrokersOnly || c.broker || a.exempt(h.version),
	}
	defer c.recoverHandler(&err)
	s.stats.requests[a.key].Add(1)
	if err := c.admitted(a); err != nil {
		return false, err
	}
	c.worked = c.worked || a.key != keyApiVersions
	if a.forwarded {
		err = s.decide(&c.req, b)
	} else {
		err = a.handle(s, &c.req)
	}
	if err != nil {
		return a.keeps, err
	}
	c.known = true
	if !c.req.answered {
		return a.keeps, fmt.Errorf("%s version %d: handler gave no answer", a.name, h.version)
	}
	return a.keeps, nil
}

// recoverHandler turns a handler's panic into the end of its connection. While an append is under way the panic goes on:
// a log in an unknown state must not be written to again.
func (c *conn) recoverHandler(err *error) {
	if c.appending {
		return
	}
	if c.srv.recovered(&c.req, recover()) {
		*err = errClosed
	}
}

// recovered logs a panic's value, if there is one, with its stack, and counts it. Goroutines that a handler starts need it
// as much as the handler: nobody else recovers for them.
func (s *Server) recovered(r *request, v any) bool {
	if v == nil {
		return false
	}
	s.stats.panics.Add(1)
	s.log.Error("request handler panicked", "client", r.c.remote, "api", r.api.name, "version", r.version,
		"panic", fmt.Sprint(v), "stack", string(debug.Stack()))
	return true
}

// send answers the request with resp.
func (r *request) send(resp kmsg.Response) error {
	if r.capture {
		if r.held > 0 {
			setThrottle(resp, r.held)
		}
		r.captured, r.answered = resp, true
		return nil
	}
	if t := r.c.srv.quotas.table.Load(); t != nil {
		r.c.srv.throttle(r, t, resp)
	}
	p := newReply()
	p.encode(r.corr, r.flexible && r.api.key != keyApiVersions, resp)
	return r.reply(p)
}

// reply answers the request with p, which must be finished.
func (r *request) reply(p *reply) error {
	r.answered = true
	p.key, p.since = r.api.key, r.since
	return r.c.push(p, true)
}

// later reserves the request's place among the answers for p, which complete() will finish.
func (r *request) later(p *reply) error {
	r.answered = true
	p.key, p.since = r.api.key, r.since
	return r.c.push(p, false)
}

// push appends p to the ring, waiting for room, and writes what can be written. The caller is the reading goroutine.
func (c *conn) push(p *reply, done bool) error {
	c.mu.Lock()
	for c.n == c.srv.cfg.InFlightMax && !c.closed {
		c.space.Wait()
	}
	if c.closed {
		c.mu.Unlock()
		p.free()
		return errClosed
	}
	p.done = done
	c.enqueueLocked(p)
	mine := done && c.n == 1 && !c.flushing
	if mine {
		c.flushing = true
	}
	c.mu.Unlock()
	if mine {
		c.flush()
	}
	return nil
}

func (c *conn) enqueueLocked(p *reply) {
	if c.n == len(c.ring) {
		grown := make([]*reply, max(4, 2*len(c.ring)))
		for i := range c.n {
			grown[i] = c.ring[(c.head+i)%len(c.ring)]
		}
		c.ring, c.head = grown, 0
	}
	c.ring[(c.head+c.n)%len(c.ring)] = p
	c.n++
}

// complete marks a reply that was pushed unfinished as ready. It may be called from any goroutine and never blocks on the
// socket: when the reply is the oldest, a goroutine of its own writes it.
func (c *conn) complete(p *reply) {
	c.mu.Lock()
	p.done = true
	if c.closed {
		c.mu.Unlock()
		return // shut has taken the ring and frees its replies
	}
	start := !c.flushing && c.n > 0 && c.ring[c.head] == p
	if start {
		c.flushing = true
	}
	c.mu.Unlock()
	if start {
		c.srv.wg.Go(c.flush)
	}
}

// flush writes finished replies from the head of the ring until it meets an unfinished one. One goroutine at a time:
// c.flushing is its baton.
func (c *conn) flush() {
	var batch [16]*reply
	for {
		c.mu.Lock()
		k := 0
		for k < len(batch) && c.n > 0 && c.ring[c.head].done {
			batch[k] = c.ring[c.head]
			c.ring[c.head] = nil
			c.head = (c.head + 1) % len(c.ring)
			c.n--
			k++
		}
		if k == 0 {
			c.flushing = false
			c.space.Signal()
			c.mu.Unlock()
			return
		}
		c.space.Signal()
		c.mu.Unlock()
		err := c.write(batch[:k])
		if err == nil {
			c.srv.stats.answered(batch[:k])
		}
		for i := range k {
			batch[i].free()
			batch[i] = nil
		}
		if err != nil {
			c.abort()
		}
	}
}

// write sends replies; small ones share a system call.
func (c *conn) write(batch []*reply) (err error) {
	s := c.srv
	c.writeMillis.Store(s.nowMillis())
	if c.cork != nil {
		c.cork.hold()
	}
	defer func() {
		if c.cork != nil {
			err = errors.Join(err, c.cork.release())
		}
		c.writeMillis.Store(0)
		c.activeMillis.Store(s.nowMillis())
	}()
	var w io.Writer = c.nc
	counted := int64(0)
	for _, p := range batch {
		if err := p.flatten(); err != nil {
			return err
		}
	}
	for len(batch) > 0 {
		k := 0
		for k < len(batch) && len(batch[k].spans) == 0 {
			k++
		}
		if k > 1 {
			c.out = c.out[:0]
			for _, p := range batch[:k] {
				c.out = append(c.out, p.plain())
				counted += replyBytes(p)
			}
			bufs := c.out
			if _, err := bufs.WriteTo(w); err != nil {
				return err
			}
			batch = batch[k:]
			continue
		}
		if err := batch[0].writeTo(w); err != nil {
			return err
		}
		counted += replyBytes(batch[0])
		batch = batch[1:]
	}
	s.stats.bytesOut.Add(counted)
	return nil
}

// replyBytes is the size of an answer on the wire.
func replyBytes(p *reply) int64 {
	n := int64(len(p.plain()))
	for i := range p.spans {
		n += int64(p.spans[i].records.Len())
	}
	return n
}

// abort closes the socket so that the reading goroutine ends. Safe from any goroutine, any number of times.
func (c *conn) abort() {
	c.cancel()
	c.sock.Close() // not TLS's goodbye: it might have to wait for the client
	c.mu.Lock()
	c.closed = true
	c.space.Broadcast()
	c.mu.Unlock()
}

// shut ends the connection: outstanding operations are abandoned and unsent answers dropped.
func (c *conn) shut() {
	c.abort()
	c.mu.Lock()
	var waits []waiting
	for c.n > 0 {
		p := c.ring[c.head]
		c.ring[c.head] = nil
		c.head = (c.head + 1) % len(c.ring)
		c.n--
		if p.done {
			p.free()
		} else if p.wait != nil {
			waits = append(waits, p.wait)
		}
	}
	c.mu.Unlock()
	for _, w := range waits {
		w.abandon()
	}
	c.srv.forget(c)
}

// expire lets the oldest outstanding operations give up. Called by the sweeper.
func (c *conn) expire(nowMillis int64) {
	var due [16]waiting
	k := 0
	c.mu.Lock()
	for i := 0; i < c.n && k < len(due); i++ {
		if p := c.ring[(c.head+i)%len(c.ring)]; !p.done && p.wait != nil {
			due[k] = p.wait
			k++
		}
	}
	c.mu.Unlock()
	for _, w := range due[:k] {
		w.expire(nowMillis)
	}
}
