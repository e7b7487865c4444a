// Delayed messages: a message is handed in with the time at which it is to be
// delivered, and is in its topic at that time, not before.
//
// A log is read in the order in which it was written, not in the order in which
// its records are due. So a message makes its way through topics with one delay
// each, within which the order of writing is the order of being due: always
// through the one with the longest delay that still fits, until nothing fits.
//
//	delayed ──▶ delayed.1h ──▶ delayed.1m ──▶ delayed.1s ──▶ its topic
//	            (again and again while an hour or more is left)
//
// A message that is due in 2 h 3 min takes 2 hops of an hour, 3 of a minute.
// Nothing is kept anywhere else, so there is no store of timers to lose.
//
// What holds, whoever is killed when: every message is delivered exactly once,
// for readers with read_committed, and never early. It is late by less than the
// shortest delay, and by however long no scheduler ran. Each hop and the fact
// that it was taken are one transaction.
package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/examples/transform"
)

// Headers of a delayed message; they are gone when it is delivered.
const (
	headerAt = "deliver.at" // milliseconds since 1970
	headerTo = "deliver.to" // a topic
)

// delayed makes a record for the topic of new messages: r is to be in r.Topic at a time.
func delayed(inbox string, r *kgo.Record, at time.Time) *kgo.Record {
	return &kgo.Record{Topic: inbox, Key: r.Key, Value: r.Value, Headers: append(slices.Clone(r.Headers),
		kgo.RecordHeader{Key: headerAt, Value: strconv.AppendInt(nil, at.UnixMilli(), 10)},
		kgo.RecordHeader{Key: headerTo, Value: []byte(r.Topic)})}
}

// scheduler delivers what is written to its topic.
type scheduler struct {
	topic  string
	delays []time.Duration // longest first
}

func (s scheduler) topics() []string {
	names := []string{s.topic}
	for _, d := range s.delays {
		names = append(names, s.through(d))
	}
	return names
}

// through is the topic in which a message stays for so long.
func (s scheduler) through(d time.Duration) string { return fmt.Sprintf("%s.%v", s.topic, d) }

// run works until ctx ends; id names this scheduler among its like.
func (s scheduler) run(ctx context.Context, seeds []string, id string) error {
	hop := func(_ context.Context, r *kgo.Record) ([]*kgo.Record, error) {
		return []*kgo.Record{s.next(r, time.Now())}, nil
	}
	jobs := []transform.Job{{Config: transform.Config{Seeds: seeds, Topics: []string{s.topic}, Group: s.topic, ID: id}, Func: hop}}
	for _, d := range s.delays {
		name := s.through(d)
		jobs = append(jobs, transform.Job{Func: hop, Config: transform.Config{
			Seeds: seeds, Topics: []string{name}, Group: name, ID: id,
			Due: func(r *kgo.Record) time.Time { return r.Timestamp.Add(d) },
		}})
	}
	return transform.RunAll(ctx, jobs...)
}

// next is a message's next hop. Of its last stay, in the topic with the shortest
// delay, a message may need only a part: by that much it is late.
func (s scheduler) next(r *kgo.Record, now time.Time) *kgo.Record {
	at, to := address(r)
	left := at.Sub(now)
	for _, d := range s.delays {
		if left >= d {
			return &kgo.Record{Topic: s.through(d), Key: r.Key, Value: r.Value, Headers: r.Headers}
		}
	}
	if left > 0 { // less than the shortest: one more stay there
		return &kgo.Record{Topic: s.through(s.delays[len(s.delays)-1]), Key: r.Key, Value: r.Value, Headers: r.Headers}
	}
	out := &kgo.Record{Topic: to, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		if h.Key != headerAt && h.Key != headerTo {
			out.Headers = append(out.Headers, h)
		}
	}
	return out
}

// address is when and where a message is to be delivered. One without a time is
// due; one without a topic goes where somebody will look for it.
func address(r *kgo.Record) (at time.Time, to string) {
	to = "undeliverable"
	for _, h := range r.Headers {
		switch h.Key {
		case headerAt:
			if ms, err := strconv.ParseInt(string(h.Value), 10, 64); err == nil {
				at = time.UnixMilli(ms)
			}
		case headerTo:
			to = string(h.Value)
		}
	}
	return at, to
}
