package integration

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/secure"
	"github.com/varvelog/varve/broker/secure/securetest"
	"github.com/varvelog/varve/integration/nodetest"
	"github.com/varvelog/varve/meta/conf"
)

// clientConfig is a franz-go client's TLS; without own it shows no certificate.
func clientConfig(t *testing.T, a *securetest.Authority, own string) *tls.Config {
	t.Helper()
	ssl := conf.SSL{TruststoreLocation: a.Trust, Protocols: []string{"TLSv1.2", "TLSv1.3"}, CheckHost: true}
	if own != "" {
		ssl.KeystoreLocation = a.Keystore(own, securetest.Wish{})
	}
	keys, err := secure.Open(ssl, nil)
	if err != nil {
		t.Fatal(err)
	}
	return keys.Client("127.0.0.1")
}

// secureCluster starts three nodes that speak nothing but TLS, and ask everybody
// for a certificate.
func secureCluster(t *testing.T, a *securetest.Authority) *nodetest.Cluster {
	t.Helper()
	return nodetest.StartCluster(t, nodetest.ClusterOptions{
		Secure: true, Public: true, Client: []kgo.Opt{kgo.DialTLSConfig(clientConfig(t, a, "client"))},
		NodeSettings: func(id int32) map[string]string {
			s := a.Settings(fmt.Sprintf("node-%d", id), securetest.Wish{})
			maps.Copy(s, map[string]string{"ssl.client.auth": "required", "broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"})
			return s
		},
	})
}

// Everything of a cluster runs over TLS: clients, replication, forwarded
// requests, the quorum. Its leader is killed, and nothing acknowledged is lost.
func TestAClusterRunsWhollyOverTLS(t *testing.T) {
	a := securetest.New(t, t.TempDir(), "authority")
	c := secureCluster(t, a)
	c.CreateTopic("events", 3, 3, map[string]string{"min.insync.replicas": "2"})

	const half = 300
	produce := func(from int) {
		t.Helper()
		cl := c.Client(kgo.RequiredAcks(kgo.AllISRAcks()), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
		for i := from; i < from+half; i++ {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "events", Value: fmt.Append(nil, i)}).FirstErr(); err != nil {
				t.Fatalf("record %d: %v", i, err)
			}
			cancel()
		}
	}
	produce(0)
	leader := c.Leader("events", 0)
	c.Node(leader).Kill()
	produce(half)
	c.Node(leader).Restart()
	c.WaitInSync(time.Minute, "events")

	consumer := c.Client(kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("events"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	seen := map[string]bool{}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for len(seen) < 2*half {
		fetches := consumer.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			t.Fatalf("%d of %d records were read: %v", len(seen), 2*half, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
	}

	// A further node asks the others, over TLS, to be let in.
	c.Join(4, nil)
	c.WaitInSync(time.Minute, "events")

	strangersGetNothing(t, a, c)
	plainClientsHaveTheirOwnListener(t, c)
}

// plainClientsHaveTheirOwnListener produces and consumes in plain text, whoever leads: each broker is named by its address for
// such clients. What brokers ask of each other is not answered there.
func plainClientsHaveTheirOwnListener(t *testing.T, c *nodetest.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.Node(2).Public), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumeTopics("events"), kgo.ConsumeResetOffset(kgo.NewOffset().AtEnd()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var m *kmsg.MetadataResponse
	nodetest.Eventually(t, time.Minute, "the node has heard of all four", func() error {
		if m, err = kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl); err == nil && len(m.Brokers) != 4 {
			err = fmt.Errorf("%d brokers", len(m.Brokers))
		}
		return err
	})
	for _, b := range m.Brokers {
		if at := net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port))); at != c.Node(b.NodeID).Public {
			t.Errorf("broker %d is at %s for plain clients, want %s", b.NodeID, at, c.Node(b.NodeID).Public)
		}
	}
	for p := range int32(3) {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "events", Partition: p, Value: []byte("plain")}).FirstErr(); err != nil {
			t.Errorf("partition %d: %v", p, err)
		}
	}
	beat := kmsg.NewPtrBrokerHeartbeatRequest()
	beat.BrokerID = 1
	if _, err := beat.RequestWith(ctx, cl); err == nil {
		t.Error("a heartbeat at the listener for clients was answered")
	}
}

// strangersGetNothing asks at every listener without a certificate that the cluster trusts.
func strangersGetNothing(t *testing.T, a *securetest.Authority, c *nodetest.Cluster) {
	t.Helper()
	other := securetest.New(t, t.TempDir(), "another")
	impostor := clientConfig(t, a, "")
	impostor.GetClientCertificate = clientConfig(t, other, "impostor").GetClientCertificate
	for name, opts := range map[string][]kgo.Opt{
		"without a certificate":       {kgo.DialTLSConfig(clientConfig(t, a, ""))},
		"with another authority's":    {kgo.DialTLSConfig(impostor)},
		"in plain text":               {},
		"that wants another's server": {kgo.DialTLSConfig(clientConfig(t, other, "impostor"))},
	} {
		cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(c.Node(1).Bootstrap), kgo.RequestRetries(0), kgo.RetryTimeout(2*time.Second))...)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if _, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, cl); err == nil {
			t.Errorf("a client %s was answered", name)
		}
		cancel()
		cl.Close()
	}
	nodetest.Eventually(t, 20*time.Second, "the log says who was turned away", func() error {
		text := c.Node(1).Log()
		for _, want := range []string{"showed no certificate", "certificate of the other side refused", "plain text where TLS is spoken"} {
			if !strings.Contains(text, want) {
				return fmt.Errorf("no line with %q", want)
			}
		}
		return nil
	})

	// Nor does the quorum answer: a plain caller, as raft's, gets no byte.
	conn, err := net.Dial("tcp", c.Node(1).Controller)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte{0, 0x81, 0xa4, 0x54, 0x65, 0x72, 0x6d, 1}); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(conn); len(b) != 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the quorum answers a stranger %d bytes, %v", len(b), err)
	}
}

// A cluster of plain text goes over to TLS between its brokers without a stop:
// every node gets a second listener, then every node has the others come by it.
func TestARunningClusterGoesOverToTLS(t *testing.T) {
	a := securetest.New(t, t.TempDir(), "authority")
	c, s := startStreamed(t, nodetest.ClusterOptions{Public: true})
	restart := func(more map[string]string) {
		t.Helper()
		for _, n := range c.Nodes() {
			settings := a.Settings(fmt.Sprintf("node-%d", n.ID), securetest.Wish{})
			maps.Copy(settings, map[string]string{
				"controller.quorum.voters": c.Voters(), "ssl.client.auth": "required",
				"listeners":                      fmt.Sprintf("PLAINTEXT://%s,SSL://%s,CONTROLLER://%s", n.Bootstrap, n.Public, n.Controller),
				"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT",
			})
			maps.Copy(settings, more)
			s.progress(20)
			c.Relaunch(n.ID, settings)
			c.WaitInSync(time.Minute, "events")
			s.progress(20)
		}
	}
	restart(nil)
	restart(map[string]string{"inter.broker.listener.name": "SSL"})
	s.verify(c)

	// From now on brokers come by TLS alone.
	cl := c.Client()
	beat := kmsg.NewPtrBrokerHeartbeatRequest()
	if _, err := beat.RequestWith(t.Context(), cl); err == nil {
		t.Error("a heartbeat in plain text was answered")
	}
}
