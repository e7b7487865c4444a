package vfs_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

func TestRuleStrikesTheNthMatch(t *testing.T) {
	f := vfs.NewFaults(vfs.NewMem(1))
	fault := f.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync}, Path: "*.log", Skip: 1, Count: 2, Err: syscall.EIO})
	a := create(t, f, "a.log", "x")
	b := create(t, f, "b.idx", "x")
	must(t, a.Sync())
	must(t, b.Sync())
	for range 2 {
		if err := a.Sync(); !errors.Is(err, syscall.EIO) {
			t.Fatalf("sync: %v", err)
		}
		must(t, b.Sync())
	}
	must(t, a.Sync())
	if fault.Hits() != 2 || f.Calls(vfs.OpSync) != 7 {
		t.Fatalf("%d hits of %d syncs", fault.Hits(), f.Calls(vfs.OpSync))
	}
}

func TestFailedSyncSyncsNothing(t *testing.T) {
	m := vfs.NewMem(1)
	f := vfs.NewFaults(m)
	a := create(t, f, "a", "")
	must(t, m.SyncFS("/"))
	f.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync}, Err: syscall.EIO})
	_, err := a.Write([]byte("x"))
	must(t, err)
	if a.Sync() == nil {
		t.Fatal("sync did not fail")
	}
	seen := outcomes(m, func(c *vfs.Mem) string { return readOr(c, "a") })
	if seen[""] == 0 {
		t.Fatalf("a failed sync made bytes durable: %v", seen)
	}
}

// The kernel says once what it could not write.
func TestUnwrittenFileSyncsNothingAfterItsError(t *testing.T) {
	m := vfs.NewMem(1)
	f := vfs.NewFaults(m)
	a := create(t, f, "a", "")
	must(t, m.SyncFS("/"))
	f.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpSync}, Err: syscall.EIO, Unwritten: true})
	_, err := a.Write([]byte("x"))
	must(t, err)
	if err := a.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("sync: %v", err)
	}
	must(t, a.Sync())
	seen := outcomes(m, func(c *vfs.Mem) string { return readOr(c, "a") })
	if seen[""] == 0 {
		t.Fatalf("a later sync made bytes durable: %v", seen)
	}
}

func TestShortWriteWritesSome(t *testing.T) {
	f := vfs.NewFaults(vfs.NewMem(1))
	a := create(t, f, "dir-0.log", "ab")
	f.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpWrite}, Err: syscall.ENOSPC, Short: 3})
	n, err := a.WritevAt([][]byte{[]byte("12"), []byte("345")}, 2)
	if n != 3 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%d, %v", n, err)
	}
	if got := content(t, f, "dir-0.log"); got != "ab123" {
		t.Fatalf("content %q", got)
	}
}

func TestErrorAfterSuccess(t *testing.T) {
	f := vfs.NewFaults(vfs.NewMem(1))
	must(t, create(t, f, "a", "x").Close())
	f.Inject(vfs.Rule{Ops: []vfs.Op{vfs.OpRename}, Path: "b", Err: syscall.EIO, After: true})
	if err := f.Rename("a", "b"); !errors.Is(err, syscall.EIO) {
		t.Fatalf("rename: %v", err)
	}
	if got := content(t, f, "b"); got != "x" {
		t.Fatalf("content %q", got)
	}
}

func TestRulesMatchWholePathsAndEveryOperation(t *testing.T) {
	f := vfs.NewFaults(vfs.NewMem(1))
	must(t, f.MkdirAll("/d/e"))
	rule := f.Inject(vfs.Rule{Path: "/d/*", Count: -1, Err: syscall.EIO})
	for name, err := range map[string]error{
		"create":  second(f.Create("/d/x")),
		"open":    second(f.Open("/d/x")),
		"append":  second(f.OpenAppend("/d/x")),
		"mkdir":   f.MkdirAll("/d/q"),
		"remove":  f.Remove("/d/e"),
		"all":     f.RemoveAll("/d/e"),
		"readdir": second(f.ReadDir("/d/e")),
		"stat":    second(f.Stat("/d/e")),
		"syncdir": f.SyncDir("/d/e"),
		"syncfs":  f.SyncFS("/d/e"),
		"lock":    second(f.Lock("/d/l")),
		"rename":  f.Rename("/d/e", "/z"),
	} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := f.Create("/x"); err != nil {
		t.Fatalf("outside the glob: %v", err)
	}
	rule.Remove()
	if _, err := f.Create("/d/x"); err != nil {
		t.Fatalf("after Remove: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }
