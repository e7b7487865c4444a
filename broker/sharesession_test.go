package broker

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
)

// TestSessionsThatAreOpenedAtOnceAreCountedOnce: what a session counts for is given back whoever takes its place.
func TestSessionsThatAreOpenedAtOnceAreCountedOnce(t *testing.T) {
	x := newShares(&Server{}, 10)
	key, parts := shareSessionKey{"g", "m"}, []coordinator.ShareKey{{Group: "g", Partition: 1}, {Group: "g", Partition: 2}}
	for range 500 {
		var run sync.WaitGroup
		x.mu.Lock() // they all wait for it
		for range 32 {
			run.Go(func() {
				if err := x.open(t.Context(), key, parts, &conn{}); err != nil {
					t.Error(err)
				}
			})
		}
		runtime.Gosched()
		x.mu.Unlock()
		run.Wait()
		x.end(key)
		if x.parts != 0 || len(x.refs) != 0 || len(x.sessions) != 0 {
			t.Fatalf("%d partitions, %d named, %d sessions are left", x.parts, len(x.refs), len(x.sessions))
		}
	}
}

// TestAConnectionsEndLeavesTheSessionOfAMemberThatIsBack: the member reconnects while the end of its connection is noticed.
func TestAConnectionsEndLeavesTheSessionOfAMemberThatIsBack(t *testing.T) {
	x := newShares(&Server{}, 10)
	key := shareSessionKey{"g", "m"}
	for range 3000 {
		a, b := &conn{}, &conn{}
		if err := x.open(t.Context(), key, nil, a); err != nil {
			t.Fatal(err)
		}
		var run sync.WaitGroup
		x.mu.Lock() // both wait for it
		run.Go(func() { x.disconnected(a) })
		run.Go(func() {
			if err := x.open(t.Context(), key, nil, b); err != nil {
				t.Error(err)
			}
		})
		runtime.Gosched()
		x.mu.Unlock()
		run.Wait()
		if n := x.sessions[key]; n == nil || n.conn != b {
			t.Fatal("the new session is gone")
		}
	}
}

// TestPartitionsOfASessionComeAndGo: forgetting one moves another, which must still be found.
func TestPartitionsOfASessionComeAndGo(t *testing.T) {
	x := newShares(&Server{}, 10)
	key, part := shareSessionKey{"g", "m"}, func(i int32) coordinator.ShareKey { return coordinator.ShareKey{Group: "g", Partition: i} }
	if err := x.open(t.Context(), key, []coordinator.ShareKey{part(0), part(1), part(2), part(1)}, &conn{}); err != nil {
		t.Fatal(err)
	}
	x.tell(key, []coordinator.ShareKey{part(2)})
	list, err := x.update(key, 1, []coordinator.ShareKey{part(3)}, []coordinator.ShareKey{part(0), part(0), part(9), part(3)})
	if err != nil || len(list) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	for _, p := range list {
		expect(t, "an answer has named it", p.told, p.Partition == 2)
	}
	if list, err = x.update(key, 2, nil, []coordinator.ShareKey{part(2)}); err != nil || len(list) != 1 || list[0].Partition != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	expect(t, "counted", x.parts, 1)
}

// TestAShareSessionThatEndsDuringALoadLeavesNothing: nobody comes by the share-partition after that.
func TestAShareSessionThatEndsDuringALoadLeavesNothing(t *testing.T) {
	s := startShares(t, 1, nil)
	loads := make(chan struct{})
	s.state.mu.Lock()
	s.state.loads = loads
	s.state.mu.Unlock()
	ann := s.member("ann")
	expect(t, "while it is loaded", heldIn(ann.fetch(0)), "nothing")
	expect(t, "ann leaves", ann.leave(), int16(0))
	expect(t, "it is there", s.Stats().Shares.Parts, int64(1))
	close(loads)
	eventually(t, "it is dropped", func() bool { return s.Stats().Shares.Parts == 0 })

	// Where there is state already, no write follows the load.
	loads = make(chan struct{})
	s.state.mu.Lock()
	s.state.loads = loads
	s.state.mu.Unlock()
	ann.epoch = 0
	expect(t, "while it is loaded again", heldIn(ann.fetch(0)), "nothing")
	expect(t, "ann leaves again", ann.leave(), int16(0))
	close(loads)
	eventually(t, "it is dropped again", func() bool { return s.Stats().Shares.Parts == 0 })
}

