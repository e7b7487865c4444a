package meta

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

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
