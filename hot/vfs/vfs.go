package vfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
)

// File is one open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Write appends at the handle's end: the size at open, moved on by each
	// Write and reset by Truncate. One goroutine at a time.
	io.Writer
	io.Closer
	// WritevAt writes the buffers one after the other from off on, in as few
	// system calls as the platform needs. It does not move the handle's end
	// and leaves bufs untouched.
	WritevAt(bufs [][]byte, off int64) (int, error)
	// Sync makes bytes and length durable (fdatasync). After an error the
	// state of unsynced bytes is unknown for good: do not retry.
	Sync() error
	// Written waits for bytes that are being written to the disk and returns
	// the error that any of the file's met since it was opened, once, as Sync
	// does; it makes nothing durable and does not have the disk empty its cache.
	// After a SyncFS that was well it says whether the file was in it.
	Written() error
	// Truncate cuts or zero-extends the file and moves the handle's end there.
	Truncate(size int64) error
	// Size is the present length in bytes.
	Size() (int64, error)
	// Preallocate reserves blocks for the first size bytes without changing
	// the length (fallocate KEEP_SIZE). A file system that cannot is no error.
	Preallocate(size int64) error
	// Name is the path the file was opened with.
	Name() string
}

// FS is a file system. Names are paths as for package os.
type FS interface {
	// Open opens an existing file for reading.
	Open(name string) (File, error)
	// Create opens a file for reading and writing, empty: it makes it or
	// truncates it.
	Create(name string) (File, error)
	// OpenAppend opens a file for reading and writing as it is, making it if
	// it is absent; Write continues at its end.
	OpenAppend(name string) (File, error)
	// Rename replaces newName atomically.
	Rename(oldName, newName string) error
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes a tree; an absent one is fine.
	RemoveAll(name string) error
	// MkdirAll makes a directory and its parents.
	MkdirAll(dir string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(dir string) ([]fs.DirEntry, error)
	// Stat describes a file or directory.
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the directory's entries durable.
	SyncDir(dir string) error
	// SyncFS makes everything on the file system that holds dir durable
	// (syncfs(2)), whoever wrote it.
	SyncFS(dir string) error
	// Usage is the size of the file system that holds dir and the bytes of it
	// that this process may still use.
	Usage(dir string) (total, free uint64, err error)
	// Lock takes the lock file name exclusively, or returns ErrLocked.
	// Closing releases it; so does the death of the process.
	Lock(name string) (io.Closer, error)
}

// MakeDir makes a directory and its parents, and makes those durable that it
// had to make: files synced inside are worth nothing if the directory's own
// name is lost with the power. The directory's parent is synced in any case,
// since whoever made the directory may have died before syncing it.
func MakeDir(fsys FS, dir string) error {
	parents := []string{filepath.Dir(filepath.Clean(dir))}
	for {
		parent := parents[len(parents)-1]
		_, err := fsys.Stat(parent)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrNotExist) || filepath.Dir(parent) == parent {
			return err
		}
		parents = append(parents, filepath.Dir(parent))
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	for _, parent := range parents {
		if err := fsys.SyncDir(parent); err != nil {
			return err
		}
	}
	return nil
}

// ReadFile reads a whole file of at most limit bytes.
func ReadFile(fsys FS, name string, limit int64) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("read %s: %d bytes, limit %d: %w", name, size, limit, ErrTooLarge)
	}
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		return nil, err
	}
	return b, nil
}

// WriteFileAtomic replaces name so that after power loss it holds either the
// old content or the new, whole: it writes name.tmp, syncs it, renames it and
// syncs the directory. Two calls for one name must not overlap.
func WriteFileAtomic(fsys FS, name string, data []byte) error {
	if err := ReplaceFile(fsys, name, data); err != nil {
		return err
	}
	if err := fsys.SyncDir(filepath.Dir(name)); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrReplaced, name, err)
	}
	return nil
}

// ReplaceFile is WriteFileAtomic for who syncs the directory himself: until then
// power loss may leave the old content.
func ReplaceFile(fsys FS, name string, data []byte) error {
	tmp := name + ".tmp"
	f, err := fsys.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fsys.Rename(tmp, name)
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", name, err)
	}
	return nil
}
