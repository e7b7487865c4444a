package tier

import (
	"context"
	"sync"
	"time"

	"github.com/varvelog/varve/tier/objstore"
)

// rateLimiter shares one bucket among all uploads.
type rateLimiter struct {
	now func() int64 // steady ms

	mu     sync.Mutex // guards the following
	bucket bucket
}

func (r *rateLimiter) set(rate int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.bucket.setRate(rate, r.now())
}

func (r *rateLimiter) take(n int64) (waitMillis int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bucket.take(n, r.now())
}

// limitedBody is an upload body whose reading is paced. Bytes are paced when they
// are read for the first time: a store that reads a body twice, to sum and then
// to send it, is not slowed down twice.
type limitedBody struct {
	objstore.Body
	ctx  context.Context
	rate *rateLimiter

	mu   sync.Mutex // guards the following
	paid int64      // bytes below this position are paid for
}

// pacedChunk is the most that is paid for at once, so that several uploads share
// the rate evenly.
const pacedChunk = 64 << 10

func (b *limitedBody) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		n := min(len(p)-done, pacedChunk)
		if err := b.pay(off+int64(done), int64(n)); err != nil {
			return done, err
		}
		k, err := b.Body.ReadAt(p[done:done+n], off+int64(done))
		done += k
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (b *limitedBody) pay(off, n int64) error {
	b.mu.Lock()
	due := max(min(off+n, b.Size())-max(off, b.paid), 0)
	b.paid = max(b.paid, min(off+n, b.Size()))
	b.mu.Unlock()
	if due == 0 {
		return nil
	}
	wait := b.rate.take(due)
	if wait == 0 {
		return nil
	}
	t := time.NewTimer(time.Duration(wait) * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-b.ctx.Done():
		return b.ctx.Err()
	}
}
