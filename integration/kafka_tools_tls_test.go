package integration

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/broker/secure/securetest"
	"github.com/varvelog/varve/integration/nodetest"
)

// TestKafkaToolsSpeakTLS runs Apache Kafka's own tools against a node that
// speaks TLS alone and asks for certificates, with PEM files as Kafka's clients
// take them (KIP-651).
func TestKafkaToolsSpeakTLS(t *testing.T) {
	needsJVM(t)
	a := securetest.New(t, t.TempDir(), "authority")
	settings := a.Settings("node", securetest.Wish{})
	maps.Copy(settings, map[string]string{"ssl.client.auth": "required"})
	c := nodetest.StartCluster(t, nodetest.ClusterOptions{Nodes: 1, Secure: true, Settings: settings,
		Client: []kgo.Opt{kgo.DialTLSConfig(clientConfig(t, a, "harness"))}})
	k := startKafkaTools(t, c.Node(1))
	var properties strings.Builder
	properties.WriteString("security.protocol=SSL\n")
	for name, value := range a.Settings("client", securetest.Wish{}) {
		fmt.Fprintf(&properties, "%s=%s\n", name, value)
	}
	config := k.file("client.properties", properties.String())

	k.run("TopicCommand", "--create", "--topic", "console", "--partitions", "1", "--command-config", config)
	var lines strings.Builder
	for i := range 100 {
		fmt.Fprintf(&lines, "k%d\tv%d\n", i, i)
	}
	k.feed(lines.String(), "ConsoleProducer", "--topic", "console", "--reader-property", "parse.key=true", "--command-config", config)
	out := k.run("consumer.ConsoleConsumer", "--topic", "console", "--from-beginning", "--max-messages", "100", "--timeout-ms", "30000",
		"--formatter-property", "print.key=true", "--command-config", config)
	if out != lines.String() {
		t.Errorf("wrote and read are not the same:\n%s", out)
	}
	k.wants(k.run("ConfigCommand", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1", "--command-config", config),
		"ssl.client.auth=required", "ssl.keystore.type=PEM", "ssl.key.password=null sensitive=true")
	// Varve's own tools take the same file.
	if listed, err := varve(t, c, "topic", "list", "--command-config", config); err != nil || !strings.Contains(listed, "console") {
		t.Errorf("%v\n%s", err, listed)
	}
}
