package hot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
)

// Store is one data directory and the logs in it.
type Store struct {
	config  Config
	fs      vfs.FS
	logger  *slog.Logger
	lock    io.Closer
	files   *fileCache
	indexes *indexCache
	journal *journal
	syncer  *syncer
	shared  atomic.Pointer[sharedLog] // nil before there is one, for tellShared
	stats   Stats
	clean   bool // the last close was clean: the journal says it all

	brokerEpoch int64 // as found at Open
	boot        boot

	// unsure are the logs that the journal does not know and the shared log had
	// records of, which may have been durable; fixed at Open.
	unsure map[journalKey]struct{}

	space     space
	names     dirNames
	failed    atomic.Pointer[error]
	onSealed  atomic.Pointer[func(*Log)]
	onDamaged atomic.Pointer[func(*Log)]
	configs   configSet
	looks     chan struct{} // segments being looked through

	mu     sync.Mutex // guards the following
	onDisk map[journalKey]foundPartition
	logs   map[journalKey]*logSlot
	closed bool

	maint maintenance
	stop  chan struct{} // ends maintenance
	drain chan struct{} // ends the syncer, afterwards
	wg    sync.WaitGroup
	once  sync.Once
	cerr  error
}

// looksMax bounds how many segments are looked through for damage at once: each takes up to two buffers of scanBytes, or one
// of the longest batch.
const looksMax = 2

// foundPartition is a partition directory as Open found it.
type foundPartition struct {
	part topic.Partition
	dir  string // name
}

// logSlot lets one goroutine open a log while others wait.
type logSlot struct {
	ready chan struct{}
	log   *Log
	err   error
}

// Open opens a data directory. It reads the journal and the directory's
// names; logs are opened by Log.
func Open(c Config, d Deps) (*Store, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.FS == nil {
		d.FS = vfs.OS()
	}
	if err := makeDir(d.FS, c.Dir); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	lock, err := d.FS.Lock(filepath.Join(c.Dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("data directory %s is in use: %w", c.Dir, err)
	}
	s := &Store{
		config: c, fs: d.FS, logger: d.Logger, lock: lock,
		files: newFileCache(d.FS, c.OpenFilesMax), indexes: &indexCache{limit: c.IndexBytesMax},
		onDisk: map[journalKey]foundPartition{}, logs: map[journalKey]*logSlot{},
		stop: make(chan struct{}), drain: make(chan struct{}), looks: make(chan struct{}, looksMax),
	}
	err = s.load(d.Boot)
	if err != nil {
		lock.Close()
		return nil, err
	}
	s.syncer = newSyncer(s)
	s.maint.init()
	s.measure()
	s.wg.Go(func() { s.syncer.run(s.drain) })
	s.wg.Go(func() { s.maintain(s.stop) })
	if c.ScrubBytesPerSecond > 0 {
		s.wg.Go(func() { s.scrub(s.stop) })
	}
	return s, nil
}

// makeDir makes the data directory and its parents durable: the names of all
// that is synced later hang on theirs.
func makeDir(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(dir); err == nil {
		return nil
	}
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	return fsys.SyncFS(dir)
}

// load takes the clean marker away before anything else happens, so that a
// crash from here on is seen as one (KAFKA-10471).
func (s *Store) load(boot string) error {
	markerPath := filepath.Join(s.config.Dir, markerName)
	marker, err := vfs.ReadFile(s.fs, markerPath, 4096)
	if err != nil && !errors.Is(err, vfs.ErrNotExist) {
		return fmt.Errorf("read clean-shutdown marker: %w", err)
	}
	if err == nil {
		if err := s.fs.Remove(markerPath); err != nil {
			return fmt.Errorf("remove clean-shutdown marker: %w", err)
		}
		if err := s.fs.SyncDir(s.config.Dir); err != nil {
			return fmt.Errorf("remove clean-shutdown marker: %w", err)
		}
	}
	if s.brokerEpoch, err = readBrokerEpoch(s.fs, s.config.Dir); err != nil {
		return err
	}
	j, sum, err := readJournal(s.fs, s.config.Dir)
	if err != nil {
		return err
	}
	s.journal = j
	s.clean = len(marker) > 0 && string(marker) == formatMarker(sum)
	deleted, err := s.find()
	if err != nil {
		return err
	}
	s.names.fresh = true // what the process before has made
	if err := s.readBoot(boot); err != nil {
		return err
	}
	s.forgetDeleted(deleted)
	applied, err := s.recoverShared()
	if err != nil {
		return err
	}
	if err := j.begin(); err != nil {
		return err
	}
	if err := s.sweepDeleted(deleted); err != nil {
		return err
	}
	if err := s.retireShared(applied); err != nil {
		return err
	}
	s.keepShared(applied)
	s.tidyShared()
	s.retireStale()
	return nil
}

// The clean-shutdown marker is one line of text; it is good only together
// with the journal whose checksum it names.
func formatMarker(sum uint32) string { return fmt.Sprintf("varve clean shutdown, journal %08x\n", sum) }

// find lists the partitions on disk, and the names of directories that were
// being deleted.
func (s *Store) find() (deleted []string, err error) {
	entries, err := s.fs.ReadDir(s.config.Dir)
	if err != nil {
		return nil, fmt.Errorf("list data directory: %w", err)
	}
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() {
			continue
		}
		if strings.HasSuffix(name, deleteSuffix) {
			deleted = append(deleted, name)
			continue
		}
		if strings.HasSuffix(name, damagedSuffix) {
			s.logger.Warn("directory of a damaged log is still there: look at it, then remove it", "dir", name)
			continue
		}
		p, cut, ok := parsePartitionDirName(name)
		if ok && cut {
			b, err := vfs.ReadFile(s.fs, filepath.Join(s.config.Dir, name, metadataName), 4096)
			if err != nil {
				return nil, fmt.Errorf("read name of partition: %w", err)
			}
			p.Topic, ok = parseMetadata(b)
		}
		if !ok {
			s.logger.Warn("directory is not a partition and is left alone", "dir", name)
			continue
		}
		s.onDisk[keyOf(p)] = foundPartition{p, name}
	}
	return deleted, nil
}

