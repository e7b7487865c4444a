package hot

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"sort"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
	"github.com/varvelog/varve/meta/topic"
)

// openLog opens or makes the log of p.
func (s *Store) openLog(p topic.Partition, c LogConfig, dirName string, exists bool) (*Log, error) {
	if !exists {
		dirName = partitionDirName(p)
	}
	l := &Log{store: s, part: p, dir: filepath.Join(s.config.Dir, dirName), spare: -1}
	l.SetConfig(c)
	l.remoteEnd.Store(-1)
	l.unstable.Store(-1)
	l.snapAt.Store(-1)
	if err := s.Err(); err != nil {
		l.failure.Store(&err)
	}
	state, known := s.journal.state(keyOf(p))
	had, hadEpoch := int64(0), lineage.NoEpoch
	if !exists {
		if known { // the directory is gone, or set aside: what it held is missing
			had, hadEpoch = state.missing()
			l.logger().Error("the partition's directory is gone: the log begins anew, and does not count before it has what it had", "had", had, "empty", hadEpoch < 0)
		}
		if err := l.create(had, hadEpoch); err != nil {
			return nil, fmt.Errorf("make partition %s: %w", p, err)
		}
		known = false
		state, _ = s.journal.state(keyOf(p))
	}
	cut := state.cut
	segs, err := l.listSegments()
	if err != nil {
		return nil, fmt.Errorf("open partition %s: %w", p, err)
	}
	if !known {
		state = newPartitionState(0)
		if len(segs) > 0 {
			state = newPartitionState(segs[0].base)
			if c.Tiered {
				// The bucket may hold older data; whoever knows moves it up.
				state.logStart = 0
			}
		}
		state.highWatermark, state.hadEpoch = max(state.highWatermark, had), hadEpoch
		if state.cut = cut; exists {
			state.cut = s.journal.nextCut()
		}
		if _, unsure := s.unsure[keyOf(p)]; unsure && exists {
			state.hadEpoch = max(state.hadEpoch, 0)
		}
	}
	l.partial.Store(partialOf(state.lacks))
	l.doubtful.Store(state.doubtful)
	l.held = state.held
	if err := l.load(state, known && exists, segs); err != nil {
		return nil, fmt.Errorf("open partition %s: %w", p, err)
	}
	l.completeAtOpen()
	if !known && exists && l.Err() == nil {
		if err := l.holdFound(); err != nil {
			return nil, fmt.Errorf("open partition %s: %w", p, err)
		}
		// What is written for it into the shared log names its cut.
		if err := l.journal(l.saved); err != nil {
			return nil, fmt.Errorf("open partition %s: %w", p, err)
		}
	}
	return l, nil
}

func (l *Log) create(had int64, hadEpoch int32) error {
	if l.store.journal.owes(keyOf(l.part)) {
		// It may have another log of this id yet, with which this one would be mistaken.
		if err := l.store.journal.sync(); err != nil {
			return err
		}
	}
	if err := l.store.fs.MkdirAll(l.dir); err != nil {
		return err
	}
	if len(l.part.Topic) > dirTopicMax {
		if err := vfs.WriteFileAtomic(l.store.fs, filepath.Join(l.dir, metadataName), formatMetadata(l.part)); err != nil {
			return err
		}
	}
	l.store.newDir()
	st := newPartitionState(0)
	st.highWatermark, st.hadEpoch = had, hadEpoch
	// A log that is begun anew under the same id is another one.
	st.cut = l.store.journal.nextCut()
	return l.journal(st)
}

