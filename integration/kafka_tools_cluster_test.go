package integration

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// TestKafkaToolsOnThreeNodes runs Apache Kafka 4.4.0's own tools for clusters
// against three nodes. Each must end with status 0 and print what is true.
func TestKafkaToolsOnThreeNodes(t *testing.T) {
	needsJVM(t)
	c := nodetest.StartCluster(t, nodetest.ClusterOptions{
		NodeSettings: func(id int32) map[string]string { return map[string]string{"broker.rack": fmt.Sprintf("r%d", id)} },
	})
	tools := startKafkaTools(t, c.Node(1))
	for _, step := range []struct {
		name string
		run  func(k *kafkaTools, c *nodetest.Cluster)
	}{
		{"kafka-topics", clusterTopics},
		{"kafka-metadata-quorum", clusterQuorum},
		{"kafka-features", clusterFeatures},
		{"kafka-topics and kafka-leader-election around a dead node", clusterDeadNode},
		{"kafka-reassign-partitions", clusterReassign},
		{"kafka-configs", clusterConfigs},
		{"kafka-cluster", clusterTool},
	} {
		ok := t.Run(step.name, func(t *testing.T) { step.run(tools.at(t, c.Bootstrap()), c) })
		if !ok {
			return // the steps build on each other
		}
	}
}

func clusterTopics(k *kafkaTools, c *nodetest.Cluster) {
	k.run("TopicCommand", "--create", "--topic", "three", "--partitions", "3", "--replication-factor", "3", "--config", "min.insync.replicas=2")
	c.WaitInSync(time.Minute, "three")
	described := k.run("TopicCommand", "--describe", "--topic", "three")
	k.wants(described, "PartitionCount: 3", "ReplicationFactor: 3", "min.insync.replicas=2")
	for leader := 1; leader <= 3; leader++ {
		k.matches(described, fmt.Sprintf(`Leader: %d\tReplicas: %d,\d,\d\tIsr: \d,\d,\d\tElr: \t`, leader, leader))
	}
	if out := k.run("TopicCommand", "--describe", "--under-replicated-partitions"); strings.TrimSpace(out) != "" {
		k.Errorf("under-replicated:\n%s", out)
	}
}

func clusterQuorum(k *kafkaTools, c *nodetest.Cluster) {
	status := k.run("MetadataQuorumCommand", "describe", "--status")
	k.matches(status, `LeaderId: +[123]\n`)
	k.matches(status, `CurrentVoters: +\[.*"id": 1, .*"id": 2, .*"id": 3, .*CONTROLLER://127.0.0.1:`)
	k.matches(status, `CurrentObservers: +\[\]`)
	replication := k.run("MetadataQuorumCommand", "describe", "--replication")
	if n := strings.Count(replication, "Follower"); n != 2 || strings.Count(replication, "Leader") != 1 {
		k.Errorf("replication of the quorum:\n%s", replication)
	}
	clusterVoter(k, c, status)
}

// clusterVoter takes a follower's vote away and gives it back. For that the tool
// reads who the node is from its settings and from the file in its metadata
// directory, which has the name and the form of Kafka's.
func clusterVoter(k *kafkaTools, c *nodetest.Cluster, status string) {
	id := int32(1)
	if regexp.MustCompile(`LeaderId: +1\n`).MatchString(status) {
		id = 2
	}
	found := regexp.MustCompile(fmt.Sprintf(`"id": %d, "directoryId": "?([A-Za-z0-9_-]{22})`, id)).FindStringSubmatch(status)
	if found == nil {
		k.Fatalf("node %d has no directory in:\n%s", id, status)
	}
	voters := func(n int) {
		k.Helper()
		nodetest.Eventually(k.T, 30*time.Second, "the voters are as they should be", func() error {
			status = k.run("MetadataQuorumCommand", "describe", "--status")
			line := regexp.MustCompile(`CurrentVoters: .*`).FindString(status)
			if got := strings.Count(line, `"id"`); got != n {
				return fmt.Errorf("%d voters: %s", got, status)
			}
			return nil
		})
	}
	k.wants(k.run("MetadataQuorumCommand", "remove-controller", "--controller-id", fmt.Sprint(id), "--controller-directory-id", found[1]),
		fmt.Sprintf("Removed KRaft controller %d with directory id %s", id, found[1]))
	voters(2)
	k.matches(status, fmt.Sprintf(`CurrentObservers: .*"id": %d,`, id))
	own := k.file("controller.properties", fmt.Sprintf(
		"process.roles=controller\nnode.id=%d\nlog.dirs=%s\ncontroller.listener.names=CONTROLLER\nlisteners=CONTROLLER://%s\n",
		id, filepath.Join(c.Node(id).DataDir(), "meta"), c.Node(id).Controller))
	k.wants(k.run("MetadataQuorumCommand", "--command-config", own, "add-controller"), fmt.Sprintf("Added controller %d with directory id %s", id, found[1]))
	voters(3)
}

