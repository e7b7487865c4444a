package objstore

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
)

// List implements Store. It walks the folders in the byte order of the keys and holds one folder's entries per level.
func (f *Folder) List(ctx context.Context, prefix, after string, fn func(Object) bool) error {
	if err := checkContext(ctx, OpList, f.String(), prefix); err != nil {
		return err
	}
	if err := f.checkRoot(); err != nil {
		return &Error{Op: OpList, Place: f.String(), Key: prefix, Kind: ErrNoBucket, Err: err}
	}
	w := listWalk{folder: f, ctx: ctx, prefix: prefix, after: after, fn: fn}
	// Start at the deepest folder that the prefix names.
	base := ""
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		base = prefix[:i+1]
		if ValidateKey(prefix[:i]) != nil {
			return nil // no key starts like this
		}
	}
	if _, err := w.dir(base); err != nil {
		return f.fail(OpList, prefix, "", err)
	}
	return nil
}

type listWalk struct {
	folder *Folder
	ctx    context.Context
	prefix string
	after  string
	fn     func(Object) bool
}

// listEntry is a name in a folder; for sorting, a folder's part ends in '/', as it does in the keys below it.
type listEntry struct {
	part  string
	entry fs.DirEntry
}

// dir lists one folder, base being its key prefix: "" or ending in '/'. It returns false when fn asked to stop.
func (w *listWalk) dir(base string) (bool, error) {
	entries, err := w.read(base)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if err := w.ctx.Err(); err != nil {
			return false, err
		}
		key := base + e.part
		if !w.mayHold(key) {
			continue
		}
		more := true
		if e.entry.IsDir() {
			more, err = w.dir(key)
		} else {
			more, err = w.file(key, e.entry)
		}
		if err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// mayHold says whether key, or for a folder anything below it, is wanted.
func (w *listWalk) mayHold(key string) bool {
	if strings.HasSuffix(key, "/") {
		return (strings.HasPrefix(key, w.prefix) || strings.HasPrefix(w.prefix, key)) &&
			(key > w.after || strings.HasPrefix(w.after, key))
	}
	return strings.HasPrefix(key, w.prefix) && key > w.after
}

func (w *listWalk) file(key string, entry fs.DirEntry) (bool, error) {
	fi, err := entry.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil // deleted meanwhile
	}
	if err != nil {
		return false, err
	}
	return w.fn(describeFile(key, fi)), nil
}

func (w *listWalk) read(base string) ([]listEntry, error) {
	name := "."
	if base != "" {
		name = escapeKey(strings.TrimSuffix(base, "/"))
	}
	d, err := w.folder.root.Open(name)
	if isAbsent(err) {
		return nil, nil // no such keys, or all deleted meanwhile
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	all, err := d.ReadDir(-1)
	if err != nil && !isAbsent(err) {
		return nil, err
	}
	entries := make([]listEntry, 0, len(all))
	for _, e := range all {
		part, ok := unescapeName(e.Name())
		switch {
		case !ok: // not ours, .varve too
		case e.IsDir():
			entries = append(entries, listEntry{part + "/", e})
		case e.Type().IsRegular():
			entries = append(entries, listEntry{part, e})
		}
	}
	slices.SortFunc(entries, func(a, b listEntry) int { return cmp.Compare(a.part, b.part) })
	return entries, nil
}
