package broker

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

func produceRequest(version int16, acks int16, name string, id topic.ID, parts map[int32][]byte) *kmsg.ProduceRequest {
	q := kmsg.NewPtrProduceRequest()
	q.SetVersion(version)
	q.Acks, q.TimeoutMillis = acks, 5000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = name, id
	for i := int32(0); i < 16; i++ {
		if b, ok := parts[i]; ok {
			p := kmsg.NewProduceRequestTopicPartition()
			p.Partition, p.Records = i, b
			t.Partitions = append(t.Partitions, p)
		}
	}
	q.Topics = append(q.Topics, t)
	return q
}

func TestProduceAnswersEveryVersionAsKmsgWrites(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 2)
	s.parts.byName["events"][1].appendErr = &replicaRejected{}
	s.parts.byName["events"][1].recErrors = []batch.RecordError{{Index: 0, Message: "no key"}}
	for v := int16(3); v <= 13; v++ {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) {
			c := dial(t, s.addr)
			before := s.parts.byName["events"][0].end
			q := produceRequest(v, -1, "events", id, map[int32][]byte{0: oneBatch(t, "a", "b"), 1: oneBatch(t, "c")})
			resp := c.ask(q).(*kmsg.ProduceResponse)
			ps := resp.Topics[0].Partitions
			if ps[0].ErrorCode != 0 || ps[0].BaseOffset != before || ps[0].LogAppendTime != -1 {
				t.Fatalf("partition 0: %+v", ps[0])
			}
			if ps[1].ErrorCode != codeInvalidRecord || ps[1].BaseOffset != -1 {
				t.Fatalf("partition 1: %+v", ps[1])
			}
			if v >= 8 && (ps[1].ErrorMessage == nil || len(ps[1].ErrorRecords) != 1 || *ps[1].ErrorRecords[0].ErrorMessage != "no key") {
				t.Fatal("a refused record is named, with its message, from version 8 on (KIP-467)")
			}
		})
	}
}

// replicaRejected stands for a batch that failed validation.
type replicaRejected struct{}

func (*replicaRejected) Error() string { return "one record is bad" }
func (*replicaRejected) Unwrap() error { return batch.ErrInvalidRecord }

func TestProduceRejectsOldVersionsByClosing(t *testing.T) {
	s := startServer(t, nil)
	for v := int16(0); v <= 2; v++ {
		c := dial(t, s.addr)
		c.send(produceRequest(v, 1, "events", topic.ID{}, nil))
		c.closed()
	}
}

func TestProduceWantsExactlyOneBatchOfMagicTwo(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	good := oneBatch(t, "x")
	patched := func(at int, v ...byte) []byte {
		b := oneBatch(t, "x")
		copy(b[at:], v)
		return b
	}
	for _, tc := range []struct {
		name    string
		version int16
		records []byte
		code    int16
		message string
	}{
		{"none", 9, []byte{}, codeInvalidRecord, ""},
		{"two", 9, append(append([]byte{}, good...), oneBatch(t, "y")...), codeInvalidRecord, ""},
		{"magic 1", 9, patched(16, 1), codeInvalidRecord, ""},
		{"magic 3", 9, patched(16, 3), codeCorruptMessage, "Invalid magic found in record: 3"},
		{"size below any format's", 9, patched(8, 0, 0, 0, 13), codeCorruptMessage, "Record size 13 is less than the minimum record overhead (14)"},
		{"size below a header", 9, patched(8, 0, 0, 0, 20), codeCorruptMessage, "Record batch of 20 bytes is shorter than its header"},
		{"cut short", 9, good[:len(good)-1], codeInvalidRecord, ""},
		{"less than a header", 9, good[:30], codeInvalidRecord, ""},
		{"trailing bytes", 9, append(append([]byte{}, good...), 1, 2, 3), codeNone, ""},
		{"zstd before version 7", 6, patched(22, 4), codeUnsupportedCompression, ""},
		{"transactional without an id", 9, patched(22, 0x10), codeTransactionalIDDenied, ""},
		{"one", 9, good, codeNone, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := dial(t, s.addr)
			resp := c.ask(produceRequest(tc.version, 1, "events", id, map[int32][]byte{0: tc.records})).(*kmsg.ProduceResponse)
			got := resp.Topics[0].Partitions[0]
			if got.ErrorCode != tc.code {
				t.Fatalf("code %d, want %d", got.ErrorCode, tc.code)
			}
			if m := got.ErrorMessage; (m == nil) != (tc.message == "") || m != nil && *m != tc.message {
				t.Fatalf("message %v, want %q", m, tc.message)
			}
		})
	}
}

