package audit

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/meta/topic"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// span is one batch: where it is and what it holds.
type span struct {
	base, last int64
	epoch      int32
	sum        uint32 // CRC-32C over all its bytes
	bytes      uint32
	position   int64
	pid        int64
	lastSeq    int32
}

// segment is one segment file.
type segment struct {
	base    int64
	size    int64
	batches []span
	damage  string // why reading stopped before the end; "" when it did not
	stopAt  int64  // position of the damage
}

// end is the offset after the last good batch.
func (s *segment) end() int64 {
	if n := len(s.batches); n > 0 {
		return s.batches[n-1].last + 1
	}
	return s.base
}

// journalState is a partition's checkpoint (hot/FORMAT.md, Journal).
type journalState struct {
	epoch, epochEntries  int32
	epochStart           int64
	logStart, localStart int64
	recovery             int64
	highWatermark        int64
}

// replicaLog is one partition on one disk.
type replicaLog struct {
	name      string // topic-partition
	dir       string
	segments  []segment
	chain     []epochStart
	journal   *journalState // nil: the journal has none
	compacted bool          // or may be: offsets may be missing
	clean     bool          // the store was closed in order
}

type epochStart struct {
	epoch int32
	start int64
}

// logStart is where the partition begins, wherever its first record is.
func (l *replicaLog) logStart() int64 {
	if l.journal != nil {
		return l.journal.logStart
	}
	return 0
}

// localStart is the first offset that the files owe. They may hold more: a
// segment goes as a whole.
func (l *replicaLog) localStart() int64 {
	if l.journal != nil {
		return max(l.journal.localStart, l.journal.logStart)
	}
	if len(l.segments) > 0 {
		return l.segments[0].base
	}
	return 0
}

func (l *replicaLog) end() int64 {
	if n := len(l.segments); n > 0 {
		return l.segments[n-1].end()
	}
	return l.localStart()
}

func (l *replicaLog) highWatermark() int64 {
	if l.journal == nil {
		return 0
	}
	return l.journal.highWatermark
}

// segmentBytesMax bounds what is read into memory at once. Kafka's own bound is
// 2 GiB.
const segmentBytesMax = 2 << 30

// readLogs reads everything in a node's log directory.
func (a *auditor) readLogs(ctx context.Context, n *node) error {
	root := filepath.Join(n.dir, "log")
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the metadata say what is missing
	}
	if err != nil {
		return err
	}
	states, err := readJournal(filepath.Join(root, "journal"))
	if err != nil {
		a.report.flaw(Checkpoint, n.id(), "", -1, "%v", err)
	}
	_, err = os.Stat(filepath.Join(root, "clean-shutdown"))
	clean := err == nil
	if !clean {
		a.report.note(Checkpoint, n.id(), "", "the last stop was not clean: tails may be torn")
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		key, name, ok := parseLogDir(e.Name())
		if !e.IsDir() || !ok {
			continue
		}
		l := &replicaLog{name: name, dir: filepath.Join(root, e.Name()), journal: states[key], clean: clean}
		if t := a.image.TopicByID(key.id); t != nil {
			l.name = fmt.Sprintf("%s-%d", t.Name, key.index)
			l.compacted = strings.Contains(t.Configs["cleanup.policy"], "compact")
		}
		if err := a.readLog(n, l); err != nil {
			return err
		}
		n.logs[key] = l
		a.report.Replicas++
	}
	return nil
}