// listSegments reads the directory's names, tidies what a crash left behind
// and returns the segments by base offset. No file is opened.
func (l *Log) listSegments() ([]*segment, error) {
	entries, err := l.store.fs.ReadDir(l.dir)
	if err != nil {
		return nil, err
	}
	changed, err := l.finishSwaps(entries)
	if err != nil {
		return nil, err
	}
	if changed {
		if entries, err = l.store.fs.ReadDir(l.dir); err != nil {
			return nil, err
		}
	}
	var segs []*segment
	byBase := map[int64]*segment{}
	var txns []int64
	for _, e := range entries {
		base, ext, ok := parseOffsetName(e.Name())
		switch {
		case ok && ext == logExt:
			seg := &segment{log: l, base: base}
			seg.size.Store(-1)
			segs = append(segs, seg)
			byBase[base] = seg
		case ok && ext == txnExt:
			txns = append(txns, base)
		}
	}
	for _, base := range txns {
		if seg := byBase[base]; seg != nil {
			seg.set(segTxns)
		}
	}
	sort.Slice(segs, func(i, j int) bool { return segs[i].base < segs[j].base })
	return segs, nil
}

// load decides whether the tail must be scanned and publishes the log.
func (l *Log) load(st partitionState, known bool, segs []*segment) error {
	// Not those between there and the log start: they were not deleted yet,
	// and may hold what the recovery point does not sum up.
	segs, err := l.prune(segs, st.localStart)
	if err != nil {
		return err
	}
	if known && len(segs) > 0 && segs[0].base > max(st.recovery, st.localStart) {
		if segs, err = l.dropOrphans(segs); err != nil {
			return err
		}
		if len(segs) > 0 {
			return l.refuse(st, segs, fmt.Errorf("segment %d is missing", st.segment))
		}
	}
	if len(segs) == 0 {
		// Not when all below the recovery point was deleted: the name of the segment
		// that starts there was not durable yet, and so nothing in it is.
		if known && st.position > 0 && st.recovery > st.localStart {
			return l.refuse(st, segs, fmt.Errorf("segment %d is missing", st.segment))
		}
		seg := &segment{log: l, base: max(st.recovery, st.logStart, st.localStart)}
		st.recovery, st.segment, st.position = seg.base, seg.base, 0
		segs = append(segs, seg)
	}
	last := segs[len(segs)-1]
	for _, seg := range segs[:len(segs)-1] {
		seg.set(segSealed | segSynced | segTrusted)
	}
	same := known && last.base == st.segment
	if same {
		size, err := last.bytes()
		same = err == nil && size == int64(st.position)
		if err != nil && !errors.Is(err, vfs.ErrNotExist) {
			return err
		}
		if errors.Is(err, vfs.ErrNotExist) {
			same = st.position == 0
		}
	}
	l.segments.Store(&segs)
	if !same {
		return l.recover(st, known)
	}
	last.size.Store(int64(st.position))
	l.snapAt.Store(st.snapshot)
	l.spare = st.snapshot
	l.unstable.Store(st.firstUnstable)
	l.latest.Store(new(st.epoch)) // not a pointer into st, which it would keep
	if st.epochs <= 1 {
		l.setChain(lineage.Chain{}.Assign(st.epoch.Epoch, st.epoch.Start))
	}
	if floor := max(st.localStart, st.logStart); st.recovery < floor {
		return l.restartAt(st, floor)
	}
	l.publish(st, st.recovery, st.recovery)
	if err := l.endChain(); err != nil {
		return err
	}
	if st.firstUnstable >= 0 || st.snapshot == 0 {
		// A transaction was open or not committed then, or nobody knew: what
		// is stable now only the producers tell.
		return l.needProducers()
	}
	return nil
}

