package tier

import (
	"hash/crc32"
	"sync"
)

// joinLeast is the length from which joining two checksums takes less time than
// computing one over the bytes.
const joinLeast = 4 << 10

// joinCRC is the CRC-32C of two runs of bytes, the second n bytes long, from the
// checksums of each.
//
// Modulo the polynomial a checksum is a remainder, so that n bytes behind it
// multiply it by x^(8n). The checksums' inversion cancels out.
func joinCRC(first, second uint32, n int) uint32 {
	return mulCRC(first, shiftCRC(n)) ^ second
}

// mulCRC multiplies modulo the polynomial. Bits are reflected, as in the
// checksums: 1<<31 is x^0.
func mulCRC(a, b uint32) uint32 {
	var p uint32
	for m := uint32(1) << 31; a != 0; m >>= 1 {
		if a&m != 0 {
			p ^= b
			a &^= m
		}
		b = b>>1 ^ crc32.Castagnoli&-(b&1)
	}
	return p
}

// shiftCRC is x^(8n).
func shiftCRC(n int) uint32 {
	powers := crcPowers()
	shift := uint32(1) << 31
	for i := 0; n > 0; i, n = i+1, n>>8 {
		if d := n & 0xff; d != 0 {
			shift = mulCRC(shift, powers[i][d])
		}
	}
	return shift
}

// crcPowers[i][d] is x^(8·d·256^i).
var crcPowers = sync.OnceValue(func() *[4][256]uint32 {
	var t [4][256]uint32
	step := uint32(1) << 23 // x^8
	for i := range t {
		t[i][0] = 1 << 31
		for d := 1; d < 256; d++ {
			t[i][d] = mulCRC(t[i][d-1], step)
		}
		step = mulCRC(t[i][255], step)
	}
	return &t
})
