package hot

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"

	"github.com/varvelog/varve/hot/batch"
)

// Origin says who appends.
type Origin int8

const (
	// Client batches get offsets assigned and their sequence checked.
	Client Origin = iota
	// Coordinator batches come from this node: internal topics and markers.
	Coordinator
	// Follower batches carry the leader's offsets and epochs.
	Follower
)

// AppendOptions goes with an append.
type AppendOptions struct {
	// LeaderEpoch is stamped into the batches, unless a follower appends.
	LeaderEpoch int32
	Origin      Origin
	// Now is wall clock in milliseconds.
	Now int64
	// TxnVerified says that the coordinator knows of the ongoing transaction;
	// without it a transactional batch needs one open here already.
	TxnVerified bool
	// TxnGuard, when not 0, is what Log.TxnGuard gave before the coordinator was
	// asked: an end of the transaction that has come meanwhile makes the answer
	// worthless.
	TxnGuard int32
	// MustJudge refuses a batch of a producer, with ErrUnjudged, when producers
	// were derived without batches that are damaged: it may be a repeat of one.
	MustJudge bool
	// Excused, with MustJudge, is one more than Log.Finds was when it turned out
	// that nobody has what is damaged: as long as nothing more is found damaged,
	// producers are judged without it. 0 excuses nothing.
	Excused uint64
	// TxnV2 applies the rules of transaction.version 2 (KIP-890).
	TxnV2 bool
}

// Appended is the result of an append.
type Appended struct {
	BaseOffset    int64
	LastOffset    int64
	LogAppendTime int64 // -1 on CreateTime topics; of a duplicate its max timestamp
	LogStart      int64
	Duplicate     bool // the batch was in the log already; offsets are its own
	Rolled        bool // this append sealed a segment
	skips         bool // tail.skips
}

// Append writes whole batches, already validated, at the end of the log. b is
// the request's memory: offsets and leader epoch are patched into it, and it
// is not kept. When it returns the bytes are in the kernel; Offsets().Durable
// says when they are on disk.
func (l *Log) Append(b []byte, o AppendOptions) (Appended, error) {
	first, _, err := batch.Next(b)
	if err != nil {
		return Appended{}, err
	}
	if o.Origin == Follower {
		if err := verifyAll(b); err != nil {
			return Appended{}, err
		}
	}
	// Outside the lock, since it may look at the disk. An append that fails
	// keeps its claim until the next look, a second at most.
	if l.Err() == nil && !l.store.roomFor(int64(len(b))) {
		return Appended{}, l.store.diskFullError()
	}
	l.appendMu.Lock()
	a, err := l.appendLocked(b, first, &o)
	l.letGoLocked()
	l.appendMu.Unlock()
	if a.skips && err == nil {
		err = l.passSkip()
	}
	return a, err
}

// passSkip moves the recovery point into the active segment, because that starts further on than the log ended, or follows one
// that does: recovery takes such a gap for records that were lost, and cuts what follows.
func (l *Log) passSkip() error {
	if err := l.store.checkpoint([]*Log{l}, false); err != nil {
		return err
	}
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if l.tail != nil && l.saved.recovery >= l.tail.seg.base {
		l.tail.skips = false
	}
	return nil // when it is not there the next append tries again
}

func verifyAll(b []byte) error {
	for len(b) > 0 {
		one, rest, err := batch.Next(b)
		if err == nil {
			err = one.VerifyCRC()
		}
		if err != nil {
			return err
		}
		b = rest
	}
	return nil
}

func (l *Log) appendLocked(b []byte, first batch.Batch, o *AppendOptions) (Appended, error) {
	if err := l.Err(); err != nil {
		return Appended{}, err
	}
	if first.HasProducer() {
		if err := l.needProducersLocked(); err != nil {
			return Appended{}, err
		}
		if o.MustJudge && l.Incomplete() && o.Excused != l.finds.Load()+1 { // loading them may have found the damage
			return Appended{}, ErrUnjudged
		}
	}
	if o.Origin != Follower {
		repeat, isRepeat, err := l.checkProducers(b, o)
		if err != nil {
			return Appended{}, err
		}
		if isRepeat {
			return l.repeated(repeat), nil
		}
	}
	if err := l.needTailLocked(); err != nil {
		return Appended{}, err
	}
	end := l.offsets.end.Load()
	a := Appended{BaseOffset: end, LogAppendTime: -1}
	next, epoch, err := l.stamp(b, end, o)
	if err != nil {
		return Appended{}, err
	}
	if err := l.holdLocked(b, epoch); err != nil {
		return Appended{}, err
	}
	a.BaseOffset, a.LastOffset = first.BaseOffset(), next-1
	if first.LogAppendTime() {
		a.LogAppendTime = first.MaxTimestamp()
	}
	for len(b) > 0 {
		seg := l.tail.seg
		n, err := l.groupLocked(b, o)
		if err != nil {
			return Appended{}, err
		}
		a.Rolled = a.Rolled || l.tail.seg != seg
		if err := l.writeLocked(b[:n], o); err != nil {
			return Appended{}, err
		}
		b = b[n:]
	}
	a.LogStart, a.skips = l.offsets.logStart.Load(), l.tail.skips
	return a, nil
}

