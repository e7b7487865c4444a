package hot

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// syncer makes dirty logs durable, all of them in one round: the file system
// is asked once per round when many files are dirty, once per file when few
// are, or what was appended goes into the shared log (sharedround.go). Rounds
// follow each other without pause while there is work, so what
// arrives during one is the next one's group.
type syncer struct {
	store *Store

	mu       sync.Mutex // guards the following
	cond     sync.Cond
	dirty    []*Log
	spare    []*Log
	asked    uint64 // rounds somebody waits for
	inPlace  bool   // the next round syncs all that is behind in its own files
	started  uint64
	finished uint64
	stopped  bool

	wake      chan struct{}
	postponed atomic.Bool // the last round found no space for the journal

	// owned by the syncer's goroutine
	files  []unsynced
	sealed []bool // of files: whether they were complete when they were taken
	spans  []syncSpan
	number uint64 // of the round

	shared    *sharedLog   // nil before there is one
	sharedMin atomic.Int64 // dirty logs that make the shared log worth it
	behind    []*Log       // have bytes that are durable by the shared log alone
	stuck     bool         // one of them could not be synced: the shared log is its only copy
	hinted    int64        // room in its file when the kernel was last told to write back what is behind, 0 not yet

	sharedAfter int // rounds that make its file worth it
	wanted      int // rounds since wantSince that it could have taken
	wantSince   time.Time
	appended    int64 // Stats.AppendBytes at the last of them

	hinting atomic.Bool               // the kernel is being told
	making  atomic.Bool               // somebody makes it, or has
	made    atomic.Pointer[sharedLog] // and the next round takes it into use
	retryAt atomic.Int64              // when it is tried again, in Unix nanoseconds
}

// syncSpan is one log's part of a round.
type syncSpan struct {
	log      *Log
	edge     edge
	cuts     uint64
	from, to int // in files
	names    bool
	shared   bool // by the shared log
	void     bool // cut meanwhile: nothing of it counts
	err      error
}

func newSyncer(s *Store) *syncer {
	y := &syncer{store: s, wake: make(chan struct{}, 1), sharedAfter: sharedAfter}
	y.sharedMin.Store(sharedLogsMin)
	y.cond.L = &y.mu
	return y
}

// push queues a log. In Replicated mode the interval starts the round, unless
// now is set.
func (y *syncer) push(l *Log, now bool) {
	if !l.queued.Swap(true) {
		y.mu.Lock()
		y.dirty = append(y.dirty, l)
		y.mu.Unlock()
	} else if !now {
		return
	}
	if now || y.store.config.Durability == Fsync {
		y.kick()
	}
}

func (y *syncer) kick() {
	select {
	case y.wake <- struct{}{}:
	default:
	}
}

// flush waits for a round that starts after now: when it returns, everything
// appended before the call is synced in its own files or its log is offline.
func (y *syncer) flush() { y.await(true) }

// await waits for a round that starts after now.
func (y *syncer) await(inPlace bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	want := y.started + 1
	y.asked = max(y.asked, want)
	y.inPlace = y.inPlace || inPlace
	y.kick()
	for y.finished < want && !y.stopped {
		y.cond.Wait()
	}
}

// run is the syncer's goroutine; it ends when stop closes, after a last
// round.
func (y *syncer) run(stop <-chan struct{}) {
	var tick <-chan time.Time
	if y.store.config.Durability == Replicated {
		t := time.NewTicker(y.store.config.FlushInterval)
		defer t.Stop()
		tick = t.C
	}
	for {
		select {
		case <-y.wake:
		case <-tick:
		case <-stop:
			y.mu.Lock()
			y.inPlace = true
			y.mu.Unlock()
			y.round()
			y.mu.Lock()
			y.stopped = true
			y.cond.Broadcast()
			y.mu.Unlock()
			return
		}
		y.round()
	}
}

func (y *syncer) round() {
	y.adoptShared()
	y.mu.Lock()
	logs := y.dirty
	y.dirty, y.spare = y.spare[:0], nil
	y.started++
	round, inPlace := y.started, y.inPlace
	y.inPlace = false
	y.mu.Unlock()

	if len(logs) > 0 || inPlace && len(y.behind) > 0 {
		y.sync(logs, inPlace)
	}
	clear(logs)

	y.mu.Lock()
	y.spare = logs[:0]
	y.finished = round
	again := y.asked > round
	y.cond.Broadcast()
	y.mu.Unlock()
	if again {
		y.kick()
	}
}