// Partitions lists the partitions that are on disk.
func (s *Store) Partitions() []topic.Partition {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]topic.Partition, 0, len(s.onDisk))
	for _, f := range s.onDisk {
		out = append(out, f.part)
	}
	return out
}

// Has says whether a partition is on disk.
func (s *Store) Has(p topic.Partition) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.onDisk[keyOf(p)]
	return ok
}

// Log opens the partition's log, making it if it is not there. The tail is
// recovered here after a crash. Opening again returns the same Log with the
// new configuration.
func (s *Store) Log(p topic.Partition, c LogConfig) (*Log, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	k := keyOf(p)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	slot, ok := s.logs[k]
	if !ok {
		slot = &logSlot{ready: make(chan struct{})}
		s.logs[k] = slot
	}
	found, exists := s.onDisk[k]
	ready := slot.ready
	s.mu.Unlock()
	if ok {
		<-ready
		if slot.err == nil {
			slot.log.SetConfig(c)
		}
		return slot.log, slot.err
	}
	slot.log, slot.err = s.openLog(p, c, found.dir, exists)
	last := false
	s.mu.Lock()
	if slot.err != nil {
		delete(s.logs, k)
	} else {
		s.onDisk[k] = foundPartition{p, filepath.Base(slot.log.dir)}
		// One that is offline is as it was.
		last = slot.log.Err() == nil && s.recoveredLocked(k)
	}
	slot.ready = opened
	s.mu.Unlock()
	close(ready)
	if last {
		s.noteBoot()
	}
	return slot.log, slot.err
}

// opened is the ready channel of every slot that is: one for all.
var opened = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// opened is the logs that are open now.
func (s *Store) opened() []*Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Log, 0, len(s.logs))
	for _, slot := range s.logs {
		select {
		case <-slot.ready:
			if slot.err == nil {
				out = append(out, slot.log)
			}
		default:
		}
	}
	return out
}

