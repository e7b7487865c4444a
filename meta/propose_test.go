package meta

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/varvelog/varve/meta/conf"
)

// stalledStore takes no entries while a test holds it.
type stalledStore struct {
	store
	hold sync.RWMutex
}

func (s *stalledStore) StoreLogs(l []*raft.Log) error {
	s.hold.RLock()
	defer s.hold.RUnlock()
	return s.store.StoreLogs(l)
}

// A disk that hangs, or a quorum whose followers' do, keeps its leader and takes nothing. Whoever asks is answered in the time that it
// has given, whatever others wait for, and all that raft is left with is one proposal.
func TestAChangeThatIsNeverTakenIsAnsweredInTime(t *testing.T) {
	none := func(*Image, *conf.Broker) ([]Change, error) { return nil, nil }
	for name, ask := range map[string]func(*Node, context.Context, int) error{
		"topic": func(n *Node, ctx context.Context, i int) error {
			_, err := n.CreateTopics(ctx, []NewTopic{{Name: fmt.Sprintf("topic-%d", i), Partitions: 1, ReplicationFactor: 1}}, false)
			return err
		},
		"look at the newest": func(n *Node, ctx context.Context, _ int) error {
			_, err := n.change(ctx, true, none)
			return err
		},
		"voter": func(n *Node, ctx context.Context, i int) error {
			return n.admit(ctx, Registration{ID: int32(100 + i), RaftAddress: "127.0.0.1:1"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := &stalledStore{}
			n := openNode(t, Config{faults: func(s store) store { disk.store = s; return disk }}, Deps{})
			register(t, n)
			if err := n.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
			if name != "topic" {
				n.term = 0 // as after an election
			}
			n.leave()
			last := n.raft.LastIndex()
			disk.hold.Lock()
			start := time.Now()
			var run sync.WaitGroup
			for i := range 20 {
				run.Go(func() {
					ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
					defer cancel()
					if err := ask(n, ctx, i); !errors.Is(err, ErrUnknownOutcome) || !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("request %d: %v", i, err)
					}
				})
			}
			run.Wait()
			if took := time.Since(start); took > n.cfg.ProposeTimeout/2 {
				t.Errorf("20 requests that give up after 50 ms took %v", took)
			}
			if owed := n.asked.Load(); owed > 1 {
				t.Errorf("raft was asked %d times", owed)
			}
			disk.hold.Unlock()
			createTopic(t, n, "again", 1)
			if got := n.raft.LastIndex() - last; got > 3 {
				t.Errorf("%d entries were written", got)
			}
		})
	}
}
