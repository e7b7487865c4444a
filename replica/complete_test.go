package replica

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier"
	"github.com/varvelog/varve/tier/objstore"
)

// ofProducer appends a batch of a producer.
func (n *node) ofProducer(p *Partition, id int64, seq int32, txn bool) Appended {
	n.t.Helper()
	b := batch.NewBuilder(batch.Options{Transactional: txn, Producer: &batch.Producer{ID: id, Sequence: seq}})
	n.must(b.Append(now(), nil, []byte("value"), nil))
	a, err := p.Append(slices.Clone([]byte(b.Bytes())), AppendRequest{Acks: 1, Version: 12, Now: now(), TxnVerified: txn})
	n.must(err)
	return a
}

// TestProducersThatRetentionTookAreToldByTheBucket has local retention take a damaged segment of which only the bucket knows the
// producers, before it could be mended.
func TestProducersThatRetentionTookAreToldByTheBucket(t *testing.T) {
	for _, gone := range []bool{false, true} {
		store := objstore.NewFaulty(objstore.NewMem(0), 1)
		n := newNode(t)
		n.bucket = store
		n.start()
		id, epoch := topic.NewID(), int32(3)
		keep := map[string]string{"remote.storage.enable": "true", "retention.ms": "-1", "internal.segment.bytes": "4096", "local.retention.bytes": "-2"}
		p := n.want("events", id, epoch, keep)
		first := n.ofProducer(p, 7, 0, false)
		n.ofProducer(p, 8, 0, true)
		n.must(p.log.Roll(now()))
		n.ofProducer(p, 9, 0, false)
		n.must(p.log.Roll(now()))
		end := p.log.Offsets().End
		n.ofProducer(p, 7, 1, false)
		if _, err := p.Append(slices.Clone([]byte(batch.EndTxn(batch.Marker{Type: batch.Abort}, 8, 0, now()))), AppendRequest{Acks: 1, Version: 12, Now: now(), Origin: FromCoordinator}); err != nil {
			t.Fatal(err)
		}
		marked := p.log.Offsets().End
		// What is open keeps a segment from the bucket: all below is there once the transaction has ended.
		n.wait("the sealed segments to be in the bucket", func() bool {
			s, ok := p.remote.Cached()
			return ok && s.End == end && p.log.LastStable() == marked
		})
		want, err := p.Producers()
		n.must(err)
		dir := p.log.Dir()
		n.stop()
		(&member{node: n}).rot(p, 0)
		entries, err := n.disk.ReadDir(dir)
		n.must(err)
		for _, e := range entries { // producers are read off the records
			if strings.HasSuffix(e.Name(), ".snapshot") {
				n.must(n.disk.Remove(path.Join(dir, e.Name())))
			}
		}
		segments := objstore.Rule{Op: objstore.OpGet, Fault: objstore.FaultSlowDown, Only: func(_ objstore.Op, key string) bool {
			k, _ := tier.DefaultConfig().ParseKey(key)
			return k.Kind == tier.KeySegment
		}}
		store.Set(segments)
		n.start()
		epoch++
		p = n.want("events", id, epoch, keep)
		if _, err := p.Producers(); err != nil {
			t.Fatal(err)
		}
		waits := func(source string) func() bool {
			return func() bool {
				p.hurryMending()
				d := p.Damage()
				return d.Lost || len(d.Waits) == 1 && d.Waits[0].Source == source
			}
		}
		n.wait("the bucket to be waited for", waits(theBucket))
		n.must(judgedNot(p))
		// What the log knows of producers now is not what others are to begin with.
		n.must(p.log.Roll(now()))
		if sealed, err := p.log.Sealed(end, marked); err != nil || len(sealed) > 0 {
			t.Fatalf("%d segments are to be uploaded with what is known of producers, %v", len(sealed), err)
		}

		// The damaged segment goes, and what was derived without it is still there.
		free := map[string]string{"remote.storage.enable": "true", "retention.ms": "-1", "internal.segment.bytes": "4096", "local.retention.bytes": "0"}
		n.want("events", id, epoch, free)
		n.wait("the damage to be gone", func() bool {
			p.log.SetRemoteEnd(end) // as the leader before was told
			p.m.retention.at(p, now())
			return len(p.wanted()) == 0 && p.log.Offsets().LocalStart == end
		})
		n.wait("the bucket to be waited for all the same", func() bool {
			d := p.Damage()
			return waits(theBucket)() && d.Ranges == 0 && (d.HoldsProducers || d.Lost)
		})
		for range 3 {
			last := p.damage.asked.Load()
			n.wait("another round", func() bool { p.hurryMending(); return p.damage.asked.Load() != last })
		}
		if !p.log.Incomplete() || p.damage.verdict.Load().holds(p) {
			t.Fatalf("nobody has told of the producers: %+v", p.Damage())
		}
		n.must(judgedNot(p))

		if gone {
			segments.Fault = objstore.FaultNotFound
			store.Set(segments)
			n.wait("the bucket to have said no", func() bool { p.hurryMending(); return p.Damage().Lost })
			n.must(judged(p, 7))
			n.stop()
			continue
		}
		store.Set()
		n.wait("producers to be known", func() bool { p.hurryMending(); return !p.log.Incomplete() })
		got, err := p.Producers()
		n.must(err)
		same := func(a, b hot.ProducerState) bool {
			return a.ProducerID == b.ProducerID && a.Epoch == b.Epoch && a.LastSequence == b.LastSequence && a.TxnStart == b.TxnStart
		}
		if !slices.EqualFunc(got, want, same) {
			t.Fatalf("producers are %+v, they were %+v", got, want)
		}
		n.wait("the rest to be in the bucket", func() bool { s, ok := p.remote.Cached(); return ok && s.End == marked })
		if a := n.ofProducer(p, 7, 0, false); !a.Duplicate || a.BaseOffset != first.BaseOffset {
			t.Fatalf("a repeat of the damaged batch is taken for %+v, it was %+v", a, first)
		}
		if p.log.LastStable() != p.log.HighWatermark() {
			t.Fatalf("last stable is %d of %d, and no transaction is open", p.log.LastStable(), p.log.HighWatermark())
		}
		n.stop()
	}
}
