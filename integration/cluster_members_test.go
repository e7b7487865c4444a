package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// varve runs the command line against a cluster and gives what it printed; a
// status other than 0 is an error.
func varve(t *testing.T, c *nodetest.Cluster, args ...string) (string, error) {
	t.Helper()
	path, err := nodetest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	var running []string
	for _, n := range c.Nodes() {
		if n.Running() {
			running = append(running, n.Bootstrap)
		}
	}
	cmd.Env = append(cmd.Environ(), "VARVE_BOOTSTRAP="+strings.Join(running, ","))
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("varve %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}

func mustVarve(t *testing.T, c *nodetest.Cluster, args ...string) string {
	t.Helper()
	out, err := varve(t, c, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// described is what `cluster describe --json` says of one node.
type described struct {
	ID       int32    `json:"id"`
	Rack     string   `json:"rack"`
	State    string   `json:"state"`
	Roles    []string `json:"roles"`
	Replicas int      `json:"replicas"`
}

// awaitNodes waits until the nodes are as they should be: whichever broker is
// asked may not have heard yet.
func awaitNodes(t *testing.T, c *nodetest.Cluster, ok func(map[int32]described) bool) {
	t.Helper()
	nodetest.Eventually(t, 2*time.Minute, "the nodes are as they should be", func() error {
		var v struct{ Brokers []described }
		out, err := varve(t, c, "cluster", "describe", "--json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &v)
		}
		if err != nil {
			return err
		}
		byID := map[int32]described{}
		for _, b := range v.Brokers {
			byID[b.ID] = b
		}
		if !ok(byID) {
			return fmt.Errorf("they are %+v", byID)
		}
		return nil
	})
}

// A fourth node joins, takes its share, then the first is emptied, stopped and
// removed, and its vote goes to the fourth, while records are produced.
func TestNodesJoinAndLeaveARunningCluster(t *testing.T) {
	c, s := startStreamed(t, nodetest.ClusterOptions{
		NodeSettings: func(id int32) map[string]string {
			return map[string]string{"broker.rack": fmt.Sprintf("rack-%d", id), "varve.balancer.moves.max": "100"}
		},
	})
	s.progress(100)

	c.Join(4, nil)
	awaitNodes(t, c, func(nodes map[int32]described) bool {
		return len(nodes) == 4 && nodes[4].State == "active" && nodes[4].Rack == "rack-4" && slices.Contains(nodes[4].Roles, "observer") && slices.Contains(nodes[1].Roles, "voter")
	})
	mustVarve(t, c, "cluster", "balance", "--apply", "--wait")
	c.WaitInSync(time.Minute, "events")
	awaitNodes(t, c, func(nodes map[int32]described) bool { return nodes[4].Replicas >= 3 })
	s.progress(100)

	if _, err := varve(t, c, "cluster", "remove", "1"); err == nil || !strings.Contains(err.Error(), "cluster drain 1") {
		t.Errorf("a node that holds replicas is removed: %v", err)
	}
	mustVarve(t, c, "cluster", "drain", "1")
	awaitNodes(t, c, func(nodes map[int32]described) bool { return nodes[1].Replicas == 0 && nodes[1].State == "draining" })
	c.WaitInSync(time.Minute, "events")
	s.progress(100)
	c.Node(1).Stop()
	if said := mustVarve(t, c, "cluster", "remove", "1"); !strings.Contains(said, "`varve cluster voters add 4`") {
		t.Errorf("it does not say how the voters become three again: %q", said)
	}
	c.Forget(1)
	mustVarve(t, c, "cluster", "voters", "add", "4")
	awaitNodes(t, c, func(nodes map[int32]described) bool {
		_, there := nodes[1]
		return !there && len(nodes) == 3 && slices.Contains(nodes[4].Roles, "voter")
	})
	s.progress(100)

	// The three that are left stand the loss of any one.
	c.Node(2).Kill()
	s.progress(100)
	c.Node(2).Restart()
	c.WaitInSync(time.Minute, "events")
	s.verify(c)
}

// A node that is gone for good is emptied and forgotten like any other, though nobody can ask it.
func TestADeadNodeIsDrainedAndForgotten(t *testing.T) {
	c, s := startStreamed(t, nodetest.ClusterOptions{
		NodeSettings: func(int32) map[string]string { return map[string]string{"varve.balancer.moves.max": "100"} },
	})
	c.Join(4, nil)
	mustVarve(t, c, "cluster", "balance", "--apply", "--wait")
	awaitNodes(t, c, func(nodes map[int32]described) bool { return nodes[4].Replicas >= 3 })
	s.progress(50)
	c.Node(4).Kill()
	c.Forget(4)
	awaitNodes(t, c, func(nodes map[int32]described) bool { return nodes[4].State == "fenced" })
	mustVarve(t, c, "cluster", "drain", "4")
	mustVarve(t, c, "cluster", "remove", "4")
	awaitNodes(t, c, func(nodes map[int32]described) bool { return len(nodes) == 3 })
	c.WaitInSync(time.Minute, "events")
	s.progress(50)
	s.verify(c)
}

// A voter that has lost its disk is let in again once its vote was taken away, though its settings name the voters only: they
// say where brokers listen.
func TestAWipedVoterComesBackByItsVoters(t *testing.T) {
	c, s := startStreamed(t, nodetest.ClusterOptions{})
	s.progress(100)
	n := c.Node(3)
	n.Kill()
	if err := os.RemoveAll(n.DataDir()); err != nil {
		t.Fatal(err)
	}
	n.Launch()
	expectEnd(t, n, "varve cluster voters remove 3")
	mustVarve(t, c, "cluster", "voters", "remove", "3")
	n.Restart()
	// With an empty disk it is another voter than the one that was removed.
	awaitNodes(t, c, func(nodes map[int32]described) bool {
		return nodes[3].State == "active" && slices.Contains(nodes[3].Roles, "voter")
	})
	c.WaitInSync(time.Minute, "events")
	s.progress(100)
	c.Node(1).Kill()
	s.progress(100)
	c.Node(1).Restart()
	c.WaitInSync(time.Minute, "events")
	s.verify(c)
}

// A vote that was taken away stays away, from a voter that runs, through a restart and another controller, until it is given
// again; so it does from a node that was removed and comes back as it was.
func TestAVoteThatIsTakenStaysTaken(t *testing.T) {
	c := nodetest.StartCluster(t, nodetest.ClusterOptions{})
	stays := func(when string) {
		t.Helper()
		awaitNodes(t, c, func(nodes map[int32]described) bool {
			return nodes[3].State == "active" && slices.Contains(nodes[3].Roles, "observer")
		})
		// The controller looks every second.
		for end := time.After(3 * time.Second); ; {
			var nodes map[int32]described
			awaitNodes(t, c, func(n map[int32]described) bool { nodes = n; return n[3].State == "active" })
			if slices.Contains(nodes[3].Roles, "voter") {
				t.Fatalf("%s: node 3 votes again by itself", when)
			}
			select {
			case <-end:
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
	mustVarve(t, c, "cluster", "voters", "remove", "3")
	stays("removed")
	c.Node(3).Stop()
	c.Node(3).Restart()
	stays("restarted")
	mustVarve(t, c, "cluster", "voters", "add", "3")
	awaitNodes(t, c, func(nodes map[int32]described) bool { return slices.Contains(nodes[3].Roles, "voter") })

	c.Node(3).Stop()
	said := mustVarve(t, c, "cluster", "remove", "3")
	if !strings.Contains(said, "2 nodes vote") {
		t.Errorf("it does not say that two voters are left: %q", said)
	}
	c.Node(3).Restart()
	stays("removed from the cluster, and back")
}

// A node that was started alone, with data on its disk and in the bucket, becomes one of three.
func TestASingleNodeGrowsIntoACluster(t *testing.T) {
	c := nodetest.StartAlone(t, nodetest.ClusterOptions{})
	topics := []string{"plain", "tiered"}
	c.CreateTopic("plain", 2, 1, nil)
	c.CreateTopic("tiered", 2, 1, map[string]string{"remote.storage.enable": "true", "internal.segment.bytes": "20000", "local.retention.ms": "1000", "retention.ms": "-1"})
	sent := map[string]int{}
	produce := func(n int) {
		t.Helper()
		cl := c.Client(kgo.RequiredAcks(kgo.AllISRAcks()))
		defer cl.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, topic := range topics {
			for range n {
				r := &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%s-%d-%0200d", topic, sent[topic], 0)}
				if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
					t.Fatal(err)
				}
				sent[topic]++
			}
		}
	}
	verify := func() {
		t.Helper()
		cl := c.Client(kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		defer cl.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		seen := map[string]bool{}
		for len(seen) < sent["plain"]+sent["tiered"] {
			f := cl.PollFetches(ctx)
			if err := ctx.Err(); err != nil {
				t.Fatalf("%d of %v records: %v", len(seen), sent, err)
			}
			f.EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
		}
	}
	produce(300)
	c.Relaunch(1, nil)
	produce(50)
	for id := int32(2); id <= 3; id++ {
		c.Join(id, nil)
	}
	for _, id := range []string{"2", "3"} {
		mustVarve(t, c, "cluster", "voters", "add", id)
	}
	awaitNodes(t, c, func(nodes map[int32]described) bool {
		return len(nodes) == 3 && slices.Contains(nodes[2].Roles, "voter") && slices.Contains(nodes[3].Roles, "voter")
	})
	var change kadm.AlterPartitionAssignmentsReq
	for _, topic := range topics {
		for p := range int32(2) {
			change.Assign(topic, p, []int32{1, 2, 3})
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if resp, err := c.Admin().AlterPartitionAssignments(ctx, change); err != nil || resp.Error() != nil {
		t.Fatal(err, resp.Error())
	}
	nodetest.Eventually(t, time.Minute, "three replicas are in sync", func() error {
		for _, topic := range topics {
			m, err := c.Metadata(1, topic)
			if err != nil {
				return err
			}
			for _, p := range m.Topics[topic].Partitions {
				if len(p.ISR) != 3 {
					return fmt.Errorf("%s-%d: %v of %v", topic, p.Partition, p.ISR, p.Replicas)
				}
			}
		}
		return nil
	})
	produce(50)
	verify()
	// The first is dispensable now.
	c.Node(1).Kill()
	produce(50)
	verify()
	c.Node(1).Restart()
	c.WaitInSync(time.Minute, topics...)
}

// A node whose data is another cluster's is refused, and says why.
func TestANodeOfAnotherClusterIsRefused(t *testing.T) {
	c := nodetest.StartCluster(t, nodetest.ClusterOptions{})
	other := nodetest.StartCluster(t, nodetest.ClusterOptions{Nodes: 1})
	stranger := other.Node(1)
	stranger.Stop()
	n := c.LaunchJoin(4, map[string]string{"log.dirs": stranger.DataDir()})
	expectEnd(t, n, "the directory belongs to node 1")
	c.Forget(4)
	n = c.LaunchJoin(5, map[string]string{"log.dirs": stranger.DataDir(), "node.id": "1"})
	expectEnd(t, n, "the directory belongs to cluster")
}

// expectEnd waits until a node has given up, and looks for the reason it gives.
func expectEnd(t *testing.T, n *nodetest.Node, want string) {
	t.Helper()
	nodetest.Eventually(t, 30*time.Second, "the node gives up", func() error {
		if n.Running() {
			return fmt.Errorf("it runs")
		}
		return nil
	})
	if log := n.Log(); !strings.Contains(log, want) {
		t.Errorf("the node says:\n%s\nwant %q", log, want)
	}
}
