package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// pair starts what the coordinators' parts measure on one broker, one system
// after the other.
func (b *bench) pair(ctx context.Context) []candidate[system] {
	varve := func(name string, set ...string) candidate[system] {
		return candidate[system]{name, func() (system, error) { return b.startVarve(name, nil, set...) }}
	}
	return []candidate[system]{
		varve("varve-fsync"),
		varve("varve-replicated", "--set", "varve.durability=replicated"),
		{"kafka", func() (system, error) { return b.startKafka(ctx, false) }},
	}
}

// candidate is a system that can be started.
type candidate[S any] struct {
	name  string
	start func() (S, error)
}

// chosen says whether -systems asks for a system; it asks for all when empty.
func chosen(name string) bool {
	for prefix := range strings.SplitSeq(*only, ",") {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// eachFresh runs a step on every system of a round, each newly started on an
// empty directory: what is warmed up, a step warms up itself.
func (b *bench) eachFresh(ctx context.Context, step func(context.Context, *system, int) error) error {
	for round := 1; round <= *rounds; round++ {
		for _, c := range b.pair(ctx) {
			if !chosen(c.name) {
				continue
			}
			s, err := c.start()
			if err != nil {
				return err
			}
			err = step(ctx, &s, round)
			if err := errors.Join(err, s.stop(), b.clear(s)); err != nil {
				return err
			}
		}
	}
	return nil
}

// groups measures the coordinator of groups: how long members wait for their
// partitions, commits a second, and 100,000 groups in memory and after a
// restart; then, on three brokers, what the death of a coordinator costs.
func (b *bench) groups(ctx context.Context) error {
	if err := b.eachFresh(ctx, func(ctx context.Context, s *system, round int) error {
		if err := b.commits(ctx, s, round); err != nil {
			return err
		}
		if s.name != "varve-replicated" { // assignments wait for heartbeats, not for disks
			if err := b.joins(ctx, s, round); err != nil {
				return err
			}
		}
		if s.name == "varve-fsync" { // memory and loading are the same, and filling takes longer
			return nil
		}
		return b.population(ctx, s, round, groupPopulation())
	}); err != nil {
		return err
	}
	return b.takeovers(ctx)
}

const (
	joinMembers    = 100
	joinWarm       = 30 // members of a group before, which does not count
	joinPartitions = 200
	joinMax        = 90 * time.Second
)

// joins measures 100 members that start at once, and one more that comes to
// them, under both protocols and with the client's defaults.
func (b *bench) joins(ctx context.Context, s *system, round int) error {
	for _, protocol := range []struct {
		name string
		opts []kgo.Opt
	}{
		{"classic", nil},
		{"consumer", []kgo.Opt{kgo.ServerSideBalancer()}},
	} {
		name := "join-" + protocol.name
		var f figures
		for _, members := range []int{joinWarm, joinMembers} {
			group := fmt.Sprint(name, "-", members)
			if err := createTopic(ctx, s.addr, group, joinPartitions, 1, nil); err != nil {
				return err
			}
			var err error
			if f, err = b.join(ctx, s, group, members, protocol.opts...); err != nil {
				return fmt.Errorf("%s on %s: %w", group, s.name, err)
			}
		}
		if err := b.note(measured{"groups", name, s.name, round, f}); err != nil {
			return err
		}
	}
	return nil
}

// join has so many members start at once, and then one more.
func (b *bench) join(ctx context.Context, s *system, name string, members int, opts ...kgo.Opt) (f figures, err error) {
	a := &assignment{partitions: joinPartitions, owner: map[int32]int{}, since: map[int32]time.Time{}}
	var clients []*kgo.Client
	defer func() {
		var wg sync.WaitGroup
		for _, cl := range clients {
			wg.Go(cl.Close)
		}
		wg.Wait()
	}()
	start := func() error {
		cl, err := a.member(len(clients), append([]kgo.Opt{kgo.SeedBrokers(s.addr), kgo.ConsumerGroup(name), kgo.ConsumeTopics(name), kgo.FetchMaxWait(5 * time.Second)}, opts...)...)
		if err == nil {
			clients = append(clients, cl)
		}
		return err
	}
	before, err := cpuOf(s.pid)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	for range members {
		if err := start(); err != nil {
			return nil, err
		}
	}
	assigned, err := a.await(ctx, members)
	if err != nil {
		return nil, err
	}
	after, err := cpuOf(s.pid)
	if err != nil {
		return nil, err
	}
	f = figures{"assigned_ms": millis(assigned.Sub(began)), "broker_cpu_s": (after - before).Seconds()}
	a.forgetGaps()
	began = time.Now()
	if err := start(); err != nil {
		return nil, err
	}
	if assigned, err = a.await(ctx, members+1); err != nil {
		return nil, err
	}
	f["further_ms"], f["unread_ms"] = millis(assigned.Sub(began)), millis(a.longestGap())
	return f, nil
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// assignment is who reads which partition of one topic, by what the members'
// clients were told.
type assignment struct {
	partitions int

	mu    sync.Mutex // guards the following
	owner map[int32]int
	since map[int32]time.Time // of partitions that nobody reads
	gap   time.Duration       // the longest that a partition was without a reader
	last  time.Time           // of the last change
}

// member starts a further reader.
func (a *assignment) member(id int, opts ...kgo.Opt) (*kgo.Client, error) {
	gone := func(_ context.Context, _ *kgo.Client, list map[string][]int32) { a.change(id, list, false) }
	return kgo.NewClient(append(opts,
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, list map[string][]int32) { a.change(id, list, true) }),
		kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone))...)
}

func (a *assignment) change(id int, list map[string][]int32, owns bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, partitions := range list {
		for _, p := range partitions {
			if owns {
				if since, ok := a.since[p]; ok {
					a.gap = max(a.gap, now.Sub(since))
				}
				delete(a.since, p)
				a.owner[p] = id
			} else if a.owner[p] == id {
				delete(a.owner, p)
				a.since[p] = now
			}
			a.last = now
		}
	}
}

func (a *assignment) forgetGaps() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gap = 0
}

func (a *assignment) longestGap() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gap
}

// await waits until every partition is read and no member has more than its
// share, and gives the time of the change that made it so.
func (a *assignment) await(ctx context.Context, members int) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, joinMax)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		at, err := a.even(members)
		if err == nil {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return at, fmt.Errorf("%w after %v", err, joinMax)
		case <-tick.C:
		}
	}
}

func (a *assignment) even(members int) (time.Time, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	counts := make(map[int]int, members)
	for _, id := range a.owner {
		counts[id]++
	}
	least, most := a.partitions, 0
	for _, n := range counts {
		least, most = min(least, n), max(most, n)
	}
	if len(a.owner) != a.partitions || len(counts) != members || most-least > 1 {
		return a.last, fmt.Errorf("%d of %d partitions are read, by %d of %d members, %d to %d each", len(a.owner), a.partitions, len(counts), members, least, most)
	}
	return a.last, nil
}
