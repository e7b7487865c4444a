//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// disk is an ext4 of its own on a loop device, for one broker's data.
type disk struct {
	image string
	at    string // where it is mounted
}

// makeDisk makes a file system of so many bytes and mounts it.
func makeDisk(dir string, bytes int64) (*disk, error) {
	d := &disk{image: dir + ".img", at: dir}
	f, err := os.Create(d.image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(bytes), f.Close(), os.MkdirAll(dir, 0o755)); err != nil {
		return nil, err
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-m", "0", d.image).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	return d, d.mount()
}

func (d *disk) mount() error {
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.at).CombinedOutput(); err != nil {
		return fmt.Errorf("mount %s: %w: %s", d.image, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// unmount waits a while for who still has a file open there: a process that is
// being started has what was open in this one when it was forked.
func (d *disk) unmount() error {
	err := unix.Unmount(d.at, 0)
	for tries := 0; errors.Is(err, unix.EBUSY) && tries < 200; tries++ {
		<-time.After(50 * time.Millisecond)
		err = unix.Unmount(d.at, 0)
	}
	if errors.Is(err, unix.EINVAL) || errors.Is(err, fs.ErrNotExist) { // not mounted
		return nil
	}
	return err
}

// cutPower is the end of the disk's power: what was not synced never reaches
// it (EXT4_IOC_SHUTDOWN without a flush of the journal), and every access fails
// until it is mounted again.
func (d *disk) cutPower() error {
	const ioctlShutdown, noLogFlush = 0x8004587d, 2
	f, err := os.Open(d.at)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := uint32(noLogFlush)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), ioctlShutdown, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		return fmt.Errorf("shut down %s: %w", d.at, errno)
	}
	return nil
}

func (d *disk) filler() string { return filepath.Join(d.at, "filler") }

// fill leaves so many bytes free.
func (d *disk) fill(leave int64) error {
	var s unix.Statfs_t
	if err := unix.Statfs(d.at, &s); err != nil {
		return err
	}
	f, err := os.OpenFile(d.filler(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	// What the broker writes meanwhile is not there any more for us.
	for more := int64(s.Bavail)*s.Bsize - leave; more > 0; more -= 1 << 20 {
		if err := unix.Fallocate(int(f.Fd()), 0, info.Size(), more); !errors.Is(err, unix.ENOSPC) {
			return err
		}
	}
	return nil
}

// drain gives the space back.
func (d *disk) drain() error {
	if err := os.Remove(d.filler()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
