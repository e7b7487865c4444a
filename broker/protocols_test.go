package broker

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta/conf"
)

func TestProtocolsThatAreSwitchedOffAnswerUnsupportedVersion(t *testing.T) {
	s := startStack(t, map[string]string{"group.coordinator.rebalance.protocols": "classic"})
	c := s.client(t)
	ask := func(q kmsg.Request) kmsg.Response {
		t.Helper()
		resp, err := c.Broker(1).Request(context.Background(), q)
		if err != nil {
			t.Fatalf("%T: %v", q, err)
		}
		return resp
	}
	h := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	h.Group, h.MemberID, h.SubscribedTopicNames, h.RebalanceTimeoutMillis = "g", "m", []string{"t"}, 1000
	if got := ask(h).(*kmsg.ConsumerGroupHeartbeatResponse).ErrorCode; got != codeUnsupportedVersion {
		t.Errorf("a consumer's heartbeat got %d", got)
	}
	g := kmsg.NewPtrConsumerGroupDescribeRequest()
	g.Groups = []string{"g"}
	if got := ask(g).(*kmsg.ConsumerGroupDescribeResponse).Groups[0].ErrorCode; got != codeUnsupportedVersion {
		t.Errorf("a consumer group's description got %d", got)
	}
	b := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	b.Group, b.MemberID = "s", "m"
	if got := ask(b).(*kmsg.StreamsGroupHeartbeatResponse).ErrorCode; got != codeUnsupportedVersion {
		t.Errorf("a streams member's heartbeat got %d", got)
	}
	d := kmsg.NewPtrStreamsGroupDescribeRequest()
	d.Groups = []string{"s"}
	if got := ask(d).(*kmsg.StreamsGroupDescribeResponse).Groups[0].ErrorCode; got != codeUnsupportedVersion {
		t.Errorf("a streams group's description got %d", got)
	}
}

func TestSocketBuffersAreTheSystemsUnlessTheyAreSet(t *testing.T) {
	config := func(settings map[string]string) Config {
		t.Helper()
		b, err := conf.ParseBroker(settings)
		if err != nil {
			t.Fatal(err)
		}
		return ConfigFrom(&b)
	}
	if c := config(nil); c.SendBufferBytes != 0 || c.ReceiveBufferBytes != 0 || c.NoConsumerGroups || c.NoStreamsGroups {
		t.Errorf("nothing is set, and the buffers are %d and %d", c.SendBufferBytes, c.ReceiveBufferBytes)
	}
	if c := config(map[string]string{"socket.send.buffer.bytes": "-1", "socket.receive.buffer.bytes": "-1"}); c.SendBufferBytes != 0 || c.ReceiveBufferBytes != 0 {
		t.Errorf("-1 gives buffers of %d and %d", c.SendBufferBytes, c.ReceiveBufferBytes)
	}
	c := config(map[string]string{"socket.send.buffer.bytes": "20000", "socket.receive.buffer.bytes": "30000"})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	tune(out, &c)
	// Linux doubles what is asked for.
	if got := option(t, out, syscall.SO_SNDBUF); got != 40000 {
		t.Errorf("the send buffer has %d bytes", got)
	}
	if got := option(t, out, syscall.SO_RCVBUF); got != 60000 {
		t.Errorf("the receive buffer has %d bytes", got)
	}
}

func option(t *testing.T, c net.Conn, name int) int {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	if cerr := raw.Control(func(fd uintptr) { n, err = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, name) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return n
}

func TestTheSmallerOfTwoBoundsOnRequestMemoryCounts(t *testing.T) {
	for given, want := range map[string]int64{"-1": 256 << 20, "134217728": 128 << 20, "1073741824": 256 << 20} {
		b, err := conf.ParseBroker(map[string]string{"queued.max.request.bytes": given})
		if err != nil {
			t.Fatal(err)
		}
		if got := ConfigFrom(&b).RequestMemoryBytes; got != want {
			t.Errorf("queued.max.request.bytes=%s: %d bytes, want %d", given, got, want)
		}
	}
}
