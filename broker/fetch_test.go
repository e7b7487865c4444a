package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// errNotLeaderForTest is what a partition that lost its leadership says.
var errNotLeaderForTest = replica.ErrNotLeader

type wanted struct {
	index    int32
	offset   int64
	maxBytes int32
}

func fetchRequest(version int16, name string, id topic.ID, parts ...wanted) *kmsg.FetchRequest {
	q := kmsg.NewPtrFetchRequest()
	q.SetVersion(version)
	q.MinBytes, q.MaxBytes, q.MaxWaitMillis = 1, 50<<20, 0
	if len(parts) == 0 {
		return q
	}
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = name, id
	for _, w := range parts {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes = w.index, w.offset, w.maxBytes
		if p.PartitionMaxBytes == 0 {
			p.PartitionMaxBytes = 1 << 20
		}
		t.Partitions = append(t.Partitions, p)
	}
	q.Topics = append(q.Topics, t)
	return q
}

// fill appends n batches of one record to a fake partition.
func (p *fakePartition) append(t testing.TB, values ...string) {
	for _, v := range values {
		if _, err := p.Append(oneBatch(t, v), replica.AppendRequest{}); err != nil {
			t.Fatal(err)
		}
	}
}

// offsets are the offsets of the batches in b.
func offsets(t testing.TB, b []byte) []int64 {
	t.Helper()
	var list []int64
	for len(b) > 0 {
		x, rest, err := batch.Next(b)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, x.BaseOffset())
		b = rest
	}
	return list
}

func TestFetchAnswersEveryVersionAsKmsgWrites(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 4)
	ps := s.parts.byName["events"]
	ps[0].append(t, "a", "b")
	ps[1].err = replica.ErrNotLeader
	ps[2].diverging = &replica.Diverging{Epoch: 3, EndOffset: 17}
	ps[3].append(t, "c")
	ps[3].aborted = []batch.AbortedTxn{{ProducerID: 7, FirstOffset: 0}}
	for v := int16(4); v <= 18; v++ {
		for iso := int8(0); iso < 2; iso++ {
			t.Run(fmt.Sprintf("v%d/isolation=%d", v, iso), func(t *testing.T) {
				c := dial(t, s.addr)
				q := fetchRequest(v, "events", id, wanted{index: 0}, wanted{index: 1}, wanted{index: 2}, wanted{index: 3}, wanted{index: 9})
				q.IsolationLevel = iso
				resp := c.ask(q).(*kmsg.FetchResponse)
				got := resp.Topics[0].Partitions
				if want := []int64{0, 1}; fmt.Sprint(offsets(t, got[0].RecordBatches)) != fmt.Sprint(want) {
					t.Fatalf("batches %v", offsets(t, got[0].RecordBatches))
				}
				if got[1].ErrorCode != codeNotLeaderOrFollower || got[1].HighWatermark != -1 {
					t.Fatalf("not leader: %+v", got[1])
				}
				if v >= 12 && (got[2].DivergingEpoch.Epoch != 3 || got[2].DivergingEpoch.EndOffset != 17) {
					t.Fatalf("diverging: %+v", got[2])
				}
				if (iso == 1) != (got[3].AbortedTransactions != nil) {
					t.Fatalf("aborted transactions: %v", got[3].AbortedTransactions)
				}
				if got[4].ErrorCode != codeUnknownTopicOrPartition {
					t.Fatalf("unknown partition: %+v", got[4])
				}
			})
		}
	}
	eventually(t, "every handed-out run is released once", func() bool {
		handed, released := 0, 0
		for _, p := range ps {
			p.mu.Lock()
			handed, released = handed+p.handed, released+p.released
			p.mu.Unlock()
		}
		return handed > 0 && handed == released
	})
}

func TestReadCommittedListsAbortedTransactionsEvenWhenNone(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	s.parts.byName["events"][0].append(t, "a")
	c := dial(t, s.addr)
	q := fetchRequest(11, "events", id, wanted{})
	q.IsolationLevel = 1
	if a := c.ask(q).(*kmsg.FetchResponse).Topics[0].Partitions[0].AbortedTransactions; a == nil || len(a) != 0 {
		t.Fatalf("aborted transactions %v, want an empty list", a)
	}
}

