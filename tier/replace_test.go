package tier

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/varvelog/varve/tier/objstore"
)

// TestReplacedSegmentIsReadFromItsNewObject: a rewrite has the same range, its old
// objects stay until it is committed and are marked by it, once (T15), and nobody
// is served from a cache what the old object held (T14).
func TestReplacedSegmentIsReadFromItsNewObject(t *testing.T) {
	mem := objstore.NewMem(0)
	r := testRemote(t, mem)
	ctx := context.Background()
	w := newWorld(1)
	old := []*memSegment{w.segment(5, 1), w.segment(5, 5)}
	offload(t, r, 0, old...)
	if got := readAll(t, r, 0, 1<<20); !bytes.Equal(got, w.raw(0)) {
		t.Fatal("other bytes than were written")
	}
	var ids []SegmentID
	if err := r.Segments(ctx, 0, func(s RemoteSegment) bool { ids = append(ids, s.ID); return true }); err != nil {
		t.Fatal(err)
	}

	// The first one again, with other values in it.
	again := newWorld(1)
	again.noise = true
	next := again.segment(5, 1)
	o, err := r.Build(ctx, next, BuildOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if err := o.Put(ctx, nil); err != nil {
		t.Fatal(err)
	}
	replace := func(a AddSegment, of ...SegmentID) error {
		return r.Commit(ctx, Edit{MarkedAt: 1, Replace: &ReplaceSegments{Old: of, New: a}})
	}
	for name, spoil := range map[string]func(*RemoteSegment){
		"ends earlier":   func(s *RemoteSegment) { s.End-- },
		"ends later":     func(s *RemoteSegment) { s.End++ },
		"begins later":   func(s *RemoteSegment) { s.ID.Base++ },
		"of an old name": func(s *RemoteSegment) { s.ID.Epoch++ },
	} {
		bad := o.Add()
		spoil(&bad.Segment)
		if err := replace(bad, ids[0]); !errors.Is(err, ErrConflict) {
			t.Errorf("a replacement that %s: %v", name, err)
		}
	}
	if err := replace(o.Add(), ids[0], SegmentID{Base: ids[1].Base, Random: 7}); !errors.Is(err, ErrConflict) {
		t.Errorf("a replacement of what is not there: %v", err)
	}
	if marks, err := r.Marked(ctx); err != nil || len(marks) != 0 {
		t.Fatalf("%v, %v: marked before the replacement was committed", marks, err)
	}
	if err := replace(o.Add(), ids[0]); err != nil {
		t.Fatal(err)
	}
	marks, err := r.Marked(ctx)
	if err != nil || len(marks) != 1 || marks[0].ID != ids[0] {
		t.Fatalf("marked is %v, %v; want %v", marks, err, ids[0])
	}
	if _, err := mem.Head(ctx, r.Key(ids[0])); err != nil {
		t.Errorf("the old object is gone within the grace: %v", err)
	}
	if err := replace(o.Add(), ids[0]); !errors.Is(err, ErrConflict) {
		t.Errorf("replaced a second time: %v", err)
	}
	want := append(bytes.Clone(next.data), old[1].data...)
	if got := readAll(t, r, 0, 1<<20); !bytes.Equal(got, want) {
		t.Error("what is read is not what the new object holds")
	}
}
