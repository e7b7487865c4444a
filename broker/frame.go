package broker

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Kafka's frame: a signed 32-bit big-endian size, then that many bytes.
//
//	+-----------+--------------------------+
//	| size i32  | header, then body        |
//	+-----------+--------------------------+

// The parts in which memory for a large frame is taken: no more than the first until that much has arrived, and so on.
// A client cannot make the broker hold memory by announcing bytes that it does not send. Copying what has arrived into
// the larger buffer costs at most one eighth of the frame.
var frameSteps = [...]int{16 << 10, 2 << 20, 16 << 20}

// frame is one request's bytes and what they cost the budget.
type frame struct {
	buf     *buffer
	n       int // bytes of buf.b in use
	charged int64
}

func (f *frame) bytes() []byte { return f.buf.b[:f.n] }

// release gives buffer and budget back. keep leaves the buffer to the collector because a handler holds slices of it.
func (f *frame) release(b *budget, keep bool) {
	if f.buf == nil {
		return
	}
	if !keep {
		putBuffer(f.buf)
	}
	f.buf = nil
	b.release(f.charged)
	f.charged = 0
}

// readSize reads the size of the next frame and checks it against limit.
func readSize(r io.Reader, scratch *[4]byte, limit int) (int, error) {
	if _, err := io.ReadFull(r, scratch[:]); err != nil {
		return 0, err
	}
	n := int32(binary.BigEndian.Uint32(scratch[:]))
	if n <= 0 || int(n) > limit {
		return 0, fmt.Errorf("%w: %d, limit %d", errTooLarge, n, limit)
	}
	return int(n), nil
}

// read fills f with n bytes from r, taking memory as the bytes arrive.
func (f *frame) read(r io.Reader, n int, b *budget, stop <-chan struct{}) error {
	have := 0
	for step := 0; have < n; step++ {
		want := n
		if step < len(frameSteps) && n > frameSteps[step] {
			want = frameSteps[step]
		}
		cost := bufferBytes(want)
		if err := b.acquire(cost, f.buf != nil, stop); err != nil {
			return err
		}
		next := getBuffer(want)
		if f.buf != nil {
			copy(next.b, f.buf.b[:have])
			putBuffer(f.buf)
			b.release(f.charged)
		}
		f.buf, f.charged, f.n = next, cost, have
		if _, err := io.ReadFull(r, next.b[have:want]); err != nil {
			return err
		}
		have = want
		f.n = have
	}
	return nil
}
