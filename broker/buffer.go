package broker

import (
	"math/bits"
	"sync"
)

// Buffers come in powers of two from 1 KiB to 128 MiB. Large ones are pooled too: a producer that sends 1 MiB requests
// would otherwise make the collector clear 1 MiB for each.
const (
	bufferMinShift = 10
	bufferMaxShift = 27
)

type buffer struct {
	b     []byte // full capacity of its class
	class int
}

var bufferPools [bufferMaxShift - bufferMinShift + 1]sync.Pool

func bufferClass(n int) int {
	if n <= 1<<bufferMinShift {
		return 0
	}
	return bits.Len(uint(n-1)) - bufferMinShift
}

// bufferBytes is the capacity of the buffer that getBuffer(n) returns: what n bytes cost the budget.
func bufferBytes(n int) int64 {
	c := bufferClass(n)
	if c >= len(bufferPools) {
		return int64(n)
	}
	return 1 << (c + bufferMinShift)
}

// getBuffer returns a buffer of at least n bytes with arbitrary contents.
func getBuffer(n int) *buffer {
	c := bufferClass(n)
	if c >= len(bufferPools) {
		return &buffer{b: make([]byte, n), class: c}
	}
	if v := bufferPools[c].Get(); v != nil {
		return v.(*buffer)
	}
	return &buffer{b: make([]byte, 1<<(c+bufferMinShift)), class: c}
}

// putBuffer takes a buffer back. Nobody may hold a slice of it any more: a buffer reused while someone still reads it
// puts one client's bytes into another's records (CVE-2026-35554 is that mistake).
func putBuffer(b *buffer) {
	if b != nil && b.class < len(bufferPools) {
		bufferPools[b.class].Put(b)
	}
}
