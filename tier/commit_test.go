package tier

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/tier/objstore"
)

// entryAt is an edit part without an object behind it.
func entryAt(base, end int64, epoch int32) AddSegment {
	return AddSegment{testSegmentEntry(base, end, epoch, randomUint64()), lineage.Chain{{Epoch: epoch, Start: base}}}
}

// committedIDs reads the bucket with a fresh archive.
func committedIDs(t *testing.T, store objstore.Store) ([]SegmentID, State) {
	t.Helper()
	a := openTest(t, testConfig(t), store, "")
	defer closeTest(t, a)
	r := a.Partition(testPartition)
	var ids []SegmentID
	err := r.Segments(context.Background(), 0, func(s RemoteSegment) bool {
		ids = append(ids, s.ID)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := r.State(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return ids, s
}

// TestCommitsHoldUnderFaults lets two leaders, one taking over from the other and
// the first going on regardless, commit through a store that refuses, loses
// requests and answers, and lies. A commit that was reported done is in the
// bucket, one reported refused is not, and the segments have no gap.
func TestCommitsHoldUnderFaults(t *testing.T) {
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) { commitUnderFaults(t, seed) })
	}
}

func commitUnderFaults(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 3))
	mem := objstore.NewMem(0)
	var rules []objstore.Rule
	for _, f := range []objstore.Fault{objstore.FaultBefore, objstore.FaultLostRequest, objstore.FaultLostAnswer,
		objstore.FaultPrecondition, objstore.FaultSlowDown, objstore.FaultTruncate, objstore.FaultCorrupt} {
		rules = append(rules, objstore.Rule{Fault: f, Probability: 0.3 * rng.Float64()})
	}
	faulty := objstore.NewFaulty(mem, seed, rules...)
	leaders := []*Archive{openTest(t, testConfig(t), faulty, ""), openTest(t, testConfig(t), faulty, "")}
	done, refused := map[SegmentID]bool{}, map[SegmentID]bool{}
	epoch := int32(0)
	ctx := context.Background()
	for i := range 60 {
		// The newest leader mostly; sometimes the old one, which does not know.
		who := epoch
		if epoch > 0 && rng.IntN(4) == 0 {
			who--
		}
		r := leaders[who%2].Partition(testPartition)
		if i == 25 || i == 45 {
			epoch++
			who, r = epoch, leaders[epoch%2].Partition(testPartition)
			_ = r.Claim(ctx, epoch) // when it fails, the commit claims
		}
		st, err := r.State(ctx)
		if err != nil {
			continue
		}
		base := max(st.End, 0)
		edit := Edit{LeaderEpoch: who}
		for range 1 + rng.IntN(60) {
			end := base + 10
			edit.Add = append(edit.Add, entryAt(base, end, who))
			base = end
		}
		err = r.Commit(ctx, edit)
		for _, a := range edit.Add {
			switch {
			case err == nil:
				done[a.Segment.ID] = true
			case errors.Is(err, ErrFenced) || errors.Is(err, ErrConflict):
				refused[a.Segment.ID] = true
			}
		}
	}
	if len(done) == 0 {
		t.Fatalf("seed %d: nothing was committed", seed)
	}
	ids, _ := committedIDs(t, mem)
	for id := range done {
		if !slices.Contains(ids, id) {
			t.Fatalf("seed %d: segment %s was reported committed and is not there", seed, id.name())
		}
	}
	for _, id := range ids {
		if refused[id] {
			t.Fatalf("seed %d: segment %s was reported refused and is there", seed, id.name())
		}
	}
	for _, a := range leaders {
		closeTest(t, a)
	}
}