// sync makes the logs durable up to where they are now. The order matters:
// the queue flag is cleared before the end is read, the end before the files
// are taken. Appending goes the other way round (bytes, file, end, flag), so
// every byte below the end read here is in a file taken here or earlier.
func (y *syncer) sync(logs []*Log, inPlace bool) {
	began := time.Now()
	y.files, y.sealed, y.spans = y.files[:0], y.sealed[:0], y.spans[:0]
	y.number++
	for _, l := range logs {
		l.queued.Store(false)
		y.take(l)
	}
	renew := y.choose(&inPlace, began)
	if inPlace {
		y.takeAllBehind()
	}
	dirs, files := 0, 0
	for i := range y.spans {
		if s := &y.spans[i]; !s.shared {
			files += s.to - s.from
			if s.names {
				dirs++
			}
		}
	}
	err := y.store.journal.sync()
	y.postponed.Store(isDiskEnd(err))
	if isDiskEnd(err) {
		y.postpone()
		return
	}
	if err == nil {
		if files+dirs > y.store.config.SyncFilesMax {
			if err = y.store.syncFS(); err == nil {
				y.confirmBehind()
			}
		} else {
			err = y.syncFiles()
		}
	}
	if err == nil {
		err = y.syncShared()
	}
	if err != nil {
		// Nobody can say whose bytes were lost.
		y.store.failAll("sync", err)
	}
	y.publish(err)
	if renew && err == nil {
		y.renewShared()
	}
	y.store.stats.Syncs.Add(1)
	y.store.stats.SyncNanos.Add(time.Since(began).Nanoseconds())
}

// take adds a log to the round.
func (y *syncer) take(l *Log) {
	span := syncSpan{log: l, from: len(y.files)}
	span.edge, span.cuts, _ = l.offsets.place()
	y.files = l.takeUnsynced(y.files)
	y.files = l.withBehind(y.files, span.from, y.number)
	span.to = len(y.files)
	for _, u := range y.files[span.from:] {
		y.sealed = append(y.sealed, u.seg.is(segSealed))
	}
	// After that: the name of the next segment is there before one is sealed, so a
	// footer, which says that the round has ended well, says that it is durable.
	span.names = l.takeNames()
	y.spans = append(y.spans, span)
}

// postpone puts a round's work back: the journal, which comes first, has no
// space. Nothing of the round counts as durable, and the tick tries again.
func (y *syncer) postpone() {
	y.store.refuse(0)
	for _, s := range y.spans {
		l := s.log
		l.queueMu.Lock()
		l.newNames = l.newNames || s.names
		for _, u := range y.files[s.from:s.to] {
			if u.seg.setOnce(segQueued) {
				l.unsynced = append(l.unsynced, u)
			} else {
				defer y.store.files.release(u.h)
			}
		}
		l.queueMu.Unlock()
		if !l.queued.Swap(true) {
			y.mu.Lock()
			y.dirty = append(y.dirty, l)
			y.mu.Unlock()
		}
	}
	clear(y.files)
	clear(y.spans)
}

// resume starts the round that was postponed, if one was.
func (y *syncer) resume() {
	if y.postponed.Load() {
		y.kick()
	}
}

// syncFiles syncs file by file, in parallel. An error is its log's own.
func (y *syncer) syncFiles() error {
	if !slices.ContainsFunc(y.spans, func(s syncSpan) bool { return !s.shared }) {
		return nil
	}
	if err := y.store.syncNewDirs(); err != nil {
		return err
	}
	if len(y.spans) == 1 && !y.spans[0].shared {
		y.spans[0].err = y.syncSpan(&y.spans[0])
		return nil
	}
	var wg sync.WaitGroup
	for i := range y.spans {
		if !y.spans[i].shared {
			wg.Go(func() { y.spans[i].err = y.syncSpan(&y.spans[i]) })
		}
	}
	wg.Wait()
	return nil
}

func (y *syncer) syncSpan(s *syncSpan) error {
	if s.err != nil {
		return s.err // of an earlier try in this round: a second one would not meet it
	}
	for _, u := range y.files[s.from:s.to] {
		if err := s.log.syncSegment(u.h); err != nil {
			return fmt.Errorf("segment %d: %w", u.seg.base, err)
		}
	}
	if s.names {
		if err := y.store.fs.SyncDir(s.log.dir); err != nil && !s.log.isDeleted() {
			return fmt.Errorf("directory of segments: %w", err)
		}
	}
	return nil
}

// publish moves Durable on and lets the files go.
func (y *syncer) publish(failed error) {
	for i := range y.spans {
		s := &y.spans[i]
		if s.err != nil {
			s.log.fail("sync", s.err)
		}
		synced := failed == nil && s.err == nil && !s.void
		ok := synced && !errors.Is(s.log.Err(), ErrOffline)
		finished := false
		for j := s.from; j < s.to; j++ {
			u := y.files[j]
			if ok && y.sealed[j] && !s.shared { // it may have been sealed after the round was chosen
				u.seg.set(segSynced)
				finished = true
			}
			if !s.shared || !y.keepBehind(s.log, u) {
				y.store.files.release(u.h)
			}
			y.files[j] = unsynced{}
		}
		if x := s.log.sharing; synced && x != nil {
			x.at = syncPlace{s.edge, s.cuts, true, y.number}
			if ok && !s.shared {
				y.inPlaceNow(s.log)
			}
		}
		if ok && s.log.offsets.synced(s.edge.end, s.cuts, !s.shared) {
			s.log.notify()
		}
		if finished {
			y.store.wantMaintenance(s.log)
		}
		s.log = nil
	}
	if slices.ContainsFunc(y.spans, func(s syncSpan) bool { return !s.shared }) {
		y.caughtUp()
	}
}

// inPlaceNow lets go of the file of a log that was behind.
func (y *syncer) inPlaceNow(l *Log) {
	for _, u := range l.takeBehind(nil) {
		y.store.files.release(u.h)
	}
}
