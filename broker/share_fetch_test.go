package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// shareStack is a node with one topic, and a share group "g" that reads it from its beginning.
type shareStack struct {
	*stack
	t      *testing.T
	id     topic.ID
	record int // produced so far
	pad    int // bytes added to each value
}

func startShares(t *testing.T, partitions int32, settings map[string]string, configs ...string) *shareStack {
	t.Helper()
	s := &shareStack{stack: startStack(t, settings), t: t}
	s.id = dial(t, s.addr).create(newTopic("events", partitions, configs...))
	s.configure("g", "share.auto.offset.reset", "earliest")
	s.begin("g")
	return s
}

// begin initializes a group's state, as the group coordinator does when a member subscribes.
func (s *shareStack) begin(group string) {
	for i := range int32(16) {
		s.state.Initialize(context.Background(), []coordinator.ShareInitialize{{ShareKey: shareKey(group, s.id, i), Start: -1}})
	}
}

func (s *shareStack) configure(group, name, value string) {
	s.t.Helper()
	q := kmsg.NewPtrIncrementalAlterConfigsRequest()
	q.SetVersion(1)
	x := kmsg.NewIncrementalAlterConfigsRequestResource()
	x.ResourceType, x.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = name, &value
	x.Configs = append(x.Configs, c)
	q.Resources = append(q.Resources, x)
	if r := dial(s.t, s.addr).ask(q).(*kmsg.IncrementalAlterConfigsResponse).Resources[0]; r.ErrorCode != 0 {
		s.t.Fatalf("%s=%s: %d %v", name, value, r.ErrorCode, *r.ErrorMessage)
	}
}

// produce writes one batch of n records to a partition.
func (s *shareStack) produce(partition int32, n int) []byte {
	s.t.Helper()
	b := batch.NewBuilder(batch.Options{})
	for range n {
		if err := b.Append(time.Now().UnixMilli(), nil, fmt.Appendf(nil, "record %d%*s", s.record, s.pad, ""), nil); err != nil {
			s.t.Fatal(err)
		}
		s.record++
	}
	r := dial(s.t, s.addr).ask(produceRequest(13, -1, "", s.id, map[int32][]byte{partition: b.Bytes()})).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if r.ErrorCode != 0 {
		s.t.Fatalf("produce: %d", r.ErrorCode)
	}
	return b.Bytes()
}

// shareMember is one member as its connection sees it.
type shareMember struct {
	*client
	s     *shareStack
	group string
	name  string
	epoch int32
	wait  int32
	max   int32
	size  int32
	mode  int8
}

func (s *shareStack) member(name string) *shareMember {
	return &shareMember{client: dial(s.t, s.addr), s: s, group: "g", name: name, max: 500, size: 500}
}

func (m *shareMember) fetchRequest(partitions ...int32) *kmsg.ShareFetchRequest {
	q := kmsg.NewPtrShareFetchRequest()
	q.SetVersion(2)
	q.GroupID, q.MemberID, q.ShareSessionEpoch = &m.group, &m.name, m.epoch
	q.MaxWaitMillis, q.MinBytes, q.MaxBytes, q.MaxRecords, q.BatchSize, q.ShareAcquireMode = m.wait, 1, 1<<20, m.max, m.size, m.mode
	if len(partitions) > 0 {
		x := kmsg.NewShareFetchRequestTopic()
		x.TopicID = m.s.id
		for _, i := range partitions {
			p := kmsg.NewShareFetchRequestTopicPartition()
			p.Partition = i
			x.Partitions = append(x.Partitions, p)
		}
		q.Topics = append(q.Topics, x)
	}
	return q
}

// fetch asks once and moves the session's epoch on.
func (m *shareMember) fetch(partitions ...int32) *kmsg.ShareFetchResponse {
	m.t.Helper()
	return m.fetched(m.fetchRequest(partitions...))
}

func (m *shareMember) fetched(q *kmsg.ShareFetchRequest) *kmsg.ShareFetchResponse {
	m.t.Helper()
	r := m.ask(q).(*kmsg.ShareFetchResponse)
	if r.ErrorCode == 0 {
		m.epoch = nextEpoch(m.epoch)
	}
	return r
}

