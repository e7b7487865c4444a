package hot

import (
	"errors"
	"path/filepath"

	"github.com/varvelog/varve/hot/vfs"
)

// Files that are there and are not part of the log: names that came back with power
// loss, and what a cut left behind.

// prune takes away segments below the local start: deleted ones whose names
// came back with power loss, perhaps with holes between them.
func (l *Log) prune(segs []*segment, start int64) ([]*segment, error) {
	n := 0
	for n+1 < len(segs) && segs[n+1].base <= start {
		n++
	}
	for _, seg := range segs[:n] {
		for _, ext := range []string{logExt, indexExt, txnExt} {
			if err := l.store.fs.Remove(seg.path(ext)); err != nil && !errors.Is(err, vfs.ErrNotExist) {
				return nil, err
			}
		}
	}
	return segs[n:], nil
}

// dropOrphans takes away segments that follow one that is not there: its name
// was never synced, and so nothing of theirs was either. A footer proves the
// contrary; then all stay.
func (l *Log) dropOrphans(segs []*segment) ([]*segment, error) {
	for _, seg := range segs {
		if footed, err := l.hasFooter(seg); err != nil || footed {
			return segs, err
		}
	}
	l.logger().Warn("segments without the one before them are dropped: nothing of them was synced", "segments", len(segs), "first", segs[0].base)
	return nil, l.removeSegments(segs)
}

// removeSegments deletes the last segments of a log, the last one first and
// each durably before the one in front of it: power loss must not leave a hole.
func (l *Log) removeSegments(segs []*segment) error {
	for i := len(segs) - 1; i >= 0; i-- {
		segs[i].set(segGone)
		l.store.files.detach(segs[i])
		for _, ext := range []string{logExt, indexExt, txnExt} {
			if err := l.store.fs.Remove(segs[i].path(ext)); err != nil && !errors.Is(err, vfs.ErrNotExist) {
				return err
			}
		}
		if err := l.store.fs.SyncDir(l.dir); err != nil {
			return err
		}
	}
	return nil
}

// removeStray removes indexes without a segment and snapshots from beyond the
// end: left over from what was cut, they would describe other records later.
func (l *Log) removeStray(end int64) error {
	entries, err := l.store.fs.ReadDir(l.dir)
	if err != nil {
		return err
	}
	have := map[int64]bool{}
	for _, seg := range l.list() {
		have[seg.base] = true
	}
	for _, e := range entries {
		o, ext, ok := parseOffsetName(e.Name())
		stray := ok && (ext == snapshotExt && o > end || (ext == indexExt || ext == txnExt) && !have[o])
		if stray {
			if err := l.store.fs.Remove(filepath.Join(l.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
