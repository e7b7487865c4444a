package vfs

import (
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Op is a kind of file system operation, for rules and counts.
type Op string

// The operations a rule can name.
const (
	OpOpen        Op = "open" // Open, Create and OpenAppend
	OpRead        Op = "read"
	OpWrite       Op = "write" // Write, WriteAt and WritevAt
	OpSync        Op = "sync"  // Sync and Written
	OpTruncate    Op = "truncate"
	OpPreallocate Op = "preallocate"
	OpClose       Op = "close"
	OpRename      Op = "rename"
	OpRemove      Op = "remove" // Remove and RemoveAll
	OpMkdir       Op = "mkdir"
	OpReadDir     Op = "readdir"
	OpStat        Op = "stat"
	OpSyncDir     Op = "syncdir"
	OpSyncFS      Op = "syncfs"
	OpUsage       Op = "usage"
	OpLock        Op = "lock"
)

// Rule makes matching operations fail. Operations match by Ops and Path; of
// the matching ones, Skip are let through first, then Count are hit.
type Rule struct {
	// Ops are the operations; none means all of them.
	Ops []Op
	// Path is a glob as for path.Match. Without a slash it is matched with
	// the last element of the name, with one against the whole; empty matches
	// everything. A rename matches by either name.
	Path string
	// Skip is how many matching operations go through first.
	Skip int
	// Count is how many fail after that; 0 means one, negative all.
	Count int
	// Err is what they fail with, such as syscall.EIO; nil means they go
	// through, for a rule with Do alone.
	Err error
	// Short is how many bytes a hit write writes before it fails.
	Short int
	// After makes the operation take effect and fail all the same, as when
	// the disk did its work and the answer was an error. Of reads and writes
	// only the error is seen.
	After bool
	// Unwritten makes the syncs of a file, or of a directory, succeed, and sync
	// nothing, once one of them was hit: the kernel tells of what it could not
	// write only once. SyncFS, which is of no file, syncs it all the same.
	Unwritten bool
	// Do is called at each hit, before the operation, without any lock held:
	// the place to take a crash clone.
	Do func()
}

// Fault is a rule in force.
type Fault struct {
	owner *Faults
	rule  Rule
	// The following are guarded by owner.mu.
	seen, hits int
}

// Hits is how often the rule has struck.
func (f *Fault) Hits() int {
	f.owner.mu.Lock()
	defer f.owner.mu.Unlock()
	return f.hits
}

// Remove takes the rule out of force.
func (f *Fault) Remove() {
	f.owner.mu.Lock()
	defer f.owner.mu.Unlock()
	f.owner.rules = slices.DeleteFunc(f.owner.rules, func(r *Fault) bool { return r == f })
}

// Faults is a file system that fails on request. Files it opened obey rules
// added later too. It is safe for concurrent use.
type Faults struct {
	fs FS

	mu        sync.Mutex // guards the following
	rules     []*Fault
	counts    map[Op]int
	unwritten map[string]struct{} // files and directories whose syncs do nothing
}

var _ FS = (*Faults)(nil)

// NewFaults wraps a file system. Its files hide the descriptor of the
// wrapped ones, so that no byte passes by the rules.
func NewFaults(fsys FS) *Faults {
	return &Faults{fs: fsys, counts: map[Op]int{}, unwritten: map[string]struct{}{}}
}

// Inject puts a rule in force. Of several that match, the first injected
// strikes alone.
func (f *Faults) Inject(r Rule) *Fault {
	if r.Count == 0 {
		r.Count = 1
	}
	fault := &Fault{owner: f, rule: r}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, fault)
	return fault
}

// Clear removes all rules.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// Calls is how many operations of a kind were asked for, failed ones too.
func (f *Faults) Calls(op Op) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.counts[op]
}

// strike counts an operation and returns the rule that hits it, if any.
func (f *Faults) strike(op Op, names ...string) *Rule {
	f.mu.Lock()
	f.counts[op]++
	var hit *Rule
	for _, r := range f.rules {
		if !r.rule.matches(op, names) {
			continue
		}
		r.seen++
		if r.seen <= r.rule.Skip || r.rule.Count > 0 && r.hits >= r.rule.Count {
			continue
		}
		r.hits++
		hit = &r.rule
		if (op == OpSync || op == OpSyncDir) && hit.Unwritten {
			f.unwritten[names[0]] = struct{}{}
		}
		break
	}
	f.mu.Unlock()
	if hit != nil && hit.Do != nil {
		hit.Do()
	}
	if hit != nil && hit.Err == nil {
		return nil
	}
	return hit
}

func (f *Faults) isUnwritten(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.unwritten[name]
	return ok
}

func (r *Rule) matches(op Op, names []string) bool {
	if len(r.Ops) > 0 && !slices.Contains(r.Ops, op) {
		return false
	}
	if r.Path == "" {
		return true
	}
	for _, name := range names {
		name = filepath.ToSlash(name)
		if !strings.Contains(r.Path, "/") {
			name = path.Base(name)
		}
		if ok, err := path.Match(r.Path, name); ok && err == nil {
			return true
		}
	}
	return false
}

func (r *Rule) error(op Op, name string) error {
	return &fs.PathError{Op: string(op), Path: name, Err: r.Err}
}

