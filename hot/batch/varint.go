package batch

// Record fields are zigzag varints as in protocol buffers: at most 5 bytes
// for 32 bits and 10 for 64.

// varint32 reads one from b; n is 0 when b ends inside it and negative when
// it is longer than 5 bytes.
func varint32(b []byte) (v int32, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		u := uint32(b[0])
		return int32(u>>1) ^ -int32(u&1), 1
	}
	var u uint32
	for i := 0; i < 5; i++ {
		if i == len(b) {
			return 0, 0
		}
		u |= uint32(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
	}
	return 0, -1
}

// varint64 reads one from b; n is 0 when b ends inside it and negative when
// it is longer than 10 bytes.
func varint64(b []byte) (v int64, n int) {
	var u uint64
	for i := 0; i < 10; i++ {
		if i == len(b) {
			return 0, 0
		}
		u |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
	}
	return 0, -1
}

func appendVarint(b []byte, v int64) []byte {
	u := uint64(v<<1) ^ uint64(v>>63)
	for u >= 0x80 {
		b = append(b, byte(u)|0x80)
		u >>= 7
	}
	return append(b, byte(u))
}

func sizeVarint(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}
