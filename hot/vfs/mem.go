package vfs

import (
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that can lose power. It is safe for
// concurrent use.
type Mem struct {
	mu sync.Mutex // guards the following
	// root and everything under it.
	root *node
	// journal is the changes to directories since they were last synced, in
	// order.
	journal  []dirChange
	rng      *rand.Rand
	capacity int64 // 0 means unbounded
	locks    map[string]bool
}

var _ FS = (*Mem)(nil)

// memCapacity is the size Usage reports when none is set.
const memCapacity = 1 << 40

// NewMem returns an empty file system. The seed decides what Crash keeps.
func NewMem(seed uint64) *Mem {
	return &Mem{root: newDir(), rng: rand.New(rand.NewPCG(seed, 0x5eed)), locks: map[string]bool{}}
}

// SetCapacity limits the bytes of all files together; writes beyond it fail
// with ENOSPC after writing what fits. 0 lifts the limit.
func (m *Mem) SetCapacity(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.capacity = bytes
}

// node is a file or a directory; names are in the parent.
type node struct {
	children map[string]*node // directories only
	data     []byte
	// What a file's disk holds is data[:durable] with the old sectors put
	// back; see crash.go.
	durable  int64
	old      map[int64][]byte // sector index to content as of the last sync
	modified time.Time
}

func newDir() *node { return &node{children: map[string]*node{}} }

func (n *node) isDir() bool { return n.children != nil }

// split makes path elements of a name; "/a/b", "a/b" and "./a//b" are one.
func split(name string) []string {
	clean := strings.Trim(path.Clean("/"+filepath.ToSlash(name)), "/")
	if clean == "" {
		return nil
	}
	return strings.Split(clean, "/")
}

func pathError(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

func (m *Mem) findLocked(name string) (*node, error) {
	n := m.root
	for _, elem := range split(name) {
		if !n.isDir() {
			return nil, syscall.ENOTDIR
		}
		child, ok := n.children[elem]
		if !ok {
			return nil, fs.ErrNotExist
		}
		n = child
	}
	return n, nil
}

// parentLocked finds the directory that holds name, and name's last element.
func (m *Mem) parentLocked(name string) (*node, string, error) {
	elems := split(name)
	if len(elems) == 0 {
		return nil, "", fs.ErrInvalid
	}
	dir, err := m.findLocked(strings.Join(elems[:len(elems)-1], "/"))
	if err != nil {
		return nil, "", err
	}
	if !dir.isDir() {
		return nil, "", syscall.ENOTDIR
	}
	return dir, elems[len(elems)-1], nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open("open", name, false, false) }

// Create implements FS.
func (m *Mem) Create(name string) (File, error) { return m.open("create", name, true, true) }

// OpenAppend implements FS.
func (m *Mem) OpenAppend(name string) (File, error) { return m.open("open", name, true, false) }

func (m *Mem) open(op, name string, write, truncate bool) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return nil, pathError(op, name, err)
	}
	n, ok := dir.children[base]
	switch {
	case ok && n.isDir():
		return nil, pathError(op, name, syscall.EISDIR)
	case !ok && !write:
		return nil, pathError(op, name, fs.ErrNotExist)
	case !ok:
		n = &node{modified: time.Now()}
		dir.children[base] = n
		m.journal = append(m.journal, dirChange{to: dir, toName: base, node: n})
	case truncate:
		n.truncate(0)
	}
	return &memFile{fs: m, node: n, name: name, write: write, end: int64(len(n.data))}, nil
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, fromBase, err := m.parentLocked(oldName)
	if err != nil {
		return pathError("rename", oldName, err)
	}
	n, ok := from.children[fromBase]
	if !ok {
		return pathError("rename", oldName, fs.ErrNotExist)
	}
	to, toBase, err := m.parentLocked(newName)
	if err != nil {
		return pathError("rename", newName, err)
	}
	there := to.children[toBase]
	if there == n {
		return nil
	}
	if there != nil {
		if there.isDir() != n.isDir() || len(there.children) > 0 {
			return pathError("rename", newName, syscall.EEXIST)
		}
	}
	delete(from.children, fromBase)
	to.children[toBase] = n
	m.journal = append(m.journal, dirChange{from: from, fromName: fromBase, to: to, toName: toBase, node: n, replaced: there})
	return nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return pathError("remove", name, err)
	}
	n, ok := dir.children[base]
	if !ok {
		return pathError("remove", name, fs.ErrNotExist)
	}
	if len(n.children) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	m.unlinkLocked(dir, base, n)
	return nil
}

