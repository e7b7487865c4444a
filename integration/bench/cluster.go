package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// threeBrokers is a cluster that a load can be put on.
type threeBrokers struct {
	system  // its pid is not used
	pids    [3]int
	kill    func(i int) error // -9, from 0
	restart func(i int) error
}

// varvePort is the first broker's; each has three.
const varvePort = 19401

// startVarveCluster starts three brokers with a shared folder as bucket.
func (b *bench) startVarveCluster(name string, settings ...string) (*threeBrokers, error) {
	dir := filepath.Join(b.dir, name)
	c := &threeBrokers{system: system{name: name}}
	var voters, addrs []string
	for i := range c.pids {
		voters = append(voters, fmt.Sprintf("%d@127.0.0.1:%d", i+1, varvePort+10*i+1))
		addrs = append(addrs, fmt.Sprintf("127.0.0.1:%d", varvePort+10*i))
	}
	c.addr = strings.Join(addrs, ",")
	var stops [3]func() error
	start := func(i int) (err error) {
		text := fmt.Sprintf("node.id: %d\nlisteners: PLAINTEXT://%s,CONTROLLER://127.0.0.1:%d\ncontroller.quorum.voters: %q\nlog.dirs: %s\nvarve.http.listen: 127.0.0.1:%d\nvarve.tier.store: file://%s\nlog.segment.delete.delay.ms: 0\n%s\n",
			i+1, addrs[i], varvePort+10*i+1, strings.Join(voters, ","), filepath.Join(dir, strconv.Itoa(i+1)), varvePort+10*i+2, filepath.Join(dir, "bucket"), strings.Join(settings, "\n"))
		config := filepath.Join(dir, fmt.Sprintf("%d.yaml", i+1))
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			return err
		}
		c.pids[i], stops[i], err = b.process(fmt.Sprintf("%s-%d", name, i+1), nil, b.varve, "serve", "--config", config, "--log-level", "warn")
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "bucket"), 0o755); err != nil {
		return nil, err
	}
	for i := range c.pids {
		if err := start(i); err != nil {
			return nil, err
		}
	}
	c.kill = func(i int) error { return errors.Join(syscall.Kill(c.pids[i], syscall.SIGKILL), stops[i]()) }
	c.restart = start
	c.stop = func() error {
		var errs []error
		for _, stop := range stops {
			errs = append(errs, stop())
		}
		return errors.Join(append(errs, os.RemoveAll(dir))...)
	}
	return c, nil
}

// startKafkaCluster starts three brokers of Apache Kafka.
func (b *bench) startKafkaCluster(ctx context.Context) (*threeBrokers, error) {
	env := append(os.Environ(), "KAFKA_HOME="+filepath.Join(os.TempDir(), "kafka-peer"))
	script := func(args ...string) (string, error) {
		cmd := exec.CommandContext(context.WithoutCancel(ctx), b.kafka, args...)
		cmd.Env = env
		text, err := cmd.Output()
		return string(text), err
	}
	start := exec.CommandContext(ctx, b.kafka, "start", "3")
	start.Env = env
	if err := start.Run(); err != nil {
		return nil, fmt.Errorf("start three Kafka brokers: %w", err)
	}
	text, err := script("pids")
	if err != nil {
		return nil, err
	}
	c := &threeBrokers{system: system{name: "kafka", addr: "127.0.0.1:19092,127.0.0.1:19102,127.0.0.1:19112"}}
	for i, field := range strings.Fields(text) {
		if c.pids[i], err = strconv.Atoi(field); err != nil {
			return nil, err
		}
	}
	c.kill = func(i int) error { _, err := script("kill9", strconv.Itoa(i+1)); return err }
	c.restart = func(i int) error { _, err := script("restart", strconv.Itoa(i+1)); return err }
	c.stop = func() error { _, err := script("stop"); return err }
	return c, nil
}

// load runs one load on all three brokers.
func (b *bench) loadCluster(ctx context.Context, c *threeBrokers, args ...string) (figures, error) {
	var pids []string
	for _, pid := range c.pids {
		pids = append(pids, strconv.Itoa(pid))
	}
	args = append(args, "-brokers", c.addr, "-pids", strings.Join(pids, ","))
	cmd := exec.CommandContext(ctx, b.load, args...)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("load %s on %s: %w", strings.Join(args, " "), c.name, err)
	}
	return parseFigures(text)
}

