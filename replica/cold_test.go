package replica

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier"
	"github.com/varvelog/varve/tier/objstore"
)

// tieredSettings are small segments of which sealed ones leave the disk as soon as they are in the bucket.
var tieredSettings = map[string]string{
	"remote.storage.enable": "true", "retention.ms": "-1", "internal.segment.bytes": "4096", "local.retention.bytes": "0",
}

// seal rolls the log and waits until everything sealed is in the bucket and gone from the disk.
func (n *node) seal(p *Partition) {
	n.t.Helper()
	n.must(p.log.Roll(now()))
	end := p.log.Offsets().End
	n.wait("everything to be in the bucket only", func() bool {
		s, ok := p.remote.Cached()
		return ok && s.End == end && p.log.Offsets().LocalStart == end
	})
}

// archived starts a node whose topic has the records 0..9 in the bucket only and 10..11 on disk only.
func archived(t *testing.T, bucket objstore.Store) (*node, *Partition, []record) {
	t.Helper()
	n := newNode(t)
	n.bucket = bucket
	n.start()
	p := n.want("events", topic.NewID(), 3, tieredSettings)
	var all []record
	for i := range int64(6) {
		list := []record{{2 * i, 1000 + 20*i, name(int(2 * i))}, {2*i + 1, 1000 + 20*i + 5, name(int(2*i + 1))}}
		n.produce(p, batch.Zstd, list...)
		all = append(all, list...)
		if i == 2 || i == 4 {
			n.seal(p)
		}
	}
	if o := p.log.Offsets(); o.LogStart != 0 || o.LocalStart != 10 || o.End != 12 {
		t.Fatalf("%+v", o)
	}
	return n, p, all
}

func TestOffloadedSegmentsLeaveTheDiskAndAreReadBack(t *testing.T) {
	n, p, all := archived(t, objstore.NewMem(0))
	defer n.stop()
	if got := n.readAll(p, 0, 1<<20); !slices.Equal(got, all) {
		t.Fatalf("read %v, want %v", got, all)
	}
	if n.cold < 2 {
		t.Fatalf("%d reads from the bucket", n.cold)
	}
	places, err := p.Segments(context.Background())
	n.must(err)
	want := []SegmentPlace{{Base: 0, End: 6, Remote: true, Sealed: true}, {Base: 6, End: 10, Remote: true, Sealed: true}, {Base: 10, End: 12, Local: true}}
	for i, s := range places {
		if i < len(want) && (s.Base != want[i].Base || s.End != want[i].End || s.Local != want[i].Local || s.Remote != want[i].Remote || s.Sealed != want[i].Sealed) {
			t.Errorf("segment %d: %+v, want %+v", i, s, want[i])
		}
	}
	if len(places) != len(want) {
		t.Errorf("%d segments, want %d", len(places), len(want))
	}
	if d := p.Describe(); d.RemoteStart != 0 || d.RemoteEnd != 10 || d.ColdSegments != 2 || d.ColdBytes == 0 || d.HotBytes == 0 {
		t.Errorf("%+v", d)
	}
}

