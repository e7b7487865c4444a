package broker

import "encoding/binary"

// header is the request header, v1 or v2.
//
//	key i16, version i16, correlation i32, client id: nullable string (i16 length, -1 = null)
//	v2 (requests of a flexible version): then tagged fields
//
// The client id is not compact in v2 either.
type header struct {
	key, version int16
	correlation  int32
	client       []byte // a slice of the frame; nil for null
}

// parseHeaderStart reads what all headers share and returns the rest: client id and what follows.
func parseHeaderStart(b []byte) (header, []byte, error) {
	if len(b) < 8 {
		return header{}, nil, errBadRequest
	}
	return header{
		key:         int16(binary.BigEndian.Uint16(b)),
		version:     int16(binary.BigEndian.Uint16(b[2:])),
		correlation: int32(binary.BigEndian.Uint32(b[4:])),
	}, b[8:], nil
}

// parseHeaderRest reads the client id and, for flexible versions, skips the tagged fields; it returns the body.
func (h *header) parseRest(b []byte, flexible bool) ([]byte, error) {
	if len(b) < 2 {
		return nil, errBadRequest
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	if n < -1 || n > len(b) {
		return nil, errBadRequest
	}
	if n >= 0 {
		h.client, b = b[:n:n], b[n:]
	}
	if !flexible {
		return b, nil
	}
	return skipTags(b)
}

// tagsMax bounds the tagged fields of one header or struct; nobody sends more than a few.
const tagsMax = 64

// skipTags returns what follows a tagged-fields section.
func skipTags(b []byte) ([]byte, error) {
	n, b, ok := uvarint(b)
	if !ok || n > tagsMax {
		return nil, errBadRequest
	}
	for ; n > 0; n-- {
		var size uint32
		if _, b, ok = uvarint(b); !ok {
			return nil, errBadRequest
		}
		if size, b, ok = uvarint(b); !ok || uint64(size) > uint64(len(b)) {
			return nil, errBadRequest
		}
		b = b[size:]
	}
	return b, nil
}

// uvarint reads Kafka's unsigned varint of at most five bytes.
func uvarint(b []byte) (uint32, []byte, bool) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint32(b[0]), b[1:], true
	}
	var v uint64
	for i := 0; i < len(b) && i < 5; i++ {
		v |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			if v > 1<<32-1 {
				return 0, nil, false
			}
			return uint32(v), b[i+1:], true
		}
	}
	return 0, nil, false
}
