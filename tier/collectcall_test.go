package tier

import (
	"context"
	"errors"
	"testing"

	"github.com/varvelog/varve/tier/objstore"
)

// TestCollectorAsksTheBucketBeforeItDeletes: what its own copy of the manifest does
// not name may be named by now (T7).
func TestCollectorAsksTheBucketBeforeItDeletes(t *testing.T) {
	mem := objstore.NewMem(0)
	ctx := context.Background()
	w := newWorld(1)
	own, other := testRemote(t, mem), testRemote(t, mem)
	if err := own.Claim(ctx, 1); err != nil {
		t.Fatal(err)
	}
	offload(t, other, 1, w.segment(5, 5)) // of the same leader; the answer was lost
	removed := 0
	run := func(epoch int32) error {
		_, err := collection{
			archive: own.a, remote: own, epoch: epoch, lifetimeMillis: -1,
			own: func() map[string]bool { return nil }, wall: func() int64 { return 1 << 50 },
			removed: func(keys []string) { removed += len(keys) },
		}.run(ctx)
		return err
	}
	stray := own.Key(SegmentID{Base: 3, Epoch: 0, Random: 9})
	if _, err := mem.Put(ctx, stray, objstore.Bytes([]byte("x")), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := run(1); err != nil || removed != 1 {
		t.Fatalf("%d objects were removed, %v; one is an orphan", removed, err)
	}
	if got := readAll(t, other, 0, 1<<20); len(got) != len(w.raw(0)) {
		t.Fatal("a segment went that the manifest names")
	}
	// Another leader holds the manifest: none of its objects is ours to judge.
	if err := other.Claim(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Put(ctx, stray, objstore.Bytes([]byte("x")), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := run(1); !errors.Is(err, ErrFenced) || removed != 1 {
		t.Fatalf("%d objects were removed in all, %v; the manifest is another leader's", removed, err)
	}
}
