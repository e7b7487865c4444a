//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/integration/history"
)

const (
	shareGroup = "sharers"
	// shareDeliveries is how often a record is delivered at most: more often than
	// a run has faults that swallow a delivery.
	shareDeliveries = 10
	shareLock       = 15 * time.Second // the shortest that brokers allow
)

// makeShareGroup sets the share group up before it has members.
func makeShareGroup(ctx context.Context, cl *kgo.Client) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, shareGroup
	for name, value := range map[string]string{"share.auto.offset.reset": "earliest", "share.delivery.count.limit": fmt.Sprint(shareDeliveries),
		"share.record.lock.duration.ms": fmt.Sprint(shareLock.Milliseconds())} {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = name, &value
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return err
		}
	}
	return nil
}

// sharer is one member of the share group after another.
type sharer struct {
	rec       *recorder
	rng       *rand.Rand
	bootstrap []string
	cl        *kgo.Client
	process   int
	born      time.Time
	life      time.Duration

	mu     sync.Mutex       // guards the following
	failed map[string]error // key → of an acknowledgement since the last look
}

func (s *sharer) run(ctx context.Context) {
	defer s.crash()
	for ctx.Err() == nil {
		if s.cl == nil && s.fresh() != nil {
			pause(ctx, time.Second)
			continue
		}
		if time.Since(s.born) > s.life {
			s.crash()
			continue
		}
		s.deal(ctx, false)
	}
}

func (s *sharer) fresh() error {
	f := franz{bootstrap: s.bootstrap}
	cl, err := kgo.NewClient(f.options(kgo.ConsumeTopics(plainTopic), kgo.ShareGroup(shareGroup), kgo.ShareMaxRecords(200), kgo.ShareMaxRecordsStrict(),
		kgo.FetchMaxWait(300*time.Millisecond), kgo.ShareAckCallback(func(_ *kgo.Client, got kgo.ShareAckResults) {
			s.mu.Lock()
			defer s.mu.Unlock()
			for _, r := range got {
				if r.Err != nil {
					s.failed[joinKey(r.Topic, r.Partition)] = r.Err
				}
			}
		}))...)
	if err != nil {
		return err
	}
	s.cl, s.process = cl, int(s.rec.process.Add(1))
	s.mu.Lock()
	s.failed = map[string]error{}
	s.mu.Unlock()
	s.born, s.life = time.Now(), 8*time.Second+time.Duration(s.rng.Int64N(int64(20*time.Second)))
	return nil
}

func (s *sharer) crash() {
	if s.cl != nil {
		s.cl.Close()
		s.cl = nil
	}
}

// deal takes what comes and says what is to become of it.
func (s *sharer) deal(ctx context.Context, final bool) {
	e := history.Event{Process: s.process, Type: history.Invoke, F: history.Share, Client: "franz-go", GroupID: shareGroup, Final: final}
	s.rec.add(e)
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	fetches := s.cl.PollRecords(short, 200)
	cancel()
	var records []*kgo.Record
	fetches.EachPartition(func(p kgo.FetchTopicPartition) {
		if len(p.Records) == 0 {
			return
		}
		step := history.Step{F: history.Poll, Key: joinKey(p.Topic, p.Partition), Offset: -1}
		for _, r := range p.Records {
			step.Reads = append(step.Reads, [2]int64{r.Offset, valueOf(r.Value)})
			step.Counts = append(step.Counts, r.DeliveryCount())
			records = append(records, r)
		}
		e.Steps = append(e.Steps, step)
	})
	e.Type = history.OK
	s.rec.add(e)
	if len(records) == 0 {
		return
	}
	ack := history.Event{Process: s.process, Type: history.Invoke, F: history.Ack, GroupID: shareGroup, Final: final}
	status := make([]kgo.AckStatus, len(records))
	for i, r := range records {
		status[i] = kgo.AckAccept
		switch n := s.rng.IntN(64); {
		case final:
		case n < 6:
			status[i] = kgo.AckRelease
		case n == 6:
			status[i] = kgo.AckReject
		}
		ack.Steps = append(ack.Steps, history.Step{F: history.Ack, Key: joinKey(r.Topic, r.Partition), Offset: r.Offset, Verdict: status[i].String()})
	}
	s.rec.add(ack)
	for i, r := range records {
		r.Ack(status[i])
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 8*time.Second)
	defer cancel()
	err := s.cl.FlushAcks(limited)
	ack.Type, ack.Steps, err = s.outcome(ack.Steps, err)
	ack.Error = text(err)
	s.rec.add(ack)
	s.rec.settle(ack)
	if err != nil {
		s.crash()
	}
}

// outcome says what became of acknowledgements: the client tells of each key, once all have been sent. While some may be on
// their way still, all are in doubt.
func (s *sharer) outcome(steps []history.Step, err error) (history.Type, []history.Step, error) {
	s.mu.Lock()
	failed := s.failed
	s.failed = map[string]error{}
	s.mu.Unlock()
	if err == nil && len(failed) == 0 {
		return history.OK, steps, nil
	}
	errs, done := []error{err}, slices.Clone(steps)
	for i := range done {
		done[i].Done = err == nil && failed[done[i].Key] == nil
	}
	for _, key := range sorted(failed) {
		errs = append(errs, fmt.Errorf("%s: %w", key, failed[key]))
	}
	return history.Info, done, errors.Join(errs...)
}

// settle notes which records are done with: nothing more is to be waited for. One whose acknowledgement is in doubt would come
// again once its lock has ended.
func (r *recorder) settle(ack history.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range ack.Steps {
		at := time.Now()
		switch {
		case s.Verdict != "reject" && s.Verdict != "accept":
			continue
		case ack.Type != history.OK && !s.Done:
			at = at.Add(shareLock + 5*time.Second)
		}
		if r.settled[s.Key] == nil {
			r.settled[s.Key] = map[int64]time.Time{}
		}
		r.settled[s.Key][s.Offset] = at
	}
}

func (r *recorder) unsettled(ends map[string]history.Ends) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range sourceKeys {
		for o := ends[key].Start; o < ends[key].End; o++ {
			if at, ok := r.settled[key][o]; !ok || time.Now().Before(at) {
				n++
			}
		}
	}
	return n
}

// drainShares is a last member of the share group: it takes whatever is left,
// until everything has been settled or nothing more comes for longer than a lock
// lasts. What is missing then the checker finds.
func drainShares(ctx context.Context, rec *recorder, bootstrap []string, ends map[string]history.Ends) {
	s := &sharer{rec: rec, rng: rand.New(rand.NewPCG(0, 0)), bootstrap: bootstrap}
	defer s.crash()
	left, since := rec.unsettled(ends), time.Now()
	for left > 0 && ctx.Err() == nil && time.Since(since) < 3*shareLock {
		if s.cl == nil && s.fresh() != nil {
			pause(ctx, time.Second)
			continue
		}
		s.deal(ctx, true)
		if n := rec.unsettled(ends); n < left {
			left, since = n, time.Now()
		}
	}
	// A last poll, so that there was a final phase.
	if s.cl != nil || s.fresh() == nil {
		s.deal(ctx, true)
	}
}