// restartAt makes the log empty at floor: what is left on disk ends below the
// start that was acknowledged, so all of it was deleted, and the offsets up to
// floor must never be given out again. Producers stay known: the answer to a
// batch that was acknowledged may be under way still, and it must not be
// appended again.
func (l *Log) restartAt(st partitionState, floor int64) error {
	if l.tail != nil {
		l.store.files.release(l.tail.h)
		l.tail = nil
	}
	for _, u := range l.takeUnsynced(nil) {
		l.store.files.release(u.h)
	}
	chain, err := l.loadChain()
	if err != nil {
		return err
	}
	l.logger().Warn("log is empty at its start: all that is on disk was deleted", "start", floor)
	l.doubtful.Store(false) // about what is left
	ps, err := l.replayOn(floor)
	if err != nil {
		return err
	}
	if !l.config.Load().Tiered || st.logStart >= floor {
		ps.closeOpen()
	}
	next := newPartitionState(floor)
	if len(ps.byID) > 0 {
		if err := vfs.WriteFileAtomic(l.store.fs, l.path(floor, snapshotExt), ps.encode(floor)); err != nil {
			return err
		}
		next.snapshot, next.firstUnstable = floor, ps.firstUnstable(floor)
	}
	l.partial.Store(0) // all of it is gone
	next.cut = st.cut
	next.logStart, next.highWatermark, next.hadEpoch = st.logStart, max(floor, st.highWatermark), st.hadEpoch
	chain = chain.TruncateEnd(floor)
	l.setChain(chain)
	if st.epoch.Epoch >= 0 && chain.Latest() != st.epoch.Epoch && st.epoch.Start <= floor {
		l.setChain(chain.Assign(st.epoch.Epoch, floor))
	}
	if st.highWatermark > floor {
		next.hadEpoch = max(st.hadEpoch, st.epoch.Epoch, 0)
	}
	next.epoch, next.epochs = *l.latest.Load(), uint32(len(*l.chain.Load()))
	l.snapAt.Store(next.snapshot)
	l.unstable.Store(next.firstUnstable)
	l.producers = ps
	if err := l.saveEpochs(*l.chain.Load(), false); err != nil {
		return err
	}
	// The journal goes first: a crash from here on comes back to here.
	if err := errors.Join(l.journal(next), l.store.journal.sync()); err != nil {
		return err
	}
	if err := l.replaceAll(floor, next.snapshot); err != nil {
		return err
	}
	l.spare = next.snapshot
	l.publish(next, floor, floor)
	return nil
}

// publish sets the offsets of a loaded log.
func (l *Log) publish(st partitionState, end, synced int64) {
	segs := l.list()
	local := max(segs[0].base, st.logStart)
	if !l.config.Load().Tiered {
		st.logStart = local
	}
	durable := min(synced, end)
	if l.store.config.Durability == Replicated {
		durable = end
	}
	l.offsets.flushed, l.offsets.cuts = min(synced, end), uint64(st.cut)
	last := segs[len(segs)-1]
	l.offsets.edgeBase.Store(last.base)
	l.offsets.edgePos.Store(max(last.size.Load(), 0))
	l.offsets.storeLocked(Offsets{LogStart: min(st.logStart, end), LocalStart: min(local, end), Durable: max(durable, min(local, end)), End: end})
	if st.highWatermark > end {
		st.hadEpoch = max(st.hadEpoch, st.epoch.Epoch, 0)
	}
	l.had.Store(st.highWatermark)
	l.hadEpoch.Store(st.hadEpoch)
	st.highWatermark = min(max(st.highWatermark, min(st.logStart, end)), end)
	l.hw.Store(st.highWatermark)
	l.sized.Store(-1)
	l.saved = st
}

// refuse opens the log offline: bytes that were durable are gone, and cutting
// the log here would lose them quietly.
func (l *Log) refuse(st partitionState, segs []*segment, cause error) error {
	if len(segs) == 0 {
		segs = []*segment{{log: l, base: st.recovery}}
	}
	l.segments.Store(&segs)
	l.latest.Store(new(st.epoch))
	l.publish(st, max(segs[len(segs)-1].base, st.logStart), segs[len(segs)-1].base)
	l.fail("recovery", &CorruptError{Path: l.dir, Position: int64(st.position), Err: cause})
	return nil
}

// recovery is the scan of a log's tail after a crash.
type recovery struct {
	log   *Log
	state partitionState
	ps    *producers
	chain lineage.Chain
	next  int64 // offset expected next, at least
	blind bool  // what lies before the next batch was passed, as damaged
}

