package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"testing"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta"
)

// small are settings of a topic with many segments.
var small = []string{"internal.segment.bytes", "2000", "index.interval.bytes", "200", "min.insync.replicas", "2"}

// rot flips bytes of the batch that holds an offset in a broker's log, on its disk.
func (m *member) rot(p *Partition, offset int64) {
	m.t.Helper()
	segments, err := p.log.Segments()
	m.must(err)
	i := slices.IndexFunc(segments, func(s hot.SegmentInfo) bool { return s.BaseOffset <= offset && offset < s.EndOffset })
	if i < 0 {
		m.t.Fatalf("offset %d is in no segment of %+v", offset, segments)
	}
	f, err := m.disk.OpenAppend(path.Join(p.log.Dir(), fmt.Sprintf("%020d.log", segments[i].BaseOffset)))
	m.must(err)
	defer f.Close()
	for pos := int64(0); ; {
		head := make([]byte, batch.HeaderSize)
		_, err := f.ReadAt(head, pos)
		m.must(err)
		h, err := batch.PeekHeader(head)
		m.must(err)
		if h.LastOffset() >= offset {
			_, err = f.WriteAt([]byte{'r', 'o', 't'}, pos+batch.HeaderSize+20)
			m.must(err)
			return
		}
		pos += int64(h.SizeBytes())
	}
}

// consume reads a partition as a client of one broker does, and fails on wrong bytes. It returns the offsets that were refused.
func (m *member) consume(name string, want map[int64]string) (refused []int64) {
	m.t.Helper()
	p := m.c.held(m.id, name)
	for at := p.log.Offsets().LogStart; at < p.log.HighWatermark(); {
		r := ReadRequest{Offset: at, MaxBytes: 1 << 20, MinOne: true, CurrentEpoch: NoEpoch, LastFetchedEpoch: NoEpoch, ReplicaID: NoReplica, AnyReplica: true}
		res, err := p.Read(r)
		if err == nil && res.Cold {
			res, err = p.ReadCold(context.Background(), r)
		}
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				m.t.Fatalf("broker %d, offset %d: %v", m.id, at, err)
			}
			refused = append(refused, at)
			at++
			continue
		}
		if res.Records == nil {
			m.t.Fatalf("broker %d gives nothing at %d, and the watermark is %d", m.id, at, p.log.HighWatermark())
		}
		at = m.records(res, at, want)
	}
	return refused
}

// records compares an answer's records from an offset on with what was acknowledged, and says where the next read goes on.
func (m *member) records(res ReadResult, from int64, want map[int64]string) (next int64) {
	m.t.Helper()
	for b := sent(m.t, res.Records); len(b) > 0; {
		one, rest, err := batch.Next(b)
		m.must(err)
		m.must(one.VerifyCRC())
		for r, err := range one.Records(batch.Limits{}) {
			m.must(err)
			if value, ok := want[r.Offset]; ok && r.Offset >= from && string(r.Value) != value {
				m.t.Fatalf("broker %d has %q at %d, acknowledged was %q", m.id, r.Value, r.Offset, value)
			}
		}
		next, b = one.NextOffset(), rest
	}
	return next
}

// whole waits until nothing is damaged on any broker, everybody is in sync, and all have the same bytes.
func (c *cluster) whole(name string, acked map[int64]string) {
	c.t.Helper()
	c.wait("the damage to be mended", func() bool {
		for _, id := range c.state(name).Replicas {
			p, err := c.nodes[id-1].m.Partition(name, 0)
			if err != nil || len(p.log.Damaged()) > 0 {
				return false
			}
		}
		return true
	})
	c.inSync(name, len(c.state(name).Replicas))
	for _, id := range c.state(name).Replicas {
		if refused := c.nodes[id-1].consume(name, acked); len(refused) > 0 {
			c.t.Fatalf("broker %d refuses %v", id, refused)
		}
	}
	c.holds(name, acked)
	c.same(name)
}