func clusterFeatures(k *kafkaTools, _ *nodetest.Cluster) {
	described := k.run("FeatureCommand", "describe")
	k.matches(described, `metadata.version\s+SupportedMinVersion: \S+\s+SupportedMaxVersion: \S+\s+FinalizedVersionLevel: 4`)
	k.matches(described, `transaction.version\s.*FinalizedVersionLevel: 2`)
	k.wants(k.run("FeatureCommand", "upgrade", "--feature", "group.version=1"), "group.version was upgraded to 1.")
}

// clusterDeadNode kills node 3, which leads three-2, and has it lead again.
func clusterDeadNode(k *kafkaTools, c *nodetest.Cluster) {
	c.Node(3).Kill()
	nodetest.Eventually(k.T, 30*time.Second, "others lead", func() error {
		for _, id := range []int32{1, 2} {
			m, err := c.Metadata(id, "three")
			if err != nil {
				return err
			}
			if p := m.Topics["three"].Partitions[2]; p.Leader == 3 || len(p.ISR) != 2 {
				return fmt.Errorf("node %d says %+v", id, p)
			}
		}
		return nil
	})
	out := k.run("TopicCommand", "--describe", "--under-replicated-partitions")
	if n := strings.Count(out, "Topic: three\tPartition:"); n != 3 {
		k.Errorf("%d partitions are under-replicated:\n%s", n, out)
	}
	k.matches(k.run("TopicCommand", "--describe", "--at-min-isr-partitions"), `Topic: three\tPartition: 2\tLeader: [12]\t`)
	if out := k.run("TopicCommand", "--describe", "--unavailable-partitions"); strings.TrimSpace(out) != "" {
		k.Errorf("unavailable:\n%s", out)
	}
	c.Node(3).Restart()
	c.WaitInSync(time.Minute, "three")
	k.wants(k.run("LeaderElectionCommand", "--election-type", "preferred", "--topic", "three", "--partition", "2"),
		"Successfully completed leader election (PREFERRED) for partitions three-2")
	k.wants(k.run("LeaderElectionCommand", "--election-type", "preferred", "--topic", "three", "--partition", "0"),
		"Valid replica already elected for partitions three-0")
	k.wants(k.run("LeaderElectionCommand", "--election-type", "unclean", "--topic", "three", "--partition", "1"),
		"Valid replica already elected for partitions three-1")
}

