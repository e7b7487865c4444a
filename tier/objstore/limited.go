package objstore

import (
	"context"
	"io"
	"sync"
	"time"
)

// limiterBurst is how long a limiter may have been idle and still send at once: the burst is this times the rate.
const limiterBurst = 100 * time.Millisecond

// Bytes wait in steps: a tenth of a second's worth, so that a small rate still gives a steady stream, within these bounds.
const (
	limiterStepMin = 512
	limiterStepMax = 32 << 10
)

// Limited wraps a store and bounds the bytes per second that all puts together upload. Downloads are not limited.
type Limited struct {
	Store

	mu   sync.Mutex // guards the following
	rate int64      // bytes per second; 0 is no limit
	free time.Time  // when all bytes let through so far are paid for
}

var _ Store = (*Limited)(nil)

// NewLimited wraps a store; a rate of 0 is no limit.
func NewLimited(inner Store, bytesPerSecond int64) *Limited {
	return &Limited{Store: inner, rate: max(0, bytesPerSecond)}
}

// SetRate changes the rate, for puts under way as well; 0 is no limit.
func (l *Limited) SetRate(bytesPerSecond int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rate = max(0, bytesPerSecond)
}

// String is the inner store's address.
func (l *Limited) String() string { return placeOf(l.Store) }

// Put implements Store. The checksum is computed here if need be, so that the store reads the body, and pays for it, once.
func (l *Limited) Put(ctx context.Context, key string, body Body, o PutOptions) (Object, error) {
	if o.CRC32C == nil {
		sum, err := bodyCRC32C(ctx, body)
		if err != nil {
			return Object{}, &Error{Op: OpPut, Place: l.String(), Key: key, Kind: ErrUnavailable, Detail: "read body", Err: err}
		}
		o.CRC32C = &sum
	}
	return l.Store.Put(ctx, key, &limitedBody{Body: body, ctx: ctx, limiter: l}, o)
}

// step is how many bytes wait as one.
func (l *Limited) step() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rate == 0 {
		return limiterStepMax
	}
	return int(min(limiterStepMax, max(limiterStepMin, l.rate/10)))
}

// reserve books n bytes and says how long to wait before sending them.
func (l *Limited) reserve(n int, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.rate == 0 {
		return 0
	}
	if earliest := now.Add(-limiterBurst); l.free.Before(earliest) {
		l.free = earliest
	}
	l.free = l.free.Add(time.Duration(float64(n) / float64(l.rate) * float64(time.Second)))
	return l.free.Sub(now)
}

// limitedBody is a body that is read at the limiter's pace.
type limitedBody struct {
	Body
	ctx     context.Context
	limiter *Limited
}

func (b *limitedBody) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for {
		step := p[done:min(len(p), done+b.limiter.step())]
		if left := b.Size() - off - int64(done); int64(len(step)) > left {
			step = step[:max(0, left)]
			if len(step) == 0 && done < len(p) {
				return done, io.EOF
			}
		}
		if wait := b.limiter.reserve(len(step), time.Now()); wait > 0 {
			if err := sleep(b.ctx, wait); err != nil {
				return done, err
			}
		}
		n, err := b.Body.ReadAt(step, off+int64(done))
		done += n
		if done == len(p) || err != nil && n < len(step) {
			return done, err
		}
	}
}
