package replica

import (
	"context"
	"errors"
	"math"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
)

// TestDoubtIsOnlyWhereDamageHidesAnEpoch loses the file of leader epochs and damages the first batch of one: where the one before it ended
// is hidden. Whoever asks for that waits. Everybody else is served, above all the followers of the next leader.
func TestDoubtIsOnlyWhereDamageHidesAnEpoch(t *testing.T) {
	n := startNode(t)
	id := topic.NewID()
	var p *Partition
	for _, epoch := range []int32{3, 5, 7} { // from offsets 0, 4 and 8 on
		p = n.want("events", id, epoch, nil)
		for range 4 {
			n.produce(p, batch.None, record{ts: now(), value: strings.Repeat("x", 40)})
		}
		n.must(p.log.Roll(now()))
	}
	n.wait("the watermark", func() bool { return p.log.HighWatermark() == 12 })
	dir := p.log.Dir()
	n.stop()
	n.must(n.disk.Remove(path.Join(dir, "leader-epochs")))
	(&member{node: n}).rot(p, 4)
	n.start()
	p = n.want("events", id, 9, nil)
	if p.log.Lineage(); !p.log.Doubtful() || len(p.log.Damaged()) != 1 {
		t.Fatalf("doubtful %t, damage %+v", p.log.Doubtful(), p.log.Damaged())
	}
	n.wait("it to be sure that nobody has what is damaged", func() bool { return p.damage.verdict.Load().holds(p) })
	if epoch, end, err := p.EndOffsetForEpoch(9, 3); err != nil || epoch != 3 || end != 5 {
		t.Fatalf("epoch %d ends at %d, %v: it ended at 5 at the latest", epoch, end, err)
	}

	n.appendOne(p, 1)
	n.leads(p, 10, 10, 1, 1) // with a replica that may have it
	for _, c := range []struct {
		asked int32
		end   int64
		err   error
	}{{3, NoOffset, ErrOffsetNotAvailable}, {4, NoOffset, ErrOffsetNotAvailable}, {5, 8, nil}, {6, 8, nil}, {7, 12, nil}, {9, 13, nil}, {10, 13, nil}} {
		if _, end, err := p.EndOffsetForEpoch(10, c.asked); !errors.Is(err, c.err) || end != c.end {
			t.Errorf("epoch %d ends at %d, %v; want %d, %v", c.asked, end, err, c.end, c.err)
		}
	}
	for _, c := range []struct {
		what      string
		replica   int32
		offset    int64
		last      int32
		err       error
		diverging *Diverging
	}{
		{"a follower at the end", 2, 13, 9, nil, nil},
		{"a follower that was not there in the last epoch", 2, 12, 7, nil, nil},
		{"a follower below the damage", 2, 3, 3, nil, nil},
		{"a follower that has too much", 2, 13, 7, nil, &Diverging{Epoch: 7, EndOffset: 12}},
		{"a follower of another history below the damage", 2, 4, 4, nil, &Diverging{Epoch: 3, EndOffset: 5}},
		{"a follower that may have other records", 2, 5, 3, ErrOffsetNotAvailable, nil},
		{"a follower with a record of the epoch whose beginning is hidden", 2, 5, 5, nil, nil},
		{"a follower with all of that epoch", 2, 8, 5, nil, nil},
		{"a follower that has too much of that epoch", 2, 9, 5, nil, &Diverging{Epoch: 5, EndOffset: 8}},
		{"a consumer", NoReplica, 5, 3, nil, nil},
		{"a consumer of an epoch that may be hidden", NoReplica, 5, 4, nil, nil},
	} {
		res, err := p.Read(ReadRequest{Offset: c.offset, MaxBytes: math.MaxInt32, MinOne: true, CurrentEpoch: 10, LastFetchedEpoch: c.last, ReplicaID: c.replica})
		if !errors.Is(err, c.err) || (res.Diverging == nil) != (c.diverging == nil) || c.diverging != nil && *res.Diverging != *c.diverging {
			t.Errorf("%s: %+v, %v; want %+v, %v", c.what, res.Diverging, err, c.diverging, c.err)
		}
		if res.Records != nil {
			res.Records.Release()
		}
	}
	for offset, want := range map[int64]int32{3: 3, 4: NoEpoch, 5: NoEpoch, 12: 9} {
		if got, below := (&tierLog{p: p, epoch: 10}).EpochAt(offset); got != want || below {
			t.Errorf("offset %d is of epoch %d (below: %t), want %d", offset, got, below, want)
		}
	}
}

