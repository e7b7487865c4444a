package broker

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica"
)

// nullConn takes everything and never has anything.
type nullConn struct{ net.Conn }

func (nullConn) Write(b []byte) (int, error) { return len(b), nil }
func (nullConn) Close() error                { return nil }
func (nullConn) RemoteAddr() net.Addr        { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// nullPartition answers without doing anything, so that what is measured is this package.
type nullPartition struct {
	id      topic.Partition
	records nullRecords
}

func (p *nullPartition) TxnGuard(int64, int16) (int32, bool, error) { return 1, true, nil }

type nullRecords struct{ b []byte }

func (r *nullRecords) Len() int { return len(r.b) }
func (r *nullRecords) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(r.b)
	return int64(n), err
}
func (r *nullRecords) Release() {}

func (p *nullPartition) ID() topic.Partition { return p.id }

func (p *nullPartition) Epoch() (int32, error) { return 1, nil }
func (p *nullPartition) Append(b []byte, r replica.AppendRequest) (replica.Appended, error) {
	return replica.Appended{LogAppendTime: -1, LeaderEpoch: 1}, nil
}

var cancelNothing = func() {}

func (p *nullPartition) OnCommitted(_ int32, _ int64, fn func(error)) func() {
	fn(nil)
	return cancelNothing
}
func (p *nullPartition) Read(r replica.ReadRequest) (replica.ReadResult, error) {
	return replica.ReadResult{Records: &p.records, HighWatermark: 9, LastStable: 9}, nil
}
func (p *nullPartition) ReadCold(context.Context, replica.ReadRequest) (replica.ReadResult, error) {
	return replica.ReadResult{}, nil
}
func (p *nullPartition) ListOffset(context.Context, int64, int8, int32, int32) (replica.TimeOffset, error) {
	return replica.TimeOffset{}, nil
}
func (p *nullPartition) EndOffsetForEpoch(_, _ int32) (int32, int64, error)  { return 0, 0, nil }
func (p *nullPartition) PreferredReplica(string, int64) int32                { return replica.NoReplica }
func (p *nullPartition) DeleteRecords(context.Context, int64) (int64, error) { return 0, nil }
func (p *nullPartition) SizeBytes() (int64, error)                           { return 0, nil }
func (p *nullPartition) Producers() ([]Producer, error)                      { return nil, nil }
func (p *nullPartition) Partition(string, int32) (Partition, error)          { return p, nil }
func (p *nullPartition) PartitionByID(topic.ID, int32) (Partition, error)    { return p, nil }
func (p *nullPartition) Held() []Partition                                   { return nil }
func (p *nullPartition) Ready(string, int32) bool                            { return true }
func (p *nullPartition) NewWaiter(int) Waiter                                { return nil }

// nullRun returns a connection of a server over a null partition, and a function that handles one frame; limited has quotas
// that are never reached.
func nullRun(t testing.TB, frame []byte, limited bool) func() {
	p := &nullPartition{id: topic.Partition{Topic: "events"}, records: nullRecords{make([]byte, 4096)}}
	s := New(DefaultConfig(), Deps{Partitions: p})
	t.Cleanup(func() { s.Close(context.Background()) })
	if limited {
		s.quotas.table.Store(newQuotaTable([]meta.Quota{quotaOf("-", "", meta.ProducerByteRate, 1e18), quotaOf("-", "-", meta.ConsumerByteRate, 1e18), quotaOf("", "-", meta.RequestPercentage, 1e9)}))
	}
	c := newConn(s, nullConn{}, "127.0.0.1", &Door{})
	return func() {
		if _, err := c.handle(frame); err != nil {
			t.Fatal(err)
		}
	}
}

func produceFrame(t testing.TB, version int16, parts int) []byte {
	m := map[int32][]byte{}
	for i := range parts {
		m[int32(i)] = oneBatch(t, string(make([]byte, 1024)))
	}
	return formatter.AppendRequest(nil, produceRequest(version, -1, "events", topic.ID{1}, m), 7)[4:]
}

func fetchFrame(version int16, parts int) []byte {
	var w []wanted
	for i := range parts {
		w = append(w, wanted{index: int32(i)})
	}
	q := fetchRequest(version, "events", topic.ID{1}, w...)
	q.SessionEpoch = -1
	return formatter.AppendRequest(nil, q, 7)[4:]
}

func TestRequestsAllocateLittle(t *testing.T) {
	for _, tc := range []struct {
		name  string
		frame []byte
		max   float64
	}{
		// kmsg's slice of partitions and two closures for the commit of each partition.
		{"produce, one partition", produceFrame(t, 13, 1), 3},
		{"produce, ten partitions", produceFrame(t, 9, 10), 22},
		// kmsg's slice of partitions.
		{"fetch, one partition", fetchFrame(13, 1), 2},
		{"fetch, ten partitions", fetchFrame(12, 10), 2},
	} {
		for _, limited := range []bool{false, true} {
			run := nullRun(t, tc.frame, limited)
			run()
			if n := testing.AllocsPerRun(200, run); n > tc.max && !raceEnabled {
				t.Errorf("%s, quotas=%v: %v allocations, want at most %v", tc.name, limited, n, tc.max)
			}
		}
	}
}

func BenchmarkHandle(b *testing.B) {
	for _, bc := range []struct {
		name  string
		frame []byte
	}{
		{"produce/partitions=1", produceFrame(b, 13, 1)},
		{"produce/partitions=10", produceFrame(b, 13, 10)},
		{"fetch/partitions=1", fetchFrame(13, 1)},
		{"fetch/partitions=100", fetchFrame(13, 100)},
	} {
		for _, limited := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/quotas=%v", bc.name, limited), func(b *testing.B) {
				run := nullRun(b, bc.frame, limited)
				b.ReportAllocs()
				for b.Loop() {
					run()
				}
			})
		}
	}
}

// BenchmarkLoopback is one request in flight on one loopback connection: framing, both ends' system calls included.
func BenchmarkLoopback(b *testing.B) {
	p := &nullPartition{id: topic.Partition{Topic: "events"}, records: nullRecords{make([]byte, 4096)}}
	s := New(DefaultConfig(), Deps{Partitions: p})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go s.Serve(l, Door{})
	defer s.Close(context.Background())
	for _, bc := range []struct {
		name  string
		frame []byte
	}{
		{"produce", formatter.AppendRequest(nil, produceRequest(13, -1, "events", topic.ID{1}, map[int32][]byte{0: oneBatch(b, string(make([]byte, 1024)))}), 7)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			nc, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer nc.Close()
			nc.SetDeadline(time.Now().Add(time.Minute))
			in := make([]byte, 64<<10)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := nc.Write(bc.frame); err != nil {
					b.Fatal(err)
				}
				if _, err := nc.Read(in); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
