package batch

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// source reads a byte slice. It is no bytes.Reader so that decoders do not
// recognise it and load it whole.
type source struct{ b []byte }

func (s *source) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.b)
	s.b = s.b[n:]
	return n, nil
}

func (s *source) ReadByte() (byte, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	c := s.b[0]
	s.b = s.b[1:]
	return c, nil
}

// inflater is a reusable decoder of one codec.
type inflater struct {
	src  source
	out  io.Reader
	gzip *gzip.Reader
	lz4  *lz4.Reader
	zstd *zstd.Decoder
	zhdr zstdPatch
	snap *snappyReader
}

var inflaters [Zstd + 1]sync.Pool

// openInflater returns a decoder of compressed, from the pool if it has one.
func openInflater(c Codec, compressed []byte) (*inflater, error) {
	f, _ := inflaters[c].Get().(*inflater)
	if f == nil {
		f = &inflater{}
	}
	f.src.b = compressed
	if err := f.reset(c); err != nil {
		f.release(c)
		return nil, err
	}
	return f, nil
}

func (f *inflater) reset(c Codec) (err error) {
	switch c {
	case Gzip:
		if f.gzip == nil {
			f.gzip = new(gzip.Reader)
		}
		f.out = f.gzip
		return f.gzip.Reset(&f.src)
	case Snappy:
		if f.snap == nil {
			f.snap = new(snappyReader)
		}
		f.out = f.snap
		f.snap.reset(f.src.b)
	case LZ4:
		if f.lz4 == nil {
			f.lz4 = lz4.NewReader(&f.src)
		} else {
			f.lz4.Reset(&f.src)
		}
		f.out = f.lz4
	case Zstd:
		if f.zstd == nil {
			f.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
				zstd.WithDecoderMaxWindow(zstdWindowMax), zstd.WithDecoderMaxMemory(zstdWindowMax))
			if err != nil {
				return err
			}
		}
		f.out = f.zstd
		f.zhdr.reset(&f.src)
		return f.zstd.Reset(&f.zhdr)
	}
	return nil
}

func (f *inflater) release(c Codec) {
	f.src.b = nil
	if f.snap != nil {
		f.snap.reset(nil)
	}
	if f.zstd != nil {
		f.zhdr = zstdPatch{}
		if f.zstd.Reset(nil) != nil {
			return
		}
	}
	inflaters[c].Put(f)
}

// zstdPatch hands a frame to the decoder with the window it asks for cut to
// zstdWindowMax. Encoders at their highest levels declare windows of up to
// 128 MiB, whatever the length of the data; memory of that size is not for a
// client to ask for. Data that really refers back further then fails.
type zstdPatch struct {
	head [6]byte
	n, r int
	src  *source
}

func (p *zstdPatch) reset(src *source) {
	*p = zstdPatch{src: src}
	p.n = copy(p.head[:], src.b)
	src.b = src.b[p.n:]
	const (
		singleSegment = 1 << 5
		exponentMax   = 23 - 10 // 8 MiB is 2^23; a window is 2^(10+exponent) and eighths
	)
	isFrame := p.n == len(p.head) && [4]byte(p.head[:4]) == [4]byte{0x28, 0xb5, 0x2f, 0xfd}
	if isFrame && p.head[4]&singleSegment == 0 && p.head[5] > exponentMax<<3 {
		p.head[5] = exponentMax << 3
	}
}

func (p *zstdPatch) Read(b []byte) (int, error) {
	if p.r < p.n {
		n := copy(b, p.head[p.r:p.n])
		p.r += n
		return n, nil
	}
	return p.src.Read(b)
}

// stream is a bounded window over inflated bytes.
type stream struct {
	inf   *inflater
	codec Codec
	buf   []byte
	r, w  int
	left  int64 // bytes that may still be inflated
	// recordMax is the most bytes one record may have.
	recordMax int64
	// consumed counts the bytes of varints read, for whoever must know how
	// long one was.
	consumed int64
	err      error
}

const streamBuffer = 32 << 10

// streamBufferKeep is the largest buffer in bytes a pooled stream keeps.
const streamBufferKeep = 256 << 10

var streams = sync.Pool{New: func() any { return &stream{buf: make([]byte, streamBuffer)} }}

