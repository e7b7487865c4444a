package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// produceTo runs `varve produce` with what is read from in, and gives what it
// said and its error.
func produceTo(ctx context.Context, n *node, topic, in string, said *logText) error {
	cmd := rootCommand()
	cmd.SetArgs([]string{"produce", topic, "--bootstrap", n.Kafka})
	cmd.SetIn(strings.NewReader(in))
	cmd.SetOut(said)
	cmd.SetErr(said)
	return cmd.ExecuteContext(ctx)
}

func startWith(t *testing.T, changes ...string) *node {
	t.Helper()
	s := devSettings(t.TempDir(), "127.0.0.1:0", "", "")
	if err := s.addPairs(changes); err != nil {
		t.Fatal(err)
	}
	n, err := startNode(context.Background(), s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close(context.Background()) })
	return n
}

// startFrom starts a node from settings, and wants it to stop cleanly.
func startFrom(t *testing.T, s settings) *node {
	t.Helper()
	n, err := startNode(t.Context(), s, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.Background()); err != nil {
			t.Errorf("close the node: %v", err)
		}
	})
	return n
}

func createTopic(t *testing.T, n *node, args ...string) {
	t.Helper()
	cmd := rootCommand()
	cmd.SetArgs(append([]string{"topic", "create", "--bootstrap", n.Kafka}, args...))
	cmd.SetOut(new(bytes.Buffer))
	if err := cmd.ExecuteContext(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestProduceSaysWhyTheBrokerRefuses(t *testing.T) {
	n := startWith(t, "varve.disk.reserve.bytes=4000000000000000000")
	createTopic(t, n, "events")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	said := &refusalWatch{cancel: cancel}
	cmd := rootCommand()
	cmd.SetArgs([]string{"produce", "events", "--bootstrap", n.Kafka})
	cmd.SetIn(strings.NewReader("a\n"))
	cmd.SetErr(said)
	err := cmd.ExecuteContext(ctx)
	if err == nil || !strings.Contains(err.Error(), "interrupted; the broker refused: KAFKA_STORAGE_ERROR: ") || strings.Contains(err.Error(), "context canceled") {
		t.Errorf("stopped while refused: %v", err)
	}
	if !strings.Contains(said.String(), "the broker refuses: KAFKA_STORAGE_ERROR: ") {
		t.Errorf("while it tries again it says %q", said.String())
	}
}

func TestProduceEndsAtItsTimeoutWithTheBrokersReason(t *testing.T) {
	n := startWith(t, "varve.disk.reserve.bytes=4000000000000000000")
	createTopic(t, n, "events")
	limit := 500 * time.Millisecond
	produce := func() error {
		cmd := rootCommand()
		cmd.SetArgs([]string{"produce", "events", "--bootstrap", n.Kafka, "--timeout", limit.String()})
		input, keep := io.Pipe() // more may come: it does not wait for that
		defer keep.Close()
		go func() { _, _ = keep.Write([]byte("a\nb\n")) }()
		cmd.SetIn(input)
		cmd.SetErr(&logText{})
		began := time.Now()
		err := cmd.ExecuteContext(context.Background())
		if took := time.Since(began); took > limit+15*time.Second {
			t.Errorf("it took %s", took)
		}
		return err
	}
	err := produce()
	for limit < time.Minute && err != nil && !strings.Contains(err.Error(), "KAFKA_STORAGE_ERROR") { // a busy machine is not asked in time
		limit *= 2
		err = produce()
	}
	for _, want := range []string{"2 records are not acknowledged after " + limit.String(), "KAFKA_STORAGE_ERROR", "disk of broker 1 is nearly full", "free space, or lower local.retention"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}

func TestProduceSaysWhichSettingsKeepALineOut(t *testing.T) {
	n := startWith(t)
	createTopic(t, n, "small")
	err := produceTo(context.Background(), n, "small", "a\n"+strings.Repeat("x", 3<<20)+"\n", &logText{})
	for _, want := range []string{"MESSAGE_TOO_LARGE", "input line 2", "--batch-max", "max.message.bytes"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
}

// refusalWatch stops the command once it has said something.
type refusalWatch struct {
	logText
	cancel func()
}

func (w *refusalWatch) Write(p []byte) (int, error) {
	defer w.cancel()
	return w.logText.Write(p)
}

func TestProduceShowsTheBrokersOwnWords(t *testing.T) {
	n := startWith(t)
	createTopic(t, n, "small", "--config", "max.message.bytes=80")
	err := produceTo(context.Background(), n, "small", strings.Repeat("0123456789abcdef", 8)+"\n", &logText{})
	if err == nil || !strings.HasPrefix(err.Error(), "topic small: MESSAGE_TOO_LARGE: ") {
		t.Errorf("too large: %v", err)
	}
}

func TestProduceToNoTopicIsAnErrorEvenWithoutInput(t *testing.T) {
	n := startWith(t, "auto.create.topics.enable=false")
	for _, in := range []string{"", "a\n"} {
		err := produceTo(context.Background(), n, "none", in, &logText{})
		if err == nil || !strings.Contains(err.Error(), "UNKNOWN_TOPIC_OR_PARTITION") || !strings.Contains(err.Error(), "varve topic create none") {
			t.Errorf("input %q: %v", in, err)
		}
	}
	if err := produceTo(context.Background(), startWith(t), "made", "a\n", &logText{}); err != nil {
		t.Errorf("a topic that is made by the first record: %v", err)
	}
}