// TestDamageThatAReaderFindsIsMendedFromAnotherReplica damages sealed and active segments of leader and follower in turn.
func TestDamageThatAReaderFindsIsMendedFromAnotherReplica(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	c.topic("events", []int32{1, 2, 3}, small...)
	acked := make(map[int64]string)
	for _, id := range []int32{1, 2} {
		c.produceAll("events", 40, acked)
		c.inSync("events", 3)
		m, p := c.nodes[id-1], c.held(id, "events")
		end := p.log.Offsets().End
		for _, offset := range []int64{0, 7, 8, end - 2} {
			m.rot(p, offset)
		}
		m.consume("events", acked) // what it refuses at first is mended soon
		c.whole("events", acked)
		if n := m.hot.Stats().Repaired.Load(); n == 0 || c.state("events").Leader != 1 {
			t.Fatalf("%d repairs on broker %d, leader is %d", n, id, c.state("events").Leader)
		}
	}
}

// TestFollowerWithDamageCountsForNothingUntilItIsMended keeps the follower from every source.
func TestFollowerWithDamageCountsForNothingUntilItIsMended(t *testing.T) {
	c := startCluster(t, 2, hot.Fsync, lagging)
	c.topic("events", []int32{1, 2}, "internal.segment.bytes", "2000", "min.insync.replicas", "1")
	acked := make(map[int64]string)
	c.produceAll("events", 30, acked)
	c.inSync("events", 2)
	leader, follower := c.held(1, "events"), c.held(2, "events")
	// The leader's copy is damaged there as well, so that it is nowhere.
	c.nodes[0].rot(leader, 5)
	c.nodes[1].rot(follower, 5)
	if refused := c.nodes[1].consume("events", acked); !slices.Equal(refused, []int64{5}) {
		t.Fatalf("refused is %v, damaged 5", refused)
	}
	c.wait("the follower to leave the in-sync set", func() bool { return slices.Equal(c.state("events").ISR, []int32{1}) })
	c.produceAll("events", 5, acked)
	if refused := c.nodes[0].consume("events", acked); !slices.Equal(refused, []int64{5}) {
		t.Fatalf("refused is %v, damaged 5", refused)
	}
	// Somebody has it after all.
	for _, p := range []*Partition{leader} {
		d := p.log.Damaged()
		if len(d) != 1 {
			t.Fatalf("damage of the leader is %+v", d)
		}
		value := build(t, batch.None, record{ts: now(), value: acked[5]})
		if err := p.log.Repair(d[0], value); err == nil {
			t.Fatal("a batch without offset and epoch was taken for the damaged one")
		}
	}
}

// TestDamageOfTheOnlyCopyIsRefusedAndNothingElseIs has one replica and no bucket.
func TestDamageOfTheOnlyCopyIsRefusedAndNothingElseIs(t *testing.T) {
	c := startCluster(t, 1, hot.Fsync, nil)
	c.topic("events", []int32{1}, "internal.segment.bytes", "2000", "index.interval.bytes", "200")
	acked := make(map[int64]string)
	c.produceAll("events", 40, acked)
	m, p := c.nodes[0], c.held(1, "events")
	m.rot(p, 3)
	m.rot(p, p.log.Offsets().End-2)
	want := []int64{3, p.log.Offsets().End - 2}
	for range 2 {
		if refused := m.consume("events", acked); !slices.Equal(refused, want) {
			t.Fatalf("refused is %v, damaged %v", refused, want)
		}
		c.produceAll("events", 5, acked)
		m.kill(false, 0) // what is bad below the watermark is no torn tail
		m.boot(false)
		c.leader("events")
		p = c.held(1, "events")
		c.wait("the watermark", func() bool { return p.log.HighWatermark() == p.log.Offsets().End })
	}
	places, err := p.Segments(context.Background())
	if err != nil || !places[0].Damaged {
		t.Fatalf("segments are %+v, %v", places, err)
	}
}

