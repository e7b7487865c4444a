package objstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// File store layout, below its root folder:
//
//	<escaped key>           one file per object, its content alone
//	.varve/tmp/<random>     puts under way
//	.varve/lock/<00..ff>    lock files, one per stripe of keys; empty
//
// A put writes and syncs a temporary file, then, under the key's lock, checks its condition, renames the file into place
// and syncs the folders up to the root. The ETag is the file's modification time in nanoseconds and its size; puts set
// that time themselves so that it rises with every put of a key, whatever the clock's resolution.
const (
	ownDir  = ".varve"
	tmpDir  = ownDir + "/tmp"
	lockDir = ownDir + "/lock"
)

// staleTempAge is how old an unfinished put's file must be before Open removes it. No put lasts that long.
const staleTempAge = 48 * time.Hour

// Folder is a store in a folder of a local, or at least POSIX-like, file system: one file per object. It may be used by
// several processes at once. Its file system must tell upper case from lower case in names.
type Folder struct {
	dir   string
	root  *os.Root
	locks keyLocks
}

var _ Store = (*Folder)(nil)

// OpenFolder opens the store in dir and makes the folder if it is absent.
func OpenFolder(dir string) (*Folder, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open file store %s: %w", dir, err)
	}
	f := &Folder{dir: abs}
	if err := f.prepare(); err != nil {
		return nil, fmt.Errorf("open file store %s: %w", abs, err)
	}
	return f, nil
}

