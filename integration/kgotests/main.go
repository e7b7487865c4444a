// Command kgotests runs franz-go's own integration tests, those of its package
// kgo, against three Varve nodes:
//
//	go run ./integration/kgotests              # all of it, 500,000 records a chain
//	go run ./integration/kgotests -short       # what the gate runs
//	go run ./integration/kgotests -run 'TestTxnEtl' -records 20000 -v
//	go run ./integration/kgotests -seeds 127.0.0.1:9092 -rf 1   # another cluster, such as Apache Kafka's
//
// The tests come as a Go module of a pinned version, built in a temporary
// directory; nothing of them is kept here. They pass when every test passes,
// when none was left out but those that are named in skips, and when none gave
// up its checks. A table of the tests ends the output, with what was left out,
// and why.
//
// The tests' own limits on a stuck group or transaction are not changed by the
// number of records. The limit on the whole (-timeout) is there for what would
// never end, and grows with the records, so that a slow machine can do them all:
// twenty minutes, and six for each 100,000.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/varvelog/varve/integration/nodetest"
)

// version is the newest release of franz-go that the module proxy serves.
const version = "v1.22.3"

const suite = "github.com/twmb/franz-go/pkg/kgo"

// options are the flags.
type options struct {
	seeds   string
	rf      int
	records int
	run     string
	skip    string
	short   bool
	timeout time.Duration
	verbose bool
	keep    bool
}

// shortRecords is what a chain of groups carries in the gate. No chain can be
// left out: its test would wait for ever for the place of the one that is not run.
const shortRecords = 2000

func main() {
	var o options
	flag.StringVar(&o.seeds, "seeds", "", "addresses of a running cluster (default: three nodes of this tree)")
	flag.IntVar(&o.rf, "rf", 3, "replication factor of the topics")
	flag.IntVar(&o.records, "records", 500_000, "records that each chain of groups carries")
	flag.StringVar(&o.run, "run", "", "which tests, as of go test")
	flag.StringVar(&o.skip, "skip", "", "which tests not, as of go test")
	flag.BoolVar(&o.short, "short", false, "few records, as in the gate")
	flag.DurationVar(&o.timeout, "timeout", 0, "for all tests together (default: by the number of records)")
	flag.BoolVar(&o.verbose, "v", false, "print what the tests and their clients log")
	flag.BoolVar(&o.keep, "keep", false, "keep the directory with logs and data also when all passed")
	flag.Parse()
	if o.short {
		o.records = min(o.records, shortRecords)
	}
	if o.timeout == 0 {
		o.timeout = 20*time.Minute + time.Duration(o.records)*6*time.Minute/100_000
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := o.do(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "kgotests:", err)
		stop()
		os.Exit(1)
	}
}

func (o *options) do(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "varve-kgotests-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil && !o.keep {
			err = os.RemoveAll(dir)
			return
		}
		fmt.Println("kgotests: everything of this run is in", dir)
	}()
	program, source, err := build(ctx, dir)
	if err != nil {
		return err
	}
	seeds := o.seeds
	if seeds == "" {
		h := &harness{dir: filepath.Join(dir, "cluster")}
		defer h.end()
		if seeds, err = h.cluster(); err != nil {
			return err
		}
	}
	r, err := o.test(ctx, dir, program, source, seeds)
	for tries := 1; err == nil && tries < 3 && len(r.again()) > 0; tries++ {
		one := *o
		one.run, one.skip = "^("+strings.Join(r.again(), "|")+")$", ""
		fmt.Println("kgotests: once more:", one.run)
		var next *results
		if next, err = one.test(ctx, dir, program, source, seeds); err == nil {
			r.retried(next)
		}
	}
	if err != nil {
		return err
	}
	return r.verdict(os.Stdout)
}

// build makes a module that needs the pinned franz-go and builds its tests. It
// gives the program and the folder of its source, where the tests look for it.
func build(ctx context.Context, dir string) (program, source string, err error) {
	module := filepath.Join(dir, "module")
	if err := os.Mkdir(module, 0o755); err != nil {
		return "", "", err
	}
	program = filepath.Join(dir, "kgo.test")
	for _, line := range [][]string{
		{"mod", "init", "kgotests"},
		{"get", suite + "@" + version},
		{"test", "-c", "-o", program, suite},
		{"list", "-f", "{{.Dir}}", suite},
	} {
		cmd := exec.CommandContext(ctx, "go", line...)
		cmd.Dir = module
		cmd.Env = append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return "", "", fmt.Errorf("go %s: %w\n%s", strings.Join(line, " "), err, out)
		}
		source = strings.TrimSpace(string(out))
	}
	return program, source, nil
}

// test runs the tests. Their switches are read from the environment; protocol
// 848, share groups and static members are on where the brokers' ApiVersions
// has them.
func (o *options) test(ctx context.Context, dir, program, source, seeds string) (*results, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.v=test2json", "-test.timeout", o.timeout.String(),
		"-test.run", o.run, "-test.skip", o.skip, "-test.count", "1")
	cmd.Dir = source
	cmd.Env = append(os.Environ(),
		"KGO_SEEDS="+seeds, "KGO_TEST_RF="+strconv.Itoa(o.rf), "KGO_TEST_RECORDS="+strconv.Itoa(o.records),
		"KGO_TEST_UNSAFE=1", // transactions that begin before the last one's end is answered
	)
	raw, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout // where the clients log
	events := exec.CommandContext(ctx, "go", "tool", "test2json", "-t")
	events.Stdin = raw
	out, err := events.StdoutPipe()
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := errors.Join(events.Start(), cmd.Start()); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "tests.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	r, err := read(out, log, o.verbose)
	if err := errors.Join(err, events.Wait()); err != nil {
		return nil, err
	}
	r.status = cmd.Wait()
	r.took = time.Since(began)
	return r, nil
}

// harness is a nodetest.T outside of a test.
type harness struct {
	dir      string
	cleanups []func()
	failed   bool
}

// fatal ends what the harness was asked to do.
type fatal struct{ text string }

func (h *harness) Helper()                    {}
func (h *harness) Logf(f string, args ...any) { fmt.Printf(f+"\n", args...) }
func (h *harness) Failed() bool               { return h.failed }
func (h *harness) Cleanup(f func())           { h.cleanups = append(h.cleanups, f) }
func (h *harness) TempDir() string            { return h.dir }
func (h *harness) Fatal(args ...any)          { panic(fatal{fmt.Sprint(args...)}) }
func (h *harness) Fatalf(f string, args ...any) {
	panic(fatal{fmt.Sprintf(f, args...)})
}

// cluster starts three nodes and gives their addresses.
func (h *harness) cluster() (bootstrap string, err error) {
	defer func() {
		if f, ok := recover().(fatal); ok {
			h.failed, err = true, errors.New(f.text)
		}
	}()
	c := nodetest.StartCluster(h, nodetest.ClusterOptions{Dir: h.dir, Settings: map[string]string{
		// The chain of share groups releases, leaves and dies so often that a
		// record may come more often than the default of 5 times.
		"group.share.delivery.count.limit": "10",
	}})
	return c.Bootstrap(), nil
}

func (h *harness) end() {
	for _, f := range h.cleanups {
		f()
	}
}
