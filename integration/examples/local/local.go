// Package local is what the examples share and a copy of one leaves out: the
// flag that names brokers, and a broker of their own when there is none.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// startMax bounds how long the broker may take to serve.
const startMax = 60 * time.Second

// Step is a part of an example: it works until ctx ends.
type Step func(ctx context.Context, seeds []string) error

// Main is an example's main. With -brokers HOST:PORT,… it runs the work alone,
// as a service would, again and again should it fail; without, it starts `varve dev` in a temporary directory
// and runs the work beside a demonstration that gives it something to do. It
// ends with Ctrl-C.
func Main(work, demonstrate Step) {
	brokers := flag.String("brokers", "", "brokers to work with, HOST:PORT,… (default: a broker of its own, and something to do)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, *brokers, work, demonstrate)
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, brokers string, work, demonstrate Step) (err error) {
	if brokers != "" {
		return supervise(ctx, strings.Split(brokers, ","), work)
	}
	seed, stop, err := startBroker(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	worked := make(chan error, 1)
	go func() { worked <- work(ctx, []string{seed}) }() // ends with ctx
	err = demonstrate(ctx, []string{seed})
	if err == nil {
		fmt.Println("Ctrl-C ends it.")
		select {
		case <-ctx.Done():
		case err = <-worked:
			return err
		}
	}
	cancel()
	return errors.Join(err, <-worked)
}

// restartPause is between a failure of the work and its next start.
const restartPause = 200 * time.Millisecond

// supervise starts the work again whenever it fails, as what runs a service
// does.
func supervise(ctx context.Context, seeds []string, work Step) error {
	for {
		err := work(ctx, seeds)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		slog.Warn("the work failed and is started again", "err", err)
		select {
		case <-time.After(restartPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// startBroker runs `varve dev` on a directory that stop deletes.
func startBroker(ctx context.Context) (seed string, stop func() error, err error) {
	fmt.Println("starting a broker; the first time it is built")
	path, err := nodetest.Binary()
	if err != nil {
		return "", nil, err
	}
	dir, err := os.MkdirTemp("", "varve-example-")
	if err != nil {
		return "", nil, err
	}
	ready := filepath.Join(dir, "ready.json")
	cmd := exec.Command(path, "dev", "--dir", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--http", "", "--log-level", "warn", "--ready-file", ready)
	cmd.Stderr = os.Stderr
	// A group of its own: Ctrl-C reaches the example, which ends its broker last.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop = func() error {
		err := cmd.Process.Signal(syscall.SIGTERM)
		return errors.Join(err, cmd.Wait(), os.RemoveAll(dir))
	}
	ctx, cancel := context.WithTimeout(ctx, startMax)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var at struct{ Kafka string }
	for {
		if text, err := os.ReadFile(ready); err == nil && json.Unmarshal(text, &at) == nil {
			fmt.Println("the broker serves at", at.Kafka)
			return at.Kafka, stop, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", nil, errors.Join(fmt.Errorf("the broker does not serve: %w", ctx.Err()), stop())
		}
	}
}

// EnsureTopics creates the topics that are not there yet.
func EnsureTopics(ctx context.Context, seeds []string, partitions int32, settings map[string]string, names ...string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return err
	}
	defer cl.Close()
	configs := map[string]*string{}
	for name, value := range settings {
		configs[name] = &value
	}
	created, err := kadm.NewClient(cl).CreateTopics(ctx, partitions, -1, configs, names...)
	if err != nil {
		return err
	}
	for _, t := range created.Sorted() {
		if t.Err != nil && !errors.Is(t.Err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create topic %s: %w", t.Topic, t.Err)
		}
	}
	return nil
}
