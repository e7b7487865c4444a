package broker

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/meta"
	"github.com/varvelog/varve/replica"
)

// TestAPanicAbreastIsTheCallers: a handler's panic ends its connection, and so must one in the goroutines that it starts.
func TestAPanicAbreastIsTheCallers(t *testing.T) {
	for _, n := range []int{1, 2, 500} {
		var running atomic.Int64
		func() {
			defer func() {
				v := recover()
				if text, _ := v.(string); !strings.Contains(text, "the second half") {
					t.Errorf("of %d: %v", n, v)
				}
				if running.Load() != 0 {
					t.Errorf("of %d: %d still run", n, running.Load())
				}
			}()
			abreast(n, func(i int) {
				running.Add(1)
				defer running.Add(-1)
				if i >= n/2 {
					panic("the second half")
				}
			})
		}()
	}
	var done atomic.Int64
	abreastOf(3, 1000, func(i int) { done.Add(int64(i)) })
	expect(t, "all are done once", done.Load(), int64(1000*999/2))
}

// TestAMarkerNamesAPartitionOnce: each name would be an append.
func TestAMarkerNamesAPartitionOnce(t *testing.T) {
	s := startStack(t, nil)
	id := dial(t, s.addr).create(newTopic("events", 2))
	at := func(i int32) coordinator.TxnPartition { return coordinator.TxnPartition{Topic: "events", Partition: i} }
	m := coordinator.TxnMarker{Producer: coordinator.Producer{ID: 7}, Partitions: []coordinator.TxnPartition{at(0), at(1), at(0), at(9)}}
	errs := s.endTxns(context.Background(), []coordinator.TxnMarker{m, {Producer: coordinator.Producer{ID: 8}, Partitions: m.Partitions[:1]}})
	for i, want := range []error{nil, nil, meta.ErrInvalidRequest, replica.ErrUnknownPartition} {
		if !errors.Is(errs[0][i], want) {
			t.Errorf("partition %d: %v, want %v", i, errs[0][i], want)
		}
	}
	if errs[1][0] != nil {
		t.Errorf("another producer's: %v", errs[1][0])
	}
	p, err := s.deps.Partitions.PartitionByID(id, 0)
	if err != nil {
		t.Fatal(err)
	}
	end, err := p.ListOffset(context.Background(), replica.TimeLatest, replica.ReadUncommitted, replica.NoReplica, replica.NoEpoch)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "markers", end.Offset, int64(2))
}