func TestSpecialTimestampsOverBothTiers(t *testing.T) {
	n, p, _ := archived(t, objstore.NewMem(0))
	defer n.stop()
	plain := n.want("plain", topic.NewID(), 3, map[string]string{"retention.ms": "-1"})
	n.produce(plain, batch.None, record{ts: 50, value: "a"}, record{ts: 40, value: "b"})
	empty := n.want("empty", topic.NewID(), 3, tieredSettings)
	for _, c := range []struct {
		what       string
		p          *Partition
		ts, offset int64
	}{
		{"latest", p, TimeLatest, 12},
		{"earliest", p, TimeEarliest, 0},
		{"largest timestamp", p, TimeMax, 11},
		{"earliest local", p, TimeEarliestLocal, 10},
		{"latest tiered", p, TimeLatestTiered, 9},
		{"earliest pending upload", p, TimeEarliestPendingUpload, 10},
		{"first record", p, 0, 0},
		{"exact hit in the bucket", p, 1045, 5},
		{"between records in the bucket", p, 1044, 5},
		{"first record that is local", p, 1100, 10},
		{"after the last", p, 1200, NoOffset},

		{"not tiered: largest timestamp", plain, TimeMax, 0},
		{"not tiered: earliest local", plain, TimeEarliestLocal, 0},
		{"not tiered: latest tiered", plain, TimeLatestTiered, NoOffset},
		{"not tiered: earliest pending upload", plain, TimeEarliestPendingUpload, NoOffset},

		{"empty: latest", empty, TimeLatest, 0},
		{"empty: earliest", empty, TimeEarliest, 0},
		{"empty: largest timestamp", empty, TimeMax, NoOffset},
		{"empty: latest tiered", empty, TimeLatestTiered, NoOffset},
		// Nothing is to be uploaded, and the answer would lie at the high watermark: not fetchable yet, says Kafka too.
		{"empty: earliest pending upload", empty, TimeEarliestPendingUpload, NoOffset},
		{"empty: by time", empty, 5, NoOffset},
	} {
		got, err := c.p.ListOffset(context.Background(), c.ts, ReadUncommitted, NoReplica, NoEpoch)
		if err != nil || got.Offset != c.offset {
			t.Errorf("%s: %+v, %v; want offset %d", c.what, got, err, c.offset)
		}
	}
	if got, err := p.ListOffset(context.Background(), 1045, ReadUncommitted, NoReplica, 3); err != nil || got != (TimeOffset{5, 1045, 3}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := p.ListOffset(context.Background(), -7, ReadUncommitted, NoReplica, NoEpoch); !errors.Is(err, ErrUnsupportedTimestamp) {
		t.Errorf("-7: %v", err)
	}
	if _, err := p.ListOffset(context.Background(), TimeLatest, ReadUncommitted, NoReplica, 2); !errors.Is(err, ErrFencedLeaderEpoch) {
		t.Errorf("older leader epoch: %v", err)
	}
}

func TestReplicaBelowTheLocalStartIsSentToTheBucket(t *testing.T) {
	n, p, _ := archived(t, objstore.NewMem(0))
	defer n.stop()
	r := ReadRequest{Offset: 3, MaxBytes: 1000, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, ReplicaID: 2}
	if _, err := p.Read(r); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("a broker without a replica: %v, want ErrNotLeader", err)
	}
	r.ReplicaID = 1
	_, err := p.Read(r)
	if !errors.Is(err, ErrMovedToTiered) {
		t.Fatalf("%v, want ErrMovedToTiered", err)
	}
}

func TestStoreDownLeavesHotDataServedAndColdReadsRetriable(t *testing.T) {
	faulty := objstore.NewFaulty(objstore.NewMem(0), 1)
	n, p, all := archived(t, faulty)
	defer n.stop()
	faulty.Set(objstore.Rule{Fault: objstore.FaultBefore})
	ctx := context.Background()

	if _, err := n.fetch(p, 2, 1000, ReadUncommitted); !errors.Is(err, ErrRemoteUnavailable) {
		t.Errorf("cold read: %v, want ErrRemoteUnavailable", err)
	}
	if _, err := p.ListOffset(ctx, 1045, ReadUncommitted, NoReplica, NoEpoch); !errors.Is(err, ErrRemoteUnavailable) {
		t.Errorf("lookup that concerns the bucket: %v, want ErrRemoteUnavailable", err)
	}
	if got, err := p.ListOffset(ctx, TimeEarliest, ReadUncommitted, NoReplica, NoEpoch); err != nil || got.Offset != 0 {
		t.Errorf("earliest: %+v, %v", got, err)
	}
	more := record{12, 2000, "more"}
	n.produce(p, batch.None, more)
	if got := n.readAll(p, 10, 1<<20); !slices.Equal(got, []record{all[10], all[11], more}) {
		t.Errorf("hot data: %v", got)
	}
	if _, err := n.fetch(p, 14, 1000, ReadUncommitted); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Errorf("beyond the end: %v", err)
	}

	faulty.Set()
	if got := n.readAll(p, 0, 1<<20); !slices.Equal(got, append(all, more)) {
		t.Errorf("after the outage: %v", got)
	}
}

func TestMissingObjectIsRetriableAndNeverOutOfRange(t *testing.T) {
	bucket := objstore.NewMem(0)
	n, p, _ := archived(t, bucket)
	defer n.stop()
	places, err := p.Segments(context.Background())
	n.must(err)
	n.must(bucket.Delete(context.Background(), places[0].Key))
	if _, err := n.fetch(p, 2, 1000, ReadUncommitted); !errors.Is(err, ErrRemoteUnavailable) {
		t.Fatalf("%v, want ErrRemoteUnavailable", err)
	}
	if _, err := p.DeleteRecords(context.Background(), 6); err != nil {
		t.Fatal(err)
	}
	if _, err := n.fetch(p, 2, 1000, ReadUncommitted); !errors.Is(err, ErrOffsetOutOfRange) {
		t.Fatalf("below the log start: %v, want ErrOffsetOutOfRange", err)
	}
	if got := n.readAll(p, 6, 1<<20); len(got) != 6 {
		t.Fatalf("the other segments: %v", got)
	}
}

