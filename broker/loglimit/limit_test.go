package loglimit

import (
	"strconv"
	"testing"
)

func TestFailuresAreLoggedOnceAMinutePerPlace(t *testing.T) {
	var l Limit[string]
	a, b := "append failed, 1", "append failed, 2"
	for i, x := range []struct {
		k       string
		now     int64
		omitted int64
		ok      bool
	}{{a, 0, 0, true}, {a, 1, 0, false}, {b, 2, 0, true}, {a, 59_999, 0, false}, {a, 60_000, 2, true}, {a, 60_001, 0, false}} {
		if n, ok := l.Allow(x.k, x.now); n != x.omitted || ok != x.ok {
			t.Errorf("step %d: %d %v, want %d %v", i, n, ok, x.omitted, x.ok)
		}
	}
	for i := range 3 * keysMax {
		l.Allow(strconv.Itoa(i), 0)
	}
	if len(l.seen) > keysMax {
		t.Fatalf("%d keys", len(l.seen))
	}
}
