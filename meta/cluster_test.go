package meta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/meta/topic"
)

// startCluster starts three nodes that talk in memory.
func startCluster(t *testing.T, dirs [3]string) [3]*Node {
	t.Helper()
	var transports [3]*raft.InmemTransport
	var voters []Voter
	for i := range transports {
		_, transports[i] = raft.NewInmemTransport(raft.ServerAddress(fmt.Sprintf("node-%d", i+1)))
		voters = append(voters, Voter{NodeID: int32(i + 1), Address: string(transports[i].LocalAddr())})
	}
	for i := range transports {
		for j := range transports {
			if i != j {
				transports[i].Connect(transports[j].LocalAddr(), transports[j])
			}
		}
	}
	var nodes [3]*Node
	for i := range nodes {
		n, err := Open(Config{Dir: dirs[i], NodeID: int32(i + 1), Voters: voters, Broker: silent(t, nil), Heartbeat: 500 * time.Millisecond, ProposeTimeout: 5 * time.Second}, Deps{Transport: transports[i]})
		if err != nil {
			t.Fatal(err)
		}
		nodes[i] = n
		t.Cleanup(func() { closeNode(t, n) })
	}
	return nodes
}

func leaderOf(t *testing.T, nodes []*Node) *Node {
	t.Helper()
	var leader *Node
	waitFor(t, func() bool {
		for _, n := range nodes {
			if n.IsController() && n.Image().ControllerID == n.NodeID() && n.Image().ClusterID != "" {
				leader = n
				return true
			}
		}
		return false
	})
	return leader
}

// onLeader runs fn on the leader, and again when leadership moved meanwhile:
// on a busy machine it may, and nothing here depends on who leads.
func onLeader(t *testing.T, nodes []*Node, fn func(*Node) error) *Node {
	t.Helper()
	for {
		leader := leaderOf(t, nodes)
		err := fn(leader)
		if err == nil {
			return leader
		}
		if !errors.Is(err, ErrNotController) && !errors.Is(err, ErrUnknownOutcome) {
			t.Fatal(err)
		}
	}
}

func createOnce(n *Node, name string, partitions int32, replicas int16) error {
	r, err := n.CreateTopics(context.Background(), []NewTopic{{Name: name, Partitions: partitions, ReplicationFactor: replicas}}, false)
	if err == nil && r[0].Err != nil && !errors.Is(r[0].Err, ErrTopicExists) {
		return r[0].Err
	}
	return err
}

func registerAll(t *testing.T, nodes []*Node) {
	t.Helper()
	for id := range int32(3) {
		onLeader(t, nodes, func(n *Node) error {
			_, err := n.RegisterBroker(context.Background(), Registration{ID: id + 1, Host: "h", Port: 1, Incarnation: topic.ID{1, byte(id)}})
			return err
		})
	}
}

// agree waits until every node has the same image, at index or later.
func agree(t *testing.T, nodes []*Node, index uint64) {
	t.Helper()
	waitFor(t, func() bool {
		first := nodes[0].Image()
		for _, n := range nodes {
			if img := n.Image(); img.Index < index || img.Index != first.Index {
				return false
			} else if !bytes.Equal(img.EncodeSnapshot(), first.EncodeSnapshot()) {
				t.Fatalf("node %d has another image at %d", n.NodeID(), img.Index)
			}
		}
		return true
	})
}

func TestThreeNodesAgree(t *testing.T) {
	all := startCluster(t, [3]string{t.TempDir(), t.TempDir(), t.TempDir()})
	nodes := all[:]
	registerAll(t, nodes)
	leader := onLeader(t, nodes, func(n *Node) error { return createOnce(n, "a", 6, 3) })
	agree(t, nodes, leader.Image().Index)

	// The leader goes; another takes over and knows everything.
	old := leader
	closeNode(t, old)
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *Node) bool { return n == old })
	leader = onLeader(t, nodes, func(n *Node) error {
		gone := n.Image().Brokers[old.NodeID()]
		return n.FenceBroker(context.Background(), gone.ID, gone.Epoch)
	})
	for i, p := range leader.Image().Topic("a").Partitions {
		if p.Leader == NoLeader || p.Leader == old.NodeID() || len(p.ISR) != 2 {
			t.Errorf("partition %d after the failure: %s", i, partitionText(&p))
		}
	}
	agree(t, nodes, leader.Image().Index)
	if err := createOnce(old, "b", 1, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed node decides: %v", err)
	}
}

func TestFollowersDoNotDecide(t *testing.T) {
	all := startCluster(t, [3]string{t.TempDir(), t.TempDir(), t.TempDir()})
	registerAll(t, all[:])
	refused := false
	for !refused {
		leader := leaderOf(t, all[:])
		for _, n := range all {
			if n == leader {
				continue
			}
			// It may have been elected since; then it may decide.
			if err := createOnce(n, "b", 1, 1); errors.Is(err, ErrNotController) {
				refused = true
			} else if err != nil && !errors.Is(err, ErrUnknownOutcome) {
				t.Fatal(err)
			} else if err == nil && leader.IsController() && !n.IsController() {
				t.Fatalf("node %d decided beside node %d", n.NodeID(), leader.NodeID())
			}
		}
	}
}

func TestAQuorumThatIsLostDecidesNothing(t *testing.T) {
	all := startCluster(t, [3]string{t.TempDir(), t.TempDir(), t.TempDir()})
	registerAll(t, all[:])
	leader := leaderOf(t, all[:])
	for _, n := range all {
		if n != leader {
			closeNode(t, n)
		}
	}
	if err := createOnce(leader, "a", 1, 1); !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNotController) {
		t.Fatalf("created without a quorum: %v", err)
	}
	if leader.Image().Topic("a") != nil {
		t.Error("the image holds what no quorum has")
	}
	waitFor(t, func() bool { return leader.Image().ControllerID == -1 })
	if err := createOnce(leader, "b", 1, 1); !errors.Is(err, ErrNotController) {
		t.Errorf("decides without a quorum: %v", err)
	}
}

func TestACommandDecidedOnAnOldImageChangesNothing(t *testing.T) {
	n := openNode(t, Config{}, Deps{})
	register(t, n)
	old := n.Image()
	createTopic(t, n, "a", 1)
	want := n.Image().EncodeSnapshot()
	_, err := n.Propose(context.Background(), Command{Base: old.Index, Changes: []Change{TakeProducerIDs{Broker: 1, Next: 5}}})
	if !errors.Is(err, ErrStale) {
		t.Errorf("%v", err)
	}
	_, err = n.Propose(context.Background(), Command{Base: n.Image().Index, Changes: []Change{TakeProducerIDs{Broker: 1, Next: 5}, DeleteTopic{ID: idA}}})
	if !errors.Is(err, ErrState) {
		t.Errorf("%v", err)
	}
	if !bytes.Equal(n.Image().EncodeSnapshot(), want) {
		t.Error("the image changed")
	}
}
