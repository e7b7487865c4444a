// Package kafkatest runs Apache Kafka 4.4.0 for tests, from the jars that
// integration/clients/setup.sh fetches, as the peer Varve is held against.
package kafkatest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

const properties = `process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[2]d
listeners=PLAINTEXT://127.0.0.1:%[1]d,CONTROLLER://127.0.0.1:%[2]d
advertised.listeners=PLAINTEXT://127.0.0.1:%[1]d
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=%[3]s
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
`

const logging = `<Configuration status="WARN"><Appenders><Console name="c"><PatternLayout pattern="%d %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="c"/></Root></Loggers></Configuration>
`

// Start runs one broker (with its controller in the same process) from the
// jars under clientsDir, waits until it serves, and gives its address. Settings
// are lines added to its properties. It is killed when the test ends.
func Start(t testing.TB, clientsDir string, settings ...string) string {
	t.Helper()
	dir := t.TempDir()
	port, controller := freePort(t), freePort(t)
	config := filepath.Join(dir, "server.properties")
	text := fmt.Sprintf(properties, port, controller, filepath.Join(dir, "data")) + strings.Join(settings, "\n") + "\n"
	write(t, config, text)
	write(t, filepath.Join(dir, "log4j2.xml"), logging)
	run := func(class string, args ...string) *exec.Cmd {
		java := []string{"-Xmx512m", "-Dlog4j2.configurationFile=" + filepath.Join(dir, "log4j2.xml"), "-cp", filepath.Join(clientsDir, "jars", "*"), class}
		return exec.Command("java", append(java, args...)...)
	}
	if out, err := run("kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", config).CombinedOutput(); err != nil {
		t.Fatalf("format Kafka's storage: %v\n%s", err, out)
	}
	log, err := os.Create(filepath.Join(dir, "kafka.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := run("kafka.Kafka", config)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	nodetest.Eventually(t, 90*time.Second, "Kafka serves", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return cl.Ping(ctx)
	})
	return addr
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