func TestFirstNonEmptyPartitionIgnoresLimitsAfterwardsStrict(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 3)
	for _, p := range s.parts.byName["events"][1:] {
		p.append(t, "0123456789012345678901234567890123456789", "x")
	}
	c := dial(t, s.addr)
	got := c.ask(fetchRequest(11, "events", id, wanted{index: 0, maxBytes: 1}, wanted{index: 1, maxBytes: 1}, wanted{index: 2, maxBytes: 1})).(*kmsg.FetchResponse).Topics[0].Partitions
	if len(got[0].RecordBatches) != 0 || len(offsets(t, got[1].RecordBatches)) != 1 || len(got[2].RecordBatches) != 0 {
		t.Fatalf("bytes %d %d %d: want none, one batch, none", len(got[0].RecordBatches), len(got[1].RecordBatches), len(got[2].RecordBatches))
	}
	q := fetchRequest(11, "events", id, wanted{index: 1}, wanted{index: 2})
	q.MaxBytes = 1
	got = c.ask(q).(*kmsg.FetchResponse).Topics[0].Partitions
	if len(offsets(t, got[0].RecordBatches)) != 1 || len(got[1].RecordBatches) != 0 {
		t.Fatal("the request's limit holds after the first batch")
	}
}

func TestServerCapsFetchBytesAndMinBytes(t *testing.T) {
	s := startServer(t, func(c *Config) { c.FetchBytesMax = 1024 })
	id := s.parts.add("events", 1)
	for range 64 {
		s.parts.byName["events"][0].append(t, "0123456789")
	}
	c := dial(t, s.addr)
	q := fetchRequest(11, "events", id, wanted{})
	q.MinBytes, q.MaxBytes, q.MaxWaitMillis = 1<<30, 1<<30, 60_000
	start := time.Now()
	got := c.ask(q).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	// minBytes is clamped to what the server will send; with batches of some 80 bytes the fetch would otherwise wait a minute.
	if len(got.RecordBatches) > 1024 || len(got.RecordBatches) == 0 {
		t.Fatalf("%d bytes", len(got.RecordBatches))
	}
	if time.Since(start) > 30*time.Second {
		t.Fatal("minBytes was not clamped")
	}
}

func TestFetchAnswersAtOnce(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 3)
	ps := s.parts.byName["events"]
	ps[0].append(t, "a")
	ps[1].err = replica.ErrFencedLeaderEpoch
	ps[2].diverging = &replica.Diverging{Epoch: 1, EndOffset: 1}
	c := dial(t, s.addr)
	for name, q := range map[string]*kmsg.FetchRequest{
		"max wait zero":     fetchRequest(11, "events", id, wanted{index: 0, offset: 1}),
		"no partitions":     fetchRequest(11, "events", id),
		"enough bytes":      fetchRequest(11, "events", id, wanted{index: 0}),
		"an error":          fetchRequest(11, "events", id, wanted{index: 0, offset: 1}, wanted{index: 1}),
		"out of range":      fetchRequest(11, "events", id, wanted{index: 0, offset: 99}),
		"a diverging epoch": fetchRequest(12, "events", id, wanted{index: 2}),
	} {
		if name != "max wait zero" {
			q.MaxWaitMillis = 60_000
		}
		start := time.Now()
		c.ask(q)
		if time.Since(start) > 20*time.Second {
			t.Fatalf("%s: waited", name)
		}
	}
}

func TestLongPollWakesOnAppend(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 2)
	p := s.parts.byName["events"][1]
	c := dial(t, s.addr)
	q := fetchRequest(11, "events", id, wanted{index: 0}, wanted{index: 1})
	q.MaxWaitMillis = 60_000
	corr := c.send(q)
	eventually(t, "the fetch waits", func() bool { return p.watched() == 1 })
	p.append(t, "a")
	got := c.response(q, corr).(*kmsg.FetchResponse).Topics[0].Partitions
	if len(got[1].RecordBatches) == 0 {
		t.Fatal("no records")
	}
	if p.watched() != 0 {
		t.Fatal("the waiter was left behind")
	}
}

func TestLongPollEndsAtMaxWait(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	c := dial(t, s.addr)
	q := fetchRequest(11, "events", id, wanted{index: 0})
	q.MaxWaitMillis = 30
	start := time.Now()
	if got := c.ask(q).(*kmsg.FetchResponse).Topics[0].Partitions[0]; len(got.RecordBatches) != 0 || got.ErrorCode != 0 {
		t.Fatalf("%+v", got)
	}
	if d := time.Since(start); d < 30*time.Millisecond {
		t.Fatalf("answered after %v", d)
	}
}