// hideEpoch has broker 1 lead alone in a doubtful log: its leader epochs are lost, and so many batches damaged of the middle one of three,
// which begins at offset 4. Broker 2 is down; its log ends with that epoch, at 8.
func hideEpoch(t *testing.T, batches int64) (c *cluster, acked map[int64]string) {
	t.Helper()
	c = startCluster(t, 2, hot.Fsync, nil)
	c.topic("events", []int32{1, 2}, "min.insync.replicas", "1")
	a, b := c.nodes[0], c.nodes[1]
	acked = make(map[int64]string)
	c.produceAll("events", 4, acked)
	c.inSync("events", 2)
	a.kill(false, 0)
	c.produceAll("events", 4, acked) // led by 2
	a.boot(false)
	c.inSync("events", 2)
	if batches == 1 {
		b.kill(false, 0) // what it had heard of the watermark is forgotten
	} else {
		b.set(false)
		b.must(c.quorum.FenceBroker(context.Background(), b.id, b.epoch.Load()))
		b.stop()
	}
	c.produceAll("events", 4, acked) // led by 1 alone
	p := c.held(1, "events")
	chain := p.log.Lineage()
	if len(chain) != 3 || chain[1].Start != 4 || chain[2].Start != 8 {
		t.Fatalf("epochs are %v", chain)
	}
	dir := p.log.Dir()
	a.set(false)
	a.must(c.quorum.FenceBroker(context.Background(), a.id, a.epoch.Load()))
	a.stop()
	a.must(a.disk.Remove(path.Join(dir, "leader-epochs")))
	for offset := range batches {
		a.rot(p, 4+offset)
	}
	a.boot(false)
	c.leader("events")
	p = c.held(1, "events")
	if p.log.Lineage(); !p.log.Doubtful() || !slices.Equal(c.state("events").ISR, []int32{1}) {
		t.Fatalf("doubtful %t, %+v", p.log.Doubtful(), c.state("events"))
	}
	return c, acked
}

// TestFollowerGivesADoubtfulLeaderWhatItLacks has a follower come back that has what is damaged, and does not know any more that it is
// committed. It is not told to wait for its leader, which waits for it.
func TestFollowerGivesADoubtfulLeaderWhatItLacks(t *testing.T) {
	c, acked := hideEpoch(t, 1)
	p := c.held(1, "events")
	b := c.nodes[1]
	c.wait("the follower to be waited for", func() bool { p.hurryMending(); return len(p.Damage().Waits) == 1 })
	b.boot(false)
	c.wait("the damage to be mended", func() bool {
		p.hurryMending()
		return !p.Damage().Any() && !p.log.Doubtful()
	})
	if got := p.log.Lineage(); len(got) != 4 || got[1].Start != 4 || got[2].Start != 8 {
		t.Fatalf("epochs are %v", got)
	}
	c.produceAll("events", 4, acked)
	c.whole("events", acked)
}

// TestFollowerThatMayHaveWhatIsHiddenIsNeitherCutNorLetIn keeps the leader from asking the follower, of whose last epoch it knows nothing.
func TestFollowerThatMayHaveWhatIsHiddenIsNeitherCutNorLetIn(t *testing.T) {
	c, acked := hideEpoch(t, 4)
	p, b := c.held(1, "events"), c.nodes[1]
	c.part(1, 2, true)
	b.boot(false)
	other := c.held(2, "events")
	c.wait("the follower to have asked several times", func() bool {
		return c.undecided.Load() > 3 || other.log.Offsets().End != 8 || len(c.state("events").ISR) > 1
	})
	if o := other.log.Offsets(); o.End != 8 || other.log.Lineage().Latest() != 1 || len(c.state("events").ISR) > 1 {
		t.Fatalf("the follower has %+v, epochs %v; in sync are %v", o, other.log.Lineage(), c.state("events").ISR)
	}
	if d := p.Damage(); !p.log.Doubtful() || d.Lost || !d.HoldsProducers {
		t.Fatalf("nobody was asked, and it says %+v", d)
	}
	c.part(1, 2, false)
	c.wait("the damage to be mended", func() bool {
		p.hurryMending()
		return !p.Damage().Any() && !p.log.Doubtful()
	})
	c.produceAll("events", 4, acked)
	c.whole("events", acked)
}

