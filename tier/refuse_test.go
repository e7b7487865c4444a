package tier

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/tier/objstore"
)

// TestManifestsThatContradictThemselvesAreRefused seals heads and pages with a
// right checksum around wrong content: a reader must never act on them (T19).
func TestManifestsThatContradictThemselvesAreRefused(t *testing.T) {
	heads := map[string]func(*manifest){
		"end above the last segment":      func(m *manifest) { m.end++ },
		"end below the last segment":      func(m *manifest) { m.end-- },
		"gap between page and tail":       func(m *manifest) { m.tail = m.tail[1:] },
		"gap in the tail":                 func(m *manifest) { m.tail[1].ID.Base++ },
		"segment of no offsets":           func(m *manifest) { m.tail[1].ID.Base = 500; m.tail[0].End = 500 },
		"negative base":                   func(m *manifest) { m.tail[0].ID.Base = -1 },
		"range beyond all offsets":        func(m *manifest) { m.tail[0].ID.Base = math.MaxInt64 - 5; m.tail[0].End = math.MinInt64 + 100 },
		"lookup region beyond the object": func(m *manifest) { m.tail[0].lookupAt = m.tail[0].StoredBytes },
		"epoch of a segment negative":     func(m *manifest) { m.tail[0].ID.Epoch = -1 },
		"epochs that fall":                func(m *manifest) { m.chain[0].Epoch = 9 },
		"epochs that do not cover":        func(m *manifest) { m.chain = m.chain[1:] },
		"no epochs":                       func(m *manifest) { m.chain = nil },
		"more dead than entries":          func(m *manifest) { m.pages[0].dead = 2 },
		"page without entries":            func(m *manifest) { m.pages[0].count = 0 },
		"page that ends before it starts": func(m *manifest) { m.pages[0].end = 100 },
		"page of negative bytes":          func(m *manifest) { m.pages[0].raw = -1 },
		"mark of a head":                  func(m *manifest) { m.marked[0].Kind = KeyHead },
		"start below none":                func(m *manifest) { m.start = -2 },
		"partition negative":              func(m *manifest) { m.partition = -1 },
	}
	for name, spoil := range heads {
		m, _, _ := goldenManifest()
		spoil(m)
		if _, err := decodeHead(m.encode()); !errors.Is(err, ErrCorrupt) {
			t.Errorf("head with %s: %v", name, err)
		}
	}
	pages := map[string]func(*page){
		"no entries":               func(p *page) { p.entries = nil },
		"gap":                      func(p *page) { p.entries[1].ID.Base++ },
		"epochs that do not cover": func(p *page) { p.chain = p.chain[1:] },
		"epochs that fall":         func(p *page) { p.chain = lineage.Chain{{Epoch: 6, Start: 100}, {Epoch: 5, Start: 210}} },
	}
	for name, spoil := range pages {
		m, p, _ := goldenManifest()
		spoil(&p)
		if _, _, _, err := decodePage(p.encode(m.topic, m.partition)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("page with %s: %v", name, err)
		}
	}
	m, _, _ := goldenManifest()
	for version, want := range map[byte]error{0: ErrUnsupported, 2: ErrUnsupported} {
		b := m.encode()
		b[9] = version
		if _, err := decodeHead(sealed(b)); !errors.Is(err, want) {
			t.Errorf("head of version %d: %v", version, err)
		}
	}
}

