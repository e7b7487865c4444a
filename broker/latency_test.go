package broker

import (
	"testing"
	"time"
)

func TestLatenciesFallIntoTheirBuckets(t *testing.T) {
	var l latency
	for _, took := range []time.Duration{0, 100 * time.Microsecond, 101 * time.Microsecond, 30 * time.Second, time.Minute} {
		l.add(took)
	}
	s := l.snapshot()
	last := len(LatencyBounds)
	if s.Counts[0] != 2 || s.Counts[1] != 1 || s.Counts[last-1] != 1 || s.Counts[last] != 1 {
		t.Errorf("buckets are %v", s.Counts)
	}
	if want := 90*time.Second + 201*time.Microsecond; s.Sum != want {
		t.Errorf("the sum is %v, want %v", s.Sum, want)
	}
	if n := testing.AllocsPerRun(100, func() { l.add(time.Millisecond) }); n != 0 {
		t.Errorf("counting allocates %v times", n)
	}
}
