package hot

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
)

// A partition's directory and the journal's record of it cannot go in one step. So
// the directory gets its "-delete" name first, durably: from then on the partition
// is gone, whatever the journal says of it. The journal says so next. What is in
// the directory goes afterwards, and the directory itself, empty, last of all, and
// only once the journal does not have the partition any more: at every moment the
// name is there or nothing is that could miss what it held.

// Delete removes a partition: its directory gets its "-delete" name at once,
// so that it cannot come back, and goes away in the background. Slices that
// are being sent stay readable. A partition that is not there is fine.
func (s *Store) Delete(p topic.Partition) error {
	k := keyOf(p)
	s.mu.Lock()
	slot := s.logs[k]
	found, exists := s.onDisk[k]
	ready := opened
	if slot != nil {
		ready = slot.ready
	}
	s.mu.Unlock()
	if !exists {
		return nil
	}
	if slot != nil {
		<-ready
		if slot.err == nil {
			slot.log.shut(true)
		}
	}
	from := filepath.Join(s.config.Dir, found.dir)
	if err := s.markDeleted(from); err != nil {
		return fmt.Errorf("delete partition %s: %w", p, err)
	}
	if err := s.syncNames(); err != nil {
		return fmt.Errorf("delete partition %s: %w", p, err)
	}
	// Synced: a log that is made again under the id must not be held against what
	// the journal has of this one. A full disk must not keep anybody from deleting.
	if err := errors.Join(s.journal.remove(k), s.journal.sync()); err != nil && !isDiskEnd(err) {
		return fmt.Errorf("delete partition %s: %w", p, err)
	}
	if err := s.tellShared(); err != nil {
		return fmt.Errorf("delete partition %s: %w", p, err)
	}
	s.mu.Lock()
	delete(s.logs, k)
	delete(s.onDisk, k)
	last := s.recoveredLocked(k)
	s.mu.Unlock()
	if last {
		s.noteBoot()
	}
	s.removeLater(from+deleteSuffix, 0)
	return nil
}

// markDeleted gives a partition's directory its "-delete" name. It may have it from a deletion that failed then.
func (s *Store) markDeleted(dir string) error {
	err := s.fs.Rename(dir, dir+deleteSuffix)
	if errors.Is(err, vfs.ErrNotExist) {
		if _, gone := s.fs.Stat(dir + deleteSuffix); gone == nil {
			return nil
		}
	}
	return err
}

// forgetDeleted takes partitions out of the journal that was read whose deletion
// had begun when the process ended. One that was made again since is another.
func (s *Store) forgetDeleted(names []string) {
	for _, name := range names {
		p, _, ok := parsePartitionDirName(strings.TrimSuffix(name, deleteSuffix))
		if _, again := s.onDisk[keyOf(p)]; ok && !again {
			s.journal.forget(keyOf(p))
		}
	}
}

// sweepDeleted finishes deletions that had begun, beside a journal that does not
// have the partitions any more.
func (s *Store) sweepDeleted(names []string) error {
	for _, name := range names {
		path := filepath.Join(s.config.Dir, name)
		if err := s.removeDeleted(path); isDiskEnd(err) {
			s.removeLater(path, removeRetry)
		} else if err != nil {
			return fmt.Errorf("remove deleted partition: %w", err)
		}
	}
	return nil
}

// removeRetry is when a directory is asked for again that the journal, for want of
// space, could not let go, in milliseconds.
const removeRetry = 1000

// removeDeleted removes a partition's directory that has its "-delete" name. On a
// full disk what it holds goes, which makes space for the journal, and its name
// stays as long as the journal has the partition.
func (s *Store) removeDeleted(path string) error {
	entries, err := s.fs.ReadDir(path)
	if errors.Is(err, vfs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.fs.RemoveAll(filepath.Join(path, e.Name())); err != nil {
			return err
		}
	}
	if err := s.journal.sync(); err != nil {
		return err
	}
	return s.fs.RemoveAll(path)
}
