package secure

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/varvelog/varve/meta/conf"
)

// lookEvery is how often the files are looked at, at most.
const lookEvery = time.Second

// Of a certificate that expires within expiryWarn the log says so every warnEvery.
const (
	expiryWarn = 14 * 24 * time.Hour
	warnEvery  = 24 * time.Hour
)

// fileBytesMax bounds what is read of a file of keys or certificates.
const fileBytesMax = 4 << 20

// Keys are what one listener, or one client, shows and whom it trusts. It is safe for concurrent use.
type Keys struct {
	ssl   conf.SSL
	log   *slog.Logger
	rules rules

	mu     sync.Mutex // guards the following
	looked time.Time
	warned time.Time      // of the end of the certificate
	files  [2]os.FileInfo // of the keystore and the truststore, as they were last read; nil: not there
	using  *material
}

// material is what the files and the settings say at one time.
type material struct {
	cert  *tls.Certificate // nil: there is none to show
	trust *x509.CertPool   // nil: the system's
}

// Open reads the keys. The error wraps ErrBadKeys. log may be nil.
func Open(ssl conf.SSL, log *slog.Logger) (*Keys, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	k := &Keys{ssl: ssl, log: log}
	var err error
	if k.rules, err = rulesOf(&ssl); err != nil {
		return nil, err
	}
	k.files = k.stat()
	if k.using, err = read(&ssl); err != nil {
		return nil, err
	}
	k.looked = time.Now()
	k.tell(k.using)
	return k, nil
}

// stat looks at the files.
func (k *Keys) stat() (files [2]os.FileInfo) {
	for i, path := range []string{k.ssl.KeystoreLocation, k.ssl.TruststoreLocation} {
		if path != "" {
			files[i], _ = os.Stat(path) // a file that is gone shows as a change
		}
	}
	return files
}

// now is the material in force, after a look at the files when one is due.
func (k *Keys) now() *material {
	k.mu.Lock()
	using, at := k.using, time.Now()
	due := at.Sub(k.looked) >= lookEvery
	if due {
		k.looked = at
	}
	before := k.files
	late := due && using.cert != nil && using.cert.Leaf.NotAfter.Sub(at) < expiryWarn && at.Sub(k.warned) >= warnEvery
	if late {
		k.warned = at
	}
	k.mu.Unlock()
	if late {
		k.log.Warn("the TLS certificate expires soon: put a new one in its place, it is read without a restart",
			"keystore", k.ssl.KeystoreLocation, "subject", using.cert.Leaf.Subject.String(), "until", using.cert.Leaf.NotAfter)
	}
	if !due {
		return using
	}
	files := k.stat()
	if same(before, files) {
		return using
	}
	next, err := read(&k.ssl)
	k.mu.Lock()
	k.files = files
	if err == nil {
		k.using = next
	}
	using = k.using
	k.mu.Unlock()
	if err != nil {
		k.log.Error("changed TLS files cannot be used, those read before stay in force", "keystore", k.ssl.KeystoreLocation, "truststore", k.ssl.TruststoreLocation, "err", err)
		return using
	}
	k.log.Info("TLS files read again", "keystore", k.ssl.KeystoreLocation, "truststore", k.ssl.TruststoreLocation)
	k.tell(next)
	return using
}

// Expires is until when the certificate in force is good; zero when there is none.
func (k *Keys) Expires() time.Time {
	if m := k.now(); m.cert != nil {
		return m.cert.Leaf.NotAfter
	}
	return time.Time{}
}

func same(a, b [2]os.FileInfo) bool {
	for i := range a {
		switch {
		case a[i] == nil && b[i] == nil:
		case a[i] == nil || b[i] == nil, !os.SameFile(a[i], b[i]), a[i].Size() != b[i].Size(), !a[i].ModTime().Equal(b[i].ModTime()):
			return false
		}
	}
	return true
}

// tell logs until when a certificate is good. An expired one is used all the same: whoever connects refuses it.
func (k *Keys) tell(m *material) {
	if m.cert == nil {
		return
	}
	leaf, now := m.cert.Leaf, time.Now()
	attrs := []any{"keystore", k.ssl.KeystoreLocation, "subject", leaf.Subject.String(), "from", leaf.NotBefore, "until", leaf.NotAfter}
	switch {
	case now.After(leaf.NotAfter):
		k.log.Error("the TLS certificate has expired: others will refuse this node", attrs...)
	case now.Before(leaf.NotBefore):
		k.log.Error("the TLS certificate is not valid yet: others will refuse this node", attrs...)
	default:
		k.log.Info("TLS certificate", attrs...)
	}
}

// read reads what the settings name.
func read(ssl *conf.SSL) (*material, error) {
	m := &material{}
	key, chain, where := ssl.Key, ssl.CertificateChain, "ssl.keystore.key and ssl.keystore.certificate.chain"
	var err error
	if ssl.KeystoreLocation != "" {
		where = "ssl.keystore.location=" + ssl.KeystoreLocation
		if key, err = readFile(ssl.KeystoreLocation); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrBadKeys, where, err)
		}
		chain = key
	}
	if key != "" {
		if m.cert, err = pair(key, chain, ssl.KeyPassword); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrBadKeys, where, err)
		}
	}
	trust, where := ssl.TruststoreCertificates, "ssl.truststore.certificates"
	if ssl.TruststoreLocation != "" {
		where = "ssl.truststore.location=" + ssl.TruststoreLocation
		if trust, err = readFile(ssl.TruststoreLocation); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrBadKeys, where, err)
		}
	}
	if trust != "" || ssl.TruststoreLocation != "" {
		if m.trust, err = authorities(trust); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrBadKeys, where, err)
		}
	}
	return m, nil
}

func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, fileBytesMax+1))
	switch {
	case err != nil:
		return "", err
	case len(b) > fileBytesMax:
		return "", fmt.Errorf("longer than %d bytes", fileBytesMax)
	case len(b) == 0:
		return "", fmt.Errorf("empty")
	}
	return string(b), nil
}