// recover scans from the recovery point to the end, cuts the tail at the
// first bad batch and rebuilds what derives from the batches scanned.
func (l *Log) recover(st partitionState, known bool) error {
	segs := l.list()
	first, from, err := l.recoveryStart(st, known)
	if err != nil {
		return err
	}
	if first < 0 {
		return l.refuse(st, segs, fmt.Errorf("the recovery point %d is beyond what is there", st.recovery))
	}
	l.store.stats.Recovered.Add(1)
	start := segs[first].base
	if from > 0 {
		start = st.recovery
	}
	r := &recovery{log: l, state: st, next: start}
	if err := r.begin(start, known); err != nil {
		return err
	}
	for i := first; i < len(segs); i++ {
		more, err := r.segment(i, from, i == len(segs)-1)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		from = 0
	}
	return r.finish(start, known)
}

// recoveryStart is the segment and position to scan from; first is -1 when
// the journal names bytes that are not there.
func (l *Log) recoveryStart(st partitionState, known bool) (first int, from int64, err error) {
	segs := l.list()
	if !known {
		// No journal: trust footers, newest first.
		for i := len(segs) - 2; i >= 0; i-- {
			size, err := segs[i].bytes()
			if err != nil {
				return 0, 0, err
			}
			if e, ok := l.readIndexFile(segs[i], size).last(); ok && int64(e.pos) == size {
				return i + 1, 0, nil
			}
		}
		return 0, 0, nil
	}
	i := sort.Search(len(segs), func(i int) bool { return segs[i].base > st.recovery }) - 1
	if i < 0 {
		// The log was trimmed past its recovery point.
		return 0, 0, nil
	}
	if segs[i].base < st.segment {
		if st.position == 0 && segs[i].base < st.recovery {
			// The segment the journal names was empty and never got its name.
			return i, 0, nil
		}
		return -1, 0, nil
	}
	if segs[i].base > st.segment {
		return i, 0, nil
	}
	size, err := segs[i].bytes()
	if err != nil {
		return 0, 0, err
	}
	if size < int64(st.position) {
		return -1, 0, nil
	}
	return i, int64(st.position), nil
}

func (r *recovery) begin(start int64, known bool) error {
	l, st := r.log, r.state
	if l.latest.Load() == nil {
		l.latest.Store(&noEntry)
	}
	var c lineage.Chain
	err := error(ErrCorrupt)
	if known && st.epochs <= 1 {
		err = nil // the journal has it all, and the file may be of before a cut
	} else if known {
		c, err = l.readEpochs()
	}
	if errors.Is(err, vfs.ErrNotExist) || errors.Is(err, ErrCorrupt) {
		c, err = l.chainOn(start)
	}
	if err != nil {
		return err
	}
	r.chain = c.TruncateEnd(max(start, 1))
	if st.epoch.Epoch > r.chain.Latest() && st.epoch.Start <= start {
		r.chain = r.chain.Assign(st.epoch.Epoch, st.epoch.Start)
	}
	r.ps = newProducers()
	// The journal's word that there was no producer yet holds at its recovery
	// point only: the log may have been trimmed past it since.
	if !known || st.snapshot >= 0 || start != st.recovery {
		if r.ps, err = l.replayOn(start); err != nil {
			return err
		}
	}
	return nil
}

// unbar takes from a segment's quarantine what lies from where the scan begins
// on: the scan judges that itself, and cuts it if it is a torn tail.
func (r *recovery) unbar(seg *segment, from int64) {
	q := seg.bad.Load()
	if q == nil || q.ranges[len(q.ranges)-1].to == math.MaxInt64 {
		return
	}
	if q = q.below(from); q != nil {
		last := &q.ranges[len(q.ranges)-1]
		last.to, last.end = min(last.to, from), min(last.end, r.next)
	}
	seg.bad.Store(q)
}

