package meta

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
)

func openStore(t *testing.T) *logStore {
	t.Helper()
	s, err := openLogStore(filepath.Join(t.TempDir(), "raft.db"), lockTimeout, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestASealHoldsEverythingOfAnEntry(t *testing.T) {
	whole := raft.Log{Index: 1, Term: 2, Type: raft.LogConfiguration, Data: []byte("members")}
	for name, damage := range map[string]func(*raft.Log){
		"term":      func(l *raft.Log) { l.Term = 3 },
		"type":      func(l *raft.Log) { l.Type = raft.LogNoop },
		"data":      func(l *raft.Log) { l.Data = []byte("mumbers") },
		"seal":      func(l *raft.Log) { l.Extensions[4] ^= 1 },
		"no seal":   func(l *raft.Log) { l.Extensions = nil },
		"new index": func(l *raft.Log) { l.Extensions = seal(&raft.Log{Index: 2, Term: l.Term, Type: l.Type, Data: l.Data}) },
	} {
		s := openStore(t)
		l := whole
		l.Extensions = seal(&l)
		damage(&l)
		if err := s.db.StoreLog(&l); err != nil { // past the seal
			t.Fatal(err)
		}
		if err := s.verify(0); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: a node would start on it: %v", name, err)
		}
		var out raft.Log
		if err := s.GetLog(1, &out); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: raft would read it: %v", name, err)
		}
		if s.err() == nil {
			t.Errorf("%s: reading it is not final", name)
		}
	}
}

func TestAStoreThatFailedStaysFailed(t *testing.T) {
	s := openStore(t)
	faulty := &faultyStore{store: s.db}
	s.db = faulty
	faulty.left.Store(1)
	l := &raft.Log{Index: 1, Term: 1, Type: raft.LogNoop}
	first := s.StoreLog(l)
	if !errors.Is(first, errDisk) {
		t.Fatal(first)
	}
	for name, op := range map[string]func() error{
		"store": func() error { return s.StoreLog(l) },
		"vote":  func() error { return s.SetUint64([]byte("term"), 1) },
		"read":  func() error { _, err := s.LastIndex(); return err },
	} {
		if err := op(); !errors.Is(err, errDisk) {
			t.Errorf("%s after the failure: %v", name, err)
		}
	}
}

func TestWhatIsAbsentIsNoFailure(t *testing.T) {
	s := openStore(t)
	var l raft.Log
	if err := s.GetLog(9, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Error(err)
	}
	if _, err := s.Get([]byte("absent")); err == nil || err.Error() != "not found" { // raft compares the text
		t.Error(err)
	}
	if s.err() != nil {
		t.Error(s.err())
	}
}

func TestALogMustReachBackToTheSnapshot(t *testing.T) {
	s := openStore(t)
	for i := uint64(5); i <= 7; i++ {
		if err := s.StoreLog(&raft.Log{Index: i, Term: 1, Type: raft.LogNoop}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.verify(4); err != nil {
		t.Error(err)
	}
	if err := s.verify(3); !errors.Is(err, ErrCorrupt) {
		t.Errorf("entry 4 is missing: %v", err)
	}
	if err := s.db.DeleteRange(6, 6); err != nil {
		t.Fatal(err)
	}
	if err := s.verify(4); !errors.Is(err, ErrCorrupt) {
		t.Errorf("entry 6 is missing: %v", err)
	}
}

// TestADamagedHeadIsNotPassedOver: bbolt opens with the older head when the
// newer is damaged, and the last commit would be forgotten.
func TestADamagedHeadIsNotPassedOver(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), NodeID: 1}
	n := openNode(t, cfg, Deps{})
	register(t, n)
	createTopic(t, n, "a", 1)
	closeNode(t, n)
	for _, head := range []int64{0, int64(os.Getpagesize())} {
		for at := head + 16; at < head+80; at++ {
			damaged := cfg
			damaged.Dir = copyDir(t, cfg.Dir)
			flipByte(t, filepath.Join(damaged.Dir, "raft.db"), at)
			if again, err := Open(damaged, Deps{}); !errors.Is(err, ErrCorrupt) {
				t.Errorf("byte %d damaged: opened with %v", at, err)
				if err == nil {
					closeNode(t, again)
				}
			}
		}
	}
	closeNode(t, openNode(t, cfg, Deps{}))
}
