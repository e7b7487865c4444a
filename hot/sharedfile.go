package hot

import (
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"

	"github.com/varvelog/varve/hot/vfs"
)

// sharedLog is the file of the shared log as it is written. The syncer's
// goroutine owns it, but for its header. A round in it makes durable what was
// appended to several logs, with one write and one sync of blocks that are there
// already; their own files are synced later, all of them, before the file is begun
// anew. The journal's version 2 says that it is in use.
type sharedLog struct {
	file vfs.File
	size int64
	at   int64  // where the next round begins
	seq  uint64 // its sequence

	// The round being put together: its heads have room for slots entries.
	buf            []byte
	slots, entries int

	groups [sharedGroups][]byte // heads of the last rounds, as earlier heads, by sequence

	mu  sync.Mutex // guards the following, held across writes and syncs: of two syncs one alone might be told of an error
	g   sharedGeneration
	err error // of the first that failed
}

// sharedGroups is how many rounds' heads are kept for the next rounds.
const sharedGroups = 8

// sharesLog says whether the store may come to have a shared log. It has none
// before there is work for one (syncer.wantShared).
func (s *Store) sharesLog() bool { return s.sharedSize() > 0 }

// sharedSize is the size of the shared log's file, 0 for none.
func (s *Store) sharedSize() int64 {
	if s.config.Durability != Fsync {
		return 0
	}
	return s.config.SharedLogBytes / sharedBlock * sharedBlock
}

func (s *Store) sharedPath() string { return filepath.Join(s.config.Dir, sharedName) }

// tidyShared removes the file, which is void beside a journal of version 1,
// unless it can be used again.
func (s *Store) tidyShared() {
	path := s.sharedPath()
	stale := []string{path + tmpExt}
	if info, err := s.fs.Stat(path); err == nil && info.Size() != s.sharedSize() && s.journal.version == journalVersion {
		stale = append(stale, path)
	}
	for _, path := range stale {
		if err := s.fs.Remove(path); err != nil && !errors.Is(err, vfs.ErrNotExist) {
			s.logger.Warn("file of the shared log is not used and cannot be removed", "path", path, "err", err)
		}
	}
}

// makeShared makes the shared log ready to be written: from the journal's
// version 2 on what is in it counts.
func (s *Store) makeShared() (*sharedLog, error) {
	x, err := s.openShared(s.sharedPath(), s.sharedSize())
	if err != nil {
		return nil, err
	}
	// Before the journal has the version: who is about to change bytes that a round
	// may have finds the file in a journal that says so.
	s.shared.Store(x)
	if err := s.journal.setVersion(journalVersionCut); err != nil {
		s.shared.Store(nil)
		return nil, errors.Join(err, x.file.Close())
	}
	return x, nil
}

// openShared begins a generation of the file, which is made if it is not there
// in that size and with a header. One without, or of another version, is not
// written on: the other header would stay beside the first of ours.
func (s *Store) openShared(path string, size int64) (*sharedLog, error) {
	x, err := s.continueShared(path, size)
	if err != nil {
		if err := s.zeroShared(path, size); err != nil {
			return nil, err
		}
		if x, err = s.continueShared(path, size); err != nil {
			return nil, err
		}
	}
	if err := x.renew(journalMark{}); err != nil {
		return nil, errors.Join(err, x.file.Close())
	}
	return x, nil
}

// continueShared opens the file as it was left, if it has the size.
func (s *Store) continueShared(path string, size int64) (*sharedLog, error) {
	x, err := s.leftShared(path)
	if err != nil {
		return nil, err
	}
	if x.size != size {
		return nil, errors.Join(fmt.Errorf("%s has %d bytes, want %d: %w", path, x.size, size, errSharedHeader), x.file.Close())
	}
	x.g.mark = journalMark{} // of a journal that has version 1 by now
	return x, nil
}