// segment scans one segment and says whether the scan goes on to the next.
// Long: what a bad batch means depends on all that was found before it.
func (r *recovery) segment(i int, from int64, last bool) (more bool, err error) {
	l := r.log
	segs := l.list()
	seg := segs[i]
	footed, err := l.hasFooter(seg)
	if err != nil {
		return false, err
	}
	seg.clear(segSealed | segSynced | segTrusted)
	h, err := l.store.files.acquire(seg, true)
	if err != nil {
		return false, err
	}
	defer l.store.files.release(h)
	size, err := h.file.Size()
	if err != nil {
		return false, err
	}
	x := newIndexer(seg.base, l.config.Load().IndexIntervalBytes)
	x.ix = l.readIndexFile(seg, from)
	persisted := x.ix.len()
	if err := x.resume(h.file, from); errors.Is(err, errIndex) || isDamage(err) {
		// Below the recovery point: not a torn tail, at worst a bad index.
		if x, err = l.rescan(seg, h, from, r.next); err != nil {
			return false, err
		}
		persisted = 0
	} else if err != nil {
		return false, err
	}
	txns, err := r.txnsBelow(seg)
	if err != nil {
		return false, err
	}
	r.unbar(seg, from)
	end, bad := r.scan(seg, h.file, x, from, size, &txns)
	if bad != nil {
		if end, bad, err = r.passDamage(seg, h.file, x, end, size, bad, &txns); err != nil {
			return false, err
		}
	}
	if bad != nil && !isDamage(bad) && !errors.Is(bad, ErrNotContiguous) {
		return false, bad
	}
	if bad == nil && !last && !footed && r.next != segs[i+1].base {
		// Cut exactly between two batches: the next segment was not synced
		// either, or this one would have been before it counted.
		bad = errGap
	}
	l.store.stats.RecoveredBytes.Add(end - from)
	synced := footed
	if bad != nil && !last && !footed {
		if synced, err = r.syncedOnce(i); err != nil {
			return false, err
		}
		if synced && bad == errGap {
			if l.config.Load().Compact {
				// Compaction may have taken the last records of the segment.
				bad = nil
			} else {
				// Batches that were durable are gone, and no byte is left that
				// could be found damaged later.
				return false, l.refuse(r.state, segs, fmt.Errorf("segment %d ends at offset %d, %d was durable", seg.base, r.next, segs[i+1].base-1))
			}
		}
	}
	if bad != nil && !last && synced {
		// A footer says every byte was synced: this is damage, not a tail.
		seg.damaged(end, bad)
		l.passed(r.next)
		r.blind = true
		seg.size.Store(size)
		seg.set(segSealed | segSynced | segTrusted)
		r.next = segs[i+1].base
		return true, nil
	}
	return r.keep(i, last, bad, h, x, persisted, end, size, txns)
}

// passDamage goes on behind what is bad below the high watermark, as the
// journal has it: every record there was committed, so a bad batch is no torn
// tail. Neither is one anywhere when the kernel has not stopped since it was
// written: what the process wrote is all there, but for the end of its last write. It is quarantined, to be fetched again. What is bad beyond, or has
// nothing sound behind it, is returned as it is.
func (r *recovery) passDamage(seg *segment, f vfs.File, x *indexer, at, size int64, why error, txns *[]batch.AbortedTxn) (end int64, bad, err error) {
	var ranges []badRange
	end, bad = at, why
	for bad != nil && (isDamage(bad) || errors.Is(bad, ErrNotContiguous)) && (r.next < r.state.highWatermark || r.log.store.inThisRun(keyOf(r.log.part))) {
		to, first, err := resync(f, end, size, r.next, math.MaxInt64)
		if err != nil {
			return end, bad, err
		}
		if to == size {
			break
		}
		ranges = append(ranges, badRange{start: r.next, end: first, from: end, to: to})
		x.pos, x.next, r.next = to, first, first
		x.pending = r.log.config.Load().IndexIntervalBytes + 1
		r.blind = true
		end, bad = r.scan(seg, f, x, to, size, txns)
	}
	if len(ranges) > 0 {
		r.log.passed(ranges[0].start)
		e := &CorruptError{Path: seg.path(logExt), Position: ranges[0].from, Err: why}
		if q := seg.bad.Load(); q != nil { // of what lies below the recovery point
			ranges = append(slices.Clone(q.ranges), ranges...)
		}
		seg.bar(e, x, ranges)
	}
	return end, bad, nil
}

