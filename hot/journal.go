package hot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
)

// Journal file, big-endian: a header and a run of records; the last record of
// a partition is the one that counts.
//
//	header: "VARVEJNL" 8, version 4 (1 or 2), edition 4 (in version 2: one more
//	        whenever the file is rewritten; 0 in version 1)
//
// It has version 2 while the shared log is in use (sharedlog.go), and version
// 1 otherwise: what a file of version 1 finds of a shared log is void. A
// program that knows nothing of the shared log refuses version 2.
//
//	offset size field of a record
//	     0    4  CRC-32C of the bytes from 4 on
//	     4    1  kind: 1 state, 2 removed, 3 highest cut given (version 2; all
//	             fields but the cut are 0)
//	     5    1  flags: 1 records were appended to the log (held.go), 2 the
//	             leader-epoch chain is doubtful (chain.go); a program that does not
//	             know a flag drops it
//	     6    2  reserved, 0
//	     8   16  topic id
//	    24    4  partition
//	    28    4  latest leader epoch, -1 none
//	    32    8  start offset of that epoch
//	    40    8  log start offset
//	    48    8  recovery point: everything below is synced
//	    56    8  base offset of the segment that holds the recovery point
//	    64    4  position of the recovery point in it
//	    68    4  when the log has lost its end, and is not known to be complete again:
//	             one more than the latest leader epoch it had; 0 otherwise
//	    72    8  high watermark
//	    80    8  first unstable offset at the recovery point, -1 none
//	    88    8  offset of the producer snapshot for the recovery point, -1 for
//	             "no producers"
//	    96    8  clean point of compaction: below it the log is compacted
//	   104    4  number of entries of the leader-epoch chain
//	   108    4  0, or that producers and transaction indexes were derived without
//	             damaged batches: one more than the first offset they lack,
//	             shifted right by 16 bits. What is derived from that offset on is
//	             derived again before it counts
//	   112    8  local start: no segment file below it counts
//	   120    8  cut (version 2): the number of what last made bytes of the log
//	             wrong that had been written. No two are ever given the same
//
// Torn tail: records end at the first bad checksum. The file is rewritten
// whole (temporary file, rename) at open and when mostly stale.
const (
	journalMagic      = "VARVEJNL"
	journalVersion    = 1
	journalVersionCut = 2 // records have a cut
	journalHeaderSize = 16
	journalRecordSize = 120
	journalCutSize    = 8 // more, in version 2
	journalBytesMax   = 4 << 30
	journalAhead      = 64 << 10

	recordState   byte = 1 // format: do not renumber
	recordRemoved byte = 2
	recordCut     byte = 3

	journalHeld     byte = 1 // format: do not renumber
	journalDoubtful byte = 2
)

// journalKey names a partition.
type journalKey struct {
	id    topic.ID
	index int32
}

func keyOf(p topic.Partition) journalKey { return journalKey{p.ID, p.Index} }

// partitionState is what the journal knows about a partition.
type partitionState struct {
	epoch         lineage.Entry // latest, Epoch -1 none
	logStart      int64
	recovery      int64
	segment       int64
	position      uint32
	epochs        uint32 // entries of the chain
	highWatermark int64
	firstUnstable int64
	snapshot      int64
	cleanPoint    int64
	localStart    int64
	lacks         uint32 // Log.partial, as exactly as the record has it
	hadEpoch      int32  // of a log that has lost its end (Log.Lost), NoEpoch otherwise
	cut           uint32 // 0 in a journal of version 1
	held          bool   // records were appended
	doubtful      bool   // Log.Doubtful
}

func newPartitionState(start int64) partitionState {
	return partitionState{
		epoch:    lineage.Entry{Epoch: lineage.NoEpoch, Start: lineage.NoOffset},
		logStart: start, localStart: start, recovery: start, segment: start, highWatermark: start,
		firstUnstable: -1, snapshot: -1, hadEpoch: lineage.NoEpoch,
	}
}

func recordSize(version uint32) int {
	if version == journalVersion {
		return journalRecordSize
	}
	return journalRecordSize + journalCutSize
}

