package hot

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/varvelog/varve/hot/vfs"
)

// countingFS is the machine's file system, with an eye on what passes between it and this process as record bytes.
type countingFS struct {
	vfs.FS
	wrote   func(b []byte)
	fetched atomic.Int64 // bytes read from segments into memory
}

type countingFile struct {
	vfs.OSFile
	fs *countingFS
}

func (f countingFile) WriteAt(p []byte, off int64) (int, error) {
	if strings.HasSuffix(f.Name(), ".log") {
		f.fs.wrote(p)
	}
	return f.OSFile.WriteAt(p, off)
}

func (f countingFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.OSFile.ReadAt(p, off)
	if strings.HasSuffix(f.Name(), ".log") {
		f.fs.fetched.Add(int64(n))
	}
	return n, err
}

func (c *countingFS) watch(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return countingFile{f.(vfs.OSFile), c}, nil
}

func (c *countingFS) Open(name string) (vfs.File, error)       { return c.watch(c.FS.Open(name)) }
func (c *countingFS) Create(name string) (vfs.File, error)     { return c.watch(c.FS.Create(name)) }
func (c *countingFS) OpenAppend(name string) (vfs.File, error) { return c.watch(c.FS.OpenAppend(name)) }

// TestRecordBytesGoFromTheCallerToTheFileAndFromTheFileToTheSocket holds the log to no copy of its own: what is written is the
// caller's memory, and what is sent was never in this process.
func TestRecordBytesGoFromTheCallerToTheFileAndFromTheFileToTheSocket(t *testing.T) {
	const batches, size = 16, 256 << 10
	fs := &countingFS{FS: vfs.OS()}
	s := openStore(t, fs, t.TempDir(), func(c *Config) { c.Durability = Replicated })
	l := openLog(t, s)
	one := records(1, size, 1)
	writes := 0
	fs.wrote = func(b []byte) {
		writes++
		if len(b) != len(one) || &b[0] != &one[0] {
			t.Errorf("a write of %d bytes is not the memory of the %d that were appended", len(b), len(one))
		}
	}
	for range batches {
		mustAppend(t, l, one)
	}
	if writes != batches {
		t.Errorf("%d batches took %d writes", batches, writes)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	got := make(chan int64)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			close(got)
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		got <- n
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fs.fetched.Store(0)
	end := l.Offsets().End
	slice, err := l.Read(0, batches*len(one), end, true)
	if err != nil {
		t.Fatal(err)
	}
	defer slice.Release()
	if _, err := slice.WriteTo(conn); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if n := <-got; n != int64(batches*len(one)) {
		t.Fatalf("%d bytes arrived, want %d", n, batches*len(one))
	}
	// Batch headers may be looked at to find where to begin and to end.
	if n := fs.fetched.Load(); n > 64<<10 {
		t.Errorf("%d bytes of the segment went through memory to send %d", n, batches*len(one))
	}
}
