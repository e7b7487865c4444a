package meta

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/meta/conf"
	"github.com/varvelog/varve/meta/topic"
)

// decision decides on changes. It may be called more than once, with a newer
// image each time, and must only keep what its last call decided.
type decision func(img *Image, b *conf.Broker) ([]Change, error)

// change makes a decision on the newest image and has the quorum commit it. It
// returns the image with the changes in it. Decisions are made one at a time,
// so that the next one sees the changes of the one before.
func (n *Node) change(ctx context.Context, dryRun bool, decide decision) (*Image, error) {
	ctx, cancel := context.WithTimeout(ctx, n.cfg.ProposeTimeout)
	defer cancel()
	if err := n.enter(ctx); err != nil {
		return nil, err
	}
	defer n.leave()
	for retry := 0; ; retry++ {
		if err := n.catchUp(ctx); err != nil {
			return nil, err
		}
		img := n.Image()
		changes, err := decide(img, n.Broker())
		if err == nil {
			err = checkLevel(img, changes)
		}
		if err != nil || len(changes) == 0 || dryRun {
			return img, err
		}
		next, err := n.commit(ctx, Command{Base: img.Index, Changes: changes})
		if err == nil {
			n.elections.count(n.log, img, changes)
		}
		if !errors.Is(err, ErrStale) || retry == staleRetries {
			return next, err
		}
		n.term = 0 // something was committed that this node had not applied
	}
}

// enter waits for this node's turn to decide, and for the outcome of what was
// proposed last: whoever proposed it may have left without it. So raft has one
// proposal at most, however long it takes, and whoever else waits holds no more
// than the request that is counted already.
func (n *Node) enter(ctx context.Context) error {
	select {
	case n.deciding <- struct{}{}:
	case <-ctx.Done():
		return late(ctx)
	case <-n.ctx.Done():
		return n.err()
	}
	if n.owed == nil {
		return nil
	}
	var err error
	select {
	case <-n.owed:
		n.owed = nil
		return nil
	case <-ctx.Done():
		err = late(ctx)
	case <-n.halted:
		err = n.err()
	}
	n.leave()
	return err
}

func (n *Node) leave() { <-n.deciding }

// late is what a change is answered that was not seen through in time.
func late(ctx context.Context) error { return fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err()) }

// catchUp makes sure that this node leads and that its image has everything
// that was committed before it did.
func (n *Node) catchUp(ctx context.Context) error {
	if err := n.err(); err != nil {
		return err
	}
	if n.raft.State() != raft.Leader {
		return ErrNotController
	}
	term := n.raft.CurrentTerm()
	if n.term == term {
		return nil
	}
	var err error
	_, n.owed, err = n.await(ctx, n.raft.Barrier)
	switch {
	case err == nil:
		n.term = term
		return nil
	case ctx.Err() != nil:
		return err
	}
	return errors.Join(ErrNotController, err)
}

// Propose commits a command as it stands. The typed methods decide on their
// commands themselves; this is for tools and tests.
func (n *Node) Propose(ctx context.Context, c Command) (*Image, error) {
	if err := n.enter(ctx); err != nil {
		return nil, err
	}
	defer n.leave()
	if err := n.catchUp(ctx); err != nil {
		return nil, err
	}
	return n.commit(ctx, c)
}

func (n *Node) commit(ctx context.Context, c Command) (img *Image, err error) {
	img, n.owed, err = n.propose(ctx, c)
	return img, err
}

func (n *Node) propose(ctx context.Context, c Command) (*Image, <-chan struct{}, error) {
	future, owed, err := n.await(ctx, func(limit time.Duration) raft.Future { return n.raft.Apply(c.Encode(), limit) })
	if err != nil {
		return nil, owed, err
	}
	result := future.(raft.ApplyFuture).Response().(applied)
	return result.image, nil, result.err
}