func appendJournalRecord(dst []byte, version uint32, kind byte, k journalKey, s *partitionState) []byte {
	at := len(dst)
	flags := byte(0)
	if s.held {
		flags = journalHeld
	}
	if s.doubtful {
		flags |= journalDoubtful
	}
	dst = append(dst, 0, 0, 0, 0, kind, flags, 0, 0)
	dst = append(dst, k.id[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(k.index))
	dst = binary.BigEndian.AppendUint32(dst, uint32(s.epoch.Epoch))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.epoch.Start))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.logStart))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.recovery))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.segment))
	dst = binary.BigEndian.AppendUint32(dst, s.position)
	dst = binary.BigEndian.AppendUint32(dst, uint32(s.hadEpoch+1))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.highWatermark))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.firstUnstable))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.snapshot))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.cleanPoint))
	dst = binary.BigEndian.AppendUint32(dst, s.epochs)
	dst = binary.BigEndian.AppendUint32(dst, s.lacks)
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.localStart))
	if version != journalVersion {
		dst = binary.BigEndian.AppendUint64(dst, uint64(s.cut))
	}
	binary.BigEndian.PutUint32(dst[at:], crc32.Checksum(dst[at+4:], castagnoli))
	return dst
}

// parseJournalRecord takes a record of the version whose size b has.
func parseJournalRecord(b []byte) (kind byte, k journalKey, s partitionState, ok bool) {
	if crc32.Checksum(b[4:], castagnoli) != binary.BigEndian.Uint32(b) {
		return 0, k, s, false
	}
	copy(k.id[:], b[8:24])
	k.index = int32(binary.BigEndian.Uint32(b[24:]))
	i64 := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
	s = partitionState{
		epoch:         lineage.Entry{Epoch: int32(binary.BigEndian.Uint32(b[28:])), Start: i64(32)},
		logStart:      i64(40),
		recovery:      i64(48),
		segment:       i64(56),
		position:      binary.BigEndian.Uint32(b[64:]),
		highWatermark: i64(72),
		firstUnstable: i64(80),
		snapshot:      i64(88),
		cleanPoint:    i64(96),
		epochs:        binary.BigEndian.Uint32(b[104:]),
		lacks:         binary.BigEndian.Uint32(b[108:]),
		localStart:    i64(112),
		hadEpoch:      int32(binary.BigEndian.Uint32(b[68:])) - 1,
		held:          b[5]&journalHeld != 0,
		doubtful:      b[5]&journalDoubtful != 0,
	}
	if len(b) > journalRecordSize {
		s.cut = uint32(i64(journalRecordSize))
	}
	return b[4], k, s, b[4] == recordState || b[4] == recordRemoved || b[4] == recordCut && len(b) > journalRecordSize
}

// journal is the checkpoint of all partitions of a store.
type journal struct {
	fs   vfs.FS
	path string

	syncMu sync.Mutex // one sync at a time: of two, one alone might be told of an error. It comes before mu

	mu        sync.Mutex // guards the following, held across the journal's own writes
	version   uint32     // of the file
	edition   uint32     // of the last file of version 2
	missing   bool       // there was no file
	lastCut   uint32     // the highest that was given
	file      vfs.File
	at        int64 // end of the file
	synced    int64 // of it, durable
	reserved  int64 // blocks are reserved up to here, at best
	live      map[journalKey]*partitionState
	removed   map[journalKey]uint32   // that the file which was read says so of, with their cut; nil once it is written on
	forgotten map[journalKey]struct{} // that it has, and that forget took out; nil likewise
	behind    map[journalKey]struct{} // whose record did not fit on the disk
	retry     int64                   // position at which a rewrite that did not fit is tried again
	failed    error
	buf       []byte
}

// openJournal reads the journal in dir, or starts one, and goes on in version 1.
func openJournal(fs vfs.FS, dir string) (j *journal, sum uint32, err error) {
	if j, sum, err = readJournal(fs, dir); err == nil {
		err = j.begin()
	}
	if err != nil {
		return nil, 0, err
	}
	return j, sum, nil
}

