package broker

import (
	"github.com/varvelog/varve/broker/loglimit"
	"github.com/varvelog/varve/meta/topic"
)

// logLimit bounds the lines about failures of partitions.
type logLimit = loglimit.Limit[logKey]

// logKey is a place and a cause.
type logKey struct {
	what  string
	topic string
	id    topic.ID
	index int32
	code  int16
}

// logFailure logs a failure of one partition, within the limit. name may point into a frame and is empty when the request
// gave an id.
func (s *Server) logFailure(what, name string, id topic.ID, index int32, c int16, err error) {
	k := logKey{what: what, topic: s.topicName(name, id), id: id, index: index, code: c}
	if omitted, ok := s.limit.Allow(k, s.nowMillis()); ok {
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
