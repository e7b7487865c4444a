// Package kafkatest runs Apache Kafka 4.4.0 for tests, from the jars that
// integration/clients/setup.sh fetches, as the peer Varve is held against.
package kafkatest

import (
	"context"
	"fmt"
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

// Broker is one running broker, with its controller in the same process.
type Broker struct {
	t         testing.TB
	Bootstrap string
	jars      string
	dir       string
	cmd       *exec.Cmd
	exited    chan struct{} // closed when the process is gone
}

// Start runs one broker from the jars under clientsDir, waits until it serves,
// and gives its address. Settings are lines added to its properties. It is
// killed when the test ends.
func Start(t testing.TB, clientsDir string, settings ...string) string {
	t.Helper()
	return StartBroker(t, clientsDir, settings...).Bootstrap
}

// StartBroker is Start for tests that restart the broker.
func StartBroker(t testing.TB, clientsDir string, settings ...string) *Broker {
	t.Helper()
	b := &Broker{t: t, jars: filepath.Join(clientsDir, "jars", "*"), dir: t.TempDir()}
	port, controller := nodetest.FreePort(t), nodetest.FreePort(t)
	b.Bootstrap = fmt.Sprintf("127.0.0.1:%d", port)
	text := fmt.Sprintf(properties, port, controller, filepath.Join(b.dir, "data")) + strings.Join(settings, "\n") + "\n"
	write(t, b.config(), text)
	write(t, filepath.Join(b.dir, "log4j2.xml"), logging)
	if out, err := b.java("kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", b.config()).CombinedOutput(); err != nil {
		t.Fatalf("format Kafka's storage: %v\n%s", err, out)
	}
	t.Cleanup(b.kill)
	b.start()
	return b
}

func (b *Broker) config() string { return filepath.Join(b.dir, "server.properties") }

func (b *Broker) java(class string, args ...string) *exec.Cmd {
	// It lives for a minute or two: quick compilation suits it.
	java := []string{"-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlog4j2.configurationFile=" + filepath.Join(b.dir, "log4j2.xml"), "-cp", b.jars, class}
	return exec.Command("java", append(java, args...)...)
}

func (b *Broker) start() {
	b.t.Helper()
	log, err := os.OpenFile(filepath.Join(b.dir, "kafka.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		b.t.Fatal(err)
	}
	defer log.Close()
	b.cmd = b.java("kafka.Kafka", b.config())
	b.cmd.Stdout, b.cmd.Stderr = log, log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	cmd, exited := b.cmd, make(chan struct{})
	b.exited = exited
	go func() { _ = cmd.Wait(); close(exited) }()
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Bootstrap))
	if err != nil {
		b.t.Fatal(err)
	}
	defer cl.Close()
	nodetest.Eventually(b.t, 90*time.Second, "Kafka serves", func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return cl.Ping(ctx)
	})
}

func (b *Broker) kill() {
	if b.exited == nil {
		return
	}
	_ = b.cmd.Process.Kill()
	<-b.exited
}

// Restart asks the broker to end in order, and starts it again on its data.
func (b *Broker) Restart() {
	b.t.Helper()
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.t.Fatal(err)
	}
	select {
	case <-b.exited:
	case <-time.After(60 * time.Second):
		b.t.Fatal("Kafka did not stop within a minute of SIGTERM")
	}
	b.start()
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
