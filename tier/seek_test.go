package tier

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/tier/objstore"
)

// bigArchive commits n segments of which every stride-th has an object; the
// others exist in the manifest alone.
func bigArchive(t testing.TB, store objstore.Store, db string, n, stride int) *world {
	t.Helper()
	a, err := OpenArchive(testConfig(t), Deps{Store: store, DB: db})
	if err != nil {
		t.Fatal(err)
	}
	defer closeTest(t, a)
	r := a.Partition(testPartition)
	ctx := context.Background()
	w := newWorld(6)
	w.noise, w.value = true, 4000
	edit := Edit{}
	commit := func() {
		if err := r.Commit(ctx, edit); err != nil {
			t.Fatal(err)
		}
		edit = Edit{}
	}
	for i := range n {
		if i%stride == 0 {
			s := w.segment(40, 20)
			o, err := r.Build(ctx, s, BuildOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := o.Put(ctx, nil); err != nil {
				t.Fatal(err)
			}
			edit.Add = append(edit.Add, o.Add())
			o.Close()
		} else {
			s := testSegmentEntry(w.next, w.next+100, 0, randomUint64())
			s.MinTimestamp, s.MaxTimestamp, s.HasAborted = w.time(w.next), w.time(w.next+99), false
			edit.Add = append(edit.Add, AddSegment{s, lineage.Chain{{Epoch: 0, Start: w.next}}})
			w.next += 100
		}
		if len(edit.Add) == 2000 {
			commit()
		}
	}
	commit()
	return w
}

// TestSeekCostsTwoObjectReadsAtAnySize counts what a cold time lookup and a cold
// read ask of the store.
func TestSeekCostsTwoObjectReadsAtAnySize(t *testing.T) {
	for _, n := range []int{10, 1000, 100_000} {
		t.Run(fmt.Sprintf("segments=%d", n), func(t *testing.T) {
			mem := objstore.NewMem(0)
			db := filepath.Join(t.TempDir(), "m.db")
			w := bigArchive(t, mem, db, n, max(1, n/5))
			ctx := context.Background()
			counted := objstore.NewCounted(mem, nil)
			for _, local := range []bool{true, false} {
				path := ""
				manifestReads := int64(2) // head and page, when this node has no copy
				if local {
					path, manifestReads = db, 0
				}
				for k := range 10 {
					want := w.records[k*(len(w.records)-1)/9]
					a := openTest(t, testConfig(t), counted, path)
					r := a.Partition(testPartition)
					before := counted.Stats()
					got, ok, err := r.OffsetForTime(ctx, want.Timestamp, 0)
					if err != nil || !ok || got != want {
						t.Fatalf("at %d: %v %v %v, want %v", want.Timestamp, got, ok, err, want)
					}
					if gets := counted.Stats().Requests() - before.Requests(); gets > 2+manifestReads {
						t.Fatalf("time lookup made %d requests (local copy %v)", gets, local)
					}
					// A read at the answer is free now.
					before = counted.Stats()
					if _, err := r.Read(ctx, got.Offset, 100_000, 1<<62); err != nil {
						t.Fatal(err)
					}
					if gets := counted.Stats().Requests() - before.Requests(); gets != 0 {
						t.Fatalf("read after the lookup made %d requests", gets)
					}
					closeTest(t, a)
				}
			}
			if b, _, err := objstore.ReadAll(ctx, mem, testConfig(t).PartitionPrefix(testPartition.ID, testPartition.Index)+"head", 1<<20); err != nil || len(b) > 64<<10 {
				t.Fatalf("head of %d bytes, %v", len(b), err)
			}
		})
	}
}

// TestSeekAllocatesAFixedFew holds a lookup whose chunks are cached to a few
// allocations, whatever is in the archive.
func TestSeekAllocatesAFixedFew(t *testing.T) {
	for _, n := range []int{10, 10_000} {
		mem := objstore.NewMem(0)
		w := bigArchive(t, mem, "", n, max(1, n/5))
		r := openTest(t, testConfig(t), mem, "").Partition(testPartition)
		want := w.records[len(w.records)/2]
		lookup := func() {
			if got, ok, err := r.OffsetForTime(t.Context(), want.Timestamp, 0); err != nil || !ok || got != want {
				t.Fatalf("%v %v %v, want %v", got, ok, err, want)
			}
		}
		lookup()
		if allocs := testing.AllocsPerRun(200, lookup); allocs > 6 {
			t.Errorf("%d segments: a lookup allocates %v times", n, allocs)
		} else {
			t.Logf("%d segments: %v allocations", n, allocs)
		}
	}
}

func BenchmarkOffsetForTime(b *testing.B) {
	for _, n := range []int{10, 1000, 100_000} {
		b.Run(fmt.Sprintf("segments=%d", n), func(b *testing.B) {
			mem := objstore.NewMem(0)
			w := bigArchive(b, mem, "", n, max(1, n/5))
			r := openTest(b, testConfig(b), mem, "").Partition(testPartition)
			ctx := context.Background()
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				want := w.records[i*997%len(w.records)]
				i++
				if got, ok, err := r.OffsetForTime(ctx, want.Timestamp, 0); err != nil || !ok || got != want {
					b.Fatalf("%v %v %v, want %v", got, ok, err, want)
				}
			}
		})
	}
}