// readJournal reads the journal in dir, if there is one. sum is the checksum of
// the file as it was found, for the clean-shutdown marker.
func readJournal(fs vfs.FS, dir string) (j *journal, sum uint32, err error) {
	j = &journal{fs: fs, path: filepath.Join(dir, journalName), version: journalVersion,
		live: map[journalKey]*partitionState{}}
	b, err := vfs.ReadFile(fs, j.path, journalBytesMax)
	switch {
	case errors.Is(err, vfs.ErrNotExist):
		j.missing = true
	case err != nil:
		return nil, 0, fmt.Errorf("read journal: %w", err)
	default:
		if err := j.load(b); err != nil {
			return nil, 0, err
		}
		sum = crc32.Checksum(b, castagnoli)
	}
	return j, sum, nil
}

// begin makes the journal that was read one of version 1 to write on. On a disk
// that is full it stays as it is, version and all.
func (j *journal) begin() error {
	good, version := j.at, j.version
	j.version = journalVersion
	err := j.rewriteLocked()
	if isDiskEnd(err) && good > 0 {
		j.version = version
		if err = j.reuseLocked(good); err == nil {
			j.behind = j.forgotten // the file has them yet
		}
	}
	j.removed, j.forgotten = nil, nil
	return err
}

// mark is how much of the journal is durable, for the shared log.
func (j *journal) mark() journalMark {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.version == journalVersion {
		return journalMark{}
	}
	return journalMark{j.edition, j.synced}
}

// reaches says whether a journal that was read has all that it once had durably.
func (j *journal) reaches(m journalMark) bool {
	return !journalMark{j.edition, j.at}.before(m)
}

// forget takes a partition out of a journal that was read and is not written on
// yet.
func (j *journal) forget(k journalKey) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.live[k]; !ok {
		return
	}
	delete(j.live, k)
	if j.forgotten == nil {
		j.forgotten = map[journalKey]struct{}{}
	}
	j.forgotten[k] = struct{}{}
}

// owes says whether the journal could not say yet, for want of space, what became
// of a partition.
func (j *journal) owes(k journalKey) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.behind[k]
	return ok
}

// setVersion rewrites the journal in another version, durably. When that fails
// for want of space it is what it was.
func (j *journal) setVersion(version uint32) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil || j.version == version {
		return j.failed
	}
	old := j.version
	j.version = version
	err := j.rewriteLocked()
	switch {
	case err == nil:
		return nil
	case isDiskEnd(err):
		j.version = old
		return err
	}
	return j.failLocked(err)
}

// nextCut is a number that no cut of any log of the store ever had while the
// journal has this version. It counts once a record that has it is synced.
func (j *journal) nextCut() uint32 {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lastCut == math.MaxUint32 {
		j.failLocked(errCutsSpent)
		return j.lastCut
	}
	j.lastCut++
	return j.lastCut
}

// errCutsSpent is returned when four billion logs were cut and no clean close
// came between.
var errCutsSpent = errors.New("numbers of cuts are spent")

// reuseLocked goes on with the file as it is, when the disk has no space for
// another: the node must start, or nothing could be deleted. What follows the
// good records is cut, or it could come to follow new ones.
func (j *journal) reuseLocked(good int64) error {
	f, err := j.fs.OpenAppend(j.path)
	if err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	if err := errors.Join(f.Truncate(good), f.Sync()); err != nil {
		return errors.Join(fmt.Errorf("cut journal: %w", err), f.Close())
	}
	j.file, j.at, j.synced = f, good, good
	return nil
}

