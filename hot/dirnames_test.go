package hot

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/varvelog/varve/hot/vfs"
)

// twoNewLogs is two logs without records on a disk with faults. Their names are not durable, and no round is under way that would make
// them so.
func twoNewLogs(t *testing.T) (faults *vfs.Faults, s *Store, a, b *Log) {
	t.Helper()
	faults = vfs.NewFaults(vfs.NewMem(1))
	s = openStore(t, faults, "data", rarely)
	b = openOther(t, s)
	a = openLog(t, s)
	s.syncer.flush()
	s.newDir()
	return faults, s, a, b
}

// TestFirstAppendWaitsForTheNameOfItsLog has the data directory be synced for one new log when another one is appended to.
func TestFirstAppendWaitsForTheNameOfItsLog(t *testing.T) {
	faults, _, a, b := twoNewLogs(t)
	reached, release := make(chan struct{}), make(chan struct{})
	rule := faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSyncDir}, Path: "data", Do: func() { close(reached); <-release }})
	done := make(chan error, 2)
	add := func(l *Log) {
		_, err := l.Append(records(3, 40, 1), AppendOptions{Now: 1})
		done <- err
	}
	go add(a)
	<-reached
	go add(b)
	select {
	case <-done:
		t.Error("a record was taken into a directory whose name may go")
		done <- nil
	case <-time.After(100 * time.Millisecond):
	}
	close(release)
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	waitDurable(t, a, 3)
	waitDurable(t, b, 3)
	if rule.Hits() != 1 {
		t.Fatal("the directory was not synced")
	}
}

// TestNamesThatCouldNotBeSyncedAreNotTriedAgain has the disk say once that it has lost something.
func TestNamesThatCouldNotBeSyncedAreNotTriedAgain(t *testing.T) {
	for name, first := range map[string]func(s *Store, l *Log) error{
		"append": func(_ *Store, l *Log) error {
			_, err := l.Append(records(3, 40, 1), AppendOptions{Now: 1})
			return err
		},
		"reset":  func(_ *Store, l *Log) error { return l.ResetTo(5, nil, nil) },
		"delete": func(s *Store, l *Log) error { return s.Delete(l.Partition()) },
	} {
		faults, s, a, b := twoNewLogs(t)
		faults.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSyncDir}, Path: "data", Err: syscall.EIO})
		if err := first(s, a); !errors.Is(err, syscall.EIO) {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := b.Append(records(3, 40, 1), AppendOptions{Now: 1}); !errors.Is(err, ErrOffline) || s.Err() == nil {
			t.Fatalf("%s: the other log takes records: %v", name, err)
		}
		s.Abandon()
	}
}
