package meta

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

func TestRaftSaysNothingOfConnectionsThatAStopCloses(t *testing.T) {
	var out bytes.Buffer
	s := &raftSink{log: slog.New(slog.NewTextHandler(&out, nil)), warn: slog.LevelWarn}
	s.Accept("raft", hclog.Error, "failed to decode incoming command", "error", &net.OpError{Op: "read", Err: net.ErrClosed})
	if out.Len() != 0 {
		t.Errorf("%s", out.String())
	}
	s.Accept("raft", hclog.Error, "failed to decode incoming command", "error", io.ErrUnexpectedEOF)
	if !strings.Contains(out.String(), "level=ERROR") {
		t.Errorf("a cut call is not told: %s", out.String())
	}
}

func TestRaftSaysOfAnAbsentPeerOnce(t *testing.T) {
	var out bytes.Buffer
	s := &raftSink{log: slog.New(slog.NewTextHandler(&out, nil)), warn: slog.LevelWarn}
	for range 5 {
		s.Accept("raft", hclog.Error, "failed to heartbeat to", "peer", "a:1", "error", "refused")
		s.Accept("raft", hclog.Error, "failed to heartbeat to", "peer", "b:1", "error", "refused")
		s.Accept("raft", hclog.Warn, "something else")
	}
	for text, want := range map[string]int{"peer=a:1": 1, "peer=b:1": 1, "something else": 5} {
		if got := strings.Count(out.String(), text); got != want {
			t.Errorf("%q is said %d times, want %d", text, got, want)
		}
	}
	later := time.Now().Add(raftRepeat)
	if s.repeats("failed to heartbeat to", []any{"peer", "a:1"}, later) {
		t.Error("not said again later")
	}
	for i := range 10 * saidMax {
		s.repeats("m", []any{"peer", i}, later)
	}
	if len(s.said) > saidMax {
		t.Errorf("%d lines are remembered", len(s.said))
	}
}