func (m *Mem) unlinkLocked(dir *node, base string, n *node) {
	delete(dir.children, base)
	m.journal = append(m.journal, dirChange{from: dir, fromName: base, node: n})
}

// RemoveAll implements FS. After power loss a part of the tree may be there.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parentLocked(name)
	if err != nil {
		return nil // nothing there
	}
	if n, ok := dir.children[base]; ok {
		m.removeTreeLocked(dir, base, n)
	}
	return nil
}

func (m *Mem) removeTreeLocked(dir *node, base string, n *node) {
	for _, name := range n.names() {
		m.removeTreeLocked(n, name, n.children[name])
	}
	m.unlinkLocked(dir, base, n)
}

func (n *node) names() []string {
	names := make([]string, 0, len(n.children))
	for name := range n.children {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.root
	for _, elem := range split(dir) {
		child, ok := n.children[elem]
		if !ok {
			child = newDir()
			n.children[elem] = child
			m.journal = append(m.journal, dirChange{to: n, toName: elem, node: child})
		}
		if !child.isDir() {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
		n = child
	}
	return nil
}

// ReadDir implements FS.
func (m *Mem) ReadDir(dir string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked(dir)
	if err == nil && !n.isDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return nil, pathError("readdir", dir, err)
	}
	entries := make([]fs.DirEntry, 0, len(n.children))
	for _, name := range n.names() {
		entries = append(entries, fs.FileInfoToDirEntry(n.children[name].info(name)))
	}
	return entries, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked(name)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	return n.info(path.Base(path.Clean("/" + filepath.ToSlash(name)))), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked(dir)
	if err == nil && !n.isDir() {
		err = syscall.ENOTDIR
	}
	if err != nil {
		return pathError("syncdir", dir, err)
	}
	m.journal = syncedDir(m.journal, n)
	return nil
}

// SyncFS implements FS.
func (m *Mem) SyncFS(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.findLocked(dir); err != nil {
		return pathError("syncfs", dir, err)
	}
	m.journal = nil
	m.root.each((*node).synced)
	return nil
}

// each visits the files of a tree.
func (n *node) each(visit func(*node)) {
	if !n.isDir() {
		visit(n)
	}
	for _, child := range n.children {
		child.each(visit)
	}
}

func (m *Mem) usedLocked() (used int64) {
	m.root.each(func(n *node) { used += int64(len(n.data)) })
	return used
}

// Usage implements FS.
func (m *Mem) Usage(dir string) (total, free uint64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.findLocked(dir); err != nil {
		return 0, 0, pathError("statfs", dir, err)
	}
	size := m.capacity
	if size == 0 {
		size = memCapacity
	}
	return uint64(size), uint64(max(0, size-m.usedLocked())), nil
}

// Lock implements FS. A crash clone starts without locks.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := strings.Join(split(name), "/")
	if m.locks[key] {
		return nil, pathError("lock", name, ErrLocked)
	}
	m.locks[key] = true
	return closerFunc(func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.locks, key)
		return nil
	}), nil
}

type closerFunc func() error

func (f closerFunc) Close() error { return f() }

func (n *node) info(name string) fs.FileInfo {
	return memInfo{name: name, size: int64(len(n.data)), dir: n.isDir(), modified: n.modified}
}

type memInfo struct {
	name     string
	size     int64
	dir      bool
	modified time.Time
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) ModTime() time.Time { return i.modified }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
