package meta

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	transportPool    = 3
	transportTimeout = 10 * time.Second
)

// Listen opens raft's transport over TCP: it listens on address and tells
// others to use advertise.
func Listen(address string, advertise net.Addr, log *slog.Logger) (raft.Transport, error) {
	t, err := raft.NewTCPTransportWithLogger(address, advertise, transportPool, transportTimeout, raftLogger(log, slog.LevelWarn))
	if err != nil {
		return nil, fmt.Errorf("listen for the metadata quorum on %s: %w", address, err)
	}
	return t, nil
}

// raftLogger sends raft's log lines to slog, its warnings at the given level: a
// quorum of one has nobody to wait for, so what raft warns of there is news of
// every start.
func raftLogger(log *slog.Logger, warn slog.Level) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Debug, Output: nopWriter{}})
	l.RegisterSink(raftSink{log, warn})
	return l
}

type nopWriter struct{}

func (nopWriter) Write(b []byte) (int, error) { return len(b), nil }

// raftSink demotes what raft reports as news on every start to Debug.
type raftSink struct {
	log  *slog.Logger
	warn slog.Level
}

func (s raftSink) Accept(_ string, level hclog.Level, message string, args ...any) {
	if s.log == nil {
		return
	}
	args = append([]any{"component", "raft"}, args...)
	switch {
	case level >= hclog.Error:
		s.log.Error(message, args...)
	case level == hclog.Warn:
		s.log.Log(context.Background(), s.warn, message, args...)
	default:
		s.log.Debug(message, args...)
	}
}
