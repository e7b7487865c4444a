//go:build linux

package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A process reads the time of day from code that the kernel maps into it (the
// vDSO), so that it cannot be lied to by a library, and a time namespace shifts
// other clocks only. But that code is the process's own copy as soon as somebody
// with the right to writes to it. This puts a detour at the beginning of
// clock_gettime which makes the system call and adds an offset to CLOCK_REALTIME
// alone: the time of day of one process jumps, its monotonic clocks do not.

// detour is that code, for x86-64. The offset in seconds stands behind it.
//
//	b8 e4 00 00 00        mov  eax, 228           clock_gettime
//	0f 05                 syscall
//	85 ff                 test edi, edi           CLOCK_REALTIME is 0
//	75 0a                 jne  +10
//	48 8b 0d 06 00 00 00  mov  rcx, [rip+6]       the offset
//	48 01 0e              add  [rsi], rcx         seconds
//	c3                    ret
var detour = []byte{
	0xb8, 0xe4, 0, 0, 0, 0x0f, 0x05, 0x85, 0xff, 0x75, 0x0a, 0x48, 0x8b, 0x0d, 6, 0, 0, 0, 0x48, 0x01, 0x0e, 0xc3, 0x90, 0x90,
}

const (
	detourRoom = 64 // with the offset, and to spare
	jumpBytes  = 5
)

// canJump says why clocks cannot jump here, or nil.
func canJump() error {
	if runtime.GOARCH != "amd64" {
		return errors.New("it moves a process's clock, for which there is machine code for amd64 only")
	}
	if os.Geteuid() != 0 {
		return errors.New("it moves a process's clock, which takes root (writing to its memory)")
	}
	return nil
}

// jumpClock sets how far a process's time of day is from the right one.
func jumpClock(pid int, offset time.Duration) error {
	memory, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer memory.Close()
	low, image, err := vdso(pid, memory)
	if err != nil {
		return err
	}
	entry, err := clockEntry(image)
	if err != nil {
		return err
	}
	at, known := entry, false
	if image[entry] == 0xe9 { // detoured before
		at = entry + jumpBytes + int(int32(binary.LittleEndian.Uint32(image[entry+1:])))
		known = at > 0 && at+detourRoom <= len(image) && bytes.Equal(image[at:at+len(detour)], detour)
	}
	seconds := binary.LittleEndian.AppendUint64(nil, uint64(int64(offset/time.Second)))
	if known {
		_, err := memory.WriteAt(seconds, low+int64(at+len(detour)))
		return err
	}
	at = len(image) - detourRoom
	if len(bytes.Trim(image[at:], "\x00")) > 0 {
		return errors.New("the vDSO has no room for a detour")
	}
	if _, err := memory.WriteAt(append(bytes.Clone(detour), seconds...), low+int64(at)); err != nil {
		return err
	}
	jump := binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(int32(at-entry-jumpBytes)))
	return whileStopped(pid, low+int64(entry), func() error {
		_, err := memory.WriteAt(jump, low+int64(entry))
		return err
	})
}

// vdso reads the code that the kernel has mapped into a process, and where.
func vdso(pid int, memory *os.File) (low int64, image []byte, err error) {
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(string(maps)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		var high int64
		if _, err := fmt.Sscanf(line, "%x-%x", &low, &high); err != nil {
			return 0, nil, fmt.Errorf("maps of process %d: %w", pid, err)
		}
		image = make([]byte, high-low)
		_, err := memory.ReadAt(image, low)
		return low, image, err
	}
	return 0, nil, fmt.Errorf("process %d has no vDSO", pid)
}

func clockEntry(image []byte) (int, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" && int(s.Value)+16 < len(image) {
			return int(s.Value), nil
		}
	}
	return 0, errors.New("the vDSO has no clock_gettime")
}

// whileStopped does something while a process stands still, and no thread of it
// is amid the bytes from at on.
func whileStopped(pid int, at int64, do func() error) error {
	for range 100 {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		clear, err := standsClear(pid, at)
		if clear {
			err = do()
		}
		if e := syscall.Kill(pid, syscall.SIGCONT); err != nil || clear {
			return errors.Join(err, e)
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("process %d does not leave its clock alone", pid)
}

// standsClear waits until all threads have stopped and looks where they are.
func standsClear(pid int, at int64) (bool, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	if err != nil || len(tasks) == 0 {
		return false, fmt.Errorf("process %d has no threads: %w", pid, err)
	}
	for _, task := range tasks {
		fields := []string{"running"}
		for wait := 0; fields[0] == "running"; wait++ {
			text, err := os.ReadFile(task)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				break // the thread has ended
			}
			if err != nil {
				return false, err
			}
			if fields = strings.Fields(string(text)); len(fields) == 0 {
				break
			}
			if wait > 1000 {
				return false, nil
			}
			if fields[0] == "running" {
				time.Sleep(time.Millisecond)
			}
		}
		if len(fields) == 0 || fields[0] == "running" {
			continue
		}
		pc, err := strconv.ParseInt(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64)
		if err == nil && pc > at && pc < at+16 {
			return false, nil
		}
	}
	return true, nil
}