func TestClientThatLeavesEndsItsLongPoll(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	p := s.parts.byName["events"][0]
	c := dial(t, s.addr)
	q := fetchRequest(11, "events", id, wanted{index: 0})
	q.MaxWaitMillis = 1 << 30
	c.send(q)
	eventually(t, "waiting", func() bool { return p.watched() == 1 })
	c.nc.Close()
	eventually(t, "the poll is gone", func() bool { return p.watched() == 0 && s.Stats().Connections == 0 })
}

func TestHotRecordsDoNotWaitForColdOnes(t *testing.T) {
	s := startServer(t, func(c *Config) { c.RemoteFetchWaitMax = time.Minute })
	id := s.parts.add("events", 2)
	cold, hot := s.parts.byName["events"][0], s.parts.byName["events"][1]
	cold.append(t, "old")
	cold.localStart = 1
	cold.coldGate = make(chan struct{})
	hot.append(t, "new")
	c := dial(t, s.addr)
	got := c.ask(fetchRequest(11, "events", id, wanted{index: 0}, wanted{index: 1})).(*kmsg.FetchResponse).Topics[0].Partitions
	if len(got[0].RecordBatches) != 0 || got[0].ErrorCode != 0 || got[0].HighWatermark != 1 {
		t.Fatalf("cold: %+v", got[0])
	}
	if len(got[1].RecordBatches) == 0 {
		t.Fatal("no hot records")
	}
	close(cold.coldGate)
	got = c.ask(fetchRequest(11, "events", id, wanted{index: 0}, wanted{index: 1})).(*kmsg.FetchResponse).Topics[0].Partitions
	if len(got[0].RecordBatches) == 0 || len(got[1].RecordBatches) == 0 {
		t.Fatal("what the cache holds comes along")
	}
}

func TestColdPartitionsAreReadConcurrently(t *testing.T) {
	s := startServer(t, func(c *Config) { c.RemoteFetchWaitMax = time.Minute })
	id := s.parts.add("events", 4)
	gate := make(chan struct{})
	var want []wanted
	for i, p := range s.parts.byName["events"] {
		p.append(t, "old")
		p.localStart, p.coldGate = 1, gate
		want = append(want, wanted{index: int32(i)})
	}
	c := dial(t, s.addr)
	q := fetchRequest(11, "events", id, want...)
	corr := c.send(q)
	eventually(t, "all four reads are under way at once", func() bool {
		n := 0
		for _, p := range s.parts.byName["events"] {
			p.mu.Lock()
			n += p.coldReads
			p.mu.Unlock()
		}
		return n == 4
	})
	close(gate)
	for _, p := range c.response(q, corr).(*kmsg.FetchResponse).Topics[0].Partitions {
		if len(p.RecordBatches) == 0 {
			t.Fatalf("partition %d is empty", p.Partition)
		}
	}
}

func TestColdReadThatTakesTooLongAnswersEmptyWithoutError(t *testing.T) {
	s := startServer(t, func(c *Config) { c.RemoteFetchWaitMax = 20 * time.Millisecond })
	id := s.parts.add("events", 1)
	p := s.parts.byName["events"][0]
	p.append(t, "old")
	p.localStart, p.coldGate = 1, make(chan struct{})
	c := dial(t, s.addr)
	got := c.ask(fetchRequest(11, "events", id, wanted{})).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if got.ErrorCode != 0 || len(got.RecordBatches) != 0 || got.HighWatermark != 1 {
		t.Fatalf("%+v", got)
	}
}

func TestFetchEpochErrors(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 2)
	s.parts.byName["events"][0].err = replica.ErrFencedLeaderEpoch
	s.parts.byName["events"][1].err = replica.ErrUnknownLeaderEpoch
	c := dial(t, s.addr)
	got := c.ask(fetchRequest(12, "events", id, wanted{index: 0}, wanted{index: 1})).(*kmsg.FetchResponse).Topics[0].Partitions
	if got[0].ErrorCode != codeFencedLeaderEpoch || got[1].ErrorCode != codeUnknownLeaderEpoch {
		t.Fatalf("%d %d", got[0].ErrorCode, got[1].ErrorCode)
	}
}

