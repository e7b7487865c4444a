package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/meta"
)

func TestAListenerWithoutAHostAdvertisesThisMachine(t *testing.T) {
	ctx := context.Background()
	n, err := startNode(ctx, devSettings(t.TempDir(), ":0", "", ""), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(ctx)
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(n.Kafka)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range n.meta.Image().Brokers {
		if b.Host != name || fmt.Sprint(b.Port) != port {
			t.Errorf("advertised %s:%d, want %s:%s", b.Host, b.Port, name, port)
		}
	}
}

func TestASecondNodeOnADirectoryIsToldWhatToDo(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	n, err := startNode(ctx, devSettings(dir, "127.0.0.1:0", "", ""), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close(ctx)
	_, err = startNode(ctx, devSettings(dir, "127.0.0.1:0", "", ""), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "another node runs on "+dir+": stop it") {
		t.Errorf("second node: %v", err)
	}
}

func TestAnUnusableDirectoryIsToldWhatToDo(t *testing.T) {
	for _, cause := range []error{fs.ErrPermission, syscall.EROFS, syscall.EACCES} {
		err := &fs.PathError{Op: "mkdir", Path: "/data/log", Err: cause}
		if hint := directoryHint(err, "/data"); !strings.Contains(hint, "make /data writable") {
			t.Errorf("%v: %q", cause, hint)
		}
	}
	if hint := directoryHint(syscall.EIO, "/data"); hint != "" {
		t.Errorf("a disk error is told %q", hint)
	}
}

// logText is a log that may be read while it is written.
type logText struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// writerFunc runs when something is written.
type writerFunc func()

func (f writerFunc) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// An unclean stop is told from a clean one by the marker in the log directory.
func TestAStartAfterAnUncleanStopSaysWhatWasRecovered(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	start := func() (*node, string) {
		var log logText
		n, err := startNode(ctx, devSettings(dir, "127.0.0.1:0", "", ""), slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		return n, log.String()
	}
	stop := func(n *node) {
		if err := n.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	n, log := start()
	if strings.Contains(log, "not clean") {
		t.Errorf("the first start speaks of an earlier one:\n%s", log)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Kafka), kgo.DefaultProduceTopic("events"), kgo.AllowAutoTopicCreation())
	if err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("a")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	cl.Close()
	stop(n)
	n, log = start()
	if strings.Contains(log, "not clean") {
		t.Errorf("a clean stop is called unclean:\n%s", log)
	}
	stop(n)
	markers, err := filepath.Glob(filepath.Join(dir, "log", "*clean*"))
	if err != nil || len(markers) != 1 {
		t.Fatalf("markers %v: %v", markers, err)
	}
	if err := os.Remove(markers[0]); err != nil {
		t.Fatal(err)
	}
	n, log = start()
	if !strings.Contains(log, "the last stop was not clean") || !strings.Contains(log, "partitions=1 recovered=") {
		t.Errorf("an unclean stop is not told:\n%s", log)
	}
	stop(n)
}

func TestStoppingIsLogged(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var log logText
	r := runner{logLevel: "info", ignored: []string{"VARVE_PORT"}}
	if err := r.run(ctx, devSettings(t.TempDir(), "127.0.0.1:0", "", ""), writerFunc(cancel), &log); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "variables=[VARVE_PORT]") {
		t.Errorf("variables left out are not named:\n%s", log.String())
	}
	if !strings.Contains(log.String(), "msg=stopping") || !strings.Contains(log.String(), "msg=stopped") {
		t.Errorf("the log says:\n%s", log.String())
	}
}

// fullDisk has whatever is written to an open file from now on fail.
func fullDisk(t *testing.T, path string) {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	open, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, name := range open {
		if at, err := os.Readlink(name); err != nil || at != path {
			continue
		}
		fd, err := strconv.Atoi(filepath.Base(name))
		if err == nil {
			err = syscall.Dup3(int(full.Fd()), fd, syscall.O_CLOEXEC)
		}
		if err != nil {
			t.Fatal(err)
		}
		found = true
	}
	if !found {
		t.Fatalf("%s is not open", path)
	}
}

// A process that cannot write its metadata log has forgotten what it was asked to remember: it ends, and says why.
func TestALogStoreErrorEndsTheProcess(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	serves, ended := make(firstWrite, 1), make(chan error, 1)
	r := runner{logLevel: "error"}
	go func() { ended <- r.run(t.Context(), devSettings(dir, "127.0.0.1:0", "", ""), serves, io.Discard) }()
	var said string
	select {
	case said = <-serves:
	case err := <-ended:
		t.Fatal(err)
	}
	fullDisk(t, filepath.Join(dir, "meta", "raft.db"))
	_, address, _ := strings.Cut(said, "Kafka clients at ")
	if out, err := run("", "topic", "create", "events", "--bootstrap", address, "--timeout", "3s"); err == nil {
		t.Errorf("a topic was created that nobody remembers: %s", out)
	}
	select {
	case err := <-ended:
		if !errors.Is(err, meta.ErrFailed) || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("it ends with: %v", err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the process goes on")
	}
}

// firstWrite takes the first thing that is written.
type firstWrite chan string

func (f firstWrite) Write(p []byte) (int, error) {
	select {
	case f <- string(p):
	default:
	}
	return len(p), nil
}

func TestDevWarnsOfAStoreInMemory(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var said logText
	cmd := rootCommand()
	cmd.SetArgs([]string{"dev", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "", "--store", "mem:"})
	cmd.SetOut(writerFunc(cancel)) // written to once the node serves
	cmd.SetErr(&said)
	if err := cmd.ExecuteContext(ctx); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(said.String(), "warning: the store is in memory") {
		t.Errorf("it says:\n%s", said.String())
	}
}
