package integration

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy forwards TCP to another address until it is cut. Cutting closes every
// connection and refuses new ones, as a server that is gone does.
type proxy struct {
	Addr string

	target string
	wg     sync.WaitGroup
	mu     sync.Mutex // guards the following
	cut    bool
	open   map[net.Conn]bool
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Addr: l.Addr().String(), target: target, open: map[net.Conn]bool{}}
	p.wg.Go(func() { // ends when the listener is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.forward(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.Cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) forward(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer server.Close()
	if !p.add(client, server) {
		return
	}
	defer p.remove(client, server)
	done := make(chan struct{})
	go func() {
		_, _ = io.Copy(server, client) // either side's end ends both
		server.Close()
		close(done)
	}()
	_, _ = io.Copy(client, server)
	client.Close()
	<-done
}

func (p *proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.open[c] = true
	}
	return !p.cut
}

func (p *proxy) remove(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.open, c)
	}
}

// Cut makes the target unreachable.
func (p *proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = true
	for c := range p.open {
		c.Close()
	}
}

// Heal makes it reachable again.
func (p *proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
}
