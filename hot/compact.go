package hot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// Compacted is what a compaction run did.
type Compacted struct {
	Ran       bool  // false: there was not enough to do
	Segments  int   // read
	BytesIn   int64 // of them
	BytesOut  int64
	Records   int64 // removed
	CleanedTo int64 // the log is compact below
}

// Compact runs one compaction if cleanup.policy asks for it and there is
// enough to do: the dirty part is above min.cleanable.dirty.ratio, or has a
// record older than max.compaction.lag.ms. Only sealed segments below the last
// stable offset, and outside min.compaction.lag.ms, are touched. Readers go
// on with what they hold; offsets never change. Memory is bounded by the
// dedupe buffer: what does not fit is left for the next run.
func (l *Log) Compact(ctx context.Context, now int64) (Compacted, error) {
	l.compactMu.Lock()
	defer l.compactMu.Unlock()
	plan, err := l.planCompaction(now)
	if err != nil || plan == nil {
		return Compacted{}, err
	}
	r := Compacted{Ran: true}
	if err := l.mapKeys(ctx, plan); err != nil {
		return Compacted{}, err
	}
	if plan.keys.latest < plan.dirty {
		return Compacted{}, nil
	}
	r.CleanedTo = plan.keys.latest + 1
	for _, group := range plan.groups(l.config.Load()) {
		if err := l.compactGroup(ctx, plan, group, &r); err != nil {
			return r, err
		}
	}
	l.store.stats.Compacted.Add(1)
	return r, l.setCleanPoint(r.CleanedTo)
}

func (l *Log) setCleanPoint(to int64) error {
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	if err := l.Err(); err != nil {
		return err
	}
	l.saved.cleanPoint = min(to, l.offsets.end.Load())
	if err := l.journal(l.saved); err != nil {
		return l.fail("writing the journal", err)
	}
	return nil
}

// compaction is a run under way.
type compaction struct {
	segs   []*segment // cleanable, from the first on
	end    int64      // end offset of the last
	ends   []int64
	dirty  int64 // first dirty offset
	keys   *keyMap
	filter *compactFilter
	txns   []batch.AbortedTxn
}

// planCompaction is nil when there is nothing to do, or not enough.
func (l *Log) planCompaction(now int64) (*compaction, error) {
	c := l.config.Load()
	if !c.Compact {
		return nil, nil
	}
	if err := l.needProducers(); err != nil {
		return nil, err
	}
	l.maintMu.Lock()
	defer l.maintMu.Unlock()
	if err := l.Err(); err != nil {
		return nil, err
	}
	p := &compaction{dirty: max(l.saved.cleanPoint, l.offsets.localStart.Load())}
	segs := l.list()
	stable := min(l.LastStable(), l.saved.recovery)
	var clean, dirty int64
	late := false
	for i, seg := range segs[:len(segs)-1] {
		end := segs[i+1].base
		if end > stable || !seg.is(segTrusted) || seg.bad.Load() != nil {
			break
		}
		size, err := seg.bytes()
		if err != nil {
			return nil, err
		}
		if end > p.dirty {
			m, err := seg.footer()
			if err != nil {
				return nil, err
			}
			if c.MinCompactionLagMillis > 0 && m.maxTs > now-c.MinCompactionLagMillis {
				break
			}
			first, err := l.firstTimestamp(seg)
			if err != nil {
				return nil, err
			}
			late = late || first > 0 && c.MaxCompactionLagMillis < math.MaxInt64 && first < now-c.MaxCompactionLagMillis
			dirty += size
		} else {
			clean += size
		}
		p.segs, p.ends, p.end = append(p.segs, seg), append(p.ends, end), end
	}
	ratio := float64(dirty) / float64(max(clean+dirty, 1))
	if dirty == 0 || !late && ratio <= c.MinCleanableDirtyRatio {
		return nil, nil
	}
	for _, seg := range p.segs {
		txns, err := seg.txns()
		if err != nil {
			return nil, err
		}
		p.txns = append(p.txns, txns...)
	}
	p.filter = &compactFilter{now: now, retention: c.DeleteRetentionMillis, last: l.lastRecords(p.end)}
	return p, nil
}

func (l *Log) firstTimestamp(seg *segment) (int64, error) {
	size, err := seg.bytes()
	if err != nil || size == 0 {
		return -1, err
	}
	h, err := l.store.files.acquire(seg, false)
	if err != nil {
		return -1, err
	}
	defer l.store.files.release(h)
	w := newWalker(h.file, size)
	defer w.close()
	b, err := w.header(0)
	if err != nil {
		return -1, l.damageOrError(seg, 0, err)
	}
	return b.MaxTimestamp(), nil
}

func (l *Log) damageOrError(seg *segment, pos int64, err error) error {
	if isDamage(err) && !seg.is(segGone) {
		return seg.damaged(pos, err)
	}
	return err
}

// lastRecords is the last batch of each live producer below end. Batches
// beyond do not count: power loss may take them.
func (l *Log) lastRecords(end int64) map[int64]lastRecord {
	l.stateMu.Lock()
	defer l.stateMu.Unlock()
	last := make(map[int64]lastRecord, len(l.producers.byID))
	for id, p := range l.producers.byID {
		r := lastRecord{offset: -1, epoch: p.epoch}
		for i := range p.kept {
			if b := p.ring[(p.head+i)%batchesKept]; b.lastOffset < end {
				r.offset = b.lastOffset
			}
		}
		last[id] = r
	}
	return last
}

