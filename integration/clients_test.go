package integration

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// clientsDir is where integration/clients/setup.sh put the programs.
// VARVE_CLIENTS_BOOTSTRAP, if set, names another cluster to run them against,
// which shows that the programs themselves are right: the steps that need the
// bucket are left out there.
// They are read late: the test cache sees only variables read by a test.
func clientsDir() string       { return os.Getenv("VARVE_CLIENTS") }
func clientsBootstrap() string { return os.Getenv("VARVE_CLIENTS_BOOTSTRAP") }

// needsClients leaves a test out where the clients are not. .ci/run sets VARVE_CLIENTS and fails on a test that is left out.
func needsClients(t *testing.T) {
	t.Helper()
	if clientsDir() == "" {
		t.Skip("needs more than Go: run clients/setup.sh DIR and set VARVE_CLIENTS=DIR (.ci/run does)")
	}
}

// needsJVM is needsClients for those that run on Java.
func needsJVM(t *testing.T) {
	t.Helper()
	if clientsDir() == "" {
		t.Skip("needs a JVM and Kafka's jars: run clients/setup.sh DIR and set VARVE_CLIENTS=DIR (.ci/run does)")
	}
}

var allCodecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// clientPrograms gives each client's command line, without the verb.
func clientPrograms(t *testing.T) map[string][]string {
	here, err := filepath.Abs("clients")
	if err != nil {
		t.Fatal(err)
	}
	python := filepath.Join(clientsDir(), "venv", "bin", "python")
	return map[string][]string{
		"franz-go":        {filepath.Join(clientsDir(), "franz")},
		"sarama":          {filepath.Join(clientsDir(), "sarama")},
		"kafka-go":        {filepath.Join(clientsDir(), "segmentio")},
		"confluent-kafka": {python, filepath.Join(here, "python", "confluent.py")},
		"kafka-python":    {python, filepath.Join(here, "python", "kafkapython.py")},
		"aiokafka":        {python, filepath.Join(here, "python", "aio.py")},
		"kafkajs":         {"node", filepath.Join(here, "node", "client.js")},
		"kcat":            {filepath.Join(here, "kcat", "client.sh")},
		"java":            append([]string{"java"}, javaFlags("Client")...),
	}
}

func runClient(t *testing.T, program []string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program[0], append(slices.Clone(program[1:]), args...)...)
	cmd.Env = clientEnv()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, tailBytes(stderr.Bytes()))
	}
	return stdout.String()
}

func clientEnv() []string {
	return append(os.Environ(), "NODE_PATH="+filepath.Join(clientsDir(), "node", "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING=1")
}

func tailBytes(b []byte) []byte { return b[max(0, len(b)-3000):] }

// TestClientsProduceConsumeAndSeekRemoteData drives each real client through
// every codec, then reads back as a consumer group and looks up times when
// the records are in the bucket only.
func TestClientsProduceConsumeAndSeekRemoteData(t *testing.T) {
	needsClients(t)
	var n *nodetest.Node
	if clientsBootstrap() != "" {
		n = nodetest.At(t, clientsBootstrap())
	} else {
		n = nodetest.Start(t, t.TempDir())
	}
	var exercised, absent []string
	for name, program := range clientPrograms(t) {
		if tool := missing(clientTools[name]); tool != "" {
			t.Logf("%s is left out: this machine has no %s", name, tool)
			absent = append(absent, name)
			continue
		}
		exercised = append(exercised, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel() // much of it is waiting
			exerciseClient(t, n, name, program)
		})
	}
	slices.Sort(exercised)
	slices.Sort(absent)
	t.Logf("%d clients exercised: %v; %d left out: %v", len(exercised), exercised, len(absent), absent)
	if len(exercised) == 0 {
		t.Error("no client was exercised")
	}
}

// clientTools names what a client needs of the machine, as clients/setup.sh
// asks for it. Where one is absent the client is left out and named; where all
// are there, the client must work.
var clientTools = map[string][]string{
	"franz-go": {"go"}, "sarama": {"go"}, "kafka-go": {"go"},
	"confluent-kafka": {"python3"}, "kafka-python": {"python3"}, "aiokafka": {"python3"},
	"kafkajs": {"node", "npm"}, "kcat": {"kcat"}, "java": {"java", "javac", "mvn"},
}

// missing gives the first tool that is not on the path, "" when all are.
func missing(tools []string) string {
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			return tool
		}
	}
	return ""
}

