package broker

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/secure"
	"github.com/varvelog/varve/broker/secure/securetest"
	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// testKeys are a server's, who asks for a certificate as auth says, and a client's.
func testKeys(t testing.TB, auth conf.ClientAuth) (server, client *secure.Keys) {
	t.Helper()
	a := securetest.New(t, t.TempDir(), "authority")
	open := func(name string, auth conf.ClientAuth) *secure.Keys {
		k, err := secure.Open(conf.SSL{KeystoreLocation: a.Keystore(name, securetest.Wish{}), TruststoreLocation: a.Trust,
			ClientAuth: auth, Protocols: []string{"TLSv1.2", "TLSv1.3"}, CheckHost: true}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	return open("server", auth), open("client", conf.ClientAuthNone)
}

// door opens a further listener.
func (s *Server) openDoor(t testing.TB, d Door) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l, d) // ends with the server
	return l.Addr().String()
}

// dialTLS is dial over TLS.
func dialTLS(t testing.TB, address string, keys *secure.Keys) *client {
	t.Helper()
	c, err := keys.Dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &client{t: t, nc: c}
}

// TestAnswersAreTheSameBytesOverTLS: what goes by sendfile and writev to a plain socket goes through buffers here, for what is
// on disk, what is in the bucket only, and both in one answer.
func TestAnswersAreTheSameBytesOverTLS(t *testing.T) {
	s := startShares(t, 2, nil, "remote.storage.enable", "true", "segment.bytes", "1048576", "local.retention.bytes", "1", "local.retention.ms", "1")
	s.pad = 100
	for range 40 {
		s.produce(0, 1000)
	}
	for range 10 {
		s.produce(1, 500)
	}
	part := func(i int32) Partition {
		p, err := s.deps.Partitions.PartitionByID(s.id, i)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	cold := func(p Partition, offset int64) bool {
		res, err := p.Read(readFrom(offset))
		if res.Records != nil {
			res.Records.Release()
		}
		return err == nil && res.Cold
	}
	eventually(t, "the log's beginning is in the bucket only", func() bool { return cold(part(0), 0) })
	s.produce(0, 500)
	const last = 40_499 // is in the active segment, whatever was sealed before
	if cold(part(0), last) || cold(part(1), 4000) {
		t.Fatal("nothing is on disk")
	}
	server, keys := testKeys(t, conf.ClientAuthRequired)
	address := s.openDoor(t, Door{TLS: server.Server()})
	plain, over := dial(t, s.addr), dialTLS(t, address, keys)
	for name, parts := range map[string][]wanted{
		"cold":     {{index: 0, offset: 0, maxBytes: 8 << 20}},
		"hot":      {{index: 0, offset: last, maxBytes: 8 << 20}},
		"hot, big": {{index: 1, offset: 0, maxBytes: 8 << 20}},
		"small":    {{index: 0, offset: last, maxBytes: 1}},
		"both":     {{index: 1, offset: 0, maxBytes: 8 << 20}, {index: 0, offset: last, maxBytes: 8 << 20}, {index: 0, offset: 0, maxBytes: 8 << 20}},
	} {
		fetch := func(c *client) []byte {
			q := fetchRequest(13, "", s.id, parts...)
			q.MaxWaitMillis, q.SessionEpoch = 5000, -1
			corr := c.send(q)
			got, b, err := c.receive()
			if err != nil || got != corr {
				t.Fatalf("%s: %d, want %d: %v", name, got, corr, err)
			}
			return b
		}
		fetch(plain) // the chunk is in the cache then: an answer's size depends on it
		want, got := fetch(plain), fetch(over)
		if !bytes.Equal(want, got) {
			t.Errorf("%s: %d bytes over TLS differ from %d in plain text", name, len(got), len(want))
		}
		if len(want) < 100 || strings.HasPrefix(name, "cold") && len(want) < 256<<10 || strings.HasPrefix(name, "hot, big") && len(want) < 128<<10 {
			t.Errorf("%s: only %d bytes", name, len(want))
		}
	}

	// Share groups read the same records.
	ann := s.member("ann")
	ann.client = over
	ann.max, ann.size = 5000, 1000
	for next := int64(0); next < 40_000; {
		ann.wait = 10_000
		r := ann.fetchRequest()
		if ann.epoch == 0 {
			r = ann.fetchRequest(0)
		}
		for _, a := range ann.fetched(r).Topics[0].Partitions[0].AcquiredRecords {
			expect(t, "the next record", a.FirstOffset, next)
			expect(t, "accepted", ann.ack(a.FirstOffset, a.LastOffset, share.Accept), int16(0))
			next = a.LastOffset + 1
		}
	}
}

func TestPipelinedRequestsAnswerInOrderOverTLS(t *testing.T) {
	s := startServer(t, nil)
	server, keys := testKeys(t, conf.ClientAuthNone)
	c := dialTLS(t, s.openDoor(t, Door{TLS: server.Server()}), keys)
	c.pipelines(500)
}

// lines is a log that a test reads.
type lines struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(want string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), want)
}

