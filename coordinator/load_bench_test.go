package coordinator

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/meta/topic"
)

// What a coordinator reads back when it takes a partition over: 100,000 groups, or transactional ids. B/held is what the state
// keeps, once read.

const loadBenchCount = 100_000

// loadBench replays records into machines, and measures what one keeps.
func loadBench(b *testing.B, records []record, make func() machine) {
	b.Helper()
	bytes := 0
	for i := range records {
		bytes += records[i].size()
	}
	b.SetBytes(int64(bytes))
	var before, after runtime.MemStats
	var m machine
	for b.Loop() {
		b.StopTimer()
		m = nil
		runtime.GC()
		runtime.ReadMemStats(&before)
		b.StartTimer()
		m = make()
		for i := range records {
			if err := m.replay(noProducer, records[i].key, records[i].value); err != nil {
				b.Fatal(err)
			}
		}
		m.loaded(0)
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.StartTimer()
	}
	if m.size() != loadBenchCount {
		b.Fatalf("%d are held", m.size())
	}
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/loadBenchCount, "B/held")
}

// recordsOf is what a machine has written.
func recordsOf(m machine, at func(i int) any) (out []record) {
	for i := range loadBenchCount {
		m.step(event{ticket: uint64(i + 1), newID: fmt.Sprint(i), body: at(i)}, 0)
		out = append(out, m.take().records...)
	}
	return out
}

func BenchmarkLoadHundredThousandGroups(b *testing.B) {
	cfg := testConfig()
	fresh := func() machine { return newCore(&cfg, 0) }
	name := func(i int) string { return fmt.Sprint("service-", i, "-readers") }
	commit := func(i int) any {
		q := &CommitRequest{Group: name(i), Generation: NoGeneration, RetentionMillis: -1}
		for p := range int32(6) {
			q.Partitions = append(q.Partitions, CommitPartition{Topic: "orders", ID: topic.ID{1}, Partition: p, Offset: 1 << 30, LeaderEpoch: 3})
		}
		return q
	}
	b.Run("classic", func(b *testing.B) {
		meta := kmsg.ConsumerMemberMetadata{Version: 3, Topics: []string{"orders"}}
		a := kmsg.ConsumerMemberAssignment{Topics: []kmsg.ConsumerMemberAssignmentTopic{{Topic: "orders", Partitions: []int32{0, 1, 2, 3, 4, 5}}}}
		m := newCore(&cfg, 0)
		records := recordsOf(m, commit)
		var joined []record
		for i := range loadBenchCount {
			g := m.groups[name(i)]
			kind, protocol := consumerProtocol, "range"
			g.generation, g.protocolType, g.protocol, g.state = 7, &kind, &protocol, Stable
			g.add(&member{id: fmt.Sprint("client-", i, "-a3d9e0f2-5b7c-4d1a-9f6e-0c8b7a6d5e4f"), clientID: "client", clientHost: "/10.0.0.1",
				rebalanceMillis: 300_000, sessionMillis: 45_000, assignment: a.AppendTo(nil),
				protocols: []Protocol{{Name: protocol, Metadata: meta.AppendTo(nil)}}})
			joined = append(joined, groupRecord(g))
		}
		loadBench(b, append(records, joined...), fresh)
	})
	b.Run("consumer", func(b *testing.B) {
		m := newCore(&cfg, 0)
		view := m.view.next(testTopics(b, 1, "orders:6"))
		m.setTopics(view)
		records := recordsOf(m, commit)
		records = append(records, recordsOf(m, func(i int) any {
			return &ConsumerHeartbeatRequest{
				Group: name(i), MemberID: fmt.Sprint("a3d9e0f2-5b7c-4d1a-9f6e-", i), RebalanceMillis: 300_000, Topics: []string{"orders"},
				Owned: []TopicPartitions{}, NamesItself: true, ClientID: "client", ClientHost: "/10.0.0.1",
			}
		})...)
		loadBench(b, records, func() machine {
			c := newCore(&cfg, 0)
			c.setTopics(view)
			return c
		})
	})
}

func BenchmarkLoadHundredThousandTransactionalIDs(b *testing.B) {
	cfg := testConfig()
	m := newTxnCore(&cfg, 0)
	var records []record
	for i := range loadBenchCount {
		id := fmt.Sprint("service-", i, "-writer")
		m.step(event{ticket: 1, body: &InitProducerRequest{TransactionalID: id, TimeoutMillis: 60_000, Current: Producer{ID: noProducer, Epoch: noEpoch}, newID: int64(i)}}, 0)
		out := m.take()
		records = append(records, out.records...)
	}
	loadBench(b, records, func() machine { return newTxnCore(&cfg, 0) })
}
