package hot

import (
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// openRun opens a store in a run of the kernel.
func openRun(t *testing.T, fs vfs.FS, boot string, change ...func(*Config)) *Store {
	t.Helper()
	c := DefaultConfig("data")
	for _, f := range change {
		f(&c)
	}
	s, err := Open(c, Deps{FS: fs, Boot: boot, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Abandon)
	return s
}

// openOther opens another log than openLog.
func openOther(t *testing.T, s *Store) *Log {
	t.Helper()
	p := testPartition
	p.Index++
	l, err := s.Log(p, DefaultLogConfig())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestTornTailIsOneUntilItIsCut has power loss tear the tails of two logs, and the process killed in the new run of the kernel: before
// any log was opened, when one was, and when opening has failed.
func TestTornTailIsOneUntilItIsCut(t *testing.T) {
	for _, stopped := range []string{"before any log is opened", "after one of them is", "while the store is opened", "when all are"} {
		mem := vfs.NewMem(1)
		s := openRun(t, mem, "run 1")
		for _, l := range []*Log{openLog(t, s), openOther(t, s)} {
			for range 10 {
				mustAppend(t, l, records(3, 40, 1))
			}
			waitDurable(t, l, 30)
		}
		torn := openOther(t, s).active().path(logExt)
		each := int64(records(3, 40, 1).SizeBytes())
		s.Abandon()
		flip(t, mem, torn, 5*each+100) // never synced, and so never acknowledged
		want, bad := int64(15), 0
		switch stopped {
		case "before any log is opened":
			openRun(t, mem, "run 2").Abandon()
		case "after one of them is":
			s = openRun(t, mem, "run 2")
			openLog(t, s)
			s.Abandon()
		case "while the store is opened":
			faults := vfs.NewFaults(mem)
			faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpReadDir}, Path: "data", Err: vfs.ErrNotExist})
			if _, err := Open(DefaultConfig("data"), Deps{FS: faults, Boot: "run 2", Logger: testLogger(t)}); err == nil {
				t.Fatal("the store opens")
			}
		case "when all are":
			s = openRun(t, mem, "run 2")
			openLog(t, s)
			l := openOther(t, s)
			for range 5 {
				mustAppend(t, l, records(3, 40, 1))
			}
			waitDurable(t, l, 30)
			s.Abandon()
			flip(t, mem, torn, 7*each+100) // below what is sound: damage
			want, bad = 30, 1
		}
		s = openRun(t, mem, "run 2")
		openLog(t, s)
		l := openOther(t, s)
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
		s := openRun(t, faults, "run 2")
		if got := s.inThisRun(keyOf(b.Partition())) && s.inThisRun(keyOf(testPartition)); got != same {
			t.Fatalf("start %d: same run %t", run, got)
		}
		openLog(t, s)
		if err := s.Delete(b.Partition()); err != nil {
			t.Fatal(err)
		}
		s.Abandon()
	}
}

// TestLogThatNobodyOpensKeepsNobodyFromBeingOfTheRun has two logs whose tails power loss has torn. One of them is opened and
// written on, and the process dies: what is bad in it then is damage. Nobody opens the other, or it stays offline, or is set aside.
func TestLogThatNobodyOpensKeepsNobodyFromBeingOfTheRun(t *testing.T) {
	for _, other := range []string{"not opened", "offline", "set aside"} {
		mem := vfs.NewMem(1)
		open := func(boot string) *Store { return openRun(t, mem, boot, rarely) }
		add := func(l *Log) {
			for range 5 {
				mustAppend(t, l, records(3, 40, 1))
			}
			waitDurable(t, l, l.Offsets().End)
		}
		each := int64(records(3, 40, 1).SizeBytes())
		s := open("run 1")
		a, b := openLog(t, s), openOther(t, s)
		add(a)
		add(b)
		if other != "not opened" {
			if err := s.checkpoint(s.opened(), false); err != nil {
				t.Fatal(err)
			}
		}
		pathA, pathB := a.active().path(logExt), b.active().path(logExt)
		s.Abandon()
		if other == "not opened" {
			flip(t, mem, pathB, 2*each+100)
		} else if err := mem.Remove(pathB); err != nil {
			t.Fatal(err)
		}
		s = open("run 2")
		a = openLog(t, s)
		add(a)
		if other != "not opened" {
			if err := openOther(t, s).Err(); err == nil {
				t.Fatal("the log without its records is not offline")
			}
		}
		if other == "set aside" {
			if _, err := s.SetAside(b.Partition(), DefaultLogConfig()); err != nil {
				t.Fatal(err)
			}
		}
		left := 1
		if other == "set aside" {
			left = 0
		}
		settled(t, s, "run 2", left)
		s.Abandon()
		flip(t, mem, pathA, 7*each+100)
		s = open("run 2")
		a = openLog(t, s)
		if got := a.Offsets().End; got != 30 || len(a.Damaged()) != 1 {
			t.Fatalf("%s: the log ends at %d, damage %+v", other, got, a.Damaged())
		}
		if other == "not opened" {
			if b = openOther(t, s); b.Offsets().End != 6 || len(b.Damaged()) != 0 {
				t.Fatalf("the other log ends at %d, damage %+v", b.Offsets().End, b.Damaged())
			}
			settled(t, s, "run 2", 0)
		}
		s.Abandon()
	}
}

// settled waits until the boot file names a run, and so many logs that are not of it.
func settled(t *testing.T, s *Store, want string, left int) {
	t.Helper()
	eventually(t, func() bool {
		s.settleBoot()
		text, err := vfs.ReadFile(s.fs, s.bootPath(), bootBytesMax)
		run, not, ok := parseBoot(string(text))
		return err == nil && ok && run == want && len(not) == left
	})
}

// TestBootFileThatCannotBeReadNamesNoRun has files that are cut short, or hold something else.
func TestBootFileThatCannotBeReadNamesNoRun(t *testing.T) {
	k := keyOf(testPartition)
	whole := formatBoot("run 1", map[journalKey]struct{}{k: {}})
	if run, not, ok := parseBoot(whole); !ok || run != "run 1" || len(not) != 1 || not[0] != k {
		t.Fatalf("%q is %q, %v, %t", whole, run, not, ok)
	}
	for _, text := range []string{whole + "\n", whole + "x", whole[:20], whole + "\nx-1", whole + "\n" + k.id.String() + "-99999999999"} {
		if _, _, ok := parseBoot(text); ok {
			t.Errorf("%q is taken for whole", text)
		}
	}
	many := map[journalKey]struct{}{}
	for i := range int32(bootLogsMax) {
		many[journalKey{testPartition.ID, 2147483647 - i}] = struct{}{}
	}
	if n := len(formatBoot("01234567-0123-0123-0123-0123456789ab", many)); n > bootBytesMax {
		t.Fatalf("%d logs take %d bytes", len(many), n)
	}
}
