package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// TestKafkaToolsWorkOnRemoteData runs Apache Kafka 4.4.0's own tools against
// a topic whose records are in the bucket only. Each must end with status 0
// and print what is true.
func TestKafkaToolsWorkOnRemoteData(t *testing.T) {
	needsJVM(t)
	n := nodetest.Start(t, t.TempDir())
	tools := startKafkaTools(t, n)
	for _, step := range []struct {
		name string
		run  func(k *kafkaTools)
	}{
		{"kafka-topics creates, lists and describes", toolTopics},
		{"kafka-console-producer and -consumer", toolConsole},
		{"kafka-producer-perf-test", toolProducerPerf},
		{"everything moves to the bucket", toolFill},
		{"kafka-get-offsets", toolOffsets},
		{"kafka-console-consumer reads the bucket", toolConsumeRemote},
		{"kafka-consumer-perf-test", toolConsumerPerf},
		{"kafka-consumer-groups", toolGroups},
		{"kafka-configs", toolConfigs},
		{"kafka-log-dirs", toolLogDirs},
		{"kafka-delete-records", toolDeleteRecords},
		{"kafka-broker-api-versions", toolAPIVersions},
		{"kafka-topics alters and deletes", toolTopicsAlter},
	} {
		ok := t.Run(step.name, func(t *testing.T) { step.run(tools.at(t, n.Bootstrap)) })
		if !ok {
			return // the steps build on each other
		}
	}
}

// The topic that most steps look at: record i has the key k<i>, the value
// v<i>, and the time toolsStart + 1000·i milliseconds.
const (
	toolsTopic = "tools"
	toolsCount = 1000
	toolsStart = 1_600_000_000_000
)

func toolTopics(k *kafkaTools) {
	status, _, complaint, err := k.jvm.run("", []string{"org.apache.kafka.tools.TopicCommand", "--bootstrap-server", k.node.Bootstrap, "--describe", "--topic", "nowhere"})
	if err != nil || status != 1 {
		k.Errorf("a topic that is not there is described with status %d, %v\n%s", status, err, complaint)
	}
	args := []string{"--create", "--topic", toolsTopic, "--partitions", "1", "--replication-factor", "1"}
	own := "" // Varve's settings, whose names kafka-topics would refuse
	for name, value := range allRemote() {
		if strings.HasPrefix(name, "varve.") {
			own += name + "=" + value
		} else {
			args = append(args, "--config", name+"="+value)
		}
	}
	k.wants(k.run("TopicCommand", args...), "Created topic "+toolsTopic+".")
	k.run("ConfigCommand", "--entity-type", "topics", "--entity-name", toolsTopic, "--alter", "--add-config", own)
	if list := strings.Fields(k.run("TopicCommand", "--list")); !slices.Contains(list, toolsTopic) {
		k.Errorf("topics are %v", list)
	}
	k.wants(k.run("TopicCommand", "--describe", "--topic", toolsTopic),
		"Topic: "+toolsTopic, "PartitionCount: 1", "ReplicationFactor: 1", "remote.storage.enable=true", "Partition: 0", "Leader: 1", "Isr: 1")
}

func toolConsole(k *kafkaTools) {
	k.run("TopicCommand", "--create", "--topic", "console", "--partitions", "1")
	var lines strings.Builder
	for i := range 100 {
		fmt.Fprintf(&lines, "k%d\tv%d\n", i, i)
	}
	k.feed(lines.String(), "ConsoleProducer", "--topic", "console", "--reader-property", "parse.key=true", "--compression-codec", "zstd")
	out := k.run("consumer.ConsoleConsumer", "--topic", "console", "--from-beginning", "--max-messages", "100", "--timeout-ms", "30000",
		"--formatter-property", "print.key=true")
	if out != lines.String() {
		k.Errorf("wrote and read are not the same:\n%s", out)
	}
}

func toolProducerPerf(k *kafkaTools) {
	k.run("TopicCommand", "--create", "--topic", "perf", "--partitions", "3")
	out := k.run("ProducerPerformance", "--topic", "perf", "--num-records", "20000", "--record-size", "200", "--throughput", "-1",
		"--command-property", "acks=all", "compression.type=lz4")
	k.wants(out, "20000 records sent")
	total := 0
	for _, line := range strings.Fields(k.run("GetOffsetShell", "--topic", "perf")) {
		n, err := strconv.Atoi(line[strings.LastIndexByte(line, ':')+1:])
		if err != nil {
			k.Fatalf("%q: %v", line, err)
		}
		total += n
	}
	if total != 20000 {
		k.Errorf("the partitions hold %d records", total)
	}
}

