package main

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/examples/exampletest"
	"github.com/varvelog/varve/integration/nodetest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// The scheduler is killed while messages are on their way, and so is the
// broker.
func TestMessagesAreDeliveredOnceAndNeverEarlyWhoeverIsKilled(t *testing.T) {
	n := nodetest.Start(t, t.TempDir())
	n.CreateTopic(inbox, 3, nil)
	n.CreateTopic(topic, 3, nil)
	w := exampletest.Start(t, n, "-delays", "800ms,200ms,50ms")
	const messages = 200
	due := map[string]time.Time{}
	var records []*kgo.Record
	began := time.Now()
	for i := range messages {
		value := fmt.Sprint("message-", i)
		due[value] = began.Add(time.Duration(rand.IntN(2500)) * time.Millisecond).Truncate(time.Millisecond)
		records = append(records, delayed(inbox, &kgo.Record{Topic: topic, Value: []byte(value)}, due[value]))
	}
	exampletest.Produce(t, n, records...)
	delivered := func(least int) []*kgo.Record {
		t.Helper()
		var list []*kgo.Record
		exampletest.Eventually(t, fmt.Sprintf("%d messages are delivered", least), func() error {
			if list = exampletest.Committed(t, n, topic); len(list) < least {
				return fmt.Errorf("%d are", len(list))
			}
			return nil
		})
		return list
	}
	delivered(messages / 10)
	w.Kill()
	w.Restart()
	delivered(messages / 3)
	n.Kill()
	n.Restart()
	seen := map[string]int{}
	for _, r := range delivered(messages) {
		value := string(r.Value)
		seen[value]++
		if early := due[value].Sub(r.Timestamp); early > 0 {
			t.Errorf("%s came %v early", value, early)
		}
		if len(r.Headers) != 0 {
			t.Errorf("%s still carries %v", value, r.Headers)
		}
	}
	for value := range due {
		if seen[value] != 1 {
			t.Errorf("%s was delivered %d times", value, seen[value])
		}
	}
}
