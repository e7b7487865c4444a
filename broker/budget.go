package broker

import (
	"sync"
)

// budget is the number of bytes that requests may hold at once over all connections. A taker that finds too little left
// waits in line; those who already hold a part of a frame go first, because only their progress frees bytes.
type budget struct {
	total int64

	mu     sync.Mutex // guards the following
	free   int64
	urgent []*budgetWait // holders that need more
	first  []*budgetWait // newcomers
}

type budgetWait struct {
	n     int64
	ready chan struct{}
}

func newBudget(total int64) *budget { return &budget{total: total, free: total} }

// acquire takes n bytes, waiting for them until stop is closed. holder says that the caller already holds bytes of the
// same frame. It returns errClosed when stop came first.
func (b *budget) acquire(n int64, holder bool, stop <-chan struct{}) error {
	b.mu.Lock()
	if n <= b.free && len(b.urgent) == 0 && (holder || len(b.first) == 0) {
		b.free -= n
		b.mu.Unlock()
		return nil
	}
	w := &budgetWait{n: n, ready: make(chan struct{})}
	if holder {
		b.urgent = append(b.urgent, w)
	} else {
		b.first = append(b.first, w)
	}
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-stop:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // granted while we left: give it back
		b.free += n
	default:
		b.urgent = dropWait(b.urgent, w)
		b.first = dropWait(b.first, w)
	}
	b.grantLocked()
	return errClosed
}

// release gives n bytes back and wakes those they suffice for, in order.
func (b *budget) release(n int64) {
	b.mu.Lock()
	b.free += n
	if len(b.urgent)+len(b.first) > 0 {
		b.grantLocked()
	}
	b.mu.Unlock()
}

func (b *budget) grantLocked() {
	b.urgent = b.grantFrom(b.urgent)
	if len(b.urgent) == 0 {
		b.first = b.grantFrom(b.first)
	}
}

func (b *budget) grantFrom(line []*budgetWait) []*budgetWait {
	for len(line) > 0 && line[0].n <= b.free {
		b.free -= line[0].n
		close(line[0].ready)
		line[0] = nil
		line = line[1:]
	}
	return line
}

// used is the number of bytes taken.
func (b *budget) used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.free
}

func dropWait(line []*budgetWait, w *budgetWait) []*budgetWait {
	for i, x := range line {
		if x == w {
			return append(line[:i], line[i+1:]...)
		}
	}
	return line
}
