package hot

import (
	"path/filepath"
	"sync"

	"github.com/varvelog/varve/hot/vfs"
)

// dirNames is what the data directory has of names that are not durable. The
// lock is held while they are synced: who finds nothing to sync must be able to
// rely on it.
type dirNames struct {
	mu     sync.Mutex // guards the following
	fresh  bool       // there are such names
	failed error      // of the first sync that did not end well
}

// newDir notes that a log's directory was made.
func (s *Store) newDir() {
	s.names.mu.Lock()
	s.names.fresh = true
	s.names.mu.Unlock()
}

// syncNewDirs makes the names of logs' directories durable that were made before.
func (s *Store) syncNewDirs() error {
	s.names.mu.Lock()
	if !s.names.fresh {
		s.names.mu.Unlock()
		return nil
	}
	return s.syncNamesLocked(s.fs.SyncDir)
}

// syncNames makes every name in the data directory durable.
func (s *Store) syncNames() error {
	s.names.mu.Lock()
	return s.syncNamesLocked(s.fs.SyncDir)
}

// syncFS makes all of the file system durable.
func (s *Store) syncFS() error {
	s.names.mu.Lock()
	return s.syncNamesLocked(s.fs.SyncFS)
}

// replaceFile is vfs.WriteFileAtomic for a file of the data directory. Its name is
// made durable like any other there: an error of that sync may be about names of
// logs, and whoever met it alone would keep it from those who rely on them.
func (s *Store) replaceFile(name string, b []byte) error {
	if err := vfs.ReplaceFile(s.fs, filepath.Join(s.config.Dir, name), b); err != nil {
		return err
	}
	return s.syncNames()
}

// syncNamesLocked needs the lock of the names, and gives it back. After an error
// nobody can say which names were lost, and the disk may say so only once: every
// log goes offline, and the names stay as they are.
func (s *Store) syncNamesLocked(sync func(dir string) error) error {
	n := &s.names
	err := n.failed
	if err == nil {
		err = sync(s.config.Dir)
	}
	n.fresh = err != nil && n.fresh
	gone := err != nil && !isDiskEnd(err)
	if gone {
		n.failed = err
	}
	n.mu.Unlock()
	if gone {
		s.failAll("syncing the data directory", err)
	}
	return err
}
