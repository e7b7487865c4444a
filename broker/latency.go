package broker

import (
	"sync/atomic"
	"time"
)

// LatencyBounds are the upper bounds of a Latency's buckets.
var LatencyBounds = [...]time.Duration{
	100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// Latency is how long requests of one API took, from when their last byte had
// been read until their answer was handed to the kernel. Waiting for records,
// for replicas or for a group is part of it, as it is of Kafka's TotalTimeMs.
type Latency struct {
	Counts [len(LatencyBounds) + 1]int64 // by bucket, not added up; the last is above all bounds
	Sum    time.Duration
}

// latency counts without locks; a snapshot may be between two of its parts.
type latency struct {
	counts [len(LatencyBounds) + 1]atomic.Int64
	nanos  atomic.Int64
}

func (l *latency) add(took time.Duration) {
	i := 0
	for i < len(LatencyBounds) && took > LatencyBounds[i] {
		i++
	}
	l.counts[i].Add(1)
	l.nanos.Add(int64(took))
}

func (l *latency) snapshot() Latency {
	s := Latency{Sum: time.Duration(l.nanos.Load())}
	for i := range l.counts {
		s.Counts[i] = l.counts[i].Load()
	}
	return s
}
