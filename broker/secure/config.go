package secure

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"

	"github.com/varvelog/varve/meta/conf"
)

// rules are what the settings allow of TLS.
type rules struct {
	min, max uint16
	suites   []uint16 // of TLS 1.2; nil: the library's choice
}

func rulesOf(ssl *conf.SSL) (rules, error) {
	r := rules{min: tls.VersionTLS13, max: tls.VersionTLS12}
	if slices.Contains(ssl.Protocols, "TLSv1.2") {
		r.min = tls.VersionTLS12
	}
	if slices.Contains(ssl.Protocols, "TLSv1.3") {
		r.max = tls.VersionTLS13
	}
	if len(ssl.CipherSuites) == 0 {
		return r, nil
	}
	newer, all := 0, 0
	byName := map[string]*tls.CipherSuite{}
	for _, s := range tls.CipherSuites() {
		byName[s.Name] = s
		if slices.Contains(s.SupportedVersions, tls.VersionTLS13) {
			all++
		}
	}
	for _, name := range ssl.CipherSuites {
		s := byName[name]
		switch {
		case s == nil:
			return rules{}, fmt.Errorf("%w: ssl.cipher.suites: %s is not served; these are: %s", ErrBadKeys, name, strings.Join(suiteNames(), ", "))
		case slices.Contains(s.SupportedVersions, tls.VersionTLS13):
			newer++
		default:
			r.suites = append(r.suites, s.ID)
		}
	}
	switch {
	case newer != 0 && newer != all:
		return rules{}, fmt.Errorf("%w: ssl.cipher.suites: the suites of TLSv1.3 cannot be chosen singly: name all of them or none", ErrBadKeys)
	case newer == 0:
		r.max = tls.VersionTLS12
	case r.suites == nil:
		r.min = tls.VersionTLS13
	}
	if r.min > r.max {
		return rules{}, fmt.Errorf("%w: ssl.cipher.suites names none of a version in ssl.enabled.protocols=%s", ErrBadKeys, strings.Join(ssl.Protocols, ","))
	}
	return r, nil
}

func suiteNames() []string {
	var names []string
	for _, s := range tls.CipherSuites() {
		names = append(names, s.Name)
	}
	return names
}

// Server is the config of a listener, for all of its life: each handshake goes by what the files say then.
func (k *Keys) Server() *tls.Config {
	c := k.server(k.now())
	c.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return k.server(k.now()), nil }
	return c
}

func (k *Keys) server(m *material) *tls.Config {
	c := &tls.Config{
		MinVersion: k.rules.min, MaxVersion: k.rules.max, CipherSuites: k.rules.suites, ClientCAs: m.trust,
		DynamicRecordSizingDisabled: true, // answers are long: small records would only cost
	}
	if m.cert != nil {
		c.Certificates = []tls.Certificate{*m.cert}
	}
	switch k.ssl.ClientAuth {
	case conf.ClientAuthRequested:
		c.ClientAuth = tls.VerifyClientCertIfGiven
	case conf.ClientAuthRequired:
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	c.SessionTicketsDisabled = c.ClientAuth != tls.NoClientCert
	return c
}

// Client is the config of one connection to host.
func (k *Keys) Client(host string) *tls.Config {
	m := k.now()
	c := &tls.Config{
		MinVersion: k.rules.min, MaxVersion: k.rules.max, CipherSuites: k.rules.suites,
		RootCAs: m.trust, ServerName: host, DynamicRecordSizingDisabled: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if m.cert == nil {
				return &tls.Certificate{}, nil
			}
			return m.cert, nil
		},
	}
	if !k.ssl.CheckHost {
		// The chain still has to lead to a trusted authority; only the name may be another.
		c.InsecureSkipVerify = true
		c.VerifyConnection = func(s tls.ConnectionState) error { return verifyChain(s, m.trust) }
	}
	return c
}

func verifyChain(s tls.ConnectionState, trust *x509.CertPool) error {
	if len(s.PeerCertificates) == 0 {
		return errors.New("the server has shown no certificate")
	}
	options := x509.VerifyOptions{Roots: trust, Intermediates: x509.NewCertPool()}
	for _, c := range s.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := s.PeerCertificates[0].Verify(options)
	return err
}

// Dial opens a connection to address and does the handshake.
func (k *Keys) Dial(ctx context.Context, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{Config: k.Client(host)}).DialContext(ctx, "tcp", address)
}

// Dialer is Dial that tells the log, within limits, which server's certificate it did not take.
func (k *Keys) Dialer(log *slog.Logger) func(ctx context.Context, address string) (net.Conn, error) {
	refused := &Refusals{Logger: log, Level: slog.LevelWarn}
	return func(ctx context.Context, address string) (net.Conn, error) {
		c, err := k.Dial(ctx, address)
		switch {
		case err == nil:
			return &listened{Conn: c, address: address, to: refused}, nil
		case ctx.Err() == nil:
			refused.Dialled(address, err)
		}
		return nil, err
	}
}

// listened is a connection that hears of a refusal which comes after the handshake, as TLS 1.3 has it.
type listened struct {
	net.Conn
	address string
	to      *Refusals
}

func (c *listened) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if isAlert(err) {
		c.to.Dialled(c.address, err)
	}
	return n, err
}
