package audit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// checkSegments: whole batches, one after the other.
func (a *auditor) checkSegments(n *node, l *replicaLog) {
	next := int64(-1)
	for i := range l.segments {
		s := &l.segments[i]
		last := i == len(l.segments)-1
		if s.damage != "" {
			torn := last && !l.clean && (l.journal == nil || s.end() >= l.journal.recovery)
			if torn {
				a.report.note(Damaged, n.id(), l.name, "segment %d is torn at byte %d of %d: %s", s.base, s.stopAt, s.size, s.damage)
			} else {
				a.report.flaw(Damaged, n.id(), l.name, s.end(), "segment %d at byte %d of %d: %s", s.base, s.stopAt, s.size, s.damage)
			}
		}
		if next >= 0 && !l.compacted && s.base != next {
			a.report.flaw(Gap, n.id(), l.name, next, "segment %d follows one that ends at %d", s.base, next)
		}
		next = s.base
		for _, b := range s.batches {
			switch {
			case b.base < next || b.last < b.base:
				a.report.flaw(Gap, n.id(), l.name, b.base, "batch [%d, %d] goes back behind %d", b.base, b.last, next)
			case b.base > next && !l.compacted:
				a.report.flaw(Gap, n.id(), l.name, next, "nothing from %d to %d", next, b.base-1)
			}
			next = b.last + 1
		}
	}
}

// checkEpochs: epochs rise along the batches, and the chain is theirs.
func (a *auditor) checkEpochs(n *node, l *replicaLog) {
	for i := 1; i < len(l.chain); i++ {
		if l.chain[i].epoch <= l.chain[i-1].epoch || l.chain[i].start <= l.chain[i-1].start {
			a.report.flaw(Epochs, n.id(), l.name, l.chain[i].start, "the chain goes from epoch %d at %d to epoch %d at %d",
				l.chain[i-1].epoch, l.chain[i-1].start, l.chain[i].epoch, l.chain[i].start)
			return
		}
	}
	before := int32(-1)
	for i := range l.segments {
		for _, b := range l.segments[i].batches {
			if b.epoch < before {
				a.report.flaw(Epochs, n.id(), l.name, b.base, "epoch %d follows epoch %d", b.epoch, before)
				return
			}
			before = b.epoch
			if b.last < l.logStart() {
				continue // deleted: the chain begins at the log start
			}
			says, known := epochAt(l.chain, max(b.base, l.logStart()))
			if known && says == b.epoch || !known && !l.clean {
				continue
			}
			// After an unclean stop the chain may end before the batches do.
			if !l.clean && len(l.chain) > 0 && b.epoch > l.chain[len(l.chain)-1].epoch {
				continue
			}
			a.report.flaw(Epochs, n.id(), l.name, b.base, "the batch is of epoch %d, the chain %v says %d", b.epoch, l.chain, says)
			return
		}
	}
}

func epochAt(chain []epochStart, offset int64) (int32, bool) {
	for _, e := range slices.Backward(chain) {
		if e.start <= offset {
			return e.epoch, true
		}
	}
	return -1, false
}

// checkCheckpoint: the offsets in the journal are in their order.
func (a *auditor) checkCheckpoint(n *node, l *replicaLog) {
	j := l.journal
	if j == nil {
		a.report.flaw(Checkpoint, n.id(), l.name, -1, "the journal has no record of the partition")
		return
	}
	if j.logStart > l.end() && j.logStart > j.highWatermark {
		a.report.flaw(Checkpoint, n.id(), l.name, j.logStart, "the log start is %d, the high watermark %d, the end %d", j.logStart, j.highWatermark, l.end())
	}
	if end := l.end(); j.highWatermark > end {
		a.report.flaw(Checkpoint, n.id(), l.name, end, "the high watermark was %d, the log ends at %d", j.highWatermark, end)
	}
	if end := l.end(); j.recovery > end {
		a.report.flaw(Checkpoint, n.id(), l.name, end, "the log was synced to %d and ends at %d", j.recovery, end)
	}
	if len(l.segments) > 0 && l.segments[0].base > j.localStart {
		a.report.flaw(Gap, n.id(), l.name, j.localStart, "the local start is %d, the first segment begins at %d", j.localStart, l.segments[0].base)
	}
}

