// Package fuzztest holds decoders of outside bytes to their memory in fuzz
// targets: what a decoder may allocate is a multiple of its input.
package fuzztest

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// Factor and Floor are the bound of every decoder that states no other: 8 bytes
// per byte of input, and 64 KiB for errors, parts of a fixed size and what other
// goroutines do meanwhile.
const (
	Factor = 8
	Floor  = 64 << 10
)

// Bounded runs fn, which decodes input bytes, and fails when it allocates more
// than Factor and Floor allow. fn may run more than once.
func Bounded(t testing.TB, input int, fn func()) {
	t.Helper()
	Within(t, Factor*input+Floor, fn)
}

// Within runs fn and fails when it allocates more than limit bytes. fn may run
// more than once: other goroutines' allocations count too, so that a run above
// the limit gets two more.
func Within(t testing.TB, limit int, fn func()) {
	t.Helper()
	if quick(fn) <= uint64(limit)/2 || raceDetector {
		return
	}
	var took uint64
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fn()
		runtime.ReadMemStats(&after)
		if took = after.TotalAlloc - before.TotalAlloc; took <= uint64(limit) {
			return
		}
	}
	t.Fatalf("%d bytes allocated where %d are allowed", took, limit)
}

// quick is what fn allocated, short of what lies in spans that are not full: a
// few times 8 KiB. Unlike runtime.ReadMemStats it does not stop the world, which
// would take most of a fuzzer's time.
func quick(fn func()) uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(sample)
	before := sample[0].Value.Uint64()
	fn()
	metrics.Read(sample)
	return sample[0].Value.Uint64() - before
}
