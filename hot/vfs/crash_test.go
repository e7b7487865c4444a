package vfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// outcomes crashes a state under many seeds and counts what describe says of
// each.
func outcomes(m *vfs.Mem, describe func(*vfs.Mem) string) map[string]int {
	seen := map[string]int{}
	for seed := range uint64(400) {
		seen[describe(m.CrashSeed(seed))]++
	}
	return seen
}

func readOr(m *vfs.Mem, name string) string {
	b, err := vfs.ReadFile(m, name, 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return "absent"
	}
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	m := vfs.NewMem(1)
	must(t, m.MkdirAll("d"))
	must(t, m.SyncDir("/"))
	f := create(t, m, "d/a", "synced")
	must(t, f.Sync())
	must(t, m.SyncDir("d"))
	for got := range outcomes(m, func(c *vfs.Mem) string { return readOr(c, "d/a") }) {
		if got != "synced" {
			t.Fatalf("crash left %q", got)
		}
	}
}

func TestCrashMayLoseUnsyncedName(t *testing.T) {
	m := vfs.NewMem(1)
	f := create(t, m, "a", "x")
	must(t, f.Sync()) // the bytes, not the name
	seen := outcomes(m, func(c *vfs.Mem) string { return readOr(c, "a") })
	if seen["absent"] == 0 || seen["x"] == 0 || len(seen) != 2 {
		t.Fatalf("outcomes %v", seen)
	}
}

func TestCrashKeepsOldOrNewOfRename(t *testing.T) {
	m := vfs.NewMem(1)
	must(t, create(t, m, "f", "old").Close())
	must(t, m.SyncFS("/"))
	g := create(t, m, "f.tmp", "new")
	must(t, g.Sync())
	must(t, m.Rename("f.tmp", "f"))
	seen := outcomes(m, func(c *vfs.Mem) string { return readOr(c, "f") })
	if seen["old"] == 0 || seen["new"] == 0 || len(seen) != 2 {
		t.Fatalf("outcomes before SyncDir: %v", seen)
	}
	must(t, m.SyncDir("/"))
	seen = outcomes(m, func(c *vfs.Mem) string { return readOr(c, "f") + " " + readOr(c, "f.tmp") })
	if len(seen) != 1 || seen["new absent"] == 0 {
		t.Fatalf("outcomes after SyncDir: %v", seen)
	}
}

func TestCrashMayBringBackRemovedName(t *testing.T) {
	m := vfs.NewMem(1)
	must(t, create(t, m, "f", "x").Close())
	must(t, m.SyncFS("/"))
	must(t, m.Remove("f"))
	seen := outcomes(m, func(c *vfs.Mem) string { return readOr(c, "f") })
	if seen["x"] == 0 || seen["absent"] == 0 || len(seen) != 2 {
		t.Fatalf("outcomes %v", seen)
	}
	must(t, m.SyncDir("/"))
	if seen = outcomes(m, func(c *vfs.Mem) string { return readOr(c, "f") }); len(seen) != 1 || seen["absent"] == 0 {
		t.Fatalf("outcomes after SyncDir: %v", seen)
	}
}

func TestCrashTearsUnsyncedAppend(t *testing.T) {
	m := vfs.NewMem(1)
	base := bytes.Repeat([]byte("B"), 700)
	more := bytes.Repeat([]byte("m"), 5000)
	f := create(t, m, "a", string(base))
	must(t, m.SyncFS("/"))
	_, err := f.Write(more)
	must(t, err)
	seen := outcomes(m, func(c *vfs.Mem) string {
		got := readOr(c, "a")
		if len(got) < len(base) || got[:len(base)] != string(base) {
			t.Fatalf("synced bytes are gone: %d bytes left", len(got))
		}
		tail := []byte(got[len(base):])
		switch {
		case len(tail) == 0:
			return "lost"
		case bytes.Equal(tail, more):
			return "kept"
		case bytes.Equal(tail, more[:len(tail)]):
			return "prefix"
		case len(bytes.Trim(tail, "m\x00")) == 0:
			return "holes"
		}
		return "garbage"
	})
	for _, want := range []string{"lost", "kept", "prefix", "holes", "garbage"} {
		if seen[want] == 0 {
			t.Fatalf("never %s: %v", want, seen)
		}
	}
}

func TestCrashMixesOldAndNewOfOverwrite(t *testing.T) {
	m := vfs.NewMem(1)
	f := create(t, m, "a", string(bytes.Repeat([]byte("o"), 4096)))
	must(t, m.SyncFS("/"))
	_, err := f.WriteAt(bytes.Repeat([]byte("n"), 1024), 1000)
	must(t, err)
	seen := outcomes(m, func(c *vfs.Mem) string {
		got := readOr(c, "a")
		if len(got) != 4096 || got[:1000]+got[2024:] != string(bytes.Repeat([]byte("o"), 3072)) {
			t.Fatal("bytes that nobody overwrote have changed")
		}
		return fmt.Sprint(bytes.Count([]byte(got), []byte("n")))
	})
	if len(seen) < 4 || seen["0"] == 0 || seen["1024"] == 0 {
		t.Fatalf("outcomes %v", seen)
	}
}

