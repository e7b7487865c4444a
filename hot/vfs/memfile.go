package vfs

import (
	"io"
	"io/fs"
	"syscall"
	"time"
)

// memFile is an open file of a Mem. The node lives on while it is open, also
// when its name is gone.
type memFile struct {
	fs    *Mem
	node  *node
	name  string
	write bool

	// end is owned by the caller of Write and Truncate; closed is guarded by
	// fs.mu.
	end    int64
	closed bool
}

func (f *memFile) Name() string { return f.name }

func (f *memFile) usableLocked(op string, write bool) error {
	if f.closed {
		return pathError(op, f.name, fs.ErrClosed)
	}
	if write && !f.write {
		return pathError(op, f.name, syscall.EBADF)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usableLocked("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("read", f.name, syscall.EINVAL)
	}
	if off >= int64(len(f.node.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.node.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.writeLocked(p, off)
}

func (f *memFile) writeLocked(p []byte, off int64) (int, error) {
	if err := f.usableLocked("write", true); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathError("write", f.name, syscall.EINVAL)
	}
	fits := len(p)
	if f.fs.capacity > 0 {
		grows := off + int64(len(p)) - int64(len(f.node.data))
		if free := f.fs.capacity - f.fs.usedLocked(); grows > max(free, 0) {
			fits = int(max(0, int64(len(p))-(grows-max(free, 0))))
		}
	}
	f.node.writeAt(p[:fits], off)
	if fits < len(p) {
		return fits, pathError("write", f.name, syscall.ENOSPC)
	}
	return fits, nil
}

func (f *memFile) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, f.end)
	f.end += int64(n)
	return n, err
}

func (f *memFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	total := 0
	for _, b := range bufs {
		n, err := f.writeLocked(b, off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

func (f *memFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usableLocked("sync", false); err != nil {
		return err
	}
	f.node.synced()
	return nil
}

// Written has nothing to tell: what is written here does not fail later.
func (f *memFile) Written() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.usableLocked("sync", false)
}

func (f *memFile) Truncate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usableLocked("truncate", true); err != nil {
		return err
	}
	if size < 0 {
		return pathError("truncate", f.name, syscall.EINVAL)
	}
	f.node.truncate(size)
	f.end = size
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usableLocked("stat", false); err != nil {
		return 0, err
	}
	return int64(len(f.node.data)), nil
}

func (f *memFile) Preallocate(size int64) error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.usableLocked("fallocate", true); err != nil {
		return err
	}
	if c := f.fs.capacity; c > 0 && f.fs.usedLocked()+size-int64(len(f.node.data)) > c {
		return pathError("fallocate", f.name, syscall.ENOSPC)
	}
	return nil
}

func (f *memFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if f.closed {
		return pathError("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	return nil
}

// writeAt changes a file's data, remembering what the disk holds.
func (n *node) writeAt(p []byte, off int64) {
	if len(p) == 0 {
		return
	}
	n.remember(off, off+int64(len(p)))
	if end := off + int64(len(p)); end > int64(len(n.data)) {
		n.grow(end)
	}
	copy(n.data[off:], p)
	n.modified = time.Now()
}

func (n *node) truncate(size int64) {
	if size < int64(len(n.data)) {
		n.remember(size, int64(len(n.data)))
		// What is cut must read as zeros should the file grow again.
		clear(n.data[size:])
		n.data = n.data[:size]
	} else {
		n.grow(size)
	}
	n.modified = time.Now()
}

func (n *node) grow(size int64) {
	if size <= int64(cap(n.data)) {
		n.data = n.data[:size]
		return
	}
	grown := make([]byte, size, max(size, 2*int64(cap(n.data))))
	copy(grown, n.data)
	n.data = grown
}
