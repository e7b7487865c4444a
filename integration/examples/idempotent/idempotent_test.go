package main

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	bolt "go.etcd.io/bbolt"

	"github.com/varvelog/varve/integration/examples/exampletest"
	"github.com/varvelog/varve/integration/nodetest"
)

func TestMain(m *testing.M) { exampletest.Main(m, main) }

// The consumer is killed three times while payments come in, each twice, and
// the broker once.
func TestEveryPaymentCountsOnceWhoeverIsKilled(t *testing.T) {
	n := nodetest.Start(t, t.TempDir())
	n.CreateTopic(topic, 3, nil)
	w := exampletest.Start(t, n, "-db", filepath.Join(t.TempDir(), "ledger.db"), "-print", "5ms")
	accounts := []string{"ann", "bob", "eve"}
	want := map[string]int{}
	sent := 0
	send := func() {
		t.Helper()
		var records []*kgo.Record
		for i := range 300 {
			account := accounts[(sent+i)%len(accounts)]
			want[account] += i
			r := payment(fmt.Sprint("payment-", sent+i), account, i)
			again := *r
			records = append(records, r, &again)
		}
		sent += 300
		exampletest.Produce(t, n, records...)
	}
	printed := func(what string, ok func(lines []string) bool) {
		t.Helper()
		exampletest.Eventually(t, what, func() error {
			if lines := w.Lines("balances"); !ok(lines) {
				return fmt.Errorf("printed %q; want %v", lines, want)
			}
			return nil
		})
	}
	for range 3 {
		before := len(w.Lines("balances"))
		send()
		printed("something is counted", func(lines []string) bool { return len(lines) > before })
		w.Kill()
		w.Restart()
	}
	n.Kill()
	n.Restart()
	send()
	printed("all of it is counted", func(lines []string) bool {
		all := fmt.Sprintf(" ann=%d bob=%d eve=%d", want["ann"], want["bob"], want["eve"])
		return len(lines) > 0 && lines[len(lines)-1] == all
	})
}

// Ids are forgotten when no producer tries any more, and not before.
func TestIdsAreRememberedForTheirTime(t *testing.T) {
	db, err := bolt.Open(filepath.Join(t.TempDir(), "ledger.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	l := ledger{db: db, remember: time.Hour}
	if err := l.open(); err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		after time.Duration
		id    string
		want  uint64
	}{{0, "a", 1}, {30 * time.Minute, "a", 1}, {50 * time.Minute, "b", 2}, {90 * time.Minute, "c", 3}, {91 * time.Minute, "a", 4}, {92 * time.Minute, "b", 4}} {
		r := payment(step.id, "ann", 1)
		r.Offset = int64(i)
		if err := l.apply([]*kgo.Record{r}, start.Add(step.after)); err != nil {
			t.Fatal(err)
		}
		if err := db.View(func(tx *bolt.Tx) error {
			if got := number(tx.Bucket(balanceBucket), "ann"); got != step.want {
				t.Errorf("after %v: %d, want %d", step.after, got, step.want)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}
