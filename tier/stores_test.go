package tier

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/tier/objstore"
	"github.com/varvelog/varve/tier/objstore/objstoretest"
)

// wholeLife takes an archive through everything, on a store of any kind.
func wholeLife(t *testing.T, store objstore.Store) {
	ctx := context.Background()
	cfg := testConfig(t)
	cfg.Prefix = "life"
	a := openTest(t, cfg, store, filepath.Join(t.TempDir(), "m.db"))
	r := a.Partition(testPartition)
	if err := r.Claim(ctx, 2); err != nil {
		t.Fatal(err)
	}
	w := newWorld(8)
	w.epoch, w.value, w.noise = 2, 2000, true
	offload(t, r, 2, w.segment(40, 20), w.segment(40, 20), w.segment(400, 20))
	w.abort(w.segment(3, 3), 5, w.segments[0].base)
	offload(t, r, 2, w.segments[3])

	other := openTest(t, cfg, store, "").Partition(testPartition)
	if got := readAll(t, other, 0, 1<<20); !bytes.Equal(got, w.raw(0)) {
		t.Fatalf("read %d bytes, wrote %d", len(got), len(w.raw(0)))
	}
	want := w.records[len(w.records)/2]
	if got, ok, err := other.OffsetForTime(ctx, want.Timestamp, 0); err != nil || !ok || got != want {
		t.Fatalf("%v %v %v, want %v", got, ok, err, want)
	}
	if snapshot, end, err := other.ProducerSnapshot(ctx, w.segments[1].base); err != nil || end != w.segments[1].end || !bytes.Equal(snapshot, w.segments[1].producers) {
		t.Fatalf("snapshot %q at %d, %v", snapshot, end, err)
	}
	chain, err := other.Lineage(ctx)
	if err != nil || !chain.Equal(w.segments[0].chain) {
		t.Fatalf("lineage %v, %v", chain, err)
	}

	// A new leader takes over, the old one finds out; the start moves, and what
	// lies below goes.
	if err := other.Claim(ctx, 3); err != nil {
		t.Fatal(err)
	}
	start := w.segments[1].base
	if err := r.Commit(ctx, Edit{LeaderEpoch: 2, AdvanceStart: start}); !errors.Is(err, ErrFenced) {
		t.Fatalf("old leader: %v", err)
	}
	info := &TopicInfo{Name: "events", Configs: map[string]string{"retention.ms": "1"}}
	if err := other.Commit(ctx, Edit{LeaderEpoch: 3, AdvanceStart: start, MarkBelowStart: true, MarkedAt: 77, Topic: info}); err != nil {
		t.Fatal(err)
	}
	marked, err := other.Marked(ctx)
	if err != nil || len(marked) != 1 || marked[0].At != 77 {
		t.Fatalf("marked %+v, %v", marked, err)
	}
	if named, err := r.Referenced(ctx, []string{marked[0].Key, r.Prefix() + "seg/stranger"}); err != nil || !named[marked[0].Key] || len(named) != 1 {
		t.Fatalf("referenced %v, %v", named, err)
	}
	if err := store.Delete(ctx, marked[0].Key); err != nil {
		t.Fatal(err)
	}
	if err := other.Commit(ctx, Edit{LeaderEpoch: 3, Purge: []MarkID{marked[0].MarkID}}); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Read(ctx, 0, 100, 1<<62); !errors.Is(err, ErrBelowStart) {
		t.Fatalf("below the start: %v", err)
	}
	if got := readAll(t, other, start, 1<<20); !bytes.Equal(got, w.raw(start)) {
		t.Fatal("other bytes above the start")
	}
	checkBucket(t, cfg, store, other)
}

// checkBucket compares the bucket with the manifest: nothing missing, nothing
// over, and every object tells of itself what the manifest says.
func checkBucket(t *testing.T, cfg Config, store objstore.Store, r *Remote) {
	t.Helper()
	ctx := context.Background()
	found := map[SegmentID]int64{}
	err := store.List(ctx, r.Prefix(), "", func(o objstore.Object) bool {
		k, ok := cfg.ParseKey(o.Key)
		if !ok || k.Topic != testPartition.ID || k.Partition != testPartition.Index {
			t.Errorf("stranger %q", o.Key)
		}
		if k.Kind == KeySegment {
			found[k.ID] = o.Size
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	err = r.Segments(ctx, 0, func(s RemoteSegment) bool {
		if found[s.ID] != s.StoredBytes {
			t.Errorf("object %s has %d bytes, manifest %d", s.ID.name(), found[s.ID], s.StoredBytes)
			return true
		}
		delete(found, s.ID)
		b, _, err := objstore.ReadAll(ctx, store, r.Key(s.ID), 1<<30)
		if err != nil {
			t.Error(err)
			return true
		}
		f, err := decodeFooter(b[len(b)-footerBytes:], int64(len(b)))
		if err != nil {
			t.Error(err)
			return true
		}
		told := f.segment(int64(len(b)))
		told.ObjectCRC = crc32c(b)
		if told != s {
			t.Errorf("object tells %+v, manifest %+v", told, s)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) > 0 {
		t.Errorf("objects that no manifest names: %v", found)
	}
}

func TestWholeLifeInMemory(t *testing.T) { wholeLife(t, objstore.NewMem(0)) }

func TestWholeLifeInAFolder(t *testing.T) {
	store, err := objstore.Open(t.Context(), "file://"+t.TempDir(), objstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if c, ok := store.(io.Closer); ok {
		t.Cleanup(func() { c.Close() })
	}
	wholeLife(t, store)
}

func TestWholeLifeOnAnS3Server(t *testing.T) {
	srv := objstoretest.StartVersityGW(t)
	if err := srv.MakeBucket("archive"); err != nil {
		t.Fatal(err)
	}
	store, err := objstore.Open(t.Context(), srv.URL("archive", "some/where"), srv.Options())
	if err != nil {
		t.Fatal(err)
	}
	wholeLife(t, store)
}
