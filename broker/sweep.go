package broker

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// sweep keeps every connection's deadlines. It runs from the first connection until Close and owns nothing: it reads
// timestamps and closes sockets. One goroutine with a coarse clock is much cheaper than deadlines set on each request.
func (s *Server) sweep() {
	period := min(s.cfg.IdleMax, s.cfg.HandshakeMax, s.cfg.FrameMax, s.cfg.WriteMax) / 4
	period = min(max(period, 10*time.Millisecond), 200*time.Millisecond)
	t := time.NewTicker(period)
	defer t.Stop()
	var conns []*conn
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-t.C:
		}
		conns = conns[:0]
		s.mu.Lock()
		for c := range s.conns {
			conns = append(conns, c)
		}
		s.mu.Unlock()
		now := s.nowMillis()
		short := shortage{s.budgets.small.short(), s.budgets.large.short()}
		for i, c := range conns {
			c.expire(now)
			if c.shakesTooLong(now) {
				s.stats.expired.Add(1)
				c.abort() // secure says so
				conns[i] = nil
				continue
			}
			if why := c.overdue(now, short); why != "" {
				s.stats.expired.Add(1)
				s.log.Info("connection expired", "client", c.remote, "reason", why)
				c.abort()
			}
			conns[i] = nil
		}
	}
}

// shakesTooLong says that the connection's TLS handshake has missed its deadline, once.
func (c *conn) shakesTooLong(now int64) bool {
	at := c.shakeMillis.Load()
	return at > 0 && now-at > c.srv.cfg.HandshakeMax.Milliseconds() && c.shakeMillis.CompareAndSwap(at, shakeLate)
}

// gonePeerMillis is how long a handler may run before its peer is checked for having left: a fetch may ask to wait for
// weeks, and its connection must not outlive the client.
const gonePeerMillis = 2000

// hungUpMillis is how long bytes that its client sent before it left keep a connection whose handler waits, or that waits for a
// quota. Until then they may still be handled (records without acknowledgement are, in Kafka); a wait of weeks does not keep them.
const hungUpMillis = 60_000

// shortage says whose budget frames wait for.
type shortage struct{ small, large bool }

// overdue names the deadline that c has missed, or returns "". A frame has FrameMax for each of its parts; while others
// wait for memory it must also come at framePace.
func (c *conn) overdue(now int64, short shortage) string {
	cfg := &c.srv.cfg
	if at := c.frameMillis.Load(); at != 0 {
		want := c.frameWant.Load()
		if now-at > cfg.FrameMax.Milliseconds() {
			return "request incomplete"
		}
		if (short.small && want <= frameSmall || short.large) && now-at > frameGrace+want*1000/framePace {
			return "request too slow while others wait for memory"
		}
	}
	if at := c.writeMillis.Load(); at != 0 && now-at > cfg.WriteMax.Milliseconds() {
		return "answer not taken"
	}
	if at := c.handleMillis.Load(); at != 0 {
		if now-at > gonePeerMillis && c.peerGone(now-at > hungUpMillis) {
			return "peer left while its request waited"
		}
		return ""
	}
	if c.unproved.Load() && now-c.activeMillis.Load() > cfg.HandshakeMax.Milliseconds() {
		return "said nothing, beyond max.connections"
	}
	if c.writeMillis.Load() == 0 && c.frameMillis.Load() == 0 && c.shakeMillis.Load() == 0 && now-c.activeMillis.Load() > cfg.IdleMax.Milliseconds() {
		return "idle"
	}
	return ""
}

// peerGone peeks at the socket: end of stream or an error means that nobody is left to answer. With late that counts behind what
// was sent and nobody has read as well.
func (c *conn) peerGone(late bool) bool {
	t, ok := c.sock.(*net.TCPConn)
	if !ok {
		return false
	}
	if c.tls != nil || late {
		return hungUp(t)
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		switch {
		case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		case err != nil:
			gone = true
		default:
			gone = n == 0
		}
	})
	return gone || err != nil
}
