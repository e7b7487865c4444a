package share

import (
	"fmt"
	"testing"
)

// cycle is the life of whole batches: acquired, accepted, written.
func cycle(perBatch int64) func() {
	p := New(0, Limits{LocksMax: 1 << 20, DeliveriesMax: 5, LockMillis: 30_000})
	batches := make([]Batch, 10)
	out := make([]Held, 0, 16)
	acks := []Ack{{Types: []int8{Accept}}}
	want := Want{Member: "ann", RecordsMax: 1 << 20, BatchSize: 1}
	return func() {
		at, _ := p.NextFetch()
		for i := range batches {
			batches[i] = Batch{First: at + int64(i)*perBatch, Last: at + int64(i+1)*perBatch - 1}
		}
		out = p.Acquire(want, at, batches, 1, out[:0])
		for _, h := range out {
			acks[0].First, acks[0].Last = h.First, h.Last
			if _, err := p.Acknowledge("ann", acks, 2); err != nil {
				panic(err)
			}
		}
		if _, _, ok := p.TakeWrite(); !ok {
			panic("nothing to write")
		}
		p.Written(true, 3)
		if p.Start() != at+10*perBatch {
			panic("the start did not move")
		}
	}
}

func BenchmarkWholeBatches(b *testing.B) {
	for _, n := range []int64{1, 100, 10_000} {
		b.Run(fmt.Sprintf("records=%d", n), func(b *testing.B) {
			run := cycle(n)
			b.ReportAllocs()
			for b.Loop() {
				run()
			}
		})
	}
}

// BenchmarkEachRecordByItself is the worst case: every other record of a window of 2000 is accepted by itself.
func BenchmarkEachRecordByItself(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		p := New(0, Limits{LocksMax: 2000, DeliveriesMax: 5, LockMillis: 30_000})
		p.Acquire(Want{Member: "ann", RecordsMax: 2000, BatchSize: 2000}, 0, []Batch{{First: 0, Last: 1999}}, 1, nil)
		for o := int64(0); o < 2000; o += 2 {
			if _, err := p.Acknowledge("ann", []Ack{{First: o, Last: o, Types: []int8{Accept}}}, 2); err != nil {
				b.Fatal(err)
			}
		}
		p.TakeWrite()
		p.Written(true, 3)
	}
}

// TestWholeBatchesCostNoMemory is the gate: neither a record nor a batch costs an allocation when it is acquired and
// acknowledged whole.
func TestWholeBatchesCostNoMemory(t *testing.T) {
	run := cycle(1000)
	run()
	if n := testing.AllocsPerRun(100, run); n > 0 {
		t.Errorf("%v allocations for ten batches", n)
	}
}

// TestMemoryIsBoundedByTheLocks: whatever is done to a window, its runs are bounded by what it may hold locked.
func TestMemoryIsBoundedByTheLocks(t *testing.T) {
	t.Run("accepted", func(t *testing.T) { boundedByTheLocks(t, Accept, Accept) })
	t.Run("accepted and rejected in turn", func(t *testing.T) { boundedByTheLocks(t, Accept, Reject) })
}

func boundedByTheLocks(t *testing.T, even, odd int8) {
	const locks = 100
	p := New(0, Limits{LocksMax: locks, DeliveriesMax: 5, LockMillis: 30_000})
	end := int64(1 << 20)
	most := 0
	for range 2000 { // every record is done but each hundredth, which is held for ever
		at, ok := p.NextFetch()
		if !ok {
			break
		}
		for _, h := range p.Acquire(Want{Member: "ann", RecordsMax: 10, BatchSize: 10, Strict: true}, at, []Batch{{First: 0, Last: end}}, 1, nil) {
			for o := h.First; o <= h.Last; o++ {
				if o%100 == 0 {
					continue
				}
				if _, err := p.Acknowledge("ann", []Ack{{First: o, Last: o, Types: []int8{[]int8{even, odd}[o%2]}}}, 2); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		most = max(most, p.Runs())
		p.TakeWrite()
		p.Written(true, 3)
	}
	if _, ok := p.NextFetch(); ok || p.InFlight() != locks {
		t.Fatalf("%d in flight, limit %d", p.InFlight(), locks)
	}
	if p.Next() < 9000 || most > 2*locks+12 {
		t.Fatalf("window to %d, %d runs", p.Next(), most)
	}
}
