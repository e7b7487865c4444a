package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/meta/topic"
)

// txnStack is a stack with a topic of three partitions.
func txnStack(t *testing.T) (*stack, context.Context) {
	t.Helper()
	s := startStack(t, nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	if _, err := kadm.NewClient(s.client(t)).CreateTopics(ctx, 3, 1, nil, "events", "out"); err != nil {
		t.Fatal(err)
	}
	return s, ctx
}

// produceTxn writes n records in one transaction and ends it.
func produceTxn(t *testing.T, ctx context.Context, c *kgo.Client, name string, n int, commit kgo.TransactionEndTry) {
	t.Helper()
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		c.Produce(ctx, &kgo.Record{Topic: "events", Value: fmt.Appendf(nil, "%s-%d", name, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := c.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.EndTransaction(ctx, commit); err != nil {
		t.Fatalf("end of %s: %v", name, err)
	}
}

// read reads a topic's committed values, all that there are: up to a last record that it writes to each partition.
func (s *stack) read(t *testing.T, ctx context.Context, name string) map[string]int {
	t.Helper()
	const last = "the last record"
	w := s.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for p := range int32(3) {
		if err := w.ProduceSync(ctx, &kgo.Record{Topic: name, Partition: p, Value: []byte(last)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	c := s.client(t, kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	seen := map[string]int{}
	for seen[last] < 3 {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatalf("%v; read so far: %v", err, seen)
		}
		f.EachRecord(func(r *kgo.Record) { seen[string(r.Value)]++ })
	}
	delete(seen, last)
	return seen
}

func TestCommittedTransactionsAreReadAndAbortedOnesAreNot(t *testing.T) {
	s, ctx := txnStack(t)
	c := s.client(t, kgo.TransactionalID("t1"), kgo.DefaultProduceTopic("events"))
	want := map[string]bool{}
	for round := range 6 {
		name := fmt.Sprintf("round-%d", round)
		commit := kgo.TransactionEndTry(round%2 == 0)
		produceTxn(t, ctx, c, name, 40, commit)
		for i := range 40 {
			if commit {
				want[fmt.Sprintf("%s-%d", name, i)] = true
			}
		}
	}
	seen := s.read(t, ctx, "events")
	for v, k := range seen {
		if !want[v] || k != 1 {
			t.Errorf("%s is read %d times, committed: %v", v, k, want[v])
		}
	}
	if len(seen) != len(want) {
		t.Errorf("%d records are read, %d committed", len(seen), len(want))
	}
}

func TestProducerThatWasReplacedIsFenced(t *testing.T) {
	s, ctx := txnStack(t)
	old := s.client(t, kgo.TransactionalID("t"), kgo.DefaultProduceTopic("events"))
	if err := old.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := old.ProduceSync(ctx, &kgo.Record{Value: []byte("lost")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	young := s.client(t, kgo.TransactionalID("t"), kgo.DefaultProduceTopic("events"))
	produceTxn(t, ctx, young, "young", 3, kgo.TryCommit)
	err := old.EndTransaction(ctx, kgo.TryCommit)
	if !errors.Is(err, kerr.ProducerFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) && !errors.Is(err, kerr.InvalidTxnState) {
		t.Errorf("the old producer's commit: %v", err)
	}
	if seen := s.read(t, ctx, "events"); len(seen) != 3 || seen["lost"] != 0 {
		t.Errorf("read %v", seen)
	}
}

func TestConsumeTransformProduceIsExactlyOnce(t *testing.T) {
	s, ctx := txnStack(t)
	const n = 200
	feed := s.client(t)
	for i := range n {
		feed.Produce(ctx, &kgo.Record{Topic: "events", Value: fmt.Append(nil, i)}, nil)
	}
	if err := feed.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	sess, err := kgo.NewGroupTransactSession(kgo.SeedBrokers(s.addr), kgo.TransactionalID("etl"), kgo.ConsumerGroup("etl"),
		kgo.ConsumeTopics("events"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DefaultProduceTopic("out"), kgo.FetchMaxPartitionBytes(500))
	if err != nil {
		t.Fatal(err)
	}
	defer sess.Close()
	for done, round := 0, 0; done < n; round++ {
		f := sess.PollFetches(ctx)
		if err := f.Err(); err != nil {
			t.Fatal(err)
		}
		if err := sess.Begin(); err != nil {
			t.Fatal(err)
		}
		f.EachRecord(func(r *kgo.Record) { sess.Produce(ctx, &kgo.Record{Value: r.Value}, nil) })
		// Every third transaction is aborted: its records come again.
		committed, err := sess.End(ctx, kgo.TransactionEndTry(round%3 != 1))
		if err != nil {
			t.Fatal(err)
		}
		if committed {
			done += f.NumRecords()
		}
	}
	seen := s.read(t, ctx, "out")
	for i := range n {
		if seen[fmt.Sprint(i)] != 1 {
			t.Errorf("%d is there %d times", i, seen[fmt.Sprint(i)])
		}
	}
	offsets, err := kadm.NewClient(feed).FetchOffsets(ctx, "etl")
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) { sum += o.At })
	if sum != n {
		t.Errorf("the group's offsets add up to %d of %d", sum, n)
	}
}

func TestTransactionsAreListedAndDescribed(t *testing.T) {
	s, ctx := txnStack(t)
	c := s.client(t, kgo.TransactionalID("t"), kgo.DefaultProduceTopic("events"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := c.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := c.ProduceSync(ctx, &kgo.Record{Partition: 2, Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	adm := kadm.NewClient(s.client(t))
	list, err := adm.ListTransactions(ctx, nil, []string{"Ongoing"})
	if err != nil || len(list) != 1 || list["t"].State != "Ongoing" {
		t.Fatalf("list: %v %v", list, err)
	}
	d, err := adm.DescribeTransactions(ctx, "t", "u")
	if err != nil {
		t.Fatal(err)
	}
	if got := d["t"]; got.State != "Ongoing" || !got.Topics.Lookup("events", 2) || got.StartTimestamp <= 0 {
		t.Errorf("description: %+v", got)
	}
	if got := d["u"]; !errors.Is(got.Err, kerr.TransactionalIDNotFound) {
		t.Errorf("of an unknown id: %+v", got)
	}
	if err := c.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	if _, err := adm.ListTransactions(ctx, nil, nil); err != nil {
		t.Fatal(err)
	}
}

// outrun makes every question whether a transaction is open look as if the marker of the one before had come right after it.
type outrun struct {
	Partitions
	asked sync.Map // by producer and epoch
}

type outrunPartition struct {
	Partition
	by *outrun
}

func (o *outrun) Partition(name string, index int32) (Partition, error) {
	p, err := o.Partitions.Partition(name, index)
	return outrunPartition{p, o}, err
}

func (o *outrun) PartitionByID(id topic.ID, index int32) (Partition, error) {
	p, err := o.Partitions.PartitionByID(id, index)
	return outrunPartition{p, o}, err
}

func (p outrunPartition) TxnGuard(producerID int64, epoch int16) (int32, bool, error) {
	guard, open, err := p.Partition.TxnGuard(producerID, epoch)
	if _, again := p.by.asked.LoadOrStore([2]int64{producerID, int64(epoch)}, true); !again && guard > 1 {
		guard--
	}
	return guard, open, err
}

// The marker of a transaction may be written while its producer, which has its answer, begins the next.
func TestNextTransactionBeginsWhileTheMarkerOfTheLastIsWritten(t *testing.T) {
	s, ctx := txnStack(t)
	s.deps.Partitions = &outrun{Partitions: s.deps.Partitions}
	c := s.client(t, kgo.TransactionalID("t1"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for i := range 5 {
		produceTxn(t, ctx, c, fmt.Sprint("round-", i), 3, kgo.TryCommit)
	}
	if got := s.read(t, ctx, "events"); len(got) != 15 {
		t.Errorf("%d of 15 records are there", len(got))
	}
}

// A leader that cannot ask the coordinator says what older producers take for "try again"; those of KIP-890 are told as it is.
func TestVerificationFailuresAreWhatOlderProducersRetry(t *testing.T) {
	for _, c := range []struct {
		err     error
		version int16
		want    int16
	}{
		{errTxnUnverified, 9, codeNotEnoughReplicas},
		{errTxnUnverified, 12, codeNotEnoughReplicas},
		{coordinator.ErrConcurrentTransactions, 9, codeNotEnoughReplicas},
		{coordinator.ErrConcurrentTransactions, 12, codeConcurrentTransactions},
		{coordinator.ErrTxnAbortable, 9, codeInvalidTxnState},
		{coordinator.ErrTxnAbortable, 11, codeTransactionAbortable},
		{coordinator.ErrProducerFenced, 9, codeInvalidProducerEpoch},
		{coordinator.ErrInvalidProducerIDMapping, 9, codeInvalidProducerIDMapping},
		{nil, 9, codeNone},
	} {
		if got := code(produceTxnError(c.err, c.version)); got != c.want {
			t.Errorf("%v in version %d: %d, want %d", c.err, c.version, got, c.want)
		}
	}
}

// A coordinator of a group whose transaction's coordinator is away says what every producer tries again.
func TestCommitsInATransactionThatCannotBeVerifiedAreTriedAgain(t *testing.T) {
	s := startServer(t, nil)
	for _, c := range []struct {
		err     error
		version int16
		want    int16
	}{
		{fmt.Errorf("%w: it is away", errTxnUnverified), 3, codeCoordinatorLoading},
		{fmt.Errorf("%w: it is away", errTxnUnverified), 5, codeCoordinatorLoading},
		{coordinator.ErrConcurrentTransactions, 5, codeConcurrentTransactions},
		{coordinator.ErrTxnAbortable, 3, codeInvalidTxnState},
		{coordinator.ErrTxnAbortable, 4, codeTransactionAbortable},
		{coordinator.ErrProducerFenced, 5, codeInvalidProducerEpoch},
		{nil, 5, codeNone},
	} {
		if got := s.txnCommitCode(&request{version: c.version}, c.err); got != c.want {
			t.Errorf("%v in version %d: %d, want %d", c.err, c.version, got, c.want)
		}
	}
}

// overrun makes every first question of a round whether a transaction is open look as if a marker had come right after it.
type overrun struct {
	Groups
	asked atomic.Int64
}

func (o *overrun) TxnGuard(group string) (uint64, error) {
	guard, err := o.Groups.TxnGuard(group)
	if o.asked.Add(1)%2 == 1 {
		return 0, err
	}
	return guard, err
}

// So may the marker in the offsets' partition: the commit is verified again, and counts.
func TestOffsetsAreCommittedInTheTransactionAfterOneWhoseMarkerIsLate(t *testing.T) {
	for name, versions := range map[string]*kversion.Versions{"version 1": kversion.V3_8_0(), "version 2": kversion.Stable()} {
		t.Run(name, func(t *testing.T) {
			s, ctx := txnStack(t)
			groups := &overrun{Groups: s.deps.Groups}
			s.deps.Groups = groups
			c := s.client(t, kgo.MaxVersions(versions))
			eventually(t, "the offsets topic is there", func() bool {
				got, err := kadm.NewClient(c).FetchOffsets(ctx, "late")
				return err == nil && got.Error() == nil
			})
			init := kmsg.NewInitProducerIDRequest()
			init.TransactionalID, init.TransactionTimeoutMillis = kmsg.StringPtr("t"), 60_000
			who, err := init.RequestWith(ctx, c)
			if err != nil || who.ErrorCode != 0 {
				t.Fatalf("%+v, %v", who, err)
			}
			for round := range int64(3) {
				offsetsInTxn(t, ctx, c, who, round, name == "version 1")
				got, err := kadm.NewClient(c).FetchOffsets(ctx, "late")
				if o, _ := got.Lookup("events", 0); err != nil || o.At != round {
					t.Fatalf("round %d: %+v, %v", round, o, err)
				}
			}
			if n := groups.asked.Load(); n < 6 { // more while the end before is still under way
				t.Errorf("the guard was asked for %d times in three rounds", n)
			}
		})
	}
}

// offsetsInTxn commits one offset in a transaction of its own.
func offsetsInTxn(t *testing.T, ctx context.Context, c *kgo.Client, who *kmsg.InitProducerIDResponse, at int64, add bool) {
	t.Helper()
	if add {
		q := kmsg.NewAddOffsetsToTxnRequest()
		q.TransactionalID, q.ProducerID, q.ProducerEpoch, q.Group = "t", who.ProducerID, who.ProducerEpoch, "late"
		eventuallyCode(t, func() (int16, error) {
			r, err := q.RequestWith(ctx, c)
			if err != nil {
				return 0, err
			}
			return r.ErrorCode, nil
		})
	}
	q := kmsg.NewTxnOffsetCommitRequest()
	q.TransactionalID, q.ProducerID, q.ProducerEpoch, q.Group = "t", who.ProducerID, who.ProducerEpoch, "late"
	topic, part := kmsg.NewTxnOffsetCommitRequestTopic(), kmsg.NewTxnOffsetCommitRequestTopicPartition()
	topic.Topic, part.Offset = "events", at
	topic.Partitions = append(topic.Partitions, part)
	q.Topics = append(q.Topics, topic)
	r, err := q.RequestWith(ctx, c)
	if err != nil || r.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("commit of %d: %+v, %v", at, r, err)
	}
	end := kmsg.NewEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = "t", who.ProducerID, who.ProducerEpoch, true
	e, err := end.RequestWith(ctx, c)
	if err != nil || e.ErrorCode != 0 {
		t.Fatalf("end: %+v, %v", e, err)
	}
	if !add {
		who.ProducerID, who.ProducerEpoch = e.ProducerID, e.ProducerEpoch
	}
	eventually(t, "the marker is written", func() bool {
		got, err := kadm.NewClient(c).FetchOffsets(ctx, "late")
		o, _ := got.Lookup("events", 0)
		return err == nil && o.At == at
	})
}

// eventuallyCode asks again as long as the transaction before is being ended.
func eventuallyCode(t *testing.T, ask func() (int16, error)) {
	t.Helper()
	eventually(t, "the transaction before is ended", func() bool {
		code, err := ask()
		if err != nil || code != 0 && code != kerr.ConcurrentTransactions.Code {
			t.Fatalf("code %d, %v", code, err)
		}
		return code == 0
	})
}