// TestOnlyCopyIsMendedFromTheBucket has one replica, and everything sealed is in the bucket.
func TestOnlyCopyIsMendedFromTheBucket(t *testing.T) {
	c := startCluster(t, 1, hot.Fsync, nil)
	c.topic("events", []int32{1}, "internal.segment.bytes", "2000", "remote.storage.enable", "true", "local.retention.ms", "3600000", "retention.ms", "-1")
	acked := make(map[int64]string)
	c.produceAll("events", 40, acked)
	m, p := c.nodes[0], c.held(1, "events")
	c.wait("the sealed segments to be in the bucket", func() bool { return c.remoteEnd(p) > 20 })
	m.rot(p, 3)
	if refused := m.consume("events", acked); len(refused) > 0 {
		t.Fatalf("refused is %v, and the bucket has it", refused)
	}
	c.wait("the damage to be mended", func() bool { return len(p.log.Damaged()) == 0 })
	if m.hot.Stats().Repaired.Load() != 1 {
		t.Fatal("not repaired in place")
	}
	c.holds("events", acked)
}

// TestDamageIsFoundByTheUploadAndNeverUploaded has the tier manager meet the damage first.
func TestDamageIsFoundByTheUploadAndNeverUploaded(t *testing.T) {
	c := startCluster(t, 2, hot.Fsync, nil)
	c.topic("events", []int32{1, 2}, "internal.segment.bytes", "20000", "remote.storage.enable", "true", "local.retention.ms", "3600000", "retention.ms", "-1", "min.insync.replicas", "2")
	acked := make(map[int64]string)
	c.produceAll("events", 40, acked) // one segment, which is not sealed yet
	c.inSync("events", 2)
	m, p := c.nodes[0], c.held(1, "events")
	m.rot(p, 3)
	m.must(p.log.Roll(now()))
	c.wait("the segment to be in the bucket", func() bool { return c.remoteEnd(p) >= 40 })
	if m.hot.Stats().Repaired.Load() != 1 {
		t.Fatal("the upload took what was damaged")
	}
	res, err := p.remote.Read(context.Background(), 0, 1<<20, 40)
	m.must(err)
	if m.records(ReadResult{Records: res}, 0, acked) < 40 {
		t.Fatal("the bucket has less than was uploaded")
	}
	c.whole("events", acked)
}

// TestLeaderThatSendsDamageStepsBack damages what no follower has yet: they refuse it, the leader finds it nowhere else, and an
// in-sync follower takes over.
func TestLeaderThatSendsDamageStepsBack(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	c.topic("events", []int32{1, 2, 3}, small...)
	acked := make(map[int64]string)
	c.produceAll("events", 10, acked)
	c.inSync("events", 3)
	for _, id := range []int32{2, 3} {
		c.part(id, 1, true)
	}
	m, p := c.nodes[0], c.held(1, "events")
	end := p.log.Offsets().End
	for range 3 {
		_, err := p.Append(build(t, batch.None, record{ts: now(), value: "never acknowledged"}), AppendRequest{Acks: 1, Version: 12, Now: now()})
		m.must(err)
	}
	m.rot(p, end+1)
	for _, id := range []int32{2, 3} {
		c.part(id, 1, false)
	}
	c.wait("another leader", func() bool { s := c.state("events"); return s.Leader > 0 && s.Leader != 1 })
	c.produceAll("events", 10, acked)
	c.whole("events", acked)
	if c.quorum.Image().Brokers[1].Fenced {
		t.Fatal("one damaged partition is no reason to fence a broker")
	}
}

// TestFollowerBeginsAnewWhenItsDamageCannotBeMendedInPlace has it be larger than what is mended so.
func TestFollowerBeginsAnewWhenItsDamageCannotBeMendedInPlace(t *testing.T) {
	c := startCluster(t, 2, hot.Fsync, nil)
	c.nodes[1].m.mendMax = 1
	c.topic("events", []int32{1, 2}, "internal.segment.bytes", "2000", "min.insync.replicas", "1")
	acked := make(map[int64]string)
	c.produceAll("events", 30, acked)
	c.inSync("events", 2)
	m, p := c.nodes[1], c.held(2, "events")
	m.rot(p, 5)
	if refused := m.consume("events", acked); !slices.Equal(refused, []int64{5}) {
		t.Fatalf("refused is %v, damaged 5", refused)
	}
	epoch := c.state("events").PartitionEpoch
	c.whole("events", acked)
	if c.state("events").PartitionEpoch < epoch+1 {
		t.Fatal("it was counted on while it was empty")
	}
}

