package broker

import (
	"slices"
	"sync"
)

// budget is a number of bytes that requests may hold at once over all connections. A taker that finds too little left waits
// in line; those who already hold a part of a frame go first, because only their progress frees bytes.
//
// Holders that wait for each other would wait for ever: when every byte taken is held by someone who waits, the first of
// them is let past the limit. The line is in order of what is held, so that it stays first until its frame is whole: the
// total stays within the limit plus one frame and what that is copied from.
type budget struct {
	total int64

	mu      sync.Mutex    // guards the following
	free    int64         // below 0 while one is past the limit
	waiting int64         // bytes held by those who wait
	urgent  []*budgetWait // holders, who holds most first
	first   []*budgetWait // newcomers: they hold nothing
}

type budgetWait struct {
	n, held int64
	ready   chan struct{}
}

func newBudget(total int64) *budget { return &budget{total: total, free: total} }

// acquire takes n bytes, waiting for them until stop is closed. held is what the caller holds of this budget already. It
// returns errClosed when stop came first.
func (b *budget) acquire(n, held int64, stop <-chan struct{}) error {
	b.mu.Lock()
	if n <= b.free && len(b.urgent) == 0 && (held > 0 || len(b.first) == 0) {
		b.free -= n
		b.mu.Unlock()
		return nil
	}
	w := &budgetWait{n: n, held: held, ready: make(chan struct{})}
	if held > 0 {
		at, _ := slices.BinarySearchFunc(b.urgent, w, func(x, w *budgetWait) int {
			if x.held >= w.held {
				return -1
			}
			return 1
		})
		b.urgent = slices.Insert(b.urgent, at, w)
	} else {
		b.first = append(b.first, w)
	}
	b.waiting += held
	b.grantLocked()
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
		b.waiting -= held
		b.urgent = slices.DeleteFunc(b.urgent, func(x *budgetWait) bool { return x == w })
		b.first = slices.DeleteFunc(b.first, func(x *budgetWait) bool { return x == w })
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
	for len(line) > 0 {
		w := line[0]
		stuck := b.total-b.free == b.waiting
		if w.n > b.free && !stuck {
			break
		}
		b.free -= w.n
		b.waiting -= w.held
		close(w.ready)
		line[0] = nil
		line = line[1:]
	}
	return line
}

// short says that someone waits.
func (b *budget) short() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.urgent)+len(b.first) > 0
}

// used is the number of bytes taken.
func (b *budget) used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.free
}