// leftShared opens the file as it was left.
func (s *Store) leftShared(path string) (*sharedLog, error) {
	f, err := s.fs.OpenAppend(path)
	if err != nil {
		return nil, err
	}
	x := &sharedLog{file: f, seq: 1}
	if x.size, err = f.Size(); err == nil {
		x.g, err = readSharedHeader(f, x.size)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return x, nil
}

// zeroShared makes the file, all its blocks written, retired.
func (s *Store) zeroShared(path string, size int64) (err error) {
	total, free, err := s.fs.Usage(s.config.Dir)
	if err != nil {
		return err
	}
	if free < uint64(size)+s.reserve(total) {
		return fmt.Errorf("%d bytes free: %w", free, errNoSpace)
	}
	tmp := path + tmpExt
	defer func() {
		if err != nil {
			_ = s.fs.Remove(tmp) // it takes space
		}
	}()
	f, err := s.fs.Create(tmp)
	if err != nil {
		return err
	}
	zeros := make([]byte, min(size, 1<<20))
	for at := int64(0); at < size && err == nil; at += int64(len(zeros)) {
		select {
		case <-s.stop:
			err = ErrClosed
		default:
			_, err = f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at)
		}
	}
	if err == nil {
		_, err = f.WriteAt(sharedGeneration{salt: rand.Uint64(), retired: true}.append(nil), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := s.fs.Rename(tmp, path); err != nil {
		return err
	}
	return s.syncNames()
}

// closeShared closes the file, when the syncer has ended. When all that it has
// is synced in place it is void with that, and an older program can read the
// journal.
func (s *Store) closeShared(synced bool) error {
	y := s.syncer
	y.adoptShared()
	x := y.shared
	if x != nil {
		defer x.file.Close() // after an error of its syncs nobody comes to what counts on them
	}
	if !synced {
		return nil
	}
	if n := len(y.behind); n > 0 {
		return fmt.Errorf("%d logs have records that only the shared log makes durable: %w", n, errBehind)
	}
	if x != nil {
		if err := s.fs.SyncFS(s.config.Dir); err != nil {
			return fmt.Errorf("sync before the shared log is void: %w", err)
		}
		// Should the journal come to be missing, nobody is to ask what was in it.
		if err := x.retire(); err != nil && !isDiskEnd(err) {
			return fmt.Errorf("retire the shared log: %w", err)
		}
	}
	return s.journal.setVersion(journalVersion)
}

// errBehind is returned when a store is closed that could not sync everything
// in place: the next start applies the shared log.
var errBehind = errors.New("files are behind the shared log")

// renew begins the next generation. Everything in the present one is synced in
// place.
func (x *sharedLog) renew(mark journalMark) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	g := sharedGeneration{number: x.g.number + 1, salt: x.g.salt, first: x.seq, mark: mark}
	if mark.before(x.g.mark) {
		g.mark = x.g.mark
	}
	if err := x.headerLocked(g); err != nil {
		return err
	}
	x.at = sharedBlock
	for i := range x.groups {
		x.groups[i] = x.groups[i][:0]
	}
	return nil
}

// retire makes what is in the file void, when that is synced in place.
func (x *sharedLog) retire() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.headerLocked(sharedGeneration{number: x.g.number + 1, salt: x.g.salt, first: x.seq, retired: true})
}

// tell makes durable that the journal has come as far as mark.
func (x *sharedLog) tell(mark journalMark) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil || !x.g.mark.before(mark) {
		return x.err
	}
	g := x.g
	g.mark = mark
	return x.headerLocked(g)
}

// headerLocked writes a header where the older one is. One that finds no space
// changes nothing.
func (x *sharedLog) headerLocked(g sharedGeneration) error {
	if x.err != nil {
		return x.err
	}
	g.serial = x.g.serial + 1
	_, err := x.file.WriteAt(g.append(nil), g.place(x.size))
	if err == nil {
		err = x.file.Sync()
	}
	if err == nil {
		x.g = g
		return nil
	}
	return x.failLocked(fmt.Errorf("write header of the shared log: %w", err))
}