// mapKeys reads the dirty part and remembers the last offset of each key, as
// far as the buffer reaches.
func (l *Log) mapKeys(ctx context.Context, p *compaction) error {
	p.keys = newKeyMap(l.config.Load().CompactionBufferBytes)
	txns := newTxnTracker(p.txns)
	errFull := errors.New("dedupe buffer is full")
	for i, seg := range p.segs {
		if p.ends[i] <= p.dirty {
			continue
		}
		err := l.eachIn(ctx, seg, func(b batch.Batch) error {
			if b.Control() {
				if _, _, err := txns.control(b); err != nil {
					return err
				}
			} else if !txns.data(b) && b.LastOffset() >= p.dirty {
				for r, err := range b.Records(batch.Limits{}) {
					if err != nil {
						return err
					}
					if r.Key != nil && r.Offset >= p.dirty && !p.keys.put(r.Key, r.Offset) {
						if p.keys.latest >= p.dirty {
							return errFull
						}
						l.overfill(p.keys, b)
						p.keys.put(r.Key, r.Offset)
					}
				}
			}
			if b.LastOffset() >= p.dirty {
				p.keys.latest = max(p.keys.latest, b.LastOffset())
			}
			return nil
		})
		if errors.Is(err, errFull) {
			return nil
		}
		if err != nil {
			return err
		}
		p.keys.latest = max(p.keys.latest, p.ends[i]-1)
	}
	return nil
}

// overfill lets the buffer grow beyond its bound for the first dirty batch: a
// run that cannot cover that does nothing, and so would every later one. The
// batch bounds the excess.
func (l *Log) overfill(m *keyMap, b batch.Batch) {
	if !m.over {
		m.over = true
		l.store.stats.CompactOver.Add(1)
		l.logger().Warn("one batch has more keys than the dedupe buffer holds, compaction takes more memory for it",
			"offset", b.BaseOffset(), "records", b.Count(), "buffer", l.config.Load().CompactionBufferBytes)
	}
	m.limit *= 2
}

// eachIn reads a segment, checking every batch.
func (l *Log) eachIn(ctx context.Context, seg *segment, fn func(batch.Batch) error) error {
	size, err := seg.bytes()
	if err != nil || size == 0 {
		return err
	}
	h, err := l.store.files.acquire(seg, false)
	if err != nil {
		return err
	}
	defer l.store.files.release(h)
	sc := newScanner(h.file, 0, size)
	for {
		pos := sc.pos
		b, err := sc.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return l.damageOrError(seg, pos, err)
		}
		if err := fn(b); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// segmentGroup is neighbours that become one segment.
type segmentGroup struct{ from, to int }

// groups joins neighbours as long as they fit one segment, by the size they
// have now.
func (p *compaction) groups(c *LogConfig) []segmentGroup {
	var out []segmentGroup
	for i := 0; i < len(p.segs); {
		if p.segs[i].base > p.keys.latest {
			break
		}
		g := segmentGroup{i, i + 1}
		total := p.segs[i].size.Load()
		for g.to < len(p.segs) && p.segs[g.to].base <= p.keys.latest {
			size := p.segs[g.to].size.Load()
			entries := (total + size) / max(c.IndexIntervalBytes, 1)
			if total+size > c.SegmentBytes || entries*indexEntrySize > c.SegmentIndexBytes ||
				p.ends[g.to]-p.segs[i].base > math.MaxInt32 {
				break
			}
			total += size
			g.to++
		}
		out = append(out, g)
		i = g.to
	}
	return out
}

// compactGroup writes the compacted form of a group beside it and swaps it in.
func (l *Log) compactGroup(ctx context.Context, p *compaction, g segmentGroup, r *Compacted) error {
	if p.filter.txns == nil {
		p.filter.keys, p.filter.txns = p.keys, newTxnTracker(p.txns)
	}
	base := p.segs[g.from].base
	path := l.path(base, logExt+cleanedExt)
	f, err := l.store.fs.Create(path)
	if err != nil {
		return fmt.Errorf("compact: %w", err)
	}
	w := &cleanedWriter{file: f, ix: newIndexer(base, l.config.Load().IndexIntervalBytes)}
	removed := p.filter.removed
	for _, seg := range p.segs[g.from:g.to] {
		size, err := seg.bytes()
		if err == nil {
			r.Segments++
			r.BytesIn += size
			err = l.eachIn(ctx, seg, func(b batch.Batch) error { return w.add(p.filter, b) })
		}
		if err != nil {
			f.Close()
			return errors.Join(err, l.store.fs.Remove(path))
		}
	}
	if err := errors.Join(w.flush(), f.Sync(), f.Close()); isDiskEnd(err) {
		return errors.Join(fmt.Errorf("compact: %w: %w", ErrDiskFull, err), l.store.fs.Remove(path))
	} else if err != nil {
		return l.fail("writing a compacted segment", err)
	}
	w.ix.footer()
	r.BytesOut += w.at
	r.Records += p.filter.removed - removed
	return l.swapIn(p, g, path, w)
}

// cleanedWriter writes the batches that stay.
type cleanedWriter struct {
	file vfs.File
	ix   *indexer
	buf  []byte
	at   int64 // end of what was written and buffered
	txns []batch.AbortedTxn
}

func (w *cleanedWriter) add(f *compactFilter, b batch.Batch) error {
	out, kept, err := f.apply(b)
	if err != nil {
		return err
	}
	if kept != nil {
		w.txns = append(w.txns, *kept)
	}
	if out == nil {
		return nil
	}
	w.ix.add(out, w.at)
	w.at += int64(len(out))
	w.buf = append(w.buf, out...)
	if len(w.buf) >= scanBytes {
		return w.flush()
	}
	return nil
}

func (w *cleanedWriter) flush() error {
	_, err := w.file.WriteAt(w.buf, w.at-int64(len(w.buf)))
	w.buf = w.buf[:0]
	return err
}
