// Retry topics: a record that could not be handled is tried again later, after
// a delay that grows with every attempt, without holding up the records behind
// it; after the last attempt it goes to a dead-letter topic.
//
//	orders ─fails─▶ orders.retry-1 ─fails─▶ orders.retry-2 ─fails─▶ orders.retry-3 ─fails─▶ orders.dead
//	                after 1 s               after 5 s               after 30 s
//
// Each retry topic has one delay, so that its records become due in the order
// in which they lie there, and nothing has to be sorted.
//
// What holds, whoever is killed when: a record is handled successfully at
// least once, or it is in the dead-letter topic exactly once after its last
// attempt has failed. A record's move to the next topic and the fact that it was
// read are one transaction. The handler may see a record again when its worker
// dies before that transaction is committed, so it has to bear that (the
// example "idempotent" shows how). A record that fails loses its place: where
// the order of a key matters, a key's later records have to wait as well.
package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/examples/transform"
)

// Headers that a record gets on its way; its key, value and other headers stay.
const (
	headerAttempts = "retry.attempts" // how often it was tried
	headerError    = "retry.error"    // what the last attempt failed with
	headerOrigin   = "retry.origin"   // where it was first: TOPIC-PARTITION@OFFSET
)

// handler does what a record is for.
type handler func(ctx context.Context, r *kgo.Record, attempt int) error

// retrier handles the records of a topic, again and again if need be.
type retrier struct {
	topic  string
	delays []time.Duration // before each further attempt
	handle handler
}

// topics are where records go, by the attempts that have failed: the first is
// where they come from, the last the dead-letter topic.
func (t retrier) topics() []string {
	names := []string{t.topic}
	for i := range t.delays {
		names = append(names, fmt.Sprintf("%s.retry-%d", t.topic, i+1))
	}
	return append(names, t.topic+".dead")
}

// run works until ctx ends; id names this worker among its like.
func (t retrier) run(ctx context.Context, seeds []string, id string) error {
	topics := t.topics()
	var jobs []transform.Job
	for level, name := range topics[:len(topics)-1] {
		c := transform.Config{Seeds: seeds, Topics: []string{name}, Group: name, ID: id}
		if level > 0 {
			c.Due = func(r *kgo.Record) time.Time { return r.Timestamp.Add(t.delays[level-1]) }
		}
		jobs = append(jobs, transform.Job{Config: c, Func: func(ctx context.Context, r *kgo.Record) ([]*kgo.Record, error) {
			err := t.handle(ctx, r, level+1)
			if err == nil || ctx.Err() != nil { // what the worker's end has cut off has not failed
				return nil, ctx.Err()
			}
			return []*kgo.Record{moved(r, topics[level+1], level+1, err)}, nil
		}})
	}
	return transform.RunAll(ctx, jobs...)
}

// moved is a record on its way to the next topic.
func moved(r *kgo.Record, to string, attempts int, failure error) *kgo.Record {
	next := &kgo.Record{Topic: to, Key: r.Key, Value: r.Value}
	origin := fmt.Sprintf("%s-%d@%d", r.Topic, r.Partition, r.Offset)
	for _, h := range r.Headers {
		switch h.Key {
		case headerOrigin:
			origin = string(h.Value)
		case headerAttempts, headerError:
		default:
			next.Headers = append(next.Headers, h)
		}
	}
	next.Headers = append(next.Headers,
		kgo.RecordHeader{Key: headerAttempts, Value: []byte(strconv.Itoa(attempts))},
		kgo.RecordHeader{Key: headerError, Value: []byte(failure.Error())},
		kgo.RecordHeader{Key: headerOrigin, Value: []byte(origin)})
	return next
}