func (f *Folder) prepare() error {
	if err := os.MkdirAll(f.dir, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(f.dir)
	if err != nil {
		return err
	}
	f.root = root
	f.locks.init(root)
	for _, d := range []string{tmpDir, lockDir} {
		if err := root.MkdirAll(d, 0o777); err != nil {
			return errors.Join(err, root.Close())
		}
	}
	if err := errors.Join(f.checkTimestamps(), f.removeStaleTemps(time.Now())); err != nil {
		return errors.Join(err, root.Close())
	}
	return nil
}

// Close releases the root folder. Readers that are still open stay valid.
func (f *Folder) Close() error { return f.root.Close() }

// String is the store's address.
func (f *Folder) String() string { return "file://" + f.dir }

// checkTimestamps refuses a file system that does not keep the nanoseconds that ETags are made of.
func (f *Folder) checkTimestamps() error {
	name := tmpDir + "/probe-" + rand.Text()
	file, err := f.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	// A time of now: another process that opens the folder takes an old one for a left-over.
	want := time.Unix(time.Now().Unix(), 123_456_789)
	err = errors.Join(file.Close(), f.root.Chtimes(name, time.Time{}, want))
	fi, statErr := f.root.Lstat(name)
	if err = errors.Join(err, statErr, f.root.Remove(name)); err != nil {
		return err
	}
	if !fi.ModTime().Equal(want) {
		return fmt.Errorf("%w: the file system keeps modification times to %v only, nanoseconds are needed; "+
			"use ext4, xfs, btrfs, zfs or tmpfs", ErrCapability, fi.ModTime().Sub(want).Abs())
	}
	return nil
}

func (f *Folder) removeStaleTemps(now time.Time) error {
	entries, err := fs.ReadDir(f.root.FS(), tmpDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		fi, err := e.Info()
		if err != nil || now.Sub(fi.ModTime()) < staleTempAge {
			continue // gone meanwhile, or perhaps still being written
		}
		if err := f.root.Remove(tmpDir + "/" + e.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Put implements Store.
func (f *Folder) Put(ctx context.Context, key string, body Body, o PutOptions) (Object, error) {
	if err := checkPut(ctx, f.String(), key, o); err != nil {
		return Object{}, err
	}
	name, err := f.nameOf(OpPut, key)
	if err != nil {
		return Object{}, err
	}
	if o.conditional() { // spare the writing when the answer is already known
		if why, err := f.refusalNow(name, o); err != nil || why != "" {
			return Object{}, f.putError(key, why, err)
		}
	}
	temp, err := f.writeTemp(ctx, body, o.CRC32C)
	if err != nil {
		return Object{}, f.fail(OpPut, key, "", err)
	}
	obj, why, err := f.commit(ctx, key, name, temp, o)
	if err != nil || why != "" {
		return Object{}, f.putError(key, why, errors.Join(err, ignoreAbsent(f.root.Remove(temp))))
	}
	return obj, nil
}

func (f *Folder) putError(key, why string, err error) error {
	if why != "" {
		return &Error{Op: OpPut, Place: f.String(), Key: key, Kind: ErrPrecondition, Detail: why, Err: err}
	}
	return f.fail(OpPut, key, "", err)
}

// errChecksum is the cause when a body is not what its checksum says.
var errChecksum = errors.New("body differs from its checksum")

// writeTemp writes and syncs the body, and leaves nothing behind on an error.
func (f *Folder) writeTemp(ctx context.Context, body Body, crc *uint32) (_ string, err error) {
	name := tmpDir + "/" + rand.Text()
	file, err := f.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return "", err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, ignoreAbsent(f.root.Remove(name)))
		}
	}()
	var sum hash.Hash32
	dst := io.Writer(file)
	if crc != nil {
		sum = newCRC()
		dst = io.MultiWriter(file, sum)
	}
	n, err := io.CopyBuffer(dst, &contextReader{ctx, bodyReader(body)}, make([]byte, 256<<10))
	if err != nil {
		return "", err
	}
	if n != body.Size() {
		return "", fmt.Errorf("body has %d of %d bytes: %w", n, body.Size(), io.ErrUnexpectedEOF)
	}
	if sum != nil && sum.Sum32() != *crc {
		return "", errChecksum
	}
	return name, file.Sync()
}

// commit moves the temporary file into place under the key's lock. A reason means that the condition was not met.
func (f *Folder) commit(ctx context.Context, key, name, temp string, o PutOptions) (Object, string, error) {
	unlock, err := f.locks.lock(ctx, name)
	if err != nil {
		return Object{}, "", err
	}
	defer unlock()
	if o.conditional() {
		if why, err := f.refusalNow(name, o); err != nil || why != "" {
			return Object{}, why, err
		}
	}
	stamp := time.Now()
	if old, err := f.root.Lstat(name); err == nil && !stamp.After(old.ModTime()) {
		stamp = old.ModTime().Add(1)
	}
	if err := f.root.Chtimes(temp, time.Time{}, stamp); err != nil {
		return Object{}, "", err
	}
	if err := f.moveInto(temp, name); err != nil {
		return Object{}, "", err
	}
	fi, err := f.root.Lstat(name)
	if err == nil {
		err = f.syncUp(path.Dir(name))
	}
	if err != nil {
		// The object is in place, but whether it would survive a power loss is not known.
		return Object{}, "", &Error{Op: OpPut, Place: f.String(), Key: key, Kind: lost(o.conditional()),
			Detail: "sync after rename", Err: err}
	}
	return describeFile(key, fi), "", nil
}

// moveInto renames the file and makes the folders above; a concurrent Delete may take an empty one away in between.
func (f *Folder) moveInto(temp, name string) error {
	dir := path.Dir(name)
	for range 100 {
		err := f.root.Rename(temp, name)
		if !errors.Is(err, fs.ErrNotExist) || dir == "." {
			return err
		}
		if err := f.root.MkdirAll(dir, 0o777); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return fmt.Errorf("folder %s keeps disappearing", dir)
}

// syncUp makes the entries of dir and of the folders above it durable. Folders that are gone need no sync: another
// process deleted all that was in them.
func (f *Folder) syncUp(dir string) error {
	for {
		d, err := f.root.Open(dir)
		switch {
		case err == nil:
			if err := errors.Join(d.Sync(), d.Close()); err != nil {
				return err
			}
		case !errors.Is(err, fs.ErrNotExist) || dir == ".":
			return err
		}
		if dir == "." {
			return nil
		}
		dir = path.Dir(dir)
	}
}

func (f *Folder) refusalNow(name string, o PutOptions) (string, error) {
	fi, err := f.root.Lstat(name)
	switch {
	case err == nil && !fi.Mode().IsRegular():
		return "", errNotAnObject
	case err == nil:
		return refusal(o, fileETag(fi), true), nil
	case isAbsent(err):
		return refusal(o, "", false), f.checkRoot()
	}
	return "", err
}

// Get implements Store.
func (f *Folder) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, Object, error) {
	name, err := f.prologue(ctx, OpGet, key)
	if err != nil {
		return nil, Object{}, err
	}
	file, fi, err := f.openObject(name)
	if err != nil {
		return nil, Object{}, f.fail(OpGet, key, "", err)
	}
	length, ok := clampRange(off, n, fi.Size())
	if !ok {
		return nil, Object{}, errors.Join(errRange(f.String(), key, off, n, fi.Size()), file.Close())
	}
	src := struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(file, off, length), file}
	return newExactReader(ctx, src, length, f.String(), key), describeFile(key, fi), nil
}

