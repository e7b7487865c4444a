package hot

import (
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// powerLosses collects what power loss may leave before every operation of a file
// system, once it is told to.
type powerLosses struct {
	mem *vfs.Mem

	mu     sync.Mutex // guards the following
	on     bool
	images []*vfs.Mem
}

const lossesPerOperation = 6 // outcomes of one moment

func (p *powerLosses) fs() *hookFS {
	return &hookFS{FS: p.mem, hook: func(string, string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.on {
			p.takeLocked()
		}
	}}
}

func (p *powerLosses) takeLocked() {
	for range lossesPerOperation {
		p.images = append(p.images, p.mem.CrashSeed(uint64(len(p.images))))
	}
}

// during runs f and returns what power loss in it, or right after it, may leave.
func (p *powerLosses) during(f func()) []*vfs.Mem {
	p.mu.Lock()
	p.on = true
	p.mu.Unlock()
	f()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.on = false
	p.takeLocked()
	return p.images
}

// A partition whose records are in the shared log is deleted, and power is lost
// anywhere in it, and once more in the start that finds it: it is there as a whole
// or it is not, and nobody misses its records.
func TestDeletionUnderWayIsKnownAtTheNextStart(t *testing.T) {
	for name, full := range map[string]bool{"space": false, "journal has no space": true} {
		mem := vfs.NewMem(31)
		losses := &powerLosses{mem: mem}
		faults := vfs.NewFaults(losses.fs())
		s, l := behindStore(t, faults, 6)
		part := l.Partition()
		images := losses.during(func() {
			if full {
				noSpace(faults, journalName+"*")
			}
			if err := s.Delete(part); err != nil {
				t.Fatal(err)
			}
			eventually(t, func() bool {
				entries, err := mem.ReadDir("data/" + partitionDirName(part) + deleteSuffix)
				return errors.Is(err, vfs.ErrNotExist) || full && len(entries) == 0
			})
		})
		s.Abandon()
		for i, image := range images {
			startAfterDeletion(t, name, i, image)
		}
	}
}

// startAfterDeletion opens an image of a store whose one partition was being
// deleted, and what power loss leaves of that.
func startAfterDeletion(t *testing.T, name string, i int, image *vfs.Mem) {
	t.Helper()
	check := func(fs *vfs.Mem, s *Store, when string) {
		t.Helper()
		if _, err := fs.Stat("data/" + sharedName + damagedSuffix); err == nil {
			t.Fatalf("%s, image %d, %s: records of a partition that was deleted are missed", name, i, when)
		}
		if _, err := fs.Stat("data/" + partitionDirName(testPartition) + deleteSuffix); err == nil {
			t.Fatalf("%s, image %d, %s: the deletion is not finished", name, i, when)
		}
		if !s.Has(testPartition) {
			return
		}
		l := openLog(t, s)
		if _, _, lost := l.Lost(); lost || l.Err() != nil || l.Offsets().End != 7 {
			t.Fatalf("%s, image %d, %s: lost %v, %v, %+v", name, i, when, lost, l.Err(), l.Offsets())
		}
	}
	losses := &powerLosses{mem: image}
	again := losses.during(func() {
		s := openStore(t, losses.fs(), "data")
		check(image, s, "first start")
		s.Abandon()
	})
	for _, fs := range again {
		s := openStore(t, fs, "data")
		check(fs, s, "second start")
		s.Abandon()
	}
}

// TestDeletionIsRepeatedAfterItsNameWasNotDurable has no space for the name of the directory: the deletion fails then, and another
// one ends it.
func TestDeletionIsRepeatedAfterItsNameWasNotDurable(t *testing.T) {
	mem := vfs.NewMem(33)
	fs := vfs.NewFaults(mem)
	s := openStore(t, fs, "data")
	l := openLog(t, s)
	appendDurable(t, l, 1)
	full := fs.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSyncDir}, Path: "data", Count: -1, Err: syscall.ENOSPC})
	for range 2 {
		if err := s.Delete(testPartition); !isDiskEnd(err) {
			t.Fatalf("deleted without space: %v", err)
		}
	}
	if s.Err() != nil || !s.Has(testPartition) {
		t.Fatalf("store %v, has it %t", s.Err(), s.Has(testPartition))
	}
	full.Remove()
	for range 2 {
		if err := s.Delete(testPartition); err != nil {
			t.Fatal(err)
		}
	}
	if s.Has(testPartition) {
		t.Fatal("it is there")
	}
	eventually(t, func() bool {
		_, err := mem.Stat("data/" + partitionDirName(testPartition) + deleteSuffix)
		return errors.Is(err, vfs.ErrNotExist)
	})
	waitDurable(t, openLog(t, s), 0)
}

// TestDeletionOfADirectoryThatIsGoneSaysSo: nothing of a deletion that had begun is there.
func TestDeletionOfADirectoryThatIsGoneSaysSo(t *testing.T) {
	mem := vfs.NewMem(34)
	s := openStore(t, mem, "data")
	if err := mem.RemoveAll(openLog(t, s).Dir()); err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(testPartition); !errors.Is(err, vfs.ErrNotExist) {
		t.Fatalf("deleted: %v", err)
	}
}
