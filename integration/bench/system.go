package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// system is a broker that a load can be put on.
type system struct {
	name string
	addr string
	http string // Varve's metrics
	pid  int
	stop func() error
	// again is kill -9 and another start on the same data; it gives when that
	// start began. The stub has none.
	again func() (system, time.Time, error)
}

const (
	stubAddr  = "127.0.0.1:19392"
	kafkaAddr = "127.0.0.1:19092"
	startMax  = 2 * time.Minute
)

// process starts a command whose output goes to a file, and gives a function
// that ends it and waits.
func (b *bench) process(name string, env []string, path string, args ...string) (pid int, stop func() error, err error) {
	log, err := os.Create(filepath.Join(b.dir, name+".log"))
	if err != nil {
		return 0, nil, err
	}
	defer log.Close()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	return cmd.Process.Pid, func() error {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			<-done
		}
		return nil
	}, nil
}

func (b *bench) startStub() (system, error) {
	data := filepath.Join(b.dir, "stub")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return system{}, err
	}
	pid, stop, err := b.process("stub", nil, b.limits, "stub", "-listen", stubAddr, "-mode", "store", "-dir", data)
	if err != nil {
		return system{}, err
	}
	err = waitFor(func() error { return grep(filepath.Join(b.dir, "stub.log"), "listen") })
	return system{name: "stub", addr: stubAddr, pid: pid, stop: func() error { return errors.Join(stop(), os.RemoveAll(data)) }}, err
}

// startKafka starts one broker; tiered starts 4.3.1 with its remote tier on
// local files, the last version whose test jar with it is served.
func (b *bench) startKafka(ctx context.Context, tiered bool) (system, error) {
	env := []string{"KAFKA_HOME=" + filepath.Join(os.TempDir(), "kafka-peer")}
	name, variant := "kafka", "plain"
	if tiered {
		env, name, variant = append(env, "TIERED=1"), "kafka-tiered", "tiered"
	}
	script := func(args ...string) (string, error) {
		cmd := exec.CommandContext(ctx, b.kafka, args...)
		cmd.Env = append(os.Environ(), env...)
		text, err := cmd.Output()
		return strings.TrimSpace(string(text)), err
	}
	// Output, not a pipe of its own: the script leaves the broker running.
	start := exec.CommandContext(ctx, b.kafka, "start", "1")
	start.Env = append(os.Environ(), env...)
	if err := start.Run(); err != nil {
		return system{}, fmt.Errorf("start %s (%s): %w", name, variant, err)
	}
	text, err := script("pids")
	if err != nil {
		return system{}, err
	}
	s := system{name: name, addr: kafkaAddr, stop: func() error {
		cmd := exec.Command(b.kafka, "stop")
		cmd.Env = append(os.Environ(), env...)
		return cmd.Run()
	}}
	s.again = func() (system, time.Time, error) {
		if _, err := script("kill9", "1"); err != nil {
			return s, time.Time{}, fmt.Errorf("kill %s: %w", name, err)
		}
		restart := exec.CommandContext(ctx, b.kafka, "restart", "1")
		restart.Env = append(os.Environ(), env...)
		began := time.Now()
		if err := restart.Run(); err != nil {
			return s, began, fmt.Errorf("start %s again: %w", name, err)
		}
		text, err := script("pids")
		if err == nil {
			s.pid, err = strconv.Atoi(text)
		}
		return s, began, err
	}
	s.pid, err = strconv.Atoi(text)
	return s, err
}

// startVarve starts a node whose data is kept under name, with extra
// arguments of `varve dev`.
func (b *bench) startVarve(name string, env []string, args ...string) (system, error) {
	data, ready := filepath.Join(b.dir, name), filepath.Join(b.dir, name+".ready")
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		return system{}, err
	}
	all := append([]string{"dev", "--dir", data, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", ready, "--log-level", "warn"}, args...)
	pid, stop, err := b.process(name, env, b.varve, all...)
	if err != nil {
		return system{}, err
	}
	s := system{name: name, pid: pid, stop: stop}
	s.again = func() (system, time.Time, error) {
		if err := errors.Join(syscall.Kill(pid, syscall.SIGKILL), stop()); err != nil {
			return s, time.Time{}, err
		}
		began := time.Now()
		again, err := b.startVarve(name, env, args...)
		return again, began, err
	}
	err = waitFor(func() error {
		text, err := os.ReadFile(ready)
		if err != nil {
			return err
		}
		var at struct{ Kafka, HTTP string }
		if err := json.Unmarshal(text, &at); err != nil {
			return err
		}
		s.addr, s.http = at.Kafka, at.HTTP
		return nil
	})
	if err != nil {
		err = fmt.Errorf("start %s: %w (its log is %s)", name, err, filepath.Join(b.dir, name+".log"))
	}
	return s, err
}

func waitFor(check func() error) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(startMax)
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-limit:
			return err
		case <-tick.C:
		}
	}
}

func grep(path, text string) error {
	b, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(b), text) {
		err = fmt.Errorf("%s does not say %q yet", path, text)
	}
	return err
}

// run puts one load on a system and gives its figures. A void run (a lost
// record, an error, an offset out of order) is an error.
func (b *bench) run(ctx context.Context, s system, args ...string) (figures, error) {
	args = append(args, "-brokers", s.addr, "-pids", strconv.Itoa(s.pid))
	cmd := exec.CommandContext(ctx, b.load, args...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("load %s on %s: %w", strings.Join(args, " "), s.name, err)
	}
	return parseFigures(text)
}

// parseFigures keeps the numbers of a JSON object.
func parseFigures(text []byte) (figures, error) {
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, fmt.Errorf("%w: %s", err, text)
	}
	f := figures{}
	for name, v := range all {
		if n, ok := v.(float64); ok {
			f[name] = n
		}
	}
	return f, nil
}

// touch writes and deletes a file, so that the machine's memory has been used
// before: the first touch costs more than the work measured.
func (b *bench) touch(ctx context.Context, size string) error {
	return exec.CommandContext(ctx, b.limits, "touch", "-dir", b.dir, "-bytes", size).Run()
}

// dial makes a client of the brokers at an address; nothing is sent yet.
func dial(addr string, opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(strings.Split(addr, ",")...)}, opts...)...)
}

// createTopic creates a topic with settings.
func createTopic(ctx context.Context, addr, name string, partitions, replicas int, settings map[string]string) error {
	cl, err := dial(addr)
	if err != nil {
		return err
	}
	defer cl.Close()
	configs := map[string]*string{}
	for k, v := range settings {
		configs[k] = &v
	}
	_, err = kadm.NewClient(cl).CreateTopic(ctx, int32(partitions), int16(replicas), configs, name)
	return err
}

// cpuOf is the CPU time that a process has used.
func cpuOf(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// Fields 14 and 15 in ticks of a hundredth of a second; the second field is a name in brackets.
	rest := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var sum time.Duration
	for _, ticks := range rest[11:13] {
		n, err := strconv.Atoi(ticks)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * 10 * time.Millisecond
	}
	return sum, nil
}

// clear deletes what a stopped system has kept; Kafka's script does that itself.
func (b *bench) clear(s system) error { return os.RemoveAll(filepath.Join(b.dir, s.name)) }
