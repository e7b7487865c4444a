package meta

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/hashicorp/raft"
)

// snapshotsKept is how many snapshots stay on disk. The older one is never
// used to start from: the log may no longer reach back to it.
const snapshotsKept = 2

// newestSnapshot reads the newest snapshot and returns the index it ends at,
// 0 if there is none. raft would skip a damaged snapshot and start from the
// one before; a node that did that could have forgotten what it voted for, so
// here damage is an error.
func newestSnapshot(dir string, store raft.SnapshotStore) (uint64, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	if err != nil {
		return 0, fmt.Errorf("list snapshots: %w", err)
	}
	whole := 0
	for _, e := range entries {
		if e.IsDir() && !strings.HasSuffix(e.Name(), ".tmp") {
			whole++
		}
	}
	list, err := store.List()
	if err != nil {
		return 0, fmt.Errorf("list snapshots: %w", err)
	}
	if len(list) < min(whole, snapshotsKept) {
		return 0, fmt.Errorf("%w: %d of %d snapshots cannot be read", ErrCorrupt, whole-len(list), whole)
	}
	if len(list) == 0 {
		return 0, nil
	}
	meta, r, err := store.Open(list[0].ID)
	if err != nil {
		return 0, fmt.Errorf("%w: snapshot %s: %w", ErrCorrupt, list[0].ID, err)
	}
	b, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return 0, fmt.Errorf("%w: snapshot %s: %w", ErrCorrupt, meta.ID, err)
	}
	img, err := DecodeSnapshot(b)
	if err != nil {
		return 0, fmt.Errorf("snapshot %s: %w", meta.ID, err)
	}
	if img.Index > meta.Index {
		return 0, fmt.Errorf("%w: snapshot %s holds change %d", ErrCorrupt, meta.ID, img.Index)
	}
	return meta.Index, nil
}
