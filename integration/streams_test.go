package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/integration/nodetest"
)

// wordCount is a running application of Kafka Streams (clients/java/WordCount.java).
type wordCount struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // closed when it has

	mu     sync.Mutex // guards the following
	state  string
	output strings.Builder
}

// startWordCount starts the application under a group protocol, counting from topic in to topic out.
func startWordCount(t *testing.T, bootstrap, application, protocol, in, out string) *wordCount {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "log4j2.xml"), []byte(toolsLogging), 0o644); err != nil {
		t.Fatal(err)
	}
	w := &wordCount{t: t}
	w.cmd = exec.Command("java", javaFlags("-Dlog4j2.configurationFile="+filepath.Join(dir, "log4j2.xml"),
		"WordCount", bootstrap, application, protocol, filepath.Join(dir, "state"), in, out)...)
	var err error
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	pipe, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.cmd.Stderr = w.cmd.Stdout
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			w.mu.Lock()
			if text := lines.Text(); text == strings.ToUpper(text) && !strings.Contains(text, " ") {
				w.state = text
			} else if w.output.Len() < 1<<20 {
				w.output.WriteString(text + "\n")
			}
			w.mu.Unlock()
		}
	}()
	w.ended = read
	t.Cleanup(func() {
		w.end()
		if t.Failed() {
			t.Logf("the application, %s at last:\n%s", w.state, w.output.String())
		}
	})
	return w
}

// end ends the application, after half a minute by force.
func (w *wordCount) end() {
	w.stdin.Close()
	timer := time.AfterFunc(30*time.Second, func() { w.cmd.Process.Kill() })
	defer timer.Stop()
	<-w.ended
	w.cmd.Wait() // its status says nothing: it may have been killed
}

func (w *wordCount) running() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != "RUNNING" {
		return fmt.Errorf("the application is %s", w.state)
	}
	return nil
}

// talk produces lines of words until it is told to stop, and knows how often each word has been acknowledged.
type talk struct {
	stop func()
	done chan struct{}

	mu    sync.Mutex // guards the following
	words map[string]int
	err   error
}

func startTalk(t *testing.T, c *nodetest.Cluster, topic string) *talk {
	cl := c.Client(kgo.DefaultProduceTopic(topic), kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProducerLinger(0), kgo.RecordDeliveryTimeout(time.Minute))
	k := &talk{done: make(chan struct{}), words: map[string]int{}}
	var ctx context.Context
	ctx, k.stop = context.WithCancel(context.Background())
	go func() {
		defer close(k.done)
		for i := 0; ctx.Err() == nil; i++ {
			line := fmt.Sprintf("w%d w%d w%d", i%7, i%13, i%3)
			err := cl.ProduceSync(context.Background(), &kgo.Record{Key: []byte(strconv.Itoa(i)), Value: []byte(line)}).FirstErr()
			k.mu.Lock()
			for _, word := range strings.Fields(line) {
				k.words[word]++
			}
			k.err = err
			k.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { k.stop(); <-k.done })
	return k
}

// end stops it and tells how often each word was said.
func (k *talk) end(t *testing.T) map[string]int {
	t.Helper()
	k.stop()
	<-k.done
	if k.err != nil {
		t.Fatalf("a line was not acknowledged: %v", k.err)
	}
	return k.words
}

// counts reads what the application has committed: every word's counts must be 1, 2, 3 and so on, none twice and none left out.
type counts struct {
	cl   *kgo.Client
	last map[string]int
	all  int
}

func startCounts(c *nodetest.Cluster, topic string) *counts {
	return &counts{last: map[string]int{}, cl: c.Client(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()))}
}

func (o *counts) poll(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	o.cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
		n, err := strconv.Atoi(string(r.Value))
		if err != nil || n != o.last[string(r.Key)]+1 {
			t.Fatalf("%s counts %q after %d (partition %d, offset %d)", r.Key, r.Value, o.last[string(r.Key)], r.Partition, r.Offset)
		}
		o.last[string(r.Key)] = n
		o.all++
	})
}

