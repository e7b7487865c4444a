//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/varvelog/varve/integration/history"
)

// live waits until the healed cluster works again: every in-sync set is full,
// every key takes a record and gives it back, what was written is in the
// bucket. It says what is still missing when patience ends.
func live(ctx context.Context, c *cluster, rec *recorder, patience time.Duration, replicas int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := newRaw(c.bootstrap())
	if err != nil {
		return err
	}
	defer r.crash()
	steps := []func() error{func() error { return whole(ctx, c, r, replicas) }}
	for _, key := range everyKey {
		steps = append(steps, func() error { return roundTrip(ctx, c, rec, key) })
	}
	for _, step := range append(steps, func() error { return drained(ctx, r) }) {
		var last error
		for {
			err := step()
			if err == nil {
				break
			}
			if last == nil || ctx.Err() == nil { // the end of the time says nothing about its cause
				last = err
			}
			if ctx.Err() != nil {
				return fmt.Errorf("not live %v after the last fault: %w", patience, last)
			}
			pause(ctx, 500*time.Millisecond)
		}
	}
	return nil
}

// whole says which brokers, leaders and in-sync replicas are missing.
func whole(ctx context.Context, c *cluster, r *raw, replicas int) error {
	v, err := r.look(ctx)
	if err != nil {
		return err
	}
	var errs []error
	if len(v.brokers) < len(c.members()) {
		errs = append(errs, fmt.Errorf("only the brokers %v are listed", v.brokers))
	}
	for _, key := range sorted(v.leaders) {
		l := v.leaders[key]
		if l.broker < 0 || len(l.isr) < min(replicas, len(l.replica)) {
			errs = append(errs, fmt.Errorf("%s: leader %d, in sync %v of %v", key, l.broker, l.isr, l.replica))
		}
	}
	return errors.Join(errs...)
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// roundTrip sends a value and reads it back, with a fresh client.
func roundTrip(ctx context.Context, c *cluster, rec *recorder, key string) error {
	w := &franz{bootstrap: c.bootstrap()}
	defer w.crash()
	process, value := int(rec.process.Add(1)), rec.values.Add(1)
	step := history.Step{F: history.Send, Key: key, Value: value, Offset: -1}
	rec.add(history.Event{Process: process, Type: history.Invoke, F: history.Send, Client: w.name(), Steps: []history.Step{step}})
	limited, cancel := context.WithTimeout(ctx, sendLimit)
	defer cancel()
	got := w.send(limited, key, []int64{value}, 100)
	step.Offset = got.offsets[0]
	rec.add(history.Event{Process: process, Type: got.outcome, F: history.Send, Steps: []history.Step{step}, Error: text(got.err)})
	if got.outcome != history.OK {
		return got.err
	}
	if err := w.assign(limited, map[string]int64{key: step.Offset}); err != nil {
		return err
	}
	var last error
	for limited.Err() == nil {
		steps, err := w.poll(limited)
		if last = err; len(steps) > 0 {
			rec.wroteLast(key, step.Offset)
			return nil
		}
	}
	return fmt.Errorf("value %d at %d cannot be read: %w", value, step.Offset, errors.Join(last, limited.Err()))
}

// drained says whether everything that was there is in the bucket: the topic
// seals a segment after a second.
func drained(ctx context.Context, r *raw) error {
	for _, key := range everyKey {
		if topic, _ := splitKey(key); topic == plainTopic {
			continue
		}
		e, _, err := r.ends(ctx, key)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		if e.Tiered < e.End-1 {
			return fmt.Errorf("%s: tiered up to %d, the end is %d", key, e.Tiered, e.End)
		}
	}
	return nil
}

// readAll is the final phase: the leaders' offsets, all records by fresh
// clients of each kind, all batches from every broker.
func readAll(ctx context.Context, c *cluster, rec *recorder, readers []func() (client, error)) error {
	r, err := newRaw(c.bootstrap())
	if err != nil {
		return err
	}
	defer r.crash()
	process := int(rec.process.Add(1))
	ends := map[string]history.Ends{}
	for _, key := range everyKey {
		for !noteEnds(ctx, rec, r, process, key, true) {
			if ctx.Err() != nil {
				return fmt.Errorf("%s: nobody tells its offsets", key)
			}
			pause(ctx, time.Second)
		}
		e, _, err := r.ends(ctx, key)
		if err != nil {
			return err
		}
		ends[key] = e
	}
	errs := []error{settleGroups(ctx, c, rec, r)}
	if err := finalGroups(ctx, rec, r); err != nil {
		return errors.Join(append(errs, err)...)
	}
	done := make(chan error)
	for _, make := range readers {
		go func() { done <- readAllBy(ctx, rec, make, ends) }()
	}
	drainShares(ctx, rec, c.bootstrap(), ends)
	for range readers {
		errs = append(errs, <-done)
	}
	return errors.Join(append(errs, takeBatches(ctx, c, rec, r, process, ends))...)
}

// readAllBy reads everything by one client. What it cannot read the checker
// finds missing; here only what stopped it is told.
func readAllBy(ctx context.Context, rec *recorder, make func() (client, error), ends map[string]history.Ends) error {
	c, err := make()
	if err != nil {
		return err
	}
	defer c.crash()
	process := int(rec.process.Add(1))
	from, next, until := map[string]int64{}, map[string]int64{}, map[string]int64{}
	for key, e := range ends {
		from[key], next[key], until[key] = fromEarliest, e.Start, e.End
		// Behind the last record there may be ends of transactions, which nobody
		// is shown.
		if last, known := rec.wrote(key); known && slices.Contains(ledgerKeys, key) {
			until[key] = last + 1
		}
	}
	e := history.Event{Process: process, Type: history.Invoke, F: history.Assign, Keys: everyKey, Client: c.name()}
	rec.add(e)
	err = c.assign(ctx, from)
	e.Type, e.Error = history.OK, text(err)
	rec.add(e)
	if err != nil {
		return fmt.Errorf("%s: %w", c.name(), err)
	}
	var last error
	for ctx.Err() == nil {
		rec.add(history.Event{Process: process, Type: history.Invoke, F: history.Poll, Final: true})
		steps, err := c.poll(ctx)
		if err != nil {
			last = err
		}
		rec.add(history.Event{Process: process, Type: history.OK, F: history.Poll, Final: true, Steps: steps, Error: text(err)})
		for _, s := range steps {
			next[s.Key] = s.Reads[len(s.Reads)-1][0] + 1
		}
		if !slices.ContainsFunc(everyKey, func(key string) bool { return next[key] < until[key] }) {
			return nil
		}
	}
	var left []string
	for _, key := range everyKey {
		if next[key] < until[key] {
			left = append(left, fmt.Sprintf("%s is read to %d of %d", key, next[key], until[key]))
		}
	}
	return fmt.Errorf("%s does not come to the end: %s (%w)", c.name(), strings.Join(left, ", "), errors.Join(last, ctx.Err()))
}

// takeBatches notes all batches of all brokers. A broker that does not serve
// consumers for a key is left out; its files are the auditor's.
func takeBatches(ctx context.Context, c *cluster, rec *recorder, r *raw, process int, ends map[string]history.Ends) error {
	for _, key := range everyKey {
		l, err := r.leader(ctx, key)
		if err != nil {
			return err
		}
		for _, b := range c.brokers {
			empty := 0
			for at := ends[key].Start; at < ends[key].End; {
				limited, cancel := context.WithTimeout(ctx, 10*time.Second)
				found, next, err := r.batches(limited, b.id, key, at)
				cancel()
				if len(found) > 0 {
					rec.add(history.Event{Process: process, Type: history.OK, F: history.Batches, Key: key, Source: endName(b.id), Batches: found, Final: true})
				}
				if empty++; next > at {
					empty = 0
				}
				if int32(b.id) != l.broker && (err != nil || empty > 3) {
					break
				}
				if empty > 20 {
					return fmt.Errorf("%s: the leader, broker %d, gives no batch at %d: %w", key, b.id, at, err)
				}
				if empty > 0 {
					pause(ctx, 500*time.Millisecond)
				}
				at = next
			}
		}
	}
	return nil
}
