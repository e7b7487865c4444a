package hot

import (
	"errors"
	"fmt"
	"io"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/hot/vfs"
)

// SegmentInfo describes a segment for listings.
type SegmentInfo struct {
	BaseOffset   int64
	EndOffset    int64 // exclusive
	SizeBytes    int64
	MaxTimestamp int64 // of data batches, -1 none
	Sealed       bool
	Damaged      bool
	Modified     int64 // ms
}

// ends is the end offset of segment i.
func (l *Log) endOf(segs []*segment, i int) int64 {
	if i+1 < len(segs) {
		return segs[i+1].base
	}
	return l.offsets.end.Load()
}

// Segments lists the local segments. It looks into indexes.
func (l *Log) Segments() ([]SegmentInfo, error) {
	segs := l.list()
	out := make([]SegmentInfo, 0, len(segs))
	for i, seg := range segs {
		size, err := seg.bytes()
		if errors.Is(err, ErrSegmentGone) {
			continue
		}
		if err != nil {
			return nil, err
		}
		info := SegmentInfo{BaseOffset: seg.base, EndOffset: l.endOf(segs, i), SizeBytes: size, MaxTimestamp: -1,
			Sealed: i+1 < len(segs), Damaged: seg.bad.Load() != nil}
		if !info.Sealed {
			a := l.Active()
			info.MaxTimestamp, info.Modified = a.MaxTimestamp, a.Since
		} else if m, err := seg.footer(); err == nil {
			info.MaxTimestamp, info.Modified = m.maxTs, m.modified
		} else if !errors.Is(err, ErrSegmentGone) && !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		out = append(out, info)
	}
	return out, nil
}

// footer is what the index of a sealed segment ends with.
func (s *segment) footer() (*segmentMeta, error) {
	if m := s.meta.Load(); m != nil {
		return m, nil
	}
	l := s.log
	size, err := s.bytes()
	if err != nil {
		return nil, err
	}
	info, err := l.store.fs.Stat(s.path(logExt))
	if err != nil {
		if s.is(segGone) {
			return nil, ErrSegmentGone
		}
		return nil, err
	}
	e, ok := l.readFooter(s, size)
	if !ok {
		ix, err := s.lookup()
		if err != nil {
			return nil, err
		}
		e, _ = ix.last()
	}
	m := &segmentMeta{maxTs: e.maxTs, maxTsOffset: relOffset(s.base, e.relMax), modified: info.ModTime().UnixMilli()}
	if size == 0 {
		m.maxTs, m.maxTsOffset = -1, -1
	}
	s.meta.Store(m)
	return m, nil
}

// readFooter reads the last entry of the index file alone.
func (l *Log) readFooter(s *segment, size int64) (indexEntry, bool) {
	f, err := l.store.fs.Open(s.path(indexExt))
	if err != nil {
		return indexEntry{}, false
	}
	defer f.Close()
	n, err := f.Size()
	if err != nil || n < indexEntrySize || n%indexEntrySize != 0 {
		return indexEntry{}, false
	}
	var b [indexEntrySize]byte
	if _, err := f.ReadAt(b[:], n-indexEntrySize); err != nil && !errors.Is(err, io.EOF) {
		return indexEntry{}, false
	}
	e, ok := parseIndexEntry(b[:], indexSeed(s.base))
	return e, ok && int64(e.pos) == size
}

// Active describes the active segment.
type Active struct {
	BaseOffset   int64
	SizeBytes    int64
	Since        int64 // when its first record was appended, wall clock ms; -1 empty
	MaxTimestamp int64 // of data batches, -1 none
}

// Active is the active segment as it is now. It opens no file: for a log that
// was not touched since it was opened, Since and MaxTimestamp are -1.
func (l *Log) Active() Active {
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	seg := l.active()
	a := Active{BaseOffset: seg.base, SizeBytes: max(seg.size.Load(), 0), Since: -1, MaxTimestamp: -1}
	if t := l.tail; t != nil {
		a.Since, a.MaxTimestamp = t.since, t.ix.maxTs
	}
	return a
}

