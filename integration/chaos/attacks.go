//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

func killLeader(ctx context.Context, n *nemesis) (string, error) {
	key, id := n.leaderOf(ctx)
	return n.killOne(id, "the leader of "+key)
}

func killFollower(ctx context.Context, n *nemesis) (string, error) {
	key, leader := n.leaderOf(ctx)
	return n.killOne(n.among(func(id int) bool { return id != leader }), "a follower of "+key)
}

func killController(ctx context.Context, n *nemesis) (string, error) {
	return n.killOne(n.controller(ctx), "the controller")
}

// killOne kills, and starts again at once every second time: the old
// connections and the new incarnation meet.
func (n *nemesis) killOne(id int, what string) (string, error) {
	if id == 0 {
		return "", nil
	}
	b := n.c.broker(id)
	if err := b.kill(); err != nil {
		return "", err
	}
	if n.rng.IntN(2) == 0 {
		return fmt.Sprintf("kill -9 of broker %d, %s, and at once a new start", id, what), b.start()
	}
	return fmt.Sprintf("kill -9 of broker %d, %s", id, what), nil
}

func killAll(_ context.Context, n *nemesis) (string, error) {
	var errs []error
	for _, b := range n.c.brokers {
		errs = append(errs, b.kill())
	}
	return "kill -9 of all brokers", errors.Join(errs...)
}

func killMajority(_ context.Context, n *nemesis) (string, error) {
	var errs []error
	first := n.rng.IntN(len(n.c.brokers))
	for i := range len(n.c.brokers)/2 + 1 {
		errs = append(errs, n.c.brokers[(first+i)%len(n.c.brokers)].kill())
	}
	return fmt.Sprintf("kill -9 of a majority, from broker %d on", first+1), errors.Join(errs...)
}

func pauseLeader(ctx context.Context, n *nemesis) (string, error) {
	key, id := n.leaderOf(ctx)
	if id == 0 {
		return "", nil
	}
	return fmt.Sprintf("broker %d, the leader of %s, is paused", id, key), n.c.broker(id).pause()
}

func pauseMajority(_ context.Context, n *nemesis) (string, error) {
	var errs []error
	first := n.rng.IntN(len(n.c.brokers))
	for i := range len(n.c.brokers)/2 + 1 {
		errs = append(errs, n.c.brokers[(first+i)%len(n.c.brokers)].pause())
	}
	return fmt.Sprintf("a majority is paused, from broker %d on", first+1), errors.Join(errs...)
}

func pauseAll(_ context.Context, n *nemesis) (string, error) {
	var errs []error
	for _, b := range n.c.brokers {
		errs = append(errs, b.pause())
	}
	return "all brokers are paused", errors.Join(errs...)
}

// cutLeader takes a leader away from the other brokers; clients reach it still.
func cutLeader(ctx context.Context, n *nemesis) (string, error) {
	key, id := n.leaderOf(ctx)
	return n.isolate(id, "the leader of "+key)
}

func cutController(ctx context.Context, n *nemesis) (string, error) {
	return n.isolate(n.controller(ctx), "the controller")
}

func (n *nemesis) isolate(id int, what string) (string, error) {
	if id == 0 {
		return "", nil
	}
	var errs []error
	for _, b := range n.c.brokers {
		if b.id != id {
			errs = append(errs, n.c.net.blockBoth(id, b.id))
		}
	}
	return fmt.Sprintf("broker %d, %s, is cut off from the other brokers", id, what), errors.Join(errs...)
}

// cutLeaderFromController leaves a leader its followers but for the controller.
func cutLeaderFromController(ctx context.Context, n *nemesis) (string, error) {
	controller := n.controller(ctx)
	for range 10 {
		key, id := n.leaderOf(ctx)
		if id != 0 && controller != 0 && id != controller {
			return fmt.Sprintf("broker %d, the leader of %s, is cut off from the controller, broker %d", id, key, controller),
				n.c.net.blockBoth(id, controller)
		}
	}
	return "", nil
}

// cutOneWay drops what one broker sends to the others, or what it is sent.
func cutOneWay(_ context.Context, n *nemesis) (string, error) {
	id := n.any()
	if id == 0 {
		return "", nil
	}
	out := n.rng.IntN(2) == 0
	var errs []error
	for _, b := range n.c.brokers {
		switch {
		case b.id == id:
		case out:
			errs = append(errs, n.c.net.block(id, b.id))
		default:
			errs = append(errs, n.c.net.block(b.id, id))
		}
	}
	if out {
		return fmt.Sprintf("broker %d is not heard by the others", id), errors.Join(errs...)
	}
	return fmt.Sprintf("broker %d does not hear the others", id), errors.Join(errs...)
}

// cutPair cuts two brokers from each other, both of which reach a third.
func cutPair(_ context.Context, n *nemesis) (string, error) {
	a := n.any()
	b := n.among(func(id int) bool { return id != a })
	if a == 0 || b == 0 {
		return "", nil
	}
	return fmt.Sprintf("brokers %d and %d are cut off from each other", a, b), n.c.net.blockBoth(a, b)
}

// cutClients hides a leader from the clients alone.
func cutClients(ctx context.Context, n *nemesis) (string, error) {
	key, id := n.leaderOf(ctx)
	if id == 0 {
		return "", nil
	}
	return fmt.Sprintf("clients do not reach broker %d, the leader of %s", id, key), n.c.net.blockBoth(id, clients)
}

func cutBucket(_ context.Context, n *nemesis) (string, error) {
	if n.rng.IntN(2) == 0 {
		var errs []error
		for _, b := range n.c.brokers {
			errs = append(errs, n.c.net.blockBoth(b.id, bucket))
		}
		return "nobody reaches the bucket", errors.Join(errs...)
	}
	id := n.any()
	if id == 0 {
		return "", nil
	}
	return fmt.Sprintf("broker %d does not reach the bucket", id), n.c.net.blockBoth(id, bucket)
}

