// Package loglimit lets a recurring failure through to the log once a minute per place and cause, with a count of what was
// left out: a full disk, a lost bucket or a stranger at the door fails thousands of times a second in the same way.
package loglimit

import "sync"

// Limit says which lines are due; K is a place and a cause. The zero value is ready.
type Limit[K comparable] struct {
	mu   sync.Mutex // guards the following
	seen map[K]*seen
}

type seen struct {
	at      int64 // millis of the last line
	omitted int64
}

const (
	everyMillis = 60_000
	keysMax     = 4096 // past it everything is forgotten: lines come early, never late
)

// Allow says whether a line is due, and how many were left out since the last one.
func (l *Limit[K]) Allow(k K, nowMillis int64) (omitted int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[k]
	if s == nil {
		if l.seen == nil || len(l.seen) >= keysMax {
			l.seen = map[K]*seen{}
		}
		l.seen[k] = &seen{at: nowMillis}
		return 0, true
	}
	if nowMillis-s.at < everyMillis {
		s.omitted++
		return 0, false
	}
	omitted = s.omitted
	s.at, s.omitted = nowMillis, 0
	return omitted, true
}
