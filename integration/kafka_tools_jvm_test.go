package integration

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/integration/nodetest"
)

// kafkaTools runs Apache Kafka's own command line against one node.
type kafkaTools struct {
	*testing.T
	node *nodetest.Node
	dir  string
	jvm  *toolsJVM
}

// toolsJVM is a JVM in which the tools run, one after the other
// (clients/java/Tools.java): to start one for each takes longer than the tools do.
type toolsJVM struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr lockedBuffer // of the JVM, not of the tools
}

// startKafkaTools gives the tools, for one node.
func startKafkaTools(t *testing.T, n *nodetest.Node) *kafkaTools {
	t.Helper()
	k := &kafkaTools{T: t, node: n, dir: t.TempDir(), jvm: &toolsJVM{}}
	j := k.jvm
	j.cmd = exec.Command("java", javaFlags("-Dlog4j2.configurationFile="+k.file("log4j2.xml", toolsLogging), "Tools")...)
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	j.cmd.Stderr = &j.stderr
	var err error
	if j.in, err = j.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := j.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	j.out = bufio.NewReader(out)
	if err := j.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		j.in.Close()
		_ = j.cmd.Process.Kill()
		_ = j.cmd.Wait() // it was killed
	})
	return k
}

// javaFlags begin the command line of a Java program that lives for seconds:
// quick compilation suits it, and little memory.
func javaFlags(rest ...string) []string {
	return append([]string{"-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC",
		"-cp", filepath.Join(clientsDir(), "classes") + ":" + filepath.Join(clientsDir(), "jars", "*")}, rest...)
}

// toolsOnOneNode starts a node and gives it with the tools for it.
func toolsOnOneNode(t *testing.T) (*nodetest.Node, *kafkaTools) {
	t.Helper()
	needsJVM(t)
	n := nodetest.Start(t, t.TempDir())
	return n, startKafkaTools(t, n)
}

// at gives the same tools for a step, and for whoever is at an address.
func (k *kafkaTools) at(t *testing.T, bootstrap string) *kafkaTools {
	return &kafkaTools{T: t, node: nodetest.At(t, bootstrap), dir: k.dir, jvm: k.jvm}
}

// run runs a tool by its class with the bootstrap server and gives what it
// printed; a status other than 0 is an error.
func (k *kafkaTools) run(class string, args ...string) string {
	k.Helper()
	return k.feed("", class, args...)
}

func (k *kafkaTools) feed(stdin, class string, args ...string) string {
	k.Helper()
	at := 0
	if class == "ClusterTool" {
		at = 1 // it takes the address after its verb
	}
	args = slices.Insert(slices.Clone(args), at, "--bootstrap-server", k.node.Bootstrap)
	status, stdout, stderr, err := k.jvm.run(stdin, append([]string{"org.apache.kafka.tools." + class}, args...))
	if err == nil && status != 0 {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		k.Fatalf("%s %s: %v\n%s\n%s", class, strings.Join(args, " "), err, tailBytes(stdout), tailBytes(stderr))
	}
	return string(stdout)
}

// run runs one tool. After an error the JVM is not to be used again.
func (j *toolsJVM) run(stdin string, args []string) (status uint32, stdout, stderr []byte, err error) {
	request := binary.BigEndian.AppendUint32(nil, uint32(len(args)))
	for _, text := range append(args, stdin) {
		request = append(binary.BigEndian.AppendUint32(request, uint32(len(text))), text...)
	}
	timer := time.AfterFunc(90*time.Second, func() { _ = j.cmd.Process.Kill() })
	defer timer.Stop()
	number := func() (n uint32) {
		if err == nil {
			err = binary.Read(j.out, binary.BigEndian, &n)
		}
		return n
	}
	text := func() []byte {
		b := make([]byte, number())
		if err == nil {
			_, err = io.ReadFull(j.out, b)
		}
		return b
	}
	_, err = j.in.Write(request)
	status, stdout, stderr = number(), text(), text()
	if err != nil {
		j.stderr.mu.Lock()
		defer j.stderr.mu.Unlock()
		return 0, nil, nil, errors.Join(fmt.Errorf("the tools' JVM has ended, or was stopped after 90 s: %w", err), errors.New(j.stderr.b.String()))
	}
	return status, stdout, stderr, nil
}

// file writes a file for a tool to read and gives its path.
func (k *kafkaTools) file(name, text string) string {
	k.Helper()
	path := filepath.Join(k.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		k.Fatal(err)
	}
	return path
}

// wants fails unless every part is in what a tool printed.
func (k *kafkaTools) wants(printed string, parts ...string) {
	k.Helper()
	for _, part := range parts {
		if !strings.Contains(printed, part) {
			k.Errorf("%q is missing in:\n%s", part, printed)
		}
	}
}

const toolsLogging = `<Configuration status="ERROR"><Appenders><Console name="c" target="SYSTEM_ERR"><PatternLayout pattern="%p %m%n"/></Console></Appenders>
<Loggers><Root level="WARN"><AppenderRef ref="c"/></Root></Loggers></Configuration>
`

// matches fails unless the pattern is found in what a tool printed.
func (k *kafkaTools) matches(printed, pattern string) {
	k.Helper()
	if !regexp.MustCompile(pattern).MatchString(printed) {
		k.Errorf("%s is not in:\n%s", pattern, printed)
	}
}

// until runs a tool until what it prints has the pattern, and gives that: what
// one node has done, the others hear of by and by.
func (k *kafkaTools) until(pattern, class string, args ...string) (printed string) {
	k.Helper()
	nodetest.Eventually(k.T, time.Minute, class+" prints "+pattern, func() error {
		if printed = k.run(class, args...); !regexp.MustCompile(pattern).MatchString(printed) {
			return errors.New(printed)
		}
		return nil
	})
	return printed
}