// SizeBytes is the bytes of all local segments. The first call asks the file
// system for the sizes of sealed segments.
func (l *Log) SizeBytes() (int64, error) {
	var total int64
	for _, seg := range l.list() {
		n, err := seg.bytes()
		if errors.Is(err, ErrSegmentGone) {
			continue
		}
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// Segment is a sealed segment, for offloading. It may be deleted locally at
// any time; then Open returns ErrSegmentGone.
type Segment struct {
	log   *Log
	seg   *segment
	end   int64
	size  int64
	maxTs int64

	modified int64
}

// Sealed lists whole sealed segments from the one that holds from on, as long
// as they end at or below limit, in order. Only segments that are synced, with
// index and snapshot written, count; so an append that rolled shows here a
// moment later (Store.OnSealed tells). A damaged segment ends the list.
func (l *Log) Sealed(from, limit int64) ([]*Segment, error) {
	segs := l.list()
	var out []*Segment
	for i := 0; i+1 < len(segs); i++ {
		seg := segs[i]
		end := segs[i+1].base
		if end <= from {
			continue
		}
		if end > limit || !seg.is(segTrusted) || seg.bad.Load() != nil {
			break
		}
		if lacks := l.partial.Load(); lacks > 0 && end > lacks-1 {
			break // its snapshot may lack producers, and would be what others begin with
		}
		size, err := seg.bytes()
		if err != nil {
			return out, err
		}
		m, err := seg.footer()
		if errors.Is(err, ErrCorrupt) {
			break
		}
		if err != nil {
			return out, err
		}
		out = append(out, &Segment{log: l, seg: seg, end: end, size: size, maxTs: m.maxTs, modified: m.modified})
	}
	return out, nil
}

// BaseOffset is the first offset the segment stands for.
func (s *Segment) BaseOffset() int64 { return s.seg.base }

// EndOffset is the next segment's base offset.
func (s *Segment) EndOffset() int64 { return s.end }

// SizeBytes is the size of its batches.
func (s *Segment) SizeBytes() int64 { return s.size }

// MaxTimestamp is the largest timestamp of its data batches, -1 none.
func (s *Segment) MaxTimestamp() int64 { return s.maxTs }

// Modified is when its file was last written, ms.
func (s *Segment) Modified() int64 { return s.modified }

// Open opens the batches for reading. The reader keeps the file readable even
// if the segment is deleted meanwhile.
func (s *Segment) Open() (io.ReadCloser, error) {
	h, err := s.log.store.files.acquire(s.seg, false)
	if err != nil {
		return nil, err
	}
	return &segmentReader{Slice{files: s.log.store.files, h: h, seg: s.seg, n: s.size, start: s.seg.base, next: s.end}, 0}, nil
}

// Suspect is called by who found that what Open gave is not what was written:
// the log looks for itself.
func (s *Segment) Suspect() error {
	if s.seg.bad.Load() != nil {
		return nil
	}
	_, err := s.log.CheckAt(s.seg.base)
	return err
}

// segmentReader reads a segment from start to end.
type segmentReader struct {
	slice Slice
	at    int64
}

// Read reads on.
func (r *segmentReader) Read(p []byte) (int, error) {
	n, err := r.slice.ReadAt(p, r.at)
	r.at += int64(n)
	if errors.Is(err, io.EOF) && r.at < r.slice.n {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// ReadAt reads at a position.
func (r *segmentReader) ReadAt(p []byte, off int64) (int, error) { return r.slice.ReadAt(p, off) }

// Close releases the file.
func (r *segmentReader) Close() error {
	r.slice.Release()
	return nil
}

// AbortedTxns is the segment's transaction index.
func (s *Segment) AbortedTxns() ([]batch.AbortedTxn, error) { return s.seg.txns() }

// ProducerSnapshot is the producer state at EndOffset, in the format of the
// snapshot file; without producers it is a snapshot of none.
func (s *Segment) ProducerSnapshot() ([]byte, error) {
	l := s.log
	b, err := vfs.ReadFile(l.store.fs, l.path(s.end, snapshotExt), snapshotBytesMax)
	if err == nil {
		if _, at, derr := decodeSnapshot(b); derr == nil && at == s.end {
			return b, nil
		}
	} else if !errors.Is(err, vfs.ErrNotExist) {
		return nil, err
	}
	l.appendMu.Lock()
	defer l.appendMu.Unlock()
	if err != nil && l.snapAt.Load() < 0 {
		// No producer at the last checkpoint, so none before it that is still
		// remembered.
		return newProducers().encode(s.end), nil
	}
	ps, err := l.replayProducers(s.end)
	if err != nil {
		return nil, err
	}
	return ps.encode(s.end), nil
}

// ProducersAt is ProducerSnapshot for an offset within the segment. It holds nothing up:
// what changes meanwhile is an error.
func (s *Segment) ProducersAt(offset int64) ([]byte, error) {
	l := s.log
	switch {
	case offset == s.end:
		return s.ProducerSnapshot()
	case offset <= s.seg.base || offset > s.end:
		return nil, fmt.Errorf("producers at offset %d of the segment [%d, %d): %w", offset, s.seg.base, s.end, ErrOffsetOutOfRange)
	case l.Incomplete():
		return nil, errLacks
	}
	b, err := (&Segment{log: l, end: s.seg.base}).ProducerSnapshot()
	if err != nil {
		return nil, err
	}
	ps, _, err := decodeSnapshot(b)
	if err != nil {
		return nil, err
	}
	err = l.walkSegment(s.seg, s.seg.base, offset, func(b batch.Batch) error {
		if !b.HasProducer() {
			return nil
		}
		m, err := markerOf(b)
		if err == nil {
			ps.apply(b, m, 0)
		}
		return err
	})
	if err == nil && l.Incomplete() {
		err = errLacks
	}
	if err != nil {
		return nil, err
	}
	ps.heard(l.store.now())
	return ps.encode(offset), nil
}

// Lineage is the part of the leader-epoch chain that covers the segment.
func (s *Segment) Lineage() (lineage.Chain, error) {
	c, err := s.log.loadChain()
	if err != nil {
		return nil, err
	}
	return c.Slice(s.seg.base, s.end), nil
}