func TestProduceNullRecordsClose(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 2)
	c := dial(t, s.addr)
	c.send(produceRequest(9, 1, "events", id, map[int32][]byte{0: oneBatch(t, "x"), 1: nil}))
	c.closed()
	if end := s.parts.byName["events"][0].end; end != 0 {
		t.Fatal("something was appended")
	}
}

func TestProduceInvalidAcks(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	c := dial(t, s.addr)
	resp := c.ask(produceRequest(9, 2, "events", id, map[int32][]byte{0: oneBatch(t, "x")})).(*kmsg.ProduceResponse)
	if p := resp.Topics[0].Partitions[0]; p.ErrorCode != codeInvalidRequiredAcks || p.BaseOffset != -1 {
		t.Fatalf("%+v", p)
	}
	if s.parts.byName["events"][0].end != 0 {
		t.Fatal("something was appended")
	}
}

func TestProduceAcksZeroGetsNoAnswerAndErrorsClose(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	c := dial(t, s.addr)
	c.send(produceRequest(9, 0, "events", id, map[int32][]byte{0: oneBatch(t, "x")}))
	// The next answer on the wire is that of the next request.
	if resp := c.ask(kmsg.NewPtrApiVersionsRequest()).(*kmsg.ApiVersionsResponse); resp.ErrorCode != 0 {
		t.Fatalf("code %d", resp.ErrorCode)
	}
	if got := s.parts.byName["events"][0].end; got != 1 {
		t.Fatalf("log end %d, want 1", got)
	}
	c.send(produceRequest(9, 0, "nosuch", id, map[int32][]byte{0: oneBatch(t, "x")}))
	c.closed()
}

func TestProduceToInternalTopicOnlyByAdminClient(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add(topic.ConsumerOffsets, 1)
	for _, v := range []int16{9, 13} {
		c := dial(t, s.addr)
		q := produceRequest(v, 1, topic.ConsumerOffsets, id, map[int32][]byte{0: oneBatch(t, "x")})
		if p := c.ask(q).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != codeInvalidTopic {
			t.Fatalf("version %d: code %d, want INVALID_TOPIC", v, p.ErrorCode)
		}
		c.corr++
		admin := kmsg.NewRequestFormatter(kmsg.FormatterClientID("__admin_client"))
		q = produceRequest(v, 1, topic.ConsumerOffsets, id, map[int32][]byte{0: oneBatch(t, "x")})
		c.nc.Write(admin.AppendRequest(nil, q, c.corr))
		if p := c.response(q, c.corr).(*kmsg.ProduceResponse).Topics[0].Partitions[0]; p.ErrorCode != 0 {
			t.Fatalf("version %d, admin client: code %d", v, p.ErrorCode)
		}
	}
}

func TestProduceUnknownTopicAndID(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s.addr)
	resp := c.ask(produceRequest(12, 1, "nosuch", topic.ID{}, map[int32][]byte{0: oneBatch(t, "x")})).(*kmsg.ProduceResponse)
	if got := resp.Topics[0].Partitions[0].ErrorCode; got != codeUnknownTopicOrPartition {
		t.Fatalf("name: code %d", got)
	}
	resp = c.ask(produceRequest(13, 1, "", topic.NewID(), map[int32][]byte{0: oneBatch(t, "x")})).(*kmsg.ProduceResponse)
	if got := resp.Topics[0].Partitions[0].ErrorCode; got != codeUnknownTopicID {
		t.Fatalf("id: code %d", got)
	}
}

