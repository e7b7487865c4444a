package broker

import (
	"errors"
	"io"
	"net"
	"syscall"
)

// inboxBytes is how much one read of a socket asks for: most requests come whole with it, size included, in one system
// call.
const inboxBytes = 4 << 10

// inbox holds what was read of a connection and not handled yet. It takes a buffer only when the socket has bytes, so an
// idle connection holds none.
type inbox struct {
	nc      net.Conn
	raw     syscall.RawConn       // nil when nc is no plain socket: then the buffer is taken before the wait
	attempt func(fd uintptr) bool // tryRead, made once so that a read allocates nothing
	buf     *buffer
	at, end int // the unread bytes of buf
	n       int // of the last attempt
	err     error
}

func newInbox(nc net.Conn) inbox {
	in := inbox{nc: nc}
	if t, ok := nc.(*net.TCPConn); ok {
		if raw, err := t.SyscallConn(); err == nil {
			in.raw = raw
		}
	}
	return in
}

func (in *inbox) bytes() []byte {
	if in.buf == nil {
		return nil
	}
	return in.buf.b[in.at:in.end]
}

// more waits for bytes. It is called when all there were have been used.
func (in *inbox) more() error {
	in.release()
	if in.raw == nil {
		in.buf = getBuffer(inboxBytes)
		n, err := in.nc.Read(in.buf.b)
		in.at, in.end = 0, n
		if n > 0 {
			return nil
		}
		in.release()
		return err
	}
	if in.attempt == nil {
		in.attempt = in.tryRead
	}
	if err := in.raw.Read(in.attempt); err != nil {
		return err
	}
	in.at, in.end = 0, max(in.n, 0)
	if in.err != nil || in.end == 0 {
		in.release()
		if in.err == nil {
			return io.EOF
		}
		return in.err
	}
	return nil
}

// tryRead reads what the socket has; false means nothing yet.
func (in *inbox) tryRead(fd uintptr) bool {
	if in.buf == nil {
		in.buf = getBuffer(inboxBytes)
	}
	for {
		in.n, in.err = syscall.Read(int(fd), in.buf.b[:inboxBytes])
		switch {
		case errors.Is(in.err, syscall.EINTR):
			continue
		case errors.Is(in.err, syscall.EAGAIN):
			in.release()
			return false
		}
		return true
	}
}

// take hands out the next n bytes; they stay until done.
func (in *inbox) take(n int) []byte {
	b := in.buf.b[in.at : in.at+n : in.at+n]
	in.at += n
	return b
}

// done ends the use of what take gave. keep leaves the buffer to the collector because a handler holds slices of it.
func (in *inbox) done(keep bool) {
	if keep && in.buf != nil {
		rest := in.bytes()
		in.buf = nil
		if len(rest) > 0 {
			in.buf = getBuffer(inboxBytes)
			in.at, in.end = 0, copy(in.buf.b, rest)
		}
	}
	if in.at == in.end {
		in.release()
	}
}

func (in *inbox) release() {
	putBuffer(in.buf)
	in.buf, in.at, in.end = nil, 0, 0
}
