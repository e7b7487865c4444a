package broker

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// writeMore writes bytes that others follow at once. To a TCP connection it says
// so: the kernel puts them into one packet with what comes next, instead of
// sending a small one that wakes the client for nothing.
func writeMore(w io.Writer, p []byte) error {
	conn, ok := w.(*net.TCPConn)
	if !ok {
		_, err := w.Write(p)
		return err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Write(func(fd uintptr) bool {
		for len(p) > 0 {
			n, err := unix.SendmsgN(int(fd), p, nil, nil, unix.MSG_MORE|unix.MSG_NOSIGNAL)
			switch {
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR:
			case err != nil:
				serr = err
				return true
			default:
				p = p[n:]
			}
		}
		return true
	})
	return errors.Join(err, serr)
}
