package hot

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/vfs"
)

// Slice is a run of whole batches in a segment file, as Read found it. It
// pins the file until Release, whatever happens to the segment. One goroutine
// at a time may use it.
type Slice struct {
	files    *fileCache
	h        *handle // nil when empty
	seg      *segment
	pos, n   int64
	start    int64
	next     int64 // -1 not looked up yet
	released atomic.Bool
}

// Len is the number of bytes.
func (s *Slice) Len() int { return int(s.n) }

// StartOffset is the base offset of the first batch; it may lie below the
// offset asked for.
func (s *Slice) StartOffset() int64 { return s.start }

// NextOffset is the offset after the last batch, where the next read goes on.
// For an empty slice it is the offset asked for, or the first one above it at
// which there can be data.
func (s *Slice) NextOffset() int64 {
	if s.next >= 0 || s.h == nil {
		return s.next
	}
	ix := s.seg.index.Load()
	pos := s.pos
	if ix != nil {
		if e, ok := ix.floorPosition(s.pos + s.n - 1); ok && int64(e.pos) > pos {
			pos = int64(e.pos)
		}
	}
	w := newWalker(s.h.file, s.pos+s.n)
	defer w.close()
	s.next = s.start
	for {
		h, err := w.header(pos)
		if err != nil {
			return s.next
		}
		s.next = h.NextOffset()
		pos += int64(h.SizeBytes())
	}
}

// Release unpins the file. Calling it again does nothing.
func (s *Slice) Release() {
	if s.h != nil && !s.released.Swap(true) {
		s.files.release(s.h)
	}
}

// ReadAt reads from the slice's bytes.
func (s *Slice) ReadAt(p []byte, off int64) (int, error) {
	if off >= s.n {
		return 0, io.EOF
	}
	want := min(int64(len(p)), s.n-off)
	n, err := s.h.file.ReadAt(p[:want], s.pos+off)
	if err == nil && want < int64(len(p)) {
		err = io.EOF
	}
	return n, err
}

// Bytes is a copy of the slice's bytes.
func (s *Slice) Bytes() ([]byte, error) {
	b := make([]byte, s.n)
	if s.n == 0 {
		return b, nil
	}
	if _, err := s.h.file.ReadAt(b, s.pos); err != nil {
		return nil, s.short(err)
	}
	return b, nil
}

// Batches calls fn for every batch; the bytes are valid within fn only.
func (s *Slice) Batches(fn func(batch.Batch) error) error {
	b, err := s.Bytes()
	if err != nil {
		return err
	}
	for len(b) > 0 {
		one, rest, err := batch.Next(b)
		if err != nil {
			return err
		}
		if err := fn(one); err != nil {
			return err
		}
		b = rest
	}
	return nil
}

func (s *Slice) short(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read %d bytes of segment %d at %d: %w", s.n, s.seg.base, s.pos, err)
}

// pieceBytes is what one sendfile or pread moves. Larger slices cost the
// receiving side more CPU than they save here (DURABILITY.md, "Sending").
const pieceBytes = 256 << 10

var pieces = sync.Pool{New: func() any { b := make([]byte, pieceBytes); return &b }}

// WriteTo sends the slice. To a TCP connection the bytes go by sendfile from
// the page cache, with an offset of their own; anything else gets them
// through a buffer. After an error the receiver has part of the slice: close
// the connection.
func (s *Slice) WriteTo(w io.Writer) (int64, error) {
	if s.n == 0 {
		return 0, nil
	}
	if conn, ok := w.(*net.TCPConn); ok {
		if f, ok := s.h.file.(vfs.OSFile); ok {
			return s.sendfile(conn, f)
		}
	}
	buf := pieces.Get().(*[]byte)
	defer pieces.Put(buf)
	var done int64
	for done < s.n {
		n, err := s.h.file.ReadAt((*buf)[:min(pieceBytes, s.n-done)], s.pos+done)
		if n == 0 {
			if err == nil {
				err = io.ErrUnexpectedEOF
			}
			return done, s.short(err)
		}
		m, err := w.Write((*buf)[:n])
		done += int64(m)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// sendfile moves the bytes inside the kernel. The descriptor's own position
// is never used: other readers share it.
func (s *Slice) sendfile(conn *net.TCPConn, f vfs.OSFile) (int64, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	in := int(f.Fd())
	pos, end := s.pos, s.pos+s.n
	var serr error
	err = raw.Write(func(out uintptr) bool {
		for pos < end {
			n, err := unix.Sendfile(int(out), in, &pos, int(min(pieceBytes, end-pos)))
			switch {
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR:
			case err != nil:
				serr = fmt.Errorf("sendfile: %w", err)
				return true
			case n == 0:
				serr = s.short(io.ErrUnexpectedEOF)
				return true
			}
		}
		return true
	})
	return pos - s.pos, errors.Join(err, serr)
}
