package broker

import (
	"sync"

	"github.com/varvelog/varve/meta/topic"
)

// logLimit lets a recurring failure through to the log once a minute per place and cause, with a count of what was left
// out: a full disk or a lost bucket fails thousands of requests a second in the same way.
type logLimit struct {
	mu   sync.Mutex // guards the following
	seen map[logKey]*logSeen
}

// logKey is a place and a cause.
type logKey struct {
	what  string
	topic string
	id    topic.ID
	index int32
	code  int16
}

type logSeen struct {
	at      int64 // millis of the last line
	omitted int64
}

const (
	logEveryMillis = 60_000
	logKeysMax     = 4096 // past it everything is forgotten: lines come early, never late
)

// allow says whether a line is due, and how many were left out since the last one.
func (l *logLimit) allow(k logKey, now int64) (omitted int64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[k]
	if s == nil {
		if l.seen == nil || len(l.seen) >= logKeysMax {
			l.seen = map[logKey]*logSeen{}
		}
		l.seen[k] = &logSeen{at: now}
		return 0, true
	}
	if now-s.at < logEveryMillis {
		s.omitted++
		return 0, false
	}
	omitted = s.omitted
	s.at, s.omitted = now, 0
	return omitted, true
}

// logFailure logs a failure of one partition, within the limit. name may point into a frame and is empty when the request
// gave an id.
func (s *Server) logFailure(what, name string, id topic.ID, index int32, c int16, err error) {
	k := logKey{what: what, topic: s.topicName(name, id), id: id, index: index, code: c}
	if omitted, ok := s.limit.allow(k, s.nowMillis()); ok {
		s.log.Warn(what, "topic", k.topic, "partition", index, "code", c, "err", err, "omitted", omitted)
	}
}

// topicName is a copy of name or, when that is empty, the name that belongs to id.
func (s *Server) topicName(name string, id topic.ID) string {
	if name == "" && s.deps.Metadata != nil {
		if t := s.deps.Metadata.Image().TopicByID(id); t != nil {
			return t.Name
		}
	}
	return string([]byte(name))
}
