package meta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// raftSink sends raft's log lines to slog, and demotes what raft reports as
// news on every start to Debug. What raft says of a peer that is away, it says
// several times a second for as long as that lasts: the same line about the
// same peer is passed on once in raftRepeat.
type raftSink struct {
	log  *slog.Logger
	warn slog.Level

	mu   sync.Mutex // guards the following
	said map[string]time.Time
}

const (
	raftRepeat = 30 * time.Second
	// saidMax bounds what is remembered; when there is more, everything is
	// forgotten, which only repeats some lines.
	saidMax = 256
)

// Accept implements hclog.SinkAdapter.
func (s *raftSink) Accept(_ string, level hclog.Level, message string, args ...any) {
	if s.log == nil || level >= hclog.Warn && s.repeats(message, args, time.Now()) {
		return
	}
	args = append([]any{"component", "raft"}, args...)
	switch {
	case ours(args):
		s.log.Debug(message, args...)
	case level >= hclog.Error:
		s.log.Error(message, args...)
	case level == hclog.Warn:
		s.log.Log(context.Background(), s.warn, message, args...)
	default:
		s.log.Debug(message, args...)
	}
}

// ours says whether a line is about a connection that this node has closed
// itself, as it does when it stops.
func ours(args []any) bool {
	return slices.ContainsFunc(args, func(a any) bool {
		err, ok := a.(error)
		return ok && errors.Is(err, net.ErrClosed)
	})
}

// repeats says whether a line about a peer was passed on a moment ago.
func (s *raftSink) repeats(message string, args []any, now time.Time) bool {
	key := ""
	for i := 0; i+1 < len(args); i += 2 {
		if name, ok := args[i].(string); ok && (name == "peer" || name == "target") {
			key = fmt.Sprint(message, " ", args[i+1])
		}
	}
	if key == "" {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, ok := s.said[key]; ok && now.Sub(at) < raftRepeat {
		return true
	}
	if s.said == nil || len(s.said) >= saidMax {
		s.said = make(map[string]time.Time)
	}
	s.said[key] = now
	return false
}
