package batch

import "encoding/binary"

// scan walks uncompressed records of a client's CreateTime batch, the common
// case, at a few nanoseconds each. It stops before the first record that has
// headers, breaks a rule or is malformed, and returns how many it passed; the
// walker then stands at that record, whose fate the general code decides.
//
// Per record it proves the same as rawRecord.parse: every field lies within
// the record and the fields fill it to the last byte.
func (v *validator) scan(from int32) int32 {
	var (
		p       = v.walk.plain
		base    = v.walk.baseTimestamp
		lo, hi  = v.bounds()
		keyless = !v.o.Compacted
		max     = v.max
		i       = from
	)
	for ; i < v.walk.count && len(p) >= 8; i++ {
		// Eight bytes hold length, attributes and timestamp delta, three
		// bytes being the longest varint taken here.
		word := binary.LittleEndian.Uint64(p)
		size, n := uvarint(word)
		delta, m := uvarint(word >> (n + 8))
		at := int(n+8+m) / 8
		end := int(n)/8 + int(size>>1)
		if n == 0 || m == 0 || size&1 != 0 || end > len(p) || at > len(p)-8 {
			break
		}
		word = binary.LittleEndian.Uint64(p[at:])
		offset, n := uvarint(word)
		key, m := uvarint(word >> n)
		at += int(n+m) / 8
		if key&1 == 0 {
			at += int(key >> 1)
		}
		if n == 0 || m == 0 || offset != uint64(i)<<1 || key&1 != 0 && !keyless || at > len(p)-8 {
			break
		}
		value, n := uvarint(binary.LittleEndian.Uint64(p[at:]))
		at += int(n) / 8
		if value&1 == 0 {
			at += int(value >> 1)
		}
		// What is left of the record is a header count of 0.
		if n == 0 || at+1 != end || p[at] != 0 {
			break
		}
		timestamp := base + (int64(delta>>1) ^ -int64(delta&1))
		if timestamp < lo || timestamp > hi {
			break
		}
		if timestamp > max {
			max, v.maxAt = timestamp, int64(i)
		}
		p = p[end:]
	}
	v.walk.plain, v.walk.done, v.max = p, i, max
	return i
}

// uvarint reads a varint of up to three bytes from the low end of a word,
// without undoing the zigzag, and its length in bits: 0 when it is longer.
func uvarint(w uint64) (u uint64, bits uint) {
	if w&0x80 == 0 {
		return w & 0x7f, 8
	}
	if w&0x8000 == 0 {
		return w&0x7f | w>>1&0x3f80, 16
	}
	if w&0x800000 == 0 {
		return w&0x7f | w>>1&0x3f80 | w>>2&0x1fc000, 24
	}
	return 0, 0
}

// bounds are the timestamps that scan need not look at twice.
func (v *validator) bounds() (lo, hi int64) {
	if v.o.TimestampType == LogAppendTime {
		return minInt64, maxInt64
	}
	lo, hi = v.o.Now-v.o.BeforeMaxMs, v.o.Now+v.o.AfterMaxMs
	if hi < v.o.Now {
		hi = maxInt64
	}
	return lo, hi
}

const (
	minInt64 = -1 << 63
	maxInt64 = 1<<63 - 1
)
