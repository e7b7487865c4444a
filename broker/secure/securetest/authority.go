// Package securetest makes certificates for tests.
package securetest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// T is what of testing.TB is used.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Authority signs certificates.
type Authority struct {
	t    T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	next int64
	// Trust is the PEM file of the authority's own certificate.
	Trust string
}

// Wish says what a certificate is to be. The zero value is a good one of 127.0.0.1 and localhost, for an hour.
type Wish struct {
	Hosts       []string // names and addresses; nil: 127.0.0.1, ::1 and localhost
	From, Until time.Time
}

// New makes an authority that keeps its files in dir.
func New(t T, dir, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: dir, next: 1, key: newKey(t)}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.Trust = a.write(name+".pem", block("CERTIFICATE", der))
	return a
}

func newKey(t T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// write puts a file in place in one step.
func (a *Authority) write(name, text string) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path+".tmp", []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	if err := os.Rename(path+".tmp", path); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// Sign makes a private key and its certificate, as PEM texts.
func (a *Authority) Sign(name string, w Wish) (key, cert string) {
	a.t.Helper()
	if w.Hosts == nil {
		w.Hosts = []string{"127.0.0.1", "::1", "localhost"}
	}
	if w.From.IsZero() {
		w.From = time.Now().Add(-time.Hour)
	}
	if w.Until.IsZero() {
		w.Until = time.Now().Add(time.Hour)
	}
	a.next++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(a.next), Subject: pkix.Name{CommonName: name}, NotBefore: w.From, NotAfter: w.Until,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range w.Hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	own := newKey(a.t)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &own.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(own)
	if err != nil {
		a.t.Fatal(err)
	}
	return block("PRIVATE KEY", pkcs8), block("CERTIFICATE", der)
}

// Keystore is Sign into one PEM file, which it replaces.
func (a *Authority) Keystore(name string, w Wish) (path string) {
	a.t.Helper()
	key, cert := a.Sign(name, w)
	return a.write(name+".pem", key+cert)
}

// Settings are those of a listener, or a client, that shows a certificate of the authority and trusts it alone.
func (a *Authority) Settings(name string, w Wish) map[string]string {
	a.t.Helper()
	return map[string]string{
		"ssl.keystore.type": "PEM", "ssl.keystore.location": a.Keystore(name, w),
		"ssl.truststore.type": "PEM", "ssl.truststore.location": a.Trust,
	}
}
