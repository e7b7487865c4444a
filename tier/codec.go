package tier

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc32c(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

func crc32cUpdate(sum uint32, b []byte) uint32 { return crc32.Update(sum, castagnoli, b) }

// encoder appends big-endian fields.
type encoder struct{ b []byte }

func (e *encoder) u16(v uint16)   { e.b = binary.BigEndian.AppendUint16(e.b, v) }
func (e *encoder) u32(v uint32)   { e.b = binary.BigEndian.AppendUint32(e.b, v) }
func (e *encoder) u64(v uint64)   { e.b = binary.BigEndian.AppendUint64(e.b, v) }
func (e *encoder) i32(v int32)    { e.u32(uint32(v)) }
func (e *encoder) i64(v int64)    { e.u64(uint64(v)) }
func (e *encoder) bytes(v []byte) { e.b = append(e.b, v...) }
func (e *encoder) text(v string)  { e.u32(uint32(len(v))); e.b = append(e.b, v...) }

func (e *encoder) bool32(v bool) {
	if v {
		e.u32(1)
	} else {
		e.u32(0)
	}
}

// sum appends the CRC-32C of everything so far.
func (e *encoder) sum() []byte {
	e.u32(crc32c(e.b))
	return e.b
}

// decoder takes big-endian fields. After the first field that is not there, all
// further ones are zero and err is set.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil {
		return nil
	}
	if n < 0 || n > len(d.b) {
		d.err = corrupt("%d bytes wanted, %d left", n, len(d.b))
		d.b = nil
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) u16() uint16 {
	if v := d.take(2); v != nil {
		return binary.BigEndian.Uint16(v)
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if v := d.take(4); v != nil {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (d *decoder) u64() uint64 {
	if v := d.take(8); v != nil {
		return binary.BigEndian.Uint64(v)
	}
	return 0
}

func (d *decoder) i32() int32 { return int32(d.u32()) }
func (d *decoder) i64() int64 { return int64(d.u64()) }

func (d *decoder) text() string { return string(d.take(d.count(1))) }

func (d *decoder) bool32() bool {
	v := d.u32()
	if v > 1 {
		d.fail("flag %d", v)
	}
	return v == 1
}

// count takes a number of items of at least itemBytes each, and refuses one
// that the remaining bytes cannot hold: nothing is allocated on its word.
func (d *decoder) count(itemBytes int) int {
	n := d.u32()
	if d.err == nil && uint64(n)*uint64(itemBytes) > uint64(len(d.b)) {
		d.fail("%d items of %d bytes in %d", n, itemBytes, len(d.b))
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = corrupt(format, args...)
		d.b = nil
	}
}

// done is the decoder's error, or one for bytes left over.
func (d *decoder) done() error {
	if d.err == nil && len(d.b) > 0 {
		d.fail("%d bytes left over", len(d.b))
	}
	return d.err
}

// open checks magic, trailing CRC and version of a manifest object and returns
// a decoder behind the version.
func open(b []byte, magic string, version uint16) (*decoder, error) {
	if len(b) < len(magic)+2+4 || string(b[:len(magic)]) != magic {
		return nil, corrupt("not a %q object", magic)
	}
	body, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if got := crc32c(body); got != sum {
		return nil, corrupt("CRC is %08x, stored %08x", got, sum)
	}
	d := &decoder{b: body[len(magic):]}
	if v := d.u16(); v != version {
		return nil, fmt.Errorf("%q object has version %d, this build reads %d: %w", magic, v, version, ErrUnsupported)
	}
	return d, nil
}
