package broker

import "io"

// Kafka's frame: a signed 32-bit big-endian size, then that many bytes.
//
//	+-----------+--------------------------+
//	| size i32  | header, then body        |
//	+-----------+--------------------------+

// The parts in which memory for a frame is taken: no more than the first until that much has arrived, and so on. A client
// cannot make the broker hold memory by announcing bytes that it does not send. Copying what has arrived into the larger
// buffers costs at most a sixteenth of the frame.
var frameSteps = [...]int{4 << 10, 64 << 10, 2 << 20, 32 << 20}

// frameTrust is how much of a frame must have come with its size for the first step to be skipped.
const frameTrust = 1 << 10

// frameSmall is the size up to which frames draw on a budget of their own, so that small requests are served while large
// ones wait for each other.
const frameSmall = 64 << 10

// framePace is the least speed, in bytes per second, of a frame that others wait for; frameGrace is granted on top.
const (
	framePace  = 256 << 10
	frameGrace = 1000 // milliseconds
)

// budgets are where frames get their memory.
type budgets struct{ small, large *budget }

func newBudgets(total int64) budgets {
	small := max(total/8, frameSmall)
	return budgets{newBudget(small), newBudget(max(total-small, frameSmall))}
}

func (b budgets) used() int64 { return b.small.used() + b.large.used() }

// frame is one request's bytes and what they cost.
type frame struct {
	buf     *buffer
	n       int     // bytes of buf.b in use
	from    *budget // that charged was taken from
	charged int64
}

func (f *frame) bytes() []byte { return f.buf.b[:f.n] }

// release gives buffer and budget back. keep leaves the buffer to the collector because a handler holds slices of it.
func (f *frame) release(keep bool) {
	if f.buf == nil {
		return
	}
	if !keep {
		putBuffer(f.buf)
	}
	f.buf = nil
	f.from.release(f.charged)
	f.charged = 0
}

// readFrame fills the connection's frame with n bytes, taking memory as the bytes arrive. The clock of the frame's deadline
// stands while it waits for memory.
func (c *conn) readFrame(n int) error {
	f, have, step := &c.frame, 0, 0
	if len(c.in.bytes()) >= frameTrust {
		step = 1
	}
	from := c.srv.budgets.large
	if n <= frameSmall {
		from = c.srv.budgets.small
	}
	for ; have < n; step++ {
		want := n
		if step < len(frameSteps) && n > frameSteps[step] {
			want = frameSteps[step]
		}
		cost := bufferBytes(want)
		c.frameMillis.Store(0)
		if err := from.acquire(cost, f.charged, c.ctx.Done()); err != nil {
			return err
		}
		c.frameWant.Store(int64(want))
		c.frameMillis.Store(c.srv.nowMillis())
		next := getBuffer(want)
		if f.buf != nil {
			copy(next.b, f.buf.b[:have])
			putBuffer(f.buf)
			from.release(f.charged)
		}
		if have == 0 {
			have = copy(next.b[:want], c.in.bytes())
			c.in.release()
		}
		f.buf, f.from, f.charged, f.n = next, from, cost, have
		if _, err := io.ReadFull(c.nc, next.b[have:want]); err != nil {
			return err
		}
		have = want
		f.n = have
	}
	return nil
}
