package integration

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/integration/nodetest"
)

// TestKafkaToolsOnGroupsAndTransactions runs kafka-consumer-groups and
// kafka-transactions of Apache Kafka 4.4.0 against three nodes.
func TestKafkaToolsOnGroupsAndTransactions(t *testing.T) {
	needsJVM(t)
	c := nodetest.StartCluster(t, nodetest.ClusterOptions{Settings: map[string]string{
		"offsets.topic.num.partitions": "4", "transaction.state.log.num.partitions": "4",
		"group.consumer.assignment.interval.ms": "0",
	}})
	c.CreateTopic("readings", 2, 3, replicated)
	fillReadings(t, c)
	tools := startKafkaTools(t, c.Node(1))
	for _, step := range []struct {
		name string
		run  func(k *kafkaTools, c *nodetest.Cluster)
	}{
		{"kafka-consumer-groups shows groups with members", groupsShown},
		{"kafka-consumer-groups resets offsets", groupsReset},
		{"kafka-consumer-groups deletes", groupsDelete},
		{"kafka-transactions shows transactions", transactionsShown},
		{"kafka-transactions finds and aborts a hanging one", transactionsHanging},
	} {
		ok := t.Run(step.name, func(t *testing.T) { step.run(tools.at(t, c.Bootstrap()), c) })
		if !ok {
			return // the steps build on each other
		}
	}
}

const (
	readingsStart = 1_700_000_000_000 // when record 0 of each partition was made
	readingsCount = 100               // in each of two partitions
)