// repeated answers for a batch that is in the log already (KIP-98).
func (l *Log) repeated(r producerBatch) Appended {
	return Appended{
		BaseOffset: r.lastOffset - int64(r.delta), LastOffset: r.lastOffset, LogAppendTime: r.timestamp,
		LogStart: l.offsets.logStart.Load(), Duplicate: true,
	}
}

// checkProducers checks every batch before any byte is written.
func (l *Log) checkProducers(b []byte, o *AppendOptions) (repeat producerBatch, isRepeat bool, err error) {
	for len(b) > 0 {
		one, rest, err := batch.Next(b)
		if err != nil {
			return repeat, false, err
		}
		b = rest
		if !one.HasProducer() {
			continue
		}
		m, err := markerOf(one)
		if err != nil {
			return repeat, false, err
		}
		l.stateMu.Lock()
		repeat, isRepeat, err = l.producers.check(one, m, o)
		l.stateMu.Unlock()
		if err != nil || isRepeat {
			return repeat, isRepeat, err
		}
	}
	return repeat, false, nil
}

// stamp assigns offsets and epoch in place, or checks a follower's. It returns the offset after the batches, and the last one's
// epoch.
func (l *Log) stamp(b []byte, end int64, o *AppendOptions) (next int64, epoch int32, err error) {
	next, epoch = end, l.latest.Load().Epoch
	for len(b) > 0 {
		one, rest, err := batch.Next(b)
		if err != nil {
			return next, epoch, err
		}
		if o.Origin != Follower {
			one.SetBaseOffset(next)
			one.SetLeaderEpoch(o.LeaderEpoch)
		}
		if one.BaseOffset() < next || one.LastOffsetDelta() < 0 || one.LastOffset() < next {
			return next, epoch, fmt.Errorf("batch of offsets %d to %d after %d: %w", one.BaseOffset(), one.LastOffset(), next, ErrNotContiguous)
		}
		if one.LeaderEpoch() < epoch {
			return next, epoch, fmt.Errorf("batch of leader epoch %d after %d: %w", one.LeaderEpoch(), epoch, ErrNotContiguous)
		}
		epoch = one.LeaderEpoch()
		next = one.NextOffset()
		b = rest
	}
	return next, epoch, nil
}

// groupLocked is how many bytes of b go into the active segment as one write;
// it rolls first when the rules say so.
func (l *Log) groupLocked(b []byte, o *AppendOptions) (int, error) {
	c := l.config.Load()
	first, rest, err := batch.Next(b)
	if err != nil {
		return 0, err
	}
	size := int64(first.SizeBytes())
	if size > c.SegmentBytes {
		if o.Origin != Follower {
			return 0, fmt.Errorf("%d bytes, segment.bytes is %d: %w", size, c.SegmentBytes, ErrRecordsTooLarge)
		}
		if size > segmentBytesLimit {
			return 0, fmt.Errorf("%d bytes: %w", size, ErrRecordsTooLarge)
		}
	}
	if l.tail.mustRoll(c, first, size, o.Now) {
		// The new segment starts where the log ends, even when a follower's
		// batch leaves a gap: recovery takes a gap between segments for a tail
		// that was lost.
		base := l.offsets.end.Load()
		if l.tail.pos == 0 || first.LastOffset()-base > math.MaxInt32 {
			base = first.BaseOffset()
		}
		skips := base != l.offsets.end.Load()
		if err := l.rollLocked(base, o.Now); err != nil {
			return 0, err
		}
		l.tail.skips = l.tail.skips || skips
	}
	room := c.SegmentBytes - l.tail.pos
	for len(rest) > 0 {
		one, more, err := batch.Next(rest)
		if err != nil {
			return 0, err
		}
		if size+int64(one.SizeBytes()) > room || one.LastOffset()-l.tail.seg.base > math.MaxInt32 {
			break
		}
		size += int64(one.SizeBytes())
		rest = more
	}
	return int(size), nil
}

// mustRoll has Kafka's rules (LogSegment.shouldRoll): size, time on the
// records' own clock, a full index, offsets beyond 32 bits.
func (t *tail) mustRoll(c *LogConfig, b batch.Batch, size, now int64) bool {
	if t.pos == 0 {
		return b.LastOffset()-t.seg.base > math.MaxInt32
	}
	waited := now - t.created
	if first := t.ix.firstTs; first >= 0 {
		waited = b.MaxTimestamp() - first
	}
	return t.pos > c.SegmentBytes-size ||
		waited > c.segmentMillis()-t.jitter ||
		int64(t.ix.ix.len()+2)*indexEntrySize > c.SegmentIndexBytes ||
		b.LastOffset()-t.seg.base > math.MaxInt32
}

