package broker

import (
	"net"
	"time"

	"github.com/varvelog/varve/replica/peer"
)

// Who is let in. Clients who come in numbers must not keep brokers from each other: with listeners of their own brokers are let
// in past max.connections and max.connection.creation.rate, as in Kafka. Where all come by one listener, a reserve beyond
// max.connections is for whoever says in its first request that it is a broker.

// reservePerBroker is how many connections beyond max.connections are kept for each broker: it has up to eight lanes, and whoever
// turns out to be a client takes a place until its first request.
const reservePerBroker = 16

// reserve is how many connections beyond max.connections there may be at a door: for the brokers there are and one that joins.
func (s *Server) reserve(d *Door) int {
	if s.deps.Controlled == nil || d.ClientsOnly {
		return 0 // there are no others, or they come by another
	}
	return reservePerBroker * (len(s.deps.Metadata.Image().Brokers) + 1)
}

// holdBack is how long the connection just accepted has to wait: max.connection.creation.rate counts all doors together.
func (s *Server) holdBack(d *Door) time.Duration {
	if d.BrokersOnly {
		return 0
	}
	perSecond := float64(max(s.now().ConnectionRateMax, 1))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rate.perSecond = perSecond
	return s.rate.wait(time.Now())
}

// admit starts serving nc unless a cap on connections says no: before any TLS handshake, which costs more than a refusal.
func (s *Server) admit(nc net.Conn, d *Door) {
	ip := remoteIP(nc)
	caps := s.now()
	limit := caps.ConnectionsPerIPMax
	if n, ok := caps.ConnectionsPerIP[ip]; ok {
		limit = n
	}
	reserve := s.reserve(d)
	s.mu.Lock()
	beyond := len(s.conns) - caps.ConnectionsMax // 0: this would be the first
	if s.closed || s.perIP[ip] >= limit || beyond >= 0 && !d.BrokersOnly && beyond >= reserve {
		s.mu.Unlock()
		s.stats.refused.Add(1)
		reset(nc)
		nc.Close()
		return
	}
	c := newConn(s, nc, ip, d)
	var leaves *conn
	switch {
	case beyond < 0:
	case d.BrokersOnly:
		leaves = s.idlestLocked()
	default:
		c.unproved.Store(true)
	}
	s.conns[c] = struct{}{}
	s.perIP[ip]++
	if !s.sweeping {
		s.sweeping = true
		s.wg.Go(s.sweep)
	}
	s.wg.Go(c.serve)
	s.mu.Unlock()
	s.stats.accepted.Add(1)
	tune(nc, &s.cfg)
	if leaves != nil {
		s.giveWay(leaves)
	}
}

// idlestLocked is the client's connection that has been silent for longest; nil: there are none but brokers'.
func (s *Server) idlestLocked() *conn {
	var least *conn
	for c := range s.conns {
		if !c.door.BrokersOnly && (least == nil || c.activeMillis.Load() < least.activeMillis.Load()) {
			least = c
		}
	}
	return least
}

// giveWay ends a client's connection for a broker's.
func (s *Server) giveWay(c *conn) {
	s.stats.expired.Add(1)
	const what = "max.connections is reached: a client's connection gives way to a broker's"
	if omitted, ok := s.limit.Allow(logKey{what: what, topic: c.door.Name}, s.nowMillis()); ok {
		s.log.Warn(what, "listener", c.door.Name, "client", c.remote, "omitted", omitted)
	}
	c.abort()
}

// prove lets a connection beyond max.connections stay if its first request names the software that brokers are.
func (c *conn) prove(software string) error {
	if !c.unproved.Load() {
		return nil
	}
	if software != peer.SoftwareName {
		c.srv.stats.refused.Add(1)
		return errCrowded
	}
	c.unproved.Store(false)
	return nil
}

// tune sets a connection's options.
func tune(nc net.Conn, c *Config) {
	t, ok := nc.(*net.TCPConn)
	if !ok {
		return
	}
	t.SetNoDelay(true)
	t.SetKeepAlive(true)
	if c.SendBufferBytes > 0 {
		t.SetWriteBuffer(c.SendBufferBytes)
	}
	if c.ReceiveBufferBytes > 0 {
		t.SetReadBuffer(c.ReceiveBufferBytes)
	}
}

func remoteIP(nc net.Conn) string {
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		return a.IP.String()
	}
	return nc.RemoteAddr().String()
}

// forget takes a connection that ended off the books.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.conns[c]; !ok {
		return
	}
	delete(s.conns, c)
	if s.perIP[c.remote]--; s.perIP[c.remote] <= 0 {
		delete(s.perIP, c.remote)
	}
}

// acceptRate spaces new connections: a token bucket of one second's worth.
type acceptRate struct {
	perSecond float64
	tokens    float64
	last      time.Time
}

// wait returns how long to hold back the connection just accepted.
func (r *acceptRate) wait(now time.Time) time.Duration {
	if r.last.IsZero() {
		r.tokens = r.perSecond
	} else {
		r.tokens = min(r.perSecond, r.tokens+now.Sub(r.last).Seconds()*r.perSecond)
	}
	r.last = now
	r.tokens--
	if r.tokens >= 0 {
		return 0
	}
	return time.Duration(-r.tokens / r.perSecond * float64(time.Second))
}