func TestSegmentsThatCannotBeStoredAreRefused(t *testing.T) {
	r := testRemote(t, objstore.NewMem(0))
	ctx := context.Background()
	if err := r.Commit(ctx, Edit{LeaderEpoch: 3, Add: []AddSegment{entryAt(0, 100, 3)}}); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*AddSegment){
		"another epoch's upload":   func(a *AddSegment) { a.Segment.ID.Epoch = 2 },
		"no offsets":               func(a *AddSegment) { a.Segment.End = 100 },
		"too many offsets":         func(a *AddSegment) { a.Segment.End = 100 + 1<<33 },
		"no bytes":                 func(a *AddSegment) { a.Segment.RawBytes = 0 },
		"too many bytes":           func(a *AddSegment) { a.Segment.StoredBytes = 1 << 32 },
		"no lookup region":         func(a *AddSegment) { a.Segment.lookupBytes = 0 },
		"no lineage":               func(a *AddSegment) { a.Lineage = nil },
		"lineage that starts late": func(a *AddSegment) { a.Lineage[0].Start = 101 },
		"lineage that goes back":   func(a *AddSegment) { a.Lineage[0].Epoch = 2 },
		"overlap":                  func(a *AddSegment) { a.Segment.ID.Base, a.Lineage[0].Start = 99, 99 },
		"gap":                      func(a *AddSegment) { a.Segment.ID.Base = 101 },
	} {
		a := entryAt(100, 200, 3)
		spoil(&a)
		if err := r.Commit(ctx, Edit{LeaderEpoch: 3, Add: []AddSegment{a}}); !errors.Is(err, ErrConflict) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := r.Commit(ctx, Edit{LeaderEpoch: 3, Purge: []MarkID{{KeySegment, SegmentID{0, 3, 1}}}}); !errors.Is(err, ErrConflict) {
		t.Errorf("purge of what was never marked: %v", err)
	}
	if st, err := r.Refresh(ctx); err != nil || st.Segments != 1 || st.End != 100 {
		t.Fatalf("state %+v, %v", st, err)
	}
}

// TestRetiredPartitionTakesAndGivesNothing covers deleted topics.
func TestRetiredPartitionTakesAndGivesNothing(t *testing.T) {
	r := testRemote(t, objstore.NewMem(0))
	ctx := context.Background()
	w := newWorld(1)
	offload(t, r, 0, w.segment(5, 5))
	if err := r.Commit(ctx, Edit{Retire: true}); err != nil {
		t.Fatal(err)
	}
	if err := r.Commit(ctx, Edit{Add: []AddSegment{entryAt(w.next, w.next+5, 0)}}); !errors.Is(err, ErrConflict) {
		t.Fatalf("add: %v", err)
	}
	if _, err := r.Read(ctx, 0, 100, 1<<62); !errors.Is(err, ErrBelowStart) {
		t.Fatalf("read: %v", err)
	}
	if _, ok, err := r.OffsetForTime(ctx, 0, 0); ok || err != nil {
		t.Fatalf("lookup: %v %v", ok, err)
	}
	if _, err := r.AbortedTxns(ctx, 0, 9); !errors.Is(err, ErrBelowStart) {
		t.Fatalf("aborted: %v", err)
	}
	if st, _ := r.State(ctx); !st.Retired {
		t.Fatalf("state %+v", st)
	}
}