func TestPartitionNamedTwiceIsFetchedOnce(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 60)
	s.parts.byName["events"][0].append(t, "a", "b")
	c := dial(t, s.addr)
	for _, n := range []int32{2, 60} { // by search, and by map
		var want []wanted
		for i := range n {
			want = append(want, wanted{index: i})
		}
		want = append(want, wanted{index: 0, offset: 1}, wanted{index: n - 1})
		got := c.ask(fetchRequest(11, "events", id, want...)).(*kmsg.FetchResponse).Topics[0].Partitions
		if len(got) != int(n) || fmt.Sprint(offsets(t, got[0].RecordBatches)) != "[1]" {
			t.Fatalf("%d partitions, batches %v: the later position holds", len(got), offsets(t, got[0].RecordBatches))
		}
	}
}

func TestUnknownIsolationLevelIsAnInvalidRequest(t *testing.T) {
	s := startServer(t, nil)
	id := s.parts.add("events", 1)
	q := fetchRequest(11, "events", id, wanted{})
	q.IsolationLevel = 7
	if got := dial(t, s.addr).ask(q).(*kmsg.FetchResponse); got.ErrorCode != codeInvalidRequest {
		t.Fatalf("%+v", got)
	}
}

func TestFetchByUnknownTopicID(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s.addr)
	got := c.ask(fetchRequest(13, "", topic.NewID(), wanted{})).(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if got.ErrorCode != codeUnknownTopicID {
		t.Fatalf("code %d", got.ErrorCode)
	}
}

func TestColdAndHotShareTheAnswer(t *testing.T) {
	s := startServer(t, func(c *Config) { c.RemoteFetchWaitMax = time.Minute })
	id := s.parts.add("events", 2)
	cold, hot := s.parts.byName["events"][0], s.parts.byName["events"][1]
	for range 20 {
		cold.append(t, "0123456789")
		hot.append(t, "0123456789")
	}
	cold.localStart = 20
	c := dial(t, s.addr)
	// The cold partition may take all that the request allows, and comes first.
	q := fetchRequest(11, "events", id, wanted{index: 0, maxBytes: 800}, wanted{index: 1, maxBytes: 800})
	q.MaxBytes = 800
	got := c.ask(q).(*kmsg.FetchResponse).Topics[0].Partitions
	if a, b := len(got[0].RecordBatches), len(got[1].RecordBatches); a == 0 || b == 0 || a+b > 800 {
		t.Fatalf("cold %d bytes, hot %d bytes of 800: each must have its share", a, b)
	}
	// Alone, it gets everything.
	q = fetchRequest(11, "events", id, wanted{index: 0, maxBytes: 800})
	q.MaxBytes = 800
	if got := c.ask(q).(*kmsg.FetchResponse).Topics[0].Partitions; len(got[0].RecordBatches) < 700 {
		t.Fatalf("%d bytes", len(got[0].RecordBatches))
	}
}

func TestWaitingFetchHoldsNoRequestMemory(t *testing.T) {
	s := startServer(t, nil)
	names := []string{"a-topic-with-a-name", "another-topic-with-a-name"}
	for _, name := range names {
		s.parts.add(name, 400)
	}
	poll := func(version int16, parts int) *kmsg.FetchRequest {
		q := fetchRequest(version, "", topic.ID{})
		q.MaxWaitMillis = 60_000
		for _, name := range names {
			var list []wanted
			for i := range parts {
				list = append(list, wanted{index: int32(i)})
			}
			q.Topics = append(q.Topics, fetchRequest(version, name, s.parts.byName[name][0].id.ID, list...).Topics...)
		}
		return q
	}
	for version, parts := range map[int16]int{12: 1, 11: 400, 13: 400} { // whole in one read, and larger than that
		c := dial(t, s.addr)
		p := s.parts.byName[names[1]][0]
		before := p.watched()
		q := poll(version, parts)
		corr := c.send(q)
		eventually(t, "the fetch waits", func() bool { return p.watched() > before })
		if used := s.budgets.used(); used != 0 {
			t.Errorf("version %d: a waiting fetch holds %d bytes of the request budget", version, used)
		}
		for range 64 { // whoever got the buffers writes over them
			other := dial(t, s.addr)
			other.ask(fetchRequest(12, strings.Repeat("x", 200), topic.ID{}, wanted{}))
			other.nc.Close()
		}
		p.append(t, "a")
		resp := c.response(q, corr).(*kmsg.FetchResponse)
		if version < 13 && (resp.Topics[0].Topic != names[0] || resp.Topics[1].Topic != names[1]) {
			t.Errorf("version %d: the answer is about %q and %q", version, resp.Topics[0].Topic, resp.Topics[1].Topic)
		}
		p.set(func() { p.batches, p.end = nil, 0 })
	}
}