func TestAcksAllAnswersOnlyWhenCommittedAndInRequestOrder(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 2)
	slow, fast := s.parts.byName["events"][0], s.parts.byName["events"][1]
	slow.committed = false
	c := dial(t, s.addr)
	first := produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, "x"), 1: oneBatch(t, "x")})
	second := produceRequest(9, -1, "events", id, map[int32][]byte{1: oneBatch(t, "y")})
	third := kmsg.NewPtrApiVersionsRequest()
	c1, c2, c3 := c.send(first), c.send(second), c.send(third)
	eventually(t, "the first request waits for its commit", func() bool { return slow.waiting() == 1 })
	eventually(t, "the second was appended although the first waits", func() bool {
		fast.mu.Lock()
		defer fast.mu.Unlock()
		return fast.end == 2
	})
	slow.commit(nil)
	r1 := c.response(first, c1).(*kmsg.ProduceResponse)
	r2 := c.response(second, c2).(*kmsg.ProduceResponse)
	c.response(third, c3)
	if r1.Topics[0].Partitions[0].ErrorCode != 0 || r2.Topics[0].Partitions[0].BaseOffset != 1 {
		t.Fatalf("%+v %+v", r1, r2)
	}
}

func TestCommitFailureIsTheProducersAnswer(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int16
	}{
		{replica.ErrISRTooSmallAfterAppend, codeNotEnoughReplicasAfter},
		{replica.ErrNotLeader, codeNotLeaderOrFollower},
		{replica.ErrOffline, codeStorageError},
		{replica.ErrDiskFull, codeStorageError},
		{errors.New("odd"), codeUnknownServerError},
	} {
		s := startServer(t, nil)
		id := s.parts.add("events", 1)
		p := s.parts.byName["events"][0]
		p.committed = false
		c := dial(t, s.addr)
		q := produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, "x")})
		corr := c.send(q)
		eventually(t, "waiting", func() bool { return p.waiting() == 1 })
		p.commit(tc.err)
		got := c.response(q, corr).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if got.ErrorCode != tc.code || got.BaseOffset != -1 {
			t.Fatalf("%v: %+v", tc.err, got)
		}
	}
}

func TestProduceTellsTheProducerWhyItIsRefused(t *testing.T) {
	for _, tc := range []struct {
		err   error
		words string
	}{
		{fmt.Errorf("12 bytes free: %w", replica.ErrDiskFull), "free space, or lower local.retention"},
		{replica.ErrOffline, "restart the broker"},
		{replica.ErrISRTooSmall, "min.insync.replicas"},
		{fmt.Errorf("2000000 bytes, limit 1048588: %w", batch.ErrTooLarge), "limit 1048588"},
		{replica.ErrNotLeader, ""}, // passes by itself
	} {
		s := startServer(t, nil)
		id := s.parts.add("events", 1)
		s.parts.byName["events"][0].appendErr = tc.err
		got := dial(t, s.addr).ask(produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, "x")})).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		if m := got.ErrorMessage; (m == nil) != (tc.words == "") || m != nil && !strings.Contains(*m, tc.words) {
			t.Errorf("%v: message %v, want %q", tc.err, m, tc.words)
		}
	}
}

func TestProduceTimesOutWhenCommitDoesNotCome(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	p := s.parts.byName["events"][0]
	p.committed = false
	c := dial(t, s.addr)
	q := produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, "x")})
	q.TimeoutMillis = 50
	got := c.ask(q).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	if got.ErrorCode != codeRequestTimedOut {
		t.Fatalf("%+v", got)
	}
	if n := s.Stats().ProduceFailed; n != 1 {
		t.Errorf("%d partitions counted as failed, want 1", n)
	}
	p.commit(nil) // late: must find nobody
}

func TestProduceBeforeISRShrankIsRejected(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	s.parts.byName["events"][0].appendErr = replica.ErrISRTooSmall
	c := dial(t, s.addr)
	q := produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, "x")})
	if got := c.ask(q).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode; got != codeNotEnoughReplicas {
		t.Fatalf("code %d", got)
	}
}

func TestClientThatLeavesAbandonsItsProduce(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	p := s.parts.byName["events"][0]
	p.committed = false
	c := dial(t, s.addr)
	c.send(produceRequest(9, -1, "events", id, map[int32][]byte{0: oneBatch(t, "x")}))
	eventually(t, "waiting", func() bool { return p.waiting() == 1 })
	c.nc.Close()
	eventually(t, "the connection is forgotten", func() bool { return s.Stats().Connections == 0 })
	p.commit(nil)
}
