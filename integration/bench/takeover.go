package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	takeoverBefore = 2 * time.Second // of work before the kill
	takeoverAfter  = 2 * time.Second // of work after it
	takeoverMax    = 90 * time.Second
	takeoverEvery  = 10 * time.Millisecond
)

// takeovers kills the broker that coordinates a group and a transactional id,
// and notes the longest time in which no commit, and no transaction, ended.
func (b *bench) takeovers(ctx context.Context) error {
	candidates := []candidate[*threeBrokers]{
		{"varve3", func() (*threeBrokers, error) { return b.startVarveCluster("varve3") }},
		{"kafka", func() (*threeBrokers, error) { return b.startKafkaCluster(ctx) }},
	}
	for round := 1; round <= *rounds; round++ { // each cluster is new: there is nothing to warm up
		for _, candidate := range candidates {
			if !chosen(candidate.name) {
				continue
			}
			c, err := candidate.start()
			if err != nil {
				return err
			}
			err = b.takeover(ctx, c, round)
			if err := errors.Join(err, c.stop()); err != nil {
				return fmt.Errorf("takeover on %s: %w", c.name, err)
			}
		}
	}
	return nil
}

func (b *bench) takeover(ctx context.Context, c *threeBrokers, round int) error {
	const topic = "takeover"
	if err := c.inSync(ctx); err != nil {
		return err
	}
	if err := createTopic(ctx, c.addr, topic, 1, 3, map[string]string{"min.insync.replicas": "2"}); err != nil {
		return err
	}
	if err := c.inSync(ctx, topic); err != nil {
		return err
	}
	id, err := topicID(ctx, c.addr, topic)
	if err != nil {
		return err
	}
	victim, group, txn, err := c.coordinated(ctx, topic)
	if err != nil {
		return err
	}
	if err := c.inSync(ctx); err != nil { // of the internal topics, too
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, takeoverMax)
	defer cancel()
	commits, txns := &pulse{}, &pulse{}
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer func() { stop(); wg.Wait() }()
	wg.Go(func() { commits.beat(work, c.committer(group, topic, id)) })
	wg.Go(func() { txns.beat(work, c.transactor(txn, topic)) })
	both := func(since time.Time, d time.Duration) error {
		return waitFor(func() error { return errors.Join(commits.goes(since, d), txns.goes(since, d)) })
	}
	if err := both(time.Now(), takeoverBefore); err != nil {
		return err
	}
	commits.forget()
	txns.forget()
	killed := time.Now()
	if err := c.kill(int(victim) - 1); err != nil {
		return err
	}
	if err := both(killed, takeoverAfter); err != nil {
		return err
	}
	return b.note(measured{"groups", "takeover", c.name, round, figures{"commit_gap_ms": millis(commits.longest()), "txn_gap_ms": millis(txns.longest())}})
}

// coordinated finds a broker that neither is the controller nor leads the topic,
// and a group and a transactional id that it coordinates.
func (c *threeBrokers) coordinated(ctx context.Context, topic string) (victim int32, group, txn string, err error) {
	cl, err := dial(c.addr)
	if err != nil {
		return 0, "", "", err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	m, err := adm.Metadata(ctx, topic)
	if err != nil {
		return 0, "", "", err
	}
	controller, err := quorumLeader(ctx, cl)
	if err != nil {
		return 0, "", "", err
	}
	for _, b := range m.Brokers {
		if b.NodeID != controller && b.NodeID != m.Topics[topic].Partitions[0].Leader {
			victim = b.NodeID
		}
	}
	names := make([]string, 100)
	for i := range names {
		names[i] = fmt.Sprint("takeover-", i)
	}
	var groups, txns kadm.FindCoordinatorResponses
	// Its first answers make the internal topics, which take a moment to be led.
	err = waitFor(func() error {
		groups, txns = adm.FindGroupCoordinators(ctx, names...), adm.FindTxnCoordinators(ctx, names...)
		return errors.Join(groups.Error(), txns.Error())
	})
	if err != nil {
		return 0, "", "", err
	}
	for _, name := range names {
		if groups[name].NodeID == victim {
			group = name
		}
		if txns[name].NodeID == victim {
			txn = name
		}
	}
	if group == "" || txn == "" {
		return 0, "", "", fmt.Errorf("broker %d coordinates none of %d names", victim, len(names))
	}
	return victim, group, txn, nil
}

// quorumLeader is the broker that leads the metadata quorum.
func quorumLeader(ctx context.Context, cl *kgo.Client) (int32, error) {
	req := kmsg.NewPtrDescribeQuorumRequest()
	t := kmsg.NewDescribeQuorumRequestTopic()
	t.Topic = "__cluster_metadata"
	t.Partitions = append(t.Partitions, kmsg.NewDescribeQuorumRequestTopicPartition())
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("the quorum is described as %+v", resp)
	}
	return resp.Topics[0].Partitions[0].LeaderID, kerr.ErrorForCode(resp.ErrorCode)
}

// impatient clients try again at once, so that what is measured is the brokers.
func impatient() []kgo.Opt {
	return []kgo.Opt{
		kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }),
		kgo.MetadataMinAge(20 * time.Millisecond), kgo.ProducerLinger(0),
	}
}

func (c *threeBrokers) committer(group, topic string, id kadm.TopicID) worker {
	return worker{
		open: func() (*kgo.Client, error) { return dial(c.addr, impatient()...) },
		do: func(ctx context.Context, cl *kgo.Client) error {
			return commitOffset(ctx, cl, group, topic, id, 0, 1)
		},
	}
}

func (c *threeBrokers) transactor(txn, topic string) worker {
	return worker{
		open: func() (*kgo.Client, error) {
			return dial(c.addr, append(impatient(), kgo.TransactionalID(txn), kgo.DefaultProduceTopic(topic))...)
		},
		do: func(ctx context.Context, cl *kgo.Client) error {
			return transactOnce(ctx, cl, 1, "", kadm.TopicID{})
		},
	}
}

// worker does one thing again and again, with a new client after a failure.
type worker struct {
	open func() (*kgo.Client, error)
	do   func(ctx context.Context, cl *kgo.Client) error
}

// pulse is when a worker was last done, and its longest pause.
type pulse struct {
	mu         sync.Mutex // guards the following
	last       time.Time
	pause      time.Duration
	lastFailed error
}

// beat works until ctx ends.
func (p *pulse) beat(ctx context.Context, w worker) {
	tick := time.NewTicker(takeoverEvery)
	defer tick.Stop()
	for ctx.Err() == nil {
		cl, err := w.open()
		for err == nil && ctx.Err() == nil {
			if err = w.do(ctx, cl); err == nil {
				p.note(time.Now())
				<-tick.C
			}
		}
		if cl != nil {
			cl.Close()
		}
		p.mu.Lock()
		p.lastFailed = err
		p.mu.Unlock()
	}
}

func (p *pulse) note(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() {
		p.pause = max(p.pause, now.Sub(p.last))
	}
	p.last = now
}

// forget counts pauses from now on.
func (p *pulse) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pause = 0
}

// goes says why work did not go on until d after since.
func (p *pulse) goes(since time.Time, d time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last.Sub(since) < d {
		return fmt.Errorf("nothing was done for %v: %w", time.Since(p.last), errors.Join(p.lastFailed))
	}
	return nil
}

func (p *pulse) longest() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pause
}
