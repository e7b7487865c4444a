package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/examples/exampletest"
	"github.com/varvelog/varve/integration/nodetest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

func jobs(topic string, n int) []*kgo.Record {
	var list []*kgo.Record
	for i := range n {
		list = append(list, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%s %d", topic, i)})
	}
	return list
}

// Urgent jobs that come while a worker is at less urgent ones are done next;
// the worker is killed before and after that, and no job is lost.
func TestUrgentJobsGoFirstAndNoneIsLostWhoeverIsKilled(t *testing.T) {
	n := nodetest.Start(t, t.TempDir())
	for _, topic := range topics {
		n.CreateTopic(topic, 3, nil)
	}
	const low, high, fair = 300, 40, 10
	exampletest.Produce(t, n, jobs("jobs.low", low)...)
	w := exampletest.Start(t, n, "-takes", "3ms", "-fairness", fmt.Sprint(fair))
	done := func(topic string, least int) {
		t.Helper()
		exampletest.Eventually(t, fmt.Sprintf("%d of %s are done", least, topic), func() error {
			if got := len(distinct(w, topic)); got < least {
				return fmt.Errorf("%d are", got)
			}
			return nil
		})
	}
	done("jobs.low", 30)
	w.Kill()
	w.Restart()
	done("jobs.low", 60)
	exampletest.Produce(t, n, jobs("jobs.high", high)...)
	done("jobs.high", high)
	if got := len(distinct(w, "jobs.low")); got == low {
		t.Error("all less urgent jobs are done before the urgent ones")
	}
	// From the first urgent job to the last, only every tenth may be another.
	first, last, other, all := -1, 0, 0, w.Lines("done ")
	for i, line := range all {
		if strings.HasPrefix(line, "jobs.high") {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	for _, line := range all[first:last] {
		if !strings.HasPrefix(line, "jobs.high") {
			other++
		}
	}
	// They come from three partitions in up to three answers: between these the worker is not idle.
	if limit := (last-first)/fair + 1 + low/20; other > limit {
		t.Errorf("%d of %d jobs between the first urgent one and the last were less urgent; want %d at most", other, last-first, limit)
	}
	w.Kill()
	n.Kill()
	n.Restart()
	w.Restart()
	done("jobs.low", low)
	done("jobs.high", high)
}

func distinct(w *exampletest.Worker, topic string) map[string]bool {
	seen := map[string]bool{}
	for _, line := range w.Lines("done " + topic) {
		seen[line] = true
	}
	return seen
}
