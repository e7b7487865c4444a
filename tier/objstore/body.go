package objstore

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// bodyReader reads a body from its start.
func bodyReader(b Body) *io.SectionReader { return io.NewSectionReader(b, 0, b.Size()) }

// bodyCRC32C computes a body's CRC-32C in bounded memory.
func bodyCRC32C(ctx context.Context, b Body) (uint32, error) {
	h := crc32.New(castagnoli)
	n, err := io.Copy(h, &contextReader{ctx: ctx, r: bodyReader(b)})
	if err != nil {
		return 0, err
	}
	if n != b.Size() {
		return 0, fmt.Errorf("body has %d bytes of %d: %w", n, b.Size(), io.ErrUnexpectedEOF)
	}
	return h.Sum32(), nil
}

// contextReader fails reads once its context has ended.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// exactReader yields exactly want bytes while its context lasts: a source that ends early or fails gives an *Error,
// and one that has more is cut.
type exactReader struct {
	ctx   context.Context
	src   io.ReadCloser
	want  int64
	place string
	key   string
	got   int64
	err   error // sticky
}

func newExactReader(ctx context.Context, src io.ReadCloser, want int64, place, key string) *exactReader {
	return &exactReader{ctx: ctx, src: src, want: want, place: place, key: key}
}

func (e *exactReader) Read(p []byte) (int, error) {
	if e.err != nil {
		return 0, e.err
	}
	left := e.want - e.got
	if left == 0 {
		e.err = io.EOF
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	if int64(len(p)) > left {
		p = p[:left]
	}
	// Checked here, because a network body goes on for a while after its context has ended.
	err, n := e.ctx.Err(), 0
	if err == nil {
		n, err = e.src.Read(p)
	}
	e.got += int64(n)
	if err == io.EOF && e.got == e.want {
		err = nil // the end is reported by the next call
	}
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		e.err = &Error{Op: OpGet, Place: e.place, Key: e.key, Kind: ErrUnavailable,
			Detail: fmt.Sprintf("body ended after %d of %d bytes", e.got, e.want), Err: err}
	}
	return n, e.err
}

func (e *exactReader) Close() error { return e.src.Close() }
