package secure

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/youmark/pkcs8"

	"github.com/varvelog/varve/broker/secure/securetest"
	"github.com/varvelog/varve/meta/conf"
)

var both = []string{"TLSv1.2", "TLSv1.3"}

func open(t *testing.T, ssl conf.SSL) *Keys {
	t.Helper()
	if ssl.Protocols == nil {
		ssl.Protocols = both
	}
	k, err := Open(ssl, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// shake does a handshake and returns what each side made of it.
func shake(server, client *tls.Config) (seen tls.ConnectionState, serverErr, clientErr error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return seen, err, err
	}
	defer l.Close()
	b, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return seen, err, err
	}
	a, err := l.Accept()
	if err != nil {
		return seen, err, err
	}
	deadline := time.Now().Add(20 * time.Second)
	a.SetDeadline(deadline)
	b.SetDeadline(deadline)
	var wg sync.WaitGroup
	wg.Go(func() {
		s := tls.Server(a, server)
		if serverErr = s.Handshake(); serverErr == nil {
			_, serverErr = s.Write([]byte{1})
		}
		a.Close()
	})
	c := tls.Client(b, client)
	if clientErr = c.Handshake(); clientErr == nil {
		seen = c.ConnectionState()
		_, clientErr = c.Read(make([]byte, 1))
	}
	b.Close()
	wg.Wait()
	return seen, serverErr, clientErr
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestKeysAreReadInEveryFormThatIsServed(t *testing.T) {
	dir := t.TempDir()
	a := securetest.New(t, dir, "authority")
	key, cert := a.Sign("node", securetest.Wish{})
	block, _ := pem.Decode([]byte(key))
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := pkcs8.MarshalPrivateKey(private, []byte("secret"), nil)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := x509.MarshalECPrivateKey(private.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	encrypted := encode("ENCRYPTED PRIVATE KEY", sealed)
	line := func(s string) string { return strings.ReplaceAll(s, "\n", " ") }
	file := filepath.Join(dir, "both.pem")
	client := open(t, conf.SSL{TruststoreLocation: a.Trust, CheckHost: true})
	for name, ssl := range map[string]conf.SSL{
		"one file":          {KeystoreLocation: a.Keystore("own", securetest.Wish{})},
		"text":              {Key: key, CertificateChain: cert},
		"text on one line":  {Key: line(key), CertificateChain: line(cert)},
		"encrypted":         {Key: encrypted, CertificateChain: cert, KeyPassword: "secret"},
		"of elliptic kind":  {Key: encode("EC PRIVATE KEY", ec), CertificateChain: cert},
		"as openssl writes": {Key: "Bag Attributes\n  friendlyName\n" + key, CertificateChain: "subject=/CN=node\n" + cert + cert},
	} {
		ssl.ClientAuth = conf.ClientAuthNone
		server := open(t, ssl)
		if _, s, c := shake(server.Server(), client.Client("127.0.0.1")); s != nil || c != nil {
			t.Errorf("%s: %v, %v", name, s, c)
		}
	}
	_, other := a.Sign("other", securetest.Wish{})
	write(t, file, "")
	for want, ssl := range map[string]conf.SSL{
		"set ssl.key.password":                                    {Key: encrypted, CertificateChain: cert},
		"cannot be decrypted with ssl.key.password":               {Key: encrypted, CertificateChain: cert, KeyPassword: "wrong"},
		"the private key is not that of the first":                {Key: key, CertificateChain: other},
		"no private key":                                          {Key: cert, CertificateChain: cert},
		"ssl.keystore.certificate.chain: there is no certificate": {Key: key, CertificateChain: key},
		"two private keys":                                        {Key: key + key, CertificateChain: cert},
		"openssl pkcs8 -topk8":                                    {Key: "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n", CertificateChain: cert},
		"a DSA PRIVATE KEY is not served":                         {Key: "-----BEGIN DSA PRIVATE KEY-----AAAA-----END DSA PRIVATE KEY-----", CertificateChain: cert},
		"no END of PRIVATE KEY":                                   {Key: "-----BEGIN PRIVATE KEY-----\nAAAA", CertificateChain: cert},
		"ssl.keystore.location=" + dir + "/none.pem":              {KeystoreLocation: filepath.Join(dir, "none.pem")},
		"both.pem: empty":                                         {KeystoreLocation: file},
		"ssl.truststore.certificates: there is no":                {TruststoreCertificates: key},
		"TLS_NO_SUCH is not served; these are: TLS_":              {CipherSuites: []string{"TLS_NO_SUCH"}},
		"name all of them or none":                                {CipherSuites: []string{"TLS_AES_128_GCM_SHA256"}},
		"none of a version in ssl.enabled.protocols":              {CipherSuites: []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}, Protocols: []string{"TLSv1.3"}},
	} {
		if ssl.Protocols == nil {
			ssl.Protocols = both
		}
		if _, err := Open(ssl, nil); !errors.Is(err, ErrBadKeys) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}

// look has the files looked at by the next handshake, as a second later.
func (k *Keys) look() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looked = time.Time{}
}

func TestChangedFilesCountForNewHandshakes(t *testing.T) {
	dir := t.TempDir()
	a, next := securetest.New(t, dir, "authority"), securetest.New(t, dir, "next")
	trust := filepath.Join(dir, "trust.pem")
	copyTrust := func(files ...string) {
		text := ""
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			text += string(b)
		}
		write(t, trust, text)
	}
	copyTrust(a.Trust)
	var log bytes.Buffer
	server, err := Open(conf.SSL{KeystoreLocation: a.Keystore("node", securetest.Wish{}), TruststoreLocation: trust, ClientAuth: conf.ClientAuthRequired, Protocols: both},
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	listener := server.Server()
	old := open(t, conf.SSL{KeystoreLocation: a.Keystore("client", securetest.Wish{}), TruststoreLocation: a.Trust, CheckHost: true})
	serial := func() string {
		t.Helper()
		server.look()
		seen, s, c := shake(listener, old.Client("127.0.0.1"))
		if s != nil || c != nil {
			t.Fatalf("%v, %v", s, c)
		}
		return seen.PeerCertificates[0].SerialNumber.String()
	}
	first := serial()
	if serial() != first {
		t.Fatal("another certificate of the same file")
	}
	a.Keystore("node", securetest.Wish{})
	second := serial()
	if second == first {
		t.Error("the new certificate is not shown")
	}

	// Half a file, as somebody who writes it in place leaves it for a moment.
	keystore := filepath.Join(dir, "node.pem")
	write(t, keystore, "-----BEGIN PRIVATE KEY-----\nAAAA")
	log.Reset()
	for range 2 {
		if serial() != second {
			t.Error("a broken file took the certificate away")
		}
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), "no END of PRIVATE KEY") {
		t.Errorf("a broken file is told of %d times: %s", n, log.String())
	}
	if err := os.Remove(keystore); err != nil {
		t.Fatal(err)
	}
	if serial() != second {
		t.Error("a file that is gone took the certificate away")
	}
	a.Keystore("node", securetest.Wish{})
	if third := serial(); third == second {
		t.Error("the mended file is not read")
	}
	if left := time.Until(server.Expires()); left < 50*time.Minute || left > time.Hour {
		t.Errorf("the certificate is good for %v", left)
	}
	if n := strings.Count(log.String(), "expires soon"); n > 1 {
		t.Errorf("%d reminders in a day", n)
	}

	// Another authority is let in beside, then instead: what was trusted before is not any more.
	fresh := open(t, conf.SSL{KeystoreLocation: next.Keystore("fresh", securetest.Wish{}), TruststoreLocation: a.Trust, CheckHost: true})
	if _, s, _ := shake(listener, fresh.Client("127.0.0.1")); s == nil {
		t.Fatal("a stranger is let in")
	}
	copyTrust(a.Trust, next.Trust)
	server.look()
	if _, s, c := shake(listener, fresh.Client("127.0.0.1")); s != nil || c != nil {
		t.Errorf("with both authorities: %v, %v", s, c)
	}
	copyTrust(next.Trust)
	server.look()
	if _, s, _ := shake(listener, old.Client("127.0.0.1")); s == nil {
		t.Error("who was trusted before still is")
	}
}

