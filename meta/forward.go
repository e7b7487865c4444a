package meta

import (
	"context"
	"errors"
	"time"

	"github.com/varvelog/varve/meta/topic"
)

// forwardPause is how long a call waits for news of who leads before it tries
// again: an election takes longer than one pause, so it costs a few calls.
const forwardPause = 50 * time.Millisecond

// Controller makes calls on the node that leads the quorum, over the network.
// to is that node's broker as the newest image has it; its ID is -1 while this
// node does not know, as one that is only joining: the implementation then asks
// the bootstrap servers who it is. An error wraps ErrNotController if the call
// reached nobody who decides, and ErrUnknownOutcome if its answer was lost; the
// Node then tries again. Every other error is an answer. Implementations are
// safe for concurrent use and keep none of the arguments.
type Controller interface {
	RegisterBroker(ctx context.Context, to Broker, r Registration) (epoch int64, err error)
	Heartbeat(ctx context.Context, to Broker, h Heartbeat) (HeartbeatReply, error)
	AlterPartitions(ctx context.Context, to Broker, leader int32, epoch int64, wishes []AlterPartition) ([]AlteredPartition, error)
	AllocateProducerIDs(ctx context.Context, to Broker, id int32, epoch int64) (ProducerIDs, error)
	ConfirmDeleted(ctx context.Context, to Broker, id topic.ID, broker int32, tier bool) error
}

// forward makes a call here if this node leads the quorum, and on the node that
// does otherwise, again and again until it is answered or ctx ends. All such
// calls may be made twice: they are idempotent, or a compare-and-swap.
func forward[T any](ctx context.Context, n *Node, local func(Local) (T, error), remote func(Controller, Broker) (T, error)) (T, error) {
	for {
		var result T
		var err error
		if here := n.IsController(); here || n.deps.Controller == nil {
			if result, err = local(n.Local()); !here {
				return result, err
			}
		} else {
			result, err = remote(n.deps.Controller, n.controller())
		}
		if err == nil || !errors.Is(err, ErrNotController) && !errors.Is(err, ErrUnknownOutcome) || n.deps.Controller == nil {
			return result, err
		}
		pause := time.NewTimer(forwardPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return result, errors.Join(err, ctx.Err())
		case <-n.ctx.Done():
			pause.Stop()
			return result, n.err()
		}
	}
}

// controller is the broker of the node that leads, with ID -1 if this node does
// not know it, or knows that it is this node's own and no longer leads.
func (n *Node) controller() Broker {
	img := n.Image()
	if b, ok := img.Brokers[img.ControllerID]; ok && b.ID != n.cfg.NodeID {
		return b
	}
	return Broker{ID: -1}
}

// Local is a Node without forwarding: every call is decided here or refused
// with ErrNotController. It is what calls from other brokers go to, so that no
// call hops twice.
type Local struct{ n *Node }

// Local returns the node without forwarding.
func (n *Node) Local() Local { return Local{n} }

// Heartbeat tells the controller that a broker lives, and what it wants.
func (n *Node) Heartbeat(ctx context.Context, h Heartbeat) (HeartbeatReply, error) {
	return forward(ctx, n,
		func(l Local) (HeartbeatReply, error) { return l.Heartbeat(ctx, h) },
		func(c Controller, to Broker) (HeartbeatReply, error) { return c.Heartbeat(ctx, to, h) })
}

// AllocateProducerIDs gives a block of producer ids to a broker.
func (n *Node) AllocateProducerIDs(ctx context.Context, id int32, epoch int64) (ProducerIDs, error) {
	return forward(ctx, n,
		func(l Local) (ProducerIDs, error) { return l.AllocateProducerIDs(ctx, id, epoch) },
		func(c Controller, to Broker) (ProducerIDs, error) { return c.AllocateProducerIDs(ctx, to, id, epoch) })
}

// AlterPartitions changes in-sync sets on behalf of the broker that leads the
// partitions; each partition has its own result.
func (n *Node) AlterPartitions(ctx context.Context, leader int32, epoch int64, wishes []AlterPartition) ([]AlteredPartition, error) {
	return forward(ctx, n,
		func(l Local) ([]AlteredPartition, error) { return l.AlterPartitions(ctx, leader, epoch, wishes) },
		func(c Controller, to Broker) ([]AlteredPartition, error) {
			return c.AlterPartitions(ctx, to, leader, epoch, wishes)
		})
}

// ConfirmDeleted says that a deleted topic's data is gone: from the disk of
// broker, unless that is -1, and from the bucket, if tier is set. Saying so
// again, or of a topic that is not being deleted, changes nothing.
func (n *Node) ConfirmDeleted(ctx context.Context, id topic.ID, broker int32, tier bool) error {
	type none struct{}
	_, err := forward(ctx, n,
		func(l Local) (none, error) { return none{}, l.ConfirmDeleted(ctx, id, broker, tier) },
		func(c Controller, to Broker) (none, error) {
			return none{}, c.ConfirmDeleted(ctx, to, id, broker, tier)
		})
	return err
}
