package broker

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/broker/secure"
)

// Door is one listener: what is known of whoever comes in by it.
type Door struct {
	// Name is the listener's, as in listeners: clients are told each broker's address of the same name. "" is the only one
	// there is.
	Name string
	// TLS secures it; nil: plain text. The config stays the same for the listener's life, see secure.Keys.Server.
	TLS *tls.Config
	// ClientsOnly says that brokers have another listener: what they ask of each other is not answered here.
	ClientsOnly bool
	// BrokersOnly says that clients have another listener: caps on connections are for those.
	BrokersOnly bool
	// Certificates says that nobody gets in without a certificate of the truststore.
	Certificates bool
}

// openDoors says of each listener whether what brokers ask of each other is answered there to whoever asks: who shows no
// certificate may say that he is a broker.
func openDoors(doors []*Door) map[string]bool {
	open := make(map[string]bool, len(doors))
	for _, d := range doors {
		open[d.Name] = open[d.Name] || !d.ClientsOnly && !d.Certificates
	}
	return open
}

// secure does the TLS handshake of a connection that came in by a door that wants one; false ends the connection. The sweeper
// holds its deadline.
func (c *conn) secure() bool {
	if c.tls == nil {
		return true
	}
	c.shakeMillis.Store(c.srv.nowMillis())
	err := c.tls.Handshake()
	late := c.shakeMillis.Swap(0) == shakeLate
	if err == nil {
		c.activeMillis.Store(c.srv.nowMillis())
		c.user = secure.Principal(c.tls.ConnectionState().PeerCertificates)
		return true
	}
	if late {
		err = secure.ErrSlow
	}
	c.srv.stats.handshakesFailed.Add(1)
	if !c.srv.isDraining() {
		c.srv.strangers.Accepted(c.door.Name, c.sock.RemoteAddr(), err)
	}
	return false
}

// shakeLate stands in shakeMillis once the handshake has missed its deadline.
const shakeLate = -1

// farewell tells a TLS client that nothing follows. It is called when nothing is being written.
func (c *conn) farewell() {
	if c.tls != nil {
		c.cork.leaving.Store(true)
		c.tls.CloseWrite()
	}
}

// farewellMax bounds the goodbye to a client that takes no more bytes. crypto/tls would wait five seconds.
const farewellMax = 100 * time.Millisecond

// hungUp says that the peer of a connection will send nothing more. What it has sent and nobody has read does not hide that, as it
// would from a peek: with TLS the last of it is always its own goodbye.
func hungUp(t *net.TCPConn) bool {
	raw, err := t.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(p, 0)
		gone = err == nil && n > 0 && p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone || err != nil
}

// corkBytes is how much of TLS's output is gathered before it goes to the socket: TLS writes records of 16 KiB and less, and
// each would be a system call.
const corkBytes = 64 << 10

// cork is the socket under a TLS connection. While it is held, what TLS writes is gathered in a pooled buffer.
type cork struct {
	net.Conn
	held    atomic.Bool
	leaving atomic.Bool // what is written now is the goodbye

	mu  sync.Mutex // the right to write to the socket; guards nothing else that anybody waits for
	buf *buffer
	n   int
	err error // of the first write that failed: nothing may follow it
}

// SetWriteDeadline implements net.Conn. TLS sets one for its goodbye.
func (k *cork) SetWriteDeadline(t time.Time) error {
	if latest := time.Now().Add(farewellMax); k.leaving.Load() && t.After(latest) {
		t = latest
	}
	return k.Conn.SetWriteDeadline(t)
}

// hold begins to gather.
func (k *cork) hold() { k.held.Store(true) }

// release writes what was gathered and ends it.
func (k *cork) release() error {
	k.held.Store(false)
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.flushLocked()
	putBuffer(k.buf)
	k.buf = nil
	return err
}

// Write implements net.Conn. TLS writes whole records, one at a time.
func (k *cork) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return 0, k.err
	}
	if !k.held.Load() {
		if err := k.flushLocked(); err != nil {
			return 0, err
		}
		n, err := k.Conn.Write(p)
		k.err = err
		return n, err
	}
	if k.buf == nil {
		k.buf = getBuffer(corkBytes)
	}
	for done := 0; ; {
		m := copy(k.buf.b[k.n:], p[done:])
		k.n, done = k.n+m, done+m
		if done == len(p) {
			return done, nil
		}
		if err := k.flushLocked(); err != nil {
			return done, err
		}
	}
}

func (k *cork) flushLocked() error {
	if k.err == nil && k.n > 0 {
		_, k.err = k.Conn.Write(k.buf.b[:k.n])
	}
	k.n = 0
	return k.err
}
