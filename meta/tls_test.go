package meta

import (
	"bytes"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/broker/secure"
	"github.com/varvelog/varve/broker/secure/securetest"
	"github.com/varvelog/varve/meta/conf"
)

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

func (l *lines) has(all ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		found := true
		for _, want := range all {
			found = found && strings.Contains(line, want)
		}
		if found {
			return true
		}
	}
	return false
}

// secured is how a node is secured whose certificate is as wished.
func secured(t *testing.T, a *securetest.Authority, trust, name string, w securetest.Wish) TLS {
	t.Helper()
	keys, err := secure.Open(conf.SSL{
		KeystoreLocation: a.Keystore(name, w), TruststoreLocation: trust, ClientAuth: conf.ClientAuthRequired,
		Protocols: []string{"TLSv1.2", "TLSv1.3"}, CheckHost: true,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return TLS{Serve: keys.Server(), Dial: keys.Dialer(nil)}
}

func TestTheQuorumTalksOverTLS(t *testing.T) {
	a := securetest.New(t, t.TempDir(), "authority")
	good := secured(t, a, a.Trust, "node", securetest.Wish{})
	w := newWired(t, 3, good)
	onLeader(t, w.nodes, func(n *Node) error { return n.alterGroup("a") })
	agree(t, w.nodes, 1)
	if _, err := listen(t, good).stream.greet(t.Context(), w.voters[0].Address, greeting{}); err != nil {
		t.Error(err)
	}
}

func TestTheQuorumTurnsStrangersAway(t *testing.T) {
	a := securetest.New(t, t.TempDir(), "authority")
	other := securetest.New(t, t.TempDir(), "another")
	good := secured(t, a, a.Trust, "node", securetest.Wish{})
	log := &lines{}
	tr, err := ListenTLS("127.0.0.1:0", "localhost:0", good, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.(raft.WithClose).Close() })
	answer := func(greeting) greeting { return greeting{NodeID: 1} }
	tr.(*transport).stream.answer.Store(&answer)
	address := string(tr.LocalAddr())

	for _, test := range []struct {
		name string
		over TLS
		log  string // what the node that was called says; "" when it is the caller that turns away
		said string // what the caller is told
	}{
		{"plain text", TLS{}, "plain text where TLS is spoken", ""},
		{"another authority's", secured(t, other, a.Trust, "stranger", securetest.Wish{}), "certificate of the other side refused", "unknown certificate authority"},
		{"expired", secured(t, a, a.Trust, "late", securetest.Wish{Until: time.Now().Add(-time.Minute)}), "it has expired", "expired"},
		{"not trusting", secured(t, a, other.Trust, "sceptic", securetest.Wish{}), "", "certificate signed by unknown authority"},
	} {
		if g, err := listen(t, test.over).stream.greet(t.Context(), address, greeting{}); err == nil || !strings.Contains(err.Error(), test.said) {
			t.Errorf("%s: %+v, %v", test.name, g, err)
		}
		if test.log != "" {
			waitFor(t, func() bool { return log.has("level=WARN", test.log, "client=127.0.0.1") })
		}
	}

	// A plain call of raft's gets no byte of an answer.
	c, err := net.Dial("tcp", tr.(*transport).stream.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte{0, 0x81, 0xa4, 0x54, 0x65, 0x72, 0x6d, 1}); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("a plain call was answered: %d bytes, %v", n, err)
	}

	// A node whose certificate is for another host is not taken for the one that was called.
	elsewhere := listen(t, secured(t, a, a.Trust, "elsewhere", securetest.Wish{Hosts: []string{"elsewhere.example"}}))
	if _, err := listen(t, good).stream.greet(t.Context(), string(elsewhere.LocalAddr()), greeting{}); err == nil || !strings.Contains(err.Error(), "not localhost") {
		t.Errorf("another host's certificate: %v", err)
	}
}
