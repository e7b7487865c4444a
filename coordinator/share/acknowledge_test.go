package share

import (
	"errors"
	"slices"
	"testing"
)

// TestAcknowledgementsInAnyOrder: a member may say in any order what it has to say, but nothing twice. So many, each compared with
// every other, would take minutes.
func TestAcknowledgementsInAnyOrder(t *testing.T) {
	const records = 400_000
	p := New(0, Limits{LocksMax: records, DeliveriesMax: 5, LockMillis: 30_000})
	p.LogStart(records) // what lies below is done
	acks := make([]Ack, records)
	for i := range acks {
		at := int64(records - 1 - i)
		acks[i] = Ack{First: at, Last: at, Types: []int8{Accept}}
	}
	before := slices.Clone(acks[:3])
	if _, err := p.Acknowledge("ann", acks, 1); err != nil {
		t.Fatal(err)
	}
	for i := range before {
		if acks[i].First != before[i].First {
			t.Fatal("the caller's order was changed")
		}
	}
	acks[records/2].Last += 2
	if _, err := p.Acknowledge("ann", acks, 1); !errors.Is(err, ErrInvalidRecordState) {
		t.Fatalf("said twice: %v", err)
	}
}