// shorten cuts the end off a dead broker's log, which it had synced.
func (m *member) shorten(dir string, base, size int64) {
	m.t.Helper()
	f, err := m.disk.OpenAppend(path.Join(dir, fmt.Sprintf("%020d.log", base)))
	m.must(err)
	m.must(errors.Join(f.Truncate(size), f.Sync(), f.Close()))
}

// TestReplicaWhoseEndIsMissingDoesNotLead loses the end of a log that was committed there.
func TestReplicaWhoseEndIsMissingDoesNotLead(t *testing.T) {
	for _, min := range []string{"2", "1"} {
		t.Run("min.insync.replicas="+min, func(t *testing.T) {
			c := startCluster(t, 2, hot.Fsync, nil)
			c.topic("events", []int32{1, 2}, "min.insync.replicas", min)
			acked := make(map[int64]string)
			c.produceAll("events", 20, acked)
			c.inSync("events", 2)
			a, b := c.nodes[0], c.nodes[1]
			p := c.held(1, "events")
			dir := p.log.Dir()
			b.kill(false, 0)
			c.wait("1 to be in sync alone", func() bool { return slices.Equal(c.state("events").ISR, []int32{1}) })
			a.set(false)
			a.must(c.quorum.FenceBroker(context.Background(), a.id, a.epoch.Load()))
			a.stop()
			a.shorten(dir, 0, 300)
			a.boot(false)
			if min == "1" {
				// Nobody else may lead, and what is there stays as it is.
				c.offline(1, "events")
				if size := a.size(dir, 0); size != 300 {
					t.Fatalf("%d bytes are left of 300", size)
				}
				b.boot(false)
				c.offline(1, "events")
				a.kill(false, 0) // its disk has failed, a stop would say
				return
			}
			c.wait("the leadership to be declined", func() bool { return c.state("events").Leader == -1 })
			if s := c.state("events"); !slices.Equal(s.ELR, []int32{2}) || !slices.Equal(s.LastKnownELR, []int32{1}) {
				t.Fatalf("%+v", s)
			}
			b.boot(false)
			c.wait("2 to lead", func() bool { return c.state("events").Leader == 2 })
			c.inSync("events", 2)
			c.holds("events", acked)
			c.same("events")
			if c.state("events").UncleanEpoch != 0 {
				t.Fatal("nothing was lost, so no election was unclean")
			}
		})
	}
}

// size is that of a segment's file.
func (m *member) size(dir string, base int64) int64 {
	m.t.Helper()
	info, err := m.disk.Stat(path.Join(dir, fmt.Sprintf("%020d.log", base)))
	m.must(err)
	return info.Size()
}

// offline waits until a broker's log is offline, and nobody leads in its place.
func (c *cluster) offline(id int32, name string) {
	c.t.Helper()
	p := c.held(id, name)
	c.wait("the log to be offline", func() bool { return errors.Is(p.role.Load().err, ErrOffline) })
	for _, m := range c.nodes {
		if m.id != id && m.running() != nil && c.held(m.id, name).role.Load().err == nil {
			c.t.Fatalf("broker %d leads", m.id)
		}
	}
	if s := c.state(name); s.UncleanEpoch != 0 || s.Leader > 0 && s.Leader != id {
		c.t.Fatalf("somebody else was elected, and the topic allows no unclean leader: %+v", s)
	}
}

