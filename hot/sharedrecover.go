package hot

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/varvelog/varve/hot/vfs"
)

// sharedRecovery brings the logs' own files up to what the shared log has, at
// open, before any log is scanned or cut. It may be ended anywhere and done
// again: it writes what is there already.
//
// An entry is written when its checksum holds and the journal can be trusted for
// its log. Otherwise (sharedsuspect.go) its log has lost something only if its own
// files do not have the same bytes.
type sharedRecovery struct {
	store *Store
	read  sharedReader
	g     sharedGeneration

	doubt   bool                  // the journal has lost what it had durably
	newest  map[journalKey]uint64 // the highest cut that entries of a log have
	missing []missingRounds       // that are not whole, though they were synced
	// unknownTo is the end of the rounds of which nobody knows whose they were, 0 when there are none.
	unknownTo uint64
	after     map[journalKey]sharedEntry // the first entry of each log behind these
	suspects  []sharedEntry              // that were not written
	damage    error                      // what is wrong with the file

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
	r = &sharedRecovery{store: s, newest: map[journalKey]uint64{}, after: map[journalKey]sharedEntry{},
		lost: map[journalKey]struct{}{}, unsure: map[journalKey]struct{}{}, files: map[string]vfs.File{}}
	if s.journal.version == journalVersion && !s.journal.missing {
		return r, nil
	}
	f, err := s.fs.Open(s.sharedPath())
	switch {
	case errors.Is(err, vfs.ErrNotExist) && s.journal.missing:
		return r, nil
	case errors.Is(err, vfs.ErrNotExist):
		r.damaged(err)
		r.unknownTo = math.MaxUint64
	case err != nil:
		return r, fmt.Errorf("open the shared log: %w", err)
	default:
		err = r.apply(f)
		if err = errors.Join(err, f.Close(), r.close()); err != nil {
			return r, fmt.Errorf("apply the shared log: %w", err)
		}
	}
	if err := r.judge(); err != nil {
		return r, fmt.Errorf("apply the shared log: %w", err)
	}
	if r.entries > 0 {
		s.stats.SharedApplied.Add(r.bytes)
		s.logger.Info("shared log is applied", "entries", r.entries, "bytes", r.bytes)
	}
	if r.entries > 0 || r.damage != nil || len(r.suspects) > 0 {
		// Also what was found in place: it counted by the shared log, which is void from now on.
		if err := s.fs.SyncFS(s.config.Dir); err != nil {
			return r, fmt.Errorf("sync what the shared log had: %w", err)
		}
	}
	return r, nil
}

// apply walks over the rounds of the generation that counts, twice: whose they
// are, and only then their bytes.
func (r *sharedRecovery) apply(f vfs.File) error {
	size, err := f.Size()
	if err != nil {
		return err
	}
	pages := &patient{File: f, stop: r.store.stop}
	r.read = sharedReader{f: pages, lost: pages.holds, size: size}
	r.g, err = readSharedHeader(pages, size)
	if errors.Is(err, errSharedHeader) {
		r.damaged(err)
		r.unknownTo = math.MaxUint64
		return nil
	}
	if err != nil {
		return err
	}
	r.read.salt = r.g.salt
	rounds, err := r.read.scan()
	if err != nil {
		return err
	}
	rounds = r.current(rounds)
	if r.g.retired {
		return nil
	}
	if r.doubt = !r.store.journal.missing && !r.store.journal.reaches(r.g.mark); r.doubt {
		r.store.logger.Error("the journal has lost its end: nothing of the shared log is applied, and logs that lack it do not count before they have it again",
			"path", r.store.journal.path)
	}
	if err := r.survey(rounds); err != nil {
		return err
	}
	for i := range rounds {
		q, last := &rounds[i], i == len(rounds)-1
		err := r.read.entries(q, func(e sharedEntry, at int64) error { return r.entry(q, &e, at, last) })
		if err != nil {
			return err
		}
	}
	if len(pages.lost) > 0 {
		r.damaged(fmt.Errorf("%d pages cannot be read", len(pages.lost)))
	}
	return nil
}

// current picks the rounds of the latest generation. When it is later than that of
// the header, the header that began it is damaged.
func (r *sharedRecovery) current(rounds []sharedRound) []sharedRound {
	newest := r.g.number
	for i := range rounds {
		newest = max(newest, rounds[i].gen)
	}
	n := 0
	for _, q := range rounds {
		if q.gen == newest && (n == 0 || q.seq > rounds[n-1].seq) {
			rounds[n] = q
			n++
		}
	}
	rounds = rounds[:n]
	if newest > r.g.number {
		r.damaged(fmt.Errorf("of generation %d: %w", newest, errSharedHeader))
		before := uint64(rounds[0].at/sharedBlock - 1) // rounds, at most
		r.g = sharedGeneration{number: newest, salt: r.g.salt, first: rounds[0].seq - min(before, rounds[0].seq)}
	}
	return rounds
}

