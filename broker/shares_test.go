package broker

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/meta/topic"
)

// askedShares is share coordinators as a broker sees them that coordinates nothing: all are on broker 1.
type askedShares struct {
	Shares
	mu    sync.Mutex // guards the following
	moves int        // so many times the coordinator is not known
}

func (a *askedShares) Locate(ctx context.Context, key string) (int32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.moves > 0 {
		a.moves--
		return -1, coordinator.ErrNotAvailable
	}
	return a.Shares.Locate(ctx, key)
}

// overConn asks a broker over a connection, one request at a time.
type overConn struct {
	mu   sync.Mutex // guards the following
	c    *client
	asks int
	lost int // so many answers do not come
}

func (o *overConn) Ask(_ context.Context, _ int32, q kmsg.Request) (kmsg.Response, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asks++
	resp := o.c.ask(q)
	if o.lost > 0 {
		o.lost--
		return nil, errors.New("connection lost")
	}
	return resp, nil
}

// TestShareStateIsTheSameFromEveryBroker does the same by way of the broker that coordinates and of one that does not.
func TestShareStateIsTheSameFromEveryBroker(t *testing.T) {
	s := startStack(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	made, err := kadm.NewClient(s.client(t)).CreateTopics(ctx, 3, 1, nil, "events", "more")
	if err != nil {
		t.Fatal(err)
	}
	shares := s.deps.Shares
	over := &overConn{c: dial(t, s.addr), lost: 2}
	ways := map[string]*ShareState{
		"here": NewShareState(1, &askedShares{Shares: shares, moves: 2}, nil),
		"away": NewShareState(2, &askedShares{Shares: shares, moves: 2}, over),
	}
	var told [2][]any
	for i, way := range []string{"here", "away"} {
		x := ways[way]
		say := func(v any) { told[i] = append(told[i], v) }
		kind := func(errs []error) (kinds []string) {
			for _, err := range errs {
				text := "ok"
				for _, k := range []error{coordinator.ErrFencedLeaderEpoch, coordinator.ErrFencedStateEpoch, coordinator.ErrInvalidShareState, coordinator.ErrShareStateUnknown} {
					if errors.Is(err, k) {
						text = k.Error()
					}
				}
				if err != nil && text == "ok" {
					t.Fatalf("%s: %v", way, err)
				}
				kinds = append(kinds, text)
			}
			return kinds
		}
		keys := []coordinator.ShareKey{
			{Group: way, Topic: topic.ID(made["events"].ID), Partition: 0}, {Group: way, Topic: topic.ID(made["more"].ID), Partition: 2},
			{Group: way, Topic: topic.ID(made["events"].ID), Partition: 1}, {Group: way, Topic: topic.ID(made["events"].ID), Partition: 7},
		}
		say(kind(x.Initialize(ctx, []coordinator.ShareInitialize{
			{ShareKey: keys[0], StateEpoch: 3, Start: 10}, {ShareKey: keys[1], StateEpoch: 1, Start: -1}, {ShareKey: keys[3]},
		})))
		write := coordinator.ShareWrite{ShareKey: keys[0], StateEpoch: 3, LeaderEpoch: 4, Start: 12, DeliveryCompleteCount: 5, Batches: []coordinator.ShareBatch{
			{First: 12, Last: 14, State: coordinator.ShareAvailable, DeliveryCount: 1}, {First: 15, Last: 19, State: coordinator.ShareAcknowledged, DeliveryCount: 2},
		}}
		stale := write
		stale.StateEpoch = 2
		for range 2 { // the second changes nothing
			say(kind(x.Write(ctx, []coordinator.ShareWrite{write, stale, {ShareKey: keys[2]}})))
		}
		read := x.Read(ctx, []coordinator.ShareRead{{ShareKey: keys[0], LeaderEpoch: 6}, {ShareKey: keys[1], LeaderEpoch: 1}, {ShareKey: keys[2], LeaderEpoch: 1}})
		for _, r := range read {
			say(kind([]error{r.Err}))
			r.Err = nil
			say(r)
		}
		say(kind(x.Write(ctx, []coordinator.ShareWrite{write})))
		sums := x.Summary(ctx, keys)
		for _, r := range sums {
			say(kind([]error{r.Err}))
			r.Err = nil
			say(r)
		}
		say(kind(x.Delete(ctx, keys[:3])))
		say(x.Summary(ctx, keys[:2]))
	}
	if !reflect.DeepEqual(told[0], told[1]) {
		t.Fatalf("told differently:\nhere %+v\naway %+v", told[0], told[1])
	}
	if over.asks > 15 {
		t.Errorf("%d requests were sent: those for one coordinator travel together", over.asks)
	}
	want := []string{"ok", coordinator.ErrFencedStateEpoch.Error(), coordinator.ErrInvalidShareState.Error()}
	if got := told[0][1].([]string); !slices.Equal(got, want) {
		t.Errorf("writes: %v, not %v", got, want)
	}
	if sum := told[0][11].(coordinator.ShareSummary); sum.Start != 12 || sum.LeaderEpoch != 6 || sum.StateEpoch != 3 || sum.DeliveryCompleteCount != 5 {
		t.Errorf("summary %+v", sum)
	}
}

// TestShareStateGivesUpWithItsContext looks for a coordinator that never comes.
func TestShareStateGivesUpWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	x := NewShareState(1, &askedShares{moves: 1 << 30}, nil)
	if errs := x.Delete(ctx, make([]coordinator.ShareKey, 2)); !errors.Is(errs[0], coordinator.ErrNotAvailable) || !errors.Is(errs[1], coordinator.ErrNotAvailable) {
		t.Fatal(errs)
	}
}
