package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// OS is the machine's own file system.
func OS() FS { return osFS{} }

type osFS struct{}

// OSFile is implemented by the files of OS. Serving code uses it to hand a
// file to sendfile(2) with an explicit offset.
type OSFile interface {
	File
	syscall.Conn
	// Fd is the descriptor, valid until Close.
	Fd() uintptr
	// OS is the underlying file. Its kernel file position is not used by this
	// package and is shared by all users of the handle.
	OS() *os.File
}

var _ OSFile = (*osFile)(nil)

// osFile does not embed the file: io.WriteString and io.Copy would find
// methods that work at the kernel's file position.
type osFile struct {
	f *os.File
	// raw holds on to the descriptor during a system call: without it, a Close
	// at the wrong moment lets the call hit whatever file is opened next.
	raw syscall.RawConn
	end int64 // owned by the caller of Write and Truncate
}

func newOSFile(f *os.File, end int64) (File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &osFile{f: f, raw: raw, end: end}, nil
}

func (osFS) Open(name string) (File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	return newOSFile(f, 0)
}

func (osFS) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	return newOSFile(f, 0)
}

func (osFS) OpenAppend(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return newOSFile(f, info.Size())
}

func (osFS) Rename(oldName, newName string) error      { return os.Rename(oldName, newName) }
func (osFS) Remove(name string) error                  { return os.Remove(name) }
func (osFS) RemoveAll(name string) error               { return os.RemoveAll(name) }
func (osFS) MkdirAll(dir string) error                 { return os.MkdirAll(dir, 0o755) }
func (osFS) ReadDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }
func (osFS) Stat(name string) (fs.FileInfo, error)     { return os.Stat(name) }

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

func (osFS) SyncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return &fs.PathError{Op: "syncfs", Path: dir, Err: err}
	}
	return nil
}

func (osFS) Usage(dir string) (total, free uint64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	block := uint64(st.Bsize)
	return st.Blocks * block, st.Bavail * block, nil
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	return nil, &fs.PathError{Op: "flock", Path: name, Err: err}
}

func (f *osFile) OS() *os.File                             { return f.f }
func (f *osFile) Fd() uintptr                              { return f.f.Fd() }
func (f *osFile) SyscallConn() (syscall.RawConn, error)    { return f.raw, nil }
func (f *osFile) Name() string                             { return f.f.Name() }
func (f *osFile) Close() error                             { return f.f.Close() }
func (f *osFile) ReadAt(p []byte, off int64) (int, error)  { return f.f.ReadAt(p, off) }
func (f *osFile) WriteAt(p []byte, off int64) (int, error) { return f.f.WriteAt(p, off) }

func (f *osFile) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.end)
	f.end += int64(n)
	return n, err
}

// vecMax is the kernel's IOV_MAX.
const vecMax = 1024

func (f *osFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	total := 0
	for len(bufs) > 0 {
		part := bufs[:min(len(bufs), vecMax)]
		want := 0
		for _, b := range part {
			want += len(b)
		}
		n := 0
		err := f.retry("pwritev", func(fd int) (err error) {
			n, err = unix.Pwritev(fd, part, off+int64(total))
			return err
		})
		if err != nil {
			return total, err
		}
		total += n
		if n < want {
			// A short count says nothing of its cause; writing on says it.
			m, err := f.writeRest(part, n, off+int64(total))
			total += m
			if err != nil {
				return total, err
			}
		}
		bufs = bufs[len(part):]
	}
	return total, nil
}

// writeRest writes what follows the first done bytes of bufs.
func (f *osFile) writeRest(bufs [][]byte, done int, off int64) (int, error) {
	total := 0
	for _, b := range bufs {
		if done >= len(b) {
			done -= len(b)
			continue
		}
		n, err := f.WriteAt(b[done:], off+int64(total))
		total += n
		done = 0
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (f *osFile) Sync() error {
	return f.retry("fdatasync", func(fd int) error { return unix.Fdatasync(fd) })
}

func (f *osFile) Written() error {
	err := f.retry("sync_file_range", func(fd int) error {
		return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE)
	})
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESPIPE) || errors.Is(err, unix.EOPNOTSUPP) {
		return f.Sync() // asked for nothing that could have told the error
	}
	return err
}

// retry runs a system call on the descriptor until no signal interrupts it;
// the runtime sends signals to threads that are long in one.
func (f *osFile) retry(op string, call func(fd int) error) error {
	var err error
	closed := f.raw.Control(func(fd uintptr) {
		for {
			if err = call(int(fd)); err != unix.EINTR {
				return
			}
		}
	})
	if closed != nil {
		err = fs.ErrClosed
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return nil
}

func (f *osFile) Truncate(size int64) error {
	if err := f.f.Truncate(size); err != nil {
		return err
	}
	f.end = size
	return nil
}

func (f *osFile) Size() (int64, error) {
	info, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f *osFile) Preallocate(size int64) error {
	err := f.retry("fallocate", func(fd int) error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}