func TestLocalCopyIsReadWhileThereIsOne(t *testing.T) {
	bucket := objstore.NewCounted(objstore.NewMem(0), nil)
	n := newNode(t)
	n.bucket = bucket
	n.start()
	defer n.stop()
	p := n.want("events", topic.NewID(), 3, map[string]string{"remote.storage.enable": "true", "retention.ms": "-1", "internal.segment.bytes": "4096"})
	n.produce(p, batch.None, record{ts: 1, value: "a"}, record{ts: 2, value: "b"})
	n.must(p.log.Roll(now()))
	n.wait("the segment to be offloaded", func() bool { s, ok := p.remote.Cached(); return ok && s.End == 2 })
	before := bucket.Stats()
	if got := n.readAll(p, 0, 1<<20); len(got) != 2 {
		t.Fatalf("%v", got)
	}
	if got, err := p.ListOffset(context.Background(), 2, ReadUncommitted, NoReplica, NoEpoch); err != nil || got.Offset != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if after := bucket.Stats(); after != before || n.cold != 0 {
		t.Fatalf("the bucket was read: %+v, then %+v", before, after)
	}
}

func TestDeleteRecords(t *testing.T) {
	n, p, _ := archived(t, objstore.NewMem(0))
	defer n.stop()
	ctx := context.Background()
	for _, offset := range []int64{13, -2} {
		if _, err := p.DeleteRecords(ctx, offset); !errors.Is(err, ErrOffsetOutOfRange) {
			t.Errorf("DeleteRecords(%d): %v", offset, err)
		}
	}
	w := n.m.NewWaiter(1 << 20)
	defer w.Close()
	w.Watch(p, 11, ReadUncommitted)
	for _, c := range []struct{ offset, low int64 }{{5, 5}, {3, 5}, {-1, 12}} {
		if low, err := p.DeleteRecords(ctx, c.offset); err != nil || low != c.low {
			t.Errorf("DeleteRecords(%d): %d, %v; want %d", c.offset, low, err, c.low)
		}
	}
	if !fired(w) {
		t.Error("a reader whose offset is gone must look again")
	}
	compacted := n.want("compacted", topic.NewID(), 3, map[string]string{"cleanup.policy": "compact"})
	if _, err := compacted.DeleteRecords(ctx, 0); !errors.Is(err, ErrPolicyViolation) {
		t.Errorf("compacted topic: %v", err)
	}
}

// TestReadCommittedListsTheSameAbortedTransactionsInBothTiers aborts a transaction whose records, and whose marker, come to lie
// in different segments, and asks for the list while all is local, while the records are in the bucket and the marker is not,
// and when both are.
func TestReadCommittedListsTheSameAbortedTransactionsInBothTiers(t *testing.T) {
	n := newNode(t).start()
	defer n.stop()
	p := n.want("events", topic.NewID(), 3, tieredSettings)
	txn := func(id int64, sequence int32, value string) {
		t.Helper()
		b := batch.NewBuilder(batch.Options{Transactional: true, Producer: &batch.Producer{ID: id, Sequence: sequence}})
		n.must(b.Append(1, []byte("k"), []byte(value), nil))
		_, err := p.Append(slices.Clone([]byte(b.Bytes())), AppendRequest{Acks: 1, Version: 12, Now: now(), TxnVerified: true})
		n.must(err)
	}
	end := func(id int64, kind batch.ControlType) {
		t.Helper()
		a, err := p.Append(batch.EndTxn(batch.Marker{Type: kind}, id, 0, 2), AppendRequest{Acks: 1, Version: 12, Now: now(), Origin: FromCoordinator})
		n.must(err)
		n.wait("the marker to be committed", func() bool { return p.log.HighWatermark() > a.LastOffset })
	}
	txn(7, 0, "aborted")   // 0
	txn(8, 0, "committed") // 1
	n.must(p.log.Roll(now()))
	txn(7, 1, "aborted too") // 2
	if res, err := n.fetch(p, 0, 1000, ReadCommitted); err != nil || res.Records != nil || res.LastStable != 0 {
		t.Fatalf("an open transaction is not readable: %+v, %v", res, err)
	}
	end(7, batch.Abort)  // 3
	end(8, batch.Commit) // 4
	want := []batch.AbortedTxn{{ProducerID: 7, FirstOffset: 0, LastOffset: 3}}
	check := func(when string) {
		t.Helper()
		res, err := n.fetch(p, 0, 1, ReadCommitted)
		n.must(err)
		res.Records.Release()
		if len(res.Aborted) != 1 || res.Aborted[0].ProducerID != 7 || res.Aborted[0].FirstOffset != 0 || res.Aborted[0].LastOffset != 3 {
			t.Errorf("%s: %+v, want %+v", when, res.Aborted, want)
		}
	}
	n.wait("the first segment to be in the bucket only", func() bool { return p.log.Offsets().LocalStart == 2 })
	check("records in the bucket, marker local")
	// What a follower knows of the bucket, which learns from its leader what it need not keep, and reads the manifest now and then.
	late, err := tier.OpenArchive(tier.DefaultConfig(), tier.Deps{Store: n.bucket})
	n.must(err)
	defer func() { n.must(late.Close(context.Background())) }()
	stale := late.Partition(p.ID())
	if s, err := stale.Refresh(context.Background()); err != nil || s.End != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	n.seal(p)
	check("both in the bucket")
	n.wait("the second segment to be in the bucket only", func() bool { return p.log.Offsets().LocalStart == 5 })
	list, err := (&Partition{m: p.m, id: p.id, log: p.log, remote: stale}).abortedCold(context.Background(), 0, 1)
	if err != nil || len(list) != 1 || list[0].FirstOffset != 0 || list[0].LastOffset != 3 {
		t.Errorf("marker in the bucket, by a manifest from before it: %+v, %v; want %+v", list, err, want)
	}
}

