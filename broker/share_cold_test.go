package broker

import (
	"testing"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/replica"
)

// TestShareGroupsReadBothTiers: what lies only in the bucket is handed out like the rest.
func TestShareGroupsReadBothTiers(t *testing.T) {
	s := startShares(t, 1, nil, "remote.storage.enable", "true", "segment.bytes", "1048576", "local.retention.bytes", "1", "local.retention.ms", "1")
	const batches, each = 40, 1000
	s.pad = 100
	for range batches {
		s.produce(0, each)
	}
	p, err := s.deps.Partitions.PartitionByID(s.id, 0)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the log's beginning is in the bucket only", func() bool {
		res, err := p.Read(readFrom(0))
		if res.Records != nil {
			res.Records.Release()
		}
		return err == nil && res.Cold
	})
	ann := s.member("ann")
	ann.max, ann.size = 5000, 1000
	next := int64(0)
	for next < batches*each {
		ann.wait = 10_000
		var r = ann.fetchRequest()
		if ann.epoch == 0 {
			r = ann.fetchRequest(0)
		}
		for _, a := range ann.fetched(r).Topics[0].Partitions[0].AcquiredRecords {
			expect(t, "the next record", a.FirstOffset, next)
			expect(t, "accepted", ann.ack(a.FirstOffset, a.LastOffset, share.Accept), int16(0))
			next = a.LastOffset + 1
		}
	}
	expect(t, "the start as stored", s.state.start(coordinator.ShareKey{Group: "g", Topic: s.id}), next)
}

func readFrom(offset int64) replica.ReadRequest {
	return replica.ReadRequest{
		Offset: offset, MaxBytes: 1 << 20, MinOne: true, CurrentEpoch: replica.NoEpoch, LastFetchedEpoch: replica.NoEpoch,
		ReplicaID: replica.NoReplica, ReplicaEpoch: replica.NoBrokerEpoch,
	}
}
