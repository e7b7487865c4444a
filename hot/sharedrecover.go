package hot

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/varvelog/varve/hot/vfs"
)

// sharedRecovery brings the logs' own files up to what the shared log has, at
// open, before any log is scanned or cut. It may be ended anywhere and done
// again: it writes what is there already.
type sharedRecovery struct {
	store   *Store
	lost    map[journalKey]struct{}
	unsure  map[journalKey]struct{} // Store.unsure
	files   map[string]vfs.File     // that are open, sharedFilesMax at most
	entries int
	bytes   int64
}

// sharedFilesMax is how many segments are open at once while the shared log is
// applied: what is written together comes by turns.
const sharedFilesMax = 64

// recoverShared applies the shared log and syncs what it wrote. The journal in
// memory says afterwards which logs lack records that were durable (Log.Lost);
// it counts once it is written on, and with that the shared log is void.
func (s *Store) recoverShared() (r *sharedRecovery, err error) {
	r = &sharedRecovery{store: s, lost: map[journalKey]struct{}{}, unsure: map[journalKey]struct{}{}, files: map[string]vfs.File{}}
	if s.journal.version == journalVersion && !s.journal.missing {
		return r, nil
	}
	path := filepath.Join(s.config.Dir, sharedName)
	f, err := s.fs.Open(path)
	if errors.Is(err, vfs.ErrNotExist) {
		if !s.journal.missing {
			r.damaged(err)
		}
		return r, nil
	}
	if err != nil {
		return r, fmt.Errorf("open the shared log: %w", err)
	}
	defer f.Close()
	g, err := readSharedHeader(f)
	switch {
	case errors.Is(err, errSharedHeader):
		r.damaged(err)
		return r, nil
	case err != nil:
		return r, fmt.Errorf("read the shared log: %w", err)
	case g.retired:
		return r, nil
	}
	size, err := f.Size()
	if err != nil {
		return r, fmt.Errorf("read the shared log: %w", err)
	}
	reader := sharedReader{f: f, size: size, g: g}
	_, err = reader.walk(func(_ uint64, e sharedEntry) error { return r.apply(e) })
	if err = errors.Join(err, r.close()); errors.Is(err, errSharedDamage) {
		r.damaged(err)
	} else if err != nil {
		return r, fmt.Errorf("apply the shared log: %w", err)
	}
	if r.entries > 0 {
		s.stats.SharedApplied.Add(r.bytes)
		s.logger.Info("shared log is applied", "entries", r.entries, "bytes", r.bytes)
		if err := s.fs.SyncFS(s.config.Dir); err != nil {
			return r, fmt.Errorf("sync what the shared log had: %w", err)
		}
	}
	return r, nil
}

// apply writes an entry into its segment, unless a cut made it wrong or the
// segment has it for sure.
func (r *sharedRecovery) apply(e sharedEntry) error {
	s := r.store
	st := s.journal.live[e.key]
	found, exists := s.onDisk[e.key]
	if st == nil {
		r.stranger(e, exists)
		return nil
	}
	if e.cut != uint64(st.cut) || e.base < st.segment {
		return nil
	}
	if e.base == st.segment && e.pos < st.position {
		// Synced there, and perhaps mended since.
		skip := min(st.position-e.pos, uint32(len(e.bytes)))
		e.pos, e.bytes = e.pos+skip, e.bytes[skip:]
	}
	if _, lost := r.lost[e.key]; lost || len(e.bytes) == 0 {
		return nil
	}
	if !exists {
		r.lose(e.key, fmt.Errorf("its directory is not there: %w", vfs.ErrNotExist))
		return nil
	}
	path := filepath.Join(s.config.Dir, found.dir, offsetName(e.base, logExt))
	size := int64(-1)
	if info, err := s.fs.Stat(path); err == nil {
		size = info.Size()
	} else if !errors.Is(err, vfs.ErrNotExist) {
		return err
	}
	if size < int64(e.pos) {
		r.lose(e.key, fmt.Errorf("segment %d has %d bytes, %d were durable", e.base, max(size, 0), e.pos))
		return nil
	}
	f, err := r.open(path)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(e.bytes, int64(e.pos)); err != nil {
		return err
	}
	r.entries++
	r.bytes += int64(len(e.bytes))
	return nil
}

// stranger is an entry of a log that the journal does not know. It was removed,
// or the journal has lost its end: nobody can say then whether a cut has made the
// entry wrong, so it is not applied, and the log does not count by itself if it is
// opened again. One that is made anew is another log.
func (r *sharedRecovery) stranger(e sharedEntry, exists bool) {
	_, told := r.unsure[e.key]
	if _, removed := r.store.journal.removed[e.key]; removed || told || !exists {
		return
	}
	r.unsure[e.key] = struct{}{}
	r.store.logger.Error("shared log has records of a partition that the journal does not know: the log does not count before others have confirmed it",
		"path", filepath.Join(r.store.config.Dir, sharedName), "partition", r.store.onDisk[e.key].part.String(), "offset", e.base)
}