// get fetches from partition 0 until there is something, and describes what the member holds then.
func (m *shareMember) get() string {
	m.t.Helper()
	m.wait = 10_000
	var r *kmsg.ShareFetchResponse
	if m.epoch == 0 {
		r = m.fetch(0)
	} else {
		r = m.fetch()
	}
	m.wait = 0
	return heldIn(r)
}

// heldIn describes an answer: acquired ranges by partition, errors, and whether the records are in the batches.
func heldIn(r *kmsg.ShareFetchResponse) string {
	if r.ErrorCode != 0 {
		return fmt.Sprintf("error %d", r.ErrorCode)
	}
	out := ""
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 || p.AcknowledgeErrorCode != 0 {
				out += fmt.Sprintf(" p%d:error %d/%d", p.Partition, p.ErrorCode, p.AcknowledgeErrorCode)
			}
			var offsets []int64
			for b := p.Records; len(b) > 0; {
				one, rest, err := batch.Next(b)
				if err != nil {
					return err.Error()
				}
				for rec, err := range one.Records(batch.Limits{}) {
					if err != nil {
						return err.Error()
					}
					offsets = append(offsets, rec.Offset)
				}
				b = rest
			}
			for _, a := range p.AcquiredRecords {
				out += fmt.Sprintf(" %d-%d", a.FirstOffset, a.LastOffset)
				if a.DeliveryCount != 1 {
					out += fmt.Sprintf("x%d", a.DeliveryCount)
				}
				if !slices.Contains(offsets, a.FirstOffset) || !slices.Contains(offsets, a.LastOffset) {
					out += "(not there)"
				}
			}
		}
	}
	if out == "" {
		return "nothing"
	}
	return out[1:]
}

func (m *shareMember) ackRequest(partition int32, acks ...share.Ack) *kmsg.ShareAcknowledgeRequest {
	q := kmsg.NewPtrShareAcknowledgeRequest()
	q.SetVersion(2)
	q.GroupID, q.MemberID, q.ShareSessionEpoch = &m.group, &m.name, m.epoch
	for _, a := range acks {
		q.IsRenewAck = q.IsRenewAck || slices.Contains(a.Types, share.Renew)
	}
	if len(acks) > 0 {
		x := kmsg.NewShareAcknowledgeRequestTopic()
		x.TopicID = m.s.id
		p := kmsg.NewShareAcknowledgeRequestTopicPartition()
		p.Partition = partition
		for _, a := range acks {
			b := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
			b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = a.First, a.Last, a.Types
			p.AcknowledgementBatches = append(p.AcknowledgementBatches, b)
		}
		x.Partitions = append(x.Partitions, p)
		q.Topics = append(q.Topics, x)
	}
	return q
}

// ack acknowledges offsets of partition 0 and gives the error code.
func (m *shareMember) ack(first, last int64, types ...int8) int16 {
	m.t.Helper()
	r := m.ask(m.ackRequest(0, share.Ack{First: first, Last: last, Types: types})).(*kmsg.ShareAcknowledgeResponse)
	if r.ErrorCode != 0 {
		return r.ErrorCode
	}
	m.epoch = nextEpoch(m.epoch)
	return r.Topics[0].Partitions[0].ErrorCode
}

