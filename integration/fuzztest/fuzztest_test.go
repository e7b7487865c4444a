package fuzztest

import "testing"

var sink [][]byte

// failed records a failure instead of ending the test.
type failed struct {
	testing.TB
	yes bool
}

func (f *failed) Helper()               {}
func (f *failed) Fatalf(string, ...any) { f.yes = true }

func TestOnlyTooMuchMemoryFails(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector allocates too, so nothing is held to a bound under it")
	}
	allocate := func(pieces, size int) func() {
		return func() {
			sink = sink[:0]
			for range pieces {
				sink = append(sink, make([]byte, size))
			}
		}
	}
	for _, c := range []struct {
		name         string
		input        int
		pieces, size int
		fails        bool
	}{
		{"nothing", 0, 0, 0, false},
		{"the floor", 0, 1, Floor / 2, false},
		{"one piece above it", 0, 1, 2 * Floor, true},
		{"small pieces above it", 0, 4 * Floor / 64, 64, true},
		{"as much as the input allows", 1 << 20, 1, 8 << 20, false},
		{"more", 1 << 20, 9, 1 << 20, true},
	} {
		f := &failed{TB: t}
		Bounded(f, c.input, allocate(c.pieces, c.size))
		if f.yes != c.fails {
			t.Errorf("%s: failed %v", c.name, f.yes)
		}
	}
}