// TestLoneLeaderWhoseBytesAreGoneStaysOffline restarts the only in-sync replica one byte short of what it had synced, while the
// others lag. Its directory is the best there is, so it stays, and nobody follows it to an empty log.
func TestLoneLeaderWhoseBytesAreGoneStaysOffline(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	c.topic("events", []int32{1, 2, 3}, "min.insync.replicas", "1")
	acked := make(map[int64]string)
	c.produceAll("events", 20, acked)
	c.inSync("events", 3)
	a := c.nodes[0]
	for _, m := range c.nodes[1:] {
		m.kill(false, 0)
	}
	c.wait("1 to be in sync alone", func() bool { return slices.Equal(c.state("events").ISR, []int32{1}) })
	c.produceAll("events", 5, acked)
	dir := c.held(1, "events").log.Dir()
	a.set(false)
	a.must(c.quorum.FenceBroker(context.Background(), a.id, a.epoch.Load()))
	a.stop()
	short := a.size(dir, 0) - 1
	a.shorten(dir, 0, short)
	a.boot(false)
	for _, m := range c.nodes[1:] {
		m.boot(false)
	}
	c.offline(1, "events")
	if size := a.size(dir, 0); size != short {
		t.Fatalf("%d bytes are left of %d", size, short)
	}
	for id := int32(2); id <= 3; id++ {
		if end := c.held(id, "events").log.Offsets().End; end != 20 {
			t.Fatalf("broker %d ends at %d, it had 20", id, end)
		}
	}
	a.kill(false, 0) // its disk has failed, a stop would say
}

// TestOfflineFollowerThatIsElectedHandsOn has the disk of a follower fail while its broker goes on.
func TestOfflineFollowerThatIsElectedHandsOn(t *testing.T) {
	c := startCluster(t, 3, hot.Fsync, nil)
	c.topic("events", []int32{1, 2, 3}, "min.insync.replicas", "1")
	acked := make(map[int64]string)
	c.produceAll("events", 10, acked)
	c.inSync("events", 3)
	c.held(2, "events").goOffline(errCut)
	c.nodes[0].kill(false, 0)
	c.wait("3 to lead", func() bool { return c.state("events").Leader == 3 })
	if s := c.state("events"); s.UncleanEpoch != 0 {
		t.Fatalf("%+v", s)
	}
	c.produceAll("events", 5, acked)
	p := c.held(2, "events")
	c.wait("2 to want no other leader any more", func() bool { return p.unfit.Load() == nil })
}

// TestStaleDeclineIsMadeAgain has the partition change between the decline and its arrival.
func TestStaleDeclineIsMadeAgain(t *testing.T) {
	c := startCluster(t, 2, hot.Fsync, nil)
	c.topic("events", []int32{1, 2}, "min.insync.replicas", "1")
	c.inSync("events", 2)
	p := c.held(1, "events")
	newer := *p.leadership.Load()
	older := newer
	older.PartitionEpoch--
	p.unfit.Store(&older)
	if !p.stepped(p.decline(older), meta.ErrInvalidUpdateVersion) || p.unfit.Load().PartitionEpoch != newer.PartitionEpoch {
		t.Fatal("the newer image is not declined")
	}
	if p.stepped(p.decline(newer), meta.ErrInvalidUpdateVersion) {
		t.Fatal("declined again before there is a newer image")
	}
	p.unfit.Store(nil)
}

// TestRecoveringLeaderWhoseLogHasFailedGoesOffline instead of waiting for a log that will never be durable.
func TestRecoveringLeaderWhoseLogHasFailedGoesOffline(t *testing.T) {
	c := startCluster(t, 1, hot.Fsync, nil)
	c.topic("events", []int32{1}, "remote.storage.enable", "true")
	p, m := c.held(1, "events"), c.nodes[0].m
	l := *p.leadership.Load()
	l.Epoch, l.Unclean, l.Recovering = l.Epoch+1, l.Epoch+1, true
	c.nodes[0].set(false)
	c.nodes[0].hot.Abandon()
	err := m.apply(&slot{id: p.id, p: p}, desired{leads: true, state: l, settings: p.settings.Load()})
	if err == nil || !errors.Is(p.role.Load().err, ErrOffline) || p.mending.Load() {
		t.Fatalf("%v, role is %+v", err, p.role.Load())
	}
	c.nodes[0].stopDead()
}

