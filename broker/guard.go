package broker

import (
	"encoding/binary"
	"fmt"
)

// Decoding turns a few bytes of request into many of memory: an element of an array takes one to a few bytes on the wire
// and up to a hundred when decoded, and an unknown tagged field a map entry. So before a request is decoded it is walked
// by its schema, without allocating, and what it would take is counted. Real requests take less than twice their size.
const (
	guardFactor = 8        // decoded bytes allowed per byte of request
	guardFloor  = 64 << 10 // and what any request may take
	tagMemory   = 96       // an unknown tagged field in kmsg's map
)

// guard walks one request.
type guard struct {
	rest     []byte
	version  int16
	flexible bool
	memory   int
	limit    int
	bad      bool
}

// checkRequest says whether the body of a request has the shape of its key and version and stays within bounds when
// decoded. A body with bytes left over passes: Kafka ignores them as well.
func checkRequest(s *schema, version int16, body []byte) error {
	g := guard{rest: body, version: version, flexible: version >= s.flexible, limit: guardFloor + guardFactor*len(body)}
	g.fields(&s.body)
	switch {
	case g.bad:
		return fmt.Errorf("%w: %s version %d: field lengths contradict the body's", errBadRequest, s.name, version)
	case g.memory > g.limit:
		return fmt.Errorf("%w: %s version %d: %d bytes would decode to %d or more", errBadRequest, s.name, version, len(body), g.memory)
	}
	return nil
}

func (g *guard) failed() bool { return g.bad || g.memory > g.limit }

func (g *guard) fail() { g.bad, g.rest = true, nil }

func (g *guard) skip(n int) {
	if n < 0 || n > len(g.rest) {
		g.fail()
		return
	}
	g.rest = g.rest[n:]
}

// length reads a length or count; null is -1.
func (g *guard) length(wide bool) int {
	if g.flexible {
		v, rest, ok := uvarint(g.rest)
		if !ok {
			g.fail()
			return -1
		}
		g.rest = rest
		return int(v) - 1
	}
	if !wide {
		if len(g.rest) < 2 {
			g.fail()
			return -1
		}
		n := int(int16(binary.BigEndian.Uint16(g.rest)))
		g.rest = g.rest[2:]
		return n
	}
	if len(g.rest) < 4 {
		g.fail()
		return -1
	}
	n := int(int32(binary.BigEndian.Uint32(g.rest)))
	g.rest = g.rest[4:]
	return n
}

// fields walks a struct.
func (g *guard) fields(f *field) {
	for i := range f.fields {
		c := &f.fields[i]
		if c.tag >= 0 || g.version < c.min || g.version > c.max {
			continue
		}
		g.field(c)
		if g.failed() {
			return
		}
	}
	if g.flexible {
		g.tags(f)
	}
}

func (g *guard) field(f *field) {
	if !f.array {
		g.element(f)
		return
	}
	n := g.length(true)
	if n < -1 || n > len(g.rest) { // no element takes less than a byte
		g.fail()
		return
	}
	if n <= 0 {
		return
	}
	g.memory += n * f.memory
	if f.kind == typeFixed {
		g.skip(n * f.size)
		return
	}
	for ; n > 0 && !g.failed(); n-- {
		g.element(f)
	}
}

func (g *guard) element(f *field) {
	switch f.kind {
	case typeFixed:
		g.skip(f.size)
	case typeString, typeBytes:
		n := g.length(f.kind == typeBytes)
		if n < -1 {
			g.fail()
			return
		}
		if n > 0 {
			g.skip(n)
			if f.kind == typeString {
				g.memory += n
			}
		}
	case typeOptional:
		if len(g.rest) < 1 {
			g.fail()
			return
		}
		null := int8(g.rest[0]) < 0
		g.rest = g.rest[1:]
		if !null {
			g.memory += f.memory
			g.fields(f)
		}
	case typeStruct:
		g.fields(f)
	}
}

// tags walks the tagged fields of f; those it does not know are kept by kmsg in a map.
func (g *guard) tags(f *field) {
	n := g.length(true) + 1 // a plain count
	for ; n > 0 && !g.failed(); n-- {
		tag, rest, ok := uvarint(g.rest)
		if !ok {
			g.fail()
			return
		}
		size, rest, ok := uvarint(rest)
		if !ok || uint64(size) > uint64(len(rest)) {
			g.fail()
			return
		}
		g.rest = rest[size:]
		known := f.tagged(tag)
		if known == nil {
			g.memory += tagMemory
			continue
		}
		inner := guard{rest: rest[:size], version: g.version, flexible: true, memory: g.memory, limit: g.limit}
		inner.field(known)
		g.memory = inner.memory
		if inner.bad {
			g.fail()
		}
	}
}

func (f *field) tagged(tag uint32) *field {
	for i := range f.fields {
		if f.fields[i].tag >= 0 && uint32(f.fields[i].tag) == tag {
			return &f.fields[i]
		}
	}
	return nil
}
