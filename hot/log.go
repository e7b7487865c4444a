package hot

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/meta/topic"
)

// Log is the local log of one partition. Its methods may be called from any
// goroutine.
type Log struct {
	store *Store
	part  topic.Partition
	dir   string

	config    atomic.Pointer[LogConfig]
	failure   atomic.Pointer[error]
	onDurable atomic.Pointer[func()]

	offsets   offsetCell
	hw        atomic.Int64
	unstable  atomic.Int64 // first unstable offset, -1 none
	remoteEnd atomic.Int64 // committed remote end, -1 not known
	had       atomic.Int64 // the log once was committed up to here; more than its end says that it lost some
	hadEpoch  atomic.Int32 // the latest leader epoch then
	undecided atomic.Bool  // producers.done is not empty
	fresh     freshness

	segments atomic.Pointer[[]*segment]    // by base; the last is active
	chain    atomic.Pointer[lineage.Chain] // nil until loaded
	latest   atomic.Pointer[lineage.Entry] // last entry of the chain
	told     atomic.Pointer[latestEpoch]   // what the journal was told before the append that goes on, nil between appends

	compactMu sync.Mutex // one compaction at a time; taken before maintMu

	maintMu sync.Mutex // guards the following; held across maintenance I/O
	saved   partitionState
	spare   int64          // checkpoint snapshot that is not a segment's, -1 none
	epochs  *lineage.Chain // as leader-epochs has it, nil not known

	appendMu     sync.Mutex // guards the following; held across the write
	tail         *tail      // nil until needed
	txnsUnsynced []*segment // with a transaction index that is not synced

	stateMu   sync.Mutex // guards the following; never held across I/O
	producers *producers // nil until needed

	queueMu  sync.Mutex // guards the following; a leaf
	unsynced []unsynced
	sharing  *sharing // nil without a shared log; set by the syncer
	newNames bool     // the directory has entries that are not synced

	held      bool          // the journal knows that there are records; guarded by appendMu
	rederived uint32        // how often producers were derived again after a repair; guarded by maintMu
	doubtful  atomic.Bool   // Log.Doubtful
	deleted   atomic.Bool   // the partition was deleted
	queued    atomic.Bool   // waits in the syncer's list
	changed   atomic.Bool   // appended to since the last checkpoint
	partial   atomic.Int64  // 1 + the first offset that producers and transaction indexes were derived without, 0 none
	finds     atomic.Uint64 // how often damage was found
	snapAt    atomic.Int64  // newest producer snapshot, -1 when the state was empty then
	grown     atomic.Int64  // bytes since the last checkpoint
	sized     atomic.Int64  // bytes of all segments, -1 not known
}

// unsynced is a pinned file with bytes that are not durable.
type unsynced struct {
	seg *segment
	h   *handle
}

// tail is the active segment as the appender sees it. Log.appendMu guards it.
type tail struct {
	seg       *segment
	h         *handle // pinned and writable
	ix        *indexer
	persisted int   // index entries that are in the file
	pos       int64 // end of the segment
	reserved  int64 // blocks reserved up to here
	created   int64 // when the segment was started, ms
	since     int64 // when its first record was appended, ms, -1 empty
	jitter    int64
	clean     bool // nothing appended since the last checkpoint
	skips     bool // it starts beyond the end of the one before, or one before it does, and the recovery point is not in it
}

// Partition is the partition this log belongs to.
func (l *Log) Partition() topic.Partition { return l.part }

// Dir is the partition's directory.
func (l *Log) Dir() string { return l.dir }

// Config is the present configuration.
func (l *Log) Config() LogConfig { return *l.config.Load() }

// SetConfig replaces the configuration; the next roll or retention run obeys.
func (l *Log) SetConfig(c LogConfig) { l.config.Store(l.store.configs.get(c)) }

// Err is the first I/O error, or ErrClosed; nil while the log works. An
// offline log refuses appends and still serves what it can read.
func (l *Log) Err() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	return nil
}

func (l *Log) logger() *slog.Logger {
	return l.store.logger.With("topic", l.part.Topic, "partition", l.part.Index)
}

// fail takes the log offline, once, and returns the error it is offline for. A
// log that is being closed can go offline too: what it could not write is no
// clean end.
func (l *Log) fail(op string, err error) error {
	var e error = &OfflineError{Op: op, Err: err}
	for {
		old := l.failure.Load()
		if old != nil && (*old != ErrClosed || l.isDeleted()) {
			return *old
		}
		if l.failure.CompareAndSwap(old, &e) {
			break
		}
	}
	l.store.stats.Offline.Add(1)
	l.logger().Error("log goes offline at its first I/O error", "op", op, "err", err)
	l.notify()
	return e
}

// failUnlessFull is fail for writes that can be done again as long as they are
// not done: the end of the disk only shuts the door for appends.
func (l *Log) failUnlessFull(op string, err error) error {
	if isDiskEnd(err) {
		l.store.refuse(0)
		return fmt.Errorf("%s: %w: %w", op, ErrDiskFull, err)
	}
	return l.fail(op, err)
}

// OnDurable sets the function that runs after Durable moved or the log went
// offline. It runs on the syncer's goroutine (or, going offline, on that of
// whoever met the error), under no lock of this package, and must not block.
// In Replicated mode Durable moves with Append and nothing is called for it.
func (l *Log) OnDurable(fn func()) { l.onDurable.Store(&fn) }

func (l *Log) notify() {
	if fn := l.onDurable.Load(); fn != nil && *fn != nil {
		(*fn)()
	}
}

// Offsets is a consistent snapshot; it takes no lock.
func (l *Log) Offsets() Offsets { return l.offsets.load() }

