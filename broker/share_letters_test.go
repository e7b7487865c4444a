package broker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// letters reads n dead letters, described by what their headers say.
func (s *shareStack) letters(name string, n int) (list []string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c := s.client(s.t, kgo.ConsumeTopics(name), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for len(list) < n {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			s.t.Fatalf("%v after %q", err, list)
		}
		f.EachRecord(func(r *kgo.Record) {
			text := fmt.Sprintf("%q=%q", r.Key, r.Value)
			for _, h := range r.Headers {
				text += fmt.Sprintf(" %s=%s", h.Key, h.Value)
			}
			list = append(list, text)
		})
	}
	return list
}

func TestDeadLettersAreDurableBeforeTheirRecordsAreArchived(t *testing.T) {
	s := startShares(t, 1, nil)
	dlq := dial(t, s.addr).create(newTopic("dlq.events", 1, letterEnable, "true"))
	s.configure("g", "errors.deadletterqueue.topic.name", "dlq.events")
	s.configure("g", "share.delivery.count.limit", "2")
	wrote := s.watchLetters(dlq)
	s.produce(0, 4)
	ann := s.member("ann")
	expect(t, "ann's", ann.get(), "0-3")
	expect(t, "two are rejected", ann.ack(0, 3, share.Reject, share.Accept, share.Release, share.Reject), int16(0))
	expect(t, "one again", ann.get(), "2-2x2")
	expect(t, "for the last time", ann.ack(2, 2, share.Release), int16(0))
	got := s.letters("dlq.events", 3)
	head := func(offset, deliveries int, message string) string {
		return fmt.Sprintf("%q=%q %s=events %s=0 %s=%d %s=g %s=%d %s=%s", "", "", letterTopic, letterPartition, letterOffset, offset, letterGroup, letterDeliveries, deliveries, letterMessage, message)
	}
	want := []string{head(0, 1, "Offset rejected by client."), head(2, 2, "Offset delivery count exceeded the threshold."), head(3, 1, "Offset rejected by client.")}
	slices.Sort(got)
	for i := range want {
		expect(t, "a dead letter", got[i], want[i])
	}
	key := shareKey("g", s.id, 0)
	eventually(t, "archived behind", func() bool { return s.state.start(key) == 4 })
	wrote(0, 2, 3)

	s.configure("g", "errors.deadletterqueue.copy.record.enable", "true")
	c := s.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	r := &kgo.Record{Topic: "events", Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("x")}}}
	if err := c.ProduceSync(context.Background(), r).FirstErr(); err != nil {
		t.Fatal(err)
	}
	expect(t, "ann's", ann.get(), "4-4")
	expect(t, "rejected", ann.ack(4, 4, share.Reject), int16(0))
	got = s.letters("dlq.events", 4)
	expect(t, "a copy", got[3], fmt.Sprintf("%q=%q h=x %s=events %s=0 %s=4 %s=g %s=1 %s=Offset rejected by client.", "k", "v", letterTopic, letterPartition, letterOffset, letterGroup, letterDeliveries, letterMessage))
	eventually(t, "archived behind", func() bool { return s.state.start(key) == 5 }) // and counted, before that
	wrote(0, 2, 3, 4)
	if st := s.Stats().Shares; st.DeadLetterRecords != 4 || st.DeadLettersFailed != 0 {
		t.Errorf("%+v", st)
	}
}

// watchLetters looks at every write from now on: a record may be archived only if it was archiving before, and if as many dead
// letters are committed as there are records that went that way. What it gives checks that those of some offsets did; their
// writes are over.
func (s *shareStack) watchLetters(dlq topic.ID) (wrote func(offsets ...int64)) {
	s.t.Helper()
	part, err := s.deps.Partitions.PartitionByID(dlq, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	archiving, archived := map[int64]bool{}, map[int64]bool{}
	s.state.mu.Lock()
	defer s.state.mu.Unlock()
	s.state.fail = func(q coordinator.ShareWrite) (error, bool) {
		for o := range archiving { // what is below the start is done: archived, for these
			if o < q.Start {
				archived[o] = true
			}
		}
		for _, b := range q.Batches {
			for o := b.First; o <= b.Last; o++ {
				switch b.State {
				case coordinator.ShareArchiving:
					archiving[o] = true
				case coordinator.ShareArchived:
					archived[o] = true
					if !archiving[o] {
						s.t.Errorf("%d is archived, and was not archiving", o)
					}
				}
			}
		}
		end, err := part.ListOffset(context.Background(), replica.TimeLatest, replica.ReadUncommitted, replica.NoReplica, replica.NoEpoch)
		if err != nil || end.Offset < int64(len(archived)) {
			s.t.Errorf("%v are archived, and %d letters are committed: %v", archived, end.Offset, err)
		}
		return nil, true
	}
	return func(offsets ...int64) {
		s.t.Helper()
		s.state.mu.Lock()
		defer s.state.mu.Unlock()
		if got := slices.Sorted(maps.Keys(archived)); !slices.Equal(got, offsets) {
			s.t.Errorf("%v went to the dead-letter topic before they were archived, expected %v", got, offsets)
		}
	}
}

func TestDeadLetterTopicsAreCreatedWhereThatIsAllowed(t *testing.T) {
	s := startShares(t, 1, map[string]string{"errors.deadletterqueue.auto.create.topics.enable": "true"})
	s.configure("g", "errors.deadletterqueue.topic.name", "dlq.new")
	s.produce(0, 1)
	ann := s.member("ann")
	expect(t, "ann's", ann.get(), "0-0")
	expect(t, "rejected", ann.ack(0, 0, share.Reject), int16(0))
	s.letters("dlq.new", 1)
	topics, err := kadm.NewClient(s.client(t)).DescribeTopicConfigs(context.Background(), "dlq.new")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range topics[0].Configs {
		if c.Key == letterEnable && c.MaybeValue() != "true" {
			t.Errorf("%s is %s", c.Key, c.MaybeValue())
		}
	}
}

// TestRecordsAreArchivedWithoutADeadLetterTopicThatTakesThem: as in Kafka, settings that cannot work do not stop the group.
func TestRecordsAreArchivedWithoutADeadLetterTopicThatTakesThem(t *testing.T) {
	s := startShares(t, 1, nil)
	dial(t, s.addr).create(newTopic("dlq.closed", 1))
	s.produce(0, 3)
	ann := s.member("ann")
	for i, name := range []string{"dlq.closed", "dlq.absent", "other"} {
		s.configure("g", "errors.deadletterqueue.topic.name", name)
		ann.max, ann.mode = 1, 1
		expect(t, "one", ann.get(), fmt.Sprintf("%d-%d", i, i))
		expect(t, "rejected", ann.ack(int64(i), int64(i), share.Reject), int16(0))
		eventually(t, "archived all the same", func() bool { return s.state.start(shareKey("g", s.id, 0)) == int64(i)+1 })
	}
	if st := s.Stats().Shares; st.DeadLettersFailed != 3 || st.DeadLetterRecords != 0 {
		t.Errorf("%+v", st)
	}
}