// progress waits until n further counts are there.
func (o *counts) progress(t *testing.T, n int) {
	t.Helper()
	from := o.all
	nodetest.Eventually(t, 2*time.Minute, "words are counted", func() error {
		if o.poll(t); o.all < from+n {
			return fmt.Errorf("%d of %d", o.all-from, n)
		}
		return nil
	})
}

// TestStreamsClientsCountExactlyOnceWhileBrokersAreKilled runs a word count of Kafka Streams, exactly once, under both protocols.
// The leader of a partition that it reads, and then the coordinator of its group, are killed; the counts must be exact.
func TestStreamsClientsCountExactlyOnceWhileBrokersAreKilled(t *testing.T) {
	needsJVM(t)
	for _, protocol := range []string{"streams", "classic"} {
		t.Run(protocol, func(t *testing.T) {
			const groupTopic, partitions = "__consumer_offsets", 4
			c := nodetest.StartCluster(t, nodetest.ClusterOptions{Nodes: 3, Settings: map[string]string{
				"group.initial.rebalance.delay.ms": "0", "group.streams.initial.rebalance.delay.ms": "0",
				"group.streams.min.heartbeat.interval.ms": "500", "group.streams.heartbeat.interval.ms": "500",
				"offsets.topic.num.partitions": strconv.Itoa(partitions), "transaction.state.log.num.partitions": "4",
			}})
			c.CreateTopic("lines", 3, 3, replicated)
			c.CreateTopic("words", 2, 3, replicated)
			k := startTalk(t, c, "lines")
			app := startWordCount(t, c.Bootstrap(), "count", protocol, "lines", "words")
			out := startCounts(c, "words")
			out.progress(t, 300)
			for _, victim := range []func() int32{
				func() int32 { return c.Leader("lines", 0) },
				func() int32 { return c.Leader(groupTopic, coordinator.Partition("count", partitions)) },
			} {
				n := c.Node(victim())
				n.Kill()
				out.progress(t, 300)
				n.Restart()
				c.WaitInSync(time.Minute, "lines", "words", groupTopic)
			}
			nodetest.Eventually(t, time.Minute, "the application runs", app.running)
			want := k.end(t)
			nodetest.Eventually(t, 2*time.Minute, "every word is counted", func() error {
				out.poll(t)
				for word, n := range want {
					if out.last[word] != n {
						return fmt.Errorf("%s is counted %d of %d times", word, out.last[word], n)
					}
				}
				return nil
			})
			t.Logf("%d words counted", out.all)
			if protocol == "streams" {
				streamsTools(t, c, app)
			}
		})
	}
}

// streamsTools has Kafka's own kafka-streams-groups look at the application's group, and take it back once it has ended.
func streamsTools(t *testing.T, c *nodetest.Cluster, app *wordCount) {
	k := startKafkaTools(t, nodetest.At(t, c.Bootstrap()))
	tool := func(args ...string) string { return k.run("streams.StreamsGroupCommand", args...) }
	k.matches(tool("--list", "--state"), `(?m)^count\s+Stable`)
	k.matches(tool("--describe", "--group", "count", "--state"), `count\s+\S+ \(\d\)\s+sticky\s+Stable\s+2`)
	members := tool("--describe", "--group", "count", "--members")
	k.matches(members, `ACTIVE:\s*(0:\[[012, ]+\]|1:\[[012, ]+\])`)
	k.matches(tool("--describe", "--group", "count", "--offsets"), `count\s+lines\s+0\s+0\n`)
	app.end()
	nodetest.Eventually(t, time.Minute, "the group is empty", func() error {
		if out := tool("--describe", "--group", "count", "--state"); !strings.Contains(out, "Empty") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	k.matches(tool("--reset-offsets", "--group", "count", "--input-topic", "lines", "--to-earliest", "--execute"), `count\s+lines\s+\d\s+0`)
	if offsets, err := c.Admin().FetchOffsets(context.Background(), "count"); err != nil || offsets["lines"][0].At != 0 {
		t.Errorf("after the reset offsets are %v (%v)", offsets["lines"], err)
	}
	k.wants(tool("--delete", "--group", "count"), "was successful")
	if out := tool("--list"); strings.Contains(out, "count") {
		t.Errorf("after its deletion the group is listed:\n%s", out)
	}
}