// SetAside moves away the directory of a log that could not be opened because
// bytes that were durable are gone (its Err is an ErrCorrupt), and opens an empty
// log in its place, which knows that it Lost what there was. The directory
// stays, under a name that ends in "-damaged", for a human to look at.
func (s *Store) SetAside(p topic.Partition, c LogConfig) (*Log, error) {
	k := keyOf(p)
	s.mu.Lock()
	slot, found := s.logs[k], s.onDisk[k]
	s.mu.Unlock()
	if slot == nil || slot.log == nil || !errors.Is(slot.log.Err(), ErrCorrupt) {
		return nil, fmt.Errorf("set aside %s: its log is not damaged", p)
	}
	slot.log.shut(true)
	from := filepath.Join(s.config.Dir, found.dir)
	to, err := s.freeName(from)
	if err != nil {
		return nil, fmt.Errorf("set aside %s: %w", p, err)
	}
	// The journal's record stays: a crash from here on finds no directory, and
	// the next start knows what is missing.
	if err := s.fs.Rename(from, to); err != nil {
		return nil, fmt.Errorf("set aside %s: %w", p, err)
	}
	if err := s.syncNames(); err != nil {
		return nil, fmt.Errorf("set aside %s: %w", p, err)
	}
	s.logger.Error("directory of a damaged log is set aside", "topic", p.Topic, "partition", p.Index, "dir", to, "err", slot.log.Err())
	s.mu.Lock()
	delete(s.logs, k)
	delete(s.onDisk, k)
	s.mu.Unlock()
	return s.Log(p, c)
}

// OnSealed sets the function that runs when a segment has become available to
// Sealed. It must not block.
func (s *Store) OnSealed(fn func(*Log)) { s.onSealed.Store(&fn) }

// Stats counts what the store did.
func (s *Store) Stats() *Stats { return &s.stats }

// Durability is what Durable means in this store.
func (s *Store) Durability() Durability { return s.config.Durability }

// Clean says whether the last close was clean.
func (s *Store) Clean() bool { return s.clean }

// Err is the error that took the whole store offline, or nil.
func (s *Store) Err() error {
	if p := s.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// failAll takes every log offline, those opened later included.
func (s *Store) failAll(op string, err error) {
	var e error = &OfflineError{Op: op, Err: err}
	if s.failed.CompareAndSwap(nil, &e) {
		s.logger.Error("every log goes offline: the error names no file", "op", op, "err", err)
	}
	for _, l := range s.opened() {
		l.fail(op, err)
	}
}

// Close makes everything durable, writes what the next start needs to open no
// file, and the clean-shutdown marker last. The marker is left out when
// anything failed. Readers holding slices may finish; appends fail from the
// start of Close on.
func (s *Store) Close(ctx context.Context) error {
	s.once.Do(func() { s.cerr = s.close(ctx) })
	return s.cerr
}

func (s *Store) close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	logs := s.opened()
	for _, l := range logs {
		l.shut(false)
	}
	close(s.stop)
	s.maint.wait()
	failed := s.checkpoint(logs, true)
	if s.syncer.postponed.Load() {
		// What was appended last is not durable, so the journal does not say it.
		failed = errors.Join(failed, ErrDiskFull)
	}
	for _, l := range logs {
		if err := l.Err(); errors.Is(err, ErrOffline) {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", l.part, err))
		}
	}
	close(s.drain)
	s.wg.Wait()
	failed = errors.Join(failed, s.Err(), ctx.Err())
	if err := s.closeShared(failed == nil); err != nil {
		failed = errors.Join(failed, err)
	}
	sum, err := s.journal.close()
	failed = errors.Join(failed, err)
	if failed == nil {
		failed = s.fs.SyncFS(s.config.Dir)
	}
	if failed == nil {
		failed = vfs.WriteFileAtomic(s.fs, filepath.Join(s.config.Dir, markerName), []byte(formatMarker(sum)))
	}
	for _, l := range logs {
		l.closeFiles()
	}
	return errors.Join(failed, s.lock.Close())
}

// Abandon stops without syncing or writing anything: what the death of the
// process would leave. Tests and a node that must not touch its disk any more
// use it.
func (s *Store) Abandon() {
	s.once.Do(func() {
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		s.failAll("running", ErrClosed)
		s.journal.abandon()
		close(s.stop)
		s.maint.wait()
		close(s.drain)
		s.wg.Wait()
		_ = s.closeShared(false)
		for _, l := range s.opened() {
			l.closeFiles()
		}
		s.cerr = errors.Join(ErrClosed, s.lock.Close())
	})
}