func TestTheHostIsCheckedUnlessThatIsOff(t *testing.T) {
	dir := t.TempDir()
	a, other := securetest.New(t, dir, "authority"), securetest.New(t, dir, "other")
	server := open(t, conf.SSL{KeystoreLocation: a.Keystore("node", securetest.Wish{Hosts: []string{"b1.example.com"}})}).Server()
	for _, c := range []struct {
		host, trust string
		check, ok   bool
	}{
		{"b1.example.com", a.Trust, true, true},
		{"127.0.0.1", a.Trust, true, false},
		{"127.0.0.1", a.Trust, false, true},
		{"b1.example.com", other.Trust, false, false}, // the chain counts all the same
	} {
		client := open(t, conf.SSL{TruststoreLocation: c.trust, CheckHost: c.check})
		if _, _, err := shake(server, client.Client(c.host)); err == nil != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestVersionsAndSuitesAreTheSettings(t *testing.T) {
	dir := t.TempDir()
	a := securetest.New(t, dir, "authority")
	own := a.Keystore("node", securetest.Wish{})
	const suite = "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"
	for _, c := range []struct {
		protocols, suites []string
		version           uint16
		suite             string
	}{
		{both, nil, tls.VersionTLS13, ""},
		{[]string{"TLSv1.2"}, nil, tls.VersionTLS12, ""},
		{[]string{"TLSv1.3"}, nil, tls.VersionTLS13, ""},
		{both, []string{suite}, tls.VersionTLS12, suite},
	} {
		server := open(t, conf.SSL{KeystoreLocation: own, Protocols: c.protocols, CipherSuites: c.suites}).Server()
		seen, s, e := shake(server, open(t, conf.SSL{TruststoreLocation: a.Trust}).Client("x"))
		if s != nil || e != nil || seen.Version != c.version || c.suite != "" && tls.CipherSuiteName(seen.CipherSuite) != c.suite {
			t.Errorf("%+v: version %x, suite %s, %v, %v", c, seen.Version, tls.CipherSuiteName(seen.CipherSuite), s, e)
		}
	}
}

func TestARefusalAfterTheHandshakeIsTold(t *testing.T) {
	dir := t.TempDir()
	a, other := securetest.New(t, dir, "authority"), securetest.New(t, dir, "other")
	server := open(t, conf.SSL{KeystoreLocation: a.Keystore("node", securetest.Wish{}), TruststoreLocation: a.Trust, ClientAuth: conf.ClientAuthRequired}).Server()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the listener
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tls.Server(c, server).Handshake()
			c.Close()
		}
	}()
	var log bytes.Buffer
	dial := open(t, conf.SSL{KeystoreLocation: other.Keystore("stranger", securetest.Wish{}), TruststoreLocation: a.Trust, CheckHost: true}).Dialer(slog.New(slog.NewTextHandler(&log, nil)))
	for range 2 {
		c, err := dial(context.Background(), l.Addr().String())
		if err != nil {
			continue
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("a stranger was answered")
		}
		c.Close()
	}
	if n := strings.Count(log.String(), "level=WARN msg=\"TLS refused by the other side\""); n != 1 {
		t.Errorf("told %d times: %s", n, log.String())
	}
}