// survey finds out which rounds are missing and, of all that are there, the highest
// cut that entries of each log have.
func (r *sharedRecovery) survey(rounds []sharedRound) error {
	next, at := r.g.first, int64(sharedBlock)
	for i := range rounds {
		q := &rounds[i]
		if q.seq > next {
			r.miss(next, q.seq, at)
		}
		next, at = q.seq+1, q.end()
		err := r.read.entries(q, func(e sharedEntry, _ int64) error {
			r.newest[e.key] = max(r.newest[e.key], e.cut)
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, place := range r.read.broken {
		if place == at { // one may begin there that was acknowledged
			r.miss(next, math.MaxUint64, at)
			break
		}
	}
	return r.recall(rounds)
}

// entry writes an entry, unless its bytes are not whole. Those of the last round may
// be torn: then nobody was told that they are durable.
func (r *sharedRecovery) entry(q *sharedRound, e *sharedEntry, at int64, last bool) error {
	st := r.store.journal.live[e.key]
	if st == nil {
		r.stranger(e)
		return nil
	}
	if _, ok := r.after[e.key]; !ok && q.seq >= r.unknownTo && !r.cut(st, e) {
		r.after[e.key] = *e
	}
	if r.void(st, e) {
		return nil
	}
	b, whole, lost, err := r.read.bytes(e, at)
	switch {
	case err != nil:
		return err
	case lost || !whole && !last:
		r.damaged(fmt.Errorf("entry of round %d at %d is not what was written", q.seq, at))
		r.suspect(e)
	case !whole:
	case r.distrusts(st, e.key):
		r.suspect(e)
	default:
		return r.write(st, e, b)
	}
	return nil
}

// cut says whether a cut made an entry wrong.
func (r *sharedRecovery) cut(st *partitionState, e *sharedEntry) bool {
	return e.cut < max(uint64(st.cut), r.newest[e.key])
}

// void says whether a cut made an entry wrong, or the segment has it for sure.
func (r *sharedRecovery) void(st *partitionState, e *sharedEntry) bool {
	if r.cut(st, e) {
		return true
	}
	// Synced there, and perhaps mended since; but for a journal that knows of no such cut.
	return e.cut == uint64(st.cut) && (e.base < st.segment || e.base == st.segment && int64(e.pos)+int64(e.size) <= int64(st.position))
}

// write writes an entry into its segment.
func (r *sharedRecovery) write(st *partitionState, e *sharedEntry, b []byte) error {
	pos := e.pos
	if e.base == st.segment && pos < st.position {
		b, pos = b[st.position-pos:], st.position
	}
	if _, lost := r.lost[e.key]; lost {
		return nil
	}
	found, exists := r.store.onDisk[e.key]
	if !exists {
		r.lose(e.key, fmt.Errorf("its directory is not there: %w", vfs.ErrNotExist))
		return nil
	}
	path := filepath.Join(r.store.config.Dir, found.dir, offsetName(e.base, logExt))
	size := int64(-1)
	if info, err := r.store.fs.Stat(path); err == nil {
		size = info.Size()
	} else if !errors.Is(err, vfs.ErrNotExist) {
		return err
	}
	if size < int64(pos) {
		r.lose(e.key, fmt.Errorf("segment %d has %d bytes, %d were durable", e.base, max(size, 0), pos))
		return nil
	}
	f, err := r.open(path)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(b, int64(pos)); err != nil {
		return err
	}
	r.entries++
	r.bytes += int64(len(b))
	return nil
}

// stranger is an entry of a log that the journal does not know. It was removed,
// or the journal has lost its end: nobody can say then whether a cut has made the
// entry wrong, so it is not applied, and the log does not count by itself if it is
// opened again. One that is made anew is another log.
func (r *sharedRecovery) stranger(e *sharedEntry) {
	found, exists := r.store.onDisk[e.key]
	_, told := r.unsure[e.key]
	cut, removed := r.store.journal.removed[e.key]
	if removed && e.cut <= uint64(cut) || told || !exists {
		return
	}
	r.unsure[e.key] = struct{}{}
	r.store.logger.Error("shared log has records of a partition that the journal does not know: the log does not count before others have confirmed it",
		"path", r.store.sharedPath(), "partition", found.part.String(), "offset", e.base)
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
	if _, told := r.lost[k]; told {
		return
	}
	st := r.store.journal.live[k]
	st.hadEpoch = max(st.hadEpoch, st.epoch.Epoch, 0)
	r.lost[k] = struct{}{}
	r.store.logger.Error("records that were durable are gone: the log does not count before it has them again",
		"topic_id", k.id.String(), "partition", k.index, "dir", r.store.onDisk[k].dir, "err", why)
}
