// Package nodetest runs the product's real binary for tests: one process a
// node, with its own directory, on ports that the kernel chooses.
package nodetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Binary builds the product, once for each test process, and gives its path.
// The path is the same for all test processes of a source tree, and a build
// replaces it in one step: two trees at work side by side do not start each
// other's nodes again. What was built of trees that are gone is removed.
var Binary = sync.OnceValues(func() (string, error) { return build("varve") })

// NextBinary is Binary of the release after this one, as far as it matters for
// rolling upgrades: it can be at one level more of varve.version.
var NextBinary = sync.OnceValues(func() (string, error) { return build("varve-next", "-tags", "varve_next") })

func build(name string, flags ...string) (string, error) {
	tree, err := touchSources()
	if err != nil {
		return "", err
	}
	dir, err := binaries(tree)
	if err != nil {
		return "", err
	}
	fresh := filepath.Join(dir, fmt.Sprintf("%s.%d", name, os.Getpid()))
	args := append([]string{"build", "-o", fresh}, flags...)
	cmd := exec.Command("go", append(args, "github.com/varvelog/varve/cmd/varve")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build varve: %w\n%s", err, out)
	}
	path := filepath.Join(dir, name)
	if err := os.Rename(fresh, path); err != nil {
		return "", err
	}
	return path, nil
}

// binaries is the directory for what is built of a source tree. The file "tree"
// in it names the tree.
func binaries(tree string) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	all := filepath.Join(cache, "varve-test")
	named, err := filepath.Glob(filepath.Join(all, "*", "tree"))
	if err != nil {
		return "", err
	}
	for _, file := range named {
		other, err := os.ReadFile(file)
		if err != nil {
			continue // somebody else removes it
		}
		if _, err := os.Stat(string(other)); errors.Is(err, fs.ErrNotExist) {
			if err := os.RemoveAll(filepath.Dir(file)); err != nil {
				return "", err
			}
		}
	}
	dir := filepath.Join(all, fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(tree))))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, "tree"), []byte(tree), 0o644)
}

// touchSources looks at every source of the product, and gives the directory
// they are in. Results of tests are cached by what the test process looked at,
// and it does not import what it runs: without this a test would pass from the
// cache after the product changed.
func touchSources() (tree string, err error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	tree = strings.TrimSpace(string(out))
	return tree, filepath.WalkDir(tree, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") && len(e.Name()) > 1 || e.Name() == "testdata" || e.Name() == "integration"):
			return filepath.SkipDir
		case filepath.Ext(path) == ".go" && !strings.HasSuffix(path, "_test.go"), e.Name() == "go.mod":
			_, err = os.Stat(path)
		}
		return err
	})
}

// T is what the harness needs of a test. A testing.TB is one; a program that
// drives nodes outside of tests brings its own.
type T interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Failed() bool
	Cleanup(func())
	TempDir() string
}

var _ T = testing.TB(nil)

// Node is one varve process.
type Node struct {
	t         T
	dir       string
	command   func(kafka, http string) []string // the command line; the addresses are those of an earlier start, or ""
	cmd       *exec.Cmd
	exited    chan struct{} // closed when the process is gone
	log       string
	ID        int32
	Bootstrap string
	HTTP      string
	// Controller is where a cluster's node listens for the quorum.
	Controller string
	// Public is where it listens for clients in plain text, when there is such a listener.
	Public string
}

// Start starts `varve dev` with its data under dir and waits until it
// serves. The process is stopped when the test ends; when the test failed, the
// end of its log is printed.
func Start(t T, dir string, args ...string) *Node {
	t.Helper()
	path, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	n := newNode(t, dir, 1, func(kafka, http string) []string {
		if kafka == "" {
			kafka, http = "127.0.0.1:0", "127.0.0.1:0"
		}
		return append([]string{path, "dev", "--dir", filepath.Join(dir, "data"), "--listen", kafka, "--http", http}, args...)
	})
	n.start()
	n.awaitReady()
	return n
}

