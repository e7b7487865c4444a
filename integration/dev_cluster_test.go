package integration

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// printed is what a process prints, to be looked at while it runs.
type printed struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (p *printed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

func (p *printed) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}

// `varve dev --nodes 3` is a cluster with an S3 server: what is tiered gets
// into its bucket, a node that is killed comes back, and SIGINT ends all of it.
func TestALocalClusterRunsByOneCommand(t *testing.T) {
	path, err := nodetest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	var out printed
	cmd := exec.Command(path, "dev", "--nodes", "3", "--dir", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--s3", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-ended:
		case <-time.After(90 * time.Second):
			t.Error("it does not end")
		}
		if t.Failed() {
			t.Logf("it printed:\n%s", out.String())
		}
	})
	says := func(limit time.Duration, pattern string) []string {
		t.Helper()
		re := regexp.MustCompile(pattern)
		nodetest.Eventually(t, limit, "it says "+pattern, func() error {
			if !re.MatchString(out.String()) {
				return fmt.Errorf("not yet")
			}
			return nil
		})
		return re.FindStringSubmatch(out.String())
	}
	boot := says(90*time.Second, `VARVE_BOOTSTRAP=(\S+)`)[1]
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(boot, ",")...), kgo.DefaultProduceTopic("events"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	value := func(s string) *string { return &s }
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, -1, map[string]*string{
		"remote.storage.enable": value("true"), "varve.remote.max.lag.ms": value("500")}, "events"); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if err := cl.ProduceSync(ctx, kgo.StringRecord(strconv.Itoa(i))).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	nodetest.Eventually(t, time.Minute, "the records are in the bucket", func() error {
		end, _, err := nodetest.OffsetAt(ctx, cl, "events", 0, nodetest.LastTiered)
		if err == nil && end < 99 {
			err = fmt.Errorf("up to %d", end)
		}
		return err
	})
	pid, err := strconv.Atoi(says(time.Second, `kill -9 (\d+)`)[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, kgo.StringRecord("on")).FirstErr(); err != nil {
		t.Errorf("after node 2 was killed: %v", err)
	}
	says(30*time.Second, `node 2 is gone \(signal: killed\)`)
	says(time.Minute, `(?s)node 2 is gone.*node 2 \| .*msg="node serves"`)

	began := time.Now()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err = <-ended
	ended <- err
	if err != nil {
		t.Errorf("it ended: %v", err)
	}
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("stopping took %v", took)
	}
	if n := strings.Count(out.String(), "msg=stopped"); n != 3 {
		t.Errorf("%d nodes stopped in order", n)
	}
}
