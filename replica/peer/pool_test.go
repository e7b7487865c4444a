package peer

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func newTestPool(t *testing.T, cfg Config) *Pool {
	p := NewPool(cfg)
	t.Cleanup(func() { p.Close() })
	return p
}

func TestCallersOfALaneShareOneConnection(t *testing.T) {
	s := newServer(t, echo)
	p := newTestPool(t, Config{})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := p.Do(t.Context(), s.address(), LaneControl, ask("a")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := s.dials(); n != 1 {
		t.Errorf("%d connections for one lane", n)
	}
	if _, err := p.Do(t.Context(), s.address(), LaneFetch, ask("a")); err != nil || s.dials() != 2 {
		t.Errorf("another lane: %d connections, %v", s.dials(), err)
	}
}

func TestEndedConnectionIsReplaced(t *testing.T) {
	s := newServer(t, echo)
	p := newTestPool(t, Config{})
	c, err := p.Conn(t.Context(), s.address(), LaneControl)
	if err != nil {
		t.Fatal(err)
	}
	s.cut()
	<-c.Done()
	if _, err := p.Do(t.Context(), s.address(), LaneControl, ask("a")); err != nil || s.dials() != 2 {
		t.Errorf("after the connection ended: %d connections, %v", s.dials(), err)
	}
}

func TestFailedDialIsNotRepeatedDuringItsPause(t *testing.T) {
	var dials atomic.Int32
	refused := errors.New("refused")
	p := newTestPool(t, Config{BackoffMin: time.Hour, BackoffMax: time.Hour, Dial: func(context.Context, string) (net.Conn, error) {
		dials.Add(1)
		return nil, refused
	}})
	for range 3 {
		if _, err := p.Do(t.Context(), "nowhere:1", LaneControl, ask("a")); !errors.Is(err, refused) || !errors.Is(err, ErrNotSent) {
			t.Errorf("%v, want the dial's error", err)
		}
	}
	if n := dials.Load(); n != 1 {
		t.Errorf("%d dials during the pause", n)
	}
	p.Reset("nowhere:1")
	p.Do(t.Context(), "nowhere:1", LaneControl, ask("a"))
	if n := dials.Load(); n != 2 {
		t.Errorf("%d dials after the pause was forgotten", n)
	}
}

func TestPoolForgetsAddressesThatFailed(t *testing.T) {
	p := newTestPool(t, Config{BackoffMin: 1, BackoffMax: 1, Dial: func(context.Context, string) (net.Conn, error) {
		return nil, errors.New("refused")
	}})
	for i := range 3 * poolEntriesMax {
		p.Do(t.Context(), Address("nowhere", int32(i)), LaneControl, ask("a"))
	}
	if n := len(p.entries); n > poolEntriesMax {
		t.Errorf("%d addresses are remembered", n)
	}
}

func TestClosedPoolEndsCallsAndDials(t *testing.T) {
	dialling := make(chan struct{})
	p := NewPool(Config{Dial: func(ctx context.Context, _ string) (net.Conn, error) {
		close(dialling)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	done := make(chan error, 1)
	go func() { _, err := p.Do(context.Background(), "a:1", LaneControl, ask("a")); done <- err }()
	<-dialling
	p.Close()
	if err := <-done; !errors.Is(err, ErrNotSent) {
		t.Errorf("%v, want ErrNotSent", err)
	}
	if _, err := p.Do(context.Background(), "a:1", LaneControl, ask("a")); !errors.Is(err, ErrClosed) {
		t.Errorf("%v, want ErrClosed", err)
	}
}
