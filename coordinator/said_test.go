package coordinator

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A member that says more of itself than a record holds is refused: it costs nobody else in the round anything.
func TestMembersThatSayTooMuchAreRefused(t *testing.T) {
	cfg := testConfig()
	long := strings.Repeat("x", cfg.BatchBytesMax)
	subscription := kmsg.NewConsumerMemberMetadata()
	subscription.Topics, subscription.UserData = []string{"t"}, []byte(long)
	for name, bodies := range map[string][]any{
		"consumer": {&ConsumerHeartbeatRequest{Group: "g", MemberID: "m", RebalanceMillis: 1000, Topics: []string{long}, Owned: []TopicPartitions{}, NamesItself: true}},
		"share":    {&ShareHeartbeatRequest{Group: "g", MemberID: "m", ClientHost: long, Topics: []string{"t"}}},
		"classic member of a consumer group": {
			&ConsumerHeartbeatRequest{Group: "g", MemberID: "m", RebalanceMillis: 1000, Topics: []string{"t"}, Owned: []TopicPartitions{}, NamesItself: true},
			&JoinRequest{Group: "g", MemberID: "n", SessionMillis: 10_000, RebalanceMillis: 10_000, ProtocolType: consumerProtocol,
				Protocols: []Protocol{{Name: "range", Metadata: subscription.AppendTo(nil)}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCore(&cfg, 0)
			var v *topicsView
			c.setTopics(v.next(testTopics(t, 1, "t:4")))
			for i, body := range bodies {
				c.step(event{ticket: uint64(i + 1), newID: "id", body: body}, int64(i))
				out := c.take()
				last := i == len(bodies)-1
				if len(out.replies) != 1 || last != errors.Is(out.replies[0].err, ErrTooLarge) || last && len(out.records) > 0 {
					t.Errorf("request %d: %d records, replies %+v", i, len(out.records), out.replies)
				}
			}
		})
	}
}

// A batch of state that cannot be is refused, and passed over in the log: at its worst it would keep the coordinator busy for ever.
func TestShareStateThatCannotBeIsRefused(t *testing.T) {
	cfg := testConfig()
	c := newShareCore(&cfg, 0)
	var v *topicsView
	c.setTopics(v.next(testTopics(t, 1, "t:4")))
	k := ShareKey{Group: "g", Topic: testTopicID("t"), Partition: 0}
	c.replace(k, &sharePartition{stateEpoch: 1, leaderEpoch: 1})
	for name, b := range map[string]ShareBatch{
		"up to the last offset there can be": {First: 5, Last: math.MaxInt64, State: ShareArchived},
		"backwards":                          {First: 5, Last: 4, State: ShareArchived},
		"before the first offset":            {First: -1, Last: 4, State: ShareArchived},
		"in a state that is none":            {First: 1, Last: 4, State: 1},
		"delivered less than never":          {First: 1, Last: 4, State: ShareArchived, DeliveryCount: -1},
	} {
		done := make(chan error, 1)
		go func() {
			done <- c.writeState(&ShareWrite{ShareKey: k, StateEpoch: 1, LeaderEpoch: 1, Batches: []ShareBatch{{First: 0, Last: 9}, b}})
		}()
		select {
		case err := <-done:
			if !errors.Is(err, ErrInvalidShareState) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: the coordinator does not come back", name)
		}
		rec := shareUpdateRecord(k, &shareUpdate{batches: []ShareBatch{b}, done: NoDeliveryCount})
		if err := c.replay(0, rec.key, rec.value); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s, in the log: %v", name, err)
		}
	}
}
