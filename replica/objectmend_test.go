package replica

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier"
	"github.com/varvelog/varve/tier/objstore"
)

// objectAt is the key of the object of the segment that begins at an offset.
func (n *node) objectAt(p *Partition, base int64) (key, fault string) {
	n.t.Helper()
	places, err := p.Segments(context.Background())
	n.must(err)
	for _, s := range places {
		if s.Base == base && s.Remote {
			return s.Key, s.Fault
		}
	}
	n.t.Fatalf("no segment at %d in the bucket: %+v", base, places)
	return "", ""
}

// Somebody has deleted an object whose records are on the leader's disk still: a
// reader of the bucket meets the gap, and the object is put anew.
func TestObjectThatIsGoneIsPutAnewFromTheDisk(t *testing.T) {
	bucket := objstore.NewMem(0)
	n := newNode(t)
	n.bucket = bucket
	n.start()
	defer n.stop()
	p := n.want("events", topic.NewID(), 3, map[string]string{"remote.storage.enable": "true", "retention.ms": "-1"})
	for i := range int64(9) {
		n.produce(p, batch.Zstd, record{2 * i, 1000 + 20*i, name(int(2 * i))}, record{2*i + 1, 1005 + 20*i, name(int(2*i + 1))})
		if i%3 == 2 {
			n.must(p.log.Roll(now()))
		}
	}
	n.wait("everything to be in the bucket", func() bool {
		s, ok := p.remote.Cached()
		return ok && s.End == 18
	})
	ctx := context.Background()
	key, _ := n.objectAt(p, 6)
	whole, _, err := objstore.ReadAll(ctx, bucket, key, 1<<20)
	n.must(err)
	n.must(bucket.Delete(ctx, key))
	// A process that has nothing in its memory reads it.
	n.stop()
	n.start()
	p = n.want("events", p.ID().ID, 4, map[string]string{"remote.storage.enable": "true", "retention.ms": "-1"})
	n.wait("the object to be put anew", func() bool {
		c, err := p.remote.Read(ctx, 6, 1<<20, 18)
		if err == nil {
			c.Release()
		} else if !errors.Is(err, tier.ErrMissing) {
			t.Fatalf("read of what is gone: %v", err)
		}
		return err == nil
	})
	again, fault := n.objectAt(p, 6)
	got, _, err := objstore.ReadAll(ctx, bucket, again, 1<<20)
	n.must(err)
	if again == key || fault != "" || len(got) == 0 || bytes.Equal(got, whole) {
		t.Errorf("%s is %q, %d bytes", again, fault, len(got))
	}
	c, err := p.remote.Read(ctx, 6, 1<<20, 18)
	n.must(err)
	defer c.Release()
	if c.StartOffset() != 6 || c.NextOffset() < 12 {
		t.Errorf("read from %d to %d", c.StartOffset(), c.NextOffset())
	}
}

// What nobody has any more is named where segments are listed, and only its offsets
// are refused.
func TestObjectThatNobodyHasIsNamed(t *testing.T) {
	bucket := objstore.NewMem(0)
	n, p, _ := archived(t, bucket)
	defer n.stop()
	ctx := context.Background()
	key, _ := n.objectAt(p, 0)
	n.must(bucket.Delete(ctx, key))
	n.stop()
	n.start()
	p = n.want("events", p.ID().ID, 4, tieredSettings)
	n.wait("the object to be named", func() bool {
		if _, err := n.fetch(p, 0, 1<<20, ReadUncommitted); !errors.Is(err, ErrRemoteUnavailable) {
			t.Fatalf("read of what is gone: %v", err)
		}
		_, fault := n.objectAt(p, 0)
		return fault == tier.FaultMissing.String()
	})
	if _, fault := n.objectAt(p, 6); fault != "" {
		t.Errorf("the next object is %s", fault)
	}
	if got := n.readAll(p, 6, 1<<20); len(got) != 6 {
		t.Errorf("%d records behind it, want 6", len(got))
	}
}
