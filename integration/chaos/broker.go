//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// brokerState is what the nemesis wants of a broker.
type brokerState int8

const (
	down brokerState = iota
	up
	paused
)

// broker is one process of the cluster, with its directory and its place in
// the network.
type broker struct {
	id        int
	namespace string
	dir       string // of the run: log, settings
	data      string // log.dirs
	disk      *disk  // nil: data is a plain directory
	binary    string
	env       []string
	args      []string
	spawn     *spawner

	mu      sync.Mutex // guards the following
	member  bool       // of the cluster
	state   brokerState
	cmd     *exec.Cmd
	exited  chan struct{} // closed when the process is gone
	endings []string      // processes that ended though nobody wanted it
	starts  int
	// broken is a disk that fails every access until it is mounted again.
	broken bool
	// retired is closed when the run has ended: nothing is started any more.
	retired  chan struct{}
	held     bool // what ends is not started again for now
	watching sync.WaitGroup
}

func (b *broker) logPath() string { return filepath.Join(b.dir, "varve.log") }

func (b *broker) readyPath() string { return filepath.Join(b.dir, "ready.json") }

// start starts the process; it does not wait until it serves.
func (b *broker) start() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != down || b.isRetired() {
		return nil
	}
	return b.startLocked()
}

// retire ends the broker's time: what ends from now on is not started again.
func (b *broker) retire() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isRetired() {
		close(b.retired)
	}
}

func (b *broker) isRetired() bool {
	select {
	case <-b.retired:
		return true
	default:
		return false
	}
}

func (b *broker) startLocked() error {
	if err := os.Remove(b.readyPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	out, err := os.OpenFile(b.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	b.starts++
	fmt.Fprintf(out, "--- start %d ---\n", b.starts)
	cmd := exec.Command(b.binary, append([]string{"serve", "--ready-file", b.readyPath()}, b.args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Env = out, out, b.env
	if err := b.spawn.start(cmd, b.namespace); err != nil {
		return fmt.Errorf("start broker %d: %w", b.id, err)
	}
	exited := make(chan struct{})
	b.cmd, b.exited, b.state = cmd, exited, up
	b.watching.Go(func() { b.watch(cmd, exited) })
	return nil
}

// restartDelay is how soon a broker that ended by itself is started again, as
// a service manager would.
const restartDelay = time.Second

// watch waits for the end of a process, and starts the next one when that end
// was not wanted.
func (b *broker) watch(cmd *exec.Cmd, exited chan struct{}) {
	err := cmd.Wait()
	close(exited)
	b.mu.Lock()
	unwanted := b.state != down && b.cmd == cmd
	if unwanted {
		b.state = down
		b.endings = append(b.endings, fmt.Sprintf("broker %d ended by itself (%v): %s", b.id, err, lastLine(b.logPath())))
	}
	b.mu.Unlock()
	if !unwanted {
		return
	}
	select {
	case <-b.retired:
		return
	case <-time.After(restartDelay):
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == down && !b.held && !b.isRetired() {
		_ = b.startLocked() // a start that fails is seen as a cluster that does not heal
	}
}

// hold says whether a process that ends is left alone: its disk is not there.
func (b *broker) hold(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = on
}

// jumpClock moves the process's time of day, until it ends.
func (b *broker) jumpClock(by time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != up {
		return nil
	}
	return jumpClock(b.cmd.Process.Pid, by)
}

// mend gives a broken disk back. The process must not go on with files of the
// time before.
func (b *broker) mend() error {
	if !b.broken {
		return nil
	}
	b.broken = false
	defer b.hold(false)
	return errors.Join(b.kill(), b.disk.unmount(), b.disk.mount())
}

func lastLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text[max(0, len(text)-4000):])), "\n")
	return lines[len(lines)-1]
}

// end sends a signal that ends the process and waits for that.
func (b *broker) end(signal syscall.Signal, limit time.Duration) error {
	b.mu.Lock()
	if b.state == down {
		b.mu.Unlock()
		return nil
	}
	if b.state == paused {
		_ = b.cmd.Process.Signal(syscall.SIGCONT) // only a running process can end in order
	}
	b.state = down
	cmd, exited := b.cmd, b.exited
	b.mu.Unlock()
	if err := cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-exited:
		return nil
	case <-time.After(limit):
		_ = cmd.Process.Kill()
		<-exited
		return fmt.Errorf("broker %d did not end within %v of %v", b.id, limit, signal)
	}
}

func (b *broker) kill() error { return b.end(syscall.SIGKILL, time.Minute) }

func (b *broker) stop() error { return b.end(syscall.SIGTERM, 90*time.Second) }

func (b *broker) pause() error { return b.signal(up, paused, syscall.SIGSTOP) }

func (b *broker) resume() error { return b.signal(paused, up, syscall.SIGCONT) }

func (b *broker) signal(from, to brokerState, s syscall.Signal) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state != from {
		return nil
	}
	b.state = to
	return b.cmd.Process.Signal(s)
}

func (b *broker) isMember() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.member
}

func (b *broker) setMember(is bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.member = is
}

func (b *broker) is() brokerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// powerCycle is the loss of power: the disk forgets what was not synced, the
// process is gone. The disk is mounted again; start does the rest.
func (b *broker) powerCycle() error {
	b.hold(true)
	defer b.hold(false)
	if err := b.disk.cutPower(); err != nil {
		return err
	}
	if err := b.kill(); err != nil {
		return err
	}
	return errors.Join(b.disk.unmount(), b.disk.mount())
}

// wipe loses all data of a broker that is down.
func (b *broker) wipe() error {
	entries, err := os.ReadDir(b.data)
	for _, e := range entries {
		if e.Name() != "lost+found" {
			err = errors.Join(err, os.RemoveAll(filepath.Join(b.data, e.Name())))
		}
	}
	return err
}

// waitReady waits until the process that is up serves.
func (b *broker) waitReady(ctx context.Context) error {
	for {
		if _, err := os.Stat(b.readyPath()); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("broker %d does not serve: %s", b.id, lastLine(b.logPath()))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// unwanted are the ends of processes that nobody had asked for.
func (b *broker) unwanted() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.endings); n > 3 {
		return append(slices.Clone(b.endings[:3]), fmt.Sprintf("broker %d ended by itself %d times more", b.id, n-3))
	}
	return slices.Clone(b.endings)
}

// diskWords are in the panics with which raft ends a process whose disk fails:
// that it ends is what must be.
var diskWords = []string{"input/output error", "no space left on device", "read-only file system"}

// panics are the lines of the log that no broker may ever write. Where its disk
// may fail, that is a reason.
func (b *broker) panics(diskFails bool) []string {
	text, err := os.ReadFile(b.logPath())
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") || strings.Contains(line, "panicked") {
			if diskFails && slices.ContainsFunc(diskWords, func(w string) bool { return strings.Contains(line, w) }) {
				continue
			}
			found = append(found, fmt.Sprintf("broker %d: %s", b.id, strings.TrimSpace(line)))
		}
	}
	return found
}
