package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"varve": main})
}

// leakChecked fails a run of tests that leaves goroutines behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	code := l.m.Run()
	if code != 0 {
		return code
	}
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestScripts runs the command line as a user would, each script against a
// node of its own. $BOOT and $HTTP are its addresses.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			ctx := context.Background()
			n, err := startNode(ctx, devSettings(filepath.Join(env.WorkDir, "node"), "127.0.0.1:0", "127.0.0.1:0", ""), slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			env.Defer(func() {
				if err := n.Close(ctx); err != nil {
					t.Errorf("close the node: %v", err)
				}
			})
			env.Setenv("VARVE_BOOTSTRAP", n.Kafka)
			env.Setenv("VARVE_HTTP", n.HTTP)
			env.Setenv("BOOT", n.Kafka)
			env.Setenv("HTTP", n.HTTP)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"eventually": eventually,
		},
	})
}

// eventually runs a command until its output matches: `eventually REGEXP varve …`.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: eventually TEXT COMMAND…")
	}
	for range 400 {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
		_ = ts.Exec("sleep", "0.05")
	}
	ts.Fatalf("%q never appeared; last output:\n%s", args[0], ts.ReadFile("stdout"))
}

func TestDevRefusesATakenAddressAndABadSetting(t *testing.T) {
	ctx := context.Background()
	n, err := startNode(ctx, devSettings(t.TempDir(), "127.0.0.1:0", "", ""), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(ctx)
	_, err = startNode(ctx, devSettings(t.TempDir(), n.Kafka, "", ""), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "choose another") {
		t.Errorf("taken address: %v", err)
	}
	s := devSettings(t.TempDir(), "0.0.0.0:0", "", "")
	if _, err = startNode(ctx, s, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "advertised.listeners") {
		t.Errorf("listening everywhere: %v", err)
	}
	dir := filepath.Join(t.TempDir(), "none")
	if _, err = startNode(ctx, devSettings(dir, "127.0.0.1:0", n.Kafka, ""), slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--http") {
		t.Errorf("taken address of the console: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("a taken address of the console is found only after data was opened")
	}
	s = devSettings(t.TempDir(), "127.0.0.1:0", "", "gopher://x")
	if _, err = startNode(ctx, s, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "varve.tier.store=gopher://x") {
		t.Errorf("unknown store: %v", err)
	}
	s = devSettings(t.TempDir(), "127.0.0.1:0", "", "")
	s["log.dirs"] = "/a,/b"
	if _, err = startNode(ctx, s, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "Varve keeps one") {
		t.Errorf("two directories: %v", err)
	}
	if _, err := os.Stat("/a"); err == nil {
		t.Error("a refused start left a directory")
	}
}
