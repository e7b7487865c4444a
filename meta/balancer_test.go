package meta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/varvelog/varve/meta/topic"
)

// await waits for an image of which a condition holds.
func await(t *testing.T, n *Node, what string, ok func(*Image) bool) {
	t.Helper()
	seen := make(chan struct{}, 1)
	cancel := n.Subscribe(func(_, next *Image) {
		if ok(next) {
			select {
			case seen <- struct{}{}:
			default:
			}
		}
	})
	defer cancel()
	select {
	case <-seen:
	case <-time.After(time.Minute):
		var state strings.Builder
		for _, tp := range n.Image().Topics() {
			for i := range tp.Partitions {
				fmt.Fprintf(&state, "\n%s-%d %s", tp.Name, i, partitionText(&tp.Partitions[i]))
			}
		}
		t.Fatalf("waited in vain: %s%s", what, state.String())
	}
}

// catchUpAlways has leaders report all their replicas in sync as soon as there
// are new ones, as live brokers would.
func catchUpAlways(t *testing.T, n *Node) {
	cancel := n.Subscribe(func(_, img *Image) {
		for _, tp := range img.Topics() {
			for i := range tp.Partitions {
				p := &tp.Partitions[i]
				if p.Leader == NoLeader || len(p.ISR) == len(p.Replicas) {
					continue
				}
				w := AlterPartition{ID: tp.ID, Index: int32(i), LeaderEpoch: p.LeaderEpoch, PartitionEpoch: p.PartitionEpoch}
				for _, id := range p.Replicas {
					w.ISR = append(w.ISR, BrokerState{ID: id, Epoch: img.Brokers[id].Epoch})
				}
				_, err := n.AlterPartitions(context.Background(), p.Leader, img.Brokers[p.Leader].Epoch, []AlterPartition{w})
				if err != nil && !errors.Is(err, ErrClosed) {
					t.Error(err)
				}
			}
		}
	})
	t.Cleanup(cancel)
}

func balancedNode(t *testing.T, sizes func(context.Context) (map[topic.Partition]int64, error), brokers ...int32) *Node {
	t.Helper()
	b := silent(t, map[string]string{
		"varve.balancer.interval.ms": "100", "varve.balancer.moves.max": "3", "leader.imbalance.check.interval.seconds": "1",
	})
	n := openNode(t, Config{Broker: b}, Deps{Sizes: sizes})
	for _, id := range brokers {
		join(t, n, id)
	}
	return n
}

func join(t *testing.T, n *Node, id int32) {
	t.Helper()
	if _, err := n.RegisterBroker(context.Background(), Registration{ID: id, Host: "h", Port: 1}); err != nil {
		t.Fatal(err)
	}
}

func TestADrainedBrokerCanBeRemoved(t *testing.T) {
	ctx := context.Background()
	n := balancedNode(t, nil, 1, 2, 3)
	catchUpAlways(t, n)
	created, err := n.CreateTopics(ctx, []NewTopic{{Name: "t", Partitions: 12, ReplicationFactor: 2}}, false)
	if err != nil || created[0].Err != nil {
		t.Fatal(err, created)
	}
	if err := n.RemoveBroker(ctx, 2); !errors.Is(err, ErrBrokerNotEmpty) {
		t.Fatalf("a broker with replicas was removed: %v", err)
	}
	if err := n.DrainBroker(ctx, 2, true); err != nil {
		t.Fatal(err)
	}
	await(t, n, "broker 2 is empty", func(img *Image) bool { return img.Holds(2) == 0 && img.reassigning() == 0 })
	if err := n.RemoveBroker(ctx, 2); err != nil {
		t.Fatal(err)
	}
	img := n.Image()
	if _, there := img.Brokers[2]; there || img.Holds(1) != 12 || img.Holds(3) != 12 {
		t.Errorf("brokers %v, %d and %d replicas", img.Brokers, img.Holds(1), img.Holds(3))
	}
}

func TestTheBalancerIsAskedFirst(t *testing.T) {
	ctx := context.Background()
	n := balancedNode(t, func(context.Context) (map[topic.Partition]int64, error) {
		return nil, errors.New("nobody knows")
	}, 1)
	catchUpAlways(t, n)
	created, err := n.CreateTopics(ctx, []NewTopic{{Name: "t", Partitions: 10, ReplicationFactor: 1}}, false)
	if err != nil || created[0].Err != nil {
		t.Fatal(err, created)
	}
	join(t, n, 2)
	if _, err := n.BalancePlan(ctx); err == nil {
		t.Error("a plan without knowing the sizes does not say so")
	}
	n.deps.Sizes = nil
	moves, err := n.BalancePlan(ctx)
	if err != nil || len(moves) != 4 {
		t.Fatalf("%v, %v", moves, err)
	}
	if got := n.Image().Holds(2); got != 0 {
		t.Fatalf("a plan has moved %d replicas", got)
	}
	yes := "true"
	if _, err := n.AlterConfigs(ctx, []ConfigChange{{
		ConfigResource: ConfigResource{Kind: BrokerConfig}, Edits: []ConfigEdit{{Name: "varve.balancer.enable", Value: &yes}},
	}}, false); err != nil {
		t.Fatal(err)
	}
	await(t, n, "both hold nearly as much", func(img *Image) bool { return img.Holds(1) == 6 && img.Holds(2) == 4 })
}

