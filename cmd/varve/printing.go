package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lookEvery is how often a reading to which nothing comes looks whether anything will.
const lookEvery = time.Second

// printing puts records on standard output, until every partition has reached
// its end, count records are out, or nothing has come for idle.
type printing struct {
	out   *bufio.Writer
	print recordPrinter
	wants func(*kgo.Record) bool
	count int64
	idle  time.Duration // 0: any time
	bar   *progressbar.ProgressBar

	ends    map[partitionKey]int64 // exclusive, 0 for a partition that is not in it; nil: for ever
	left    map[partitionKey]bool  // has yet to reach its end
	next    map[partitionKey]int64
	printed int64
	came    time.Time // when the last record did

	patience time.Duration // how long nothing may come before it is asked why
	asked    time.Time
}

func newPrinting(w io.Writer, print recordPrinter, r *reading, bar *progressbar.ProgressBar) *printing {
	p := &printing{out: bufio.NewWriterSize(w, 256<<10), print: print, wants: r.wants, ends: r.ends, next: r.starts, left: map[partitionKey]bool{}, bar: bar, came: time.Now()}
	for k, end := range r.ends {
		if r.starts[k] < end {
			p.left[k] = true
		}
	}
	return p
}

func (p *printing) full() bool { return p.count > 0 && p.printed >= p.count }

// done says that there is nothing more to print.
func (p *printing) done() bool {
	return p.full() || p.ends != nil && len(p.left) == 0 || p.idle > 0 && time.Since(p.came) >= p.idle
}

// poll waits for records, for a while.
func (p *printing) poll(ctx context.Context, cl *kgo.Client) kgo.Fetches {
	wait := lookEvery
	if p.idle > 0 {
		wait = min(wait, max(p.idle-time.Since(p.came), time.Millisecond))
	}
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	most := 0 // as many as have come
	if p.count > 0 {
		most = int(min(p.count-p.printed, 10_000))
	}
	fetches := cl.PollRecords(limited, most)
	if limited.Err() != nil && fetches.Err0() != nil { // nothing has come
		return nil
	}
	return fetches
}

// fault is what keeps a partition from being read.
func (p *printing) fault(fe kgo.FetchError) error {
	if fe.Topic == "" {
		return fe.Err
	}
	return fmt.Errorf("read %s-%d from offset %d: %w", fe.Topic, fe.Partition, p.next[partitionKey{fe.Topic, fe.Partition}], fe.Err)
}

// take prints what is wanted of fetches, and says where each partition goes on
// once flush has put that out, which has the error of what could not be printed.
func (p *printing) take(cl *kgo.Client, fetches kgo.Fetches) map[string]map[int32]kgo.EpochOffset {
	past := map[string]map[int32]kgo.EpochOffset{}
	failed := false
	fetches.EachPartition(func(f kgo.FetchTopicPartition) {
		k := partitionKey{f.Topic, f.Partition}
		for _, rec := range f.Records {
			if failed || p.full() {
				return
			}
			if p.ends != nil && rec.Offset >= p.ends[k] {
				break
			}
			p.came = time.Now()
			if !rec.Attrs.IsControl() && p.wants(rec) {
				if failed = p.print(p.out, rec) != nil; failed {
					return
				}
				p.printed++
			}
			p.passed(k, rec, past)
		}
		if n := len(f.Records); p.ends != nil && n > 0 && f.Records[n-1].Offset >= p.ends[k]-1 {
			delete(p.left, k)
			cl.PauseFetchPartitions(map[string][]int32{f.Topic: {f.Partition}})
		}
	})
	return past
}

// flush puts out what has been printed.
func (p *printing) flush() error {
	if err := p.out.Flush(); err != nil {
		return fmt.Errorf("print the records: %w", err)
	}
	return nil
}

// passed notes that a record is dealt with.
func (p *printing) passed(k partitionKey, rec *kgo.Record, past map[string]map[int32]kgo.EpochOffset) {
	from, known := p.next[k]
	if !known {
		from = rec.Offset
	}
	_ = p.bar.Add64(max(0, rec.Offset+1-from))
	p.next[k] = rec.Offset + 1
	if past[k.topic] == nil {
		past[k.topic] = map[int32]kgo.EpochOffset{}
	}
	past[k.topic][k.partition] = kgo.EpochOffset{Epoch: rec.LeaderEpoch, Offset: rec.Offset + 1}
}

// all prints what a client reads. That of a group's member, whose faults are
// heard, commits what is out; heard is nil for one that has partitions of its own.
func (p *printing) all(ctx context.Context, cl *kgo.Client, heard *groupFaults) error {
	for !p.done() {
		fetches := p.poll(ctx, cl)
		if ctx.Err() != nil {
			return p.interrupted()
		}
		for _, fe := range fetches.Errors() {
			if heard != nil {
				fe.Err = heard.session(fe.Err)
			}
			if fe.Err != nil {
				return p.fault(fe)
			}
		}
		past := p.take(cl, fetches)
		if err := p.flush(); err != nil {
			return err // of these records none is committed
		}
		if heard != nil {
			p.share(cl, past)
		}
		if err := p.stalled(ctx, cl, fetches); err != nil {
			return err
		}
		if heard != nil && p.ends != nil && fetches.NumRecords() == 0 {
			if err := p.readByOthers(ctx, cl, heard.group); err != nil {
				return groupError(heard.group, err, "")
			}
		}
	}
	return nil
}

// stalled says why nothing comes any more of what is there, if that can be
// known: nobody answers, or a partition has no leader. The client itself tries
// for ever.
func (p *printing) stalled(ctx context.Context, cl *kgo.Client, fetches kgo.Fetches) error {
	now := time.Now()
	if p.asked.IsZero() || fetches.NumRecords() > 0 || p.ends == nil {
		p.asked = now
	}
	if now.Sub(p.asked) < p.patience {
		return nil
	}
	p.asked = now
	var topics []string
	for k := range p.left {
		topics = append(topics, k.topic)
	}
	details, err := kadm.NewClient(cl).ListTopics(ctx, topics...)
	if err != nil {
		return fmt.Errorf("nothing has come for %s: %w", p.patience, err)
	}
	for k := range p.left {
		if d, ok := details[k.topic].Partitions[k.partition]; ok && d.Leader < 0 {
			return advise(fmt.Errorf("%s-%d has no leader, so it cannot be read from offset %d on", k.topic, k.partition, p.next[k]),
				"start the brokers that hold it: `varve topic describe "+k.topic+"` lists them")
		}
	}
	return nil
}

// interrupted is what it means that somebody has stopped a reading: a failure,
// if it has an end that it has not reached.
func (p *printing) interrupted() error {
	if p.ends == nil {
		return nil
	}
	return errInterrupted
}