// failLocked keeps an error that nobody may hide by trying again.
func (x *sharedLog) failLocked(err error) error {
	if !isDiskEnd(err) {
		x.err = err
	}
	return err
}

// tellShared comes between a record of the journal that is durable and the change
// of bytes below the end of a log for which it stands: until then the shared log
// may be taken for what it was. A journal that has lost the record is found out by
// it.
func (s *Store) tellShared() error {
	x := s.shared.Load()
	if x == nil {
		return nil
	}
	err := x.tell(s.journal.mark())
	if isDiskEnd(err) {
		// It takes a journal that is damaged, too, to do harm.
		s.logger.Warn("no space for the header of the shared log", "err", err)
		return nil
	}
	if err != nil {
		s.failAll("sync", err)
	}
	return err
}

// fits says whether a round with that many entries of so many bytes goes in.
func (x *sharedLog) fits(entries int, bytes int64) bool {
	body := bytes + int64(entries)*sharedEntryHead
	older := int64(len(x.groups[(x.seq-1)%sharedGroups]))
	return body <= sharedRoundMax && x.at+sharedRoundHead+body+older <= x.size-sharedBlock
}

// beginRound starts to put a round of so many entries together, at most.
func (x *sharedLog) beginRound(slots int) {
	n := sharedRoundHead + slots*sharedEntryHead
	x.buf = slices.Grow(x.buf[:0], n)[:n]
	clear(x.buf)
	x.slots, x.entries = slots, 0
}

// add reads a run of a segment's bytes into the round.
func (x *sharedLog) add(e sharedEntry, from vfs.File, n int) error {
	at := len(x.buf)
	x.buf = slices.Grow(x.buf, n)[:at+n]
	if got, err := from.ReadAt(x.buf[at:], int64(e.pos)); got < n {
		x.buf = x.buf[:at]
		return err
	}
	e.size, e.sum = uint32(n), crc32.Checksum(x.buf[at:], castagnoli)
	e.put(x.headAt(x.entries))
	x.entries++
	return nil
}

func (x *sharedLog) headAt(i int) []byte {
	at := sharedRoundHead + i*sharedEntryHead
	return x.buf[at : at+sharedEntryHead]
}

// drop takes the last entry, of n bytes, out again.
func (x *sharedLog) drop(n int) {
	x.buf = x.buf[:len(x.buf)-n]
	x.entries--
	clear(x.headAt(x.entries))
}

// commit makes the round durable. After an error nobody knows what the disk
// has of it.
func (x *sharedLog) commit() error {
	heads := x.buf[sharedRoundHead : sharedRoundHead+x.slots*sharedEntryHead]
	group := &x.groups[x.seq%sharedGroups]
	body := len(x.buf)
	x.addEarlier()
	older := len(x.buf) - body
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.err != nil {
		return x.err
	}
	x.buf = x.g.finishRound(x.buf, x.seq, x.slots, older)
	if _, err := x.file.WriteAt(x.buf, x.at); err != nil {
		return x.failLocked(fmt.Errorf("write shared log: %w", err))
	}
	if err := x.file.Sync(); err != nil {
		return x.failLocked(fmt.Errorf("sync shared log: %w", err))
	}
	*group = appendGroup((*group)[:0], x.seq, heads)
	if len(*group) > sharedOlderMax {
		*group = (*group)[:0]
	}
	x.at += int64(len(x.buf))
	x.seq++
	return nil
}

// addEarlier adds the heads of the round before, and of those before that as far as
// they fill its last block.
func (x *sharedLog) addEarlier() {
	for i := uint64(1); i < sharedGroups && i < x.seq; i++ {
		group := x.groups[(x.seq-i)%sharedGroups]
		room := (sharedBlock - len(x.buf)%sharedBlock) % sharedBlock
		if len(group) == 0 || i > 1 && len(group) > room {
			return
		}
		x.buf = append(x.buf, group...)
	}
}