// HighWatermark is the offset below which everything is committed.
func (l *Log) HighWatermark() int64 { return l.hw.Load() }

// SetHighWatermark moves the high watermark up, at most to the end; a lower
// value changes nothing (truncation lowers it).
func (l *Log) SetHighWatermark(offset int64) {
	offset = min(offset, l.offsets.end.Load())
	for {
		old := l.hw.Load()
		if offset <= old {
			return
		}
		if l.hw.CompareAndSwap(old, offset) {
			break
		}
	}
	if l.undecided.Load() {
		l.stateMu.Lock()
		l.publishUnstableLocked()
		l.stateMu.Unlock()
	}
}

func (l *Log) publishUnstableLocked() {
	if l.producers == nil {
		return
	}
	l.unstable.Store(l.producers.firstUnstable(l.hw.Load()))
	l.undecided.Store(len(l.producers.done) > 0)
}

// LastStable is the last stable offset: what read_committed readers may read
// up to (KIP-98).
func (l *Log) LastStable() int64 {
	hw, unstable := l.hw.Load(), l.unstable.Load()
	if unstable >= 0 && unstable < hw {
		return unstable
	}
	return hw
}

// SetRemoteEnd tells the log that the bucket's committed part ends at offset
// (exclusive). It only rises; until the first call, and after one with -1,
// which says that the archive is given up, nothing counts as remote.
func (l *Log) SetRemoteEnd(offset int64) {
	if offset == -1 {
		l.remoteEnd.Store(-1)
		return
	}
	for {
		old := l.remoteEnd.Load()
		if offset <= old || l.remoteEnd.CompareAndSwap(old, offset) {
			return
		}
	}
}

// RemoteEnd is what SetRemoteEnd last said, -1 if nothing.
func (l *Log) RemoteEnd() int64 { return l.remoteEnd.Load() }

// Producers lists the producers the partition knows.
func (l *Log) Producers() ([]ProducerState, error) {
	if err := l.needProducers(); err != nil {
		return nil, err
	}
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	return l.producers.list(), nil
}

// ExpireProducers forgets producers silent for producer.id.expiration.ms.
func (l *Log) ExpireProducers(now int64) {
	ttl := l.config.Load().ProducerExpirationMillis
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	if l.producers != nil && ttl > 0 {
		l.producers.expire(now, ttl)
	}
}

// list is the present segments.
func (l *Log) list() []*segment { return *l.segments.Load() }

func (l *Log) active() *segment {
	segs := l.list()
	return segs[len(segs)-1]
}

// Lineage is the leader-epoch chain of the whole log, both tiers.
func (l *Log) Lineage() lineage.Chain {
	c, err := l.loadChain()
	if err != nil {
		l.logger().Error("leader epochs cannot be read", "err", err)
	}
	return c
}

// LatestEpoch is the last leader epoch of the chain, or lineage.NoEpoch.
func (l *Log) LatestEpoch() int32 { return l.latest.Load().Epoch }

// AssignEpoch records that epoch writes from the present end on. It is durable
// before anything appended afterwards is.
func (l *Log) AssignEpoch(epoch int32) error {
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.assignEpochLocked(epoch, l.offsets.end.Load()); err != nil {
		return err
	}
	c, err := l.loadChain() // not loaded yet when the epoch is the one that the journal has
	if err != nil {
		return err
	}
	l.saved.epoch = *l.latest.Load()
	l.saved.epochs = uint32(len(c))
	if err := l.journal(l.saved); err != nil {
		return l.fail("writing the journal", err)
	}
	return nil
}

// assignEpochLocked needs appendMu.
func (l *Log) assignEpochLocked(epoch int32, start int64) error {
	if epoch < 0 || epoch == l.latest.Load().Epoch {
		return nil
	}
	c, err := l.loadChain()
	if err != nil {
		return err
	}
	if epoch < c.Latest() {
		return fmt.Errorf("leader epoch %d is below the log's %d: %w", epoch, c.Latest(), ErrNotContiguous)
	}
	l.setChain(c.Assign(epoch, start))
	return nil
}

// noChain and noEntry stand for themselves in every log without epochs.
var (
	noChain lineage.Chain
	noEntry = lineage.Entry{Epoch: lineage.NoEpoch, Start: lineage.NoOffset}
)

func (l *Log) setChain(c lineage.Chain) {
	if len(c) == 0 {
		l.chain.Store(&noChain)
		l.latest.Store(&noEntry)
		return
	}
	latest := c[len(c)-1]
	l.chain.Store(&c)
	l.latest.Store(&latest)
}

// shut makes every further append fail with ErrClosed; deleted says that the
// partition goes away. It waits for the append under way.
func (l *Log) shut(deleted bool) {
	if deleted {
		l.deleted.Store(true)
	}
	l.appendMu.Lock()
	closed := ErrClosed
	l.failure.CompareAndSwap(nil, &closed)
	if deleted {
		for _, seg := range l.list() {
			seg.set(segGone)
		}
	}
	l.appendMu.Unlock()
	l.notify()
	if deleted {
		// The directory is about to be renamed: nobody may be writing in it.
		l.maintMu.Lock()
		//lint:ignore SA2001 waiting is the purpose
		l.maintMu.Unlock()
		l.closeFiles()
	}
}

func (l *Log) isDeleted() bool { return l.deleted.Load() }

// closeFiles lets go of every file; slices keep theirs until released.
func (l *Log) closeFiles() {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if l.tail != nil {
		l.store.files.release(l.tail.h)
		l.tail = nil
	}
	for _, u := range l.takeBehind(l.takeUnsynced(nil)) {
		l.store.files.release(u.h)
	}
	for _, seg := range l.list() {
		l.store.files.detach(seg)
	}
}
