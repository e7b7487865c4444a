package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/examples/exampletest"
	"github.com/varvelog/varve/integration/nodetest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// Three years of events are in the bucket only. A new group reads two of them
// again and is killed on its way, a group that follows the end is killed, too,
// and so is the broker.
func TestEachGroupReadsItsOwnWayWhoeverIsKilled(t *testing.T) {
	n := nodetest.Start(t, t.TempDir(), "--set", "log.retention.check.interval.ms=100", "--set", "log.segment.delete.delay.ms=0")
	settings := map[string]string{"remote.storage.enable": "true", "retention.ms": "-1", "local.retention.ms": "1",
		"internal.segment.bytes": "16384", "varve.remote.max.lag.ms": "100"}
	n.CreateTopic(topic, 1, settings)
	const days = 3 * 365
	now := time.Now().UTC().Truncate(time.Second)
	day := func(i int) time.Time { return now.AddDate(0, 0, i-days) }
	var records []*kgo.Record
	for i := range days {
		records = append(records, &kgo.Record{Topic: topic, Timestamp: day(i), Value: fmt.Appendf(nil, "day-%d %s", i, strings.Repeat(".", 200))})
	}
	exampletest.Produce(t, n, records...)
	cl := n.Client()
	exampletest.Eventually(t, "three years are in the bucket only", func() error {
		local, _, err := nodetest.OffsetAt(t.Context(), cl, topic, 0, nodetest.LocalStart)
		if err == nil && local < days {
			err = fmt.Errorf("%d of %d", local, days)
		}
		return err
	})
	tail := exampletest.Start(t, n, "-group", "alerts")
	first := days - 2*365
	replay := exampletest.Start(t, n, "-group", "rebuild", "-since", day(first).Format(time.RFC3339))
	seen := func(w *exampletest.Worker, group string) map[string]bool {
		values := map[string]bool{}
		for _, line := range w.Lines(group + " read ") {
			values[strings.Fields(line)[1]] = true
		}
		return values
	}
	has := func(w *exampletest.Worker, group string, least int) {
		t.Helper()
		exampletest.Eventually(t, fmt.Sprintf("group %s has read %d records", group, least), func() error {
			if got := len(seen(w, group)); got < least {
				return fmt.Errorf("%d", got)
			}
			return nil
		})
	}
	has(replay, "rebuild", 1)
	replay.Kill()
	write := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			exampletest.Produce(t, n, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "now-%d", i)})
		}
	}
	// The tail begins when its group is there, not when its process is.
	exampletest.Eventually(t, "the tail's group has begun", func() error {
		o, err := kadm.NewClient(cl).FetchOffsets(t.Context(), "alerts")
		at, _ := o.Lookup(topic, 0)
		if err == nil && at.At != days {
			err = fmt.Errorf("it begins at %d", at.At)
		}
		return err
	})
	write(0, 10)
	has(tail, "alerts", 10)
	tail.Kill()
	n.Kill()
	n.Restart()
	write(10, 20)
	replay.Restart()
	tail.Restart()
	has(tail, "alerts", 20)
	has(replay, "rebuild", 2*365+20)
	for value := range seen(tail, "alerts") {
		if !strings.HasPrefix(value, "now-") {
			t.Errorf("the tail has read %s", value)
		}
	}
	again := seen(replay, "rebuild")
	for i := range days {
		if value := fmt.Sprint("day-", i); again[value] != (i >= first) {
			t.Errorf("the replay since day %d has read %s: %v", first, value, again[value])
		}
	}
	if line := replay.Lines("rebuild read ")[0]; !strings.Contains(line, fmt.Sprintf("day-%d ", first)) {
		t.Errorf("the replay begins with %.60s", line)
	}
}
