package meta

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
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
		n, err := Open(Config{Dir: dirs[i], NodeID: int32(i + 1), Voters: voters, Heartbeat: 200 * time.Millisecond, ProposeTimeout: 5 * time.Second}, Deps{Transport: transports[i]})
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

func TestThreeNodesAgree(t *testing.T) {
	ctx := context.Background()
	dirs := [3]string{t.TempDir(), t.TempDir(), t.TempDir()}
	nodes := startCluster(t, dirs)
	leader := leaderOf(t, nodes[:])
	for id := range int32(3) {
		if _, err := leader.RegisterBroker(ctx, Registration{ID: id + 1, Host: "h", Port: 1}); err != nil {
			t.Fatal(err)
		}
	}
	r, err := leader.CreateTopics(ctx, []NewTopic{{Name: "a", Partitions: 6, ReplicationFactor: 3}}, false)
	if err != nil || r[0].Err != nil {
		t.Fatal(r, err)
	}
	agree := func() {
		t.Helper()
		want := leader.Image()
		for _, n := range nodes {
			if n.ctx.Err() != nil {
				continue
			}
			waitFor(t, func() bool { return n.Image().Index >= want.Index && n.Image().ControllerID == leader.NodeID() })
			if !bytes.Equal(n.Image().EncodeSnapshot(), want.EncodeSnapshot()) {
				t.Errorf("node %d has another image", n.NodeID())
			}
		}
	}
	agree()
	for _, n := range nodes {
		if n == leader {
			continue
		}
		if _, err := n.CreateTopics(ctx, []NewTopic{{Name: "b", Partitions: 1, ReplicationFactor: 1}}, false); !errors.Is(err, ErrNotController) {
			t.Errorf("node %d decides: %v", n.NodeID(), err)
		}
	}

	// The leader goes; another takes over and knows everything.
	old := leader
	closeNode(t, old)
	var rest []*Node
	for _, n := range nodes {
		if n != old {
			rest = append(rest, n)
		}
	}
	leader = leaderOf(t, rest)
	gone := leader.Image().Brokers[old.NodeID()]
	if err := leader.FenceBroker(ctx, gone.ID, gone.Epoch); err != nil {
		t.Fatal(err)
	}
	for i, p := range leader.Image().Topic("a").Partitions {
		if p.Leader == NoLeader || p.Leader == gone.ID || len(p.ISR) != 2 {
			t.Errorf("partition %d after the failure: %s", i, partitionText(&p))
		}
	}
	agree()
	if _, err := old.CreateTopics(ctx, nil, false); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed node decides: %v", err)
	}
}

func TestAQuorumThatIsLostDecidesNothing(t *testing.T) {
	ctx := context.Background()
	nodes := startCluster(t, [3]string{t.TempDir(), t.TempDir(), t.TempDir()})
	leader := leaderOf(t, nodes[:])
	if _, err := leader.RegisterBroker(ctx, Registration{ID: 1}); err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n != leader {
			closeNode(t, n)
		}
	}
	_, err := leader.CreateTopics(ctx, []NewTopic{{Name: "a", Partitions: 1, ReplicationFactor: 1}}, false)
	if !errors.Is(err, ErrUnknownOutcome) && !errors.Is(err, ErrNotController) {
		t.Fatalf("created without a quorum: %v", err)
	}
	if leader.Image().Topic("a") != nil {
		t.Error("the image holds what no quorum has")
	}
	waitFor(t, func() bool { return leader.Image().ControllerID == -1 })
	if _, err := leader.CreateTopics(ctx, []NewTopic{{Name: "b", Partitions: 1, ReplicationFactor: 1}}, false); !errors.Is(err, ErrNotController) {
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
