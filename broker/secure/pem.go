package secure

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	"github.com/youmark/pkcs8"
)

const (
	pemBegin = "-----BEGIN "
	pemEnd   = "-----END "
	pemDash  = "-----"
)

// blocks reads the PEM blocks of a text. Kafka's settings are lines, so the line breaks within a block may be spaces, or be
// missing (KIP-651); what stands between blocks is passed over, as openssl writes it.
func blocks(text string) ([]*pem.Block, error) {
	var list []*pem.Block
	for {
		_, rest, ok := strings.Cut(text, pemBegin)
		if !ok {
			return list, nil
		}
		kind, rest, ok := strings.Cut(rest, pemDash)
		if !ok {
			return nil, errors.New("a BEGIN line does not end")
		}
		body, rest, ok := strings.Cut(rest, pemEnd+kind+pemDash)
		if !ok {
			return nil, fmt.Errorf("no END of %s", kind)
		}
		if strings.Contains(body, ":") { // Proc-Type: 4,ENCRYPTED, from before PKCS#8
			return nil, errors.New("the private key is encrypted in an old form: `openssl pkcs8 -topk8 -in old.pem -out new.pem` makes it PKCS#8")
		}
		der, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(body), ""))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		list = append(list, &pem.Block{Type: kind, Bytes: der})
		text = rest
	}
}

// pair reads a private key and its certificate chain. Where they come from is the caller's to say.
func pair(key, chain, password string) (*tls.Certificate, error) {
	keys, err := blocks(key)
	if err != nil {
		return nil, err
	}
	cert := &tls.Certificate{}
	for _, b := range keys {
		if !strings.HasSuffix(b.Type, "PRIVATE KEY") {
			continue
		}
		if cert.PrivateKey != nil {
			return nil, errors.New("there are two private keys")
		}
		if cert.PrivateKey, err = privateKey(b, password); err != nil {
			return nil, err
		}
	}
	certs, err := blocks(chain)
	if err != nil {
		return nil, err
	}
	for _, b := range certs {
		if b.Type == "CERTIFICATE" {
			cert.Certificate = append(cert.Certificate, b.Bytes)
		}
	}
	switch {
	case cert.PrivateKey == nil:
		return nil, errors.New("there is no private key (BEGIN PRIVATE KEY)")
	case len(cert.Certificate) == 0:
		return nil, errors.New("there is no certificate (BEGIN CERTIFICATE)")
	}
	if cert.Leaf, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
		return nil, fmt.Errorf("the first certificate: %w", err)
	}
	public, ok := cert.Leaf.PublicKey.(interface{ Equal(crypto.PublicKey) bool })
	signer, signs := cert.PrivateKey.(crypto.Signer)
	if !ok || !signs || !public.Equal(signer.Public()) {
		return nil, fmt.Errorf("the private key is not that of the first certificate (%s): the chain begins with the node's own", cert.Leaf.Subject)
	}
	return cert, nil
}

func privateKey(b *pem.Block, password string) (any, error) {
	switch b.Type {
	case "PRIVATE KEY":
		return x509.ParsePKCS8PrivateKey(b.Bytes)
	case "ENCRYPTED PRIVATE KEY":
		if password == "" {
			return nil, errors.New("the private key is encrypted: set ssl.key.password")
		}
		key, err := pkcs8.ParsePKCS8PrivateKey(b.Bytes, []byte(password))
		if err != nil {
			return nil, fmt.Errorf("the private key cannot be decrypted with ssl.key.password: %w", err)
		}
		return key, nil
	case "RSA PRIVATE KEY":
		return x509.ParsePKCS1PrivateKey(b.Bytes)
	case "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(b.Bytes)
	}
	return nil, fmt.Errorf("a %s is not served: `openssl pkcs8 -topk8` makes it PKCS#8", b.Type)
}

// authorities reads the certificates that are trusted.
func authorities(text string) (*x509.CertPool, error) {
	list, err := blocks(text)
	if err != nil {
		return nil, err
	}
	pool, n := x509.NewCertPool(), 0
	for _, b := range list {
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(c)
		n++
	}
	if n == 0 {
		return nil, errors.New("there is no certificate (BEGIN CERTIFICATE)")
	}
	return pool, nil
}
