package broker

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/replica"
)

// faultyPart is a partition whose reads may fail, and which may lose its leadership.
type faultyPart struct {
	Partition
	mu      sync.Mutex            // guards the following
	read    func(reads int) error // of the reads so far
	reads   int
	most    int // bytes of one
	deposed bool
}

func (f *faultyPart) Read(r replica.ReadRequest) (replica.ReadResult, error) {
	f.mu.Lock()
	f.reads++
	var err error
	if f.read != nil {
		err, r.MaxBytes = f.read(f.reads), min(r.MaxBytes, f.most)
	}
	f.mu.Unlock()
	if err != nil {
		return replica.ReadResult{}, err
	}
	return f.Partition.Read(r)
}

func (f *faultyPart) Epoch() (int32, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deposed {
		return 0, replica.ErrNotLeader
	}
	return f.Partition.Epoch()
}

// fail has reads from now on fail as read says, and read so many bytes at most.
func (f *faultyPart) fail(most int, read func(reads int) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.read, f.reads, f.most = read, 0, most
}

// faulty is the share-partition of group "g" on partition 0, loaded, with faults to come.
func (s *shareStack) faulty() (*sharePart, *faultyPart) {
	s.t.Helper()
	part, err := s.deps.Partitions.PartitionByID(s.id, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	f := &faultyPart{Partition: part}
	s.shares.mu.Lock()
	s.shares.refs[shareKey("g", s.id, 0)]++ // as a session's
	s.shares.mu.Unlock()
	sp := s.shares.get("g", f)
	eventually(s.t, "it is loaded", func() bool { return sp.ready() == nil })
	return sp, f
}

// take has a member acquire what there is, and gives what it was told.
func (s *shareStack) take(sp *sharePart, f *faultyPart, member string) *shareTarget {
	op := &shareFetchOp{group: "g", member: member, records: 10_000, bytes: 8 << 20, batchSize: 10_000, first: true, wake: make(chan struct{}, 1)}
	t := &shareTarget{key: sp.key, part: f, sp: sp, fetch: true, watch: -1, leader: noLeader}
	sp.poll(op.wake)
	defer sp.unpoll(op.wake)
	s.acquireShare(context.Background(), op, t)
	if t.records != nil {
		t.records.Release()
	}
	return t
}

// reject has a member reject everything that it was given.
func (s *shareStack) reject(sp *sharePart, t *shareTarget, member string) {
	s.t.Helper()
	var acks []share.Ack
	for _, h := range t.held {
		acks = append(acks, share.Ack{First: h.First, Last: h.Last, Types: []int8{share.Reject}})
	}
	done, err := sp.acknowledge(member, acks)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := <-done; err != nil {
		s.t.Fatal(err)
	}
}

// TestAnErrorBehindRecordsWaitsForTheNextFetch: clients drop the records of a partition that has an error.
func TestAnErrorBehindRecordsWaitsForTheNextFetch(t *testing.T) {
	s := startShares(t, 1, nil)
	s.pad = 900
	s.produce(0, 600) // more than one step reads
	s.produce(0, 600)
	sp, f := s.faulty()
	f.fail(1<<20, func(reads int) error {
		if reads > 1 {
			return replica.ErrOffline
		}
		return nil
	})
	first := s.take(sp, f, "ann")
	expect(t, "the records", len(first.held), 1)
	expect(t, "the error with them", first.err, error(nil))
	second := s.take(sp, f, "ann")
	expect(t, "no more records", len(second.held), 0)
	expect(t, "the error", second.err, error(replica.ErrOffline))
}

// TestDeadLettersThatAreDurableAreNotProducedAgain: every other read of what is to be copied fails.
func TestDeadLettersThatAreDurableAreNotProducedAgain(t *testing.T) {
	s := startShares(t, 1, nil)
	dlq := dial(t, s.addr).create(newTopic("dlq.events", 1, letterEnable, "true"))
	s.configure("g", "errors.deadletterqueue.topic.name", "dlq.events")
	s.configure("g", "errors.deadletterqueue.copy.record.enable", "true")
	for range 3 {
		s.produce(0, 100)
	}
	sp, f := s.faulty()
	got := s.take(sp, f, "ann")
	expect(t, "one run", fmt.Sprint(got.held), "[{0 299 1}]")
	f.fail(1, func(reads int) error {
		if reads%2 == 0 {
			return replica.ErrRemoteUnavailable
		}
		return nil
	})
	s.reject(sp, got, "ann")
	eventually(t, "all are archived", func() bool { return s.state.start(sp.key) == 300 })
	p, err := s.deps.Partitions.PartitionByID(dlq, 0)
	if err != nil {
		t.Fatal(err)
	}
	end, err := p.ListOffset(context.Background(), replica.TimeLatest, replica.ReadUncommitted, replica.NoReplica, replica.NoEpoch)
	if err != nil || end.Offset != 300 {
		t.Fatalf("%d letters for 300 records: %v", end.Offset, err)
	}
	if st := s.Stats().Shares; st.DeadLetterRecords != 300 || st.DeadLettersFailed < 2 {
		t.Errorf("%+v", st)
	}
}

// TestDeadLettersThatAreTooLargeGoWithoutTheirCopies: the topic takes less than what was produced.
func TestDeadLettersThatAreTooLargeGoWithoutTheirCopies(t *testing.T) {
	s := startShares(t, 1, nil)
	dial(t, s.addr).create(newTopic("dlq.events", 1, letterEnable, "true", "max.message.bytes", "1000"))
	s.configure("g", "errors.deadletterqueue.topic.name", "dlq.events")
	s.configure("g", "errors.deadletterqueue.copy.record.enable", "true")
	for _, pad := range []int{1, 5000, 2} {
		s.pad = pad
		s.produce(0, 2)
	}
	ann := s.member("ann")
	expect(t, "ann's", ann.get(), "0-5")
	expect(t, "rejected", ann.ack(0, 5, share.Reject), int16(0))
	for i, text := range s.letters("dlq.events", 6) {
		_, value, _ := strings.Cut(text, "=")
		value, _, _ = strings.Cut(value, " "+letterTopic)
		want := fmt.Sprintf("%q", fmt.Sprintf("record %d ", i))
		if i == 2 || i == 3 {
			want = `""`
		} else if i > 3 {
			want = fmt.Sprintf("%q", fmt.Sprintf("record %d  ", i))
		}
		expect(t, fmt.Sprintf("letter %d", i), value, want)
		if !strings.Contains(text, fmt.Sprintf("%s=%d ", letterOffset, i)) {
			t.Errorf("letter %d is %s", i, text)
		}
	}
	eventually(t, "archived", func() bool { return s.state.start(shareKey("g", s.id, 0)) == 6 })

	s.configure("g", "errors.deadletterqueue.topic.name", "dlq.tiny") // takes no letter at all
	dial(t, s.addr).create(newTopic("dlq.tiny", 1, letterEnable, "true", "max.message.bytes", "70"))
	s.produce(0, 2)
	expect(t, "ann's", ann.get(), "6-7")
	expect(t, "rejected", ann.ack(6, 7, share.Reject), int16(0))
	eventually(t, "archived without", func() bool { return s.state.start(shareKey("g", s.id, 0)) == 8 })
}

// TestALeaderThatIsNoLongerOneGivesUpItsDeadLetters: nobody asks for the share-partition any more, so nobody else would notice.
func TestALeaderThatIsNoLongerOneGivesUpItsDeadLetters(t *testing.T) {
	s := startShares(t, 1, nil)
	dial(t, s.addr).create(newTopic("dlq.events", 1, letterEnable, "true"))
	s.configure("g", "errors.deadletterqueue.topic.name", "dlq.events")
	s.configure("g", "errors.deadletterqueue.copy.record.enable", "true")
	s.produce(0, 3)
	sp, f := s.faulty()
	got := s.take(sp, f, "ann")
	f.fail(1<<20, func(int) error { return replica.ErrRemoteUnavailable })
	s.reject(sp, got, "ann")
	eventually(t, "letters fail", func() bool { return s.Stats().Shares.DeadLettersFailed > 0 })
	f.mu.Lock()
	f.deposed = true
	f.mu.Unlock()
	eventually(t, "it is dropped", func() bool { return s.Stats().Shares.Parts == 0 })
	key := coordinator.ShareKey{Group: "g", Topic: s.id}
	expect(t, "nothing is archived", s.state.start(key), int64(0))
}
