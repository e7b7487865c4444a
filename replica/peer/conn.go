package peer

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Conn is one connection to a peer. Its methods may be called from any goroutine.
type Conn struct {
	cfg      Config
	address  string
	nc       net.Conn
	frames   *frames
	format   *kmsg.RequestFormatter
	versions versions
	slots    chan struct{} // one for each request under way
	writing  chan struct{} // holds the right to write to the socket, and to use out
	out      []byte
	wg       sync.WaitGroup
	done     chan struct{} // closed when the connection has ended

	mu      sync.Mutex // guards the following
	err     error      // why it ended
	next    int32      // correlation id
	pending map[int32]*call
	silent  map[int32]struct{} // cancelled calls whose answers are to be dropped
}

// call is one request that waits for its answer.
type call struct {
	flexible bool          // the answer's header has tagged fields
	ready    chan struct{} // closed when frame is set, or never will be
	frame    *Frame        // guarded by Conn.mu until ready is closed; nil: the connection has ended
	gone     bool          // guarded by Conn.mu: nobody waits any more
}

// Dial opens a connection of its own, outside any pool. It asks the peer what it serves.
func Dial(ctx context.Context, address string, cfg Config) (*Conn, error) {
	cfg = cfg.withDefaults()
	return dial(ctx, address, cfg, newFrames(cfg.HeldBytesMax))
}

func dial(ctx context.Context, address string, cfg Config, fs *frames) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.DialMax)
	defer cancel()
	nc, err := cfg.Dial(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("%w: connect to %s: %w", ErrNotSent, address, err)
	}
	c := newConn(nc, address, cfg, fs)
	c.wg.Go(c.read)
	if err := c.greet(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("%w: greet %s: %w", ErrNotSent, address, err)
	}
	return c, nil
}

func newConn(nc net.Conn, address string, cfg Config, fs *frames) *Conn {
	return &Conn{
		cfg: cfg, address: address, nc: nc, frames: fs,
		format:  kmsg.NewRequestFormatter(kmsg.FormatterClientID(cfg.ClientID)),
		slots:   make(chan struct{}, cfg.InFlightMax),
		writing: make(chan struct{}, 1),
		done:    make(chan struct{}),
		pending: map[int32]*call{},
		silent:  map[int32]struct{}{},
	}
}

// greet asks what the peer serves.
func (c *Conn) greet(ctx context.Context) error {
	req := kmsg.NewPtrApiVersionsRequest()
	req.SetVersion(3)
	req.ClientSoftwareName, req.ClientSoftwareVersion = SoftwareName, "1"
	resp := kmsg.NewPtrApiVersionsResponse()
	if err := c.roundTrip(ctx, req, resp, true); err != nil {
		return err
	}
	if resp.ErrorCode != 0 {
		return fmt.Errorf("%w: ApiVersions answers error %d", ErrMalformed, resp.ErrorCode)
	}
	c.versions = readVersions(resp)
	return nil
}

// Address is what the connection was dialled with.
func (c *Conn) Address() string { return c.address }

// Done is closed when the connection has ended; Err then says why.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is why the connection ended, nil while it is open.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and waits until its goroutine is gone. Calls under way return ErrClosed.
func (c *Conn) Close() error {
	c.fail(ErrClosed)
	c.wg.Wait()
	return nil
}

// fail ends the connection for the first reason given.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	pending := c.pending
	c.pending, c.silent = nil, nil
	close(c.done)
	c.mu.Unlock()
	c.nc.Close()
	for _, x := range pending {
		close(x.ready)
	}
}

// Do sends a request and returns its answer, which is the caller's to keep. The request's version may be lowered to what
// the peer serves; the answer has the same.
func (c *Conn) Do(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if err := c.settle(req); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	if err := c.roundTrip(ctx, req, resp, false); err != nil {
		return nil, err
	}
	return resp, nil
}

