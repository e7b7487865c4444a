// Package exampletest runs an example against a real broker and kills it: the
// test's own binary, run again as the example's program.
package exampletest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// programVariable tells a test's binary to be the example's program.
const programVariable = "VARVE_EXAMPLE_PROGRAM"

// Main is an example's TestMain: the test, or, in a child process, the program.
func Main(m *testing.M, program func()) {
	if os.Getenv(programVariable) != "" {
		program()
		return
	}
	os.Exit(m.Run())
}

// waitMax bounds every wait of an example's test, on a busy machine.
const waitMax = time.Minute

// Eventually waits until check gives no error.
func Eventually(t *testing.T, what string, check func() error) {
	t.Helper()
	nodetest.Eventually(t, waitMax, what, check)
}

// Worker is an example's program in a process of its own.
type Worker struct {
	t      *testing.T
	args   []string
	cmd    *exec.Cmd
	exited chan struct{}

	mu    sync.Mutex // guards lines
	lines []string   // that all of its processes have printed
}

// Start runs the program with -brokers and further arguments, in the test's
// environment. It is killed when the test ends.
func Start(t *testing.T, n *nodetest.Node, args ...string) *Worker {
	t.Helper()
	w := &Worker{t: t, args: append([]string{"-brokers", n.Bootstrap}, args...)}
	w.launch()
	t.Cleanup(w.Kill)
	return w
}

func (w *Worker) launch() {
	w.t.Helper()
	w.cmd = exec.Command(os.Args[0], w.args...)
	w.cmd.Env = append(os.Environ(), programVariable+"=1")
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	cmd, exited := w.cmd, make(chan struct{})
	w.exited = exited
	go func() { // ends with the process
		defer close(exited)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			w.mu.Lock()
			w.lines = append(w.lines, lines.Text())
			w.mu.Unlock()
		}
		_ = cmd.Wait()
	}()
}

// Kill is kill -9; it returns when the process is gone.
func (w *Worker) Kill() {
	_ = w.cmd.Process.Kill()
	<-w.exited
}

// Restart starts the program again after it ended.
func (w *Worker) Restart() {
	w.t.Helper()
	<-w.exited
	w.launch()
}

// Exited waits until the program has ended by itself.
func (w *Worker) Exited() {
	w.t.Helper()
	select {
	case <-w.exited:
	case <-time.After(waitMax):
		w.t.Fatal("the program has not ended")
	}
}

// Lines are what the program has printed that begins with prefix, without it.
func (w *Worker) Lines(prefix string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []string
	for _, l := range w.lines {
		if rest, ok := strings.CutPrefix(l, prefix); ok {
			list = append(list, rest)
		}
	}
	return list
}

// Produce writes records and waits until they are acknowledged.
func Produce(t *testing.T, n *nodetest.Node, records ...*kgo.Record) {
	t.Helper()
	cl := n.Client(kgo.ProducerLinger(0), kgo.ProducerBatchMaxBytes(8<<10))
	defer cl.Close()
	if err := cl.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// Committed reads what a topic holds for a reader with read_committed, up to
// where it ends now.
func Committed(t *testing.T, n *nodetest.Node, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitMax)
	defer cancel()
	// Markers are kept so that the last of them shows that the end is reached.
	cl := n.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	defer cl.Close()
	listed, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	left := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	var records []*kgo.Record
	for len(left) > 0 {
		f := cl.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if !r.Attrs.IsControl() {
				records = append(records, r)
			}
		})
	}
	return records
}
