package hot

import (
	"errors"
	"hash/crc32"
	"io"
	"sync/atomic"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// Checking what is read costs a pass over its bytes, which the way from page
// cache to socket does not make. So what was checked not long ago, when it was
// appended or read, is not checked again: a disk that loses bits is noticed by
// who reads later, and a client checks for itself what it gets before that.

// freshness says which offsets were appended not long ago.
type freshness struct {
	from     atomic.Int64 // first of them
	markedAt atomic.Int64 // when next was the end of the log, ms
	next     int64        // the next from; guarded by Log.appendMu
}

// noted takes an append at offset. It needs appendMu.
func (f *freshness) noted(offset, now, interval int64) {
	switch at := f.markedAt.Load(); {
	case at == 0 || !within(now-at, 2*interval):
		f.from.Store(offset)
	case now-at <= interval:
		return
	default:
		f.from.Store(f.next)
	}
	f.next = offset
	f.markedAt.Store(now)
}

// covers says whether offset and what follows are fresh.
func (f *freshness) covers(offset, now, interval int64) bool {
	at := f.markedAt.Load()
	return at > 0 && within(now-at, 2*interval) && offset >= f.from.Load()
}

// within says whether something is at most limit old. What is of a time to come
// is of a clock that was set back since, and may be of any age.
func within(age, limit int64) bool { return age >= 0 && age <= limit }

// proof says that the first to bytes of a segment were sound at a time, ms.
type proof struct{ to, at int64 }

// Verify checks every batch of the slice: checksum, offsets, leader epoch. What
// was checked within the store's VerifyInterval counts as checked. Damage is
// quarantined; then the error is an ErrCorrupt, and reading again from the same
// offset gives what is sound before the damage, if anything is.
func (s *Slice) Verify() error {
	if s.n == 0 || s.h == nil {
		return nil
	}
	l := s.seg.log
	interval := l.store.config.VerifyInterval.Milliseconds()
	if interval < 0 {
		return nil
	}
	now := l.store.now()
	if interval > 0 && l.fresh.covers(s.start, now, interval) {
		return nil
	}
	p := s.seg.proof.Load()
	valid := p != nil && within(now-p.at, interval-1)
	if valid && s.pos+s.n <= p.to {
		return nil
	}
	if pos, err := s.check(); err != nil {
		if s.seg.is(segGone) || s.seg.size.Load() < s.pos+s.n {
			return ErrSegmentGone // cut meanwhile: who appended there has written other bytes
		}
		if unreadable(err) {
			return s.seg.unreadable(err)
		}
		if !isDamage(err) && !errors.Is(err, ErrNotContiguous) {
			return err
		}
		return s.seg.damaged(pos, err)
	}
	// Readers go through a segment from its start: what the first has proved
	// the others need not.
	switch {
	case valid && s.pos <= p.to:
		s.seg.proof.CompareAndSwap(p, &proof{s.pos + s.n, p.at})
	case !valid && s.pos == 0:
		s.seg.proof.CompareAndSwap(p, &proof{s.n, now})
	}
	return nil
}

// check walks the batches; pos is where the bad one is.
func (s *Slice) check() (pos int64, err error) {
	piece := pieces.Get().(*[]byte)
	defer pieces.Put(piece)
	buf := *piece
	end, next := s.pos+s.n, s.start
	size := max(s.seg.size.Load(), end)
	limit := s.seg.endAfter()
	for pos = s.pos; pos < end; {
		// A header more, so that the last batch is seen with what follows it.
		n, err := s.h.file.ReadAt(buf[:min(int64(len(buf)), size-pos)], pos)
		if err != nil && !(errors.Is(err, io.EOF) && n > 0) {
			return pos, s.short(err)
		}
		used := 0
		for pos < end {
			h, err := batch.PeekHeader(buf[used:n])
			if errors.Is(err, batch.ErrShort) && used > 0 {
				break // read on from here
			}
			if err != nil {
				return pos, err
			}
			whole := h.SizeBytes()
			if pos+int64(whole) > end {
				return pos, batch.ErrShort
			}
			switch {
			case used+whole <= n:
				err = batch.Batch(buf[used : used+whole]).VerifyCRC()
			case used > 0:
				whole = 0
			default:
				err = s.checkLong(h, pos, buf)
				n = 0
			}
			if whole == 0 {
				break
			}
			if err == nil {
				err = s.seg.log.inPlace(h, buf[min(used+whole, n):n], next, limit)
			}
			if err != nil {
				return pos, err
			}
			next = h.NextOffset()
			used += whole
			pos += int64(whole)
			if n == 0 {
				break
			}
		}
	}
	return pos, nil
}

// checkLong checks the CRC of a batch at pos that is longer than the buffer. Its
// header may lie in the buffer.
func (s *Slice) checkLong(h batch.Batch, pos int64, buf []byte) error {
	keep := append([]byte(nil), h...)
	err := checkLong(s.h.file, keep, pos, buf)
	copy(h, keep) // the accessors are used afterwards
	if err != nil && !isDamage(err) {
		return s.short(err)
	}
	return err
}

// checkLong checks the CRC of a batch at pos by reading it into a buffer piece by
// piece. The header must not lie in the buffer.
func checkLong(f vfs.File, h batch.Batch, pos int64, buf []byte) error {
	sum, at, end := uint32(0), pos+batch.ChecksumFrom, pos+int64(h.SizeBytes())
	for at < end {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), end-at)], at)
		if n == 0 {
			return err
		}
		sum = crc32.Update(sum, castagnoli, buf[:n])
		at += int64(n)
	}
	if sum != h.CRC() {
		return &batch.CorruptError{BaseOffset: h.BaseOffset(), Reason: "CRC of a long batch differs"}
	}
	return nil
}
