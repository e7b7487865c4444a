package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/broker/secure"
	"github.com/varvelog/varve/broker/secure/securetest"
	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/replica/peer"
)

func TestPropertiesAreReadAsJavaReadsThem(t *testing.T) {
	got, err := properties("# comment\n! another\n\nsecurity.protocol=SSL\n  ssl.truststore.type : PEM\r\nssl.truststore.location /ca.pem\n" +
		"ssl.keystore.key=-----BEGIN PRIVATE KEY-----\\n\\\n    AAAA\\n\\\n    -----END PRIVATE KEY-----\nname\\=x=a\\\\\nempty=\nalone\nunicode=\\u00e9\\t\n")
	want := map[string]string{
		"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem",
		"ssl.keystore.key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----", "name=x": `a\`, "empty": "", "alone": "", "unicode": "é\t",
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{`a=\u12`, `a=\uxyzw`} {
		if _, err := properties(text); err == nil {
			t.Errorf("%s is read", text)
		}
	}
}

func TestTLSFlagsWinOverTheFile(t *testing.T) {
	s, err := (&clientTLS{ca: "/ca.pem"}).settings()
	if err != nil || s["security.protocol"] != "SSL" || s["ssl.truststore.type"] != "PEM" || s["ssl.truststore.location"] != "/ca.pem" {
		t.Errorf("%v, %v", s, err)
	}
	if _, err := (&clientTLS{key: "/key.pem"}).settings(); err == nil {
		t.Error("a key without its certificate")
	}
	if s, err := (&clientTLS{}).settings(); err != nil || len(s) != 0 {
		t.Errorf("without flags: %v, %v", s, err)
	}
}

// run is one command line, with what it prints.
func run(in string, args ...string) (string, error) {
	var out bytes.Buffer
	cmd := rootCommand()
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	err := cmd.Execute()
	return out.String(), err
}

// A node with a listener for each protocol: every tool goes in by either, and is
// sent on to addresses of the same.
func TestToolsSpeakTLS(t *testing.T) {
	dir := t.TempDir()
	a, other := securetest.New(t, dir, "authority"), securetest.New(t, dir, "another")
	pairs := []string{"listeners=SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0", "ssl.client.auth=required"}
	for name, value := range a.Settings("node", securetest.Wish{}) {
		pairs = append(pairs, name+"="+value)
	}
	n := startWith(t, pairs...)
	over, plain := n.entrances[0].Addr().String(), n.entrances[1].Addr().String()

	own := a.Keystore("client", securetest.Wish{})
	key, cert := a.Sign("apart", securetest.Wish{})
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	line := func(text string) string { return strings.ReplaceAll(text, "\n", "\\n") }
	file := write("client.properties", fmt.Sprintf("security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location=%s\nssl.keystore.type=PEM\nssl.keystore.key=%s\nssl.keystore.certificate.chain=%s\nclient.id=x\n",
		a.Trust, line(key), line(cert)))
	for i, flags := range [][]string{
		{"--bootstrap", over, "--tls-ca", a.Trust, "--tls-cert", own},
		{"--bootstrap", over, "--tls-ca", a.Trust, "--tls-cert", write("cert.pem", cert), "--tls-key", write("key.pem", key)},
		{"--bootstrap", over, "--command-config", file},
		{"--bootstrap", plain},
	} {
		topic := fmt.Sprintf("events-%d", i)
		for _, step := range []struct {
			in   string
			args []string
			want string
		}{
			{"", []string{"topic", "create", topic}, topic},
			{"hello\n", []string{"produce", topic}, "1 records written"},
			{"", []string{"consume", topic, "--from", "earliest", "--count", "1"}, "hello"},
			{"", []string{"offsets", topic}, topic},
			{"", []string{"cluster", "describe"}, flags[1]},
			{"", []string{"group", "list"}, ""},
		} {
			out, err := run(step.in, append(step.args, flags...)...)
			if err != nil || !strings.Contains(out, step.want) {
				t.Errorf("varve %s %s: %v\n%s", strings.Join(step.args, " "), strings.Join(flags, " "), err, out)
			}
		}
	}
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--bootstrap", over, "--tls"}, "name the authority's with --tls-ca"},
		{[]string{"--bootstrap", over, "--tls-ca", other.Trust}, "name the authority's with --tls-ca"},
		{[]string{"--bootstrap", over, "--tls-ca", a.Trust}, "show a certificate that it trusts with --tls-cert"},
		{[]string{"--bootstrap", plain, "--tls-ca", a.Trust, "--timeout", "3s"}, "it speaks plain text, most likely"},
		{[]string{"--bootstrap", over, "--timeout", "3s"}, "it speaks TLS, most likely"},
		{[]string{"--bootstrap", over, "--tls-ca", filepath.Join(dir, "none.pem")}, "none.pem"},
		{[]string{"--bootstrap", over, "--command-config", filepath.Join(dir, "none.properties")}, "--command-config"},
	} {
		if out, err := run("", append([]string{"topic", "list"}, c.flags...)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("varve topic list %s: %v, want %q\n%s", strings.Join(c.flags, " "), err, c.want, out)
		}
	}
}

// With a listener for brokers, all others are for clients: in plain text too, where a network of their own is what guards brokers.
func TestEveryListenerButTheBrokersOwnIsForClients(t *testing.T) {
	one := startWith(t, "listeners=PLAINTEXT://127.0.0.1:0")
	if d := one.entrances[0].door; d.ClientsOnly || d.BrokersOnly || d.Certificates {
		t.Errorf("the only listener: %+v", d)
	}
	n := startWith(t, "listeners=OUT://127.0.0.1:0,INTERNAL://127.0.0.1:0,MORE://127.0.0.1:0", "inter.broker.listener.name=INTERNAL",
		"listener.security.protocol.map=OUT:PLAINTEXT,INTERNAL:PLAINTEXT,MORE:PLAINTEXT")
	for _, e := range n.entrances {
		own := e.door.Name == "INTERNAL"
		if e.door.ClientsOnly == own || e.door.BrokersOnly != own {
			t.Errorf("listener %s: %+v", e.door.Name, e.door)
		}
		c, err := peer.Dial(t.Context(), e.Addr().String(), peer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		fetch := kmsg.NewPtrFetchRequest()
		fetch.SetVersion(15)
		fetch.SessionEpoch = -1
		fetch.ReplicaState.ID = 2
		if _, err := c.Do(t.Context(), fetch); (err == nil) != own {
			t.Errorf("a follower's fetch at listener %s: %v", e.door.Name, err)
		}
		_ = c.Close()
	}
}

func TestANodeWhoseKeysCannotBeUsedDoesNotStart(t *testing.T) {
	dir := t.TempDir()
	a := securetest.New(t, dir, "authority")
	key, _ := a.Sign("one", securetest.Wish{})
	_, cert := a.Sign("another", securetest.Wish{})
	mixed := filepath.Join(dir, "mixed.pem")
	if err := os.WriteFile(mixed, []byte(key+cert), 0o600); err != nil {
		t.Fatal(err)
	}
	for location, want := range map[string]string{
		filepath.Join(dir, "none.pem"): "no such file",
		mixed:                          "the private key is not that of the first certificate",
		a.Trust:                        "there is no private key",
	} {
		s := devSettings(t.TempDir(), "127.0.0.1:0", "", "")
		if err := s.addPairs([]string{"listeners=SSL://127.0.0.1:0", "ssl.keystore.type=PEM", "ssl.keystore.location=" + location}); err != nil {
			t.Fatal(err)
		}
		if n, err := startNode(t.Context(), s, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "listener SSL") {
			if n != nil {
				_ = n.Close(t.Context())
			}
			t.Errorf("%s: %v, want %q", location, err, want)
		}
	}
}

// A certificate that is replaced in its file is shown to the next client, and
// the metrics say how long it is good.
func TestANewCertificateIsShownWithoutARestart(t *testing.T) {
	a := securetest.New(t, t.TempDir(), "authority")
	pairs := []string{"listeners=SSL://127.0.0.1:0", "varve.http.listen=127.0.0.1:0"}
	for name, value := range a.Settings("node", securetest.Wish{}) {
		pairs = append(pairs, name+"="+value)
	}
	n := startWith(t, pairs...)
	keys, err := secure.Open(conf.SSL{TruststoreLocation: a.Trust, Protocols: []string{"TLSv1.3"}, CheckHost: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	serial := func() string {
		t.Helper()
		c, err := keys.Dial(t.Context(), n.Kafka)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.String()
	}
	first, until := serial(), time.Now().Add(48*time.Hour)
	a.Keystore("node", securetest.Wish{Until: until})
	deadline, tick := time.Now().Add(20*time.Second), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for serial() == first {
		if time.Now().After(deadline) {
			t.Fatal("the old certificate is still shown")
		}
		<-tick.C
	}
	want := fmt.Sprintf("varve_tls_certificate_expiry_timestamp_seconds{listener=\"SSL\"} %v", float64(until.Unix()))
	resp, err := http.Get("http://" + n.HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%v: the metrics lack %s", err, want)
	}
}