// TestLogThatBeginsAnewGoesOnAtWhatItHad loses the directory of the only replica.
func TestLogThatBeginsAnewGoesOnAtWhatItHad(t *testing.T) {
	c := startCluster(t, 1, hot.Fsync, nil)
	c.topic("events", []int32{1})
	acked := make(map[int64]string)
	c.produceAll("events", 20, acked)
	a := c.nodes[0]
	dir := c.held(1, "events").log.Dir()
	a.stop()
	a.must(a.disk.Rename(dir, dir+"-elsewhere"))
	a.boot(false)
	c.leader("events")
	if o := c.held(1, "events").log.Offsets(); o.End != 20 || o.LogStart != 20 {
		t.Fatalf("the log has %+v, and 20 offsets were handed out", o)
	}
	c.produceAll("events", 5, make(map[int64]string))
}

// sent is what a client gets of an answer's records.
func sent(t tester, r Records) []byte {
	t.Helper()
	defer r.Release()
	var buf bytes.Buffer
	if _, err := r.WriteTo(&buf); err != nil {
		t.Fatalf("%v", err)
	}
	return buf.Bytes()
}

// TestTieredLogThatBeginsAnewGoesOnAtTheBucketsEnd loses the directory of the only replica, and with it what was not in the bucket
// yet. The bucket takes no gap, so offsets that were handed out are handed out again, in a later epoch: a reader of the earlier one
// hears that its history has ended there.
func TestTieredLogThatBeginsAnewGoesOnAtTheBucketsEnd(t *testing.T) {
	c := startCluster(t, 1, hot.Fsync, nil)
	c.topic("events", []int32{1}, "internal.segment.bytes", "2000", "remote.storage.enable", "true", "local.retention.ms", "3600000", "retention.ms", "-1")
	acked := make(map[int64]string)
	c.produceAll("events", 40, acked)
	a, p := c.nodes[0], c.held(1, "events")
	var remote int64
	c.wait("the sealed segments to be in the bucket", func() bool {
		segments, err := p.log.Segments()
		a.must(err)
		remote = c.remoteEnd(p)
		return remote == segments[len(segments)-1].BaseOffset && remote > 0
	})
	had, epoch := p.log.Offsets().End, p.log.Lineage().Latest()
	if remote >= had {
		t.Fatalf("nothing is missing in the bucket, which ends at %d of %d", remote, had)
	}
	dir := p.log.Dir()
	a.stop()
	a.must(a.disk.Rename(dir, dir+"-elsewhere"))
	a.boot(false)
	c.leader("events")
	p = c.held(1, "events")
	o := p.log.Offsets()
	s := c.state("events")
	if o.End != remote || o.LocalStart != remote {
		t.Fatalf("the log has %+v, the bucket ends at %d, %d offsets were handed out", o, remote, had)
	}
	if s.UncleanEpoch <= epoch || p.log.Lineage().Latest() <= epoch {
		t.Fatalf("the loss is not on record: %+v, lineage %v", s, p.log.Lineage())
	}
	for offset := range acked {
		if offset >= remote {
			delete(acked, offset)
		}
	}
	c.produceAll("events", int(had-remote)+5, acked)
	if refused := a.consume("events", acked); len(refused) > 0 {
		t.Fatalf("refused is %v", refused)
	}
	r := ReadRequest{Offset: had, MaxBytes: 1 << 20, CurrentEpoch: NoEpoch, LastFetchedEpoch: epoch, ReplicaID: NoReplica}
	res, err := p.Read(r)
	a.must(err)
	if res.Diverging == nil || res.Diverging.EndOffset != remote {
		t.Fatalf("who has read up to %d in epoch %d hears %+v", had, epoch, res)
	}
}