// errGap is a segment that ends, at a batch, before the next one starts.
var errGap = fmt.Errorf("segment ends before the next one starts: %w", ErrNotContiguous)

// syncedOnce says whether segment i was synced to its end: segments are synced
// in order and get a footer afterwards, so one behind it that has a footer
// proves it. The footer of segment i itself, which nobody syncs, may be gone.
func (r *recovery) syncedOnce(i int) (bool, error) {
	for _, seg := range r.log.list()[i+1:] {
		if footed, err := r.log.hasFooter(seg); footed || err != nil {
			return footed, err
		}
	}
	return false, nil
}

// keep settles a scanned segment: cut if torn, sealed if another follows.
func (r *recovery) keep(i int, last bool, bad error, h *handle, x *indexer, persisted int, end, size int64, txns []batch.AbortedTxn) (more bool, err error) {
	l := r.log
	segs := l.list()
	seg := segs[i]
	if bad != nil {
		l.logger().Warn("torn tail is cut", "segment", seg.base, "position", end, "bytes", size-end, "segments_dropped", len(segs)-1-i, "err", bad)
		l.store.stats.CutBytes.Add(size - end)
		// The index first, then from the end backwards, each step synced.
		if err := l.writeIndex(seg, x.ix, 0, x.ix.len()); err != nil {
			return false, err
		}
		persisted = x.ix.len()
		if err := l.removeSegments(segs[i+1:]); err != nil {
			return false, err
		}
		if err := errors.Join(h.file.Truncate(end), h.file.Sync()); err != nil {
			return false, err
		}
		segs = segs[: i+1 : i+1]
		l.segments.Store(&segs)
		last = true
	}
	if err := l.restoreTxns(seg, txns); err != nil {
		return false, err
	}
	seg.size.Store(end)
	seg.index.Store(x.ix)
	l.markUnsynced(seg, h)
	if last {
		l.store.files.repin(h)
		l.tail = &tail{seg: seg, h: h, ix: x, persisted: persisted, pos: end, reserved: end, created: l.store.now(), since: -1, jitter: newJitter(l.config.Load())}
		if end > 0 {
			l.tail.since = l.tail.created
		}
		return false, nil
	}
	s := &sealing{next: segs[i+1].base, persisted: persisted}
	if len(r.ps.byID) > 0 {
		r.ps.heard(l.store.now())
		s.snapshot = r.ps.encode(s.next)
	}
	x.footer()
	seg.meta.Store(&segmentMeta{maxTs: x.maxTs, maxTsOffset: relOffset(seg.base, x.relMax), modified: l.store.now()})
	seg.sealing.Store(s)
	seg.set(segSealed)
	r.next = max(r.next, segs[i+1].base)
	return true, nil
}

// scan reads batches from position from on; end is where the good part ends.
func (r *recovery) scan(seg *segment, f vfs.File, x *indexer, from, size int64, txns *[]batch.AbortedTxn) (end int64, bad error) {
	sc := newScanner(f, from, size)
	for {
		pos := sc.pos
		b, err := sc.next()
		if errors.Is(err, io.EOF) {
			return pos, nil
		}
		if err != nil {
			return pos, err
		}
		if b.BaseOffset() < r.next || b.LastOffsetDelta() < 0 || b.LeaderEpoch() < r.chain.Latest() || b.LastOffset()-seg.base >= noRelative {
			return pos, fmt.Errorf("batch of offset %d, epoch %d after offset %d, epoch %d: %w", b.BaseOffset(), b.LeaderEpoch(), r.next, r.chain.Latest(), ErrNotContiguous)
		}
		m, err := markerOf(b)
		if err != nil {
			return pos, err
		}
		x.add(b, pos)
		r.next = b.NextOffset()
		if r.blind && b.LeaderEpoch() > r.chain.Latest() {
			r.log.doubtful.Store(true) // it began somewhere in what is damaged
		}
		r.blind = false
		if b.LeaderEpoch() > r.chain.Latest() {
			r.chain = r.chain.Assign(b.LeaderEpoch(), b.BaseOffset())
		}
		if b.HasProducer() {
			if t, aborted := r.ps.apply(b, m, 0); aborted {
				*txns = append(*txns, t)
			}
		}
	}
}