// toolFill writes the records, in a batch for every ten, and waits until they
// are in the bucket only.
func toolFill(k *kafkaTools) {
	cl := k.node.Client(kgo.DefaultProduceTopic(toolsTopic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for first := 0; first < toolsCount; first += 10 {
		var batch []*kgo.Record
		for i := first; i < first+10; i++ {
			batch = append(batch, &kgo.Record{Key: fmt.Append(nil, "k", i), Value: fmt.Append(nil, "v", i), Timestamp: time.UnixMilli(toolsStart + 1000*int64(i))})
		}
		if err := cl.ProduceSync(ctx, batch...).FirstErr(); err != nil {
			k.Fatal(err)
		}
	}
	waitAllRemote(k.T, cl, toolsTopic, 0, time.Minute)
}

func toolOffsets(k *kafkaTools) {
	for _, c := range []struct{ time, offset string }{
		{"earliest", "0"},
		{"latest", "1000"},
		{"max-timestamp", "999"},
		{"earliest-local", "1000"},
		{"latest-tiered", "999"},
		{"earliest-pending-upload", ""}, // nothing is pending
		{strconv.Itoa(toolsStart), "0"},
		{strconv.Itoa(toolsStart + 123_456), "124"},
		{strconv.Itoa(toolsStart + 999_000), "999"},
		{strconv.Itoa(toolsStart + 999_001), ""}, // later than all: nothing
	} {
		want := ""
		if c.offset != "" {
			want = toolsTopic + ":0:" + c.offset
		}
		if got := strings.TrimSpace(k.run("GetOffsetShell", "--topic", toolsTopic, "--time", c.time)); got != want {
			k.Errorf("--time %s printed %q, want %q", c.time, got, want)
		}
	}
}

func toolConsumeRemote(k *kafkaTools) {
	out := k.run("consumer.ConsoleConsumer", "--topic", toolsTopic, "--from-beginning", "--max-messages", strconv.Itoa(toolsCount),
		"--timeout-ms", "30000", "--group", "tools-group",
		"--formatter-property", "print.timestamp=true", "--formatter-property", "print.key=true", "--formatter-property", "print.offset=true")
	var want strings.Builder
	for i := range toolsCount {
		fmt.Fprintf(&want, "CreateTime:%d\tOffset:%d\tk%d\tv%d\n", toolsStart+1000*i, i, i, i)
	}
	if out != want.String() {
		k.Errorf("read %d lines, the first %q", strings.Count(out, "\n"), out[:min(200, len(out))])
	}
	out = k.run("consumer.ConsoleConsumer", "--topic", toolsTopic, "--partition", "0", "--offset", "997", "--timeout-ms", "3000", "--isolation-level", "read_committed")
	if out != "v997\nv998\nv999\n" {
		k.Errorf("from offset 997: %q", out)
	}
}

func toolConsumerPerf(k *kafkaTools) {
	out := k.run("ConsumerPerformance", "--topic", toolsTopic, "--num-records", strconv.Itoa(toolsCount), "--hide-header", "--timeout", "30000")
	fields := strings.Split(strings.TrimSpace(out), ", ")
	// start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
	if len(fields) < 5 || fields[4] != strconv.Itoa(toolsCount) {
		k.Errorf("printed %q", out)
	}
}

func toolGroups(k *kafkaTools) {
	if list := strings.Fields(k.run("consumer.group.ConsumerGroupCommand", "--list")); !slices.Contains(list, "tools-group") {
		k.Errorf("groups are %v", list)
	}
	described := k.run("consumer.group.ConsumerGroupCommand", "--describe", "--group", "tools-group")
	if !regexp.MustCompile(`tools-group\s+tools\s+0\s+1000\s+1000\s+0\s`).MatchString(described) {
		k.Errorf("described as:\n%s", described)
	}
	k.run("consumer.group.ConsumerGroupCommand", "--group", "tools-group", "--topic", toolsTopic, "--reset-offsets", "--execute",
		"--to-datetime", time.UnixMilli(toolsStart+500_000).UTC().Format("2006-01-02T15:04:05.000"))
	described = k.run("consumer.group.ConsumerGroupCommand", "--describe", "--group", "tools-group")
	if !regexp.MustCompile(`tools-group\s+tools\s+0\s+500\s+1000\s+500\s`).MatchString(described) {
		k.Errorf("after the reset described as:\n%s", described)
	}
	k.wants(k.run("consumer.group.ConsumerGroupCommand", "--delete", "--group", "tools-group"), "Deletion of requested consumer groups ('tools-group') was successful.")
}

func toolConfigs(k *kafkaTools) {
	topic := []string{"--entity-type", "topics", "--entity-name", toolsTopic}
	describe := func(args ...string) string { return k.run("ConfigCommand", append(args, "--describe")...) }
	k.wants(describe(topic...), "remote.storage.enable=true", "local.retention.ms=1", "retention.ms=-1", "DYNAMIC_TOPIC_CONFIG")
	k.wants(k.run("ConfigCommand", append(slices.Clone(topic), "--alter", "--add-config", "max.message.bytes=2000000,segment.ms=7200000")...),
		"Completed updating config for topic "+toolsTopic+".")
	k.wants(describe(topic...), "max.message.bytes=2000000", "segment.ms=7200000")
	k.run("ConfigCommand", append(slices.Clone(topic), "--alter", "--delete-config", "segment.ms")...)
	all := describe(append(slices.Clone(topic), "--all")...)
	k.wants(all, "max.message.bytes=2000000", "segment.ms=604800000", "compression.type=producer", "DEFAULT_CONFIG:log.cleanup.policy=delete")

	broker := []string{"--entity-type", "brokers", "--entity-name", "1"}
	k.run("ConfigCommand", append(slices.Clone(broker), "--alter", "--add-config", "log.cleaner.delete.retention.ms=4000000")...)
	k.wants(describe(broker...), "log.cleaner.delete.retention.ms=4000000", "DYNAMIC_BROKER_CONFIG")
	k.run("ConfigCommand", append(slices.Clone(broker), "--alter", "--delete-config", "log.cleaner.delete.retention.ms")...)
	k.wants(describe(append(slices.Clone(broker), "--all")...), "log.cleaner.delete.retention.ms=86400000", "message.max.bytes=1048588", "node.id=1")
}

func toolLogDirs(k *kafkaTools) {
	out := k.run("LogDirsCommand", "--describe", "--topic-list", "perf,"+toolsTopic)
	text := out[strings.LastIndexByte(strings.TrimSpace(out), '\n')+1:]
	var got struct {
		Brokers []struct {
			Broker  int
			LogDirs []struct {
				Error      *string
				Partitions []struct {
					Partition string
					Size      int64
					OffsetLag int64
					IsFuture  bool
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		k.Fatalf("%v in %q", err, out)
	}
	if len(got.Brokers) != 1 || got.Brokers[0].Broker != 1 || len(got.Brokers[0].LogDirs) != 1 || got.Brokers[0].LogDirs[0].Error != nil {
		k.Fatalf("printed %s", text)
	}
	sizes := map[string]int64{}
	for _, p := range got.Brokers[0].LogDirs[0].Partitions {
		if p.OffsetLag != 0 || p.IsFuture {
			k.Errorf("%+v", p)
		}
		sizes[p.Partition] = p.Size
	}
	perf := sizes["perf-0"] + sizes["perf-1"] + sizes["perf-2"]
	if remote, ok := sizes[toolsTopic+"-0"]; len(sizes) != 4 || !ok || remote != 0 || perf < 100_000 {
		k.Errorf("local sizes %v: only those of perf are on local disk", sizes)
	}
}

func toolDeleteRecords(k *kafkaTools) {
	file := k.file("delete.json", `{"version":1,"partitions":[{"topic":"`+toolsTopic+`","partition":0,"offset":305}]}`)
	k.wants(k.run("DeleteRecordsCommand", "--offset-json-file", file), "partition: "+toolsTopic+"-0", "low_watermark: 305")
	if got := strings.TrimSpace(k.run("GetOffsetShell", "--topic", toolsTopic, "--time", "earliest")); got != toolsTopic+":0:305" {
		k.Errorf("earliest is %q", got)
	}
	out := k.run("consumer.ConsoleConsumer", "--topic", toolsTopic, "--from-beginning", "--max-messages", "1", "--timeout-ms", "30000")
	if out != "v305\n" {
		k.Errorf("the first record is %q", out)
	}
}

func toolAPIVersions(k *kafkaTools) {
	out := k.run("BrokerApiVersionsCommand")
	k.wants(out, "(id: 1 rack: null", "Produce(0): 0 to 13 [usable: 13]", "Fetch(1): 4 to 18 [usable: 18]", "ListOffsets(2): 1 to 11 [usable: 11]")
}

func toolTopicsAlter(k *kafkaTools) {
	k.run("TopicCommand", "--alter", "--topic", toolsTopic, "--partitions", "3")
	k.wants(k.run("TopicCommand", "--describe", "--topic", toolsTopic), "PartitionCount: 3", "Partition: 2")
	k.run("TopicCommand", "--delete", "--topic", toolsTopic)
	nodetest.Eventually(k.T, 30*time.Second, "the topic is gone", func() error {
		if slices.Contains(strings.Fields(k.run("TopicCommand", "--list")), toolsTopic) {
			return errors.New("still listed")
		}
		return nil
	})
}
