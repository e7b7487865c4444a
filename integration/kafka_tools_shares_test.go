package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestKafkaToolsForShareGroups has Apache Kafka 4.4.0's share console consumer read a topic, and its kafka-share-groups list,
// describe, reset and delete what that leaves behind.
func TestKafkaToolsForShareGroups(t *testing.T) {
	_, k := toolsOnOneNode(t)
	const tool, group, name, count = "consumer.group.ShareGroupCommand", "tools-share", "shared", 20
	k.run("TopicCommand", "--create", "--topic", name, "--partitions", "1", "--replication-factor", "1")
	var lines strings.Builder
	var want []string
	for i := range count {
		want = append(want, fmt.Sprintf("v%02d", i))
		fmt.Fprintln(&lines, want[i])
	}
	k.feed(lines.String(), "ConsoleProducer", "--topic", name)
	k.run("ConfigCommand", "--entity-type", "groups", "--entity-name", group, "--alter", "--add-config", "share.auto.offset.reset=earliest")
	read := strings.Fields(k.run("consumer.ConsoleShareConsumer", "--topic", name, "--group", group, "--max-messages", fmt.Sprint(count), "--timeout-ms", "60000"))
	if slices.Sort(read); !slices.Equal(read, want) {
		t.Errorf("read %q", read)
	}
	if list := strings.Fields(k.run(tool, "--list")); !slices.Contains(list, group) {
		t.Errorf("groups are %v", list)
	}
	k.matches(k.run(tool, "--describe", "--group", group, "--state"), group+`\s+.*Empty`)
	k.matches(k.run(tool, "--describe", "--group", group), group+`\s+shared\s+0\s+20\s+0`)
	k.run(tool, "--group", group, "--topic", name, "--reset-offsets", "--to-earliest", "--execute")
	k.matches(k.run(tool, "--describe", "--group", group), group+`\s+shared\s+0\s+0\s+20`)
	again := strings.Fields(k.run("consumer.ConsoleShareConsumer", "--topic", name, "--group", group, "--max-messages", fmt.Sprint(count), "--timeout-ms", "60000"))
	if slices.Sort(again); !slices.Equal(again, want) {
		t.Errorf("read again %q", again)
	}
	k.run(tool, "--group", group, "--topic", name, "--delete-offsets")
	k.wants(k.run(tool, "--delete", "--group", group), "tools-share")
	if list := strings.Fields(k.run(tool, "--list")); slices.Contains(list, group) {
		t.Errorf("groups after the deletion are %v", list)
	}
}
