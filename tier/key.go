package tier

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/varvelog/varve/meta/topic"
)

// Keys of a bucket. Format: do not renumber.
//
//	<prefix>/v1/<topic id>/<partition>/head
//	<prefix>/v1/<topic id>/<partition>/page/<base>-<epoch>-<random>
//	<prefix>/v1/<topic id>/<partition>/seg/<base>-<epoch>-<random>
//
// <topic id> is Kafka's base64 form (22 characters), <partition> is decimal,
// <base> 20 decimal digits, <epoch> 10 decimal digits, <random> 16 lower-case
// hexadecimal digits. Listing seg/ therefore gives offset order.
const keyVersion = "v1"

// KeyKind says what a key of the bucket names.
type KeyKind uint8

// The kinds of objects in a bucket.
const (
	KeyHead KeyKind = iota + 1
	KeyPage
	KeySegment
)

// KeyInfo is a parsed key.
type KeyInfo struct {
	Topic     topic.ID
	Partition int32
	Kind      KeyKind
	ID        SegmentID // zero for KeyHead
}

// PartitionPrefix returns the prefix of all keys of p, with its trailing slash.
func (c Config) PartitionPrefix(id topic.ID, partition int32) string {
	return c.TopicPrefix(id) + strconv.Itoa(int(partition)) + "/"
}

// TopicPrefix returns the prefix of all keys of a topic, with its trailing slash.
func (c Config) TopicPrefix(id topic.ID) string { return c.root() + id.String() + "/" }

func (c Config) root() string {
	if c.Prefix == "" {
		return keyVersion + "/"
	}
	return c.Prefix + "/" + keyVersion + "/"
}

func (id SegmentID) name() string {
	return fmt.Sprintf("%020d-%010d-%016x", id.Base, id.Epoch, id.Random)
}

// ParseKey tells what a key found by listing names; false for strangers' keys.
func (c Config) ParseKey(key string) (KeyInfo, bool) {
	rest, ok := strings.CutPrefix(key, c.root())
	if !ok {
		return KeyInfo{}, false
	}
	parts := strings.Split(rest, "/")
	if len(parts) < 3 || len(parts) > 4 {
		return KeyInfo{}, false
	}
	id, err := topic.ParseID(parts[0])
	if err != nil {
		return KeyInfo{}, false
	}
	n, err := strconv.ParseInt(parts[1], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != parts[1] {
		return KeyInfo{}, false
	}
	k := KeyInfo{Topic: id, Partition: int32(n)}
	switch {
	case len(parts) == 3 && parts[2] == "head":
		k.Kind = KeyHead
		return k, true
	case len(parts) == 4 && parts[2] == "page":
		k.Kind = KeyPage
	case len(parts) == 4 && parts[2] == "seg":
		k.Kind = KeySegment
	default:
		return KeyInfo{}, false
	}
	k.ID, ok = parseSegmentName(parts[3])
	return k, ok
}

func parseSegmentName(s string) (SegmentID, bool) {
	if len(s) != 20+1+10+1+16 || s[20] != '-' || s[31] != '-' {
		return SegmentID{}, false
	}
	base, err1 := strconv.ParseUint(s[:20], 10, 63)
	epoch, err2 := strconv.ParseUint(s[21:31], 10, 31)
	random, err3 := strconv.ParseUint(s[32:], 16, 64)
	id := SegmentID{Base: int64(base), Epoch: int32(epoch), Random: random}
	// The round trip refuses upper-case digits and signs.
	return id, err1 == nil && err2 == nil && err3 == nil && id.name() == s
}
