package integration

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/varvelog/varve/integration/nodetest"
)

// TestKillNineUnderLoadLosesAndDoublesNothing kills the process again and
// again while idempotent producers write to a tiered topic, then reads the
// whole log back: every acknowledged record is there, once, in its producer's
// order, and nothing is there twice. VARVE_LONG=1 kills more often.
func TestKillNineUnderLoadLosesAndDoublesNothing(t *testing.T) {
	const partitions = 3
	kills := 12
	if os.Getenv("VARVE_LONG") != "" {
		kills = 100
	}
	n := nodetest.Start(t, t.TempDir(), "--store", "file://"+t.TempDir())
	settings := allRemote()
	settings["internal.segment.bytes"] = "65536"
	settings["segment.ms"] = "9223372036854775807"
	n.CreateTopic("load", partitions, settings)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	load := startLoad(ctx, t, n, partitions)
	r := rand.New(rand.NewPCG(4, 2))
	for i := range kills {
		// The kill comes after some more acknowledgements, so that each life
		// of the process does some work, at a moment within it by seed.
		goal := load.acked.Load() + 200 + r.Int64N(3000)
		nodetest.Eventually(t, time.Minute, "more records are acknowledged", func() error {
			if load.acked.Load() < goal {
				return errNotYet
			}
			return nil
		})
		n.Kill()
		n.Restart()
		t.Logf("kill %d after %d acknowledged records", i+1, load.acked.Load())
	}
	load.stop(t)
	for p := range int32(partitions) {
		load.check(t, p, readPartition(ctx, t, n, "load", p))
	}
}

type notYet struct{}

func (notYet) Error() string { return "not yet" }

var errNotYet = notYet{}

// load is a set of idempotent producers, one for each partition.
type load struct {
	acked   atomic.Int64
	quit    chan struct{}
	writers sync.WaitGroup
	results []result
}

// result is what one producer knows: how many it sent, and for each whether
// it was acknowledged.
type result struct {
	mu    sync.Mutex // guards acked
	acked map[uint64]bool
	sent  uint64
}

func startLoad(ctx context.Context, t *testing.T, n *nodetest.Node, partitions int) *load {
	l := &load{quit: make(chan struct{}), results: make([]result, partitions)}
	for p := range partitions {
		cl := n.Client(kgo.DefaultProduceTopic("load"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.ProducerBatchMaxBytes(16<<10), kgo.MaxBufferedRecords(500), kgo.ProducerLinger(time.Millisecond))
		res := &l.results[p]
		res.acked = map[uint64]bool{}
		l.writers.Go(func() { l.write(ctx, cl, int32(p), res) })
	}
	return l
}

func (l *load) write(ctx context.Context, cl *kgo.Client, partition int32, res *result) {
	for {
		select {
		case <-l.quit:
			_ = cl.Flush(ctx) // what is not acknowledged then is not counted as such
			return
		default:
		}
		id := res.sent
		res.sent++
		value := binary.BigEndian.AppendUint64(make([]byte, 0, 128), id)
		value = append(value, make([]byte, 120)...)
		cl.Produce(ctx, &kgo.Record{Partition: partition, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				return
			}
			res.mu.Lock()
			res.acked[id] = true
			res.mu.Unlock()
			l.acked.Add(1)
		})
	}
}

func (l *load) stop(t *testing.T) {
	t.Helper()
	close(l.quit)
	l.writers.Wait()
	if l.acked.Load() == 0 {
		t.Fatal("nothing was acknowledged")
	}
}

func (l *load) check(t *testing.T, partition int32, records []*kgo.Record) {
	t.Helper()
	res := &l.results[partition]
	res.mu.Lock()
	defer res.mu.Unlock()
	next := uint64(0)
	for i, r := range records {
		id := binary.BigEndian.Uint64(r.Value)
		if r.Offset != int64(i) {
			t.Fatalf("partition %d: record %d has offset %d", partition, i, r.Offset)
		}
		for ; next < id; next++ {
			if res.acked[next] {
				t.Fatalf("partition %d: acknowledged record %d is lost", partition, next)
			}
		}
		if id != next {
			t.Fatalf("partition %d offset %d: record %d again or out of order, expected %d", partition, i, id, next)
		}
		next++
	}
	for ; next < res.sent; next++ {
		if res.acked[next] {
			t.Fatalf("partition %d: acknowledged record %d is lost at the end", partition, next)
		}
	}
	t.Logf("partition %d: %d records, all %d acknowledged ones among them", partition, len(records), len(res.acked))
}
