package meta

import (
	"encoding/binary"
	"fmt"

	"github.com/hashicorp/raft"
)

// decodeQuorum reads raft's encoding of its members: MessagePack, a map with
// one list of maps. The library panics on bad input, and makes room for as many
// members as a header claims, so that the claims are checked before.
func decodeQuorum(b []byte) (c raft.Configuration, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: members: %v", ErrCorrupt, r)
		}
	}()
	if rest, ok := packed(b, packedDepth); !ok || len(rest) > 0 {
		return c, fmt.Errorf("%w: members: not a list of members", ErrCorrupt)
	}
	return raft.DecodeConfiguration(b), nil
}

const (
	// packedDepth is how deep members are nested: a map, its list, a member.
	packedDepth = 3
	// packedElement is less than a member of a list takes: the names of its
	// three fields alone are 18 bytes.
	packedElement = 18
)

// packed passes over one MessagePack value of at most depth containers within
// each other; false when it is cut short or claims more than there are bytes for.
func packed(b []byte, depth int) (rest []byte, ok bool) {
	if len(b) == 0 {
		return nil, false
	}
	head, b := b[0], b[1:]
	length := func(width int) int { // of the big-endian number that follows
		var wide [8]byte
		if len(b) < width {
			ok = false
			return 0
		}
		copy(wide[8-width:], b[:width])
		b = b[width:]
		return int(binary.BigEndian.Uint64(wide[:]))
	}
	ok = true
	bytes, values, least := 0, 0, 1
	switch {
	case head <= 0x7f || head >= 0xe0 || head == 0xc0 || head == 0xc2 || head == 0xc3: // small numbers, nil, booleans
	case head <= 0x8f:
		values = 2 * int(head&0x0f)
	case head <= 0x9f:
		values, least = int(head&0x0f), packedElement
	case head <= 0xbf:
		bytes = int(head & 0x1f)
	case head >= 0xc4 && head <= 0xc6: // bin 8, 16, 32
		bytes = length(1 << (head - 0xc4))
	case head >= 0xcc && head <= 0xcf: // uint 8, 16, 32, 64
		bytes = 1 << (head - 0xcc)
	case head >= 0xd0 && head <= 0xd3: // int 8, 16, 32, 64
		bytes = 1 << (head - 0xd0)
	case head >= 0xd9 && head <= 0xdb: // str 8, 16, 32
		bytes = length(1 << (head - 0xd9))
	case head == 0xdc || head == 0xdd: // array 16, 32
		values, least = length(2<<(head-0xdc)), packedElement
	case head == 0xde || head == 0xdf: // map 16, 32
		values = 2 * length(2<<(head-0xde))
	default: // floats and extensions are in no member
		return nil, false
	}
	if !ok || bytes > len(b) || values > len(b)/least || values > 0 && depth == 0 {
		return nil, false
	}
	b = b[bytes:]
	for range values {
		if b, ok = packed(b, depth-1); !ok {
			return nil, false
		}
	}
	return b, true
}
