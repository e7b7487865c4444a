package meta

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// pipes is a network in memory, for a bubble of synctest: what a TCP connection
// waits for is not durable there. A node that is cut off loses no connection and
// gets none; what was sent arrives when it is no longer.
type pipes struct {
	mu        sync.Mutex // guards the following
	listeners map[string]*pipeListener
	cut       string        // a node's address
	healed    chan struct{} // closed when nobody is cut off any more
	ends      []*pipeEnd

	messages, bytes atomic.Int64
}

type pipeListener struct {
	address string
	conns   chan net.Conn
	closing sync.Once
	closed  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.closing.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return advertised(l.address) }

// node is the transport of a node at an address.
func (p *pipes) node(address string) raft.Transport {
	l := &pipeListener{address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
	p.mu.Lock()
	if p.listeners == nil {
		p.listeners, p.healed = make(map[string]*pipeListener), make(chan struct{})
		close(p.healed)
	}
	p.listeners[address] = l
	p.mu.Unlock()
	over := TLS{Dial: func(ctx context.Context, to string) (net.Conn, error) { return p.dial(ctx, address, to) }}
	return newTransport(l, advertised(address), over, nil)
}

func (p *pipes) dial(ctx context.Context, from, to string) (net.Conn, error) {
	p.mu.Lock()
	l := p.listeners[to]
	p.mu.Unlock()
	for {
		select {
		case <-p.between(from, to):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		near, far := net.Pipe()
		closed := make(chan struct{})
		var once sync.Once
		end := func(c net.Conn) net.Conn {
			e := &pipeEnd{Conn: c, p: p, from: from, to: to, closed: closed, closing: &once}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.ends = append(p.ends, e)
			return e
		}
		select {
		case l.conns <- end(far):
			return end(near), nil
		case <-l.closed:
			return nil, fmt.Errorf("dial %s: %w", to, syscall.ECONNREFUSED)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// between is closed while two nodes reach each other.
func (p *pipes) between(a, b string) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut == a || p.cut == b {
		return p.healed
	}
	open := make(chan struct{})
	close(open)
	return open
}

func (p *pipes) cutOff(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut, p.healed = address, make(chan struct{})
}

func (p *pipes) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = ""
	close(p.healed)
}

// stall has what is written to the connections that something is written to
// most of the time go nowhere from now on, as far as they end at a node.
func (p *pipes) stall(address string) (stalled int) {
	const long = 10 * time.Second
	p.mu.Lock()
	ends := p.ends
	p.mu.Unlock()
	before := make(map[*pipeEnd]int64)
	for _, e := range ends {
		before[e] = e.writes.Load()
	}
	<-time.After(long)
	for e, was := range before {
		if (e.from == address || e.to == address) && e.writes.Load()-was > int64(long/time.Second) {
			e.stalled.Store(true)
			stalled++
		}
	}
	return stalled
}

type pipeEnd struct {
	net.Conn
	writes   atomic.Int64
	stalled  atomic.Bool
	p        *pipes
	from, to string
	closed   chan struct{}
	closing  *sync.Once
}

func (e *pipeEnd) Write(b []byte) (int, error) {
	select {
	case <-e.p.between(e.from, e.to):
	case <-e.closed:
		return 0, net.ErrClosed
	}
	if e.stalled.Load() {
		select {
		case <-e.closed:
			return 0, net.ErrClosed
		case <-time.After(transportTimeout):
			return 0, os.ErrDeadlineExceeded
		}
	}
	e.writes.Add(1)
	e.p.messages.Add(1)
	e.p.bytes.Add(int64(len(b)))
	return e.Conn.Write(b)
}

func (e *pipeEnd) Close() error {
	e.closing.Do(func() { close(e.closed) })
	return e.Conn.Close()
}

// inMemory runs what on a quorum of three in a bubble.
func inMemory(t *testing.T, what func(t *testing.T, p *pipes, nodes []*Node)) {
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	synctest.Test(t, func(t *testing.T) {
		var p pipes
		var voters []Voter
		for i := range dirs {
			voters = append(voters, Voter{NodeID: int32(i + 1), Address: fmt.Sprintf("node-%d:1", i+1)})
		}
		nodes := make([]*Node, len(dirs))
		transports := make([]raft.Transport, len(dirs))
		for i, v := range voters {
			transports[i] = p.node(v.Address)
		}
		for i := range nodes {
			n, err := Open(Config{Dir: dirs[i], NodeID: int32(i + 1), Voters: voters}, Deps{Transport: transports[i]})
			if err != nil {
				t.Fatal(err)
			}
			nodes[i] = n
		}
		defer func() {
			for _, n := range nodes {
				closeNode(t, n)
			}
		}()
		what(t, &p, nodes)
	})
}

func (n *Node) address() string { return string(n.deps.Transport.LocalAddr()) }

// TestAnIdleQuorumSaysLittle counts what three nodes send in a minute in which
// nothing happens.
func TestAnIdleQuorumSaysLittle(t *testing.T) {
	inMemory(t, func(t *testing.T, p *pipes, nodes []*Node) {
		leader := leaderOf(t, nodes)
		agree(t, nodes, leader.Image().Index)
		<-time.After(10 * time.Second)
		messages, bytes, term := p.messages.Load(), p.bytes.Load(), leader.raft.CurrentTerm()
		<-time.After(time.Minute)
		messages, bytes = p.messages.Load()-messages, p.bytes.Load()-bytes
		// A heartbeat every 210 ms on average, and its answer, to each of two.
		if messages > 1300 || bytes > 150_000 {
			t.Errorf("%d messages of %d bytes in a minute", messages, bytes)
		}
		if !leader.IsController() || leader.raft.CurrentTerm() != term {
			t.Error("the leader changed")
		}

		// What is decided reaches everybody as soon as ever.
		if err := leader.alterGroup("a"); err != nil {
			t.Fatal(err)
		}
		decided := time.Now()
		agree(t, nodes, leader.Image().Index)
		if took := time.Since(decided); took > 3*commitInterval {
			t.Errorf("followers knew after %v", took)
		}
	})
}

// TestALeaderThatStandsStillForAMomentStays has what the leader sends and is
// sent wait for 400 ms: the silence between two heartbeats and that.
func TestALeaderThatStandsStillForAMomentStays(t *testing.T) {
	inMemory(t, func(t *testing.T, p *pipes, nodes []*Node) {
		leader := leaderOf(t, nodes)
		<-time.After(5 * time.Second)
		term := leader.raft.CurrentTerm()
		for i := range 50 {
			p.cutOff(leader.address())
			<-time.After(400 * time.Millisecond)
			p.heal()
			<-time.After(time.Second + time.Duration(i)*7*time.Millisecond)
			if !leader.IsController() || leader.raft.CurrentTerm() != term {
				t.Fatalf("another leads after %d pauses", i+1)
			}
		}
	})
}

// TestALeaderWhoseHeartbeatsHangStays has the connections hang that carry them,
// and no others.
func TestALeaderWhoseHeartbeatsHangStays(t *testing.T) {
	inMemory(t, func(t *testing.T, p *pipes, nodes []*Node) {
		leader := leaderOf(t, nodes)
		agree(t, nodes, leader.Image().Index)
		<-time.After(5 * time.Second)
		term := leader.raft.CurrentTerm()
		if n := p.stall(leader.address()); n != 4 {
			t.Fatalf("%d ends of connections carry heartbeats to two followers", n)
		}
		for range 80 {
			<-time.After(100 * time.Millisecond)
			if !leader.IsController() || leader.raft.CurrentTerm() != term {
				t.Fatal("another leads")
			}
		}
	})
}

// TestASilentLeaderIsReplacedWithinASecond has the leader lose nothing but the
// network.
func TestASilentLeaderIsReplacedWithinASecond(t *testing.T) {
	for range 5 {
		inMemory(t, func(t *testing.T, p *pipes, nodes []*Node) {
			old := leaderOf(t, nodes)
			agree(t, nodes, old.Image().Index)
			<-time.After(5 * time.Second)
			var rest []*Node
			for _, n := range nodes {
				if n != old {
					rest = append(rest, n)
				}
			}
			p.cutOff(old.address())
			began := time.Now()
			waitFor(t, func() bool { return rest[0].IsController() || rest[1].IsController() })
			if old.IsController() {
				t.Error("two lead")
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("another led after %v", took)
			}
			onLeader(t, rest, func(n *Node) error { return n.alterGroup("a") })
			p.heal()
			waitFor(t, func() bool { return old.Image().ControllerID == rest[0].Image().ControllerID })
			agree(t, nodes, 1)
		})
	}
}
