package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/examples/exampletest"
	"github.com/varvelog/varve/integration/nodetest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// The worker is killed while records are on their way through the retry
// topics, and so is the broker.
func TestEveryOrderIsHandledOrDeadOnceWhoeverIsKilled(t *testing.T) {
	n := nodetest.Start(t, t.TempDir())
	const orders, poison = 60, 20 // every third
	n.CreateTopic(topic, 3, nil)
	w := exampletest.Start(t, n, "-delays", "100ms,200ms,300ms")
	var records []*kgo.Record
	for i := range orders {
		kind := [...]string{"fine", "fails 2 times", "poison"}[i%3]
		records = append(records, &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "order-%d", i), Value: []byte(kind)})
	}
	exampletest.Produce(t, n, records...)
	failing := func(n int) func() error {
		return func() error {
			if got := len(w.Lines("failed ")); got < n {
				return fmt.Errorf("%d attempts have failed", got)
			}
			return nil
		}
	}
	exampletest.Eventually(t, "orders are on their way", failing(orders/3))
	w.Kill()
	w.Restart()
	exampletest.Eventually(t, "the worker is back", failing(orders))
	n.Kill()
	n.Restart()

	exampletest.Eventually(t, "all orders have come to their end", func() error {
		handled := map[string]bool{}
		for _, key := range w.Lines("handled ") {
			handled[key] = true
		}
		if dead := exampletest.Committed(t, n, topic+".dead"); len(handled) != orders-poison || len(dead) < poison {
			return fmt.Errorf("%d are handled, %d dead", len(handled), len(dead))
		}
		return nil
	})
	dead := map[string]int{}
	for _, r := range exampletest.Committed(t, n, topic+".dead") {
		dead[string(r.Key)]++
		headers := map[string]string{}
		for _, h := range r.Headers {
			headers[h.Key] = string(h.Value)
		}
		if headers[headerAttempts] != "4" || headers[headerError] == "" || !strings.HasPrefix(headers[headerOrigin], topic+"-") {
			t.Errorf("%s carries %v", r.Key, headers)
		}
	}
	for i := 2; i < orders; i += 3 {
		if n := dead[fmt.Sprint("order-", i)]; n != 1 {
			t.Errorf("order %d is dead %d times", i, n)
		}
	}
	// Each retry topic has had each poison once, too, and nothing came early.
	first := map[string]time.Time{}
	for level, name := range []string{".retry-1", ".retry-2", ".retry-3", ".dead"} {
		seen := map[string]bool{}
		for _, r := range exampletest.Committed(t, n, topic+name) {
			key := string(r.Key)
			if seen[key] {
				t.Errorf("%s is in %s%s twice", key, topic, name)
			}
			seen[key] = true
			if at, ok := first[key]; ok && r.Timestamp.Sub(at) < time.Duration(level)*100*time.Millisecond {
				t.Errorf("%s was tried again after %v", key, r.Timestamp.Sub(at))
			}
			first[key] = r.Timestamp
		}
	}
}
