package topic

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
)

// ID is a topic's identity: a random UUID (version 4), new for every creation,
// so that a topic created again under an old name is a different topic.
// The zero ID means "none", as it does on Kafka's wire.
type ID [16]byte

// idEncoding is Kafka's text form of a UUID: base64, URL alphabet, no padding.
var idEncoding = base64.RawURLEncoding.Strict()

// metadataID is the ID Kafka reserves for its own metadata topic.
var metadataID = ID{15: 1}

// NewID returns a random ID. It is never zero, never one of Kafka's reserved
// IDs, and its text never starts with '-', so that it can stand as a
// command-line argument.
func NewID() ID {
	for {
		var id ID
		_, _ = rand.Read(id[:]) // documented never to fail
		id[6] = id[6]&0x0f | 0x40
		id[8] = id[8]&0x3f | 0x80
		if !id.IsZero() && id != metadataID && id.String()[0] != '-' {
			return id
		}
	}
}

// ParseID reads the text form that String writes.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != idEncoding.EncodedLen(len(id)) {
		return ID{}, fmt.Errorf("%w %.40q: want %d characters of URL-safe base64", ErrInvalidID, s, idEncoding.EncodedLen(len(id)))
	}
	if _, err := idEncoding.Decode(id[:], []byte(s)); err != nil {
		return ID{}, fmt.Errorf("%w %q: %w", ErrInvalidID, s, err)
	}
	// The decoder passes over line ends and over bits that stand for nothing:
	// one ID must have one text, since texts are parts of object keys.
	if id.String() != s {
		return ID{}, fmt.Errorf("%w %q: not the text of an ID", ErrInvalidID, s)
	}
	return id, nil
}

// IsZero reports whether id is the zero ID, which names no topic.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the 22 characters that Kafka prints for this ID.
func (id ID) String() string { return idEncoding.EncodeToString(id[:]) }

// MarshalText implements encoding.TextMarshaler with String's form.
func (id ID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler with ParseID's rules.
func (id *ID) UnmarshalText(text []byte) error {
	parsed, err := ParseID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}
