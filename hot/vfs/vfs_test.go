package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// systems are the implementations that must behave alike, each with a
// directory to work in.
func systems(t *testing.T, run func(t *testing.T, fsys vfs.FS, dir string)) {
	t.Run("os", func(t *testing.T) { run(t, vfs.OS(), t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := vfs.NewMem(1)
		must(t, m.MkdirAll("/data"))
		run(t, m, "/data")
	})
	t.Run("faults", func(t *testing.T) { run(t, vfs.NewFaults(vfs.OS()), t.TempDir()) })
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t testing.TB, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	if content != "" {
		_, err = f.Write([]byte(content))
		must(t, err)
	}
	return f
}

func content(t testing.TB, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name, 1<<20)
	must(t, err)
	return string(b)
}

func TestFilesReadBackWhatWasWritten(t *testing.T) {
	systems(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "a.log")
		f := create(t, fsys, name, "hello ")
		_, err := f.Write([]byte("world"))
		must(t, err)
		must(t, f.Preallocate(1<<16))
		if n, err := f.Size(); n != 11 || err != nil {
			t.Fatalf("size %d, %v; preallocation must not change it", n, err)
		}
		n, err := f.WritevAt([][]byte{[]byte("J"), nil, []byte("ELLO")}, 0)
		if n != 5 || err != nil {
			t.Fatalf("writev: %d, %v", n, err)
		}
		must(t, f.Sync())
		buf := make([]byte, 20)
		n, err = f.ReadAt(buf, 3)
		if string(buf[:n]) != "LO world" || err != io.EOF {
			t.Fatalf("read %q, %v", buf[:n], err)
		}
		if n, err := f.ReadAt(buf, 100); n != 0 || err != io.EOF {
			t.Fatalf("read past end: %d, %v", n, err)
		}
		must(t, f.Close())
		if got := content(t, fsys, name); got != "JELLO world" {
			t.Fatalf("content %q", got)
		}
	})
}

func TestWriteContinuesAtHandleEnd(t *testing.T) {
	systems(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "a")
		must(t, create(t, fsys, name, "0123456789").Close())
		f, err := fsys.OpenAppend(name)
		must(t, err)
		_, err = f.WriteAt([]byte("X"), 0)
		must(t, err)
		_, err = f.Write([]byte("ab"))
		must(t, err)
		must(t, f.Truncate(4))
		_, err = f.Write([]byte("cd"))
		must(t, err)
		must(t, f.Truncate(8))
		_, err = io.WriteString(f, "z")
		must(t, err)
		_, err = io.Copy(f, bytes.NewReader([]byte("y")))
		must(t, err)
		must(t, f.Close())
		if got := content(t, fsys, name); got != "X123cd\x00\x00zy" {
			t.Fatalf("content %q", got)
		}
	})
}

func TestManyVectorsAreWrittenInOrder(t *testing.T) {
	systems(t, func(t *testing.T, fsys vfs.FS, dir string) {
		f := create(t, fsys, filepath.Join(dir, "v"), "")
		var bufs [][]byte
		var want []byte
		for i := range 3000 { // more than one pwritev takes
			b := bytes.Repeat([]byte{byte(i)}, i%5)
			bufs = append(bufs, b)
			want = append(want, b...)
		}
		n, err := f.WritevAt(bufs, 7)
		if n != len(want) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		got := make([]byte, len(want))
		_, err = f.ReadAt(got, 7)
		if !bytes.Equal(got, want) {
			t.Fatalf("vectors differ, %v", err)
		}
		must(t, f.Close())
	})
}

func TestNamesFollowOperations(t *testing.T) {
	systems(t, func(t *testing.T, fsys vfs.FS, dir string) {
		sub := filepath.Join(dir, "x", "y")
		must(t, fsys.MkdirAll(sub))
		must(t, create(t, fsys, filepath.Join(sub, "b"), "b").Close())
		must(t, create(t, fsys, filepath.Join(sub, "a"), "a").Close())
		must(t, fsys.Rename(filepath.Join(sub, "a"), filepath.Join(sub, "b")))
		if got := content(t, fsys, filepath.Join(sub, "b")); got != "a" {
			t.Fatalf("renamed file holds %q", got)
		}
		must(t, fsys.MkdirAll(filepath.Join(sub, "d")))
		must(t, fsys.SyncDir(sub))
		must(t, fsys.SyncFS(sub))
		entries, err := fsys.ReadDir(sub)
		must(t, err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if !slices.Equal(names, []string{"b", "d"}) || !entries[1].IsDir() || entries[0].IsDir() {
			t.Fatalf("entries %v", names)
		}
		info, err := fsys.Stat(filepath.Join(sub, "b"))
		must(t, err)
		if info.Size() != 1 || info.IsDir() || info.Name() != "b" {
			t.Fatalf("stat %v %v %v", info.Size(), info.IsDir(), info.Name())
		}
		if err := fsys.Remove(filepath.Join(dir, "x")); err == nil {
			t.Fatal("removed a directory that is not empty")
		}
		must(t, fsys.Rename(filepath.Join(dir, "x"), filepath.Join(dir, "z")))
		if got := content(t, fsys, filepath.Join(dir, "z", "y", "b")); got != "a" {
			t.Fatalf("moved file holds %q", got)
		}
		must(t, fsys.RemoveAll(filepath.Join(dir, "z")))
		must(t, fsys.RemoveAll(filepath.Join(dir, "z")))
		for _, err := range []error{
			func() error { _, err := fsys.Open(filepath.Join(dir, "z", "y", "b")); return err }(),
			func() error { _, err := fsys.Stat(filepath.Join(dir, "z")); return err }(),
			fsys.Remove(filepath.Join(dir, "z")),
			fsys.SyncDir(filepath.Join(dir, "z")),
		} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Fatalf("absent name gives %v", err)
			}
		}
	})
}

