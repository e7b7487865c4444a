package tier

import (
	"errors"
	"fmt"
	"io"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
)

// errNotLocal is returned when the local log has not got a whole range, in batches
// that begin and end where it does.
var errNotLocal = errors.New("tier: the local log has not got the whole range")

// span is a range of offsets of the local log as one segment, whatever the segments
// are that it lies in: replicas roll at different offsets.
type span struct {
	base, end int64
	parts     []spanPart
	size      int64
	lineage   lineage.Chain
}

// spanPart is a run of bytes of a sealed segment.
type spanPart struct {
	Segment
	at, n int64
}

var _ Segment = (*span)(nil)

// spanOf cuts [base, end) out of sealed segments, in order.
func spanOf(segments []Segment, base, end int64) (*span, error) {
	s := &span{base: base, end: end}
	next := base
	for _, seg := range segments {
		if seg.EndOffset() <= base || seg.BaseOffset() >= end {
			continue
		}
		if seg.BaseOffset() > next {
			break
		}
		from, to, err := cutOf(seg, base, end)
		if err != nil {
			return nil, fmt.Errorf("cut [%d, %d) out of the segment at %d: %w", base, end, seg.BaseOffset(), err)
		}
		s.parts = append(s.parts, spanPart{seg, from, to - from})
		s.size += to - from
		s.lineage = appendChain(s.lineage, seg.Lineage())
		next = seg.EndOffset()
	}
	if next < end {
		return nil, fmt.Errorf("of [%d, %d), the local log has [%d, %d): %w", base, end, base, next, errNotLocal)
	}
	s.lineage = s.lineage.Slice(base, end)
	return s, nil
}

// cutOf is the run of bytes of a segment's batches within [base, end).
func cutOf(seg Segment, base, end int64) (from, to int64, err error) {
	from, to = 0, seg.SizeBytes()
	if seg.BaseOffset() >= base && seg.EndOffset() <= end {
		return from, to, nil
	}
	src, err := seg.Open()
	if err != nil {
		return 0, 0, err
	}
	defer src.Close()
	at, ok := src.(io.ReaderAt)
	if !ok {
		return 0, 0, fmt.Errorf("%T reads only once: %w", src, ErrUnsupported)
	}
	if seg.BaseOffset() < base {
		if from, err = cutAt(at, seg, 0, base); err != nil {
			return 0, 0, err
		}
	}
	if seg.EndOffset() > end {
		to, err = cutAt(at, seg, from, end)
	}
	return from, to, err
}

// cutAt is the position of the batch that begins with an offset.
func cutAt(src io.ReaderAt, seg Segment, pos, offset int64) (int64, error) {
	head := make([]byte, batch.HeaderSize)
	for pos < seg.SizeBytes() {
		if _, err := src.ReadAt(head, pos); err != nil {
			return 0, err
		}
		h, err := batch.PeekHeader(head)
		if err != nil {
			return 0, &CorruptError{Key: fmt.Sprintf("segment %020d", seg.BaseOffset()), Offset: pos, Reason: err.Error()}
		}
		switch {
		case h.BaseOffset() == offset:
			return pos, nil
		case h.BaseOffset() > offset || h.NextOffset() > offset:
			return 0, fmt.Errorf("no batch begins at offset %d: %w", offset, errNotLocal)
		}
		pos += int64(h.SizeBytes())
	}
	return 0, fmt.Errorf("no batch begins at offset %d: %w", offset, errNotLocal)
}

func (s *span) BaseOffset() int64      { return s.base }
func (s *span) EndOffset() int64       { return s.end }
func (s *span) SizeBytes() int64       { return s.size }
func (s *span) MaxTimestamp() int64    { return -1 }
func (s *span) Modified() int64        { return 0 }
func (s *span) Lineage() lineage.Chain { return s.lineage }

// AbortedTxns lists those whose markers lie in the range.
func (s *span) AbortedTxns() (list []batch.AbortedTxn, err error) {
	for _, p := range s.parts {
		all, err := p.Segment.AbortedTxns()
		if err != nil {
			return nil, err
		}
		for _, t := range all {
			if t.LastOffset >= s.base && t.LastOffset < s.end {
				list = append(list, t)
			}
		}
	}
	return list, nil
}

func (s *span) ProducerSnapshot() ([]byte, error) { return s.ProducersAt(s.end) }

func (s *span) ProducersAt(offset int64) ([]byte, error) {
	return s.parts[len(s.parts)-1].Segment.ProducersAt(offset)
}

func (s *span) Suspect() (err error) {
	for _, p := range s.parts {
		err = errors.Join(err, p.Segment.Suspect())
	}
	return err
}

// Open opens all of the segments that the range lies in.
func (s *span) Open() (io.ReadCloser, error) {
	r := &spanReader{}
	for _, p := range s.parts {
		src, err := p.Segment.Open()
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.sources = append(r.sources, src)
		at, ok := src.(io.ReaderAt)
		if !ok {
			return nil, errors.Join(fmt.Errorf("%T reads only once: %w", src, ErrUnsupported), r.Close())
		}
		r.parts = append(r.parts, io.NewSectionReader(at, p.at, p.n))
	}
	r.SectionReader = io.NewSectionReader(partsReader(r.parts), 0, s.size)
	return r, nil
}

// spanReader reads a range from start to end, or anywhere in it.
type spanReader struct {
	*io.SectionReader
	parts   []*io.SectionReader
	sources []io.Closer
}

func (r *spanReader) Close() (err error) {
	for _, c := range r.sources {
		err = errors.Join(err, c.Close())
	}
	return err
}

// partsReader reads several runs as one.
type partsReader []*io.SectionReader

func (parts partsReader) ReadAt(p []byte, off int64) (n int, err error) {
	for _, part := range parts {
		if off >= part.Size() {
			off -= part.Size()
			continue
		}
		got, err := part.ReadAt(p[n:min(len(p), n+int(min(part.Size()-off, int64(len(p)-n))))], off)
		n += got
		if n == len(p) {
			return n, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		if off += int64(got); off < part.Size() {
			return n, io.ErrUnexpectedEOF // the segment is shorter than it said
		}
		off = 0
	}
	return n, io.EOF
}
