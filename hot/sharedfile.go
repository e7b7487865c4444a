package hot

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"github.com/varvelog/varve/hot/vfs"
)

// sharedLog is the file of the shared log as it is written. The syncer's
// goroutine owns it. A round in it makes durable what was appended to several
// logs, with one write and one sync of blocks that are there already; their own
// files are synced later, all of them, before the file is begun anew. The
// journal's version 2 says that it is in use.
type sharedLog struct {
	file vfs.File
	size int64
	at   int64  // where the next round begins
	seq  uint64 // its sequence
	g    sharedGeneration

	// The round being put together.
	buf     []byte
	entries int
}

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

// tidyShared removes the file, which is void beside a journal of version 1,
// unless it can be used again.
func (s *Store) tidyShared() {
	path := filepath.Join(s.config.Dir, sharedName)
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
	x, err := s.openShared(filepath.Join(s.config.Dir, sharedName), s.sharedSize())
	if err != nil {
		return nil, err
	}
	if err := s.journal.setVersion(journalVersionCut); err != nil {
		return nil, errors.Join(err, x.file.Close())
	}
	return x, nil
}

// openShared begins a generation of the file, which is made if it is not there
// in that size.
func (s *Store) openShared(path string, size int64) (*sharedLog, error) {
	info, err := s.fs.Stat(path)
	if err != nil && !errors.Is(err, vfs.ErrNotExist) {
		return nil, err
	}
	if err != nil || info.Size() != size {
		if err := s.zeroShared(path, size); err != nil {
			return nil, err
		}
	}
	f, err := s.fs.OpenAppend(path)
	if err != nil {
		return nil, err
	}
	x := &sharedLog{file: f, size: size, seq: 1}
	if g, err := readSharedHeader(f); err == nil {
		x.g = g
	}
	if err := x.renew(); err != nil {
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
		_, err = f.WriteAt(sharedGeneration{retired: true}.append(nil), 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return errors.Join(s.fs.Rename(tmp, path), s.fs.SyncDir(s.config.Dir))
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

func readSharedHeader(f vfs.File) (sharedGeneration, error) {
	var b [sharedHeaderSize]byte
	if _, err := f.ReadAt(b[:], 0); err != nil {
		return sharedGeneration{}, fmt.Errorf("read header: %w", err)
	}
	return parseSharedHeader(b[:])
}

// renew begins the next generation. Everything in the present one is synced in
// place.
func (x *sharedLog) renew() error {
	return x.begin(sharedGeneration{number: x.g.number + 1, salt: rand.Uint64(), first: x.seq})
}

// retire makes what is in the file void, when that is synced in place.
func (x *sharedLog) retire() error {
	return x.begin(sharedGeneration{number: x.g.number + 1, salt: rand.Uint64(), first: x.seq, retired: true})
}

func (x *sharedLog) begin(g sharedGeneration) error {
	x.buf = g.append(x.buf[:0])
	if _, err := x.file.WriteAt(x.buf, 0); err != nil {
		return fmt.Errorf("write header: %w", err)
	}
	if err := x.file.Sync(); err != nil {
		return fmt.Errorf("sync header: %w", err)
	}
	x.g, x.at = g, sharedBlock
	return nil
}

// fits says whether a round with that many entries of so many bytes goes in.
func (x *sharedLog) fits(entries int, bytes int64) bool {
	body := bytes + int64(entries)*sharedEntryHead
	return body <= sharedRoundMax && x.at+sharedRoundHead+body <= x.size
}

// beginRound starts to put a round together.
func (x *sharedLog) beginRound() {
	x.buf = append(x.buf[:0], make([]byte, sharedRoundHead)...)
	x.entries = 0
}

// add reads a run of a segment's bytes into the round.
func (x *sharedLog) add(e sharedEntry, from vfs.File, n int) error {
	was := len(x.buf)
	x.buf = e.appendHead(x.buf, n)
	at := len(x.buf)
	x.buf = append(x.buf, make([]byte, n)...)
	if got, err := from.ReadAt(x.buf[at:], int64(e.pos)); got < n {
		x.buf = x.buf[:was]
		return err
	}
	x.entries++
	return nil
}

// drop takes the last entry, of n bytes, out again.
func (x *sharedLog) drop(n int) {
	x.buf = x.buf[:len(x.buf)-sharedEntryHead-n]
	x.entries--
}

// commit makes the round durable. After an error nobody knows what the disk
// has of it.
func (x *sharedLog) commit() error {
	x.buf = x.g.finishRound(x.buf, 0, x.seq, x.entries)
	if _, err := x.file.WriteAt(x.buf, x.at); err != nil {
		return fmt.Errorf("write shared log: %w", err)
	}
	if err := x.file.Sync(); err != nil {
		return fmt.Errorf("sync shared log: %w", err)
	}
	x.at += int64(len(x.buf))
	x.seq++
	return nil
}
