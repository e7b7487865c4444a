package integration

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
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

// groupKinds are the clients that take part in groups by protocol.
var groupKinds = []struct{ client, protocol string }{
	{"java", "classic"}, {"java", "consumer"},
	{"confluent-kafka", "classic"}, {"confluent-kafka", "consumer"},
	{"aiokafka", "classic"}, {"kafkajs", "classic"},
}

// TestClientsInGroupsAndTransactions has real clients share the work of a
// group while members come, leave and die; has them write in transactions that
// are committed, aborted and fenced off; and has the Java client copy exactly
// once while each node is killed, coordinators of groups and of transactions
// among them.
func TestClientsInGroupsAndTransactions(t *testing.T) {
	needsClients(t)
	c := nodetest.StartCluster(t, nodetest.ClusterOptions{Settings: map[string]string{
		"group.initial.rebalance.delay.ms": "100", "group.min.session.timeout.ms": "1000",
		"group.consumer.session.timeout.ms": "3000", "group.consumer.min.session.timeout.ms": "1000",
		"group.consumer.heartbeat.interval.ms": "300", "group.consumer.min.heartbeat.interval.ms": "100",
		"group.consumer.assignment.interval.ms": "0", "offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4",
	}})
	programs := clientPrograms(t)
	each := func(step string, run func(t *testing.T, c *nodetest.Cluster, program []string, name, protocol string), protocols ...string) {
		t.Run(step, func(t *testing.T) {
			for _, kind := range groupKinds {
				if !slices.Contains(protocols, kind.protocol) {
					continue
				}
				name := kind.client + "-" + kind.protocol
				if tool := missing(clientTools[kind.client]); tool != "" {
					t.Logf("%s is left out: this machine has no %s", name, tool)
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					run(t, c, programs[kind.client], name, kind.protocol)
				})
			}
		})
	}
	each("churn", churn, "classic", "consumer")
	each("transform", transformByClient, "classic", "consumer")
	each("fence", fenceByClient, "classic") // there is no group in it
	if missing(clientTools["java"]) == "" {
		t.Run("transform while nodes are killed", func(t *testing.T) { transformUnderKills(t, c, programs["java"]) })
	}
}

// clientProcess is a client's program that runs in the background.
type clientProcess struct {
	t      *testing.T
	name   string
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr lockedBuffer
	done   chan struct{} // closed when it has ended and all it printed is taken
	err    error         // set before done is closed

	mu       sync.Mutex // guards what follows
	assigned map[int32]bool
	records  []place
	unsure   []place // of a share consumer: acknowledged, and nobody knows whether that came about
}

// lockedBuffer takes what a program complains of, and may be read meanwhile.
type lockedBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// complaints is the end of what the program has printed to its standard error.
func (p *clientProcess) complaints() string {
	p.stderr.mu.Lock()
	defer p.stderr.mu.Unlock()
	return string(tailBytes(p.stderr.b.Bytes()))
}

type place struct {
	partition int32
	offset    int64
}

func startClient(t *testing.T, name string, program []string, args ...string) *clientProcess {
	t.Helper()
	p := &clientProcess{t: t, name: name, done: make(chan struct{}), assigned: map[int32]bool{}}
	p.cmd = exec.Command(program[0], append(slices.Clone(program[1:]), args...)...)
	p.cmd.Env = clientEnv()
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = &p.stderr
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.stdin = stdin
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(stdout); lines.Scan(); {
			p.take(strings.Split(lines.Text(), "\t"))
		}
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
	return p
}

// take notes one line that the program has printed.
func (p *clientProcess) take(fields []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	number := func(i int) int64 {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			p.t.Errorf("%s printed %q: %v", p.name, fields, err)
		}
		return n
	}
	switch {
	case fields[0] == "assigned" && len(fields) == 2:
		p.assigned = map[int32]bool{}
		for _, text := range strings.FieldsFunc(fields[1], func(r rune) bool { return r == ',' }) {
			n, err := strconv.Atoi(text)
			if err != nil {
				p.t.Errorf("%s printed %q: %v", p.name, fields, err)
			}
			p.assigned[int32(n)] = true
		}
	case fields[0] == "record" && len(fields) == 3:
		p.records = append(p.records, place{int32(number(1)), number(2)})
	case fields[0] == "unsure" && len(fields) == 3:
		p.unsure = append(p.unsure, place{int32(number(1)), number(2)})
	default:
		p.t.Errorf("%s printed %q", p.name, fields)
	}
}

// kill is kill -9.
func (p *clientProcess) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// leave has a member leave its group and waits until it has.
func (p *clientProcess) leave() {
	p.t.Helper()
	p.stdin.Close()
	p.wait(30 * time.Second)
}

// wait waits until the program has ended well.
func (p *clientProcess) wait(limit time.Duration) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.kill()
		p.t.Fatalf("%s did not end within %s\n%s", p.name, limit, p.complaints())
	}
	if p.err != nil {
		p.t.Fatalf("%s: %v\n%s", p.name, p.err, p.complaints())
	}
}

const churnPartitions = 6

// churned is one group under churn.
type churned struct {
	t       *testing.T
	c       *nodetest.Cluster
	topic   string
	members []*clientProcess // all there ever were
	alive   []*clientProcess
	start   func()
}

