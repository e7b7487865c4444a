package hot

import (
	"runtime"
	"sync"
	"testing"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// TestSegmentsThatWereNeverSyncedEndAtTheFirstGap loses power on a log of which some segments are synced, and sealed, and several
// behind them are not. The journal knows the log, is lost, or is an older one.
func TestSegmentsThatWereNeverSyncedEndAtTheFirstGap(t *testing.T) {
	shorter := 0
	for _, journal := range []string{"there", "lost", "older"} {
		for seed := range uint64(120) {
			x := newSeams(t, seed)
			after := x.crash(t)
			switch journal {
			case "lost":
				if err := after.Remove("data/" + journalName); err != nil {
					t.Fatal(err)
				}
			case "older":
				if err := vfs.WriteFileAtomic(after, "data/"+journalName, x.older); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				s := openStore(t, after, "data", neverSynced)
				l := openLog(t, s)
				o := l.Offsets()
				if l.Err() != nil || o.LocalStart != 0 || o.End < x.synced {
					t.Fatalf("journal %s, seed %d: %+v, %d was synced: %v", journal, seed, o, x.synced, l.Err())
				}
				if o.End < x.end {
					shorter++
				}
				next := int64(0)
				err := l.eachBatch(func(b batch.Batch) error {
					if b.BaseOffset() != next || string(b) != x.want[next] {
						t.Errorf("journal %s, seed %d: batch at %d, want %d", journal, seed, b.BaseOffset(), next)
					}
					next = b.NextOffset()
					return nil
				})
				if damage := l.Damaged(); len(damage) == 0 && (err != nil || next != o.End) {
					t.Errorf("journal %s, seed %d: read to %d of %d: %v", journal, seed, next, o.End, err)
				}
				closeStore(t, s)
			}
		}
	}
	if shorter == 0 {
		t.Fatal("nothing was ever lost")
	}
}

// neverSynced has nothing be synced but what a test asks for, file by file.
func neverSynced(c *Config) {
	c.Durability, c.FlushInterval, c.CheckpointInterval, c.SyncFilesMax = Replicated, 1<<50, 1<<50, 1000
}

// seams is a log of six segments, of which the last are not synced.
type seams struct {
	mem         *vfs.Mem
	s           *Store
	release     chan struct{}
	older       []byte           // the journal of before
	want        map[int64]string // batches by base offset
	synced, end int64
	seed        uint64
}

func newSeams(t *testing.T, seed uint64) *seams {
	x := &seams{mem: vfs.NewMem(seed), release: make(chan struct{}), want: map[int64]string{}, seed: seed}
	faults := vfs.NewFaults(x.mem)
	x.s = openStore(t, faults, "data", neverSynced)
	l := openLog(t, x.s)
	var err error
	if x.older, err = vfs.ReadFile(x.mem, "data/"+journalName, 1<<20); err != nil {
		t.Fatal(err)
	}
	for seg := range 6 {
		if seg == int(seed/3%5) {
			x.s.syncer.flush()
			x.synced = l.Offsets().End
			eventually(t, func() bool { x.s.finishSealed(); return seg == 0 || l.list()[seg-1].is(segTrusted) })
			if seed%5 == 0 {
				if err := x.s.checkpoint([]*Log{l}, false); err != nil {
					t.Fatal(err)
				}
			}
			faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync}, Path: "*.log", Count: -1, Do: func() { <-x.release }})
		}
		for range 1 + (int(seed)+seg)%3 {
			b := records(2, 100+int(seed%7)*90, int64(seg))
			a := mustAppend(t, l, b, func(o *AppendOptions) { o.LeaderEpoch = int32(seg / 2) })
			x.want[a.BaseOffset] = string(b)
		}
		if seg < 5 {
			if err := l.Roll(1); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.end = l.Offsets().End
	l.SetHighWatermark(x.end / 2)
	if seed%2 == 0 {
		x.s.journalWatermarks()
	}
	return x
}

func (x *seams) crash(t *testing.T) *vfs.Mem {
	t.Helper()
	after := x.mem.CrashSeed(x.seed)
	close(x.release)
	x.s.Abandon()
	return after
}

// TestNameIsThereBeforeTheSegmentBeforeItIsSealed: a footer says that the next segment's name is durable, for a round that finds a
// segment sealed syncs the name, too. Without that the next segment could be missing, and the one behind it taken to follow.
func TestNameIsThereBeforeTheSegmentBeforeItIsSealed(t *testing.T) {
	faults := vfs.NewFaults(vfs.NewMem(1))
	release := make(chan struct{})
	defer close(release)
	s := openStore(t, faults, "data", neverSynced)
	l := openLog(t, s)
	waits := make(chan struct{})
	var once sync.Once
	faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync}, Path: "*.log", Count: -1, Do: func() {
		once.Do(func() { close(waits) })
		<-release
	}})
	mustAppend(t, l, records(1, 40, 1))
	s.syncer.push(l, true) // a round that waits from here on, if the append has not begun one
	y := newSyncer(s)
	<-waits
	for range 300 {
		mustAppend(t, l, records(1, 40, 1))
		y.files, y.sealed, y.spans = nil, nil, nil
		y.take(l)
		seg := l.active()
		done := make(chan bool)
		go func() {
			for !seg.is(segSealed) {
				runtime.Gosched()
			}
			done <- l.takeNames()
		}()
		if err := l.Roll(1); err != nil {
			t.Fatal(err)
		}
		if !<-done {
			t.Fatal("a segment is sealed and the name of the next one is not there")
		}
		if n := len(y.sealed); n == 0 || y.sealed[n-1] {
			t.Fatalf("a round that began before the roll takes the segment for sealed: %v", y.sealed)
		}
	}
}
