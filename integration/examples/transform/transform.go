// Package transform reads topics and writes others, exactly once: what comes of
// a record and the fact that the record was read are committed in one
// transaction (KIP-98, KIP-447). A crash at any point leaves both or neither,
// for readers with isolation level read_committed.
//
// What a transformation does beside writing records, such as calling a service,
// is done at least once: a crash before the commit does it again.
package transform

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Config says what is read and by whom.
type Config struct {
	Seeds  []string
	Topics []string
	Group  string
	// ID names this worker among those of its group, for good: after a crash
	// the same ID takes back its partitions at once, instead of when its session
	// times out (KIP-345), and the transaction that it has left open is aborted.
	ID string
	// Due says when a record may be read; nil means at once. A record waits for
	// the one ahead of it in its partition, too.
	Due func(*kgo.Record) time.Time
}

const (
	// batchMax is how many records a transaction takes in at most.
	batchMax = 500
	// retryPause is between a failure and the next try.
	retryPause = 100 * time.Millisecond
)

// Func gives the records that come of one; Topic is theirs to name. An error
// ends the work: what is wrong with one record is better a record, too.
type Func func(ctx context.Context, r *kgo.Record) ([]*kgo.Record, error)

// Job is a transformation.
type Job struct {
	Config
	Func Func
}

// RunAll runs jobs beside each other until ctx ends, or one of them fails.
func RunAll(ctx context.Context, jobs ...Job) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(jobs))
	for _, j := range jobs {
		go func() { ended <- Run(ctx, j.Config, j.Func) }() // ends with ctx
	}
	err := <-ended
	cancel()
	for range len(jobs) - 1 {
		<-ended
	}
	return err
}

// errFunc wraps what a Func returned.
type errFunc struct{ error }

func (e errFunc) Unwrap() error { return e.error }

// Run transforms until ctx ends, or f fails. A session that breaks, such as by
// a coordinator that was away for too long, is begun anew.
func Run(ctx context.Context, c Config, f Func) error {
	for ctx.Err() == nil {
		err := c.session(ctx, f)
		var failed errFunc
		if errors.As(err, &failed) {
			return failed.error
		}
		if ctx.Err() == nil {
			slog.Warn("a session broke; the next one begins", "group", c.Group, "err", err)
		}
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
		}
	}
	return ctx.Err()
}

// session is the life of one client.
func (c Config) session(ctx context.Context, f Func) error {
	id := c.Group + "-" + c.ID
	s, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(c.Seeds...), kgo.ConsumerGroup(c.Group), kgo.ConsumeTopics(c.Topics...),
		kgo.InstanceID(id), kgo.TransactionalID(id),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(time.Second), kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	defer s.Close()
	var waiting []*kgo.Record // read, and not due yet
	for {
		if len(waiting) == 0 {
			f := s.PollRecords(ctx, batchMax)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := f.Err0(); err != nil {
				return err
			}
			waiting = f.Records()
			continue
		}
		now, err := c.await(ctx, waiting)
		if err != nil {
			return err
		}
		if waiting, err = c.transact(ctx, s, waiting, now, f); err != nil {
			return err
		}
	}
}

// await waits until one of the records is due. The group does not mind: the
// client sends its heartbeats meanwhile.
func (c Config) await(ctx context.Context, records []*kgo.Record) (time.Time, error) {
	now := time.Now()
	if c.Due == nil {
		return now, nil
	}
	first := c.Due(records[0])
	for _, r := range records[1:] {
		if due := c.Due(r); due.Before(first) {
			first = due
		}
	}
	select {
	case <-time.After(first.Sub(now)):
		return time.Now(), nil
	case <-ctx.Done():
		return now, ctx.Err()
	}
}

// transact transforms what is due in one transaction, and gives the rest.
func (c Config) transact(ctx context.Context, s *kgo.GroupTransactSession, records []*kgo.Record, now time.Time, f Func) (rest []*kgo.Record, err error) {
	if err := s.Begin(); err != nil {
		return nil, err
	}
	first := kgo.AbortingFirstErrPromise(s.Client())
	next := positions{}
	for _, r := range records {
		if next.stopped(r) || c.Due != nil && c.Due(r).After(now) {
			next.stopAt(r)
			rest = append(rest, r)
			continue
		}
		out, err := f(ctx, r)
		if err != nil {
			_, ending := s.End(ctx, kgo.TryAbort)
			return nil, errors.Join(errFunc{fmt.Errorf("%s-%d, offset %d: %w", r.Topic, r.Partition, r.Offset, err)}, ending)
		}
		for _, o := range out {
			s.Produce(ctx, o, first.Promise())
		}
	}
	// An abort gives the client back the offsets committed last: all that was
	// read since comes again, the rest included.
	failed := first.Err()
	committed, err := s.End(kgo.PreTxnCommitFnContext(ctx, next.commit), kgo.TransactionEndTry(failed == nil))
	if err != nil || !committed {
		rest = nil
	}
	return rest, err
}

// positions are where partitions are committed that have records left which
// were read and not transformed; the client would commit what it has read.
type positions map[string]map[int32]kgo.EpochOffset

// stopped says whether a record's partition has one left ahead of it.
func (p positions) stopped(r *kgo.Record) bool {
	_, ok := p[r.Topic][r.Partition]
	return ok
}

// stopAt leaves a record, and those after it, for later.
func (p positions) stopAt(r *kgo.Record) {
	if p.stopped(r) {
		return
	}
	if p[r.Topic] == nil {
		p[r.Topic] = map[int32]kgo.EpochOffset{}
	}
	p[r.Topic][r.Partition] = kgo.EpochOffset{Epoch: r.LeaderEpoch, Offset: r.Offset}
}

func (p positions) commit(req *kmsg.TxnOffsetCommitRequest) error {
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			if at, ok := p[t.Topic][t.Partitions[j].Partition]; ok {
				t.Partitions[j].Offset, t.Partitions[j].LeaderEpoch = at.Offset, at.Epoch
			}
		}
	}
	return nil
}