// TestArchiveThatWasEmptiedGoesOnWhereItsStartIs covers DeleteRecords beyond the
// archive, and tiering switched off and on again.
func TestArchiveThatWasEmptiedGoesOnWhereItsStartIs(t *testing.T) {
	r := testRemote(t, objstore.NewMem(0))
	ctx := context.Background()
	commit := func(e Edit) error { return r.Commit(ctx, e) }
	if err := commit(Edit{Add: []AddSegment{entryAt(0, 100, 0)}}); err != nil {
		t.Fatal(err)
	}
	if err := commit(Edit{AdvanceStart: 250, MarkBelowStart: true, MarkedAt: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Find(ctx, 50); !errors.Is(err, ErrBelowStart) {
		t.Fatalf("below the start: %v", err)
	}
	if _, err := r.Find(ctx, 250); !errors.Is(err, ErrNotTiered) {
		t.Fatalf("at the start: %v", err)
	}
	for _, bad := range []AddSegment{entryAt(100, 200, 0), entryAt(251, 300, 0), entryAt(90, 300, 0)} {
		if err := commit(Edit{Add: []AddSegment{bad}}); !errors.Is(err, ErrConflict) {
			t.Fatalf("segment [%d, %d): %v", bad.Segment.ID.Base, bad.Segment.End, err)
		}
	}
	if err := commit(Edit{Add: []AddSegment{entryAt(200, 300, 0), entryAt(300, 310, 0)}}); err != nil {
		t.Fatal(err)
	}
	st, _ := r.State(ctx)
	if st.Start != 250 || st.End != 310 || st.Segments != 2 || st.Marked != 1 {
		t.Fatalf("state %+v", st)
	}
	if _, err := r.Find(ctx, 249); !errors.Is(err, ErrBelowStart) {
		t.Fatalf("below the start: %v", err)
	}
	if s, err := r.Find(ctx, 250); err != nil || s.ID.Base != 200 {
		t.Fatalf("at the start: %+v, %v", s, err)
	}
}

func TestEpochsAreFoundAcrossPages(t *testing.T) {
	r := testRemote(t, objstore.NewMem(0))
	ctx := context.Background()
	epochOf := func(offset int64) int32 { return int32(offset / 1230) }
	for i := int64(0); i < 1000; {
		epoch := epochOf(i*10 + 9)
		e := Edit{LeaderEpoch: epoch}
		for ; i < 1000 && epochOf(i*10+9) == epoch; i++ {
			a := entryAt(i*10, i*10+10, epoch)
			if first := epochOf(i * 10); first != epoch { // the new leader's first segment holds the old one's last records
				a.Lineage = lineage.Chain{{Epoch: first, Start: i * 10}, {Epoch: epoch, Start: int64(epoch) * 1230}}
			}
			e.Add = append(e.Add, a)
		}
		if err := r.Commit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	fresh := openTest(t, testConfig(t), r.a.deps.Store, "").Partition(testPartition)
	chain, err := fresh.Lineage(ctx)
	if err != nil || len(chain) != 9 {
		t.Fatalf("lineage %v, %v", chain, err)
	}
	for o := int64(0); o < 10_000; o++ {
		got, err := fresh.EpochAt(ctx, o)
		if err != nil || got != epochOf(o) || chain.EpochAt(o) != got {
			t.Fatalf("epoch at %d: %d, %v; want %d", o, got, err, epochOf(o))
		}
	}
	if _, err := fresh.EpochAt(ctx, 10_000); !errors.Is(err, ErrNotTiered) {
		t.Fatalf("beyond the end: %v", err)
	}
}

func TestChunksFailAndRecoverWithTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r, faulty, counted, _ := faultyWorld(t, testConfig(t), true)
		ctx := context.Background()
		if _, err := r.Read(ctx, 0, 1, 1<<62); err != nil { // the index is cached now
			t.Fatal(err)
		}
		r.a.reader.forget(r.key)
		faulty.Set(objstore.Rule{Op: objstore.OpGet, Fault: objstore.FaultStall})
		begin := time.Now()
		if _, err := r.Read(ctx, 0, 1, 1<<62); !errors.Is(err, ErrUnavailable) {
			t.Fatalf("stalled store: %v", err)
		}
		if took := time.Since(begin); took > 3*r.a.cfg.GetTimeout {
			t.Fatalf("a stalled GET held a reader for %v", took)
		}
		faulty.Set()
		before := counted.Stats().Get.Requests
		c, err := r.Read(ctx, 0, 1, 1<<62)
		if err != nil || c.Len() == 0 {
			t.Fatalf("after the outage: %v", err)
		}
		if n := counted.Stats().Get.Requests - before; n != 1 {
			t.Fatalf("%d requests", n)
		}
		if s := r.a.ReadStats(); s.Reads != 3 || s.ReadErrors != 1 || s.FetchesPending != 0 || s.CacheBytes == 0 {
			t.Fatalf("stats %+v", s)
		}
		// Closing ends what is in flight.
		r.a.reader.forget(r.key)
		faulty.Set(objstore.Rule{Op: objstore.OpGet, Fault: objstore.FaultStall})
		failed := make(chan error, 1)
		go func() {
			_, err := r.Read(ctx, 0, 1, 1<<62)
			failed <- err
		}()
		synctest.Wait()
		closeTest(t, r.a)
		if err := <-failed; err == nil {
			t.Fatal("read from a closed archive")
		}
	})
}
