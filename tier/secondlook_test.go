package tier

import (
	"context"
	"errors"
	"testing"

	"github.com/varvelog/varve/tier/objstore"
)

// TestEveryReadLooksOnceMoreForWhatIsGone: the manifest at hand names an object that
// another leader has replaced and deleted since (T12).
func TestEveryReadLooksOnceMoreForWhatIsGone(t *testing.T) {
	ctx := context.Background()
	for name, read := range map[string]func(*Remote) error{
		"records":   func(r *Remote) error { return errorOf(r.Read(ctx, 0, 1<<20, 1<<30)) },
		"producers": func(r *Remote) error { _, _, err := r.ProducerSnapshot(ctx, 0); return err },
		"time":      func(r *Remote) error { _, _, err := r.OffsetForTime(ctx, 1, 0); return err },
		"maximum":   func(r *Remote) error { _, _, err := r.MaxTimestamp(ctx, 1); return err },
	} {
		t.Run(name, func(t *testing.T) {
			mem := objstore.NewMem(0)
			w := newWorld(1)
			seg := w.segment(5, 5)
			leader, reader := testRemote(t, mem), testRemote(t, mem)
			offload(t, leader, 1, seg)
			if _, err := reader.Refresh(ctx); err != nil {
				t.Fatal(err)
			}
			old, err := reader.Find(ctx, 0)
			if err != nil {
				t.Fatal(err)
			}
			o, err := leader.Build(ctx, seg, BuildOptions{LeaderEpoch: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer o.Close()
			if err := o.Put(ctx, nil); err != nil {
				t.Fatal(err)
			}
			if err := leader.Commit(ctx, Edit{LeaderEpoch: 1, MarkedAt: 1, Replace: &ReplaceSegments{Old: []SegmentID{old.ID}, New: o.Add()}}); err != nil {
				t.Fatal(err)
			}
			if err := mem.Delete(ctx, leader.Key(old.ID)); err != nil {
				t.Fatal(err)
			}
			if err := read(reader); err != nil {
				t.Error(err)
			}
			if err := mem.Delete(ctx, leader.Key(o.Add().Segment.ID)); err != nil {
				t.Fatal(err)
			}
			fresh := testRemote(t, mem)
			if err := read(fresh); !errors.Is(err, ErrMissing) {
				t.Errorf("of an object that is really missing: %v", err)
			}
		})
	}
}

func errorOf(c *Chunk, err error) error {
	if c != nil {
		c.Release()
	}
	return err
}
