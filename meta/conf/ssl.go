package conf

import (
	"maps"
	"slices"
	"strings"
)

// ClientAuth says whether a listener asks who connects for a certificate.
type ClientAuth string

// The values of ssl.client.auth.
const (
	ClientAuthNone      ClientAuth = "none"
	ClientAuthRequested ClientAuth = "requested"
	ClientAuthRequired  ClientAuth = "required"
)

// SSL is how one listener, or one client, is secured: Kafka's ssl.* settings. ""
// is a setting that is not set.
type SSL struct {
	KeystoreLocation string
	CertificateChain string // PEM
	Key              string // PEM
	KeyPassword      string

	TruststoreLocation     string
	TruststoreCertificates string // PEM

	ClientAuth   ClientAuth
	Protocols    []string
	CipherSuites []string
	// CheckHost says that a server's certificate must be for the host by which it
	// is reached.
	CheckHost bool
}

// HasKey reports whether there is a certificate to show.
func (s *SSL) HasKey() bool { return s.KeystoreLocation != "" || s.CertificateChain != "" }

// HasTrust reports whether authorities are named; otherwise the system's count.
func (s *SSL) HasTrust() bool { return s.TruststoreLocation != "" || s.TruststoreCertificates != "" }

// SSL is how a listener is secured.
func (b *Broker) SSL(listener string) (SSL, error) {
	prefix := listenerPrefix + strings.ToLower(listener) + "."
	s, err := readSSL(func(name string) string {
		if v, ok := b.given[prefix+name]; ok {
			return strings.TrimSpace(v)
		}
		text, _, _, _ := b.Value(name)
		return text
	})
	if err != nil {
		return SSL{}, contradiction("listener %s: %v", listener, err)
	}
	if !s.HasKey() {
		return SSL{}, contradiction("listener %s speaks SSL and has no certificate: set ssl.keystore.type=PEM and ssl.keystore.location to a PEM file with its private key and certificate chain, or ssl.keystore.key and ssl.keystore.certificate.chain to the same as text", listener)
	}
	if s.ClientAuth != ClientAuthNone && !s.HasTrust() {
		return SSL{}, contradiction("ssl.client.auth=%s on listener %s needs to know whom to trust: set ssl.truststore.type=PEM and ssl.truststore.location to a PEM file with the authority's certificate", s.ClientAuth, listener)
	}
	return s, nil
}

// ClientSSL reads a Kafka client's properties. secure says that
// security.protocol is SSL; only then does anything else count. Properties that
// have nothing to do with that are passed over, as by Kafka's tools.
func ClientSSL(properties map[string]string) (s SSL, secure bool, err error) {
	switch p := strings.ToUpper(properties["security.protocol"]); p {
	case "", "PLAINTEXT":
		return SSL{}, false, nil
	case "SSL":
	default:
		return SSL{}, false, contradiction("security.protocol=%s: PLAINTEXT and SSL are spoken", p)
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		d, ok := Lookup(KindBroker, name)
		if !ok || !strings.HasPrefix(name, "ssl.") {
			continue
		}
		if _, err := d.Parse(properties[name]); err != nil {
			return SSL{}, false, err
		}
	}
	s, err = readSSL(func(name string) string {
		if v, ok := properties[name]; ok {
			return strings.TrimSpace(v)
		}
		d, _ := Lookup(KindBroker, name)
		return d.Default
	})
	return s, true, err
}

// readSSL reads the settings and refuses what is not served or contradicts
// itself, in words that say what to write instead.
func readSSL(get func(name string) string) (SSL, error) {
	s := SSL{
		KeystoreLocation: get("ssl.keystore.location"), CertificateChain: get("ssl.keystore.certificate.chain"),
		Key: get("ssl.keystore.key"), KeyPassword: get("ssl.key.password"),
		TruststoreLocation: get("ssl.truststore.location"), TruststoreCertificates: get("ssl.truststore.certificates"),
		ClientAuth: ClientAuth(get("ssl.client.auth")),
		Protocols:  splitList(get("ssl.enabled.protocols")), CipherSuites: splitList(get("ssl.cipher.suites")),
	}
	switch algorithm := get("ssl.endpoint.identification.algorithm"); {
	case strings.EqualFold(algorithm, "https"):
		s.CheckHost = true
	case algorithm != "":
		return SSL{}, contradiction("ssl.endpoint.identification.algorithm=%s: https checks the host name, an empty value does not", algorithm)
	}
	for _, p := range s.Protocols {
		if p != "TLSv1.2" && p != "TLSv1.3" {
			return SSL{}, contradiction("ssl.enabled.protocols=%s: TLSv1.2 and TLSv1.3 are served", strings.Join(s.Protocols, ","))
		}
	}
	if len(s.Protocols) == 0 {
		return SSL{}, contradiction("ssl.enabled.protocols is empty: name TLSv1.3, TLSv1.2 or both")
	}
	if err := checkStore("keystore", get, s.KeystoreLocation, s.CertificateChain+s.Key); err != nil {
		return SSL{}, err
	}
	if err := checkStore("truststore", get, s.TruststoreLocation, s.TruststoreCertificates); err != nil {
		return SSL{}, err
	}
	if (s.CertificateChain == "") != (s.Key == "") {
		return SSL{}, contradiction("ssl.keystore.key and ssl.keystore.certificate.chain belong together: set both")
	}
	return s, nil
}

// checkStore holds Kafka's rules of PEM stores (KIP-651). The others are Java's
// own formats.
func checkStore(store string, get func(string) string, location, text string) error {
	kind := get("ssl." + store + ".type")
	if location == "" && text == "" {
		return nil
	}
	if !strings.EqualFold(kind, "PEM") {
		what := "-nokeys -cacerts"
		if store == "keystore" {
			what = "-nodes"
		}
		from := location
		if from == "" {
			from = "STORE"
		}
		return contradiction("ssl.%s.type=%s: PEM is served: set ssl.%s.type=PEM; a JKS file becomes PEM with `keytool -importkeystore -srckeystore %s -destkeystore store.p12 -deststoretype PKCS12` and then `openssl pkcs12 -in store.p12 %s -out store.pem` (the second alone for PKCS12)",
			store, kind, store, from, what)
	}
	if location != "" && text != "" {
		return contradiction("ssl.%s.location and PEM text in ssl.%s.… exclude each other: set one of them", store, store)
	}
	if get("ssl."+store+".password") != "" {
		return contradiction("ssl.%s.password is set, but a PEM %s has none: the password of an encrypted private key is ssl.key.password", store, store)
	}
	return nil
}