func TestTheDoorTurnsAwayWhoCannotShakeHands(t *testing.T) {
	log := &lines{}
	s := startServerWith(t, func(c *Config) { c.HandshakeMax = 100 * time.Millisecond },
		Deps{Logger: slog.New(slog.NewTextHandler(log, nil))})
	server, keys := testKeys(t, conf.ClientAuthRequired)
	address := s.openDoor(t, Door{Name: "SSL", TLS: server.Server()})

	// One that says nothing.
	silent := dial(t, address)
	silent.closed()
	eventually(t, "the silent one is named", func() bool { return log.count("msg=\"TLS handshake not done in time") == 1 })

	// Plain text: closed without a byte of an answer, and said once however often it comes.
	for range 3 {
		plain := dial(t, address)
		plain.send(kmsg.NewPtrApiVersionsRequest())
		plain.closed()
	}
	eventually(t, "the plain one is named", func() bool { return s.Stats().HandshakesFailed == 4 })
	if n := log.count("plain text where TLS is spoken"); n != 1 {
		t.Errorf("%d lines for three connections of plain text", n)
	}

	// TLS at a door of plain text.
	if c, err := keys.Dial(t.Context(), s.addr); err == nil {
		c.Close()
		t.Error("a handshake at a door of plain text")
	}
	eventually(t, "the other one is named", func() bool { return log.count("TLS to a listener of plain text") == 1 })

	// No certificate.
	config := keys.Client("127.0.0.1")
	config.GetClientCertificate = nil
	c, err := tls.Dial("tcp", address, config)
	if err == nil {
		defer c.Close()
		if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("without a certificate: %d bytes, %v", n, err)
		}
	}
	eventually(t, "that there was no certificate is said", func() bool { return log.count("showed no certificate") == 1 })

	// Who hangs up, as a load balancer's check does, is no news.
	before := s.Stats().HandshakesFailed
	dial(t, address).nc.Close()
	eventually(t, "the check is over", func() bool { return s.Stats().HandshakesFailed == before+1 })
	if n := log.count("connection ended"); n != 0 {
		t.Errorf("%d lines about a connection that just ended", n)
	}

	// The door still opens.
	dialTLS(t, address, keys).ask(kmsg.NewPtrApiVersionsRequest())
}

func TestConnectionCapsCountBeforeTheHandshake(t *testing.T) {
	s := startServer(t, func(c *Config) { c.ConnectionsMax = 1 })
	server, keys := testKeys(t, conf.ClientAuthNone)
	address := s.openDoor(t, Door{TLS: server.Server()})
	first := dial(t, address) // no handshake yet
	eventually(t, "the first is counted", func() bool { return s.Stats().Connections == 1 })
	if c, err := keys.Dial(t.Context(), address); err == nil {
		c.Close()
		t.Error("a second connection was let in")
	}
	first.nc.Close()
	eventually(t, "there is room", func() bool { return s.Stats().Connections == 0 })
	dialTLS(t, address, keys).ask(kmsg.NewPtrApiVersionsRequest())
}

// TestALongPollEndsWhenItsTLSClientHangsUp: the client's goodbye lies unread in the socket, and must not hide that it is gone.
func TestALongPollEndsWhenItsTLSClientHangsUp(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	server, keys := testKeys(t, conf.ClientAuthNone)
	c := dialTLS(t, s.openDoor(t, Door{TLS: server.Server()}), keys)
	q := fetchRequest(13, "", id, wanted{index: 0})
	q.MaxWaitMillis, q.SessionEpoch = 1<<30, -1
	c.send(q)
	eventually(t, "the fetch waits", func() bool { return s.stats.requests[1].Load() == 1 })
	c.nc.Close()
	eventually(t, "the connection is gone", func() bool { return s.Stats().Connections == 0 })
}

