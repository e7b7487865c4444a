package hot

import (
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// Swap file (%020d.%020d.swap): a compacted segment, complete and synced, that
// replaces every segment with a base offset from the first number up to, but
// not at, the second. It becomes <first>.log once those are removed; an
// interrupted swap is finished at the next open. Files that end in .cleaned
// are unfinished and removed.
func swapName(base, end int64) string {
	return offsetName(base, ".") + offsetName(end, swapExt)
}

func parseSwapName(name string) (base, end int64, ok bool) {
	base, rest, ok := parseOffsetName(name)
	if !ok || !strings.HasSuffix(rest, swapExt) || len(rest) != 1+offsetDigits+len(swapExt) {
		return 0, 0, false
	}
	end, err := strconv.ParseInt(rest[1:1+offsetDigits], 10, 64)
	return base, end, err == nil && end > base
}

// finishSwaps tidies a partition directory after a crash and reports whether
// names changed.
func (l *Log) finishSwaps(entries []fs.DirEntry) (changed bool, err error) {
	for _, e := range entries {
		name := e.Name()
		ext := filepath.Ext(name)
		if ext == tmpExt || ext == cleanedExt || ext == deletedExt {
			if err := l.store.fs.Remove(filepath.Join(l.dir, name)); err != nil {
				return changed, err
			}
			changed = true
			continue
		}
		base, end, ok := parseSwapName(name)
		if !ok {
			continue
		}
		if err := l.finishSwap(entries, name, base, end); err != nil {
			return changed, err
		}
		changed = true
	}
	if changed {
		return true, l.store.fs.SyncDir(l.dir)
	}
	return false, nil
}

// finishSwap puts a compacted segment in the place of those it replaces.
func (l *Log) finishSwap(entries []fs.DirEntry, name string, base, end int64) error {
	for _, e := range entries {
		o, ext, ok := parseOffsetName(e.Name())
		if !ok || o < base || o >= end {
			continue
		}
		replaced := ext == logExt && o != base || ext == indexExt || ext == txnExt && o != base
		if replaced {
			if err := l.store.fs.Remove(filepath.Join(l.dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return l.store.fs.Rename(filepath.Join(l.dir, name), l.path(base, logExt))
}
