// Command bench measures Varve beside Apache Kafka 4.4.0 and the limits of the
// machine, in alternating rounds, and writes the ratios as a table.
//
//	go run ./integration/bench -tools ../shared/bench -rounds 5 -out bench.jsonl
//
// The tools are the load generator (load), the stub broker and other limits
// (limits) and the script that fetches and runs Kafka through Maven (kafka);
// their folder is -tools. Needs Go, a JDK, Maven and, for the cold runs,
// versitygw, which it builds. Ports 19092 to 19113, 19392 and 19401 to 19423 must be
// free.
//
// Figures of one machine at one time mean little: every figure is the median of
// per-round ratios, with the least and greatest. Each run of each round is a
// line of -out, so that a table can be made again (-report).
//
// Parts (-parts): warm (produce, consume, paced, many connections), cold
// (replay and seek through S3 with 30 ms a request), scale (memory and restart),
// and of three brokers: cluster (bulk and paced writes with three replicas),
// failover (kill -9 of a leader), idle (what 3,000 idle partitions cost, and the
// restart of all brokers), replica (what an empty replica of a tiered partition
// copies). Of the coordinators: groups (100 members and one more, commits, 100,000
// groups, and on three brokers the death of a coordinator) and transactions
// (transactions a second, 100,000 transactional ids).
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

var (
	tools  = flag.String("tools", "../shared/bench", "folder of load, limits and kafka")
	rounds = flag.Int("rounds", 5, "rounds that count; one more warms up")
	out    = flag.String("out", "bench.jsonl", "every run, one JSON line each; runs are added to what is there")
	report = flag.Bool("report", false, "only print the table of -out")
	parts  = flag.String("parts", "warm,cold,scale", "what to measure")
	only   = flag.String("systems", "", "groups, transactions, failover, idle: only systems whose names begin with one of these, comma separated")
	dir    = flag.String("dir", "", "where data is put; its disk is what is measured (default: a temporary directory)")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// bench is one session of measuring.
type bench struct {
	dir      string // data and binaries
	tools    string // absolute
	varve    string // binaries
	load     string
	limits   string
	kafka    string // kafka.sh
	out      *os.File
	stoppers []func() error
}

func run(ctx context.Context) (err error) {
	if *report {
		return printReport(os.Stdout, *out)
	}
	b := &bench{dir: *dir}
	if b.dir == "" {
		if b.dir, err = os.MkdirTemp("", "varve-bench-"); err != nil {
			return err
		}
		defer os.RemoveAll(b.dir)
	}
	defer func() { err = errors.Join(err, b.stopAll()) }()
	if err := b.prepare(ctx); err != nil {
		return err
	}
	defer b.out.Close()
	for part := range strings.SplitSeq(*parts, ",") {
		steps := map[string]func(context.Context) error{
			"warm": b.warm, "cold": b.cold, "scale": b.scale,
			"cluster": b.cluster, "failover": b.failover, "idle": b.idle, "replica": b.replica,
			"groups": b.groups, "transactions": b.transactions,
		}
		step := steps[part]
		if step == nil {
			return fmt.Errorf("there is no part %q", part)
		}
		if err := step(ctx); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return printReport(os.Stdout, *out)
}

// prepare builds what is measured and what measures.
func (b *bench) prepare(ctx context.Context) (err error) {
	if b.tools, err = filepath.Abs(*tools); err != nil {
		return err
	}
	b.kafka = filepath.Join(b.tools, "kafka", "kafka.sh")
	b.varve, b.load, b.limits = filepath.Join(b.dir, "varve"), filepath.Join(b.dir, "load"), filepath.Join(b.dir, "limits")
	for _, build := range []struct{ in, out, pkg string }{
		{".", b.varve, "./cmd/varve"},
		{filepath.Join(b.tools, "load"), b.load, "."},
		{filepath.Join(b.tools, "limits"), b.limits, "."},
	} {
		cmd := exec.CommandContext(ctx, "go", "build", "-o", build.out, build.pkg)
		cmd.Dir = build.in
		if text, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", build.out, err, text)
		}
	}
	b.out, err = os.OpenFile(*out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return err
}

// figures are one run's numbers by name.
type figures map[string]float64

// measured is one line of -out.
type measured struct {
	Part    string  `json:"part"`
	Run     string  `json:"run"`
	System  string  `json:"system"`
	Round   int     `json:"round"` // 0 warms up
	Figures figures `json:"figures"`
}

func (b *bench) note(m measured) error {
	fmt.Fprintf(os.Stderr, "%s %s, %s, round %d: %v\n", m.Part, m.Run, m.System, m.Round, m.Figures)
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = b.out.Write(append(line, '\n'))
	return err
}

func (b *bench) onStop(f func() error) { b.stoppers = append(b.stoppers, f) }

func (b *bench) stopAll() error {
	var errs []error
	for i := len(b.stoppers) - 1; i >= 0; i-- {
		errs = append(errs, b.stoppers[i]())
	}
	b.stoppers = nil
	return errors.Join(errs...)
}
