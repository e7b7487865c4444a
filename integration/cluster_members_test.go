package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

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
	nodetest.Eventually(t, 30*time.Second, "the nodes are as they should be", func() error {
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
	mustVarve(t, c, "cluster", "remove", "1")
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