// await asks raft for something and waits for its answer, until ctx ends. ask is
// given how long raft may take to begin with it; what it does afterwards nobody
// can take back. owed is closed when an answer has come after all that was not
// waited for; it is nil when there is none to come.
func (n *Node) await(ctx context.Context, ask func(limit time.Duration) raft.Future) (answer raft.Future, owed <-chan struct{}, err error) {
	limit := n.cfg.ProposeTimeout
	if at, ok := ctx.Deadline(); ok {
		limit = max(time.Until(at), time.Millisecond) // none is without end
	}
	n.asked.Add(1)
	if err := n.err(); err != nil {
		n.asked.Add(-1)
		return nil, nil, err
	}
	done := make(chan struct{})
	var future raft.Future
	var failed error
	go func() { // ends when the entry is committed or raft gives up
		future = ask(limit)
		failed = future.Error()
		n.asked.Add(-1)
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return nil, done, late(ctx)
	case <-n.halted:
		if n.failure.Load() != nil {
			return nil, nil, n.err()
		}
		return nil, nil, errors.Join(ErrUnknownOutcome, n.err())
	}
	switch {
	case failed == nil:
		return future, nil, nil
	case n.failure.Load() != nil:
		return nil, nil, n.err()
	case errors.Is(failed, raft.ErrNotLeader) || errors.Is(failed, raft.ErrLeadershipTransferInProgress):
		return nil, nil, errors.Join(ErrNotController, failed) // never reached the log
	}
	return nil, nil, errors.Join(ErrUnknownOutcome, failed)
}

