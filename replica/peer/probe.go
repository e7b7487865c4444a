package peer

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
)

// Liveness is what a probe found out.
type Liveness int8

const (
	// Unknown says that nothing came back in time, or nothing that tells.
	Unknown Liveness = iota
	// Up says that something accepts connections there.
	Up
	// Gone says that the machine answered that nothing listens on the port: the process has ended.
	Gone
)

// Probe tries to connect to address until ctx ends. A nil dialer means plain TCP.
func Probe(ctx context.Context, dial Dialer, address string) Liveness {
	if dial == nil {
		dial = DialTCP
	}
	nc, err := dial(ctx, address)
	switch {
	case err == nil:
		nc.Close()
		return Up
	case errors.Is(err, syscall.ECONNREFUSED):
		return Gone
	}
	return Unknown
}

// Address joins a broker's host and port.
func Address(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