// DoInto sends a request and decodes its answer into resp, whose slices of bytes are slices of the frame: resp is valid
// until the frame is released. What resp held before is dropped, its memory used again where possible.
func (c *Conn) DoInto(ctx context.Context, req kmsg.Request, resp kmsg.Response) (*Frame, error) {
	if err := c.settle(req); err != nil {
		return nil, err
	}
	frame, body, err := c.exchange(ctx, req)
	if err != nil {
		return nil, err
	}
	resp.SetVersion(req.GetVersion())
	if u, ok := resp.(interface{ UnsafeReadFrom([]byte) error }); ok {
		err = u.UnsafeReadFrom(body)
	} else {
		err = resp.ReadFrom(body)
	}
	if err != nil {
		c.frames.leave(frame)
		return nil, c.malformed(req, err)
	}
	return frame, nil
}

func (c *Conn) settle(req kmsg.Request) error {
	if err := c.versions.settle(req); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNotSent, c.address, err)
	}
	return nil
}

// roundTrip sends req and decodes its answer. reuse says that resp holds no slice of the frame.
func (c *Conn) roundTrip(ctx context.Context, req kmsg.Request, resp kmsg.Response, reuse bool) error {
	frame, body, err := c.exchange(ctx, req)
	if err != nil {
		return err
	}
	resp.SetVersion(req.GetVersion())
	err = resp.ReadFrom(body)
	c.frames.giveBack(frame, reuse && err == nil)
	if err != nil {
		return c.malformed(req, err)
	}
	return nil
}

func (c *Conn) malformed(req kmsg.Request, cause error) error {
	err := fmt.Errorf("%w: %s: key %d version %d: %w", ErrMalformed, c.address, req.Key(), req.GetVersion(), cause)
	c.fail(err)
	return err
}

// exchange sends req and waits for the frame of its answer; body is what follows the header in it.
func (c *Conn) exchange(ctx context.Context, req kmsg.Request) (frame *Frame, body []byte, err error) {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.AnswerMax)
		defer cancel()
	}
	select {
	case c.slots <- struct{}{}:
	case <-c.done:
		return nil, nil, c.notSent(c.Err())
	case <-ctx.Done():
		return nil, nil, c.notSent(ctx.Err())
	}
	x := &call{ready: make(chan struct{}), flexible: req.ResponseKind().IsFlexible() && req.Key() != keyApiVersions}
	id, err := c.send(ctx, req, x)
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-x.ready:
		frame = x.frame
	case <-ctx.Done():
		if frame = c.giveUp(ctx, id, x); frame == nil {
			return nil, nil, fmt.Errorf("%s: answer not awaited: %w", c.address, ctx.Err())
		}
	}
	if frame == nil {
		return nil, nil, fmt.Errorf("%s: %w", c.address, c.Err())
	}
	body, ok := answerBody(frame.buf, x.flexible)
	if !ok {
		c.frames.leave(frame)
		return nil, nil, c.malformed(req, errors.New("header"))
	}
	return frame, body, nil
}

const keyApiVersions = 18

func (c *Conn) notSent(err error) error { return fmt.Errorf("%w: %s: %w", ErrNotSent, c.address, err) }

// send registers the call and writes the request. On an error the call is over and its slot free.
func (c *Conn) send(ctx context.Context, req kmsg.Request, x *call) (id int32, err error) {
	select {
	case c.writing <- struct{}{}:
	case <-c.done:
		<-c.slots
		return 0, c.notSent(c.Err())
	case <-ctx.Done():
		<-c.slots
		return 0, c.notSent(ctx.Err())
	}
	defer func() { <-c.writing }()
	c.mu.Lock()
	if c.err != nil {
		err = c.err
		c.mu.Unlock()
		<-c.slots
		return 0, c.notSent(err)
	}
	id = c.next
	c.next++
	c.pending[id] = x
	c.mu.Unlock()
	deadline, _ := ctx.Deadline()
	c.nc.SetWriteDeadline(deadline)
	c.out = c.format.AppendRequest(c.out[:0], req, id)
	_, err = c.nc.Write(c.out)
	if cap(c.out) > outKeepBytes {
		c.out = nil
	}
	if err != nil {
		c.fail(fmt.Errorf("%w: %w", ErrDisconnected, err))
		return 0, fmt.Errorf("%s: %w", c.address, c.Err())
	}
	return id, nil
}

