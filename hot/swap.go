package hot

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
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
	n, err := strconv.ParseUint(rest[1:1+offsetDigits], 10, 63)
	return base, int64(n), err == nil && int64(n) > base
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

// swapIn puts the compacted segment in the place of its group. From the
// rename to the swap name on, a crash completes it; before, it never was.
// Readers see either the old segments or the new one: the new file is open
// before the list changes, the old ones are marked gone before their names
// change, and whoever opened a name meanwhile checks that mark again.
func (l *Log) swapIn(p *compaction, g segmentGroup, path string, w *cleanedWriter) error {
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	old := p.segs[g.from:g.to]
	segs := l.list()
	at := slices.Index(segs, old[0])
	if l.Err() != nil || at < 0 || at+len(old) >= len(segs) || !slices.Equal(segs[at:at+len(old)], old) || segs[at+len(old)].base != p.ends[g.to-1] {
		// Retention or truncation was here first; the next run starts anew.
		return errors.Join(l.Err(), l.store.fs.Remove(path))
	}
	base, end := old[0].base, p.ends[g.to-1]
	if err := l.mergeTxns(old, w.txns); isDiskEnd(err) {
		return errors.Join(fmt.Errorf("compact: %w: %w", ErrDiskFull, err), l.store.fs.Remove(path))
	} else if err != nil {
		return l.fail("writing a transaction index", err)
	}
	// What the shared log has for these segments lies below a recovery point
	// that is durable: it is not written into the new one.
	if err := l.store.journal.sync(); isDiskEnd(err) {
		return errors.Join(fmt.Errorf("compact: %w: %w", ErrDiskFull, err), l.store.fs.Remove(path))
	} else if err != nil {
		return l.fail("syncing the journal", err)
	}
	if err := l.store.tellShared(); err != nil {
		return err
	}
	swap := filepath.Join(l.dir, swapName(base, end))
	if err := errors.Join(l.store.fs.Rename(path, swap), l.store.fs.SyncDir(l.dir)); err != nil {
		return l.fail("swapping in a compacted segment", err)
	}
	seg := &segment{log: l, base: base}
	seg.size.Store(w.at)
	seg.index.Store(w.ix.ix)
	seg.set(segSealed | segSynced)
	if old[0].is(segTxns) {
		seg.set(segTxns)
	}
	h, err := l.store.files.adopt(seg, swap)
	if err != nil {
		return l.fail("opening a compacted segment", err)
	}
	defer l.store.files.release(h)
	l.appendMu.Lock()
	segs = slices.Clone(l.list())
	segs = slices.Replace(segs, at, at+len(old), seg)
	l.segments.Store(&segs)
	l.appendMu.Unlock()
	l.sized.Store(-1)
	return l.finishSwapIn(old, seg, swap, w)
}

func (l *Log) finishSwapIn(old []*segment, seg *segment, swap string, w *cleanedWriter) error {
	delay := l.config.Load().FileDeleteDelay
	old[0].set(segGone)
	l.store.files.detach(old[0])
	for _, o := range old[1:] {
		if err := l.deleteSegment(o, delay); err != nil {
			return l.fail("removing a compacted segment", err)
		}
	}
	if err := l.store.fs.Remove(old[0].path(indexExt)); err != nil && !errors.Is(err, vfs.ErrNotExist) {
		return l.fail("removing an index", err)
	}
	err := errors.Join(l.store.fs.SyncDir(l.dir), l.store.fs.Rename(swap, seg.path(logExt)), l.store.fs.SyncDir(l.dir))
	if err != nil {
		return l.fail("swapping in a compacted segment", err)
	}
	if err := l.writeIndex(seg, w.ix.ix, 0, w.ix.ix.len()); err != nil {
		return l.fail("writing an index", err)
	}
	seg.set(segTrusted)
	l.store.indexes.add(seg, w.ix.ix)
	return nil
}

// mergeTxns makes the first segment's transaction index hold its own entries
// and those that stay of the whole group, before the swap: too many entries
// name records that are gone, too few would show aborted ones.
func (l *Log) mergeTxns(old []*segment, kept []batch.AbortedTxn) error {
	own, err := old[0].txns()
	if err != nil {
		return err
	}
	all := slices.Clone(own)
	for _, t := range kept {
		if !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	if len(all) == 0 || len(all) == len(own) {
		return nil
	}
	slices.SortFunc(all, func(a, b batch.AbortedTxn) int { return int(a.LastOffset - b.LastOffset) })
	if err := vfs.WriteFileAtomic(l.store.fs, old[0].path(txnExt), encodeTxns(old[0].base, all)); err != nil {
		return err
	}
	old[0].set(segTxns)
	return nil
}
