package secure

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"
)

// TestPrincipalsAreNamedAsJavaNamesThem: the names are what X500Principal.getName of Java 21 gives.
func TestPrincipalsAreNamedAsJavaNamesThem(t *testing.T) {
	oid := func(n ...int) asn1.ObjectIdentifier { return n }
	cn, o, ou, c := oid(2, 5, 4, 3), oid(2, 5, 4, 10), oid(2, 5, 4, 11), oid(2, 5, 4, 6)
	for _, x := range []struct {
		name pkix.RDNSequence
		want string
	}{
		{pkix.RDNSequence{{{Type: c, Value: "DE"}}, {{Type: o, Value: "Varve"}}, {{Type: ou, Value: "a"}}, {{Type: cn, Value: "client 1"}}}, "CN=client 1,OU=a,O=Varve,C=DE"},
		{pkix.RDNSequence{{{Type: cn, Value: `a,b+c="d";<e>\#`}}}, `CN=a\,b\+c\=\"d\"\;\<e\>\\\#`},
		{pkix.RDNSequence{{{Type: cn, Value: " two  spaces "}}}, `CN=\ two  spaces\ `},
		{pkix.RDNSequence{{{Type: cn, Value: "käse"}}}, "CN=käse"},
		{pkix.RDNSequence{{{Type: oid(0, 9, 2342, 19200300, 100, 1, 25), Value: "example"}}, {{Type: cn, Value: "x"}}}, "CN=x,DC=example"},
		{pkix.RDNSequence{{{Type: oid(2, 5, 4, 5), Value: "42"}}, {{Type: cn, Value: "x"}}}, "CN=x,2.5.4.5=#13023432"},
		{pkix.RDNSequence{}, ""},
	} {
		der, err := asn1.Marshal(x.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := Principal([]*x509.Certificate{{RawSubject: der}}); got != x.want {
			t.Errorf("%s, want %s", got, x.want)
		}
	}
	for _, chain := range [][]*x509.Certificate{nil, {{RawSubject: []byte{1, 2}}}, {{RawSubject: []byte{0x30, 0x03, 0x31, 0x05, 0x30}}}} {
		if got := Principal(chain); got != Anonymous {
			t.Errorf("%q of no name", got)
		}
	}
}
