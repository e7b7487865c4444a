// Package nodetest runs the product's real binary for tests: one process a
// node, with its own directory, on ports that the kernel chooses.
package nodetest

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

// Binary builds the product, once for each test process, and gives its path.
// The path is the same for all test processes of a user, so that a machine
// never fills with copies; a build replaces it in one step.
var Binary = sync.OnceValues(func() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "varve-test")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	fresh := filepath.Join(dir, fmt.Sprintf("varve.%d", os.Getpid()))
	cmd := exec.Command("go", "build", "-o", fresh, "github.com/varvelog/varve/cmd/varve")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build varve: %w\n%s", err, out)
	}
	path := filepath.Join(dir, "varve")
	if err := os.Rename(fresh, path); err != nil {
		return "", err
	}
	return path, nil
})

// Node is one running varve process.
type Node struct {
	t         testing.TB
	dir       string
	args      []string
	cmd       *exec.Cmd
	exited    chan struct{} // closed when the process is gone
	log       string
	Bootstrap string
	HTTP      string
}

// Start starts `varve dev` with its data under dir and waits until it
// serves. The process is stopped when the test ends; when the test failed, the
// end of its log is printed.
func Start(t testing.TB, dir string, args ...string) *Node {
	t.Helper()
	n := &Node{t: t, dir: dir, args: args, log: filepath.Join(dir, "varve.log")}
	n.start()
	t.Cleanup(func() {
		n.Kill()
		if t.Failed() {
			t.Logf("log of the node:\n%s", tail(n.log, 4000))
		}
	})
	return n
}

// At is a node, or any cluster, that runs already: only its address is known.
func At(t testing.TB, bootstrap string) *Node { return &Node{t: t, Bootstrap: bootstrap} }

func tail(path string, bytes int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-bytes):])
}

func (n *Node) start() {
	n.t.Helper()
	path, err := Binary()
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
	Eventually(n.t, 60*time.Second, "node is ready", func() error {
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
func (n *Node) Kill() {
	_ = n.cmd.Process.Kill()
	<-n.exited
}

// Stop asks the process to end in order and checks that it did.
func (n *Node) Stop() {
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
func (n *Node) Restart() { n.start() }

// Client is a franz-go client of the node, closed when the test ends.
func (n *Node) Client(opts ...kgo.Opt) *kgo.Client {
	n.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Bootstrap)}, opts...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(cl.Close)
	return cl
}

// CreateTopic creates a topic with one replica and the given settings.
func (n *Node) CreateTopic(name string, partitions int32, settings map[string]string) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	configs := map[string]*string{}
	for k, v := range settings {
		configs[k] = &v
	}
	if _, err := kadm.NewClient(n.Client()).CreateTopic(ctx, partitions, 1, configs, name); err != nil {
		n.t.Fatalf("create topic %s: %v", name, err)
	}
}

// fatalError stops Eventually at once.
type fatalError struct{ error }

// Eventually waits until check gives no error. It polls because what it waits
// for happens in another process.
func Eventually(t testing.TB, limit time.Duration, what string, check func() error) {
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