func (j *journal) load(b []byte) error {
	if len(b) < journalHeaderSize || string(b[:8]) != journalMagic {
		return fmt.Errorf("%s is not a journal; move it away to recover every partition by scanning, and leave %s, if there is one, where it is: %w", j.path, sharedName, ErrCorrupt)
	}
	v := binary.BigEndian.Uint32(b[8:])
	if v != journalVersion && v != journalVersionCut {
		return fmt.Errorf("%s has version %d, this build reads %d and %d: %w", j.path, v, journalVersion, journalVersionCut, ErrCorrupt)
	}
	j.at, j.version, j.removed = journalHeaderSize, v, map[journalKey]uint32{}
	j.edition = binary.BigEndian.Uint32(b[12:])
	size := recordSize(v)
	for b = b[journalHeaderSize:]; len(b) >= size; b = b[size:] {
		kind, k, s, ok := parseJournalRecord(b[:size])
		if !ok {
			return nil
		}
		j.at += int64(size)
		j.lastCut = max(j.lastCut, s.cut)
		switch kind {
		case recordRemoved:
			delete(j.live, k)
			j.removed[k] = s.cut
		case recordState:
			j.live[k] = &s
			delete(j.removed, k)
		}
	}
	return nil
}

func (j *journal) encodeLocked() []byte {
	b := make([]byte, journalHeaderSize, journalHeaderSize+(len(j.live)+1)*recordSize(j.version))
	copy(b, journalMagic)
	binary.BigEndian.PutUint32(b[8:], j.version)
	if j.version != journalVersion {
		binary.BigEndian.PutUint32(b[12:], j.edition)
		// The logs that had it may be gone, and what was written for them not.
		b = appendJournalRecord(b, j.version, recordCut, journalKey{}, &partitionState{cut: j.lastCut, hadEpoch: -1})
	}
	for k, s := range j.live {
		b = appendJournalRecord(b, j.version, recordState, k, s)
	}
	return b
}

// rewriteLocked replaces the file by its live records.
func (j *journal) rewriteLocked() error {
	was := j.edition
	if j.version != journalVersion {
		j.edition++
	}
	b := j.encodeLocked()
	if err := vfs.WriteFileAtomic(j.fs, j.path, b); err != nil {
		j.edition = was
		if errors.Is(err, vfs.ErrReplaced) {
			return fmt.Errorf("rewrite journal: %w", tooLate(err))
		}
		if isDiskEnd(err) {
			_ = j.fs.Remove(j.path + ".tmp") // it takes what little space there is
		}
		return fmt.Errorf("rewrite journal: %w", err)
	}
	f, err := j.fs.OpenAppend(j.path)
	if err != nil {
		return fmt.Errorf("open journal: %w", tooLate(err))
	}
	if j.file != nil {
		j.file.Close()
	}
	j.file, j.at, j.synced = f, int64(len(b)), int64(len(b))
	clear(j.behind)
	j.retry, j.reserved = 0, 0
	return nil
}

func (j *journal) state(k journalKey) (partitionState, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if s, ok := j.live[k]; ok {
		return *s, true
	}
	return partitionState{}, false
}

// put records a partition's state; sync makes it durable.
func (j *journal) put(k journalKey, s partitionState) error {
	return j.putLast(k, s, func(*partitionState) {})
}

// putLast is put, and has last change the state while nobody else changes the journal.
func (j *journal) putLast(k journalKey, s partitionState, last func(*partitionState)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	last(&s)
	at, ok := j.live[k]
	s.held = s.held || ok && at.held
	if ok && *at == s {
		return j.failed
	}
	if !ok {
		at = new(partitionState)
		j.live[k] = at
	}
	*at = s
	return j.appendLocked(recordState, k, at)
}

// change changes what is known of a partition, if the journal knows it.
func (j *journal) change(k journalKey, by func(*partitionState)) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := j.live[k]
	if !ok {
		return j.failed
	}
	was := *s
	if by(s); *s == was {
		return j.failed
	}
	return j.appendLocked(recordState, k, s)
}

func (j *journal) remove(k journalKey) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := j.live[k]
	if !ok {
		return j.failed
	}
	delete(j.live, k)
	return j.appendLocked(recordRemoved, k, s)
}