// clusterReassign moves two partitions: so slowly that it can be seen and
// cancelled, and then for good.
func clusterReassign(k *kafkaTools, c *nodetest.Cluster) {
	k.run("TopicCommand", "--create", "--topic", "moves", "--replica-assignment", "1:2,2:1")
	c.WaitInSync(time.Minute, "moves")
	cl := c.Client(kgo.DefaultProduceTopic("moves"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	value := []byte(strings.Repeat("x", 100_000))
	for i := range int32(60) {
		if err := cl.ProduceSync(ctx, &kgo.Record{Partition: i % 2, Value: value}).FirstErr(); err != nil {
			k.Fatal(err)
		}
	}
	topics := k.file("topics.json", `{"topics":[{"topic":"moves"}],"version":1}`)
	k.wants(k.run("reassign.ReassignPartitionsCommand", "--topics-to-move-json-file", topics, "--broker-list", "2,3", "--generate"),
		`"topic":"moves","partition":0,"replicas":[1,2]`, "Proposed partition reassignment configuration")
	plan := k.file("plan.json", `{"version":1,"partitions":[{"topic":"moves","partition":0,"replicas":[2,3]},{"topic":"moves","partition":1,"replicas":[3,2]}]}`)
	run := func(args ...string) string {
		k.Helper()
		return k.run("reassign.ReassignPartitionsCommand", append([]string{"--reassignment-json-file", plan}, args...)...)
	}
	k.wants(run("--execute", "--throttle", "1000"), "Successfully started partition reassignments for moves-0,moves-1")
	k.until(`moves-0: replicas: 2,3,1. adding: 3. removing: 1.`, "reassign.ReassignPartitionsCommand", "--list")
	k.until(`Reassignment of partition moves-0 is still in progress.`, "reassign.ReassignPartitionsCommand", "--reassignment-json-file", plan, "--verify")
	k.wants(run("--cancel"), "Successfully cancelled partition reassignments for: moves-0,moves-1")
	k.until(`No partition reassignments found.`, "reassign.ReassignPartitionsCommand", "--list")
	k.until(`Partition: 0\tLeader: [12]\tReplicas: [12],[12]\t`, "TopicCommand", "--describe", "--topic", "moves")

	k.wants(run("--execute", "--throttle", "50000000"), "Successfully started")
	verified := k.until(`moves-0 is completed.(\n.*)*moves-1 is completed.`, "reassign.ReassignPartitionsCommand", "--reassignment-json-file", plan, "--verify")
	k.wants(verified, "Clearing broker-level throttles on brokers 1,2,3", "Clearing topic-level throttles on topic moves")
	c.WaitInSync(time.Minute, "moves")
	// No throttle is left behind.
	k.until(`\tConfigs: (min.insync.replicas=1)?\n(.*\n)*.*Partition: 0\tLeader: \d\tReplicas: 2,3\tIsr: [23],[23]\t`, "TopicCommand", "--describe", "--topic", "moves")
}

func clusterConfigs(k *kafkaTools, _ *nodetest.Cluster) {
	alter := func(entity ...string) {
		k.Helper()
		k.run("ConfigCommand", append(entity, "--alter", "--add-config", "log.cleaner.delete.retention.ms=1234567")...)
	}
	for _, entity := range [][]string{
		{"--entity-type", "brokers", "--entity-name", "2"}, // whichever broker is asked
		{"--entity-type", "brokers", "--entity-name", "3"},
		{"--entity-type", "brokers", "--entity-default"},
	} {
		alter(entity...)
		nodetest.Eventually(k.T, 30*time.Second, "the setting is shown", func() error {
			if out := k.run("ConfigCommand", append(entity, "--describe")...); !strings.Contains(out, "log.cleaner.delete.retention.ms=1234567") {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
	}
}

// clusterTool has a fourth node join and be forgotten again.
func clusterTool(k *kafkaTools, c *nodetest.Cluster) {
	k.matches(k.run("ClusterTool", "cluster-id"), `Cluster ID: \S{22}\n`)
	c.Join(4, map[string]string{"broker.rack": "r4"})
	endpoints := func() string { return k.run("ClusterTool", "list-endpoints", "--include-fenced-brokers") }
	nodetest.Eventually(k.T, 30*time.Second, "the fourth node is listed", func() error {
		if out := endpoints(); !regexp.MustCompile(`(?m)^4 +127.0.0.1 +\d+ +r4 +unfenced +broker`).MatchString(out) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	c.Node(4).Stop()
	c.Forget(4)
	k.node = nodetest.At(k.T, c.Bootstrap())
	k.wants(k.run("ClusterTool", "unregister", "--id", "4"), "Broker 4 is no longer registered.")
	nodetest.Eventually(k.T, 30*time.Second, "the fourth node is forgotten", func() error {
		if out := endpoints(); regexp.MustCompile(`(?m)^4 `).MatchString(out) {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
}
