package replica

import (
	"errors"
	"math"
	"path"
	"strings"
	"testing"

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
	}{{3, NoOffset, ErrOffsetNotAvailable}, {7, 12, nil}, {9, 13, nil}, {10, 13, nil}} {
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