// TestMovesUnderWayCountAsMade has a replica be on its way that never arrives: whoever still has it loses it, so no more is to be moved
// than if it were there.
func TestMovesUnderWayCountAsMade(t *testing.T) {
	ctx := context.Background()
	n := balancedNode(t, nil, 1)
	created, err := n.CreateTopics(ctx, []NewTopic{{Name: "t", Partitions: 10, ReplicationFactor: 1}}, false)
	if err != nil || created[0].Err != nil {
		t.Fatal(err, created)
	}
	join(t, n, 2)
	results, err := n.AlterReassignments(ctx, []Reassign{{PartitionRef: PartitionRef{Topic: "t"}, Replicas: []int32{2}}}, true)
	if err != nil || results[0].Err != nil {
		t.Fatal(err, results)
	}
	if moves, err := n.BalancePlan(ctx); err != nil || len(moves) != 3 {
		t.Errorf("%d moves beside one of four: %v, %v", len(moves), moves, err)
	}
}

func TestPreferredLeadersLeadAgain(t *testing.T) {
	ctx := context.Background()
	n := balancedNode(t, nil, 1, 2)
	catchUpAlways(t, n)
	created, err := n.CreateTopics(ctx, []NewTopic{{Name: "t", Partitions: 4, ReplicationFactor: 2}}, false)
	if err != nil || created[0].Err != nil {
		t.Fatal(err, created)
	}
	before := n.State()
	b := n.Image().Brokers[2]
	if err := n.FenceBroker(ctx, 2, b.Epoch); err != nil {
		t.Fatal(err)
	}
	if s := n.State(); s.NotPreferred != 2 || s.UnderReplicated != 4 || s.Fenced != 1 || s.Elections-before.Elections != 2 {
		t.Errorf("with a broker fenced: %+v", s)
	}
	if err := n.UnfenceBroker(ctx, 2, b.Epoch); err != nil {
		t.Fatal(err)
	}
	await(t, n, "preferred leaders lead", func(img *Image) bool {
		s := img.state()
		return s.NotPreferred == 0 && s.UnderReplicated == 0
	})
}

func TestUncleanElectionsAreCountedAndLogged(t *testing.T) {
	ctx := context.Background()
	var log lockedText
	n := openNode(t, Config{}, Deps{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelError}))})
	join(t, n, 1)
	join(t, n, 2)
	created, err := n.CreateTopics(ctx, []NewTopic{{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignment: []Assignment{{Brokers: []int32{1, 2}}}}}, false)
	if err != nil || created[0].Err != nil {
		t.Fatal(err, created)
	}
	b := n.Image().Brokers[1]
	if _, err := n.AlterPartitions(ctx, 1, b.Epoch, []AlterPartition{{ID: created[0].ID, ISR: []BrokerState{{ID: 1, Epoch: b.Epoch}}}}); err != nil {
		t.Fatal(err)
	}
	if err := n.FenceBroker(ctx, 1, b.Epoch); err != nil {
		t.Fatal(err)
	}
	if s := n.State(); s.Offline != 1 || s.UncleanElections != 0 || log.String() != "" {
		t.Fatalf("before: %+v\n%s", s, log.String())
	}
	results, err := n.ElectLeaders(ctx, true, []PartitionRef{{Topic: "t"}})
	if err != nil || results[0].Err != nil {
		t.Fatal(err, results)
	}
	if s := n.State(); s.Offline != 0 || s.UncleanElections != 1 {
		t.Errorf("after: %+v", s)
	}
	if p := n.Image().Topic("t").Partitions[0]; p.UncleanEpoch != p.LeaderEpoch || !p.Recovering {
		t.Errorf("not recorded: %s", partitionText(&p))
	}
	if got := log.String(); !strings.Contains(got, "unclean leader election") || !strings.Contains(got, "topic=t partition=0 leader=2") {
		t.Errorf("logged: %q", got)
	}
}

// lockedText is what many goroutines write.
type lockedText struct {
	mu   sync.Mutex // guards the following
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