// fillReadings writes records that are a minute apart.
func fillReadings(t *testing.T, c *nodetest.Cluster) {
	t.Helper()
	cl := c.Client(kgo.DefaultProduceTopic("readings"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var all []*kgo.Record
	for i := range readingsCount {
		for p := range int32(2) {
			all = append(all, &kgo.Record{Partition: p, Value: fmt.Append(nil, i), Timestamp: time.UnixMilli(readingsStart + 60_000*int64(i))})
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := cl.ProduceSync(ctx, all...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (k *kafkaTools) groups(args ...string) string {
	k.Helper()
	return k.run("consumer.group.ConsumerGroupCommand", args...)
}

// groupsShown has one member in a group of each protocol.
func groupsShown(k *kafkaTools, c *nodetest.Cluster) {
	for group, opts := range map[string][]kgo.Opt{
		"old": {kgo.Balancers(kgo.RangeBalancer()), kgo.InstanceID("desk-1"), kgo.ClientID("reader")},
		"new": {kgo.ServerSideBalancer(), kgo.ClientID("reader")},
	} {
		cl := c.Client(append(opts, kgo.ConsumerGroup(group), kgo.ConsumeTopics("readings"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.DisableAutoCommit())...)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		for n := 0; n < 2*readingsCount; {
			f := cl.PollFetches(ctx)
			if ctx.Err() != nil {
				k.Fatalf("group %s has read %d records", group, n)
			}
			n += f.NumRecords()
		}
		if err := cl.CommitUncommittedOffsets(ctx); err != nil {
			k.Fatal(err)
		}
		cancel()
		defer cl.LeaveGroup()
		defer cl.Close()
	}
	k.matches(k.groups("--list", "--state"), `(?m)^new +Stable\s*$`)
	listed := k.groups("--list", "--type", "--state", "stable")
	k.matches(listed, `(?m)^new +Consumer +Stable\s*$`)
	k.matches(listed, `(?m)^old +Classic +Stable\s*$`)
	if only := strings.Fields(k.groups("--list", "--type", "classic")); !slices.Contains(only, "old") || slices.Contains(only, "new") {
		k.Errorf("classic groups are %v", only)
	}
	offsets := k.groups("--describe", "--all-groups")
	k.matches(offsets, `(?m)^old +readings +1 +100 +100 +0 +\S+ +/127.0.0.1 +reader`)
	k.matches(offsets, `(?m)^new +readings +0 +100 +100 +0 +\S+ +/127.0.0.1 +reader`)
	states := k.groups("--describe", "--state", "--all-groups")
	k.matches(states, `(?m)^old +127.0.0.1:\d+ +\([123]\) +range +Stable +1`)
	k.matches(states, `(?m)^new +127.0.0.1:\d+ +\([123]\) +uniform +Stable +1`)
	k.matches(k.groups("--describe", "--state", "--verbose", "--group", "new"), `(?m)^new +127.0.0.1:\d+ +\([123]\) +uniform +Stable +\d+ +\d+ +1`)
	members := k.groups("--describe", "--members", "--verbose", "--all-groups")
	k.matches(members, `(?m)^old +\S+ +desk-1 +/127.0.0.1 +reader +2 +.*readings:0,1`)
	k.matches(members, `(?m)^new +\S+ +(-|null)? *\S* */127.0.0.1 +reader +2 +.*readings:0,1`)
	// The tool says so, and ends with status 0.
	k.matches(k.groups("--group", "new", "--topic", "readings", "--reset-offsets", "--to-earliest", "--execute"),
		`Assignments can only be reset if the group 'new' is inactive, but the current state is Stable`)
}

// groupsReset goes through every way to say where a group shall go on.
func groupsReset(k *kafkaTools, c *nodetest.Cluster) {
	waitEmpty(k, c, "old", "new")
	reset := func(group string, args ...string) string {
		k.Helper()
		return k.groups(append([]string{"--reset-offsets", "--group", group}, args...)...)
	}
	at := time.UnixMilli(readingsStart + 70*60_000)
	for _, step := range []struct {
		group string
		args  []string
		want  [2]int // offsets of the two partitions
	}{
		{"new", []string{"--all-topics", "--to-earliest"}, [2]int{0, 0}},
		{"new", []string{"--topic", "readings", "--to-latest"}, [2]int{100, 100}},
		{"new", []string{"--topic", "readings:1", "--to-offset", "40"}, [2]int{100, 40}},
		{"new", []string{"--topic", "readings", "--shift-by", "-30"}, [2]int{70, 10}},
		{"old", []string{"--topic", "readings:0,1", "--shift-by", "25"}, [2]int{100, 100}}, // no further than the end
		{"old", []string{"--topic", "readings", "--to-datetime", at.UTC().Format("2006-01-02T15:04:05.000")}, [2]int{70, 70}},
		{"old", []string{"--topic", "readings:0", "--by-duration", fmt.Sprintf("PT%dS", int(time.Since(at.Add(4*time.Minute+5*time.Second)).Seconds()))}, [2]int{75, 70}},
		{"old", []string{"--topic", "readings", "--to-current"}, [2]int{75, 70}},
	} {
		printed := reset(step.group, append(step.args, "--execute")...)
		for p, offset := range step.want {
			if strings.Contains(strings.Join(step.args, " "), fmt.Sprintf("readings:%d", 1-p)) && !strings.Contains(strings.Join(step.args, " "), "0,1") {
				continue // the other partition alone was asked for
			}
			k.matches(printed, fmt.Sprintf(`(?m)^%s +readings +%d +%d *$`, step.group, p, offset))
		}
		k.committed(c, step.group, step.want)
	}
	plan := reset("old", "--topic", "readings", "--to-offset", "5", "--dry-run", "--export")
	k.committed(c, "old", [2]int{75, 70}) // that was a plan
	k.wants(plan, "readings,0,5\n", "readings,1,5\n")
	reset("old", "--from-file", k.file("plan.csv", plan), "--execute")
	k.committed(c, "old", [2]int{5, 5})
}

// waitEmpty waits until groups have no members any more.
func waitEmpty(k *kafkaTools, c *nodetest.Cluster, groups ...string) {
	k.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, group := range groups {
		req := kmsg.NewPtrLeaveGroupRequest() // a static member stays until it is told to go
		req.Group = group
		m := kmsg.NewLeaveGroupRequestMember()
		m.InstanceID = kmsg.StringPtr("desk-1")
		req.Members = append(req.Members, m)
		if _, err := req.RequestWith(ctx, c.Client()); err != nil {
			k.Fatal(err)
		}
	}
	nodetest.Eventually(k.T, time.Minute, "the groups are empty", func() error {
		listed, err := c.Admin().ListGroups(ctx)
		if err != nil {
			return err
		}
		for _, group := range groups {
			if state := listed[group].State; state != "Empty" {
				return fmt.Errorf("group %s is %s", group, state)
			}
		}
		return nil
	})
}

// committed checks a group's offsets.
func (k *kafkaTools) committed(c *nodetest.Cluster, group string, want [2]int) {
	k.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	offsets, err := c.Admin().FetchOffsets(ctx, group)
	if err != nil {
		k.Fatal(err)
	}
	for p, offset := range want {
		if o, ok := offsets.Lookup("readings", int32(p)); !ok || o.At != int64(offset) {
			k.Errorf("group %s is at %d in partition %d, want %d", group, o.At, p, offset)
		}
	}
}

func groupsDelete(k *kafkaTools, c *nodetest.Cluster) {
	k.matches(k.groups("--delete-offsets", "--group", "old", "--topic", "readings:1"), `(?m)^readings +1 +Successful\s*$`)
	described := k.groups("--describe", "--group", "old")
	k.matches(described, `(?m)^old +readings +0 +5 +100 +95 `)
	if regexp.MustCompile(`(?m)^old +readings +1 `).MatchString(described) {
		k.Errorf("partition 1 is still there:\n%s", described)
	}
	k.matches(k.groups("--delete", "--group", "old", "--group", "new"), `Deletion of requested consumer groups \('(old', 'new|new', 'old)'\) was successful.`)
	for _, group := range strings.Fields(k.groups("--list")) {
		if group == "old" || group == "new" {
			k.Errorf("group %s is still listed", group)
		}
	}
}

func (k *kafkaTools) transactions(args ...string) string {
	k.Helper()
	return k.run("TransactionsCommand", args...)
}

func transactionsShown(k *kafkaTools, c *nodetest.Cluster) {
	c.CreateTopic("payments", 2, 3, replicated)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl := c.Client(kgo.TransactionalID("till-1"), kgo.DefaultProduceTopic("payments"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := cl.BeginTransaction(); err != nil {
		k.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, &kgo.Record{Partition: 1, Value: []byte("x")}).FirstErr(); err != nil {
		k.Fatal(err)
	}
	id, epoch, err := cl.ProducerID(ctx)
	if err != nil {
		k.Fatal(err)
	}
	k.matches(k.transactions("list"), fmt.Sprintf(`(?m)^till-1\s+[123]\s+%d\s+Ongoing\s*$`, id))
	k.matches(k.transactions("describe", "--transactional-id", "till-1"),
		fmt.Sprintf(`(?m)^[123]\s+till-1\s+%d\s+%d\s+Ongoing\s+\d+\s+\d+\s+\d+\s+payments-1\s*$`, id, epoch))
	k.matches(k.transactions("describe-producers", "--topic", "payments", "--partition", "1"), fmt.Sprintf(`(?m)^%d\s+%d\s+\S+\s+0\s+\d+\s+0\s*$`, id, epoch))
	if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
		k.Fatal(err)
	}
	nodetest.Eventually(k.T, 30*time.Second, "the transaction is over", func() error {
		if d, err := c.Admin().DescribeTransactions(ctx, "till-1"); err != nil || d["till-1"].State != "CompleteCommit" {
			return fmt.Errorf("%+v, %w", d, err)
		}
		return nil
	})
	k.matches(k.transactions("list", "--duration-filter", "0"), `(?m)^TransactionalId`)
	k.matches(k.transactions("describe", "--transactional-id", "till-1"), fmt.Sprintf(`(?m)^[123]\s+till-1\s+%d\s+\d+\s+CompleteCommit\s`, id))
	k.matches(k.transactions("describe-producers", "--topic", "payments", "--partition", "1"), fmt.Sprintf(`(?m)^%d\s+\d+\s+\S+\s+\S+\s+\d+\s+None\s*$`, id))
}

// transactionsHanging leaves records in a partition whose transaction nobody
// will end, as brokers without verification took them: readers of what is
// committed wait for it for ever, until the tool has found and ended it.
func transactionsHanging(k *kafkaTools, c *nodetest.Cluster) {
	k.run("ConfigCommand", "--entity-type", "brokers", "--entity-default", "--alter", "--add-config", "transaction.partition.verification.enable=false")
	hang(k, c, 0)
	k.run("ConfigCommand", "--entity-type", "brokers", "--entity-default", "--alter", "--delete-config", "transaction.partition.verification.enable")
	end, stable := highAndStable(k, c, "payments", 0)
	if end != 1 || stable != 0 {
		k.Fatalf("the partition ends at %d and is stable to %d", end, stable)
	}
	leader := fmt.Sprint(c.Leader("payments", 0))
	found := k.transactions("find-hanging", "--broker-id", leader)
	k.matches(found, `(?m)^payments\s+0\s+987654\s+3\s+\S+\s+0\s`)
	k.matches(k.transactions("find-hanging", "--topic", "payments"), `(?m)^payments\s+0\s+987654\s+3\s+\S+\s+0\s`)
	if out := k.transactions("find-hanging", "--topic", "readings"); strings.Contains(out, "987654") {
		k.Errorf("found in another topic:\n%s", out)
	}
	k.transactions("abort", "--topic", "payments", "--partition", "0", "--start-offset", "0")
	nodetest.Eventually(k.T, 30*time.Second, "the hanging transaction is over", func() error {
		if end, stable := highAndStable(k, c, "payments", 0); end != 2 || stable != 2 {
			return fmt.Errorf("the partition ends at %d and is stable to %d", end, stable)
		}
		return nil
	})
	if values := readTopic(k.T, c, "payments", kgo.ReadCommitted()); !slices.Equal(values, []string{"x"}) {
		k.Errorf("committed are %v", values)
	}
	if out := k.transactions("find-hanging", "--broker-id", leader); strings.Contains(out, "987654") {
		k.Errorf("still found:\n%s", out)
	}
}

// hang writes a record of a transaction that no coordinator knows, an hour old.
func hang(k *kafkaTools, c *nodetest.Cluster, partition int32) {
	k.Helper()
	b := batch.NewBuilder(batch.Options{Transactional: true, Producer: &batch.Producer{ID: 987654, Epoch: 3}})
	if err := b.Append(time.Now().Add(-time.Hour).UnixMilli(), nil, []byte("hangs"), nil); err != nil {
		k.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis, req.TransactionID = -1, 10_000, kmsg.StringPtr("nobody")
	t, p := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, b.Bytes()
	t.Topic, t.Partitions = "payments", append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	cl := c.Client(kgo.MaxVersions(kversion.V3_0_0()))                             // of the first transaction protocol
	nodetest.Eventually(k.T, 30*time.Second, "the record is taken", func() error { // brokers hear of the setting by and by
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		r, err := cl.Broker(int(c.Leader("payments", partition))).Request(ctx, req)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(r.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode)
	})
}

func highAndStable(k *kafkaTools, c *nodetest.Cluster, topic string, partition int32) (high, stable int64) {
	k.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	offset := func(listed kadm.ListedOffsets, err error) int64 {
		k.Helper()
		o, ok := listed.Lookup(topic, partition)
		if err != nil || !ok || o.Err != nil {
			k.Fatalf("offset of %s-%d: %v %v", topic, partition, err, o.Err)
		}
		return o.Offset
	}
	return offset(c.Admin().ListEndOffsets(ctx, topic)), offset(c.Admin().ListCommittedOffsets(ctx, topic))
}
