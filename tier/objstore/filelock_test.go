package objstore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// holdAllLocks holds every lock file as another process would: flock goes by open file, not by process.
func holdAllLocks(t *testing.T, dir string) (release func()) {
	t.Helper()
	var held []*os.File
	for i := range 256 {
		f, err := os.OpenFile(filepath.Join(dir, ".varve", "lock", fmt.Sprintf("%02x", i)), os.O_CREATE|os.O_RDWR, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
			t.Fatal(err)
		}
		held = append(held, f)
	}
	return func() {
		for _, f := range held {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