func (j *journal) appendLocked(kind byte, k journalKey, s *partitionState) error {
	if j.failed != nil {
		return j.failed
	}
	stale := (j.at-journalHeaderSize)/int64(recordSize(j.version)) - int64(len(j.live))
	if stale > 4*int64(len(j.live))+4096 && j.at >= j.retry {
		err := j.rewriteLocked()
		switch {
		case err == nil && kind == recordState:
			return nil
		case isDiskEnd(err):
			j.retry = j.at + 1<<20
		case err != nil:
			return j.failLocked(err)
		}
	}
	err := j.recordLocked(kind, k, s)
	if isDiskEnd(err) {
		// Nothing durable depends on it yet: sync, which everybody who needs
		// it durable calls, writes it or says why not.
		if j.behind == nil {
			j.behind = map[journalKey]struct{}{}
		}
		j.behind[k] = struct{}{}
		return nil
	}
	return err
}

// recordLocked writes one record. One that is cut short by the end of the disk
// is overwritten by the next.
func (j *journal) recordLocked(kind byte, k journalKey, s *partitionState) error {
	if j.at+int64(recordSize(j.version)) > j.reserved {
		// Space ahead, so that retention can be journaled on a full disk. A
		// disk that cannot reserve says so at the write.
		j.reserved = j.at + journalAhead
		_ = j.file.Preallocate(j.reserved)
	}
	j.buf = appendJournalRecord(j.buf[:0], j.version, kind, k, s)
	if _, err := j.file.WriteAt(j.buf, j.at); err != nil {
		err = fmt.Errorf("write journal: %w", err)
		if isDiskEnd(err) {
			return err
		}
		return j.failLocked(err)
	}
	j.at += int64(len(j.buf))
	delete(j.behind, k)
	return nil
}

// catchUpLocked writes what did not fit before.
func (j *journal) catchUpLocked() error {
	for k := range j.behind {
		kind, s := recordState, j.live[k]
		if s == nil {
			kind, s = recordRemoved, new(partitionState)
		}
		if err := j.recordLocked(kind, k, s); err != nil {
			return err
		}
	}
	return nil
}

// errNoSpace is returned when there is no room for what would be written.
var errNoSpace = fmt.Errorf("no room: %w", syscall.ENOSPC)

// isDiskEnd says that a write found no space. Unlike any other error its effect
// is known: a prefix of the bytes is there and nothing else changed.
func isDiskEnd(err error) bool { return errors.Is(err, syscall.ENOSPC) }

// tooLate is an error that came when the file had its name already: even one for
// want of space has changed everything, and who took it for a disk's end would go
// on in the file that has lost its name.
func tooLate(err error) error {
	if isDiskEnd(err) {
		return errors.New(err.Error())
	}
	return err
}

func (j *journal) failLocked(err error) error {
	if j.failed == nil {
		j.failed = err
	}
	return j.failed
}

// sync makes everything put so far durable. Meanwhile the journal takes more: a
// log's first append, under that log's locks, does not wait for the disk of all.
func (j *journal) sync() error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil {
		return j.failed
	}
	if err := j.catchUpLocked(); err != nil {
		return err
	}
	if j.synced == j.at {
		return nil
	}
	f, at := j.file, j.at
	j.mu.Unlock()
	err := f.Sync()
	j.mu.Lock()
	if j.file != f {
		return j.failed // what took its place was synced whole
	}
	if err != nil {
		return j.failLocked(fmt.Errorf("sync journal: %w", err))
	}
	j.synced = at
	return nil
}

// close rewrites the journal whole and returns its checksum.
func (j *journal) close() (sum uint32, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed == nil {
		if err := j.rewriteLocked(); err != nil {
			j.failLocked(err)
		}
		// Map order differs between encodings, so the sum is taken of the file.
		b, rerr := vfs.ReadFile(j.fs, j.path, journalBytesMax)
		if rerr != nil {
			j.failLocked(rerr)
		}
		sum = crc32.Checksum(b, castagnoli)
	}
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
	return sum, j.failed
}

// abandon closes the file and writes nothing more.
func (j *journal) abandon() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failLocked(ErrClosed)
	if j.file != nil {
		j.file.Close()
		j.file = nil
	}
}
