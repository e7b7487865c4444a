package tier

import (
	"bytes"
	"fmt"
	"io"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
)

// simBatch is one batch of a simulated log, real bytes included.
type simBatch struct {
	base, end int64
	epoch     int32
	ts        int64
	bytes     []byte
}

func makeBatch(base int64, epoch int32, ts int64, count int, value string) simBatch {
	b := batch.NewBuilder(batch.Options{BaseOffset: base, LeaderEpoch: epoch})
	for i := range count {
		if err := b.Append(ts, nil, fmt.Appendf(nil, "%s/%d", value, base+int64(i)), nil); err != nil {
			panic(err)
		}
	}
	return simBatch{base, base + int64(count), epoch, ts, bytes.Clone(b.Bytes())}
}

// simSegment is a segment of a simulated log and implements Segment.
type simSegment struct {
	base, end int64
	batches   []simBatch
	since     int64 // wall ms of the first append
}

func (s *simSegment) BaseOffset() int64 { return s.base }
func (s *simSegment) EndOffset() int64  { return s.end }

func (s *simSegment) SizeBytes() (n int64) {
	for _, b := range s.batches {
		n += int64(len(b.bytes))
	}
	return n
}

func (s *simSegment) MaxTimestamp() int64 {
	ts := int64(-1)
	for _, b := range s.batches {
		ts = max(ts, b.ts)
	}
	return ts
}

func (s *simSegment) Modified() int64 { return s.since }

func (s *simSegment) Open() (io.ReadCloser, error) {
	var buf bytes.Buffer
	for _, b := range s.batches {
		buf.Write(b.bytes)
	}
	return memReader{bytes.NewReader(buf.Bytes())}, nil
}

func (s *simSegment) AbortedTxns() ([]batch.AbortedTxn, error) { return nil, nil }
func (s *simSegment) Suspect() error                           { return nil }
func (s *simSegment) ProducerSnapshot() ([]byte, error)        { return []byte("snapshot"), nil }
func (s *simSegment) ProducersAt(int64) ([]byte, error)        { return []byte("snapshot"), nil }

func (s *simSegment) Lineage() lineage.Chain {
	var c lineage.Chain
	for _, b := range s.batches {
		if c.Latest() != b.epoch || len(c) == 0 {
			c = append(c, lineage.Entry{Epoch: b.epoch, Start: b.base})
		}
	}
	return c
}

// simLog is a broker's local log. It has its own segment boundaries.
type simLog struct {
	logStart         int64
	sealed           []*simSegment
	active           *simSegment
	hw, lso, durable int64
	remoteEnd        int64
	chain            lineage.Chain
}

func newSimLog(at int64) *simLog {
	return &simLog{logStart: at, active: &simSegment{base: at, end: at}, hw: at, lso: at, durable: at, remoteEnd: -1}
}

func (l *simLog) end() int64 { return l.active.end }

func (l *simLog) localStart() int64 {
	if len(l.sealed) > 0 {
		return max(l.sealed[0].base, l.logStart)
	}
	return max(l.active.base, l.logStart)
}

func (l *simLog) append(b simBatch, wall int64) {
	if b.base != l.end() {
		panic(fmt.Sprintf("append at %d to a log that ends at %d", b.base, l.end()))
	}
	if len(l.active.batches) == 0 {
		l.active.since = wall
	}
	l.active.batches = append(l.active.batches, b)
	l.active.end = b.end
	if b.epoch > l.chain.Latest() {
		l.chain = l.chain.Assign(b.epoch, b.base)
	}
}

func (l *simLog) epochAt(offset int64) (epoch int32, below bool) {
	if epoch = l.chain.EpochAt(offset); epoch >= 0 {
		return epoch, false
	}
	first, _ := l.chain.Earliest()
	return first.Epoch, true
}

func (l *simLog) roll() {
	if len(l.active.batches) == 0 {
		return
	}
	l.sealed = append(l.sealed, l.active)
	l.active = &simSegment{base: l.active.end, end: l.active.end}
}

func (l *simLog) advanceStart(off int64) {
	l.logStart = max(l.logStart, off)
	l.chain = l.chain.TruncateStart(min(l.logStart, l.end()))
	l.dropBelow(l.logStart)
}

// dropBelow removes whole sealed segments that end at or below off.
func (l *simLog) dropBelow(off int64) {
	for len(l.sealed) > 0 && l.sealed[0].end <= off {
		l.sealed = l.sealed[1:]
	}
}

// truncate cuts everything from off on; off is a batch boundary.
func (l *simLog) truncate(off int64) {
	segments := append(append([]*simSegment(nil), l.sealed...), l.active)
	l.chain = l.chain.TruncateEnd(off)
	l.sealed = nil
	l.active = &simSegment{base: off, end: off}
	for _, s := range segments {
		if s.base >= off && s.base > segments[0].base {
			break
		}
		cut := &simSegment{base: s.base, end: s.base, since: s.since}
		for _, b := range s.batches {
			if b.end <= off {
				cut.batches = append(cut.batches, b)
				cut.end = b.end
			}
		}
		if s.end <= off && s != segments[len(segments)-1] {
			l.sealed = append(l.sealed, cut)
			l.active = &simSegment{base: cut.end, end: cut.end}
			continue
		}
		l.active = cut
	}
	l.hw, l.lso, l.durable = min(l.hw, off), min(l.lso, off), min(l.durable, off)
}

func (l *simLog) offsets() LogOffsets {
	o := LogOffsets{
		LogStart: l.logStart, LocalStart: l.localStart(), Durable: l.durable, HighWatermark: l.hw, LastStable: l.lso,
		End: l.end(), ActiveBase: l.active.base, ActiveBytes: l.active.SizeBytes(), ActiveSince: -1,
		ActiveMaxTimestamp: l.active.MaxTimestamp(),
	}
	if o.ActiveBytes > 0 {
		o.ActiveSince = l.active.since
	}
	return o
}

func (l *simLog) sealedFrom(from, limit int64) []*simSegment {
	var out []*simSegment
	for _, s := range l.sealed {
		if s.end > from && s.end <= limit {
			out = append(out, s)
		}
	}
	return out
}

func (l *simLog) view(above, judge int64) logView {
	v := logView{LogOffsets: l.offsets(), judged: judgement{offset: judge, epoch: -1}}
	if judge >= 0 {
		v.judged.epoch, v.judged.below = l.epochAt(judge)
	}
	for _, s := range l.sealed {
		v.add(localSegment{base: s.base, end: s.end, bytes: s.SizeBytes(), maxTimestamp: s.MaxTimestamp(), modified: s.since}, above)
	}
	return v
}