// CreateTopics creates topics; each has its own result. With validateOnly
// nothing is created, and the ids in the results mean nothing.
func (n *Node) CreateTopics(ctx context.Context, topics []NewTopic, validateOnly bool) ([]CreatedTopic, error) {
	var results []CreatedTopic
	_, err := n.change(ctx, validateOnly, func(img *Image, b *conf.Broker) ([]Change, error) {
		var changes []Change
		results, changes = decideCreateTopics(img, b, topics, topic.NewID)
		return changes, nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// DeleteTopics deletes topics by name or id; each has its own result.
func (n *Node) DeleteTopics(ctx context.Context, refs []TopicRef) ([]TopicResult, error) {
	var results []TopicResult
	_, err := n.change(ctx, false, func(img *Image, b *conf.Broker) ([]Change, error) {
		var changes []Change
		results, changes = decideDeleteTopics(img, b, refs)
		return changes, nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// CreatePartitions adds partitions to topics; each has its own result.
func (n *Node) CreatePartitions(ctx context.Context, topics []MorePartitions, validateOnly bool) ([]TopicResult, error) {
	var results []TopicResult
	_, err := n.change(ctx, validateOnly, func(img *Image, _ *conf.Broker) ([]Change, error) {
		var changes []Change
		results, changes = decideCreatePartitions(img, topics)
		return changes, nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// AlterConfigs changes settings of topics, brokers and groups; each resource
// has its own result.
func (n *Node) AlterConfigs(ctx context.Context, changes []ConfigChange, validateOnly bool) ([]ConfigResult, error) {
	var results []ConfigResult
	_, err := n.change(ctx, validateOnly, func(img *Image, _ *conf.Broker) ([]Change, error) {
		var out []Change
		results, out = decideConfigs(img, &n.cfg.Broker, n.cfg.NodeID, changes)
		return out, nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// RegisterBroker decides on a start of a broker.
func (l Local) RegisterBroker(ctx context.Context, r Registration) (Broker, error) {
	n := l.n
	img, err := n.change(ctx, false, func(img *Image, b *conf.Broker) ([]Change, error) {
		if err := n.checkDirectory(img, r); err != nil {
			return nil, err
		}
		return decideRegister(img, b, r, n.liveness.alive(img, r))
	})
	if err != nil {
		return Broker{}, err
	}
	if err := n.admit(ctx, r); err != nil {
		return Broker{}, err
	}
	return img.Brokers[r.ID], nil
}

// UnfenceBroker lets a broker lead and be in sync.
func (n *Node) UnfenceBroker(ctx context.Context, id int32, epoch int64) error {
	return n.changeBroker(ctx, ChangeBroker{ID: id, Epoch: epoch})
}

// FenceBroker takes every leadership and in-sync place from a broker.
func (n *Node) FenceBroker(ctx context.Context, id int32, epoch int64) error {
	return n.changeBroker(ctx, ChangeBroker{ID: id, Epoch: epoch, Fenced: true})
}

// BeginShutdown moves leaderships away from a broker that is about to stop.
func (n *Node) BeginShutdown(ctx context.Context, id int32, epoch int64) error {
	return n.changeBroker(ctx, ChangeBroker{ID: id, Epoch: epoch, ShuttingDown: true})
}

func (n *Node) changeBroker(ctx context.Context, want ChangeBroker) error {
	_, err := n.change(ctx, false, func(img *Image, b *conf.Broker) ([]Change, error) {
		return decideBroker(img, b, want)
	})
	return err
}

// AllocateProducerIDs decides on a block of producer ids for a broker.
func (l Local) AllocateProducerIDs(ctx context.Context, id int32, epoch int64) (ProducerIDs, error) {
	n := l.n
	var block ProducerIDs
	_, err := n.change(ctx, false, func(img *Image, _ *conf.Broker) ([]Change, error) {
		var changes []Change
		var err error
		block, changes, err = decideProducerIDs(img, id, epoch)
		return changes, err
	})
	if err != nil {
		return ProducerIDs{}, err
	}
	return block, nil
}

// AlterPartitions decides on in-sync sets.
func (l Local) AlterPartitions(ctx context.Context, leader int32, epoch int64, wishes []AlterPartition) ([]AlteredPartition, error) {
	n := l.n
	var results []AlteredPartition
	_, err := n.change(ctx, false, func(img *Image, b *conf.Broker) ([]Change, error) {
		var changes []Change
		var err error
		results, changes, err = decideAlterPartition(img, b, leader, epoch, wishes)
		return changes, err
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// ElectLeaders elects preferred leaders or, with unclean, any leader for
// partitions without one. nil means every partition.
func (n *Node) ElectLeaders(ctx context.Context, unclean bool, partitions []PartitionRef) ([]ElectionResult, error) {
	var results []ElectionResult
	_, err := n.change(ctx, false, func(img *Image, b *conf.Broker) ([]Change, error) {
		var changes []Change
		results, changes = decideElection(img, b, unclean, partitions)
		return changes, nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// AlterReassignments starts, replaces and cancels reassignments; each has its
// own result. With factorMayChange false, a wish for another number of
// replicas is refused (KIP-860).
func (n *Node) AlterReassignments(ctx context.Context, wishes []Reassign, factorMayChange bool) ([]ReassignResult, error) {
	var results []ReassignResult
	_, err := n.change(ctx, false, func(img *Image, b *conf.Broker) ([]Change, error) {
		var changes []Change
		results, changes = decideReassign(img, b, wishes, factorMayChange)
		return changes, nil
	})
	if err != nil {
		return nil, err
	}
	return results, nil
}

// ListReassignments returns the reassignments in progress as this node knows
// them: of the partitions named, or all with nil.
func (n *Node) ListReassignments(partitions []PartitionRef) []Reassignment {
	return n.Image().Reassignments(partitions)
}

// ConfirmDeleted records that a deleted topic's data is gone.
func (l Local) ConfirmDeleted(ctx context.Context, id topic.ID, broker int32, tier bool) error {
	n := l.n
	_, err := n.change(ctx, false, func(img *Image, _ *conf.Broker) ([]Change, error) {
		return decideConfirmDeleted(img, ConfirmDeleted{ID: id, Broker: broker, Tier: tier}), nil
	})
	return err
}
