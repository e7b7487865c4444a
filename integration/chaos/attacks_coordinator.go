//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// coordinatorOf asks who coordinates a group (0) or a transactional id (1); 0
// when nobody knows.
func (n *nemesis) coordinatorOf(ctx context.Context, kind int8, name string) int {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, name, []string{name}
	resp, err := req.RequestWith(ctx, n.eye.cl)
	if err != nil || len(resp.Coordinators) != 1 || kerr.ErrorForCode(resp.Coordinators[0].ErrorCode) != nil {
		return 0
	}
	id := int(resp.Coordinators[0].NodeID)
	if id < 1 || id > len(n.c.brokers) {
		return 0
	}
	return id
}

// killRebalancing lets a member join a group, so that it rebalances, and kills
// the coordinator in the middle of that.
func killRebalancing(ctx context.Context, n *nemesis) (string, error) {
	group := []string{"workers-franz-go", "workers-franz-848", "transform-franz-go", "transform-franz-848"}[n.rng.IntN(4)]
	id := n.coordinatorOf(ctx, 0, group)
	if id == 0 {
		return "", nil
	}
	f := &franz{bootstrap: n.c.bootstrap(), owns: n.rec}
	defer f.crash()
	topics := []string{plainTopic, tieredTopic}
	if group[:1] == "t" {
		topics = topics[:1] // as the others of the group
	}
	if err := f.subscribe(ctx, topics, group); err != nil {
		return "", err
	}
	n.sleep(ctx, 0, 700)
	return n.killOne(id, "the coordinator of "+group+", which rebalances")
}

// killEnding makes a transaction, asks for its end, and kills the coordinator
// before, while or after that is decided and carried out.
func killEnding(ctx context.Context, n *nemesis) (string, error) {
	name := fmt.Sprint("ending-", n.rng.IntN(1000))
	id := n.coordinatorOf(ctx, 1, name)
	if id == 0 {
		return "", nil
	}
	t, err := newFranzTeller(n.c.bootstrap(), name)
	if err != nil {
		return "", err
	}
	w := &teller{rec: n.rec, rng: rand.New(rand.NewPCG(n.rng.Uint64(), 0)), id: name, t: t, process: int(n.rec.process.Add(1))}
	limited, cancel := context.WithTimeout(ctx, assignLimit)
	defer cancel()
	if err := t.open(limited); err != nil {
		t.crash()
		return "", nil
	}
	delay := time.Duration(n.rng.IntN(80)) * time.Millisecond
	ended := make(chan struct{})
	go func() { // ends with the transaction's time
		defer close(ended)
		w.deal(context.WithoutCancel(ctx))
		if w.t != nil {
			w.crash("at its end")
		}
	}()
	defer func() { <-ended }()
	pause(ctx, delay)
	return n.killOne(id, fmt.Sprintf("the coordinator of %s, %v after the begin of a transaction", name, delay))
}

// jumpClocks moves the time of day of one broker, or of all by different times.
func jumpClocks(_ context.Context, n *nemesis) (string, error) {
	jumps := []time.Duration{24 * time.Hour, -24 * time.Hour, time.Hour, -time.Hour, 30 * time.Second, -30 * time.Second}
	first := n.any()
	if first == 0 {
		return "", nil
	}
	all := n.rng.IntN(3) == 0
	text := "clocks jump:"
	for _, b := range n.c.members() {
		if b.is() != up || !all && b.id != first {
			continue
		}
		by := jumps[n.rng.IntN(len(jumps))]
		if err := b.jumpClock(by); err != nil {
			return "", err
		}
		text += fmt.Sprintf(" broker %d by %v", b.id, by)
	}
	return text, nil
}

// failDisk makes every access to a broker's disk fail from now on, under the
// running process: the file system is shut down, and nothing else.
func failDisk(_ context.Context, n *nemesis) (string, error) {
	id := n.any()
	if id == 0 {
		return "", nil
	}
	b := n.c.broker(id)
	b.hold(true)
	b.broken = true // healing ends the process, if it has not ended, and mounts the disk again
	return fmt.Sprintf("every access to the disk of broker %d fails with an I/O error", id), b.disk.cutPower()
}

// unclean makes a broker lead that lacks committed records, where the topics
// allow it: the follower of two is killed, the leader goes on alone, and when it
// is killed too, the follower comes back.
func unclean(ctx context.Context, n *nemesis) (string, error) {
	if !n.calm(ctx) {
		return "", nil
	}
	key := allKeys[n.rng.IntN(len(allKeys))]
	l := n.look(ctx).leaders[key]
	if l.broker < 1 || len(l.replica) != 2 {
		return "", nil
	}
	other := l.replica[0] + l.replica[1] - l.broker
	leader, follower := n.c.broker(int(l.broker)), n.c.broker(int(other))
	if err := follower.kill(); err != nil {
		return "", err
	}
	n.note(fmt.Sprintf("broker %d is killed; broker %d goes on alone with %s", follower.id, leader.id, key))
	n.sleep(ctx, 4000, 6000)
	if err := errors.Join(leader.kill(), follower.start()); err != nil {
		return "", err
	}
	n.note(fmt.Sprintf("broker %d is killed as well, and broker %d comes back", leader.id, follower.id))
	for range 60 {
		if now := n.look(ctx).leaders[key]; int(now.broker) == follower.id {
			break
		}
		if pause(ctx, 250*time.Millisecond); ctx.Err() != nil {
			break
		}
	}
	n.sleep(ctx, 1000, 3000)
	return fmt.Sprintf("broker %d may lead %s without its last records", follower.id, key), nil
}

// rollUpgrade brings the next release to every broker in turn; once all have it,
// the level of the metadata is raised, and then they are only restarted.
func rollUpgrade(ctx context.Context, n *nemesis) (string, error) {
	for _, b := range n.c.brokers {
		if !n.calm(ctx) {
			return "", nil
		}
		if b.binary == n.next {
			continue
		}
		n.note(fmt.Sprintf("broker %d is stopped in order and started as the next release", b.id))
		if err := b.stop(); err != nil {
			return "", err
		}
		b.binary = n.next
		if err := b.start(); err != nil {
			return "", err
		}
		limited, cancel := context.WithTimeout(ctx, healLimit)
		err := b.waitReady(limited)
		cancel()
		if err != nil {
			return "", err
		}
		if n.rng.IntN(3) == 0 {
			return fmt.Sprintf("two releases run side by side, up to broker %d the newer", b.id), nil
		}
	}
	if !n.raised && n.calm(ctx) {
		n.raised = true
		return "all brokers are of the next release: its level is taken", n.raise(ctx)
	}
	return rollRestart(ctx, n)
}

// raise raises varve.version to what all brokers can read.
func (n *nemesis) raise(ctx context.Context) error {
	var last error
	for range 30 {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.MaxVersionLevel, u.UpgradeType = "varve.version", 5, 1
		req.FeatureUpdates = append(req.FeatureUpdates, u)
		resp, err := req.RequestWith(ctx, n.eye.cl)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if last = err; err == nil || ctx.Err() != nil {
			return nil
		}
		n.sleep(ctx, 500, 600)
	}
	return fmt.Errorf("raise varve.version: %w", last)
}