func (f *Folder) openObject(name string) (*os.File, fs.FileInfo, error) {
	file, err := f.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	fi, err := file.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrNotExist // a folder of other keys
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, fi, nil
}

// Head implements Store.
func (f *Folder) Head(ctx context.Context, key string) (Object, error) {
	name, err := f.prologue(ctx, OpHead, key)
	if err != nil {
		return Object{}, err
	}
	fi, err := f.root.Lstat(name)
	if err == nil && !fi.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return Object{}, f.fail(OpHead, key, "", err)
	}
	return describeFile(key, fi), nil
}

// Delete implements Store.
func (f *Folder) Delete(ctx context.Context, keys ...string) error {
	if err := checkKeys(ctx, f.String(), keys); err != nil {
		return err
	}
	var errs []error
	for _, key := range keys {
		if err := f.deleteOne(ctx, key); err != nil {
			errs = append(errs, f.fail(OpDelete, key, "", err))
		}
	}
	return errors.Join(errs...)
}

func (f *Folder) deleteOne(ctx context.Context, key string) error {
	name, err := f.nameOf(OpDelete, key)
	if err != nil {
		return err
	}
	unlock, err := f.locks.lock(ctx, name)
	if err != nil {
		return err
	}
	defer unlock()
	fi, err := f.root.Lstat(name)
	if isAbsent(err) {
		return f.checkRoot()
	}
	if err != nil || !fi.Mode().IsRegular() {
		return err // a folder is not an object
	}
	if err := f.root.Remove(name); err != nil {
		return ignoreAbsent(err)
	}
	dir := path.Dir(name)
	for ; dir != "."; dir = path.Dir(dir) {
		if f.root.Remove(dir) != nil { // not empty, mostly; an empty folder left behind does no harm
			break
		}
	}
	return f.syncUp(dir)
}

func (f *Folder) prologue(ctx context.Context, op Op, key string) (string, error) {
	if err := checkKey(op, f.String(), key); err != nil {
		return "", err
	}
	if err := checkContext(ctx, op, f.String(), key); err != nil {
		return "", err
	}
	return f.nameOf(op, key)
}

func (f *Folder) nameOf(op Op, key string) (string, error) {
	name := escapeKey(key)
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > maxNameBytes {
			return "", &Error{Op: op, Place: f.String(), Key: shorten(key), Kind: ErrInvalidKey,
				Detail: fmt.Sprintf("a part needs %d bytes as a file name, %d are possible", len(part), maxNameBytes)}
		}
	}
	return name, nil
}

func describeFile(key string, fi fs.FileInfo) Object {
	return Object{Key: key, ETag: fileETag(fi), Size: fi.Size(), Modified: fi.ModTime()}
}

func fileETag(fi fs.FileInfo) string {
	return strconv.Quote(strconv.FormatInt(fi.ModTime().UnixNano(), 36) + "-" + strconv.FormatInt(fi.Size(), 36))
}