func openStream(c Codec, compressed []byte, lim Limits) (*stream, error) {
	inf, err := openInflater(c, compressed)
	if err != nil {
		return nil, inflateError(err)
	}
	s := streams.Get().(*stream)
	s.inf, s.codec = inf, c
	s.r, s.w, s.err = 0, 0, nil
	s.left = lim.inflatedMax(len(compressed))
	s.recordMax = lim.maxBytes()
	return s, nil
}

func (s *stream) close() {
	s.inf.release(s.codec)
	s.inf = nil
	if cap(s.buf) > streamBufferKeep {
		s.buf = make([]byte, streamBuffer)
	}
	streams.Put(s)
}

// fill reads more bytes behind those unread, moving or growing the buffer
// when it is full. It returns io.EOF at the end of the data.
func (s *stream) fill() error {
	if s.err != nil {
		return s.err
	}
	if s.r > 0 {
		copy(s.buf, s.buf[s.r:s.w])
		s.w -= s.r
		s.r = 0
	}
	if s.w == len(s.buf) {
		grown := make([]byte, 2*len(s.buf))
		copy(grown, s.buf)
		s.buf = grown
	}
	for range 100 { // a reader that yields nothing so often is broken
		n, err := s.inf.out.Read(s.buf[s.w:])
		if int64(n) > s.left {
			s.err = ErrInflated
			return s.err
		}
		s.left -= int64(n)
		s.w += n
		if err != nil && err != io.EOF {
			err = inflateError(err)
		}
		s.err = err
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	s.err = inflateError(io.ErrNoProgress)
	return s.err
}

// need makes n bytes contiguous at s.r, growing only as bytes arrive.
func (s *stream) need(n int) error {
	for s.w-s.r < n {
		if err := s.fill(); err != nil {
			return eofIsShort(err)
		}
	}
	return nil
}

// skip drops n bytes without keeping them.
func (s *stream) skip(n int) error {
	for {
		have := s.w - s.r
		if n <= have {
			s.r += n
			return nil
		}
		n -= have
		s.r = s.w
		if err := s.fill(); err != nil {
			return eofIsShort(err)
		}
	}
}

// atEnd reports whether nothing is left; an error other than the end counts
// as something.
func (s *stream) atEnd() (bool, error) {
	if s.r < s.w {
		return false, nil
	}
	err := s.fill()
	if err == io.EOF {
		return true, nil
	}
	return false, err
}

// recordSize reads the length of the next record and holds it to the limit.
func (s *stream) recordSize() (int, error) {
	size, err := s.varint32()
	if err != nil {
		return 0, err
	}
	if size < 0 {
		return 0, errRecordShape
	}
	if int64(size) > s.recordMax {
		return 0, &oversized{int64(size), s.recordMax}
	}
	return int(size), nil
}

// oversized is a record above the limit. It is an ErrInflated.
type oversized struct{ size, max int64 }

func (o *oversized) Error() string {
	return fmt.Sprintf("Invalid record size: %d exceeds the configured maximum record size of %d.", o.size, o.max)
}

func (o *oversized) Unwrap() error { return ErrInflated }

// varint32 reads a varint that may lie across the buffer's end.
func (s *stream) varint32() (int32, error) {
	for {
		v, n := varint32(s.buf[s.r:s.w])
		if n > 0 {
			s.r += n
			s.consumed += int64(n)
			return v, nil
		}
		if n < 0 {
			return 0, errRecordShape
		}
		if err := s.fill(); err != nil {
			return 0, eofIsShort(err)
		}
	}
}

func (s *stream) varint64() (int64, error) {
	for {
		v, n := varint64(s.buf[s.r:s.w])
		if n > 0 {
			s.r += n
			s.consumed += int64(n)
			return v, nil
		}
		if n < 0 {
			return 0, errRecordShape
		}
		if err := s.fill(); err != nil {
			return 0, eofIsShort(err)
		}
	}
}

func eofIsShort(err error) error {
	if err == io.EOF {
		return errRecordEOF
	}
	return err
}

// undecodable is a codec's complaint about the compressed bytes.
type undecodable struct{ err error }

func (u *undecodable) Error() string { return "Failed to decompress record stream: " + u.err.Error() }
func (u *undecodable) Unwrap() error { return u.err }

func inflateError(err error) error {
	if errors.Is(err, ErrInflated) {
		return err
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return &undecodable{err}
}
