package hot

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// everything is the log's bytes from an offset on.
func everything(t *testing.T, l *Log, from int64) []byte {
	t.Helper()
	s, err := l.Read(from, 1<<20, l.Offsets().End, true)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	b, err := s.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clone(b)
}

// TestFollowerTakesTheLeadersBytesAsTheyAreOrNothing: what a follower appends is
// its leader's, offset, epoch and all; a byte that is not, a batch that overlaps,
// or one of an earlier epoch, leaves the log as it was.
func TestFollowerTakesTheLeadersBytesAsTheyAreOrNothing(t *testing.T) {
	leader := openLog(t, openStore(t, vfs.NewMem(1), "data"))
	for epoch := range int32(3) {
		if err := leader.AssignEpoch(epoch + 4); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, leader, produced(7, 0, epoch*3, 3, false))
		mustAppend(t, leader, records(2, 40, 1))
	}
	sent := everything(t, leader, 0)
	follow := AppendOptions{Origin: Follower, LeaderEpoch: 9, Now: 5}

	l := openLog(t, openStore(t, vfs.NewMem(2), "data"))
	first, _, err := batch.Next(sent)
	if err != nil {
		t.Fatal(err)
	}
	for i := range first.SizeBytes() {
		bad := slices.Clone(sent[:first.SizeBytes()])
		bad[i] ^= 1
		if i < 16 {
			continue // offset, length and leader epoch: no checksum covers them
		}
		if _, err := l.Append(bad, follow); err == nil {
			t.Fatalf("byte %d is not the leader's, and was taken", i)
		}
		if o := l.Offsets(); o.End != 0 {
			t.Fatalf("byte %d: the log ends at %d", i, o.End)
		}
	}
	a, err := l.Append(slices.Clone(sent), follow)
	if err != nil || a.LastOffset != leader.Offsets().End-1 {
		t.Fatalf("%+v, %v", a, err)
	}
	if got := everything(t, l, 0); !bytes.Equal(got, sent) {
		t.Fatal("the follower's bytes are not the leader's")
	}
	if !l.Lineage().Equal(leader.Lineage()) {
		t.Fatalf("epochs %v, the leader's are %v", l.Lineage(), leader.Lineage())
	}
	if _, err := l.Append(slices.Clone(sent), follow); !errors.Is(err, ErrNotContiguous) {
		t.Fatalf("the same again: %v", err)
	}
	tail := everything(t, leader, leader.Offsets().End-1)
	if _, err := l.Append(tail, follow); !errors.Is(err, ErrNotContiguous) {
		t.Fatalf("the last batch again: %v", err)
	}
	old := slices.Clone(sent[:first.SizeBytes()])
	b, _, err := batch.Next(old)
	if err != nil {
		t.Fatal(err)
	}
	b.SetBaseOffset(l.Offsets().End)
	if _, err := l.Append(old, follow); !errors.Is(err, ErrNotContiguous) {
		t.Fatalf("a batch of an earlier epoch: %v", err)
	}
	if got := everything(t, l, 0); !bytes.Equal(got, sent) {
		t.Fatal("a refused batch changed the log")
	}
	// The state of producers is the same, without having been sent.
	want, err := leader.Producers()
	if err != nil {
		t.Fatal(err)
	}
	got, err := l.Producers()
	if err != nil || !slices.Equal(got, want) || len(got) != 1 {
		t.Fatalf("producers %+v, the leader's are %+v, %v", got, want, err)
	}
}

// TestOffsetsAreGivenOutOnceToManyAppenders has many append at once.
func TestOffsetsAreGivenOutOnceToManyAppenders(t *testing.T) {
	const appenders, each = 8, 60
	fs := &hookFS{FS: vfs.NewMem(1), hook: func(op, name string) {
		if op == "write" {
			runtime.Gosched() // let another one come in between
		}
	}}
	l := openLog(t, openStore(t, fs, "data"))
	var mu sync.Mutex
	taken := map[int64]bool{}
	var wg sync.WaitGroup
	for i := range appenders {
		wg.Go(func() {
			for range each {
				a, err := l.Append(records(1+i%3, 20, 1), AppendOptions{Now: 1})
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for o := a.BaseOffset; o <= a.LastOffset; o++ {
					if taken[o] {
						t.Errorf("offset %d is given out twice", o)
					}
					taken[o] = true
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if end := l.Offsets().End; int64(len(taken)) != end {
		t.Fatalf("%d offsets, the log ends at %d", len(taken), end)
	}
	checkDense(t, readAll(t, l, 1<<20), 0, l.Offsets().End)
}
