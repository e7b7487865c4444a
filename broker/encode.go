package broker

import "encoding/binary"

// The few primitives of Kafka's encoding that the hand-written answers need. A flexible version has compact lengths
// (n+1 as an unsigned varint) and tagged fields.

func appendInt16(b []byte, v int16) []byte { return binary.BigEndian.AppendUint16(b, uint16(v)) }
func appendInt32(b []byte, v int32) []byte { return binary.BigEndian.AppendUint32(b, uint32(v)) }
func appendInt64(b []byte, v int64) []byte { return binary.BigEndian.AppendUint64(b, uint64(v)) }

func appendUvarint(b []byte, v uint32) []byte { return binary.AppendUvarint(b, uint64(v)) }

func appendLen(b []byte, n int, flexible bool) []byte {
	if flexible {
		return appendUvarint(b, uint32(n+1))
	}
	return appendInt32(b, int32(n))
}

func appendNullLen(b []byte, flexible bool) []byte {
	if flexible {
		return append(b, 0)
	}
	return appendInt32(b, -1)
}

func appendString(b []byte, s string, flexible bool) []byte {
	if flexible {
		b = appendUvarint(b, uint32(len(s)+1))
	} else {
		b = appendInt16(b, int16(len(s)))
	}
	return append(b, s...)
}

func appendNullableString(b []byte, s string, null, flexible bool) []byte {
	if !null {
		return appendString(b, s, flexible)
	}
	if flexible {
		return append(b, 0)
	}
	return appendInt16(b, -1)
}

// leaderHint is who leads a partition, told to a client that asked the wrong broker (KIP-951).
type leaderHint struct {
	id, epoch int32 // -1: not known
}

var noLeader = leaderHint{-1, -1}

// endpoint is a broker's address beside a leaderHint.
type endpoint struct {
	id   int32
	host string
	port int32
	rack string

	fenced bool // DescribeCluster alone names such brokers
}

// appendLeaderTag appends the tagged field CurrentLeader: tag, size, leader id, leader epoch, no tags of its own.
func appendLeaderTag(b []byte, tag uint32, l leaderHint) []byte {
	b = appendUvarint(b, tag)
	b = appendUvarint(b, 9)
	b = appendInt32(b, l.id)
	b = appendInt32(b, l.epoch)
	return append(b, 0)
}

// appendEndpointsTag appends the response's tagged fields: NodeEndpoints as tag 0, or none.
func appendEndpointsTag(b []byte, nodes []endpoint) []byte {
	if len(nodes) == 0 {
		return append(b, 0)
	}
	size := len(appendUvarint(nil, uint32(len(nodes)+1)))
	for _, n := range nodes {
		size += 4 + 4 + 1 + len(appendString(nil, n.host, true)) + len(appendNullableString(nil, n.rack, n.rack == "", true))
	}
	b = append(b, 1, 0)
	b = appendUvarint(b, uint32(size))
	b = appendUvarint(b, uint32(len(nodes)+1))
	for _, n := range nodes {
		b = appendInt32(b, n.id)
		b = appendString(b, n.host, true)
		b = appendInt32(b, n.port)
		b = appendNullableString(b, n.rack, n.rack == "", true)
		b = append(b, 0)
	}
	return b
}