func TestEveryClientNamesItsTool(t *testing.T) {
	programs := clientPrograms(t)
	for name := range programs {
		if len(clientTools[name]) == 0 {
			t.Errorf("%s names no tool", name)
		}
	}
	if len(programs) != len(clientTools) {
		t.Errorf("%d programs, %d tools", len(programs), len(clientTools))
	}
	t.Setenv("PATH", t.TempDir())
	if tool := missing(clientTools["java"]); tool != "java" {
		t.Errorf("%q is missing on an empty path, want java", tool)
	}
}

func exerciseClient(t *testing.T, n *nodetest.Node, name string, program []string) {
	const perCodec = 300
	topic := "client-" + name
	n = nodetest.At(t, n.Bootstrap)
	settings := allRemote()
	if clientsBootstrap() != "" {
		settings = map[string]string{"retention.ms": "-1"}
	}
	n.CreateTopic(topic, 1, settings)
	for i, codec := range allCodecs {
		runClient(t, program, "produce", n.Bootstrap, topic, codec, strconv.Itoa(perCodec), strconv.Itoa(i*perCodec))
	}
	if clientsBootstrap() == "" {
		waitAllRemote(t, n.Client(), topic, 0, 60*time.Second)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	records := readPartition(ctx, t, n, topic, 0)
	checkProduced(t, records, perCodec*len(allCodecs), name != "kcat")

	times := seekTimes(records)
	group := "group-" + name
	got := runClient(t, program, "verify", n.Bootstrap, topic, group, strconv.Itoa(len(records)), joinInts(times))
	checkVerified(t, got, records, times)
	checkCommitted(ctx, t, n, group, topic, records)
}

// checkProduced holds what is in the log against what the program was told to write.
func checkProduced(t *testing.T, records []*kgo.Record, count int, timed bool) {
	t.Helper()
	if len(records) != count {
		t.Fatalf("%d records in the log, %d were written", len(records), count)
	}
	text := strings.Repeat("varve ", 34)[:200]
	for i, r := range records {
		if want := fmt.Sprintf("k%d", i); string(r.Key) != want || string(r.Value) != fmt.Sprintf("%d %s", i, text) || r.Offset != int64(i) {
			t.Fatalf("record %d: offset %d key %q value %q", i, r.Offset, r.Key, r.Value)
		}
		if want := 1600000000000 + 1000*int64(i); timed && r.Timestamp.UnixMilli() != want {
			t.Fatalf("record %d: timestamp %d, want %d", i, r.Timestamp.UnixMilli(), want)
		}
	}
}

// seekTimes picks moments before, at, between and after the records.
func seekTimes(records []*kgo.Record) []int64 {
	first, last := records[0].Timestamp.UnixMilli(), records[len(records)-1].Timestamp.UnixMilli()
	times := []int64{first - 1, first, last, last + 1}
	for i := 7; i < len(records); i += 211 {
		at := records[i].Timestamp.UnixMilli()
		times = append(times, at, at-499)
	}
	return times
}

func joinInts(list []int64) string {
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = strconv.FormatInt(n, 10)
	}
	return strings.Join(texts, ",")
}

func checkVerified(t *testing.T, output string, records []*kgo.Record, times []int64) {
	t.Helper()
	var want strings.Builder
	for _, r := range records {
		fmt.Fprintf(&want, "%d\t%d\t%s\t%s\n", r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Value)
	}
	for _, at := range times {
		offset := int64(-1)
		if i := slices.IndexFunc(records, func(r *kgo.Record) bool { return r.Timestamp.UnixMilli() >= at }); i >= 0 {
			offset = records[i].Offset
		}
		fmt.Fprintf(&want, "time\t%d\t%d\n", at, offset)
	}
	got, expected := strings.Split(strings.TrimSpace(output), "\n"), strings.Split(strings.TrimSpace(want.String()), "\n")
	for i := range max(len(got), len(expected)) {
		if i >= len(got) || i >= len(expected) || got[i] != expected[i] {
			t.Fatalf("line %d differs (of %d, want %d):\n got %q\nwant %q", i+1, len(got), len(expected), at(got, i), at(expected, i))
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

func checkCommitted(ctx context.Context, t *testing.T, n *nodetest.Node, group, topic string, records []*kgo.Record) {
	t.Helper()
	// kcat commits in the background as it leaves.
	nodetest.Eventually(t, 20*time.Second, "group has committed the end", func() error {
		offsets, err := kadm.NewClient(n.Client()).FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		got, ok := offsets.Lookup(topic, 0)
		if want := records[len(records)-1].Offset + 1; !ok || got.At != want {
			return fmt.Errorf("committed %v, want %d (have %v)", got.At, want, slices.Collect(maps.Keys(offsets)))
		}
		return nil
	})
}