func TestMakeDirMakesParents(t *testing.T) {
	systems(t, func(t *testing.T, fsys vfs.FS, dir string) {
		must(t, vfs.MakeDir(fsys, filepath.Join(dir, "a", "b", "c")))
		must(t, vfs.MakeDir(fsys, filepath.Join(dir, "a", "b", "c")))
		must(t, create(t, fsys, filepath.Join(dir, "a", "f"), "x").Close())
		if err := vfs.MakeDir(fsys, filepath.Join(dir, "a", "f", "g")); err == nil {
			t.Fatal("made a directory below a file")
		}
	})
}

func TestOpenFileOutlivesItsName(t *testing.T) {
	systems(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "a")
		f := create(t, fsys, name, "kept")
		must(t, fsys.Remove(name))
		buf := make([]byte, 4)
		if _, err := f.ReadAt(buf, 0); err != nil || string(buf) != "kept" {
			t.Fatalf("%q, %v", buf, err)
		}
		must(t, f.Close())
	})
}

func TestReadOnlyHandleRefusesWrites(t *testing.T) {
	systems(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "a")
		must(t, create(t, fsys, name, "x").Close())
		f, err := fsys.Open(name)
		must(t, err)
		if _, err := f.WriteAt([]byte("y"), 0); err == nil {
			t.Fatal("wrote through a read-only handle")
		}
		must(t, f.Close())
		if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("second close: %v", err)
		}
	})
}

func TestLockIsExclusive(t *testing.T) {
	systems(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, ".lock")
		l, err := fsys.Lock(name)
		must(t, err)
		if _, err := fsys.Lock(name); !errors.Is(err, vfs.ErrLocked) {
			t.Fatalf("second lock: %v", err)
		}
		must(t, l.Close())
		l, err = fsys.Lock(name)
		must(t, err)
		must(t, l.Close())
	})
}

func TestUsageKnowsFreeBytes(t *testing.T) {
	systems(t, func(t *testing.T, fsys vfs.FS, dir string) {
		total, free, err := fsys.Usage(dir)
		if err != nil || total == 0 || free > total {
			t.Fatalf("%d, %d, %v", total, free, err)
		}
	})
}

func TestWriteFileAtomicReplaces(t *testing.T) {
	systems(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "checkpoint")
		must(t, vfs.WriteFileAtomic(fsys, name, []byte("one")))
		must(t, vfs.WriteFileAtomic(fsys, name, []byte("two")))
		if got := content(t, fsys, name); got != "two" {
			t.Fatalf("content %q", got)
		}
		if _, err := vfs.ReadFile(fsys, name, 2); !errors.Is(err, vfs.ErrTooLarge) {
			t.Fatalf("read above the limit: %v", err)
		}
	})
}

func TestClosedFileRefusesEverything(t *testing.T) {
	systems(t, func(t *testing.T, fsys vfs.FS, dir string) {
		f := create(t, fsys, filepath.Join(dir, "a"), "x")
		must(t, f.Close())
		for name, err := range map[string]error{
			"read":     second(f.ReadAt(make([]byte, 1), 0)),
			"write":    second(f.Write([]byte("y"))),
			"writev":   second(f.WritevAt([][]byte{{1}}, 0)),
			"sync":     f.Sync(),
			"truncate": f.Truncate(0),
			"allocate": f.Preallocate(10),
			"size":     second(f.Size()),
		} {
			if !errors.Is(err, fs.ErrClosed) {
				t.Errorf("%s after Close: %v", name, err)
			}
		}
	})
}

func TestOSFileGivesDescriptor(t *testing.T) {
	f := create(t, vfs.OS(), filepath.Join(t.TempDir(), "a"), "x")
	defer f.Close()
	o, ok := f.(vfs.OSFile)
	if !ok || o.OS() == nil || o.Fd() == 0 {
		t.Fatal("files of OS must expose their descriptor")
	}
	conn, err := o.SyscallConn()
	must(t, err)
	if conn == nil {
		t.Fatal("no raw connection")
	}
}
