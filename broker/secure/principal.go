package secure

import (
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"strings"
	"unicode/utf16"
)

// Anonymous is the name of whoever has not said who it is. Kafka's.
const Anonymous = "ANONYMOUS"

// Principal names whoever showed a chain of certificates, as Kafka's default
// does: by the distinguished name in its own certificate, as RFC 2253 writes it
// and Java does. Without one it is Anonymous.
func Principal(chain []*x509.Certificate) string {
	if len(chain) == 0 {
		return Anonymous
	}
	name, err := distinguishedName(chain[0].RawSubject)
	if err != nil {
		return Anonymous
	}
	return name
}

// attributeNames are the types that RFC 2253 has words for.
var attributeNames = map[string]string{
	"2.5.4.3": "CN", "2.5.4.6": "C", "2.5.4.7": "L", "2.5.4.8": "ST", "2.5.4.9": "STREET", "2.5.4.10": "O", "2.5.4.11": "OU",
	"0.9.2342.19200300.100.1.1": "UID", "0.9.2342.19200300.100.1.25": "DC",
}

type attribute struct {
	Type  asn1.ObjectIdentifier
	Value asn1.RawValue
}

type relativeName []attribute

// distinguishedName writes a subject, its last part first.
func distinguishedName(der []byte) (string, error) {
	var rest asn1.RawValue
	if _, err := asn1.Unmarshal(der, &rest); err != nil {
		return "", err
	}
	var parts []string
	for b := rest.Bytes; len(b) > 0; {
		var set relativeName
		var err error
		if b, err = asn1.UnmarshalWithParams(b, &set, "set"); err != nil {
			return "", err
		}
		words := make([]string, len(set))
		for i, a := range set {
			words[i] = a.String()
		}
		parts = append(parts, strings.Join(words, "+"))
	}
	for i, j := 0, len(parts)-1; i < j; i, j = i+1, j-1 {
		parts[i], parts[j] = parts[j], parts[i]
	}
	return strings.Join(parts, ","), nil
}

func (a attribute) String() string {
	name, known := attributeNames[a.Type.String()]
	text, ok := directoryString(a.Value)
	if !known || !ok {
		if !known {
			name = a.Type.String()
		}
		return name + "=#" + hex.EncodeToString(a.Value.FullBytes)
	}
	return name + "=" + escaped(text)
}

// directoryString reads the kinds of strings that names are made of.
func directoryString(v asn1.RawValue) (string, bool) {
	const bmpString = 30
	switch v.Tag {
	case asn1.TagUTF8String, asn1.TagPrintableString, asn1.TagIA5String, asn1.TagGeneralString:
		return string(v.Bytes), true
	case asn1.TagT61String: // as Latin-1
		runes := make([]rune, len(v.Bytes))
		for i, c := range v.Bytes {
			runes[i] = rune(c)
		}
		return string(runes), true
	case bmpString:
		units := make([]uint16, len(v.Bytes)/2)
		for i := range units {
			units[i] = uint16(v.Bytes[2*i])<<8 | uint16(v.Bytes[2*i+1])
		}
		return string(utf16.Decode(units)), len(v.Bytes)%2 == 0
	}
	return "", false
}

// escaped puts a backslash before what RFC 2253 keeps for itself, and before = and #, as Java does.
func escaped(text string) string {
	var b strings.Builder
	inner := strings.Trim(text, " \r")
	lead := len(text) - len(strings.TrimLeft(text, " \r"))
	for i, c := range text {
		switch {
		case c == 0:
			b.WriteString(`\00`)
			continue
		case strings.ContainsRune(`,=+<>#;"\`, c), i < lead, i >= lead+len(inner):
			b.WriteByte('\\')
		}
		b.WriteRune(c)
	}
	return b.String()
}
