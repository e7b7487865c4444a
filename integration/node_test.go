package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var binaryDir string // where binary put it, removed at the end

// binary builds the product once for all tests of the package.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "varve-bin-")
	if err != nil {
		return "", err
	}
	binaryDir = dir
	path := filepath.Join(dir, "varve")
	cmd := exec.Command("go", "build", "-o", path, "../cmd/varve")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build varve: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	status := m.Run()
	if binaryDir != "" {
		os.RemoveAll(binaryDir)
	}
	os.Exit(status)
}

// node is one running varve process.
type node struct {
	t         testing.TB
	dir       string
	args      []string
	cmd       *exec.Cmd
	exited    chan struct{} // closed when the process is gone
	log       string
	Bootstrap string
	HTTP      string
}

// startNode starts `varve dev` with its data under dir and waits until it
// serves. The process is stopped when the test ends; when the test failed, the
// end of its log is printed.
func startNode(t testing.TB, dir string, args ...string) *node {
	t.Helper()
	n := &node{t: t, dir: dir, args: args, log: filepath.Join(dir, "varve.log")}
	n.start()
	t.Cleanup(func() {
		n.Kill()
		if t.Failed() {
			t.Logf("log of the node:\n%s", tail(n.log, 4000))
		}
	})
	return n
}

func tail(path string, bytes int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-bytes):])
}

func (n *node) start() {
	n.t.Helper()
	path, err := binary()
	if err != nil {
		n.t.Fatal(err)
	}
	ready := filepath.Join(n.dir, "ready.json")
	if err := os.Remove(ready); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
	listen, http := "127.0.0.1:0", "127.0.0.1:0"
	if n.Bootstrap != "" { // a restart comes back at the same place
		listen, http = n.Bootstrap, n.HTTP
	}
	args := append([]string{"dev", "--dir", filepath.Join(n.dir, "data"), "--listen", listen, "--http", http, "--ready-file", ready}, n.args...)
	out, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.t.Fatal(err)
	}
	defer out.Close()
	n.cmd = exec.Command(path, args...)
	n.cmd.Stdout, n.cmd.Stderr = out, out
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	exited := make(chan struct{})
	n.exited = exited
	go func() { _ = n.cmd.Wait(); close(exited) }()
	eventually(n.t, 60*time.Second, "node is ready", func() error {
		select {
		case <-exited:
			return fatalError{fmt.Errorf("varve ended: %s\n%s", n.cmd.ProcessState, tail(n.log, 4000))}
		default:
		}
		b, err := os.ReadFile(ready)
		if err != nil {
			return err
		}
		var at struct{ Kafka, HTTP string }
		if err := json.Unmarshal(b, &at); err != nil {
			return err
		}
		n.Bootstrap, n.HTTP = at.Kafka, at.HTTP
		return nil
	})
}

// Kill is kill -9; it returns when the process is gone.
func (n *node) Kill() {
	_ = n.cmd.Process.Kill()
	<-n.exited
}

// Stop asks the process to end in order and checks that it did.
func (n *node) Stop() {
	n.t.Helper()
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		n.t.Fatal(err)
	}
	select {
	case <-n.exited:
	case <-time.After(60 * time.Second):
		n.t.Fatal("node did not stop within a minute of SIGTERM")
	}
	if code := n.cmd.ProcessState.ExitCode(); code != 0 {
		n.t.Fatalf("node ended with status %d", code)
	}
}

// Restart starts the process again on its data, at the same address.
func (n *node) Restart() { n.start() }

// client is a franz-go client of the node, closed when the test ends.
func (n *node) client(opts ...kgo.Opt) *kgo.Client {
	n.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Bootstrap)}, opts...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(cl.Close)
	return cl
}

func (n *node) createTopic(name string, partitions int32, settings map[string]string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	configs := map[string]*string{}
	for k, v := range settings {
		configs[k] = &v
	}
	if _, err := kadm.NewClient(n.client()).CreateTopic(ctx, partitions, 1, configs, name); err != nil {
		n.t.Fatalf("create topic %s: %v", name, err)
	}
}

// fatalError stops eventually at once.
type fatalError struct{ error }

// eventually waits until check gives no error. It polls because what it waits
// for happens in another process.
func eventually(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		var fatal fatalError
		if errors.As(err, &fatal) || time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		<-tick.C
	}
}