// do runs an operation under the rules.
func (f *Faults) do(op Op, run func() error, names ...string) error {
	hit := f.strike(op, names...)
	if hit != nil && !hit.After {
		return hit.error(op, names[0])
	}
	err := run()
	if hit != nil && err == nil {
		err = hit.error(op, names[0])
	}
	return err
}

func (f *Faults) open(name string, open func(string) (File, error)) (File, error) {
	var file File
	err := f.do(OpOpen, func() (err error) {
		file, err = open(name)
		return err
	}, name)
	if err != nil {
		if file != nil {
			file.Close()
		}
		return nil, err
	}
	return &faultFile{File: file, faults: f}, nil
}

// Open implements FS.
func (f *Faults) Open(name string) (File, error) { return f.open(name, f.fs.Open) }

// Create implements FS.
func (f *Faults) Create(name string) (File, error) { return f.open(name, f.fs.Create) }

// OpenAppend implements FS.
func (f *Faults) OpenAppend(name string) (File, error) { return f.open(name, f.fs.OpenAppend) }

// Rename implements FS.
func (f *Faults) Rename(oldName, newName string) error {
	return f.do(OpRename, func() error { return f.fs.Rename(oldName, newName) }, oldName, newName)
}

// Remove implements FS.
func (f *Faults) Remove(name string) error {
	return f.do(OpRemove, func() error { return f.fs.Remove(name) }, name)
}

// RemoveAll implements FS.
func (f *Faults) RemoveAll(name string) error {
	return f.do(OpRemove, func() error { return f.fs.RemoveAll(name) }, name)
}

// MkdirAll implements FS.
func (f *Faults) MkdirAll(dir string) error {
	return f.do(OpMkdir, func() error { return f.fs.MkdirAll(dir) }, dir)
}

// ReadDir implements FS.
func (f *Faults) ReadDir(dir string) (entries []fs.DirEntry, err error) {
	err = f.do(OpReadDir, func() (err error) {
		entries, err = f.fs.ReadDir(dir)
		return err
	}, dir)
	return entries, err
}

// Stat implements FS.
func (f *Faults) Stat(name string) (info fs.FileInfo, err error) {
	err = f.do(OpStat, func() (err error) {
		info, err = f.fs.Stat(name)
		return err
	}, name)
	return info, err
}

// SyncDir implements FS.
func (f *Faults) SyncDir(dir string) error {
	return f.do(OpSyncDir, func() error {
		if f.isUnwritten(dir) {
			return nil
		}
		return f.fs.SyncDir(dir)
	}, dir)
}

// SyncFS implements FS.
func (f *Faults) SyncFS(dir string) error {
	return f.do(OpSyncFS, func() error { return f.fs.SyncFS(dir) }, dir)
}

// Usage implements FS.
func (f *Faults) Usage(dir string) (total, free uint64, err error) {
	err = f.do(OpUsage, func() (err error) {
		total, free, err = f.fs.Usage(dir)
		return err
	}, dir)
	return total, free, err
}

// Lock implements FS.
func (f *Faults) Lock(name string) (c io.Closer, err error) {
	err = f.do(OpLock, func() (err error) {
		c, err = f.fs.Lock(name)
		return err
	}, name)
	if err != nil && c != nil {
		c.Close()
		c = nil
	}
	return c, err
}

// faultFile is a file under rules.
type faultFile struct {
	File
	faults *Faults
}

func (f *faultFile) ReadAt(p []byte, off int64) (int, error) {
	if hit := f.faults.strike(OpRead, f.Name()); hit != nil {
		return 0, hit.error(OpRead, f.Name())
	}
	return f.File.ReadAt(p, off)
}

// write writes what a rule leaves of p.
func (f *faultFile) write(p []byte, write func([]byte) (int, error)) (int, error) {
	hit := f.faults.strike(OpWrite, f.Name())
	if hit == nil {
		return write(p)
	}
	n := min(hit.Short, len(p))
	if hit.After {
		n = len(p)
	}
	if n > 0 {
		var err error
		if n, err = write(p[:n]); err != nil {
			return n, err
		}
	}
	return n, hit.error(OpWrite, f.Name())
}

func (f *faultFile) Write(p []byte) (int, error) {
	return f.write(p, f.File.Write)
}

func (f *faultFile) WriteAt(p []byte, off int64) (int, error) {
	return f.write(p, func(p []byte) (int, error) { return f.File.WriteAt(p, off) })
}

func (f *faultFile) WritevAt(bufs [][]byte, off int64) (int, error) {
	return f.write(slices.Concat(bufs...), func(p []byte) (int, error) { return f.File.WriteAt(p, off) })
}

func (f *faultFile) Sync() error {
	return f.faults.do(OpSync, func() error {
		if f.faults.isUnwritten(f.Name()) {
			return nil
		}
		return f.File.Sync()
	}, f.Name())
}

func (f *faultFile) Written() error {
	return f.faults.do(OpSync, f.File.Written, f.Name())
}

func (f *faultFile) Truncate(size int64) error {
	return f.faults.do(OpTruncate, func() error { return f.File.Truncate(size) }, f.Name())
}

func (f *faultFile) Preallocate(size int64) error {
	return f.faults.do(OpPreallocate, func() error { return f.File.Preallocate(size) }, f.Name())
}

// Close always closes, whatever it returns.
func (f *faultFile) Close() error {
	hit := f.faults.strike(OpClose, f.Name())
	err := f.File.Close()
	if hit != nil && err == nil {
		err = hit.error(OpClose, f.Name())
	}
	return err
}