// txnsBelow is what the transaction index has from before the scan.
func (r *recovery) txnsBelow(seg *segment) ([]batch.AbortedTxn, error) {
	txns, whole, err := seg.readTxns()
	if err == nil && !whole && r.next > seg.base {
		err = r.log.goOn(func() error {
			txns, err = seg.rebuildTxnsBy(r.log.replayPast, r.log.walkBarred, r.next)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	n := sort.Search(len(txns), func(i int) bool { return txns[i].LastOffset >= r.next })
	return txns[:n:n], nil
}

// restoreTxns makes the transaction index hold exactly txns.
func (l *Log) restoreTxns(seg *segment, txns []batch.AbortedTxn) error {
	seg.txnsAhead.Store(nil) // txns has them, as far as they stay
	if len(txns) == 0 {
		if !seg.is(segTxns) {
			return nil
		}
		seg.clear(segTxns)
		if err := l.store.fs.Remove(seg.path(txnExt)); err != nil && !errors.Is(err, vfs.ErrNotExist) {
			return err
		}
		return nil
	}
	l.wroteTxns(seg)
	want := encodeTxns(seg.base, txns)
	if b, err := vfs.ReadFile(l.store.fs, seg.path(txnExt), 1<<30); err == nil && string(b) == string(want) {
		return nil
	}
	// Atomically: entries from below the scan exist nowhere else.
	return vfs.WriteFileAtomic(l.store.fs, seg.path(txnExt), want)
}

func (l *Log) hasFooter(seg *segment) (bool, error) {
	size, err := seg.bytes()
	if err != nil {
		return false, err
	}
	e, ok := l.readIndexFile(seg, size).last()
	return ok && int64(e.pos) == size, nil
}

// finish publishes the recovered log. What was scanned is in the kernel but
// not known to be synced, so Durable starts at the recovery point.
func (r *recovery) finish(start int64, known bool) error {
	l, st := r.log, r.state
	if l.failure.Load() != nil && !errors.Is(l.Err(), ErrClosed) && l.tail == nil {
		return nil
	}
	end := r.next
	if l.tail != nil {
		end = max(r.next, l.tail.seg.base)
	}
	if st.epoch.Epoch > r.chain.Latest() && st.epoch.Start <= end {
		r.chain = r.chain.Assign(st.epoch.Epoch, st.epoch.Start)
	}
	l.setChain(r.chain)
	if floor := max(st.localStart, st.logStart); known && end < floor {
		return l.restartAt(st, floor)
	}
	if err := l.removeStray(end); err != nil {
		return err
	}
	r.ps.heard(l.store.now())
	l.producers = r.ps
	if had := st.highWatermark; had > end {
		l.logger().Error("the log's end is missing: it was committed beyond, and has to be fetched again before this replica counts",
			"end", end, "high_watermark", had)
	}
	l.snapAt.Store(st.snapshot)
	l.spare = st.snapshot
	synced := start
	if known {
		synced = max(start, min(st.recovery, end))
	}
	l.publish(st, end, synced)
	if err := l.endChain(); err != nil {
		return err
	}
	l.stateMu.Lock()
	l.publishUnstableLocked()
	l.stateMu.Unlock()
	l.queueMu.Lock()
	l.newNames = true
	l.queueMu.Unlock()
	l.changed.Store(true)
	l.store.syncer.push(l, true)
	return nil
}
