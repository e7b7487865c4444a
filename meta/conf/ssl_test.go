package conf

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

const keyed = " ssl.keystore.type=PEM ssl.keystore.location=/key.pem"

func TestListenersAreSecuredEachByItsOwn(t *testing.T) {
	plan, err := mustBroker(t, strings.Fields("listeners=INTERNAL://:1,PUBLIC://:2,PLAINTEXT://:3,CONTROLLER://:4"+
		" listener.security.protocol.map=INTERNAL:SSL,PUBLIC:SSL,PLAINTEXT:PLAINTEXT,CONTROLLER:SSL inter.broker.listener.name=internal"+
		" ssl.keystore.type=PEM ssl.keystore.location=/key.pem ssl.truststore.type=PEM ssl.truststore.location=/ca.pem"+
		" listener.name.internal.ssl.client.auth=required listener.name.public.ssl.keystore.location=/public.pem listener.name.public.ssl.endpoint.identification.algorithm=")...).Plan()
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Clients) != 3 || plan.Between().Name != "INTERNAL" || plan.Clients[2].SSL != nil {
		t.Fatalf("%+v", plan)
	}
	in, public, raft := plan.Clients[0].SSL, plan.Clients[1].SSL, plan.Controller.SSL
	if in.ClientAuth != ClientAuthRequired || in.KeystoreLocation != "/key.pem" || !in.CheckHost || !slices.Equal(in.Protocols, []string{"TLSv1.2", "TLSv1.3"}) {
		t.Errorf("internal: %+v", in)
	}
	if public.ClientAuth != ClientAuthNone || public.KeystoreLocation != "/public.pem" || public.CheckHost {
		t.Errorf("public: %+v", public)
	}
	if raft.ClientAuth != ClientAuthRequired || raft.TruststoreLocation != "/ca.pem" {
		t.Errorf("the quorum's is always mutual: %+v", raft)
	}
	for pairs, want := range map[string]string{
		"listeners=SSL://:1,PLAINTEXT://:2" + keyed:                                                   "PLAINTEXT",
		"listeners=SSL://:1,PLAINTEXT://:2 security.inter.broker.protocol=SSL" + keyed:                "SSL",
		"listeners=SSL://:1" + keyed:                                                                  "SSL",
		"listeners=SSL://:1,PLAINTEXT://:2 inter.broker.listener.name=SSL" + keyed:                    "SSL",
		"listeners=PLAINTEXT://:1,CONTROLLER://:2 listener.security.protocol.map=PLAINTEXT:PLAINTEXT": "PLAINTEXT",
	} {
		plan, err := mustBroker(t, strings.Fields(pairs)...).Plan()
		if err != nil || plan.Between().Name != want {
			t.Errorf("%s: between brokers %+v, %v, want %s", pairs, plan, err, want)
		}
	}
}

func TestWhatCannotBeSecuredSaysWhatToWrite(t *testing.T) {
	const ssl = "listeners=SSL://:1"
	for _, c := range []struct{ pairs, want string }{
		{ssl, "set ssl.keystore.type=PEM and ssl.keystore.location"},
		{ssl + " ssl.keystore.location=/k.jks", "ssl.keystore.type=JKS: PEM is served: set ssl.keystore.type=PEM; a JKS file becomes PEM with `keytool -importkeystore -srckeystore /k.jks"},
		{ssl + " ssl.keystore.type=PKCS12 ssl.keystore.location=/k.p12", "openssl pkcs12 -in store.p12 -nodes"},
		{ssl + keyed + " ssl.truststore.location=/t.jks", "ssl.truststore.type=JKS"},
		{ssl + keyed + " ssl.keystore.password=x", "the password of an encrypted private key is ssl.key.password"},
		{ssl + keyed + " ssl.keystore.key=x ssl.keystore.certificate.chain=y", "exclude each other"},
		{ssl + " ssl.keystore.type=PEM ssl.keystore.key=x", "set both"},
		{ssl + keyed + " ssl.client.auth=required", "set ssl.truststore.type=PEM and ssl.truststore.location"},
		{ssl + keyed + " ssl.enabled.protocols=TLSv1.1,TLSv1.2", "TLSv1.2 and TLSv1.3 are served"},
		{ssl + keyed + " ssl.enabled.protocols=", "name TLSv1.3, TLSv1.2 or both"},
		{ssl + keyed + " ssl.endpoint.identification.algorithm=ldaps", "https checks the host name"},
		{ssl + ",CONTROLLER://:2" + keyed, "add CONTROLLER:SSL to it (or CONTROLLER:PLAINTEXT)"},
		{ssl + ",CONTROLLER://:2 listener.security.protocol.map=SSL:SSL,CONTROLLER:SSL" + keyed, "always ask each other for certificates"},
		{ssl + " security.inter.broker.protocol=PLAINTEXT" + keyed, "security.inter.broker.protocol=PLAINTEXT: listeners=SSL://:1 has no such listener"},
		{ssl + " security.inter.broker.protocol=SSL inter.broker.listener.name=SSL" + keyed, "only one of inter.broker.listener.name and security.inter.broker.protocol"},
		{ssl + keyed + " listener.name.public.ssl.client.auth=none", "has no listener PUBLIC"},
	} {
		_, err := mustBroker(t, strings.Fields(c.pairs)...).Plan()
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, ErrInvalid) {
			t.Errorf("%s\n got %v\nwant %s", c.pairs, err, c.want)
		}
	}
	for pairs, want := range map[string]string{
		"listener.name.ssl.ssl.client.auth=maybe": "listener.name.ssl.ssl.client.auth",
		"listener.name.ssl.ssl.no.such=1":         "Unknown broker config name",
		"ssl.client.auth=maybe":                   "String must be one of: required, requested, none",
	} {
		if _, err := ParseBroker(pairMap(strings.Fields(pairs))); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", pairs, err, want)
		}
	}
}

