package broker

import (
	"crypto/tls"
	"maps"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/replica/peer"
)

// brokersMetadata is of a cluster of two brokers, with a controller here.
func brokersMetadata() Deps {
	return Deps{
		Controlled: &controlledFake{beats: make(chan meta.Heartbeat, 100), ends: make(chan string, 100)},
		Metadata:   emptyMetadata{refusing{err: meta.ErrPolicyViolation}, &meta.Image{Brokers: map[int32]meta.Broker{1: {ID: 1}, 2: {ID: 2}}}},
	}
}

// heartbeats is what a broker asks first, over a connection of its own.
func heartbeatOver(t *testing.T, address string) {
	t.Helper()
	c, err := peer.Dial(t.Context(), address, peer.Config{})
	if err != nil {
		t.Fatalf("a broker is not let in: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	beat := kmsg.NewPtrBrokerHeartbeatRequest()
	beat.SetVersion(1)
	beat.BrokerID = 2
	if _, err := c.Do(t.Context(), beat); err != nil {
		t.Fatalf("a broker's heartbeat is not answered: %v", err)
	}
}

// Clients fill max.connections at the one listener there is; brokers still come in, and nobody else does.
func TestConnectionsBeyondTheCapAreForBrokers(t *testing.T) {
	s := startServerWith(t, func(c *Config) { c.ConnectionsMax, c.HandshakeMax = 2, 500*time.Millisecond }, brokersMetadata())
	for range 2 {
		dial(t, s.addr).ask(kmsg.NewPtrApiVersionsRequest())
	}
	named := kmsg.NewPtrApiVersionsRequest()
	named.SetVersion(3)
	named.ClientSoftwareName, named.ClientSoftwareVersion = "kgo", "1"
	newest := kmsg.NewPtrApiVersionsRequest()
	newest.SetVersion(4)
	newest.ClientSoftwareName, newest.ClientSoftwareVersion = peer.SoftwareName+"s", "1"
	beat := kmsg.NewPtrBrokerHeartbeatRequest()
	beat.SetVersion(1)
	for i, q := range []kmsg.Request{kmsg.NewPtrApiVersionsRequest(), named, newest, kmsg.NewPtrMetadataRequest(), beat} {
		c := dial(t, s.addr)
		c.send(q)
		c.isReset()
		if got := s.Stats().Refused; got != int64(i+1) {
			t.Errorf("request %d: %d connections refused, want %d", i, got, i+1)
		}
	}
	dial(t, s.addr).closed() // who says nothing does not stay
	for range 3 {
		heartbeatOver(t, s.addr)
	}
}

// The reserve is bounded: beyond it there is not even a first request.
func TestTheReserveForBrokersIsBounded(t *testing.T) {
	s := startServerWith(t, func(c *Config) { c.ConnectionsMax = 1 }, brokersMetadata())
	want := 1 + 3*reservePerBroker // of two brokers, and one that joins
	for range want {
		dial(t, s.addr)
	}
	eventually(t, "all are in", func() bool { return s.Stats().Connections == want })
	turnedAway(t, s.addr)
	if st := s.Stats(); st.Refused != 1 || st.Connections != want {
		t.Errorf("%d connections, %d refused", st.Connections, st.Refused)
	}
}

// With a listener of their own brokers are let in past max.connections, and the client that was silent for longest leaves
// (as in Kafka). A listener for clients alone has no reserve.
func TestClientsGiveWayAtTheBrokersOwnListener(t *testing.T) {
	s := startServerWith(t, func(c *Config) { c.ConnectionsMax = 3 }, brokersMetadata())
	public := s.openDoor(t, Door{Name: "PUBLIC", ClientsOnly: true})
	internal := s.openDoor(t, Door{Name: "INTERNAL", BrokersOnly: true})
	var clients []*client
	for range 3 {
		c := dial(t, public)
		c.ask(kmsg.NewPtrApiVersionsRequest())
		clients = append(clients, c)
	}
	s.mu.Lock()
	for c := range s.conns { // their clock is coarse
		if c.sock.RemoteAddr().String() == clients[1].nc.LocalAddr().String() {
			c.activeMillis.Store(1)
		}
	}
	s.mu.Unlock()
	turnedAway(t, public)
	heartbeatOver(t, internal)
	clients[1].closed()
	for _, c := range []*client{clients[0], clients[2]} {
		c.ask(kmsg.NewPtrApiVersionsRequest())
	}
	turnedAway(t, public)
	for range 2 {
		heartbeatOver(t, internal)
	}
	heartbeatOver(t, internal) // there is no client left to give way
}

// max.connection.creation.rate counts all listeners together, but for the brokers' own.
func TestOneRateForAllListeners(t *testing.T) {
	s := startServer(t, func(c *Config) { c.ConnectionRateMax = 1 })
	a, b := &Door{Name: "A", ClientsOnly: true}, &Door{Name: "B", ClientsOnly: true}
	if d := s.holdBack(a); d != 0 {
		t.Errorf("the first waits %v", d)
	}
	if d := s.holdBack(&Door{Name: "INTERNAL", BrokersOnly: true}); d != 0 {
		t.Errorf("a broker waits %v", d)
	}
	if d := s.holdBack(b); d <= 0 || d > time.Second {
		t.Errorf("the second, by another listener, waits %v", d)
	}
}

func TestADoorThatIsOpenToAnybodyIsCounted(t *testing.T) {
	s := startServer(t, nil)
	s.openDoor(t, Door{Name: "PUBLIC", ClientsOnly: true})
	s.openDoor(t, Door{Name: "INTERNAL", BrokersOnly: true, Certificates: true})
	s.openDoor(t, Door{Name: "PLAIN", BrokersOnly: true})
	want := map[string]bool{"": true, "PUBLIC": false, "INTERNAL": false, "PLAIN": true}
	eventually(t, "the doors are there", func() bool { return len(s.Stats().OpenDoors) == len(want) })
	if got := s.Stats().OpenDoors; !maps.Equal(got, want) {
		t.Errorf("open to anybody: %v, want %v", got, want)
	}
}

// latest notes how far ahead the latest deadline for writing was.
type latest struct {
	net.Conn
	ahead time.Duration
}

func (l *latest) SetWriteDeadline(t time.Time) error {
	l.ahead = max(l.ahead, time.Until(t))
	return l.Conn.SetWriteDeadline(t)
}

// A client that takes no more bytes holds nobody up for longer than a goodbye may take; TLS's own bound is seconds.
func TestAGoodbyeIsNotWaitedForLong(t *testing.T) {
	server, _ := testKeys(t, conf.ClientAuthNone)
	here, there := net.Pipe()
	defer there.Close()
	sock := &latest{Conn: here}
	k := &cork{Conn: sock}
	c := &conn{sock: sock, cork: k, tls: tls.Server(k, server.Server())}
	shaken := make(chan error, 1)
	go func() {
		peer := tls.Client(there, &tls.Config{InsecureSkipVerify: true})
		_, err := peer.Read(make([]byte, 1)) // with the handshake and what follows it; nothing is read after that
		shaken <- err
	}()
	if _, err := c.tls.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	c.farewell()
	if sock.ahead <= 0 || sock.ahead > farewellMax {
		t.Errorf("the goodbye may take %v, want %v", sock.ahead, farewellMax)
	}
}