// leave ends the session.
func (m *shareMember) leave() int16 {
	m.t.Helper()
	m.epoch = -1
	return m.ask(m.ackRequest(0)).(*kmsg.ShareAcknowledgeResponse).ErrorCode
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func TestShareMembersGetDifferentRecordsAndTheStartFollowsWhatIsDone(t *testing.T) {
	s := startShares(t, 1, nil)
	first, second := s.produce(0, 10), s.produce(0, 5)
	ann, bob := s.member("ann"), s.member("bob")
	ann.max, ann.wait = 10, 10_000
	r := ann.fetch(0)
	expect(t, "ann's records", heldIn(r), "0-9")
	if b := r.Topics[0].Partitions[0].Records; !bytes.Equal(b[61:], first[61:]) {
		t.Fatal("the batch is not what was produced")
	}
	expect(t, "the lock", r.AcquisitionLockTimeoutMillis, int32(30_000))
	bob.wait = 10_000
	r = bob.fetch(0)
	expect(t, "bob's records", heldIn(r), "10-14")
	if b := r.Topics[0].Partitions[0].Records; !bytes.Equal(b[61:], second[61:]) {
		t.Fatal("the batch is not what was produced")
	}
	expect(t, "ann accepts", ann.ack(0, 9, share.Accept), int16(0))
	expect(t, "the start as stored", s.state.start(shareKey("g", s.id, 0)), int64(10))
	expect(t, "bob acknowledges each", bob.ack(10, 14, 1, 2, 1, 3, 0), int16(0))
	expect(t, "the start as stored", s.state.start(shareKey("g", s.id, 0)), int64(11))
	expect(t, "ann gets what came back", ann.get(), "11-11x2")
	expect(t, "again what is done", ann.ack(0, 9, share.Accept), int16(0))
	expect(t, "what another had", bob.ack(11, 11, share.Accept), codeInvalidRecordState)
	expect(t, "what nobody had", ann.ack(11, 99, share.Accept), codeInvalidRequest)
	expect(t, "the wrong way round", ann.ack(11, 10, share.Accept), codeInvalidRequest)
	expect(t, "no such type", ann.ack(11, 11, 9), codeInvalidRequest)
	expect(t, "ann accepts", ann.ack(11, 11, share.Accept), int16(0))
	expect(t, "the start as stored", s.state.start(shareKey("g", s.id, 0)), int64(15))
	eventually(t, "all of it is one state", func() bool { return s.Stats().Shares.Parts == 1 })
}

func TestShareSessionEpochs(t *testing.T) {
	s := startShares(t, 2, map[string]string{"group.share.max.share.sessions": "2"})
	s.produce(0, 3)
	ann := s.member("ann")
	expect(t, "an acknowledgement without a session", ann.ack(0, 0, 1), codeInvalidShareSessionEpoch)
	ann.epoch = 1
	expect(t, "the same in the middle", ann.ack(0, 0, 1), codeShareSessionNotFound)
	expect(t, "a fetch in the middle", heldIn(ann.fetch(0)), fmt.Sprintf("error %d", codeShareSessionNotFound))
	ann.epoch = 0
	expect(t, "a new session", ann.get(), "0-2")
	ann.epoch = 5
	expect(t, "another epoch", heldIn(ann.fetch()), fmt.Sprintf("error %d", codeInvalidShareSessionEpoch))
	expect(t, "the same for acknowledgements", ann.ack(0, 0, 1), codeInvalidShareSessionEpoch)
	ann.epoch = 1
	q := ann.fetchRequest(0)
	b := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
	b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = 0, 2, []int8{1}
	q.Topics[0].Partitions[0].AcknowledgementBatches = append(q.Topics[0].Partitions[0].AcknowledgementBatches, b)
	r := ann.fetched(q)
	expect(t, "acknowledging with a fetch", heldIn(r), "nothing")
	expect(t, "the partition it acknowledges is answered", len(r.Topics), 1)
	ann.epoch = 0
	q.ShareSessionEpoch = 0
	expect(t, "acknowledging with the first", heldIn(ann.fetched(q)), fmt.Sprintf("error %d", codeInvalidRequest))
	q = ann.fetchRequest(0)
	q.GroupID = nil
	expect(t, "no group", heldIn(ann.fetched(q)), fmt.Sprintf("error %d", codeInvalidRequest))

	bob, eve := s.member("bob"), s.member("eve")
	expect(t, "bob begins", heldIn(bob.fetch(0, 1)), "nothing")
	expect(t, "there is room for two", heldIn(eve.fetch(0)), fmt.Sprintf("error %d", codeShareSessionLimitReached))
	expect(t, "bob leaves", bob.leave(), int16(0))
	expect(t, "bob leaves again", bob.leave(), codeShareSessionNotFound)
	expect(t, "now there is", heldIn(eve.fetch(0)), "nothing")
	q = eve.fetchRequest()
	forget := kmsg.NewShareFetchRequestForgottenTopicsData()
	forget.TopicID, forget.Partitions = s.id, []int32{0}
	q.ForgottenTopicsData = append(q.ForgottenTopicsData, forget)
	eve.fetched(q)
	s.produce(0, 1)
	expect(t, "what it has forgotten", heldIn(eve.fetch()), "nothing")
	expect(t, "an unknown partition", heldIn(eve.fetch(7)), fmt.Sprintf("p7:error %d/0", codeUnknownTopicOrPartition))
}

func TestShareFetchWaitsForAppendsReleasesAndExpiry(t *testing.T) {
	s := startShares(t, 1, map[string]string{"group.share.min.record.lock.duration.ms": "1000"})
	ann, bob := s.member("ann"), s.member("bob")
	ann.fetch(0)
	bob.fetch(0)
	wait := func(m *shareMember) (await func() string) {
		q := m.fetchRequest()
		q.MaxWaitMillis = 120_000 // beyond all that a busy machine may take: only what it waits for answers it with records
		corr := m.send(q)
		return func() string {
			r := m.response(q, corr).(*kmsg.ShareFetchResponse)
			m.epoch++
			return heldIn(r)
		}
	}
	got := wait(ann)
	s.produce(0, 2)
	expect(t, "woken by an append", got(), "0-1")
	got = wait(bob)
	expect(t, "ann releases", ann.ack(0, 1, share.Release), int16(0))
	expect(t, "woken by a release", got(), "0-1x2")
	expect(t, "bob accepts", bob.ack(0, 1, share.Accept), int16(0))

	s.configure("g", "share.record.lock.duration.ms", "1000")
	got = wait(ann)
	s.produce(0, 2)
	expect(t, "ann's, for a second", got(), "2-3")
	s.configure("g", "share.record.lock.duration.ms", "30000") // of bob's: that of ann's stays
	got = wait(bob)
	expect(t, "woken by a lock that runs out", got(), "2-3x2")
	expect(t, "too late", ann.ack(2, 3, share.Accept), codeInvalidRecordState)
	if n := s.Stats().Shares.Expired; n != 2 {
		t.Errorf("%d locks ran out", n)
	}
	got = wait(ann)
	bob.nc.Close()
	expect(t, "woken by a connection's end", got(), "2-3x3")
}

func TestShareRenewalsHoldRecords(t *testing.T) {
	s := startShares(t, 1, map[string]string{"group.share.min.record.lock.duration.ms": "1000"})
	s.configure("g", "share.record.lock.duration.ms", "4000")
	s.produce(0, 2)
	ann := s.member("ann")
	expect(t, "ann's", ann.get(), "0-1")
	renew := func() int16 {
		q := ann.fetchRequest(0)
		q.IsRenewAck, q.MaxBytes, q.MinBytes, q.MaxRecords, q.MaxWaitMillis = true, 0, 0, 0, 0
		b := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
		b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = 0, 1, []int8{share.Renew}
		q.Topics[0].Partitions[0].AcknowledgementBatches = append(q.Topics[0].Partitions[0].AcknowledgementBatches, b)
		r := ann.fetched(q)
		expect(t, "renewing", r.ErrorCode, int16(0))
		return r.Topics[0].Partitions[0].AcknowledgeErrorCode
	}
	began := time.Now()
	eventually(t, "longer than a lock", func() bool {
		expect(t, "renewal", renew(), int16(0))
		return time.Since(began) > 5*time.Second
	})
	expect(t, "still its own", ann.ack(0, 1, share.Accept), int16(0))
	s.configure("g", "share.renew.acknowledge.enable", "false")
	s.produce(0, 2)
	expect(t, "more", ann.get(), "2-3")
	expect(t, "where renewals are off", ann.ack(2, 3, share.Renew), codeInvalidRecordState)
	q := ann.fetchRequest()
	q.IsRenewAck = true
	expect(t, "a renewal that fetches", heldIn(ann.fetched(q)), fmt.Sprintf("error %d", codeInvalidRequest))
}

func TestAcknowledgementsAreAnsweredWhenTheyAreWritten(t *testing.T) {
	s := startShares(t, 1, nil)
	s.produce(0, 4)
	ann, bob := s.member("ann"), s.member("bob")
	expect(t, "ann's", ann.get(), "0-3")
	hold := make(chan struct{})
	s.state.mu.Lock()
	s.state.hold = hold
	s.state.mu.Unlock()
	q := ann.ackRequest(0, share.Ack{First: 0, Last: 1, Types: []int8{share.Accept}}, share.Ack{First: 2, Last: 3, Types: []int8{share.Release}})
	corr := ann.send(q)
	expect(t, "while it is being written nobody gets them", heldIn(bob.fetch(0)), "nothing")
	close(hold)
	r := ann.response(q, corr).(*kmsg.ShareAcknowledgeResponse)
	expect(t, "the answer", r.Topics[0].Partitions[0].ErrorCode, int16(0))
	ann.epoch++
	expect(t, "bob gets what was released", bob.get(), "2-3x2")

	s.state.mu.Lock()
	failed := false
	s.state.fail = func(coordinator.ShareWrite) (error, bool) {
		if failed {
			return nil, true
		}
		failed = true
		return coordinator.ErrNotAvailable, false
	}
	s.state.mu.Unlock()
	expect(t, "a write that fails", bob.ack(2, 3, share.Accept), codeCoordinatorNotAvailable)
	expect(t, "said again", bob.ack(2, 3, share.Accept), int16(0))
	expect(t, "the start as stored", s.state.start(shareKey("g", s.id, 0)), int64(4))
}

func TestShareStateThatIsInOtherHandsIsLoadedAnew(t *testing.T) {
	s := startShares(t, 1, nil)
	s.produce(0, 10)
	ann := s.member("ann")
	expect(t, "ann's", ann.get(), "0-9")
	key := shareKey("g", s.id, 0)
	eventually(t, "the start is stored: it is not what meets the new state", func() bool { return s.state.start(key) == 0 })
	s.state.Initialize(context.Background(), []coordinator.ShareInitialize{{ShareKey: key, StateEpoch: 1, Start: 6}}) // offsets were reset
	expect(t, "under the old state", ann.ack(0, 9, share.Accept), codeNotLeaderOrFollower)
	expect(t, "under the new one", ann.get(), "6-9")
	expect(t, "accepted", ann.ack(6, 9, share.Accept), int16(0))
	expect(t, "the start as stored", s.state.start(key), int64(10))
	s.produce(0, 1)
	expect(t, "more", ann.get(), "10-10")
	s.state.Delete(context.Background(), []coordinator.ShareKey{key})
	expect(t, "the group was deleted", ann.ack(10, 10, share.Accept), codeUnknownTopicOrPartition)
	ann.wait = 10_000
	expect(t, "it says so to fetches", heldIn(ann.fetch(0)), fmt.Sprintf("p0:error %d/0", codeUnknownTopicOrPartition))
}

func TestShareGroupsBeginWhereTheySay(t *testing.T) {
	s := startShares(t, 1, nil)
	s.produce(0, 5)
	for group, reset := range map[string]string{"early": "earliest", "late": "latest", "young": "by_duration:PT1H", "none": "by_duration:PT0.000001S"} {
		s.configure(group, "share.auto.offset.reset", reset)
		s.begin(group)
		m := s.member("m")
		m.group = group
		want, start := "0-4", int64(0)
		if group == "late" || group == "none" {
			want, start = "nothing", 5
		}
		m.fetch(0)
		key := shareKey(group, s.id, 0)
		eventually(t, group+" begins, and that is stored", func() bool { return s.state.start(key) == start })
		if want != "nothing" {
			m.wait = 10_000
		}
		if m.epoch = 0; heldIn(m.fetch(0)) != want {
			t.Errorf("%s does not get %s", group, want)
		}
	}
}

func TestLogStartAndTopicDeletionMoveShareGroups(t *testing.T) {
	s := startShares(t, 1, nil)
	s.produce(0, 10)
	ann := s.member("ann")
	ann.max, ann.mode = 4, 1
	expect(t, "no more than four", ann.get(), "0-3")
	p, err := s.deps.Partitions.PartitionByID(s.id, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.DeleteRecords(context.Background(), 7); err != nil {
		t.Fatal(err)
	}
	expect(t, "from the log start on", ann.get(), "7-9")
	expect(t, "what retention took", ann.ack(0, 3, share.Accept), int16(0))
	expect(t, "and the rest", ann.ack(7, 9, share.Accept), int16(0))
	expect(t, "the start as stored", s.state.start(shareKey("g", s.id, 0)), int64(10))
	q := kmsg.NewPtrDeleteTopicsRequest()
	q.SetVersion(6)
	x := kmsg.NewDeleteTopicsRequestTopic()
	x.TopicID = s.id
	q.Topics, q.TimeoutMillis = append(q.Topics, x), 10_000
	dial(t, s.addr).ask(q)
	eventually(t, "the topic is gone", func() bool {
		return heldIn(ann.fetch(0)) == fmt.Sprintf("p0:error %d/0", codeUnknownTopicID)
	})
}

// TestShareFetchWaitsForItsLeastBytes: one batch is not enough, two are; what there is goes out when the time is up.
func TestShareFetchWaitsForItsLeastBytes(t *testing.T) {
	s := startShares(t, 2, nil)
	s.pad = 1000
	size := len(s.produce(0, 2)) + 100 // of a batch, at most
	ann := s.member("ann")
	ask := func(least int, wait time.Duration, partitions ...int32) (await func() string) {
		q := ann.fetchRequest(partitions...)
		q.MinBytes, q.MaxWaitMillis = int32(least), int32(wait.Milliseconds())
		corr := ann.send(q)
		return func() string {
			ann.epoch = nextEpoch(ann.epoch)
			return heldIn(ann.response(q, corr).(*kmsg.ShareFetchResponse))
		}
	}
	const long = 10 * time.Minute
	got := ask(size, long, 0, 1)
	s.produce(0, 2)
	expect(t, "two batches", got(), "0-3")
	got = ask(size, long)
	s.produce(0, 2)
	s.produce(1, 2)
	expect(t, "two batches of two partitions", got(), "4-5 0-1")
	s.produce(0, 2)
	began := time.Now()
	expect(t, "what there is when the time is up", ask(size, time.Second)(), "6-7")
	if d := time.Since(began); d < time.Second {
		t.Errorf("it was answered after %v", d)
	}
	bob := s.member("bob")
	s.produce(0, 2)
	expect(t, "bob gets a batch", bob.get(), "8-9")
	got = ask(size, long)
	s.produce(0, 2)
	expect(t, "bob gives it back", bob.leave(), int16(0))
	expect(t, "one that came back, and a new one", got(), "8-9x2 10-11")
	q := ann.fetchRequest()
	q.MinBytes, q.MaxBytes, q.MaxWaitMillis = 1<<30, int32(size-100), int32(long.Milliseconds())
	s.produce(0, 2)
	expect(t, "no more is waited for than may be answered", heldIn(ann.fetched(q)), "12-13")
}

// A fetch that wants no records has nothing to look for: it waits for its time to be up, and does not look again and again.
func TestShareFetchOfNoRecordsRests(t *testing.T) {
	s := startShares(t, 1, nil)
	s.produce(0, 10)
	looks := &countedWaits{Partitions: s.deps.Partitions}
	s.Server.deps.Partitions = looks
	ann := s.member("ann")
	for _, records := range []int32{0, -1} {
		q := ann.fetchRequest(0)
		if ann.epoch > 0 {
			q.Topics = nil
		}
		q.MaxRecords, q.MinBytes, q.MaxWaitMillis = records, 2, 1000
		expect(t, "no records", heldIn(ann.fetched(q)), "nothing")
	}
	if n := looks.n.Load(); n > 2*(refetchesMax+2) {
		t.Errorf("two fetches have waited %d times", n)
	}
}

// countedWaits counts how often somebody waits for records.
type countedWaits struct {
	Partitions
	n atomic.Int64
}

func (c *countedWaits) NewWaiter(least int) Waiter {
	c.n.Add(1)
	return c.Partitions.NewWaiter(least)
}

// A quota lets a member wait for no longer than it may hold its records.
func TestShareFetchesWaitLessThanTheirLocksLast(t *testing.T) {
	s := startShares(t, 1, map[string]string{"group.share.min.record.lock.duration.ms": "1000"})
	s.configure("g", "share.record.lock.duration.ms", "3000")
	s.pad = 1000
	for range 20 {
		s.produce(0, 2)
	}
	ann := s.member("ann")
	s.quotas.table.Store(newQuotaTable([]meta.Quota{quotaOf("", "-", meta.ConsumerByteRate, 10)}))
	ann.wait = 60_000
	r := ann.fetch(0)
	expect(t, "no more than the quota bears at once, in whole batches", heldIn(r), "0-1")
	if r.ThrottleMillis <= 0 || r.ThrottleMillis > 1000 {
		t.Errorf("records are locked for 3 s, and the member waits for %d ms", r.ThrottleMillis)
	}
	expect(t, "they are the member's still", ann.ack(0, 1, share.Accept), int16(0))
}

// TestAShareGroupIsNotTakenBackOnAGuess: the log's end may be unknown for a while.
func TestAShareGroupIsNotTakenBackOnAGuess(t *testing.T) {
	s := startShares(t, 1, nil)
	part, err := s.deps.Partitions.PartitionByID(s.id, 0)
	if err != nil {
		t.Fatal(err)
	}
	key := shareKey("g", s.id, 0)
	s.state.Initialize(t.Context(), []coordinator.ShareInitialize{{ShareKey: key, StateEpoch: 3, Start: 7}})
	p := &sharePart{srv: s.Server, key: key, part: endless{part}}
	if _, _, _, err := p.loaded(t.Context()); !errors.Is(err, replica.ErrOffsetNotAvailable) {
		t.Errorf("%v", err)
	}
	expect(t, "the start as stored", s.state.start(key), int64(7))
}

// endless is a partition whose log's damage hides where it ends.
type endless struct{ Partition }

func (endless) EndOffsetForEpoch(_, _ int32) (int32, int64, error) {
	return replica.NoEpoch, replica.NoOffset, nil
}

// TestAShareGroupIsTakenBackToTheEndOfAShorterLog: a leader that was elected uncleanly has lost records that the group was done
// with. Those that get their offsets are delivered all the same.
func TestAShareGroupIsTakenBackToTheEndOfAShorterLog(t *testing.T) {
	s := startShares(t, 2, nil)
	for i := range int32(2) {
		s.produce(i, 10)
	}
	ctx := context.Background()
	above, within := shareKey("g", s.id, 0), shareKey("g", s.id, 1)
	s.state.Initialize(ctx, []coordinator.ShareInitialize{{ShareKey: above, StateEpoch: 3, Start: 50}, {ShareKey: within, StateEpoch: 3, Start: 5}})
	s.state.Write(ctx, []coordinator.ShareWrite{{
		ShareKey: within, StateEpoch: 3, Start: 5, Batches: []coordinator.ShareBatch{{First: 8, Last: 20, State: coordinator.ShareDelivery(share.Acknowledged), DeliveryCount: 1}},
	}})
	ann := s.member("ann")
	ann.wait = 60_000
	expect(t, "what is left of the log", heldIn(ann.fetch(0, 1)), "5-7")
	expect(t, "the start as stored", s.state.start(above), int64(10))
	expect(t, "the start as stored", s.state.start(within), int64(5))
	s.produce(0, 3)
	expect(t, "new records at old offsets", heldIn(ann.fetch()), "10-12")
	s.produce(1, 3)
	expect(t, "new records at old offsets", heldIn(ann.fetch()), "10-12")
	if r := s.state.Read(ctx, []coordinator.ShareRead{{ShareKey: within}})[0]; r.StateEpoch != 3 {
		t.Errorf("the state epoch is %d", r.StateEpoch)
	}
}

func TestReadCommittedShareGroupsNeverGetAbortedRecords(t *testing.T) {
	s := startShares(t, 1, nil)
	s.configure("g", "share.isolation.level", "read_committed")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := s.client(t, kgo.TransactionalID("t"), kgo.DefaultProduceTopic("events"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	want := map[string]int{}
	for round := range 6 {
		name := fmt.Sprintf("round %d", round)
		commit := kgo.TransactionEndTry(round%3 != 1)
		produceTxn(t, ctx, c, name, 7, commit)
		if commit {
			for i := range 7 {
				want[fmt.Sprintf("%s-%d", name, i)]++
			}
		}
	}
	s.deliverExactly(t, want)
	eventually(t, "the start passes over the aborted ones and the markers", func() bool {
		return s.state.start(shareKey("g", s.id, 0)) == 6*8
	})
}

// deliverExactly has a member of the group accept records of partition 0 until it has met all that are wanted: none is delivered
// more often, and no other but what produce wrote.
func (s *shareStack) deliverExactly(t *testing.T, want map[string]int) {
	t.Helper()
	ann := s.member("ann")
	ann.wait = 10_000
	seen := map[string]int{}
	for len(seen) < len(want) {
		var r *kmsg.ShareFetchResponse
		if ann.epoch == 0 {
			r = ann.fetch(0)
		} else {
			r = ann.fetch()
		}
		for _, p := range r.Topics[0].Partitions {
			for _, a := range p.AcquiredRecords {
				for b := p.Records; len(b) > 0; {
					one, rest, err := batch.Next(b)
					if err != nil {
						t.Fatal(err)
					}
					for rec, err := range one.Records(batch.Limits{}) {
						if err != nil {
							t.Fatal(err)
						}
						if !one.Control() && rec.Offset >= a.FirstOffset && rec.Offset <= a.LastOffset && !bytes.HasPrefix(rec.Value, []byte("record ")) {
							seen[string(rec.Value)]++
						}
					}
					b = rest
				}
				expect(t, "accepted", ann.ack(a.FirstOffset, a.LastOffset, share.Accept), int16(0))
			}
		}
	}
	for v, n := range seen {
		if want[v] != n {
			t.Errorf("%.20s was delivered %d times", v, n)
		}
	}
}

func TestRecordsAreArchivedAtTheDeliveryLimit(t *testing.T) {
	s := startShares(t, 1, nil)
	s.configure("g", "share.delivery.count.limit", "2")
	s.produce(0, 2)
	ann := s.member("ann")
	expect(t, "first", ann.get(), "0-1")
	expect(t, "released", ann.ack(0, 1, share.Release), int16(0))
	expect(t, "second", ann.get(), "0-1x2")
	expect(t, "released", ann.ack(0, 1, share.Release), int16(0))
	expect(t, "the start as stored", s.state.start(shareKey("g", s.id, 0)), int64(2))
	expect(t, "no third", heldIn(ann.fetch()), "nothing")
	s.produce(0, 1)
	expect(t, "next", ann.get(), "2-2")
	expect(t, "leaving gives back", ann.leave(), int16(0))
	bob := s.member("bob")
	expect(t, "and that delivery counts", bob.get(), "2-2x2")
}

func TestShareErrorsHaveCodes(t *testing.T) {
	for err, want := range map[error]int16{
		share.ErrInvalidRecordState: codeInvalidRecordState, errShareSessionNotFound: codeShareSessionNotFound,
		coordinator.ErrFencedStateEpoch: codeFencedStateEpoch, errShareSessionsFull: codeShareSessionLimitReached,
		fmt.Errorf("%w: %w", errShareUnreached, errors.New("refused")):    codeCoordinatorNotAvailable,
		fmt.Errorf("%w: %w", errShareUnreached, context.DeadlineExceeded): codeCoordinatorNotAvailable,
		shareError(codeStorageError, nil):                                 codeUnknownServerError,
	} {
		if got := code(errors.Join(err)); got != want {
			t.Errorf("%v is %d", err, got)
		}
	}
}
