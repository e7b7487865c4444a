package replica

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/meta/topic"
)

// TestLeaderWithoutALeaseDoesNotSayWhereItsLogEnds: such a leader may have been replaced without a word, and another have what is
// not here. A consumer that it told of no such offset, epoch or time began anew at the start, and took its group's offsets along.
func TestLeaderWithoutALeaseDoesNotSayWhereItsLogEnds(t *testing.T) {
	var lease atomic.Bool
	lease.Store(true)
	n := newNode(t)
	n.lease = lease.Load
	n.start()
	t.Cleanup(n.stop)
	p := n.want("events", topic.NewID(), 3, nil)
	n.leads(p, 4, 4, 1, 1)
	n.appendOne(p, 1)
	n.appendOne(p, 1)

	consumer := ReadRequest{MaxBytes: 1 << 20, MinOne: true, ReplicaID: NoReplica, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch}
	ends := []struct {
		what string
		ask  func() error
		with error // what it is told with a lease
	}{
		{"an offset above the end", func() error {
			r := consumer
			r.Offset = 3
			_, err := p.Read(r)
			return err
		}, ErrOffsetOutOfRange},
		{"an epoch that is not in the log", func() error {
			r := consumer
			r.LastFetchedEpoch = 9
			_, err := p.Read(r)
			return err
		}, ErrOffsetOutOfRange},
		{"an epoch's end below the offset", func() error {
			r := consumer
			r.Offset, r.LastFetchedEpoch = 3, 4
			res, err := p.Read(r)
			if err == nil && res.Diverging == nil {
				t.Fatal("what is above the end does not diverge")
			}
			return err
		}, nil},
		{"the end of an epoch", func() error { _, _, err := p.EndOffsetForEpoch(NoEpoch, 4); return err }, nil},
		{"the end of a later epoch", func() error { _, _, err := p.EndOffsetForEpoch(NoEpoch, 5); return err }, nil},
		{"the latest offset", func() error { return p.listed(t, TimeLatest) }, nil},
		{"the greatest time", func() error { return p.listed(t, TimeMax) }, nil},
		{"a time after the last", func() error { return p.listed(t, now()+1_000_000) }, nil},
		{"a deletion", func() error { _, err := p.DeleteRecords(t.Context(), 0); return err }, nil},
	}
	for _, e := range ends {
		lease.Store(true)
		if err := e.ask(); !errors.Is(err, e.with) {
			t.Errorf("%s: %v, want %v", e.what, err, e.with)
		}
		lease.Store(false)
		if err := e.ask(); !errors.Is(err, ErrNotLeader) {
			t.Errorf("%s, without a lease: %v", e.what, err)
		}
	}

	// What is committed is so whoever leads.
	res, err := p.Read(consumer)
	if err != nil || res.Records == nil || res.Records.Len() == 0 {
		t.Fatalf("committed records, without a lease: %+v, %v", res, err)
	}
	res.Records.Release()
	for _, ts := range []int64{TimeEarliest, TimeEarliestLocal, 0} {
		if err := p.listed(t, ts); err != nil {
			t.Errorf("the first offset at %d, without a lease: %v", ts, err)
		}
	}
	// A replica names the leader epoch.
	_, err = p.Read(ReadRequest{Offset: 9, MaxBytes: 1, ReplicaID: 2, CurrentEpoch: 4, LastFetchedEpoch: NoEpoch})
	if !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("a replica's offset above the end, without a lease: %v", err)
	}
}

// listed asks for a time as a consumer does.
func (p *Partition) listed(t *testing.T, ts int64) error {
	_, err := p.ListOffset(t.Context(), ts, ReadUncommitted, NoReplica, NoEpoch)
	return err
}
