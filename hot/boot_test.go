package hot

import (
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// TestTornTailIsOneUntilItIsCut has power loss tear the tails of two logs, and the process killed in the new run of the kernel: before
// any log was opened, when one was, and when opening has failed.
func TestTornTailIsOneUntilItIsCut(t *testing.T) {
	for _, stopped := range []string{"before any log is opened", "after one of them is", "while the store is opened", "when all are"} {
		mem := vfs.NewMem(1)
		open := func(fs vfs.FS, boot string) (*Store, error) {
			s, err := Open(DefaultConfig("data"), Deps{FS: fs, Boot: boot, Logger: testLogger(t)})
			if err == nil {
				t.Cleanup(s.Abandon)
			}
			return s, err
		}
		must := func(boot string) *Store {
			s, err := open(mem, boot)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		other := testPartition
		other.Index++
		openOther := func(s *Store) *Log {
			l, err := s.Log(other, DefaultLogConfig())
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		s := must("run 1")
		for _, l := range []*Log{openLog(t, s), openOther(s)} {
			for range 10 {
				mustAppend(t, l, records(3, 40, 1))
			}
			waitDurable(t, l, 30)
		}
		torn := openOther(s).active().path(logExt)
		each := int64(records(3, 40, 1).SizeBytes())
		s.Abandon()
		flip(t, mem, torn, 5*each+100) // never synced, and so never acknowledged
		want, bad := int64(15), 0
		switch stopped {
		case "before any log is opened":
			must("run 2").Abandon()
		case "after one of them is":
			s = must("run 2")
			openLog(t, s)
			s.Abandon()
		case "while the store is opened":
			faults := vfs.NewFaults(mem)
			faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpReadDir}, Path: "data", Err: vfs.ErrNotExist})
			if _, err := open(faults, "run 2"); err == nil {
				t.Fatal("the store opens")
			}
		case "when all are":
			s = must("run 2")
			openLog(t, s)
			l := openOther(s)
			for range 5 {
				mustAppend(t, l, records(3, 40, 1))
			}
			waitDurable(t, l, 30)
			s.Abandon()
			flip(t, mem, torn, 7*each+100) // below what is sound: damage
			want, bad = 30, 1
		}
		s = must("run 2")
		openLog(t, s)
		l := openOther(s)
		if got := l.Offsets().End; got != want || len(l.Damaged()) != bad {
			t.Fatalf("%s: the log ends at %d, damage %+v", stopped, got, l.Damaged())
		}
		s.Abandon()
	}
}

// TestLogThatIsDeletedKeepsNobodyFromNotingTheRun opens one of two logs and deletes the other.
func TestLogThatIsDeletedKeepsNobodyFromNotingTheRun(t *testing.T) {
	faults, s, _, b := twoNewLogs(t)
	closeStore(t, s)
	for run, same := range []bool{false, true} {
		s, err := Open(DefaultConfig("data"), Deps{FS: faults, Boot: "run 2", Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		if s.sameBoot != same {
			t.Fatalf("start %d: same run %t", run, s.sameBoot)
		}
		openLog(t, s)
		if err := s.Delete(b.Partition()); err != nil {
			t.Fatal(err)
		}
		s.Abandon()
	}
}
