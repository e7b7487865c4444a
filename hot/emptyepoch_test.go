package hot

import (
	"testing"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
)

// A broker that led without writing follows one whose records are of an earlier epoch: the epoch without records has to give
// way, also over power loss, or those records would be refused.
func TestTruncatingToTheEndForgetsEpochsWithoutRecords(t *testing.T) {
	for _, records := range []int{0, 3} {
		mem := vfs.NewMem(1)
		s := openStore(t, mem, "data")
		l := openLog(t, s)
		want := lineage.Chain(nil)
		for i := range records {
			mustAppend(t, l, produced(7, 0, int32(i), 1, false), func(o *AppendOptions) { o.LeaderEpoch = 2 })
			want = lineage.Chain{{Epoch: 2, Start: 0}}
		}
		waitDurable(t, l, int64(records))
		for _, epoch := range []int32{5, 6} {
			if err := l.AssignEpoch(epoch); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.TruncateTo(int64(records)); err != nil {
			t.Fatal(err)
		}
		images := []*vfs.Mem{mem.Clone()}
		for seed := range uint64(20) {
			images = append(images, mem.CrashSeed(seed))
		}
		if got := l.Lineage(); !got.Equal(want) {
			t.Fatalf("leader epochs %v, want %v", got, want)
		}
		s.Abandon()
		for _, image := range images {
			s := openStore(t, image, "data")
			l := openLog(t, s)
			if got := l.Lineage(); !got.Equal(want) {
				t.Fatalf("leader epochs %v after a crash, want %v", got, want)
			}
			b := produced(7, 0, int32(records), 1, false)
			b.SetBaseOffset(int64(records))
			b.SetLeaderEpoch(4)
			if _, err := l.Append(b, AppendOptions{Origin: Follower}); err != nil {
				t.Fatal(err)
			}
			s.Abandon()
		}
	}
}

// A leader that is started again in its own epoch assigns the one that the journal has: nobody has read the others by then.
func TestTheLatestEpochIsAssignedAgainAfterAStart(t *testing.T) {
	mem := vfs.NewMem(1)
	s := openStore(t, mem, "data")
	l := openLog(t, s)
	followEpoch(t, l, 2, 1)
	if err := l.AssignEpoch(5); err != nil {
		t.Fatal(err)
	}
	want := l.Lineage()
	for range 2 {
		closeStore(t, s)
		s = openStore(t, mem, "data")
		l = openLog(t, s)
		if err := l.AssignEpoch(5); err != nil {
			t.Fatal(err)
		}
		if got := l.Lineage(); !got.Equal(want) || len(got) != 2 {
			t.Fatalf("epochs are %v, they were %v", got, want)
		}
	}
	s.Abandon()
}
