package meta

import (
	"context"
	"errors"
	"testing"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/meta/topic"
)

// leaderBehind has three nodes do something, and then one lead that has it in its log and has not applied it yet: its state machine
// stands still until catchUp is called. do gets the node that leads before, and a third; it may be called again.
func leaderBehind(t *testing.T, do func(leader, third *Node) error) (nodes []*Node, behind, third *Node, catchUp func()) {
	t.Helper()
	all := startCluster(t, [3]string{t.TempDir(), t.TempDir(), t.TempDir()})
	nodes = all[:]
	for _, n := range nodes {
		onLeader(t, nodes, func(leader *Node) error {
			_, err := leader.RegisterBroker(context.Background(), Registration{ID: n.NodeID(), Host: "h", Port: 1, Incarnation: topic.NewID(),
				RaftAddress: string(n.deps.Transport.LocalAddr()), WantVote: true})
			return err
		})
	}
	agree(t, nodes, 1)
	for {
		leader := leaderOf(t, nodes)
		i := int(leader.NodeID()) // the others are the next two
		behind, third = nodes[i%3], nodes[(i+1)%3]
		behind.fsm.mu.Lock()
		if err := do(leader, third); err != nil {
			behind.fsm.mu.Unlock()
			if !errors.Is(err, ErrNotController) && !errors.Is(err, ErrUnknownOutcome) {
				t.Fatal(err)
			}
			continue // another leads now
		}
		caught := false
		catchUp = func() {
			if !caught {
				behind.fsm.mu.Unlock()
			}
			caught = true
		}
		t.Cleanup(catchUp) // before the nodes are closed
		waitFor(t, func() bool {
			for _, n := range nodes {
				if n != behind && n.IsController() {
					_ = n.raft.LeadershipTransferToServer(raft.ServerID(brokerName(behind.NodeID())), behind.deps.Transport.LocalAddr()).Error()
				}
			}
			return behind.IsController()
		})
		return nodes, behind, third, catchUp
	}
}

// TestALeaderThatIsBehindGivesNoVoteBack: what it knows is that a node observes the quorum and wants a vote, and not that the vote
// was taken.
func TestALeaderThatIsBehindGivesNoVoteBack(t *testing.T) {
	ctx := context.Background()
	_, n, third, catchUp := leaderBehind(t, func(leader, third *Node) error {
		err := leader.RemoveVoter(ctx, third.NodeID())
		if errors.Is(err, ErrVoterNotFound) {
			err = nil // done by a try before
		}
		return err
	})
	if b, ok := decidePromotion(n.Image(), mustServers(t, n)); !ok || b.ID != third.NodeID() {
		t.Fatal("it is not behind")
	}
	done := make(chan error, 1)
	go func() { done <- n.promote(ctx) }()
	waitFor(t, func() bool { return n.asked.Load() > 0 }) // it has decided, or is catching up
	catchUp()
	if err := <-done; err != nil && !errors.Is(err, ErrNotController) && !errors.Is(err, ErrDuplicateVoter) {
		t.Fatal(err)
	}
	if _, votes := member(mustServers(t, n), third.NodeID()); votes {
		t.Error("the node votes again by itself")
	}
	if img := n.Image(); !img.VoteRemoved(img.Brokers[third.NodeID()]) {
		t.Error("it is forgotten that the vote was taken")
	}
}

// TestALeaderThatIsBehindRefusesNoBroker: it does not know the broker's new registration yet. Refused, the broker would
// register once more.
func TestALeaderThatIsBehindRefusesNoBroker(t *testing.T) {
	ctx := context.Background()
	var b Broker
	nodes, n, _, catchUp := leaderBehind(t, func(leader, third *Node) (err error) {
		b, err = leader.RegisterBroker(ctx, Registration{ID: third.NodeID(), Host: "h", Port: 1, Incarnation: topic.NewID(),
			RaftAddress: string(third.deps.Transport.LocalAddr()), WantVote: true, PreviousEpoch: leader.Image().Brokers[third.NodeID()].Epoch})
		return err
	})
	h := Heartbeat{ID: b.ID, Epoch: b.Epoch}
	if _, err := n.Local().Heartbeat(ctx, h); !errors.Is(err, ErrNotController) {
		t.Errorf("while it is behind: %v", err)
	}
	catchUp()
	onLeader(t, nodes, func(n *Node) error { // whoever leads by then
		_, err := n.Local().Heartbeat(ctx, h)
		return err
	})
}
