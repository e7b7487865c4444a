package broker

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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

// TestReadCommittedShareGroupsReadTheBucket: which transactions were aborted is known of what lies only there, too.
func TestReadCommittedShareGroupsReadTheBucket(t *testing.T) {
	s := startShares(t, 1, nil, "remote.storage.enable", "true", "segment.bytes", "1048576", "local.retention.bytes", "1", "local.retention.ms", "1")
	s.configure("g", "share.isolation.level", "read_committed")
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := s.client(t, kgo.TransactionalID("t"), kgo.DefaultProduceTopic("events"), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerBatchCompression(kgo.NoCompression()))
	const each = 5
	want := map[string]int{}
	end := int64(0)
	for round := range 12 {
		name := fmt.Sprintf("round %02d %s", round, strings.Repeat("x", 60_000))
		commit := kgo.TransactionEndTry(round%3 != 1)
		produceTxn(t, ctx, c, name, each, commit)
		end += each + 1
		if commit {
			for i := range each {
				want[fmt.Sprintf("%s-%d", name, i)]++
			}
		}
	}
	s.pad = 100
	for range 12 {
		s.produce(0, 1000) // so that the segments of the transactions are sealed
	}
	p, err := s.deps.Partitions.PartitionByID(s.id, 0)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the transactions are in the bucket only", func() bool {
		res, err := p.Read(readFrom(end - 1))
		if res.Records != nil {
			res.Records.Release()
		}
		return err == nil && res.Cold
	})
	s.deliverExactly(t, want)
	eventually(t, "the start passes over the aborted ones and the markers", func() bool {
		return s.state.start(shareKey("g", s.id, 0)) >= end
	})
}

func readFrom(offset int64) replica.ReadRequest {
	return replica.ReadRequest{
		Offset: offset, MaxBytes: 1 << 20, MinOne: true, CurrentEpoch: replica.NoEpoch, LastFetchedEpoch: replica.NoEpoch,
		ReplicaID: replica.NoReplica, ReplicaEpoch: replica.NoBrokerEpoch,
	}
}
