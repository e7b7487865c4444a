package meta

import (
	"context"
	"sync"
	"testing"
	"time"
)

// TestEveryProposalIsAnsweredWhenTheNodeStops stops a node while entries that are committed wait for the state machine: raft's end
// would leave their proposers waiting for ever.
func TestEveryProposalIsAnsweredWhenTheNodeStops(t *testing.T) {
	n := openNode(t, Config{}, Deps{})
	register(t, n)
	n.fsm.mu.Lock() // it stands still
	var proposers sync.WaitGroup
	for i := range int64(20) {
		last := n.raft.LastIndex()
		proposers.Go(func() {
			_, _, _ = n.propose(context.Background(), Command{Base: n.Image().Index, Changes: []Change{TakeProducerIDs{Broker: 1, Next: i}}})
		})
		for n.raft.LastIndex() == last {
			<-time.After(time.Millisecond)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- n.Close(context.Background()) }()
	<-n.ctx.Done()
	<-time.After(50 * time.Millisecond) // raft could have stopped by now
	n.fsm.mu.Unlock()
	done := make(chan struct{})
	go func() {
		proposers.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%d answers are owed", n.asked.Load())
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if got := n.asked.Load(); got != 0 {
		t.Fatalf("%d answers are owed", got)
	}
	if _, err := n.commit(context.Background(), Command{}); err == nil {
		t.Fatal("a stopped node takes a proposal")
	}
}
