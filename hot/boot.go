package hot

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/varvelog/varve/hot/vfs"
)

// The boot file has the text that names a run of the kernel
// (/proc/sys/kernel/random/boot_id), and nothing else: every log of the
// directory was last written, or recovered, in that run. It need not be synced:
// when power is lost so is the run that it names.
//
// So a start in another run writes it when the last of the logs that it found was
// opened. What is bad in one that was not may be a tail that power loss has torn,
// whatever the run in which the process was killed since.

// readBoot finds out whether all logs were last used in this run of the kernel,
// and notes the run at once when there are none. It comes after find.
func (s *Store) readBoot(boot string) error {
	last, err := vfs.ReadFile(s.fs, s.bootPath(), 4096)
	if err != nil && !errors.Is(err, vfs.ErrNotExist) {
		return fmt.Errorf("read the kernel's run: %w", err)
	}
	s.boot, s.sameBoot = boot, boot != "" && string(last) == boot
	if s.sameBoot || boot == "" && len(last) == 0 {
		return nil
	}
	if len(s.onDisk) == 0 || boot == "" {
		return s.writeBoot()
	}
	s.unopened = make(map[journalKey]struct{}, len(s.onDisk))
	for k := range s.onDisk {
		s.unopened[k] = struct{}{}
	}
	return nil
}

func (s *Store) bootPath() string { return filepath.Join(s.config.Dir, bootName) }

func (s *Store) writeBoot() error {
	if err := vfs.WriteFileAtomic(s.fs, s.bootPath(), []byte(s.boot)); err != nil {
		return fmt.Errorf("note the kernel's run: %w", err)
	}
	return nil
}

// recoveredLocked notes that what Open found of a log is recovered, or gone, and
// says whether it was the last. It needs mu.
func (s *Store) recoveredLocked(k journalKey) (last bool) {
	if _, ok := s.unopened[k]; !ok {
		return false
	}
	delete(s.unopened, k)
	return len(s.unopened) == 0
}

// noteBoot notes the run of the kernel. Without that the next start is careful.
func (s *Store) noteBoot() {
	err := s.writeBoot()
	switch {
	case err == nil:
	case isDiskEnd(err):
		s.logger.Warn("the kernel's run cannot be noted", "err", err)
	default: // it may have been about names of logs
		s.failAll("noting the kernel's run", err)
	}
}
