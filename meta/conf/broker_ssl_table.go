package conf

import (
	"maps"
	"slices"
	"strings"
)

// brokerSSLDefs are the settings of TLS. Each may be set for one listener, too:
// listener.name.NAME.ssl.… wins over ssl.… there.
var brokerSSLDefs = []Def{
	def("ssl.allow.dn.changes", Boolean, "false", "Kafka's check of a keystore that changes; accepted without effect."),
	def("ssl.allow.san.changes", Boolean, "false", "Kafka's check of a keystore that changes; accepted without effect."),
	def("ssl.cipher.suites", List, "", "The cipher suites that may be used, by their IANA names; empty leaves it to the library.", listOf()),
	def("ssl.client.auth", String, "none", "Whether clients must show a certificate that the truststore trusts.", oneOf("required", "requested", "none")),
	def("ssl.enabled.protocols", List, "TLSv1.2,TLSv1.3", "The versions of TLS that may be used: TLSv1.2 and TLSv1.3 are served.", listOf()),
	def("ssl.endpoint.identification.algorithm", String, "https", "Whether a broker's certificate must be for the host name by which it is reached; empty switches that off."),
	def("ssl.engine.factory.class", Class, "", "Kafka's plugin; accepted without effect.", null),
	def("ssl.key.password", Password, "", "The password of an encrypted private key.", null, sensitive),
	def("ssl.keymanager.algorithm", String, "SunX509", "Kafka's choice of a Java library; accepted without effect."),
	def("ssl.keystore.certificate.chain", Password, "", "The certificate and those that lead from it to the authority's, as PEM text (KIP-651).", null, sensitive),
	def("ssl.keystore.key", Password, "", "The private key as PEM text (KIP-651).", null, sensitive),
	def("ssl.keystore.location", String, "", "The PEM file with the private key and the certificate chain; read again when it changes.", null),
	def("ssl.keystore.password", Password, "", "The password of a JKS or PKCS12 keystore; accepted without effect: those are not served, and a PEM file has none.", null, sensitive),
	def("ssl.keystore.type", String, "JKS", "The format of the keystore: PEM is served."),
	def("ssl.principal.mapping.rules", String, "DEFAULT", "How a certificate's name becomes a principal; accepted without effect: a client's user, for quotas, is the whole distinguished name."),
	def("ssl.protocol", String, "TLSv1.3", "Kafka's choice of a Java context; accepted without effect: ssl.enabled.protocols counts."),
	def("ssl.provider", String, "", "Kafka's choice of a Java provider; accepted without effect.", null),
	def("ssl.secure.random.implementation", String, "", "Kafka's choice of a Java library; accepted without effect.", null),
	def("ssl.trustmanager.algorithm", String, "PKIX", "Kafka's choice of a Java library; accepted without effect."),
	def("ssl.truststore.certificates", Password, "", "The certificates of the authorities that are trusted, as PEM text (KIP-651).", null, sensitive),
	def("ssl.truststore.location", String, "", "The PEM file with the certificates of the authorities that are trusted; read again when it changes.", null),
	def("ssl.truststore.password", Password, "", "The password of a JKS or PKCS12 truststore; accepted without effect: those are not served, and a PEM file has none.", null, sensitive),
	def("ssl.truststore.type", String, "JKS", "The format of the truststore: PEM is served."),
}

// listenerPrefix begins the settings of one listener.
const listenerPrefix = "listener.name."

// canonicalName is a setting's name with the listener in it, if any, in lower case: as in Kafka it may be spelt either way,
// and is known by this one.
func canonicalName(name string) string {
	if listener, setting, ok := splitListenerSetting(name); ok {
		return listenerPrefix + strings.ToLower(listener) + "." + setting
	}
	return name
}

// canonicalNames is a copy of what is given under canonical names. Two spellings of one setting are refused: nobody can
// say which of them counts.
func canonicalNames(given map[string]string) (map[string]string, error) {
	all, spelt := make(map[string]string, len(given)), map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		canonical := canonicalName(name)
		if other, twice := spelt[canonical]; twice {
			return nil, contradiction("%s and %s are the same setting: write %s once", other, name, canonical)
		}
		all[canonical], spelt[canonical] = given[name], name
	}
	return all, nil
}

// splitListenerSetting takes listener.name.NAME.ssl.… apart.
func splitListenerSetting(name string) (listener, setting string, ok bool) {
	rest, ok := strings.CutPrefix(name, listenerPrefix)
	if !ok {
		return "", "", false
	}
	at := strings.Index(rest, ".ssl.")
	if at <= 0 {
		return "", "", false
	}
	return rest[:at], rest[at+1:], true
}