func newNode(t T, dir string, id int32, command func(kafka, http string) []string) *Node {
	n := &Node{t: t, dir: dir, ID: id, command: command, log: filepath.Join(dir, "varve.log")}
	t.Cleanup(func() {
		n.Kill()
		if t.Failed() {
			t.Logf("log of node %d:\n%s", id, tail(n.log, 4000))
		}
	})
	return n
}

// At is a node, or any cluster, that runs already: only its address is known.
func At(t T, bootstrap string) *Node { return &Node{t: t, Bootstrap: bootstrap} }

func tail(path string, bytes int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-bytes):])
}

func (n *Node) ready() string { return filepath.Join(n.dir, "ready.json") }

// start starts the process; a restart comes back at the same place.
func (n *Node) start() {
	n.t.Helper()
	if err := os.Remove(n.ready()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.t.Fatal(err)
	}
	out, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		n.t.Fatal(err)
	}
	defer out.Close()
	line := append(n.command(n.Bootstrap, n.HTTP), "--ready-file", n.ready())
	n.cmd = exec.Command(line[0], line[1:]...)
	n.cmd.Stdout, n.cmd.Stderr = out, out
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	cmd, exited := n.cmd, make(chan struct{})
	n.exited = exited
	go func() { _ = cmd.Wait(); close(exited) }()
}

// awaitReady waits until the node serves.
func (n *Node) awaitReady() {
	n.t.Helper()
	Eventually(n.t, 60*time.Second, "node is ready", func() error {
		if !n.Running() {
			return fatalError{fmt.Errorf("varve ended: %s\n%s", n.cmd.ProcessState, tail(n.log, 4000))}
		}
		b, err := os.ReadFile(n.ready())
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

// Running reports whether the process is there, stopped by a signal or not.
func (n *Node) Running() bool {
	if n.exited == nil {
		return false
	}
	select {
	case <-n.exited:
		return false
	default:
		return true
	}
}

// PID is the id of the process that was started last.
func (n *Node) PID() int { return n.cmd.Process.Pid }

// Log is all that the node has printed, over all its starts.
func (n *Node) Log() string { return tail(n.log, 1<<30) }

// Kill is kill -9; it returns when the process is gone.
func (n *Node) Kill() {
	if n.exited == nil {
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.exited
}

// Pause stops the process with SIGSTOP, as a machine that hangs would.
func (n *Node) Pause() { n.signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (n *Node) Resume() { n.signal(syscall.SIGCONT) }

func (n *Node) signal(s syscall.Signal) {
	n.t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		n.t.Fatalf("send %s to node %d: %v", s, n.ID, err)
	}
}

// Stop asks the process to end in order and checks that it did.
func (n *Node) Stop() {
	n.t.Helper()
	n.signal(syscall.SIGTERM)
	select {
	case <-n.exited:
	case <-time.After(90 * time.Second):
		n.t.Fatalf("node %d did not stop within 90 s of SIGTERM", n.ID)
	}
	if code := n.cmd.ProcessState.ExitCode(); code != 0 {
		n.t.Fatalf("node %d ended with status %d", n.ID, code)
	}
}

// Restart starts the process again on its data, at the same address, and
// waits until it serves.
func (n *Node) Restart() {
	n.t.Helper()
	n.start()
	n.awaitReady()
}

// Launch is Restart without the wait.
func (n *Node) Launch() {
	n.t.Helper()
	n.start()
}

// AwaitReady waits until a launched node serves.
func (n *Node) AwaitReady() {
	n.t.Helper()
	n.awaitReady()
}

// Client is a franz-go client of the node, closed when the test ends.
func (n *Node) Client(opts ...kgo.Opt) *kgo.Client {
	n.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.Bootstrap), kgo.AlwaysRetryEOF()}, opts...)...)
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
func Eventually(t T, limit time.Duration, what string, check func() error) {
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

// DataDir is where the node keeps its data.
func (n *Node) DataDir() string { return filepath.Join(n.dir, "data") }