// store makes an attack of a way in which the bucket misbehaves.
func store(f s3fault) attack {
	return func(_ context.Context, n *nemesis) (string, error) {
		n.c.proxy.misbehave(f)
		return "the bucket " + s3faultNames[f], nil
	}
}

func fillDisk(ctx context.Context, n *nemesis) (string, error) {
	_, id := n.leaderOf(ctx)
	if id == 0 {
		return "", nil
	}
	leave := int64(n.rng.IntN(3)) * (reserve / 4) // down to nothing at all
	return fmt.Sprintf("the disk of broker %d has %d MiB left", id, leave>>20), n.c.broker(id).disk.fill(leave)
}

func cutPower(_ context.Context, n *nemesis) (string, error) {
	id := n.any()
	if id == 0 {
		return "", nil
	}
	b := n.c.broker(id)
	if err := b.powerCycle(); err != nil {
		return "", err
	}
	if n.rng.IntN(2) == 0 {
		return fmt.Sprintf("broker %d loses power and comes back", id), b.start()
	}
	return fmt.Sprintf("broker %d loses power", id), nil
}

// cutAllPower: the disks first, all of them, then the processes.
func cutAllPower(_ context.Context, n *nemesis) (string, error) {
	var errs []error
	for _, b := range n.c.brokers {
		b.hold(true)
		defer b.hold(false)
		if b.is() == up {
			errs = append(errs, b.disk.cutPower())
		}
	}
	for _, b := range n.c.brokers {
		errs = append(errs, b.kill(), b.disk.unmount(), b.disk.mount())
	}
	return "all brokers lose power", errors.Join(errs...)
}

// wipeDisk: a broker comes back under its id with nothing. Its vote was for a
// directory that is gone, and whoever runs the cluster has to say so: until the
// vote is removed, the new directory is turned away.
func wipeDisk(ctx context.Context, n *nemesis) (string, error) {
	key, leader := n.leaderOf(ctx)
	id := n.among(func(id int) bool { return id != leader })
	if id == 0 || !n.calm(ctx) {
		return "", nil
	}
	b := n.c.broker(id)
	if err := errors.Join(b.kill(), b.wipe()); err != nil {
		return "", err
	}
	if err := n.removeVote(ctx, id); err != nil {
		return "", err
	}
	return fmt.Sprintf("broker %d, a follower of %s, loses its disk and starts with an empty one", id, key), b.start()
}

// calm waits a while for full in-sync sets: an attack that takes a replica for
// good must not meet a partition that has no other.
func (n *nemesis) calm(ctx context.Context) bool {
	for range 60 {
		v, full := n.look(ctx), true
		for _, l := range v.leaders {
			full = full && len(l.isr) == len(l.replica)
		}
		if full && len(v.leaders) > 0 && len(v.brokers) == len(n.c.members()) {
			return true
		}
		if pause(ctx, 500*time.Millisecond); ctx.Err() != nil {
			return false
		}
	}
	return false
}

// rollRestart stops and starts every broker in turn, in order.
func rollRestart(ctx context.Context, n *nemesis) (string, error) {
	for _, b := range n.c.brokers {
		if !n.calm(ctx) {
			return "", nil
		}
		n.note(fmt.Sprintf("broker %d is stopped in order and started", b.id))
		if err := errors.Join(b.stop(), b.start()); err != nil {
			return "", err
		}
		limited, cancel := context.WithTimeout(ctx, healLimit)
		err := b.waitReady(limited)
		cancel()
		if err != nil {
			return "", err
		}
	}
	return "every broker was restarted in turn", nil
}

// reassign moves a partition's replicas round, or drops and restores one.
func reassign(ctx context.Context, n *nemesis) (string, error) {
	key := allKeys[n.rng.IntN(len(allKeys))]
	topic, partition := splitKey(key)
	var to []int32
	for _, i := range n.rng.Perm(len(n.c.brokers)) {
		to = append(to, int32(i+1))
	}
	to = to[:max(2, len(to)-n.rng.IntN(2))]
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, partition, to)
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(n.eye.cl).AlterPartitionAssignments(limited, req); err != nil {
		return fmt.Sprintf("%s does not move to %v: %v", key, to, err), nil
	}
	return fmt.Sprintf("%s moves to the replicas %v", key, to), nil
}

// trim deletes the older half of a key's records.
func trim(ctx context.Context, n *nemesis) (string, error) {
	key := allKeys[n.rng.IntN(len(allKeys))]
	topic, partition := splitKey(key)
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	e, _, err := n.eye.ends(limited, key)
	if err != nil || e.End <= e.Start {
		return "", nil
	}
	to := e.Start + (e.End-e.Start)/2
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, partition, to, -1)
	got, err := kadm.NewClient(n.eye.cl).DeleteRecords(limited, offsets)
	if err == nil {
		err = got.Error()
	}
	if err != nil {
		return fmt.Sprintf("%s may be trimmed to %d: %v", key, to, err), nil
	}
	return fmt.Sprintf("%s is trimmed to %d", key, to), nil
}

// preferred makes the first replicas lead again, which moves leaders without
// any fault.
func preferred(ctx context.Context, n *nemesis) (string, error) {
	limited, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := kadm.NewClient(n.eye.cl).ElectLeaders(limited, kadm.ElectPreferredReplica, nil); err != nil {
		return fmt.Sprintf("the preferred leaders are not elected: %v", err), nil
	}
	return "the preferred leaders are elected", nil
}