// TestDoubtReachesDownToTheFirstDamage hides the beginnings of two epochs. That one of them is mended ends no doubt, nor does another
// start: what was derived without damage is derived again when nothing is damaged any more.
func TestDoubtReachesDownToTheFirstDamage(t *testing.T) {
	n := startNode(t)
	id := topic.NewID()
	var p *Partition
	for _, epoch := range []int32{3, 5, 7, 8} { // from offsets 0, 4, 8 and 12 on; the journal knows where the last one begins
		p = n.want("events", id, epoch, nil)
		for range 4 {
			n.produce(p, batch.None, record{ts: now(), value: strings.Repeat("x", 40)})
		}
		n.must(p.log.Roll(now()))
	}
	n.wait("the watermark", func() bool { return p.log.HighWatermark() == 16 })
	sound := make(map[int64][]byte)
	for _, offset := range []int64{4, 8} {
		slice, err := p.log.Read(offset, 1, offset+1, true)
		n.must(err)
		b, err := slice.Bytes()
		n.must(err)
		sound[offset] = slices.Clone(b)
		slice.Release()
	}
	dir := p.log.Dir()
	n.stop()
	n.must(n.disk.Remove(path.Join(dir, "leader-epochs")))
	for offset := range sound {
		(&member{node: n}).rot(p, offset)
	}
	epoch := int32(9)
	start := func(damaged int, from int64) {
		t.Helper()
		n.start()
		p = n.want("events", id, epoch, nil)
		if p.log.Lineage(); !p.log.Doubtful() || len(p.log.Damaged()) != damaged || p.log.IncompleteFrom() > from {
			t.Fatalf("doubtful %t from %d on, damage %+v", p.log.Doubtful(), p.log.IncompleteFrom(), p.log.Damaged())
		}
		epoch++
		n.leads(p, epoch, epoch, 1, 1) // with a replica that may have it
	}
	wait := func(when string) {
		t.Helper()
		for _, c := range []struct {
			offset int64
			last   int32
		}{{5, 3}, {8, 5}, {9, 5}} {
			r := ReadRequest{Offset: c.offset, MaxBytes: math.MaxInt32, MinOne: true, CurrentEpoch: epoch, LastFetchedEpoch: c.last, ReplicaID: 2}
			res, err := p.Read(r)
			if !errors.Is(err, ErrOffsetNotAvailable) {
				t.Fatalf("%s: who ends with epoch %d at %d is told %+v, %v", when, c.last, c.offset, res, err)
			}
		}
	}
	start(2, 4)
	wait("at the first start")
	n.must(p.log.Repair(p.log.Damaged()[0], sound[4]))
	if p.log.IncompleteFrom() != 4 || !p.log.Doubtful() {
		t.Fatalf("doubtful %t from %d on, and it has not derived again", p.log.Doubtful(), p.log.IncompleteFrom())
	}
	r := ReadRequest{Offset: 9, MaxBytes: math.MaxInt32, MinOne: true, CurrentEpoch: epoch, LastFetchedEpoch: 5, ReplicaID: 2}
	if _, err := p.Read(r); !errors.Is(err, ErrOffsetNotAvailable) {
		t.Fatalf("with one of two mended it is told %v", err)
	}
	n.stop()
	start(1, 4)
	r.CurrentEpoch = epoch
	if _, err := p.Read(r); !errors.Is(err, ErrOffsetNotAvailable) {
		t.Fatalf("after another start it is told %v", err)
	}
	n.must(p.log.Repair(p.log.Damaged()[0], sound[8]))
	if p.log.IncompleteFrom() != 0 || p.log.Doubtful() {
		t.Fatalf("nothing is damaged, and it is doubtful: %t, from %d on", p.log.Doubtful(), p.log.IncompleteFrom())
	}
	if res, err := p.Read(r); err != nil || res.Diverging == nil || *res.Diverging != (Diverging{Epoch: 5, EndOffset: 8}) {
		t.Fatalf("epoch 5 ended at 8, and who has more of it is told %+v, %v", res, err)
	}
}