func TestCrashMayUndoTruncate(t *testing.T) {
	m := vfs.NewMem(1)
	f := create(t, m, "a", string(bytes.Repeat([]byte("o"), 2000)))
	must(t, m.SyncFS("/"))
	must(t, f.Truncate(600))
	_, err := f.Write([]byte("new"))
	must(t, err)
	seen := outcomes(m, func(c *vfs.Mem) string {
		got := readOr(c, "a")
		if len(got) < 600 || got[:600] != string(bytes.Repeat([]byte("o"), 600)) {
			t.Fatalf("bytes below the cut are gone: %d left", len(got))
		}
		return fmt.Sprint(len(got))
	})
	if seen["2000"] == 0 || seen["603"] == 0 {
		t.Fatalf("outcomes %v", seen)
	}
	must(t, f.Sync())
	if seen = outcomes(m, func(c *vfs.Mem) string { return fmt.Sprint(len(readOr(c, "a"))) }); len(seen) != 1 {
		t.Fatalf("outcomes after Sync: %v", seen)
	}
}

func TestWriteFileAtomicSurvivesCrashAnywhere(t *testing.T) {
	for step := range 12 {
		m := vfs.NewMem(uint64(step))
		must(t, vfs.WriteFileAtomic(m, "c", []byte("old")))
		f := vfs.NewFaults(m)
		var crashed []*vfs.Mem
		f.Inject(vfs.Rule{Skip: step, Do: func() {
			for seed := range uint64(50) {
				crashed = append(crashed, m.CrashSeed(seed))
			}
		}})
		must(t, vfs.WriteFileAtomic(f, "c", []byte("new")))
		for _, c := range crashed {
			if got := readOr(c, "c"); got != "old" && got != "new" {
				t.Fatalf("crash at step %d left %q", step, got)
			}
		}
		for seed := range uint64(50) {
			if got := readOr(m.CrashSeed(seed), "c"); got != "new" {
				t.Fatalf("crash afterwards left %q", got)
			}
		}
	}
}

func TestMakeDirSurvivesCrash(t *testing.T) {
	m := vfs.NewMem(1)
	must(t, vfs.MakeDir(m, "/var/lib/varve"))
	must(t, vfs.MakeDir(m, "/var/lib/varve/t-0"))
	must(t, vfs.MakeDir(m, "/var/lib/varve/t-0"))
	must(t, vfs.WriteFileAtomic(m, "/var/lib/varve/t-0/f", []byte("x")))
	for got := range outcomes(m, func(c *vfs.Mem) string { return readOr(c, "/var/lib/varve/t-0/f") }) {
		if got != "x" {
			t.Fatalf("crash left %q", got)
		}
	}
}

func TestCrashIsSettledBySeed(t *testing.T) {
	m := vfs.NewMem(1)
	f := create(t, m, "a", string(bytes.Repeat([]byte("x"), 9000)))
	must(t, f.Close())
	for seed := range uint64(50) {
		first, again := readOr(m.CrashSeed(seed), "a"), readOr(m.CrashSeed(seed), "a")
		if first != again {
			t.Fatalf("seed %d has two outcomes", seed)
		}
	}
}

// TestCrashModel runs random operations beside a model that knows, byte by
// byte, which values a crash may leave.
func TestCrashModel(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		m := vfs.NewMem(seed)
		f := create(t, m, "a", "")
		must(t, m.SyncFS("/"))
		var now, durable []byte
		dirty := map[int]bool{} // indexes below len(durable) written since the last sync
		for range 30 {
			switch rng.IntN(4) {
			case 0:
				must(t, f.Sync())
				durable, dirty = bytes.Clone(now), map[int]bool{}
			case 1:
				size := rng.IntN(3000)
				must(t, f.Truncate(int64(size)))
				for i := size; i < len(durable); i++ {
					dirty[i] = true
				}
				now = append(now, make([]byte, max(0, size-len(now)))...)[:size]
			default:
				off, p := rng.IntN(2500), bytes.Repeat([]byte{byte(1 + rng.IntN(250))}, 1+rng.IntN(1500))
				_, err := f.WriteAt(p, int64(off))
				must(t, err)
				now = append(now, make([]byte, max(0, off+len(p)-len(now)))...)
				copy(now[off:], p)
				for i := off; i < off+len(p); i++ {
					dirty[i] = true
				}
			}
			if got := readOr(m, "a"); got != string(now) {
				t.Fatalf("seed %d: content is not what was written", seed)
			}
			after := readOr(m.Crash(), "a")
			if len(after) < min(len(now), len(durable)) || len(after) > max(len(now), len(durable)) {
				t.Fatalf("seed %d: %d bytes after a crash, had %d, %d durable", seed, len(after), len(now), len(durable))
			}
			for i := range min(len(durable), len(after)) {
				if !dirty[i] && after[i] != durable[i] {
					t.Fatalf("seed %d: byte %d was synced and not written since, yet changed", seed, i)
				}
			}
		}
	}
}

func TestCapacityGivesShortWriteAndENOSPC(t *testing.T) {
	m := vfs.NewMem(1)
	m.SetCapacity(10)
	f := create(t, m, "a", "1234")
	n, err := f.Write([]byte("56789abc"))
	if n != 6 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%d, %v", n, err)
	}
	if _, free, _ := m.Usage("/"); free != 0 {
		t.Fatalf("%d bytes free", free)
	}
	if _, err := f.WriteAt([]byte("X"), 0); err != nil {
		t.Fatalf("overwrite on a full disk: %v", err)
	}
	if err := f.Preallocate(11); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("preallocate: %v", err)
	}
}