func TestClaimFencesTheLeaderBefore(t *testing.T) {
	store := objstore.NewMem(0)
	ctx := context.Background()
	old := openTest(t, testConfig(t), store, "").Partition(testPartition)
	now := openTest(t, testConfig(t), store, "").Partition(testPartition)
	if err := old.Claim(ctx, 1); err != nil {
		t.Fatal(err)
	}
	if err := old.Commit(ctx, Edit{LeaderEpoch: 1, Add: []AddSegment{entryAt(0, 10, 1)}}); err != nil {
		t.Fatal(err)
	}
	if err := now.Claim(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if err := old.Commit(ctx, Edit{LeaderEpoch: 1, Add: []AddSegment{entryAt(10, 20, 1)}}); !errors.Is(err, ErrFenced) {
		t.Fatalf("old leader's commit: %v", err)
	}
	if err := old.Claim(ctx, 1); !errors.Is(err, ErrFenced) {
		t.Fatalf("old leader's claim: %v", err)
	}
	st, err := now.State(ctx)
	if err != nil || st.End != 10 || st.LeaderEpoch != 2 {
		t.Fatalf("state %+v, %v", st, err)
	}
}

func TestFirstClaimIsOneRequest(t *testing.T) {
	counted := objstore.NewCounted(objstore.NewMem(0), nil)
	r := openTest(t, testConfig(t), counted, "").Partition(testPartition)
	for range 2 {
		if err := r.Claim(context.Background(), 3); err != nil {
			t.Fatal(err)
		}
		if n := counted.Stats().Requests(); n != 1 {
			t.Fatalf("%d requests", n)
		}
	}
}

func TestLostAnswerIsFoundOutByReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := objstore.NewMem(0)
		faulty := objstore.NewFaulty(mem, 1)
		counted := objstore.NewCounted(faulty, nil)
		r := openTest(t, testConfig(t), counted, "").Partition(testPartition)
		ctx := context.Background()
		if err := r.Claim(ctx, 0); err != nil {
			t.Fatal(err)
		}
		faulty.Set(objstore.Rule{Op: objstore.OpPut, Fault: objstore.FaultLostAnswer, Times: 1})
		before := counted.Stats()
		if err := r.Commit(ctx, Edit{Add: []AddSegment{entryAt(0, 10, 0)}}); err != nil {
			t.Fatal(err)
		}
		after := counted.Stats()
		if after.Put.Requests-before.Put.Requests != 1 || after.Get.Requests-before.Get.Requests != 1 {
			t.Fatalf("%d puts, %d gets for one edit whose answer was lost", after.Put.Requests-before.Put.Requests, after.Get.Requests-before.Get.Requests)
		}
		if _, st := committedIDs(t, mem); st.Segments != 1 || st.End != 10 {
			t.Fatalf("state %+v", st)
		}
		closeTest(t, r.a)
	})
}

func TestOutcomeStaysOpenWhileTheStoreIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := objstore.NewMem(0)
		faulty := objstore.NewFaulty(mem, 1)
		r := openTest(t, testConfig(t), faulty, "").Partition(testPartition)
		ctx := context.Background()
		if err := r.Claim(ctx, 0); err != nil {
			t.Fatal(err)
		}
		// The first put is carried out, then nothing is answered any more.
		faulty.Set(objstore.Rule{Op: objstore.OpPut, Fault: objstore.FaultLostAnswer, Times: 1}, objstore.Rule{Fault: objstore.FaultBefore})
		err := r.Commit(ctx, Edit{Add: []AddSegment{entryAt(0, 10, 0)}})
		if !errors.Is(err, ErrUnavailable) || errors.Is(err, ErrConflict) || errors.Is(err, ErrFenced) {
			t.Fatalf("commit: %v", err)
		}
		faulty.Set()
		st, err := r.Refresh(ctx)
		if err != nil || st.End != 10 {
			t.Fatalf("state %+v, %v", st, err)
		}
		closeTest(t, r.a)
	})
}

