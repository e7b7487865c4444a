//go:build linux

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/varvelog/varve/integration/history"
)

// confluent is confluent-kafka (librdkafka) with transactions, as a process that
// speaks JSON lines (integration/clients/python/teller.py).
type confluent struct {
	process
	id, group string
}

// python is the interpreter that has confluent-kafka; "" where there is none.
func (o *options) python() string {
	if o.clients == "" {
		return ""
	}
	path := filepath.Join(o.clients, "venv", "bin", "python3")
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

func (o *options) pythonWorker() string {
	return filepath.Join(o.root, "integration", "clients", "python", "teller.py")
}

func (c *confluent) open(ctx context.Context) error {
	_, err := c.call(ctx, ask{Op: "open", ID: c.id, Group: c.group, Topics: []string{plainTopic, ledgerTopic}, Millis: txnTimeout.Milliseconds()})
	return err
}

func (c *confluent) take(ctx context.Context) ([]input, error) {
	got, err := c.call(ctx, ask{Op: "take", Millis: 2 * pollTime.Milliseconds()})
	var inputs []input
	for _, key := range sorted(got.Reads) {
		for _, r := range got.Reads[key] {
			inputs = append(inputs, input{key, r[0]})
		}
	}
	return inputs, err
}

func (c *confluent) txn(ctx context.Context, t txnAsk) txnDone {
	began := time.Now()
	got, err := c.call(ctx, ask{Op: "txn", Steps: t.steps, From: t.offsets, Commit: t.commit, Bytes: t.size})
	done := txnDone{outcome: got.Outcome, steps: got.Steps, err: err}
	if len(got.Steps) == 0 {
		done.steps = t.steps
	}
	if got.Outcome == "" { // no answer: it may have asked for the commit
		done.outcome = history.Info
		done.err = errors.Join(err, errWorkerGone)
	}
	if got.Decided > 0 {
		done.decided = began.Add(time.Duration(got.Decided)) // or later: the process began later than we did
	}
	return done
}