// parseLogDir reads <topic>-<n>.<id>; what ends in -delete is no partition
// any more.
func parseLogDir(name string) (key logKey, partition string, ok bool) {
	partition, text, found := cutLast(name, ".")
	if !found || len(text) != 22 {
		return key, "", false
	}
	id, err := topic.ParseID(text)
	if err != nil {
		return key, "", false
	}
	_, number, _ := cutLast(partition, "-")
	index, err := strconv.ParseInt(number, 10, 32)
	return logKey{id, int32(index)}, partition, err == nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// readJournal reads the checkpoint of every partition: the last record of each.
func readJournal(path string) (map[logKey]*journalState, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	states, err := parseJournal(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return states, nil
}

func parseJournal(b []byte) (map[logKey]*journalState, error) {
	const header, recordMark = 16, 3
	if len(b) < header || string(b[:8]) != "VARVEJNL" {
		return nil, errors.New("no journal")
	}
	record := 120
	switch v := binary.BigEndian.Uint32(b[8:]); v {
	case 1:
	case 2: // a shared log is in use, which a store applies when it opens
		record = 128
	default:
		return nil, fmt.Errorf("journal of version %d, 1 and 2 are known", v)
	}
	states := map[logKey]*journalState{}
	for b = b[header:]; len(b) >= record; b = b[record:] {
		r := b[:record]
		if crc32.Checksum(r[4:], castagnoli) != binary.BigEndian.Uint32(r) {
			break // the torn end
		}
		i64 := func(at int) int64 { return int64(binary.BigEndian.Uint64(r[at:])) }
		i32 := func(at int) int32 { return int32(binary.BigEndian.Uint32(r[at:])) }
		var key logKey
		copy(key.id[:], r[8:24])
		key.index = i32(24)
		if r[4] == recordMark {
			continue
		}
		if r[4] == 2 {
			delete(states, key)
			continue
		}
		states[key] = &journalState{epoch: i32(28), epochStart: i64(32), logStart: i64(40), recovery: i64(48),
			highWatermark: i64(72), epochEntries: i32(104), localStart: i64(112)}
	}
	return states, nil
}

// readLog reads a partition's files and checks them against each other.
func (a *auditor) readLog(n *node, l *replicaLog) error {
	entries, err := os.ReadDir(l.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		base, ok := offsetName(e.Name(), ".log")
		if !ok {
			continue
		}
		s, err := readSegment(filepath.Join(l.dir, e.Name()), base)
		if err != nil {
			return err
		}
		l.segments = append(l.segments, s)
		a.report.Batches += int64(len(s.batches))
		a.report.Bytes += s.size
	}
	slices.SortFunc(l.segments, func(x, y segment) int { return cmp.Compare(x.base, y.base) })
	// A file wholly below the local start does not count: it was being deleted.
	if l.journal != nil {
		for len(l.segments) > 1 && l.segments[1].base <= l.journal.localStart {
			l.segments = l.segments[1:]
		}
	}
	if l.chain, err = readChain(filepath.Join(l.dir, "leader-epochs")); err != nil {
		a.report.flaw(Epochs, n.id(), l.name, -1, "%v", err)
	}
	if j := l.journal; j != nil && j.epoch >= 0 && (len(l.chain) == 0 || l.chain[len(l.chain)-1].epoch < j.epoch) {
		// Epochs in which nothing was written give way to the one that begins where they did.
		for len(l.chain) > 0 && l.chain[len(l.chain)-1].start >= j.epochStart {
			l.chain = l.chain[:len(l.chain)-1]
		}
		l.chain = append(l.chain, epochStart{j.epoch, j.epochStart})
	}
	a.checkSegments(n, l)
	a.checkEpochs(n, l)
	a.checkCheckpoint(n, l)
	a.checkIndexes(n, l)
	return a.checkProducers(n, l, entries)
}

func offsetName(name, ext string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, ext)
	if !ok || len(digits) != 20 {
		return 0, false
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	return offset, err == nil
}

// readSegment reads batches until the end or the first that is not whole.
func readSegment(path string, base int64) (segment, error) {
	info, err := os.Stat(path)
	if err != nil {
		return segment{}, err
	}
	if info.Size() > segmentBytesMax {
		return segment{}, fmt.Errorf("%s has %d bytes: segments have at most %d", path, info.Size(), int64(segmentBytesMax))
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return segment{}, err
	}
	s := segment{base: base, size: int64(len(b))}
	s.batches, s.stopAt, s.damage = spans(b)
	return s, nil
}

// spans lists the batches of a run of bytes, up to the first bad one.
func spans(b []byte) (list []span, at int64, damage string) {
	for len(b) > 0 {
		one, rest, err := batch.Next(b)
		if err == nil {
			err = one.VerifyCRC()
		}
		if err != nil {
			return list, at, err.Error()
		}
		s := span{base: one.BaseOffset(), last: one.LastOffset(), epoch: one.LeaderEpoch(), sum: crc32.Checksum(one, castagnoli),
			bytes: uint32(len(one)), position: at, pid: one.ProducerID(), lastSeq: one.LastSequence()}
		list, b, at = append(list, s), rest, at+int64(len(one))
	}
	return list, at, ""
}

// readChain reads a leader-epochs file; one that is absent is empty.
func readChain(path string) ([]epochStart, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseChain(b)
}

func parseChain(b []byte) ([]epochStart, error) {
	if len(b) < 16 || string(b[:4]) != "VEPC" || binary.BigEndian.Uint16(b[4:]) != 1 {
		return nil, errors.New("leader-epochs is no file of version 1")
	}
	if crc32.Checksum(b[12:], castagnoli) != binary.BigEndian.Uint32(b[8:]) {
		return nil, errors.New("leader-epochs has a wrong checksum")
	}
	count := int(binary.BigEndian.Uint32(b[12:]))
	if len(b) != 16+12*count {
		return nil, fmt.Errorf("leader-epochs says it has %d entries in %d bytes", count, len(b))
	}
	chain := make([]epochStart, count)
	for i := range chain {
		at := 16 + 12*i
		chain[i] = epochStart{int32(binary.BigEndian.Uint32(b[at:])), int64(binary.BigEndian.Uint64(b[at+4:]))}
	}
	return chain, nil
}