// checkIndexes: what an index says is where it says. A missing one, or a torn
// one of the last segment, is built again from the batches.
func (a *auditor) checkIndexes(n *node, l *replicaLog) {
	const entry = 24
	for i := range l.segments {
		s := &l.segments[i]
		b, err := os.ReadFile(filepath.Join(l.dir, fmt.Sprintf("%020d.index", s.base)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			a.report.flaw(Index, n.id(), l.name, s.base, "%v", err)
			continue
		}
		seed := crc32.Checksum(binary.BigEndian.AppendUint64(nil, uint64(s.base)), castagnoli)
		last := i == len(l.segments)-1
		at := 0
		for ; len(b) >= entry; b = b[entry:] {
			if crc32.Update(seed, castagnoli, b[:20]) != binary.BigEndian.Uint32(b[20:]) {
				break
			}
			relative, position := int64(binary.BigEndian.Uint32(b)), int64(binary.BigEndian.Uint32(b[4:]))
			if why := pointsWell(s, s.base+relative, position); why != "" {
				a.report.flaw(Index, n.id(), l.name, s.base+relative, "entry %d of the index of segment %d: %s", at, s.base, why)
				break
			}
			at++
		}
		if len(b) > 0 && !last {
			a.report.note(Index, n.id(), l.name, "the index of segment %d is damaged after %d entries and will be built again", s.base, at)
		}
	}
}

// pointsWell says what is wrong with an entry, which names a batch or, as a
// footer, the end of the file.
func pointsWell(s *segment, offset, position int64) string {
	if position == s.size {
		if offset != s.end() {
			return fmt.Sprintf("the footer says the segment ends at %d, it ends at %d", offset, s.end())
		}
		return ""
	}
	at, found := slices.BinarySearchFunc(s.batches, position, func(b span, p int64) int { return int(b.position - p) })
	if !found {
		return fmt.Sprintf("no batch begins at byte %d", position)
	}
	if s.batches[at].base != offset {
		return fmt.Sprintf("the batch at byte %d begins at offset %d, not %d", position, s.batches[at].base, offset)
	}
	return ""
}

// checkProducers: the newest snapshot's last batch of each producer is in the
// log, if the log reaches back that far.
func (a *auditor) checkProducers(n *node, l *replicaLog, entries []fs.DirEntry) error {
	newest := int64(-1)
	for _, e := range entries {
		if offset, ok := offsetName(e.Name(), ".snapshot"); ok && offset <= l.end() {
			newest = max(newest, offset)
		}
	}
	if newest < 0 || l.compacted {
		return nil
	}
	b, err := os.ReadFile(filepath.Join(l.dir, fmt.Sprintf("%020d.snapshot", newest)))
	if err != nil {
		return err
	}
	producers, err := readProducers(b)
	if err != nil {
		a.report.flaw(Producers, n.id(), l.name, newest, "snapshot %d: %v", newest, err)
		return nil
	}
	wrote := map[int64]map[int64]int32{} // producer → last offset of a batch → its last sequence
	first := l.end()
	for i := range l.segments {
		for _, s := range l.segments[i].batches {
			first = min(first, s.base)
			if s.pid >= 0 && s.last < newest {
				if wrote[s.pid] == nil {
					wrote[s.pid] = map[int64]int32{}
				}
				wrote[s.pid][s.last] = s.lastSeq
			}
		}
	}
	for pid, p := range producers {
		if p.lastOffset < first {
			continue
		}
		if seq, any := wrote[pid][p.lastOffset]; !any || seq != p.lastSequence {
			a.report.flaw(Producers, n.id(), l.name, p.lastOffset, "snapshot %d: producer %d wrote sequence %d at %d, which the log does not have", newest, pid, p.lastSequence, p.lastOffset)
		}
	}
	for pid, offsets := range wrote {
		if _, any := producers[pid]; !any {
			a.report.note(Producers, n.id(), l.name, "snapshot %d lacks producer %d, which wrote %d batches (it may have expired)", newest, pid, len(offsets))
		}
	}
	return nil
}

// producer is the newest batch of a producer in a snapshot.
type producer struct {
	lastSequence int32
	lastOffset   int64
}

// readProducers reads a snapshot (hot/FORMAT.md, Producer snapshot).
// Producers that wrote markers only are left out.
func readProducers(b []byte) (map[int64]producer, error) {
	if len(b) < 24 || string(b[:4]) != "VPSN" {
		return nil, errors.New("it is none")
	}
	if crc32.Checksum(b[12:], castagnoli) != binary.BigEndian.Uint32(b[8:]) {
		return nil, errors.New("wrong checksum")
	}
	head := 40
	if binary.BigEndian.Uint16(b[4:]) == 1 {
		head = 32
	}
	found := map[int64]producer{}
	rest := b[24:]
	for range binary.BigEndian.Uint32(b[20:]) {
		if len(rest) < head {
			return nil, errors.New("it ends within a producer")
		}
		pid, batches := int64(binary.BigEndian.Uint64(rest)), int(binary.BigEndian.Uint16(rest[10:]))
		rest = rest[head:]
		if len(rest) < 28*batches {
			return nil, errors.New("it ends within a producer's batches")
		}
		if batches > 0 {
			newest := rest[28*(batches-1):]
			found[pid] = producer{int32(binary.BigEndian.Uint32(newest[4:])), int64(binary.BigEndian.Uint64(newest[12:]))}
		}
		rest = rest[28*batches:]
	}
	return found, nil
}
