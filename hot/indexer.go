package hot

import (
	"errors"
	"fmt"
	"io"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// indexer builds a segment's index from its batches, in order.
type indexer struct {
	ix       *segIndex
	interval int64
	pos      int64 // end of the last batch added
	pending  int64 // bytes since the last entry
	maxTs    int64 // running, data batches only
	relMax   uint32
	firstTs  int64 // max timestamp of the first batch, -1 none yet
	next     int64 // offset after the last batch
}

func newIndexer(base, interval int64) *indexer {
	return &indexer{ix: newSegIndex(base), interval: interval, maxTs: -1, relMax: noRelative, firstTs: -1, next: base}
}

// add takes the batch at pos; its header suffices.
func (x *indexer) add(b batch.Batch, pos int64) {
	if pos == 0 {
		x.firstTs = b.MaxTimestamp()
	}
	if x.pending > x.interval {
		x.ix.add(indexEntry{uint32(b.BaseOffset() - x.ix.base), uint32(pos), x.maxTs, x.relMax})
		x.pending = 0
	}
	size := int64(b.SizeBytes())
	x.pending += size
	x.pos = pos + size
	x.next = b.NextOffset()
	if ts := b.MaxTimestamp(); !b.Control() && ts > x.maxTs {
		x.maxTs, x.relMax = ts, uint32(b.BaseOffset()-x.ix.base)
	}
}

// footer ends the index of a segment.
func (x *indexer) footer() {
	if last, ok := x.ix.last(); ok && int64(last.pos) == x.pos {
		return
	}
	x.ix.add(indexEntry{uint32(x.next - x.ix.base), uint32(x.pos), x.maxTs, x.relMax})
}

// resume continues an index whose entries up to position are given: it walks
// the headers from the last of them.
func (x *indexer) resume(f vfs.File, position int64) error {
	w := newWalker(f, position)
	defer w.close()
	if position > 0 {
		h, err := w.header(0)
		if err != nil {
			return err
		}
		x.firstTs = h.MaxTimestamp()
	}
	var pos int64
	if e, ok := x.ix.last(); ok {
		pos, x.maxTs, x.relMax = int64(e.pos), e.maxTs, e.relMax
		x.next = x.ix.base + int64(e.rel)
	}
	x.pos = pos
	for first := true; pos < position; first = false {
		h, err := w.header(pos)
		if err != nil {
			return err
		}
		if first && pos > 0 && h.BaseOffset() != x.next {
			return errIndex
		}
		x.pending += int64(h.SizeBytes())
		x.next = h.NextOffset()
		if ts := h.MaxTimestamp(); !h.Control() && ts > x.maxTs {
			x.maxTs, x.relMax = ts, uint32(h.BaseOffset()-x.ix.base)
		}
		pos += int64(h.SizeBytes())
		x.pos = pos
	}
	return nil
}

// scanner reads whole batches of a log file in order and checks each.
type scanner struct {
	file vfs.File
	pos  int64 // of the next batch
	end  int64
	buf  []byte
	have []byte // unread part of buf
}

const scanBytes = 1 << 20

func newScanner(f vfs.File, from, end int64) *scanner {
	return &scanner{file: f, pos: from, end: end}
}

// next is the next batch, valid until the following call; io.EOF at the end.
// On any error pos is where the good part ends.
func (s *scanner) next() (batch.Batch, error) {
	if s.pos >= s.end {
		return nil, io.EOF
	}
	b, rest, err := batch.Next(s.have)
	if errors.Is(err, batch.ErrShort) {
		if err := s.fill(); err != nil {
			return nil, err
		}
		b, rest, err = batch.Next(s.have)
	}
	if err != nil {
		return nil, err
	}
	if err := b.VerifyCRC(); err != nil {
		return nil, err
	}
	s.have = rest
	s.pos += int64(len(b))
	return b, nil
}

// checkLong checks the batch at pos, which is longer than the buffer, without room
// for all of it.
func (s *scanner) checkLong(h batch.Batch) error {
	piece := pieces.Get().(*[]byte)
	defer pieces.Put(piece)
	err := checkLong(s.file, h, s.pos, *piece)
	switch {
	case errors.Is(err, io.EOF):
		return batch.ErrShort
	case err != nil && !isDamage(err):
		return fmt.Errorf("read at %d: %w", s.pos, err)
	}
	return err
}

func (s *scanner) fill() error {
	want := int64(scanBytes)
	if h, err := batch.PeekHeader(s.have); err == nil {
		size := int64(h.SizeBytes())
		if s.pos+size > s.end {
			return batch.ErrShort
		}
		if size > scanBytes && size > int64(cap(s.buf)) {
			// Perhaps it is the length that is damaged: room is made for a batch that is whole only.
			if err := s.checkLong(h); err != nil {
				return err
			}
		}
		want = max(want, size)
	}
	want = min(want, s.end-s.pos)
	if int64(cap(s.buf)) < want {
		s.buf = make([]byte, want)
	}
	n, err := s.file.ReadAt(s.buf[:want], s.pos)
	s.have = s.buf[:n]
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read at %d: %w", s.pos, err)
	}
	if h, err := batch.PeekHeader(s.have); err == nil && h.SizeBytes() > n && s.pos+int64(h.SizeBytes()) <= s.end && int64(n) == want && want < int64(h.SizeBytes()) {
		return s.fill()
	}
	return nil
}
