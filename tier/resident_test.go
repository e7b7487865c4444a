package tier

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

func TestManifestsLeaveMemoryAndComeBackFromDisk(t *testing.T) {
	cfg := testConfig(t)
	cfg.ManifestCacheBytes = 1 << 20
	counted := objstore.NewCounted(objstore.NewMem(0), nil)
	a := openTest(t, cfg, counted, filepath.Join(t.TempDir(), "m.db"))
	ctx := context.Background()
	const partitions, segments = 40, 250
	remotes := make([]*Remote, partitions)
	for i := range remotes {
		remotes[i] = a.Partition(topic.Partition{Topic: "t", ID: topic.ID{1}, Index: int32(i)})
		var e Edit
		for k := range int64(segments) {
			e.Add = append(e.Add, entryAt(k*10, k*10+10, 0))
		}
		if err := remotes[i].Commit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	inMemory := func() (n int) {
		for _, r := range remotes {
			if r.current.Load() != nil {
				n++
			}
		}
		return n
	}
	if n, most := inMemory(), int(cfg.ManifestCacheBytes/2/(120*segments)); n == 0 || n > most {
		t.Fatalf("%d manifests of %d in memory, room for %d", n, partitions, most)
	}
	before := counted.Stats().Requests()
	for _, r := range remotes {
		if s, ok := r.Cached(); !ok || s.Segments != segments {
			t.Fatalf("%v: state %+v", r.p, s)
		}
		if s, err := r.Find(ctx, 1234); err != nil || s.ID.Base != 1230 {
			t.Fatalf("%v: %+v, %v", r.p, s, err)
		}
	}
	if n := counted.Stats().Requests() - before; n != 0 {
		t.Fatalf("%d requests for manifests that are on disk", n)
	}
	// A leader goes on from the copy on disk without reading the bucket.
	for _, r := range remotes {
		if err := r.Commit(ctx, Edit{Add: []AddSegment{entryAt(segments*10, segments*10+5, 0)}}); err != nil {
			t.Fatal(err)
		}
	}
	if s := counted.Stats(); s.Requests()-before != partitions {
		t.Fatalf("%d requests for %d commits", s.Requests()-before, partitions)
	}
}

func TestPagesThatAreGoneLeaveTheLocalCopy(t *testing.T) {
	a := openTest(t, testConfig(t), objstore.NewMem(0), filepath.Join(t.TempDir(), "m.db"))
	r := a.Partition(testPartition)
	ctx := context.Background()
	var e Edit
	for k := range int64(1000) {
		e.Add = append(e.Add, entryAt(k*10, k*10+10, 0))
	}
	if err := r.Commit(ctx, e); err != nil {
		t.Fatal(err)
	}
	pages := func() (n int) {
		err := a.db.db.View(func(tx *bolt.Tx) error {
			n = tx.Bucket(bucketPages).Stats().KeyN
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := pages(); n != 3 {
		t.Fatalf("%d pages kept of 3", n)
	}
	if err := r.Commit(ctx, Edit{AdvanceStart: 6000, MarkBelowStart: true}); err != nil {
		t.Fatal(err)
	}
	if n := pages(); n != 1 {
		t.Fatalf("%d pages kept of 1", n)
	}
	if err := a.Forget(testPartition); err != nil {
		t.Fatal(err)
	}
	if n := pages(); n != 0 {
		t.Fatalf("%d pages kept of a forgotten partition", n)
	}
}

func TestUnusableLocalCopyIsReadAgain(t *testing.T) {
	store := objstore.NewMem(0)
	db := filepath.Join(t.TempDir(), "m.db")
	a := openTest(t, testConfig(t), store, db)
	r := a.Partition(testPartition)
	ctx := context.Background()
	if err := r.Commit(ctx, Edit{Add: []AddSegment{entryAt(0, 10, 0)}}); err != nil {
		t.Fatal(err)
	}
	err := a.db.db.Update(func(tx *bolt.Tx) error {
		k := r.key.append(nil)
		v := append([]byte(nil), tx.Bucket(bucketHeads).Get(k)...)
		v[len(v)/2] ^= 1
		return tx.Bucket(bucketHeads).Put(k, v)
	})
	if err != nil {
		t.Fatal(err)
	}
	closeTest(t, a)
	for _, spoil := range []func(){
		func() {},
		func() {
			if err := os.WriteFile(db, bytes.Repeat([]byte{7}, 1<<16), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		spoil()
		a := openTest(t, testConfig(t), store, db)
		if s, err := a.Partition(testPartition).State(ctx); err != nil || s.End != 10 {
			t.Fatalf("state %+v, %v", s, err)
		}
		closeTest(t, a)
	}
}
