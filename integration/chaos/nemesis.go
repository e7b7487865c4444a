//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/varvelog/varve/integration/history"
)

// nemesis breaks the cluster and mends it, again and again.
type nemesis struct {
	c   *cluster
	rec *recorder
	rng *rand.Rand
	eye *raw // its own look at the cluster, from the clients' place
	log func(format string, args ...any)

	attacks int // that did harm
	trouble []string
	next    string // binary of the next release
	raised  bool   // its level is taken
	flips   int    // the broker whose bits flip
	fleet   *fleeting
	undo    []func() error  // puts back what was spoilt in the bucket
	told    map[string]bool // key and broker → its log was looked at
	spoils  int
}

// attack does one harm and says which. What it broke, cluster.heal mends.
type attack func(ctx context.Context, n *nemesis) (string, error)

// torment runs attacks one after another until ctx ends, and heals at the end.
func (n *nemesis) torment(ctx context.Context, choose func(rng *rand.Rand) []attack) error {
	for ctx.Err() == nil {
		n.sleep(ctx, 2000, 5000)
		for _, a := range choose(n.rng) {
			if ctx.Err() != nil {
				break
			}
			what, err := a(ctx, n)
			if err != nil && ctx.Err() == nil {
				return fmt.Errorf("attack: %w", err)
			}
			if what != "" {
				n.attacks++
				n.note(what)
			}
			n.sleep(ctx, 0, 1500)
		}
		n.sleep(ctx, 3000, 8000)
		if err := n.heal(ctx); err != nil {
			return err
		}
	}
	return nil
}

// heal mends everything. The cluster gets its time also when the run's is over.
func (n *nemesis) heal(ctx context.Context) error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), healLimit)
	defer cancel()
	err := errors.Join(n.unspoil(), n.c.heal(limited))
	n.note("all is healed")
	return err
}

func (n *nemesis) note(what string) {
	n.log("%s", what)
	n.rec.add(history.Event{Process: -1, Type: history.Info, F: history.Fault, Note: what})
}

func (n *nemesis) sleep(ctx context.Context, least, most int) {
	pause(ctx, time.Duration(least+n.rng.IntN(most-least))*time.Millisecond)
}

// look is the cluster as it describes itself. While nobody answers the answer
// is nobody.
func (n *nemesis) look(ctx context.Context) view {
	v, err := n.eye.look(ctx, plainTopic, tieredTopic)
	if err != nil {
		return view{controller: -1}
	}
	return v
}

// any is some broker that is up, or 0.
func (n *nemesis) any() int {
	return n.among(func(int) bool { return true })
}

func (n *nemesis) among(fits func(id int) bool) int {
	var all []int
	for _, b := range n.c.members() {
		if b.is() == up && fits(b.id) {
			all = append(all, b.id)
		}
	}
	if len(all) == 0 {
		return 0
	}
	return all[n.rng.IntN(len(all))]
}

// leaderOf picks a key and the broker that leads it; 0 when there is none.
func (n *nemesis) leaderOf(ctx context.Context) (key string, id int) {
	key = allKeys[n.rng.IntN(len(allKeys))]
	l, any := n.look(ctx).leaders[key]
	if !any || l.broker < 1 || int(l.broker) > len(n.c.brokers) {
		return key, 0
	}
	return key, int(l.broker)
}

// controller is the broker that leads the metadata; 0 when nobody knows.
func (n *nemesis) controller(ctx context.Context) int {
	id := int(n.look(ctx).controller)
	if id < 1 || id > len(n.c.brokers) {
		return 0
	}
	return id
}