func TestShareFetchesNameAPartitionOnce(t *testing.T) {
	s := startShares(t, 1, nil)
	ann := s.member("ann")
	expect(t, "twice", heldIn(ann.fetch(0, 0)), "error 42")
	q := ann.fetchRequest(0)
	f := kmsg.NewShareFetchRequestForgottenTopicsData()
	f.TopicID, f.Partitions = s.id, make([]int32, s.shares.slots*sharePartsPerSession+1)
	q.ForgottenTopicsData = append(q.ForgottenTopicsData, f)
	expect(t, "more than there can be", heldIn(ann.fetched(q)), "error 42")
}

// TestASessionBeginsWhenTheOneBeforeHasGivenBackAllItHeld: the end of the old one takes what the member holds, and would take what
// the new one has been given: those records would go to others too, though the member holds them.
func TestASessionBeginsWhenTheOneBeforeHasGivenBackAllItHeld(t *testing.T) {
	s := &Server{}
	x := newShares(s, 10)
	key, share := shareSessionKey{"g", "m"}, coordinator.ShareKey{Group: "g", Partition: 1}
	p := &sharePart{srv: s, key: share, err: errShareUnused}
	x.byKey[share] = p
	if err := x.open(t.Context(), key, []coordinator.ShareKey{share}, &conn{}); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	x.mu.Lock()
	n := x.sessions[key]
	x.mu.Unlock()
	go x.endOf(key, n.conn)
	for over := false; !over; { // it has left the table, and waits for the share-partition
		runtime.Gosched()
		x.mu.Lock()
		over = x.sessions[key] == nil
		x.mu.Unlock()
	}
	opened := make(chan error, 1)
	next := &conn{}
	go func() { opened <- x.open(t.Context(), key, nil, next) }()
	for range 1000 {
		runtime.Gosched()
	}
	x.mu.Lock()
	early := x.sessions[key]
	x.mu.Unlock()
	if early != nil {
		t.Fatal("the new session began while the old one was giving back")
	}
	p.mu.Unlock()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	if n := x.sessions[key]; n == nil || n.conn != next {
		t.Fatal("the new session is not there")
	}
}

// A member whose session before this one is not given back in time is told so, instead of holding its connection for ever.
func TestASessionThatCannotBeginIsGivenUpWithItsRequest(t *testing.T) {
	x := newShares(&Server{}, 10)
	key := shareSessionKey{"g", "m"}
	x.ending[key] = make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	opened := make(chan error, 1)
	go func() { opened <- x.open(ctx, key, nil, &conn{}) }()
	cancel()
	select {
	case err := <-opened:
		if !errors.Is(err, context.Canceled) || len(x.sessions) != 0 {
			t.Errorf("%v, %d sessions", err, len(x.sessions))
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it still waits")
	}
	if !x.mu.TryLock() {
		t.Fatal("it holds the lock")
	}
	x.mu.Unlock()
}

// A panic while a session ends must not leave the mark for which every later open of that member waits.
func TestASessionThatEndsInAPanicBarsNobody(t *testing.T) {
	x := newShares(&Server{}, 10)
	key, part := shareSessionKey{"g", "m"}, coordinator.ShareKey{Group: "g", Partition: 1}
	x.byKey[part] = &sharePart{srv: &Server{}, key: part, core: &share.Partition{}} // it has no log to ask
	if err := x.open(t.Context(), key, []coordinator.ShareKey{part}, &conn{}); err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("there was no panic")
			}
		}()
		x.end(key)
	}()
	if len(x.ending) != 0 {
		t.Fatal("the next session of the member would wait without end")
	}
	if err := x.open(t.Context(), key, nil, &conn{}); err != nil {
		t.Fatal(err)
	}
}
