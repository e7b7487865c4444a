package meta

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/varvelog/varve/meta/topic"
)

// throughNodes is a Controller that calls nodes of the same test: the one that
// leads, whoever the caller thinks it is.
type throughNodes struct{ nodes *[]*Node }

func (c throughNodes) leader() (Local, error) {
	for _, n := range *c.nodes {
		if n.IsController() {
			return n.Local(), nil
		}
	}
	return Local{}, ErrNotController
}

func (c throughNodes) RegisterBroker(ctx context.Context, _ Broker, r Registration) (int64, error) {
	l, err := c.leader()
	if err != nil {
		return 0, err
	}
	b, err := l.RegisterBroker(ctx, r)
	return b.Epoch, err
}

func (c throughNodes) Heartbeat(ctx context.Context, _ Broker, h Heartbeat) (HeartbeatReply, error) {
	l, err := c.leader()
	if err != nil {
		return HeartbeatReply{}, err
	}
	return l.Heartbeat(ctx, h)
}

func (c throughNodes) AlterPartitions(ctx context.Context, _ Broker, leader int32, epoch int64, wishes []AlterPartition) ([]AlteredPartition, error) {
	l, err := c.leader()
	if err != nil {
		return nil, err
	}
	return l.AlterPartitions(ctx, leader, epoch, wishes)
}

func (c throughNodes) AllocateProducerIDs(ctx context.Context, _ Broker, id int32, epoch int64) (ProducerIDs, error) {
	l, err := c.leader()
	if err != nil {
		return ProducerIDs{}, err
	}
	return l.AllocateProducerIDs(ctx, id, epoch)
}

func (c throughNodes) ConfirmDeleted(ctx context.Context, _ Broker, id topic.ID, broker int32, tier bool) error {
	l, err := c.leader()
	if err != nil {
		return err
	}
	return l.ConfirmDeleted(ctx, id, broker, tier)
}

// flaky loses the first answers of every kind: the calls have been made.
type flaky struct {
	Controller
	lost map[string]bool
}

func (f *flaky) AllocateProducerIDs(ctx context.Context, to Broker, id int32, epoch int64) (ProducerIDs, error) {
	ids, err := f.Controller.AllocateProducerIDs(ctx, to, id, epoch)
	if err == nil && !f.lost["ids"] {
		f.lost["ids"] = true
		return ProducerIDs{}, ErrUnknownOutcome
	}
	return ids, err
}

func TestCallsAreMadeOnWhoeverLeads(t *testing.T) {
	all := startCluster(t, [3]string{t.TempDir(), t.TempDir(), t.TempDir()})
	nodes := all[:]
	c := &flaky{throughNodes{&nodes}, map[string]bool{}}
	for _, n := range nodes {
		n.deps.Controller = c
	}
	ctx := context.Background()
	var follower *Node
	for _, n := range nodes {
		b, err := n.RegisterBroker(ctx, Registration{ID: n.NodeID(), Host: "h", Port: n.NodeID(), Fenced: true})
		if err != nil || b.Epoch == 0 {
			t.Fatal(b, err)
		}
		if n != leaderOf(t, nodes) {
			follower = n
		}
		waitFor(t, func() bool {
			r, err := n.Heartbeat(ctx, Heartbeat{ID: b.ID, Epoch: b.Epoch, Index: n.Image().Index})
			if err != nil {
				t.Fatal(err)
			}
			return !r.Fenced
		})
		// The block whose answer was lost is gone; the next call got another.
		first, err := n.AllocateProducerIDs(ctx, b.ID, b.Epoch)
		if err != nil || first.Count == 0 {
			t.Fatal(err)
		}
	}
	// What is refused is refused at once, and on the spot for calls from others.
	if _, err := follower.Heartbeat(ctx, Heartbeat{ID: 1, Epoch: 1}); !errors.Is(err, ErrStaleBrokerEpoch) {
		t.Error(err)
	}
	if _, err := follower.Local().Heartbeat(ctx, Heartbeat{ID: 1, Epoch: 1}); !errors.Is(err, ErrNotController) && !follower.IsController() {
		t.Error(err)
	}
	// Without a quorum a call waits as long as its context does.
	for _, n := range nodes {
		if n != follower {
			closeNode(t, n)
		}
	}
	waitFor(t, func() bool { return !follower.IsController() })
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if _, err := follower.AllocateProducerIDs(short, 1, 1); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrNotController) {
		t.Error(err)
	}
}
