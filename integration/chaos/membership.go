//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// joinAndLeave lets a broker with an empty disk join, moves two partitions to
// it and back, and takes it out again. When the run ends in between, it stays.
func joinAndLeave(ctx context.Context, n *nemesis) (string, error) {
	b := n.c.brokers[len(n.c.brokers)-1]
	if !b.isMember() {
		b.setMember(true)
		if err := b.start(); err != nil {
			return "", err
		}
		n.note(fmt.Sprintf("broker %d joins", b.id))
		limited, cancel := context.WithTimeout(ctx, healLimit)
		err := b.waitReady(limited)
		cancel()
		if err != nil {
			return "", err
		}
	}
	keys := []string{allKeys[n.rng.IntN(2)], allKeys[2+n.rng.IntN(2)]}
	n.note(fmt.Sprintf("%v move to broker %d", keys, b.id))
	if !n.moved(ctx, keys, func(replicas []int32) []int32 {
		return append([]int32{int32(b.id)}, replicas[:min(len(replicas), 2)]...)
	}) {
		return fmt.Sprintf("broker %d has joined", b.id), nil
	}
	n.sleep(ctx, 1000, 3000)
	n.note(fmt.Sprintf("everything moves away from broker %d", b.id))
	if !n.moved(ctx, allKeys, func(replicas []int32) []int32 {
		return n.without(replicas, int32(b.id))
	}) || !n.empty(ctx, b.id) {
		return fmt.Sprintf("broker %d has replicas still", b.id), nil
	}
	if err := b.stop(); err != nil {
		return "", err
	}
	if err := n.unregister(ctx, b.id); err != nil {
		return fmt.Sprintf("broker %d is stopped and cannot be taken out: %v", b.id, err), nil
	}
	b.setMember(false)
	return fmt.Sprintf("broker %d has left", b.id), b.wipe()
}

// without takes a broker from a list of replicas and fills it up.
func (n *nemesis) without(replicas []int32, gone int32) []int32 {
	if !slices.Contains(replicas, gone) {
		return replicas
	}
	var rest []int32
	for _, r := range replicas {
		if r != gone {
			rest = append(rest, r)
		}
	}
	for _, b := range n.c.members() {
		if id := int32(b.id); len(rest) < len(replicas) && id != gone && !slices.Contains(rest, id) {
			rest = append(rest, id)
		}
	}
	return rest
}

// moved reassigns keys and waits until that is done, or the round's time is up.
func (n *nemesis) moved(ctx context.Context, keys []string, to func(replicas []int32) []int32) bool {
	var req kadm.AlterPartitionAssignmentsReq
	v := n.look(ctx)
	want := map[string][]int32{}
	for _, key := range keys {
		l, any := v.leaders[key]
		if !any {
			return false
		}
		topic, partition := splitKey(key)
		if want[key] = to(l.replica); !slices.Equal(want[key], l.replica) {
			req.Assign(topic, partition, want[key])
		}
	}
	if len(req) > 0 {
		if _, err := kadm.NewClient(n.eye.cl).AlterPartitionAssignments(ctx, req); err != nil {
			n.note(fmt.Sprintf("the move is refused: %v", err))
			return false
		}
	}
	for range 40 {
		done := true
		v := n.look(ctx)
		for key, replicas := range want {
			l := v.leaders[key]
			done = done && slices.Equal(l.replica, replicas) && len(l.isr) == len(replicas)
		}
		if done {
			return true
		}
		n.sleep(ctx, 500, 600)
	}
	return false
}

// empty moves the internal topics' replicas away from a broker as well.
func (n *nemesis) empty(ctx context.Context, id int) bool {
	for range 40 {
		v, err := n.eye.look(ctx)
		if err != nil {
			n.sleep(ctx, 500, 600)
			continue
		}
		var req kadm.AlterPartitionAssignmentsReq
		for key, l := range v.leaders {
			if slices.Contains(l.replica, int32(id)) {
				topic, partition := splitKey(key)
				req.Assign(topic, partition, n.without(l.replica, int32(id)))
			}
		}
		if len(req) == 0 {
			return true
		}
		_, _ = kadm.NewClient(n.eye.cl).AlterPartitionAssignments(ctx, req) // asked again until it is so
		n.sleep(ctx, 500, 600)
	}
	return false
}

// unregister takes a stopped broker out of the metadata.
func (n *nemesis) unregister(ctx context.Context, id int) error {
	var last error
	for range 20 {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = int32(id)
		resp, err := req.RequestWith(ctx, n.eye.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err == nil || errors.Is(err, kerr.BrokerIDNotRegistered) {
			return nil
		}
		last = err
		n.sleep(ctx, 500, 600)
	}
	return last
}

// removeVote takes a broker's vote in the metadata quorum away.
func (n *nemesis) removeVote(ctx context.Context, id int) error {
	var last error
	for range 40 {
		if last = n.askToRemoveVote(ctx, id); last == nil || ctx.Err() != nil {
			return nil
		}
		n.sleep(ctx, 500, 600)
	}
	return fmt.Errorf("remove the vote of broker %d: %w", id, last)
}

func (n *nemesis) askToRemoveVote(ctx context.Context, id int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	ask := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	ask.Topics = append(ask.Topics, t)
	quorum, err := ask.RequestWith(ctx, n.eye.cl)
	if err == nil {
		err = kerr.ErrorForCode(quorum.ErrorCode)
	}
	if err != nil {
		return err
	}
	for _, voter := range quorum.Topics[0].Partitions[0].CurrentVoters {
		if voter.ReplicaID != int32(id) {
			continue
		}
		req := kmsg.NewPtrRemoveRaftVoterRequest()
		req.VoterID, req.VoterDirectoryID = voter.ReplicaID, voter.ReplicaDirectoryID
		resp, err := req.RequestWith(ctx, n.eye.cl)
		if err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.ErrorCode)
	}
	return nil // it has none
}
