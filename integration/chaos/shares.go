//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
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

	mu     sync.Mutex // guards the following
	failed error      // of an acknowledgement since the last look
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
			if err := got.Error(); err != nil {
				s.failed = err
			}
		}))...)
	if err != nil {
		return err
	}
	s.cl, s.process = cl, int(s.rec.process.Add(1))
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
	s.mu.Lock()
	if err == nil {
		err = s.failed
	}
	s.failed = nil
	s.mu.Unlock()
	ack.Type, ack.Error = history.OK, text(err)
	if err != nil {
		ack.Type = history.Info
	}
	s.rec.add(ack)
	s.rec.settle(ack, final)
	if err != nil {
		s.crash()
	}
}

// settle notes which records are done with: nothing more is to be waited for.
func (r *recorder) settle(ack history.Event, final bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range ack.Steps {
		if final || s.Verdict == "reject" || s.Verdict == "accept" {
			if r.settled[s.Key] == nil {
				r.settled[s.Key] = map[int64]bool{}
			}
			r.settled[s.Key][s.Offset] = true
		}
	}
}

func (r *recorder) unsettled(ends map[string]history.Ends) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, key := range sourceKeys {
		for o := ends[key].Start; o < ends[key].End; o++ {
			if !r.settled[key][o] {
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