// inSync waits until every partition of the topics has a leader and all its
// replicas in sync.
func (c *threeBrokers) inSync(ctx context.Context, topics ...string) error {
	return c.until(ctx, func(m kadm.Metadata) error {
		if len(m.Brokers) != len(c.pids) {
			return fmt.Errorf("%d brokers", len(m.Brokers))
		}
		var err error
		m.Topics.EachPartition(func(p kadm.PartitionDetail) {
			if p.Leader < 0 || len(p.ISR) < len(p.Replicas) {
				err = fmt.Errorf("%s-%d: leader %d, in sync %v of %v", p.Topic, p.Partition, p.Leader, p.ISR, p.Replicas)
			}
		})
		return err
	}, topics...)
}

func (c *threeBrokers) until(ctx context.Context, check func(kadm.Metadata) error, topics ...string) error {
	cl, err := dial(c.addr, kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		return err
	}
	defer cl.Close()
	return waitFor(func() error {
		m, err := kadm.NewClient(cl).Metadata(ctx, topics...)
		if err != nil {
			return err
		}
		return check(m)
	})
}

// cluster measures three brokers: Varve's with either durability, and Kafka's,
// one after the other in every round.
func (b *bench) cluster(ctx context.Context) error {
	starts := []func() (*threeBrokers, error){
		func() (*threeBrokers, error) {
			return b.startVarveCluster("varve3-replicated", "varve.durability: replicated")
		},
		func() (*threeBrokers, error) { return b.startVarveCluster("varve3-fsync") },
		func() (*threeBrokers, error) { return b.startKafkaCluster(ctx) },
	}
	for round := range *rounds + 1 {
		for _, start := range starts {
			c, err := start()
			if err != nil {
				return err
			}
			err = b.clusterRound(ctx, c, round)
			if err := errors.Join(err, c.stop()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) clusterRound(ctx context.Context, c *threeBrokers, round int) error {
	if err := c.inSync(ctx); err != nil {
		return err
	}
	// The first run warms the brokers up, JVMs above all.
	if _, err := b.loadCluster(ctx, c, "produce", "-topic", "warm", "-rf", "3", "-size", "1024", "-count", "600000"); err != nil {
		return err
	}
	for _, l := range []load{
		{"produce-rf3", []string{"produce", "-topic", "bulk", "-rf", "3", "-size", "1024", "-count", "600000", "-configs", "min.insync.replicas=2"}},
		{"paced-rf3", []string{"paced", "-topic", "paced", "-rf", "3", "-size", "1024", "-rate", "5000", "-seconds", "8", "-configs", "min.insync.replicas=2"}},
	} {
		if err := b.touch(ctx, "2GiB"); err != nil {
			return err
		}
		f, err := b.loadCluster(ctx, c, l.args...)
		if err != nil {
			return err
		}
		if err := b.note(measured{"cluster", l.name, c.name, round, f}); err != nil {
			return err
		}
	}
	return nil
}

// failoverPartitions are how many partitions the cluster of each run has; a
// third of them lose their leader.
var failoverPartitions = []int{3, 300, 1000}

// failover kills the broker that leads a third of a topic's partitions, under
// load, and notes the longest silence of any partition.
func (b *bench) failover(ctx context.Context) error {
	for _, n := range failoverPartitions {
		err := b.eachNew(ctx, func(ctx context.Context, c *threeBrokers, round int) error {
			return b.failoverRound(ctx, c, round, n)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) failoverRound(ctx context.Context, c *threeBrokers, round, partitions int) error {
	if err := c.inSync(ctx); err != nil {
		return err
	}
	if err := createTopic(ctx, c.addr, "gap", partitions, 3, map[string]string{"min.insync.replicas": "2"}); err != nil {
		return err
	}
	if err := c.inSync(ctx, "gap"); err != nil {
		return err
	}
	killed := make(chan error, 1)
	timer := time.AfterFunc(8*time.Second, func() { killed <- c.kill(0) })
	defer timer.Stop()
	f, err := b.loadCluster(ctx, c, "gap", "-topic", "gap", "-rate", "2000", "-seconds", "25", "-size", "100")
	if err := errors.Join(err, <-killed); err != nil {
		return err
	}
	return b.note(measured{"failover", fmt.Sprint("failover-", partitions), c.name, round, f})
}

// idle measures what 3,000 partitions of three replicas cost while nothing
// happens and their creation is over, and how long the whole cluster takes from kill -9 of all brokers
// until everything is in sync again.
func (b *bench) idle(ctx context.Context) error {
	return b.eachNew(ctx, b.idleRound)
}

// eachNew runs what on a new cluster of each kind, in every round: with nothing
// before it, there is nothing to warm up.
func (b *bench) eachNew(ctx context.Context, what func(context.Context, *threeBrokers, int) error) error {
	starts := []candidate[*threeBrokers]{
		{"varve3", func() (*threeBrokers, error) { return b.startVarveCluster("varve3") }},
		{"kafka", func() (*threeBrokers, error) { return b.startKafkaCluster(ctx) }},
	}
	for round := 1; round <= *rounds; round++ {
		for _, system := range starts {
			if !chosen(system.name) {
				continue
			}
			c, err := system.start()
			if err != nil {
				return err
			}
			err = what(ctx, c, round)
			if err := errors.Join(err, c.stop()); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *bench) idleRound(ctx context.Context, c *threeBrokers, round int) error {
	const topics, partitions, settle, seconds = 3, 1000, 20, 20
	names := make([]string, topics)
	if err := c.inSync(ctx); err != nil {
		return err
	}
	for i := range names {
		names[i] = fmt.Sprint("idle", i)
		if err := createTopic(ctx, c.addr, names[i], partitions, 3, nil); err != nil {
			return err
		}
	}
	if err := c.inSync(ctx, names...); err != nil {
		return err
	}
	// In sync says nothing of the fetch sessions that are still to begin, nor of
	// what brokers do with a thousand logs that have just been opened.
	if err := pause(ctx, settle*time.Second); err != nil {
		return err
	}
	before, err := c.cost()
	if err == nil {
		err = pause(ctx, seconds*time.Second)
	}
	if err != nil {
		return err
	}
	after, err := c.cost()
	if err != nil {
		return err
	}
	f := figures{
		"cpu_percent":   100 * (after.cpu - before.cpu).Seconds() / seconds,
		"bytes_per_s":   (after.loopback - before.loopback) / seconds,
		"packets_per_s": (after.packets - before.packets) / seconds,
	}
	for i := range c.pids {
		if err := c.kill(i); err != nil {
			return err
		}
	}
	began := time.Now()
	// All at once: a broker of Kafka's opens its port only when the quorum
	// has a majority, so that the first of them would wait for the others.
	started := make(chan error, len(c.pids))
	for i := range c.pids {
		go func() { started <- c.restart(i) }()
	}
	for range c.pids {
		err = errors.Join(err, <-started)
	}
	if err != nil {
		return err
	}
	if err := c.inSync(ctx, names...); err != nil {
		return err
	}
	f["restart_s"] = time.Since(began).Seconds()
	return b.note(measured{"idle", "idle-3000", c.name, round, f})
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cost is what the brokers have used, and what has gone over loopback: while
// nothing else runs, that is what brokers say to each other.
type cost struct {
	cpu               time.Duration
	loopback, packets float64
}

func (c *threeBrokers) cost() (cost, error) {
	var sum cost
	for _, pid := range c.pids {
		cpu, err := cpuOf(pid)
		if err != nil {
			return cost{}, err
		}
		sum.cpu += cpu
	}
	for name, to := range map[string]*float64{"rx_bytes": &sum.loopback, "rx_packets": &sum.packets} {
		text, err := os.ReadFile("/sys/class/net/lo/statistics/" + name)
		if err != nil {
			return cost{}, err
		}
		if *to, err = strconv.ParseFloat(strings.TrimSpace(string(text)), 64); err != nil {
			return cost{}, err
		}
	}
	return sum, nil
}

// replica measures what a new replica of a tiered partition copies from other
// brokers: most of the partition is only in the bucket.
func (b *bench) replica(ctx context.Context) error {
	for round := 1; round <= *rounds; round++ { // each cluster is new: there is nothing to warm up
		c, err := b.startVarveCluster("varve3", "log.retention.check.interval.ms: 500")
		if err != nil {
			return err
		}
		err = b.replicaRound(ctx, c, round)
		if err := errors.Join(err, c.stop()); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) replicaRound(ctx context.Context, c *threeBrokers, round int) error {
	const topic, records, segment, local = "archive", 5 << 20, 64 << 20, 512 << 20 // 5 GiB, of which half a GiB stays local
	if err := c.inSync(ctx); err != nil {
		return err
	}
	cl, err := dial(c.addr)
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	value := func(n int) *string { return kadm.StringPtr(strconv.Itoa(n)) }
	if _, err := adm.CreateTopic(ctx, 1, 2, map[string]*string{
		"remote.storage.enable": kadm.StringPtr("true"), "segment.bytes": value(segment), "local.retention.bytes": value(local), "min.insync.replicas": value(2),
	}, topic); err != nil {
		return err
	}
	if _, err := b.loadCluster(ctx, c, "produce", "-topic", topic, "-size", "1024", "-count", strconv.Itoa(records)); err != nil {
		return err
	}
	had, newcomer, err := c.replicasOf(ctx, topic)
	if err != nil {
		return err
	}
	left, err := waitLocal(ctx, cl, topic, local+2*segment)
	if err != nil {
		return err
	}
	before, err := c.cost()
	if err != nil {
		return err
	}
	began := time.Now()
	var move kadm.AlterPartitionAssignmentsReq
	move.Assign(topic, 0, []int32{had, newcomer})
	if _, err := adm.AlterPartitionAssignments(ctx, move); err != nil {
		return err
	}
	if err := c.until(ctx, func(m kadm.Metadata) error {
		p := m.Topics[topic].Partitions[0]
		if len(p.Replicas) != 2 || len(p.ISR) != 2 || p.Replicas[1] != newcomer && p.Replicas[0] != newcomer {
			return fmt.Errorf("replicas %v, in sync %v", p.Replicas, p.ISR)
		}
		return nil
	}, topic); err != nil {
		return err
	}
	after, err := c.cost()
	if err != nil {
		return err
	}
	return b.note(measured{"replica", "empty-replica", c.name, round, figures{
		"copied_mib": (after.loopback - before.loopback) / (1 << 20), "local_mib": left / (1 << 20), "whole_mib": records / 1024,
		"copied_per_local": (after.loopback - before.loopback) / left, "seconds": time.Since(began).Seconds()}})
}

// offsetAt asks for the offset of a special timestamp in a topic's partition 0.
func offsetAt(ctx context.Context, cl *kgo.Client, topic string, timestamp int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Timestamp, p.CurrentLeaderEpoch = timestamp, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("ListOffsets: %+v", resp)
	}
	a := resp.Topics[0].Partitions[0]
	return a.Offset, kerr.ErrorForCode(a.ErrorCode)
}

// replicasOf is a broker that has partition 0 of a topic with two replicas, and
// the one that has not, once both replicas are in sync.
func (c *threeBrokers) replicasOf(ctx context.Context, topic string) (had, has int32, err error) {
	err = c.until(ctx, func(m kadm.Metadata) error {
		p := m.Topics[topic].Partitions[0]
		if p.Leader < 0 || len(p.ISR) < 2 {
			return fmt.Errorf("in sync %v", p.ISR)
		}
		had, has = p.Replicas[0], 6-p.Replicas[0]-p.Replicas[1]
		return nil
	}, topic)
	return had, has, err
}

// waitLocal waits until no more than limit bytes of a topic's partition 0 are
// on local disk, and gives how many are.
func waitLocal(ctx context.Context, cl *kgo.Client, topic string, limit float64) (left float64, err error) {
	err = waitFor(func() error {
		start, err := offsetAt(ctx, cl, topic, -4)
		if err != nil {
			return err
		}
		end, err := offsetAt(ctx, cl, topic, -1)
		if err != nil {
			return err
		}
		left = float64(end-start) * 1100 // a record takes a little more than its value
		if left > limit {
			return fmt.Errorf("%.0f MiB are local yet", left/(1<<20))
		}
		return nil
	})
	return left, err
}
