package hot

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/varvelog/varve/hot/vfs"
)

// The boot file has the text that names the run of the kernel in which the
// directory was last used (/proc/sys/kernel/random/boot_id), and nothing else.
// It need not be synced: when power is lost so is the run that it names.

// noteBoot finds out whether the kernel has stopped since the directory was last
// used, and notes the run it is used in now.
func (s *Store) noteBoot(boot string) error {
	path := filepath.Join(s.config.Dir, bootName)
	last, err := vfs.ReadFile(s.fs, path, 4096)
	if err != nil && !errors.Is(err, vfs.ErrNotExist) {
		return fmt.Errorf("read the kernel's run: %w", err)
	}
	s.sameBoot = boot != "" && string(last) == boot
	if s.sameBoot || boot == "" && len(last) == 0 {
		return nil
	}
	if err := vfs.WriteFileAtomic(s.fs, path, []byte(boot)); err != nil {
		return fmt.Errorf("note the kernel's run: %w", err)
	}
	return nil
}