func TestClientsAreToldTheAddressesOfTheListenerTheyCameBy(t *testing.T) {
	s := startCluster(t, nil, nil) // with broker 1, which has not named its listeners
	both := []meta.Endpoint{{Name: "INTERNAL", Host: "in", Port: 2}, {Name: "PUBLIC", Host: "out", Port: 102, Protocol: meta.SSL}}
	for id, ends := range map[int32][]meta.Endpoint{2: both, 3: {{Name: "INTERNAL", Host: "in", Port: 3}}} {
		r := meta.Registration{ID: id, Host: "in", Port: id, Incarnation: topic.NewID(), Endpoints: ends}
		if _, err := s.deps.Metadata.(*meta.Node).RegisterBroker(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	const old = "1=broker.example:9092 "
	for listener, want := range map[string]string{"INTERNAL": old + "2=in:2 3=in:3 ", "PUBLIC": old + "2=out:102 ", "OTHER": old} {
		c := dial(t, s.openDoor(t, Door{Name: listener}))
		q := kmsg.NewPtrMetadataRequest()
		q.SetVersion(12)
		m, got := c.ask(q).(*kmsg.MetadataResponse), ""
		for _, b := range m.Brokers {
			got += fmt.Sprintf("%d=%s:%d ", b.NodeID, b.Host, b.Port)
		}
		if got != want || m.ControllerID != 1 {
			t.Errorf("Metadata by %s: %s, want %s", listener, got, want)
		}
		d := kmsg.NewPtrDescribeClusterRequest()
		d.SetVersion(1)
		got = ""
		for _, b := range c.ask(d).(*kmsg.DescribeClusterResponse).Brokers {
			got += fmt.Sprintf("%d=%s:%d ", b.NodeID, b.Host, b.Port)
		}
		if got != want {
			t.Errorf("DescribeCluster by %s: %s, want %s", listener, got, want)
		}
	}

	// A partition whose leader has no such listener has none for its clients.
	q := createRequest(7, newTopic("away", 1))
	q.Topics[0].NumPartitions, q.Topics[0].ReplicationFactor = -1, -1
	q.Topics[0].ReplicaAssignment = []kmsg.CreateTopicsRequestTopicReplicaAssignment{{Partition: 0, Replicas: []int32{3}}}
	c := dial(t, s.openDoor(t, Door{Name: "PUBLIC"}))
	if got := c.ask(q).(*kmsg.CreateTopicsResponse).Topics[0]; got.ErrorCode != 0 {
		t.Fatalf("create: %d", got.ErrorCode)
	}
	for v, code := range map[int16]int16{5: codeLeaderNotAvailable, 6: codeListenerNotFound} {
		m := kmsg.NewPtrMetadataRequest()
		m.SetVersion(v)
		m.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("away")}}
		if p := c.ask(m).(*kmsg.MetadataResponse).Topics[0].Partitions[0]; p.ErrorCode != code || p.Leader != -1 {
			t.Errorf("Metadata version %d: leader %d, code %d, want %d", v, p.Leader, p.ErrorCode, code)
		}
	}
}

func TestWhatBrokersAskOfEachOtherIsNotAnsweredAtADoorForClients(t *testing.T) {
	f := &controlledFake{beats: make(chan meta.Heartbeat, 8), ends: make(chan string, 8)}
	s := startServerWith(t, nil, Deps{Controlled: f, Metadata: emptyMetadata{refusing{err: meta.ErrPolicyViolation}, &meta.Image{}}})
	id := s.parts.add("events", 1)
	address := s.openDoor(t, Door{Name: "PUBLIC", ClientsOnly: true})
	beat := kmsg.NewPtrBrokerHeartbeatRequest()
	beat.SetVersion(1)
	follower := fetchRequest(13, "", id, wanted{index: 0})
	follower.ReplicaID, follower.SessionEpoch = 2, -1
	state := kmsg.NewPtrReadShareGroupStateRequest()
	for _, q := range []kmsg.Request{beat, follower, state} {
		c := dial(t, address)
		c.ask(kmsg.NewPtrApiVersionsRequest())
		c.send(q)
		c.closed()
	}
	if len(f.beats) != 0 {
		t.Error("a heartbeat at a listener for clients was counted")
	}
	consumer := fetchRequest(13, "", id, wanted{index: 0})
	consumer.SessionEpoch = -1
	dial(t, address).ask(consumer)
	dial(t, s.addr).ask(beat)
}

// BenchmarkFetch reads what is on disk again and again, in plain text by sendfile and over TLS: a megabyte of one partition, or
// a little of each of many.
func BenchmarkFetch(b *testing.B) {
	s := startStack(b, map[string]string{"varve.durability": "replicated"})
	id := dial(b, s.addr).create(newTopic("events", 16))
	produce := func(partition int32, records int) {
		values := make([]string, records)
		for i := range values {
			values[i] = strings.Repeat("x", 900)
		}
		q := produceRequest(13, 1, "", id, map[int32][]byte{partition: oneBatch(b, values...)})
		if got := dial(b, s.addr).ask(q).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; got.ErrorCode != 0 {
			b.Fatalf("%+v", got)
		}
	}
	for range 8 {
		produce(0, 150)
	}
	var many []wanted
	for i := int32(1); i < 16; i++ {
		produce(i, 8)
		many = append(many, wanted{index: i})
	}
	server, keys := testKeys(b, conf.ClientAuthNone)
	address := s.openDoor(b, Door{TLS: server.Server()})
	for _, parts := range [][]wanted{{{index: 0}}, many} {
		for name, c := range map[string]*client{"plain": dial(b, s.addr), "tls": dialTLS(b, address, keys)} {
			b.Run(fmt.Sprintf("%s/partitions=%d", name, len(parts)), func(b *testing.B) {
				q := fetchRequest(13, "", id, parts...)
				q.SessionEpoch = -1
				b.ReportAllocs()
				for b.Loop() {
					c.send(q)
					_, got, err := c.receive()
					if err != nil || len(got) < 64<<10 {
						b.Fatalf("%d bytes, %v", len(got), err)
					}
					b.SetBytes(int64(len(got)))
				}
			})
		}
	}
}
