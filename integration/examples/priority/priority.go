// Priority topics: a log has one order, so priorities are topics, and a worker
// that has the choice takes the most urgent job.
//
//	jobs.high    ─┐
//	jobs.normal  ─┼─▶ worker: high first, but one job in ten from below
//	jobs.low     ─┘
//
// What holds: while a worker knows of a job of a higher priority it begins none
// of a lower one, but for one in so many (fairness), so that a steady stream of
// urgent jobs cannot keep the others waiting for ever. Jobs that a lower
// priority has ready in the worker's memory wait there; they are not begun.
// Every job is done at least once, whoever is killed when: an offset is
// committed when its job is done, and a job whose worker died is done again.
package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// worker does the jobs of several topics.
type worker struct {
	topics   []string // the most urgent first
	group    string
	id       string // for good: see kgo.InstanceID
	fairness int    // of so many jobs one may be less urgent than it could
	do       func(ctx context.Context, r *kgo.Record) error
}

const (
	// aheadMax bounds what a priority has waiting in the worker's memory.
	aheadMax = 1 << 20
	// takeMax is how many jobs are taken before the worker looks at the higher
	// priorities again.
	takeMax = 1
	// idlePause is how long a worker with nothing to do waits.
	idlePause = 10 * time.Millisecond
)

// run works until ctx ends, or a job fails. Each priority has a client and a
// group of its own: what one has fetched must not be in another's way.
func (w worker) run(ctx context.Context, seeds []string) (err error) {
	var clients []*kgo.Client
	defer func() {
		for _, cl := range clients {
			cl.Close()
		}
	}()
	for _, topic := range w.topics {
		cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic),
			kgo.ConsumerGroup(w.group+"."+topic), kgo.InstanceID(w.id), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
			kgo.FetchMaxBytes(aheadMax), kgo.FetchMaxWait(time.Second),
			kgo.AutoCommitMarks(), kgo.AutoCommitInterval(100*time.Millisecond))
		if err != nil {
			return err
		}
		clients = append(clients, cl)
	}
	for count := 1; ; count++ {
		did, err := w.one(ctx, w.order(clients, count))
		if err != nil {
			return errors.Join(err, commitMarked(clients))
		}
		if did {
			continue
		}
		select {
		case <-time.After(idlePause):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), commitMarked(clients))
		}
	}
}

// order is in which order the priorities are asked for a job: the lowest have
// the first word once in a while.
func (w worker) order(clients []*kgo.Client, count int) []*kgo.Client {
	if count%w.fairness != 0 {
		return clients
	}
	list := slices.Clone(clients)
	slices.Reverse(list)
	return list
}

// one does the first job that there is.
func (w worker) one(ctx context.Context, clients []*kgo.Client) (bool, error) {
	for _, cl := range clients {
		// Without a context the client gives what it has, and does not wait.
		f := cl.PollRecords(nil, takeMax) //lint:ignore SA1012 nil is how PollRecords is told not to wait
		for _, r := range f.Records() {
			if err := w.do(ctx, r); err != nil {
				return false, err
			}
			cl.MarkCommitRecords(r) // committed within the interval; until then it may be done again
			return true, nil
		}
	}
	return false, ctx.Err()
}

// commitMarked commits what is done before the worker ends in order.
func commitMarked(clients []*kgo.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var errs []error
	for _, cl := range clients {
		errs = append(errs, cl.CommitMarkedOffsets(ctx))
	}
	return errors.Join(errs...)
}
