package tier

import (
	"context"
	"sync"
)

// lookPool runs short calls to local logs, in order of arrival. Its queue is
// bounded by the core: at most one look, one roll and one start for a partition.
type lookPool struct {
	mu     sync.Mutex // guards the following
	queue  []func()
	signal chan struct{}
}

func newLookPool() *lookPool { return &lookPool{signal: make(chan struct{}, 1)} }

func (q *lookPool) add(fn func()) {
	q.mu.Lock()
	q.queue = append(q.queue, fn)
	q.mu.Unlock()
	q.poke()
}

func (q *lookPool) poke() {
	select {
	case q.signal <- struct{}{}:
	default:
	}
}

// run serves the queue until ctx ends. Several goroutines may run it.
func (q *lookPool) run(ctx context.Context) {
	for {
		q.mu.Lock()
		var fn func()
		if len(q.queue) > 0 {
			fn, q.queue[0] = q.queue[0], nil
			q.queue = q.queue[1:]
		}
		more := len(q.queue) > 0
		q.mu.Unlock()
		if more {
			q.poke() // another worker may help
		}
		if fn != nil {
			fn()
			continue
		}
		select {
		case <-q.signal:
		case <-ctx.Done():
			return
		}
	}
}