func TestDamagedLocalSegmentIsReadFromTheBucket(t *testing.T) {
	n := newNode(t).start()
	defer n.stop()
	p := n.want("events", topic.NewID(), 3, map[string]string{"remote.storage.enable": "true", "retention.ms": "-1", "internal.segment.bytes": "4096"})
	n.produce(p, batch.None, record{ts: 1, value: "a"}, record{ts: 2, value: "b"})
	n.must(p.log.Roll(now()))
	n.wait("the segment to be offloaded", func() bool { s, ok := p.remote.Cached(); return ok && s.End == 2 })
	n.produce(p, batch.None, record{ts: 3, value: "c"})
	f, err := n.disk.OpenAppend(p.log.Dir() + "/00000000000000000000.log")
	n.must(err)
	_, err = f.WriteAt([]byte{0x7f, 0xff, 0xff, 0xff}, 8) // the batch length
	n.must(err)
	n.must(f.Close())
	want := []record{{0, 1, "a"}, {1, 2, "b"}, {2, 3, "c"}}
	if got := n.readAll(p, 0, 1<<20); !slices.Equal(got, want) {
		t.Fatalf("read %v, want %v", got, want)
	}
	if n.cold == 0 && n.hot.Stats().Repaired.Load() == 0 { // it may be mended, from the bucket, before the read looks again
		t.Fatal("the damaged copy was served")
	}
}

// Time lookups must not fail because a local copy is damaged while the bucket holds a good one.
func TestTimeLookupsPassADamagedLocalSegment(t *testing.T) {
	n := newNode(t).start()
	defer n.stop()
	p := n.want("events", topic.NewID(), 3, map[string]string{"remote.storage.enable": "true", "retention.ms": "-1", "internal.segment.bytes": "4096"})
	n.produce(p, batch.None, record{ts: 1, value: "a"}, record{ts: 7, value: "b"})
	n.must(p.log.Roll(now()))
	n.wait("the segment to be offloaded", func() bool { s, ok := p.remote.Cached(); return ok && s.End == 2 })
	n.produce(p, batch.None, record{ts: 3, value: "c"}, record{ts: 9, value: "d"})
	n.must(p.log.Roll(now()))
	n.wait("the second segment to be offloaded", func() bool { s, ok := p.remote.Cached(); return ok && s.End == 4 })
	n.produce(p, batch.None, record{ts: 8, value: "e"}, record{ts: 11, value: "f"})
	check := func(ts, offset, timestamp int64) {
		t.Helper()
		got, err := p.ListOffset(context.Background(), ts, ReadUncommitted, NoReplica, NoEpoch)
		if err != nil || got.Offset != offset || got.Timestamp != timestamp {
			t.Errorf("ListOffset(%d) gave %+v, %v, want offset %d with timestamp %d", ts, got, err, offset, timestamp)
		}
	}
	for _, name := range []string{"/00000000000000000000.log", "/00000000000000000002.log"} {
		f, err := n.disk.OpenAppend(p.log.Dir() + name)
		n.must(err)
		_, err = f.WriteAt([]byte{0x7f, 0xff, 0xff, 0xff}, 8) // the batch length
		n.must(err)
		n.must(f.Close())
		for range 2 { // meeting the damage, and knowing of it
			check(0, 0, 1)
			check(2, 1, 7)
			check(8, 3, 9)
			check(10, 5, 11)
			check(12, NoOffset, NoTimestamp)
			check(TimeMax, 5, 11)
		}
	}
}