// churn has two members take a topic, a third join, one die, and one leave as
// another joins, while records come all the time. Whenever the group is
// stable, every partition has one owner, and what is written then is read once.
func churn(t *testing.T, c *nodetest.Cluster, program []string, name, protocol string) {
	topic, group := "churn-"+name, "churn-"+name
	c.CreateTopic(topic, churnPartitions, 3, replicated)
	g := &churned{t: t, c: c, topic: topic}
	g.start = func() {
		m := startClient(t, fmt.Sprintf("%s member %d", name, len(g.members)), program, "member", c.Bootstrap(), topic, group, protocol)
		g.members, g.alive = append(g.members, m), append(g.alive, m)
	}
	ctx, stop := context.WithCancel(context.Background())
	fed := make(chan struct{})
	go func() { defer close(fed); g.feed(ctx) }()
	defer func() { stop(); <-fed }()
	g.start()
	g.start()
	g.settled("two members")
	g.start()
	g.settled("a third joined")
	g.remove(0).kill()
	g.settled("one died")
	g.start()
	g.remove(0).leave()
	g.settled("one left as another joined")
	stop()
	<-fed
	g.all()
	for len(g.alive) > 0 {
		g.remove(0).leave()
	}
	g.committed(group)
}

func (g *churned) remove(i int) *clientProcess {
	m := g.alive[i]
	g.alive = slices.Delete(g.alive, i, i+1)
	return m
}

// feed writes a record to every partition about ten times a second.
func (g *churned) feed(ctx context.Context) {
	cl := g.c.Client(kgo.DefaultProduceTopic(g.topic), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil {
		var round []*kgo.Record
		for p := range int32(churnPartitions) {
			round = append(round, &kgo.Record{Partition: p, Value: []byte("x")})
		}
		if err := cl.ProduceSync(context.Background(), round...).FirstErr(); err != nil {
			g.t.Error(err)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// owners waits until every member that lives has its share, and every
// partition one owner; it gives them.
func (g *churned) owners(when string) map[int32]string {
	g.t.Helper()
	var owners map[int32]string
	nodetest.Eventually(g.t, 45*time.Second, when+": every partition has one owner", func() error {
		owners = map[int32]string{}
		for _, m := range g.alive {
			select {
			case <-m.done:
				g.t.Fatalf("%s ended: %v\n%s", m.name, m.err, m.complaints())
			default:
			}
			m.mu.Lock()
			mine := slices.Sorted(maps.Keys(m.assigned))
			m.mu.Unlock()
			if len(mine) != churnPartitions/len(g.alive) {
				return fmt.Errorf("%s has %v", m.name, mine)
			}
			for _, p := range mine {
				if other := owners[p]; other != "" {
					return fmt.Errorf("partition %d belongs to %s and to %s", p, other, m.name)
				}
				owners[p] = m.name
			}
		}
		if len(owners) != churnPartitions {
			return fmt.Errorf("only %v have owners", owners)
		}
		return nil
	})
	return owners
}

// settled waits until the group is stable, and then watches what is written to
// the partitions: it is read once, by the partition's owner.
func (g *churned) settled(when string) {
	g.t.Helper()
	owners := g.owners(when)
	from := g.ends()
	to := g.past(from, 5)
	g.read(when, from, to)
	if now := g.owners(when); !maps.Equal(owners, now) {
		g.t.Errorf("%s: the owners were %v and are %v, though nobody came or went", when, owners, now)
	}
	for at, names := range g.readers(from, to) {
		if len(names) != 1 || names[0] != owners[at.partition] {
			g.t.Errorf("%s: record %d of partition %d, which %s owns, was read by %v", when, at.offset, at.partition, owners[at.partition], names)
		}
	}
}

// ends are the ends of the partitions.
func (g *churned) ends() map[int32]int64 {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	listed, err := g.c.Admin().ListEndOffsets(ctx, g.topic)
	if err != nil {
		g.t.Fatal(err)
	}
	ends := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends
}

// past waits until n more records are in every partition.
func (g *churned) past(from map[int32]int64, n int64) (to map[int32]int64) {
	g.t.Helper()
	nodetest.Eventually(g.t, 30*time.Second, "records come", func() error {
		to = g.ends()
		for p, end := range to {
			if end < from[p]+n {
				return fmt.Errorf("partition %d ends at %d, was %d", p, end, from[p])
			}
		}
		return nil
	})
	return to
}

// readers gives who has read the records of a range, in the order of members.
func (g *churned) readers(from, to map[int32]int64) map[place][]string {
	by := map[place][]string{}
	for _, m := range g.members {
		m.mu.Lock()
		for _, at := range m.records {
			if at.offset >= from[at.partition] && at.offset < to[at.partition] {
				by[at] = append(by[at], m.name)
			}
		}
		m.mu.Unlock()
	}
	return by
}

// read waits until every record of a range was read by somebody.
func (g *churned) read(when string, from, to map[int32]int64) {
	g.t.Helper()
	nodetest.Eventually(g.t, 30*time.Second, when+": every record is read", func() error {
		by := g.readers(from, to)
		for p, end := range to {
			for offset := from[p]; offset < end; offset++ {
				if len(by[place{p, offset}]) == 0 {
					return fmt.Errorf("record %d of partition %d was not read", offset, p)
				}
			}
		}
		return nil
	})
}

// all waits until every record that there is was read.
func (g *churned) all() {
	g.t.Helper()
	to := g.ends()
	g.read("at the end", map[int32]int64{}, to)
	total, times := int64(0), 0
	for _, end := range to {
		total += end
	}
	for _, names := range g.readers(map[int32]int64{}, to) {
		times += len(names)
	}
	g.t.Logf("%d records were read %d times", total, times)
}

// committed checks that the group goes on where the partitions end.
func (g *churned) committed(group string) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	offsets, err := g.c.Admin().FetchOffsets(ctx, group)
	if err != nil {
		g.t.Fatal(err)
	}
	for p, end := range g.ends() {
		if o, ok := offsets.Lookup(g.topic, p); !ok || o.At != end {
			g.t.Errorf("partition %d ends at %d, the group has committed %d (%v)", p, end, o.At, o.Err)
		}
	}
}