// outKeepBytes bounds the request buffer that a connection keeps.
const outKeepBytes = 64 << 10

// giveUp ends a call whose context ended. It returns the frame that came at the last moment. A missed deadline ends the
// connection; after a cancellation the answer is dropped when it comes.
func (c *Conn) giveUp(ctx context.Context, id int32, x *call) *Frame {
	c.mu.Lock()
	frame := x.frame
	if frame == nil {
		x.gone = true
		if c.pending[id] == x {
			delete(c.pending, id)
			c.silent[id] = struct{}{}
		}
	}
	c.mu.Unlock()
	if frame == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		c.fail(fmt.Errorf("%w: no answer in time", ErrDisconnected))
	}
	return frame
}

// read hands answers to their calls. It owns the reading half of the socket; the connection's end stops it.
func (c *Conn) read() {
	r := bufio.NewReaderSize(c.nc, 4<<10)
	for {
		if err := c.readOne(r); err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrDisconnected, err))
			return
		}
	}
}

// readOne reads one answer: size i32, correlation id i32, the rest of the header, the body.
func (c *Conn) readOne(r *bufio.Reader) error {
	var start [8]byte
	if _, err := io.ReadFull(r, start[:]); err != nil {
		return err
	}
	size := int(int32(binary.BigEndian.Uint32(start[:])))
	if size < 4 || size > c.cfg.FrameBytesMax {
		return fmt.Errorf("%w: answer of %d bytes, limit %d", ErrMalformed, size, c.cfg.FrameBytesMax)
	}
	id := int32(binary.BigEndian.Uint32(start[4:]))
	x, silent := c.claim(id)
	switch {
	case silent:
		_, err := io.CopyN(io.Discard, r, int64(size-4))
		<-c.slots
		return err
	case x == nil:
		return fmt.Errorf("%w: answer to request %d, which is not outstanding", ErrMalformed, id)
	}
	frame := c.frames.take(size-4, c.done)
	if frame == nil {
		close(x.ready)
		return ErrClosed
	}
	if _, err := io.ReadFull(r, frame.buf); err != nil {
		frame.Release()
		c.fail(fmt.Errorf("%w: %w", ErrDisconnected, err)) // before the caller looks for the reason
		close(x.ready)
		return err
	}
	<-c.slots
	c.deliver(x, frame)
	return nil
}

// claim takes a call off the table: its end is then the reader's to make.
func (c *Conn) claim(id int32) (x *call, silent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	x = c.pending[id]
	delete(c.pending, id)
	if _, silent = c.silent[id]; silent {
		delete(c.silent, id)
	}
	return x, silent
}

func (c *Conn) deliver(x *call, frame *Frame) {
	c.mu.Lock()
	gone := x.gone
	if !gone {
		x.frame = frame
	}
	c.mu.Unlock()
	if gone {
		frame.Release()
	}
	close(x.ready)
}

// answerBody is what follows an answer's header: nothing, or a section of tagged fields.
func answerBody(b []byte, flexible bool) ([]byte, bool) {
	if !flexible {
		return b, true
	}
	n, k := binary.Uvarint(b)
	if k <= 0 {
		return nil, false
	}
	for b = b[k:]; n > 0; n-- {
		_, tag := binary.Uvarint(b)
		if tag <= 0 {
			return nil, false
		}
		size, k := binary.Uvarint(b[tag:])
		if k <= 0 || size > uint64(len(b)-tag-k) {
			return nil, false
		}
		b = b[tag+k+int(size):]
	}
	return b, true
}
