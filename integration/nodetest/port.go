package nodetest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort gives a port of 127.0.0.1 that nobody listens at, and that no other
// test gets until this one ends, whoever of them listens where meanwhile: nodes
// are down for a while, and come back to their ports. It lies below those that
// the kernel gives to outgoing connections.
//
// What is held is a name among the abstract sockets of the machine. The kernel
// gives it free when the process ends, however it does.
func FreePort(t T) int {
	t.Helper()
	for range 1000 {
		port := 10000 + rand.IntN(22000)
		held, err := net.Listen("unix", fmt.Sprintf("@varve-test-port-%d", port))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			held.Close()
			continue
		}
		l.Close()
		t.Cleanup(func() { held.Close() })
		return port
	}
	t.Fatal("no free port")
	return 0
}
