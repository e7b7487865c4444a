package peer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Lane names what a connection is for. Requests of one lane to one address share a connection, and wait for each other.
type Lane uint8

// The lanes between brokers.
const (
	LaneControl   Lane = iota // short requests to the controller
	LaneHeartbeat             // heartbeats alone: the controller takes the connection's end as a sign
	LaneForward               // clients' requests on their way to the controller, which may take long
	LaneFetch                 // one follower's fetches from one leader
	LaneReplica               // a follower's short questions to a leader
	LaneVerify                // a leader's questions to a transaction's coordinator
	LaneShare                 // what share groups keep, to its coordinator
	LaneMarkers               // a transaction's markers to the leaders, which wait for their commits
)

// poolEntriesMax bounds the addresses whose failed dials are remembered.
const poolEntriesMax = 1024

type slot struct {
	address string
	lane    Lane
}

// Pool keeps connections by address and lane. A connection that has ended is replaced by the next call.
type Pool struct {
	cfg    Config
	frames *frames
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex // guards the following
	closed  bool
	entries map[slot]*entry
}

// entry is a connection, one being opened, or the memory of one that could not be.
type entry struct { // guarded by Pool.mu
	opening *opening // nil: no dial is under way
	conn    *Conn
	err     error     // of the last dial
	tries   int       // failed dials in a row
	until   time.Time // no dial before this
}

// opening is one dial that callers wait for.
type opening struct {
	done chan struct{} // closed when the following is set
	conn *Conn
	err  error
}

// NewPool makes an empty pool.
func NewPool(cfg Config) *Pool {
	cfg = cfg.withDefaults()
	p := &Pool{cfg: cfg, frames: newFrames(cfg.HeldBytesMax), entries: map[slot]*entry{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Do sends a request over the lane's connection, opening it if need be.
func (p *Pool) Do(ctx context.Context, address string, lane Lane, req kmsg.Request) (kmsg.Response, error) {
	c, err := p.Conn(ctx, address, lane)
	if err != nil {
		return nil, err
	}
	return c.Do(ctx, req)
}

// Conn returns the lane's open connection, or waits until one is opened. While the pause after a failed dial lasts it
// returns that dial's error at once.
func (p *Pool) Conn(ctx context.Context, address string, lane Lane) (*Conn, error) {
	c, wait, err := p.look(slot{address, lane})
	if c != nil || err != nil {
		return c, err
	}
	select {
	case <-wait.done:
		return wait.conn, wait.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %s: %w", ErrNotSent, address, ctx.Err())
	}
}

// look returns a connection, or the dial to wait for, or why there will be none now.
func (p *Pool) look(at slot) (*Conn, *opening, error) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, fmt.Errorf("%w: %w", ErrNotSent, ErrClosed)
	}
	e := p.entries[at]
	switch {
	case e != nil && e.conn != nil && e.conn.Err() == nil:
		return e.conn, nil, nil
	case e != nil && e.opening != nil:
		return nil, e.opening, nil
	case e != nil && e.err != nil && now.Before(e.until):
		return nil, nil, e.err
	}
	if e == nil {
		p.makeRoomLocked(now)
		e = &entry{}
		p.entries[at] = e
	}
	o := &opening{done: make(chan struct{})}
	e.conn, e.opening = nil, o
	p.wg.Go(func() { p.open(at, e, o) })
	return nil, o, nil
}

// makeRoomLocked forgets failed dials when there are too many to remember.
func (p *Pool) makeRoomLocked(now time.Time) {
	if len(p.entries) < poolEntriesMax {
		return
	}
	for at, e := range p.entries {
		if e.conn == nil && e.opening == nil && !now.Before(e.until) {
			delete(p.entries, at)
		}
	}
}

// open dials once, for all callers that wait.
func (p *Pool) open(at slot, e *entry, o *opening) {
	c, err := dial(p.ctx, at.address, p.cfg, p.frames)
	o.conn, o.err = c, err
	p.mu.Lock()
	closed := p.closed
	e.opening, e.conn, e.err = nil, c, err
	if err == nil {
		e.tries = 0
	} else {
		pause := min(p.cfg.BackoffMin<<min(e.tries, 16), p.cfg.BackoffMax)
		pause += time.Duration(rand.Int64N(int64(pause)/5 + 1))
		e.tries, e.until = e.tries+1, time.Now().Add(pause)
	}
	p.mu.Unlock()
	close(o.done)
	switch {
	case err != nil && !errors.Is(err, context.Canceled):
		p.cfg.Logger.Debug("peer not reached", "address", at.address, "err", err)
	case c != nil && closed:
		c.Close()
	case c != nil:
		p.wg.Go(func() { p.forget(at, e, c) })
	}
}

// forget takes a connection off the books as soon as it ends. The connection's end stops it.
func (p *Pool) forget(at slot, e *entry, c *Conn) {
	<-c.Done()
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.conn != c {
		return
	}
	e.conn = nil
	if e.opening == nil && p.entries[at] == e {
		delete(p.entries, at)
	}
}

// Reset forgets the pause after failed dials to an address: something says that the peer is back.
func (p *Pool) Reset(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, e := range p.entries {
		if at.address == address {
			e.until, e.tries = time.Time{}, 0
		}
	}
}

// HeldBytes is how many bytes of answers are held at the moment.
func (p *Pool) HeldBytes() int64 {
	p.frames.mu.Lock()
	defer p.frames.mu.Unlock()
	return p.frames.held
}

// Close ends all connections and waits for their goroutines. It is idempotent.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	var conns []*Conn
	for _, e := range p.entries {
		if e.conn != nil {
			conns = append(conns, e.conn)
		}
	}
	p.mu.Unlock()
	p.cancel()
	for _, c := range conns {
		c.Close()
	}
	p.wg.Wait()
	return nil
}