// writeLocked appends batches that all go into the active segment.
func (l *Log) writeLocked(b []byte, o *AppendOptions) error {
	t := l.tail
	l.reserveLocked(int64(len(b)))
	n, err := t.h.file.WriteAt(b, t.pos)
	if err != nil {
		return l.writeFailedLocked(n, len(b), err)
	}
	if t.pos == 0 {
		t.since, t.created = o.Now, o.Now
	}
	t.clean = false
	next := l.recordLocked(b, o.Now)
	t.pos += int64(len(b))
	t.seg.size.Store(t.pos)
	l.markUnsynced(t.seg, t.h)
	l.fresh.noted(l.offsets.end.Load(), o.Now, l.store.config.VerifyInterval.Milliseconds())
	follow := l.store.config.Durability == Replicated
	l.offsets.setEdge(edge{next, t.seg.base, t.pos}, follow)
	if l.sized.Load() >= 0 {
		l.sized.Add(int64(len(b)))
	}
	l.store.appended(l, int64(len(b)))
	return nil
}

// recordLocked derives index, producer state and epochs from batches that
// were just written at the tail, and returns the offset after them.
func (l *Log) recordLocked(b []byte, now int64) (next int64) {
	t := l.tail
	pos := t.pos
	for len(b) > 0 {
		one, rest, err := batch.Next(b)
		if err != nil {
			panic("hot: batch changed during append: " + err.Error())
		}
		t.ix.add(one, pos)
		if one.LeaderEpoch() != l.latest.Load().Epoch {
			if err := l.assignEpochLocked(one.LeaderEpoch(), one.BaseOffset()); err != nil {
				l.fail("assigning a leader epoch", err)
			}
		}
		if one.HasProducer() {
			l.applyLocked(one, now)
		}
		pos += int64(one.SizeBytes())
		next = one.NextOffset()
		b = rest
	}
	return next
}

// applyLocked brings the producer state up to a batch of the tail.
func (l *Log) applyLocked(b batch.Batch, now int64) {
	m, err := markerOf(b)
	if err != nil {
		return
	}
	l.stateMu.Lock()
	if l.producers == nil {
		l.stateMu.Unlock()
		return
	}
	txn, aborted := l.producers.apply(b, m, now)
	if m != nil || b.Transactional() {
		l.publishUnstableLocked()
	}
	l.stateMu.Unlock()
	if !aborted {
		return
	}
	if err := l.appendTxn(l.tail, txn); err != nil {
		l.fail("writing the transaction index", err)
	}
}

// writeFailedLocked handles the first failed write. A full disk is the one
// error whose effect is known: nothing but a prefix of the new bytes can be
// there, and it is cut off again.
func (l *Log) writeFailedLocked(n, want int, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		if terr := l.tail.h.file.Truncate(l.tail.pos); terr == nil {
			l.store.refuse(int64(want))
			return fmt.Errorf("write stopped after %d bytes: %w: %w", n, ErrDiskFull, err)
		}
	}
	return l.fail("write", err)
}

// reserveLocked keeps blocks reserved ahead of the end, in growing steps, so
// that small partitions do not hold much.
func (l *Log) reserveLocked(need int64) {
	t := l.tail
	limit := l.store.config.PreallocateBytes
	if limit <= 0 || t.pos+need <= t.reserved {
		return
	}
	step := min(max(t.pos, 64<<10), limit)
	to := min(t.pos+need+step, max(l.config.Load().SegmentBytes, t.pos+need))
	if l.store.spare() < 2*(to-t.pos) {
		t.reserved = t.pos + need // nothing to spare for later
		return
	}
	// A disk that cannot reserve will say so again at the write.
	if err := t.h.file.Preallocate(to); err == nil {
		l.store.space.unseen.Add(to - max(t.reserved, t.pos))
		t.reserved = to
	} else {
		t.reserved = t.pos + need
	}
}

// newJitter is how much earlier than segment.ms a segment rolls.
func newJitter(c *LogConfig) int64 {
	j := min(c.SegmentJitterMillis, c.SegmentMillis)
	if j <= 0 {
		return 0
	}
	return rand.Int64N(j)
}

// markerOf parses the marker of a control batch; nil for data and for control
// batches of other kinds.
func markerOf(b batch.Batch) (*marker, error) {
	if !b.Control() {
		return nil, nil
	}
	m, ok, err := b.EndTxnMarker()
	if err != nil || !ok {
		return nil, err
	}
	return &marker{commit: m.Type == batch.Commit, coordinatorEpoch: m.CoordinatorEpoch}, nil
}
