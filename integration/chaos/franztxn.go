//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/history"
)

// franzTeller is franz-go with transactions, and a consumer of what is committed
// beside it.
type franzTeller struct {
	cl     *kgo.Client
	reader franz
}

func txnOptions(bootstrap []string, id string) []kgo.Opt {
	f := franz{bootstrap: bootstrap}
	return f.options(kgo.TransactionalID(id), kgo.TransactionTimeout(txnTimeout), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()), kgo.ProduceRequestTimeout(5*time.Second), kgo.RecordDeliveryTimeout(10*time.Second), kgo.ProducerLinger(0))
}

func newFranzTeller(bootstrap []string, id string) (*franzTeller, error) {
	cl, err := kgo.NewClient(txnOptions(bootstrap, id)...)
	if err != nil {
		return nil, err
	}
	return &franzTeller{cl: cl, reader: franz{bootstrap: bootstrap}}, nil
}

func (f *franzTeller) name() string { return "franz-go" }

func (f *franzTeller) open(ctx context.Context) error {
	_, _, err := f.cl.ProducerID(ctx)
	return errors.Join(err, f.reader.assign(ctx, map[string]int64{ledgerKeys[0]: fromLatest, ledgerKeys[1]: fromLatest}))
}

func (f *franzTeller) take(context.Context) ([]input, error) { return nil, nil }

func (f *franzTeller) crash() {
	f.reader.crash()
	f.cl.Close()
}

func (f *franzTeller) txn(ctx context.Context, ask txnAsk) txnDone {
	done := txnDone{outcome: history.Fail}
	if done.err = f.cl.BeginTransaction(); done.err != nil {
		done.steps = ask.steps
		return done
	}
	if done.steps, done.err = perform(ctx, f.cl, ask, f.reader.poll); done.err != nil || !ask.commit {
		// Nobody has asked for a commit, so that nobody can have committed.
		done.err = errors.Join(done.err, f.cl.AbortBufferedRecords(ctx), f.cl.EndTransaction(ctx, kgo.TryAbort))
		return done
	}
	done.decided = time.Now()
	done.outcome = history.OK
	if done.err = f.cl.EndTransaction(ctx, kgo.TryCommit); done.err != nil {
		done.outcome = history.Info
	}
	return done
}

// perform does what a transaction consists of, until something fails.
func perform(ctx context.Context, cl *kgo.Client, ask txnAsk, poll func(context.Context) ([]history.Step, error)) ([]history.Step, error) {
	var steps []history.Step
	for i, s := range ask.steps {
		if s.F == history.Poll {
			got, err := poll(ctx)
			if err != nil {
				return append(steps, ask.steps[i:]...), err
			}
			steps = append(steps, got...)
			continue
		}
		topic, partition := splitKey(s.Key)
		all := make(chan kgo.ProduceResults, 1)
		go func() {
			all <- cl.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: partition, Value: record(s.Value, ask.size)})
		}()
		select {
		case got := <-all:
			if err := got.FirstErr(); err != nil {
				return append(steps, ask.steps[i:]...), err
			}
			s.Offset = got[0].Record.Offset
			steps = append(steps, s)
		case <-ctx.Done():
			return append(steps, ask.steps[i:]...), ctx.Err()
		}
	}
	return steps, nil
}

// franzTransformer is franz-go's session of a group whose offsets are committed
// in transactions.
type franzTransformer struct {
	session *kgo.GroupTransactSession
	group   string
}

func newFranzTransformer(bootstrap []string, id, group string) (*franzTransformer, error) {
	options := append(txnOptions(bootstrap, id), groupOptions(group)...)
	options = append(options, kgo.ConsumeTopics(plainTopic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(300*time.Millisecond),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	s, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		return nil, err
	}
	return &franzTransformer{s, group}, nil
}

// groupOptions are those of a member of a group: of the newer protocol (KIP-848)
// if the group's name says so.
func groupOptions(group string) []kgo.Opt {
	options := []kgo.Opt{kgo.ConsumerGroup(group), kgo.DisableAutoCommit(), kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(time.Second), kgo.RebalanceTimeout(10 * time.Second)}
	if strings.HasSuffix(group, "-848") {
		options = append(options, kgo.ServerSideBalancer())
	}
	return options
}

func (f *franzTransformer) name() string { return "franz-go" }

func (f *franzTransformer) open(ctx context.Context) error {
	_, _, err := f.session.Client().ProducerID(ctx)
	return err
}

func (f *franzTransformer) crash() { f.session.CloseAllowingRebalance() }

func (f *franzTransformer) take(ctx context.Context) ([]input, error) {
	short, cancel := context.WithTimeout(ctx, 2*pollTime)
	defer cancel()
	var inputs []input
	fetches := f.session.PollRecords(short, 10)
	fetches.EachRecord(func(r *kgo.Record) { inputs = append(inputs, input{joinKey(r.Topic, r.Partition), r.Offset}) })
	if len(inputs) > 0 {
		return inputs, nil
	}
	if err := fetches.Err0(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("poll of %s: %w", f.group, err)
	}
	return nil, nil
}

func (f *franzTransformer) txn(ctx context.Context, ask txnAsk) txnDone {
	done := txnDone{outcome: history.Fail}
	if done.err = f.session.Begin(); done.err != nil {
		done.steps = ask.steps
		return done
	}
	if done.steps, done.err = perform(ctx, f.session.Client(), ask, nil); done.err != nil || !ask.commit {
		_, err := f.session.End(ctx, kgo.TryAbort)
		done.err = errors.Join(done.err, err)
		return done
	}
	done.decided = time.Now()
	committed, err := f.session.End(ctx, kgo.TryCommit)
	switch done.err = err; {
	case err != nil:
		done.outcome = history.Info
	case committed:
		done.outcome = history.OK
	}
	return done
}
