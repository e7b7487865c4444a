package hot

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"github.com/varvelog/varve/hot/vfs"
)

// What the shared log cannot give, or must not be taken at its word for, costs a
// log only what its own files do not have. Of an entry whose bytes are damaged the
// head says where they belong and what their checksum is. Of a round whose heads
// are damaged the next one says the same. A journal that has lost its end knows
// nothing of cuts and compactions since, so nothing is written beside it. Only of
// rounds that nobody tells of, in a run of several that are bad, nobody can say
// whose they were: then a log is spared whose files are sound up to where a later
// round went on.

// missingRounds are rounds that were synced and are not whole.
type missingRounds struct {
	from, to uint64
	known    map[uint64]struct{} // of which a later round tells
}

// damaged notes what is wrong with the file.
func (r *sharedRecovery) damaged(why error) {
	if r.damage == nil {
		r.damage = why
		r.store.logger.Error("shared log is damaged: what is whole of it is applied", "path", r.store.sharedPath(), "err", why)
	}
}

// miss notes that rounds from one sequence to before another are not whole.
func (r *sharedRecovery) miss(from, to uint64, at int64) {
	r.damaged(fmt.Errorf("round %d at %d is not what was written", from, at))
	r.missing = append(r.missing, missingRounds{from, to, map[uint64]struct{}{}})
}

// distrusts says whether the journal may not know of what made entries of a log
// void, or of what is in its files.
func (r *sharedRecovery) distrusts(st *partitionState, k journalKey) bool {
	return r.doubt || r.newest[k] > uint64(st.cut)
}

func (r *sharedRecovery) suspect(e *sharedEntry) { r.suspects = append(r.suspects, *e) }

// recall takes from later rounds what missing ones had.
func (r *sharedRecovery) recall(rounds []sharedRound) error {
	if len(r.missing) == 0 {
		return nil
	}
	within := func(seq uint64) *missingRounds {
		for i := range r.missing {
			if m := &r.missing[i]; seq >= m.from && seq < m.to {
				return m
			}
		}
		return nil
	}
	had := map[uint64][]sharedEntry{}
	for i := range rounds {
		err := r.read.earlier(&rounds[i], func(seq uint64) {
			if m := within(seq); m != nil {
				m.known[seq] = struct{}{}
				had[seq] = nil
			}
		}, func(seq uint64, e sharedEntry) {
			if within(seq) != nil {
				had[seq] = append(had[seq], e)
			}
		})
		if err != nil {
			return err
		}
	}
	for _, list := range had {
		for i := range list {
			r.newest[list[i].key] = max(r.newest[list[i].key], list[i].cut)
			r.suspect(&list[i])
		}
	}
	for _, m := range r.missing {
		if m.to-m.from > uint64(len(m.known)) {
			r.unknownTo = m.to
		}
	}
	return nil
}

// judge finds the logs that have lost something.
func (r *sharedRecovery) judge() error {
	for i := range r.suspects {
		e := &r.suspects[i]
		st := r.store.journal.live[e.key]
		if st == nil {
			r.stranger(e)
			continue
		}
		if r.void(st, e) {
			continue
		}
		if has, err := r.has(e); err != nil {
			return err
		} else if !has {
			r.lose(e.key, fmt.Errorf("segment %d does not have the %d bytes at %d that were durable", e.base, e.size, e.pos))
		}
	}
	if r.unknownTo == 0 {
		return nil
	}
	for k, st := range r.store.journal.live {
		if _, exists := r.store.onDisk[k]; exists && r.store.inThisRun(k) {
			continue // what the process wrote is there
		}
		if had, epoch := st.missing(); had == 0 && epoch < 0 {
			continue // it never had records
		}
		if e, ok := r.after[k]; ok && !r.distrusts(st, k) {
			if sound, err := r.sound(st, &e); err != nil {
				return err
			} else if sound {
				continue
			}
		}
		r.lose(k, r.damage)
	}
	if r.store.journal.missing {
		for k := range r.store.onDisk {
			if !r.store.inThisRun(k) {
				r.unsure[k] = struct{}{}
			}
		}
	}
	return nil
}

// segmentOf opens the segment of an entry to read, nil when it is not there.
func (r *sharedRecovery) segmentOf(e *sharedEntry) (vfs.File, error) {
	found, exists := r.store.onDisk[e.key]
	if !exists {
		return nil, nil
	}
	f, err := r.store.fs.Open(filepath.Join(r.store.config.Dir, found.dir, offsetName(e.base, logExt)))
	if errors.Is(err, vfs.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// has says whether the segment has what an entry had.
func (r *sharedRecovery) has(e *sharedEntry) (bool, error) {
	f, err := r.segmentOf(e)
	if f == nil || err != nil {
		return false, err
	}
	defer f.Close()
	b, err := (&sharedReader{f: f}).read(&r.read.buf, int64(e.pos), int64(e.size))
	if errors.Is(err, io.EOF) || unreadable(err) {
		return false, nil
	}
	return err == nil && crc32.Checksum(b, castagnoli) == e.sum, err
}

// sound says whether the segment of an entry is whole from the recovery point to
// where the entry begins: then nothing that came before it is missing.
func (r *sharedRecovery) sound(st *partitionState, e *sharedEntry) (bool, error) {
	if e.base < st.segment {
		return true, nil
	}
	f, err := r.segmentOf(e)
	if f == nil || err != nil {
		return false, err
	}
	defer f.Close()
	from := int64(0)
	if e.base == st.segment {
		from = int64(st.position)
	}
	for sc := newScanner(f, from, int64(e.pos)); ; {
		_, err := sc.next()
		switch {
		case errors.Is(err, io.EOF):
			return sc.pos == max(from, int64(e.pos)), nil
		case isDamage(err) || unreadable(err):
			return false, nil
		case err != nil:
			return false, err
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
	_, err := s.fs.Stat(s.sharedPath())
	if err == nil {
		err = s.retireFile()
	}
	if err != nil && !errors.Is(err, vfs.ErrNotExist) && !errors.Is(err, errSharedHeader) && !errors.Is(err, errSharedVersion) {
		s.logger.Warn("file of the shared log is void and does not say so", "err", err)
	}
}

func (s *Store) retireFile() error {
	x, err := s.leftShared(s.sharedPath())
	if err == nil {
		if !x.g.retired {
			err = x.retire()
		}
		err = errors.Join(err, x.file.Close())
	}
	if err != nil {
		return fmt.Errorf("retire the shared log: %w", err)
	}
	return nil
}

// keepShared sets the file aside when it is damaged or not all of it could be
// applied: it may have the only copy of what is missing. The journal says by now
// what that makes of the logs.
func (s *Store) keepShared(r *sharedRecovery) {
	s.unsure = r.unsure
	if len(r.lost)+len(r.unsure) == 0 && r.damage == nil || s.journal.version != journalVersion {
		return
	}
	from := s.sharedPath()
	to, err := s.freeName(from)
	if err == nil {
		err = s.fs.Rename(from, to)
	}
	switch {
	case err == nil:
		s.logger.Error("file of the shared log is kept: it is damaged or has what could not be applied", "path", to, "logs_lost", len(r.lost)+len(r.unsure))
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