func TestHeadThatVanishedOrWentBackIsNoEmptyArchive(t *testing.T) {
	mem := objstore.NewMem(0)
	ctx := context.Background()
	r := openTest(t, testConfig(t), mem, "").Partition(testPartition)
	old := copyOf(t, mem, r, 0)
	if err := r.Commit(ctx, Edit{Add: []AddSegment{entryAt(10, 20, 0)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := mem.Put(ctx, r.headKey(), objstore.Bytes(old), objstore.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Refresh(ctx); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("older head: %v", err)
	}
	if err := mem.Delete(ctx, r.headKey()); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Refresh(ctx); !errors.Is(err, ErrMissing) {
		t.Fatalf("no head: %v", err)
	}
	if err := r.Commit(ctx, Edit{Add: []AddSegment{entryAt(20, 30, 0)}}); !errors.Is(err, ErrMissing) {
		t.Fatalf("commit without a head: %v", err)
	}
}

// Whoever runs the cluster hears of a head that went back at once, once, and of its return.
func TestHeadThatWentBackIsLoggedOnce(t *testing.T) {
	mem, ctx := objstore.NewMem(0), context.Background()
	var log bytes.Buffer
	a, err := OpenArchive(testConfig(t), Deps{Store: mem, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTest(t, a) })
	r := a.Partition(testPartition)
	old := copyOf(t, mem, r, 0)
	newest := copyOf(t, mem, r, 10)
	put := func(head []byte) {
		if _, err := mem.Put(ctx, r.headKey(), objstore.Bytes(head), objstore.PutOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put(old)
	for range 3 {
		if _, err := r.Refresh(ctx); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("older head: %v", err)
		}
	}
	if n := strings.Count(log.String(), "went back from sequence"); n != 1 || !strings.Contains(log.String(), r.headKey()) {
		t.Errorf("logged %d times: %s", n, log.String())
	}
	put(newest)
	for range 3 {
		if _, err := r.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(log.String(), "right again"); n != 1 {
		t.Errorf("its return is logged %d times: %s", n, log.String())
	}
}

// copyOf commits a segment at base and returns the head's bytes.
func copyOf(t *testing.T, store objstore.Store, r *Remote, base int64) []byte {
	t.Helper()
	if err := r.Commit(context.Background(), Edit{Add: []AddSegment{entryAt(base, base+10, 0)}}); err != nil {
		t.Fatal(err)
	}
	b, _, err := objstore.ReadAll(context.Background(), store, r.headKey(), 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRestartReadsNothingFromTheBucket(t *testing.T) {
	mem := objstore.NewMem(0)
	db := filepath.Join(t.TempDir(), "manifests.db")
	ctx := context.Background()
	a := openTest(t, testConfig(t), mem, db)
	r := a.Partition(testPartition)
	if err := r.Claim(ctx, 4); err != nil {
		t.Fatal(err)
	}
	edit := Edit{LeaderEpoch: 4}
	for i := range int64(700) {
		edit.Add = append(edit.Add, entryAt(i*10, i*10+10, 4))
	}
	if err := r.Commit(ctx, edit); err != nil {
		t.Fatal(err)
	}
	want, _ := r.State(ctx)
	closeTest(t, a)

	counted := objstore.NewCounted(mem, nil)
	r = openTest(t, testConfig(t), counted, db).Partition(testPartition)
	if got, err := r.State(ctx); err != nil || got != want || got.Segments != 700 {
		t.Fatalf("state %+v, %v after restart, %+v before", got, err, want)
	}
	n := 0
	if err := r.Segments(ctx, 0, func(RemoteSegment) bool { n++; return true }); err != nil || n != 700 {
		t.Fatalf("%d segments, %v", n, err)
	}
	if n := counted.Stats().Requests(); n != 0 {
		t.Fatalf("%d requests for what is cached", n)
	}
	// The next leader's claim needs no read either: the cached ETag is current.
	if err := r.Claim(ctx, 5); err != nil {
		t.Fatal(err)
	}
	if s := counted.Stats(); s.Put.Requests != 1 || s.Requests() != 1 {
		t.Fatalf("claim made %+v", s)
	}
}