// A listener's name in a setting may be spelt as in listeners, where it is in capitals.
func TestASettingOfOneListenerCountsHoweverItIsSpelt(t *testing.T) {
	const listeners = "listeners=INTERNAL://:1 listener.security.protocol.map=INTERNAL:SSL ssl.keystore.type=PEM" +
		" ssl.truststore.type=PEM ssl.truststore.location=/ca.pem inter.broker.listener.name=INTERNAL"
	for _, spelt := range []string{"INTERNAL", "Internal", "internal"} {
		b := mustBroker(t, strings.Fields(listeners+" listener.name."+spelt+".ssl.client.auth=required listener.name."+spelt+".ssl.keystore.location=/x.pem")...)
		p, err := b.Plan()
		if err != nil {
			t.Fatalf("%s: %v", spelt, err)
		}
		if s := p.Between().SSL; s == nil || s.ClientAuth != ClientAuthRequired || s.KeystoreLocation != "/x.pem" {
			t.Errorf("%s: the settings of the listener are ignored: %+v", spelt, s)
		}
		if v, _, given, _ := b.Value("listener.name.INTERNAL.ssl.client.auth"); v != "required" || !given {
			t.Errorf("%s: shown as %q, given %v", spelt, v, given)
		}
		with, err := b.With(map[string]string{"listener.name.INTERNAL.ssl.client.auth": "none"})
		if err != nil {
			t.Fatal(err)
		}
		if v, _, _, _ := with.Value("listener.name.internal.ssl.client.auth"); v != "none" {
			t.Errorf("%s: what is put over it does not count: %q", spelt, v)
		}
	}
	_, err := ParseBroker(map[string]string{"listener.name.INTERNAL.ssl.client.auth": "none", "listener.name.internal.ssl.client.auth": "required"})
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "write listener.name.internal.ssl.client.auth once") {
		t.Errorf("two spellings of one setting: %v", err)
	}
}

func TestSettingsOfOneListenerAreShownWithTheirSecretsHidden(t *testing.T) {
	b := mustBroker(t, "listener.name.ssl.ssl.key.password=x", "listener.name.ssl.ssl.client.auth=none")
	shown := map[string]bool{}
	for _, d := range b.Defs() {
		shown[d.Name] = d.Sensitive
	}
	if secret, ok := shown["listener.name.ssl.ssl.key.password"]; !ok || !secret {
		t.Error("the password of a listener's key is not there, or not secret")
	}
	if secret, ok := shown["listener.name.ssl.ssl.client.auth"]; !ok || secret {
		t.Error("what is no secret is not there, or hidden")
	}
}

func TestAClientsPropertiesAreKafkas(t *testing.T) {
	s, secure, err := ClientSSL(map[string]string{"security.protocol": "SSL", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem", "client.id": "x"})
	if err != nil || !secure || s.TruststoreLocation != "/ca.pem" || s.HasKey() || !s.CheckHost {
		t.Errorf("%+v, %v, %v", s, secure, err)
	}
	if _, secure, err := ClientSSL(map[string]string{"ssl.truststore.location": "/ca.jks"}); secure || err != nil {
		t.Errorf("without security.protocol: %v, %v", secure, err)
	}
	for name, c := range map[string]map[string]string{
		"PLAINTEXT and SSL are spoken": {"security.protocol": "SASL_SSL"},
		"ssl.truststore.type=JKS":      {"security.protocol": "SSL", "ssl.truststore.location": "/ca.jks"},
	} {
		if _, _, err := ClientSSL(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v", c, err)
		}
	}
}
