package ops

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAFailedNodeIsServedUntilClose also shows that Close leaves nothing
// running: a failed node's rooms may be gone already, and are not asked.
func TestAFailedNodeIsServedUntilClose(t *testing.T) {
	s := New(Deps{Failed: func() error { return errors.New("the metadata cannot be written") }, Logger: slog.New(slog.DiscardHandler)})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	client := http.Client{Transport: new(http.Transport)}
	defer client.CloseIdleConnections()
	for _, path := range []string{"/healthz", "/readyz"} {
		resp, err := client.Get("http://" + l.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(body), "cannot be written") {
			t.Errorf("%s answers %d %s: %v", path, resp.StatusCode, body, err)
		}
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