// open is a segment's file; one that cannot be opened keeps the store from
// opening, for what is in the shared log would be void afterwards.
func (r *sharedRecovery) open(path string) (vfs.File, error) {
	if f := r.files[path]; f != nil {
		return f, nil
	}
	if len(r.files) >= sharedFilesMax {
		if err := r.close(); err != nil {
			return nil, err
		}
	}
	f, err := r.store.fs.OpenAppend(path)
	if err == nil {
		r.files[path] = f
	}
	return f, err
}

func (r *sharedRecovery) close() (err error) {
	for _, f := range r.files {
		err = errors.Join(err, f.Close())
	}
	clear(r.files)
	return err
}

// lose says that a log lacks records that were durable. It goes on with what it
// has and does not count before others have what it lacks.
func (r *sharedRecovery) lose(k journalKey, why error) {
	st := r.store.journal.live[k]
	st.hadEpoch = max(st.hadEpoch, st.epoch.Epoch, 0)
	r.lost[k] = struct{}{}
	r.store.logger.Error("records that were durable are gone: the log does not count before it has them again",
		"topic_id", k.id.String(), "partition", k.index, "dir", r.store.onDisk[k].dir, "err", why)
}

// damaged says that nobody knows whose records were in the shared log.
func (r *sharedRecovery) damaged(why error) {
	r.store.logger.Error("shared log is damaged: no log counts before others have what it may lack",
		"path", filepath.Join(r.store.config.Dir, sharedName), "err", why)
	for _, k := range slices.Collect(maps.Keys(r.store.journal.live)) {
		r.lose(k, why)
	}
	if r.store.journal.missing {
		for k := range r.store.onDisk {
			r.unsure[k] = struct{}{}
		}
	}
}

// retireShared voids the shared log in place, where the journal could not do so
// for want of space.
func (s *Store) retireShared(r *sharedRecovery) error {
	if s.journal.version == journalVersion {
		return nil
	}
	if len(r.lost) > 0 {
		return fmt.Errorf("what the shared log has lost cannot be noted in the journal: %w", errNoSpace)
	}
	return s.retireFile()
}

// retireStale retires a file that is void already, beside a journal of version 1:
// should that journal come to be missing, nobody is to ask what was in it.
func (s *Store) retireStale() {
	if s.journal.version != journalVersion {
		return
	}
	_, err := s.fs.Stat(filepath.Join(s.config.Dir, sharedName))
	if err == nil {
		err = s.retireFile()
	}
	if err != nil && !errors.Is(err, vfs.ErrNotExist) && !errors.Is(err, errSharedHeader) {
		s.logger.Warn("file of the shared log is void and does not say so", "err", err)
	}
}

func (s *Store) retireFile() error {
	f, err := s.fs.OpenAppend(filepath.Join(s.config.Dir, sharedName))
	if err != nil {
		return fmt.Errorf("retire the shared log: %w", err)
	}
	x := &sharedLog{file: f, seq: 1}
	if x.g, err = readSharedHeader(f); err == nil && !x.g.retired {
		err = x.retire()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("retire the shared log: %w", err)
	}
	return nil
}

// keepShared sets the file aside when not all of it could be applied: it may have
// the only copy of what is missing. The journal says by now what that makes of the
// logs.
func (s *Store) keepShared(r *sharedRecovery) {
	s.unsure = r.unsure
	if len(r.lost)+len(r.unsure) == 0 || s.journal.version != journalVersion {
		return
	}
	from := filepath.Join(s.config.Dir, sharedName)
	to, err := s.freeName(from)
	if err == nil {
		err = s.fs.Rename(from, to)
	}
	switch {
	case err == nil:
		s.logger.Error("file of the shared log is kept: it has what could not be applied", "path", to)
	case !errors.Is(err, vfs.ErrNotExist):
		s.logger.Error("file of the shared log has what could not be applied, and cannot be set aside", "path", from, "err", err)
	}
}

// freeName is a name for what is set aside that nothing has yet.
func (s *Store) freeName(from string) (string, error) {
	to := from + damagedSuffix
	for n := 2; ; n++ {
		if _, err := s.fs.Stat(to); errors.Is(err, vfs.ErrNotExist) {
			return to, nil
		} else if err != nil {
			return "", err
		}
		to = fmt.Sprintf("%s.%d%s", from, n, damagedSuffix)
	}
}
