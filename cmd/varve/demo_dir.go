package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/varvelog/varve/hot/vfs"
)

const (
	demoDirPrefix = "varve-demo-"
	demoLock      = "demo.lock"
	// demoLockAge keeps a sweep from a directory whose owner has made the lock
	// file and is about to take the lock.
	demoLockAge = 2 * time.Second
)

// demoDir makes a directory under temp that no sweep takes away while this
// process lives. The function returned beside it deletes it.
func demoDir(temp string) (dir string, remove func() error, err error) {
	if dir, err = os.MkdirTemp(temp, demoDirPrefix); err != nil {
		return "", nil, err
	}
	lock, err := vfs.OS().Lock(filepath.Join(dir, demoLock))
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return dir, func() error { return errors.Join(os.RemoveAll(dir), lock.Close()) }, nil
}

// sweepDemos deletes the directories of demos that were killed. The lock of a
// demo that lives is held by its process, so only those of dead ones can be
// taken; what cannot be looked at, or deleted, is left alone.
func sweepDemos(temp string, now time.Time) (swept []string) {
	dirs, _ := filepath.Glob(filepath.Join(temp, demoDirPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Lstat(filepath.Join(dir, demoLock))
		if err != nil || !info.Mode().IsRegular() || now.Sub(info.ModTime()) < demoLockAge {
			continue
		}
		if own, err := os.Lstat(dir); err != nil || !own.IsDir() {
			continue
		}
		lock, err := vfs.OS().Lock(filepath.Join(dir, demoLock))
		if err != nil {
			continue
		}
		if os.RemoveAll(dir) == nil {
			swept = append(swept, dir)
		}
		lock.Close()
	}
	return swept
}

// goRunPath matches where `go run` puts a program: a build's temporary
// directory, or since Go 1.24 the build cache.
var goRunPath = regexp.MustCompile(`(/go-build[0-9]+/b[0-9]+/exe|/[0-9a-f]{64}-d)/[^/]+$`)

// invocation is what to type for this program, which was started as arg0.
func invocation(arg0 string) string {
	if goRunPath.MatchString(filepath.ToSlash(arg0)) {
		return "go run ./cmd/varve"
	}
	if filepath.Base(arg0) == arg0 {
		return arg0
	}
	return quotedPath(arg0)
}

// quotedPath writes a path as a shell takes it.
func quotedPath(path string) string {
	if regexp.MustCompile(`^[A-Za-z0-9_./:@%+=-]+$`).MatchString(path) {
		return path
	}
	return fmt.Sprintf("%q", path)
}
