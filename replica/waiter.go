package replica

import (
	"sync"
	"sync/atomic"
)

// Isolation says up to where a reader sees the log.
const (
	ReadUncommitted int8 = 0 // below the high watermark
	ReadCommitted   int8 = 1 // below the last stable offset
	readLogEnd      int8 = 2 // everything: replicas
	isolations           = 3
)

// Waiter is one long poll: it watches positions in partitions and signals once, when the bytes readable behind all of
// them together reach its minimum, or when any of the partitions changes so that its reader must look again (leadership,
// truncation, log start, deletion, disk error). It is used by one goroutine; Close must be called.
type Waiter struct {
	min     int64
	have    atomic.Int64
	fired   atomic.Bool
	c       chan struct{}
	watches []*watch
	inline  [2]watch // most polls watch one or two partitions
}

// watch is one watched position. Its index and counted fields are guarded by the mutex of the watchers it is in.
type watch struct {
	waiter    *Waiter
	in        *watchers
	isolation int8
	counting  bool // more than one byte is wanted: progress is credited; otherwise the first byte fires
	index     int  // position in the list or heap; -1 when taken out
	offset    int64
	counted   int64 // running byte count up to which the waiter has been credited
}

// NewWaiter returns a waiter for at least minBytes bytes (values below 1 count as 1).
func (m *Manager) NewWaiter(minBytes int) *Waiter { return newWaiter(minBytes) }

func newWaiter(minBytes int) *Waiter {
	return &Waiter{min: int64(max(minBytes, 1)), c: make(chan struct{}, 1)}
}

// C delivers one value when the waiter is satisfied.
func (w *Waiter) C() <-chan struct{} { return w.c }

// Watch adds a position: the first offset not read yet, and the isolation of its reader. It may satisfy the waiter at once.
func (w *Waiter) Watch(p *Partition, offset int64, isolation int8) {
	var e *watch
	if n := len(w.watches); n < len(w.inline) {
		e = &w.inline[n]
	} else {
		e = new(watch)
	}
	*e = watch{waiter: w, in: &p.watchers, isolation: isolation, counting: w.min > 1, offset: offset}
	w.watches = append(w.watches, e)
	p.watch(e)
}

// Close takes the waiter out of every partition.
func (w *Waiter) Close() {
	for _, e := range w.watches {
		e.in.remove(e)
	}
	w.watches = nil
}

func (w *Waiter) fire() {
	if w.fired.CompareAndSwap(false, true) {
		w.c <- struct{}{}
	}
}

func (w *Waiter) credit(n int64) {
	if w.have.Add(n) >= w.min {
		w.fire()
	}
}

// watchers are the watched positions of one partition.
//
// A lost wake-up would need an advance that sees no watcher and a watcher that sees the old bound. Both sides write before
// they read: the advance stores the bound, then loads n; the watcher stores n, then loads the bound. One of them sees the
// other.
type watchers struct {
	n atomic.Int32 // how many; read without the lock

	mu       sync.Mutex            // guards the following
	first    [isolations]watchHeap // any byte satisfies them: least offset on top
	counting [isolations][]*watch  // credited with bytes as they appear
}

// add registers e. base is the running byte count from which e is to be credited when it counts.
func (ws *watchers) add(e *watch) {
	ws.n.Add(1)
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if e.counting {
		e.index = len(ws.counting[e.isolation])
		ws.counting[e.isolation] = append(ws.counting[e.isolation], e)
		return
	}
	ws.first[e.isolation].push(e)
}

func (ws *watchers) remove(e *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if e.index < 0 {
		return
	}
	ws.takeLocked(e)
}

func (ws *watchers) takeLocked(e *watch) {
	if e.counting {
		list := ws.counting[e.isolation]
		last := list[len(list)-1]
		list[e.index], last.index = last, e.index
		list[len(list)-1] = nil
		ws.counting[e.isolation] = list[:len(list)-1]
	} else {
		ws.first[e.isolation].remove(e.index)
	}
	e.index = -1
	ws.n.Add(-1)
}

// advanced wakes the waiters that the new bounds satisfy. Those that any byte satisfies are met from the top of their heap
// and leave it; the others are credited with what has become readable since they were credited last.
func (ws *watchers) advanced(bounds [isolations]int64, t *tail) {
	if ws.n.Load() == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for iso := range isolations {
		h := &ws.first[iso]
		for len(*h) > 0 && (*h)[0].offset < bounds[iso] {
			e := (*h)[0]
			ws.takeLocked(e)
			e.waiter.fire()
		}
		if len(ws.counting[iso]) == 0 {
			continue
		}
		upTo := t.at(bounds[iso])
		for _, e := range ws.counting[iso] {
			if e.offset < bounds[iso] && upTo > e.counted {
				n := upTo - e.counted
				e.counted = upTo
				e.waiter.credit(n)
			}
		}
	}
}

// wakeAll fires every waiter for which gone says so (nil: every one): the partition has changed under them.
func (ws *watchers) wakeAll(gone func(offset int64) bool) {
	if ws.n.Load() == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for iso := range isolations {
		for _, e := range ws.first[iso] {
			if gone == nil || gone(e.offset) {
				e.waiter.fire()
			}
		}
		for _, e := range ws.counting[iso] {
			if gone == nil || gone(e.offset) {
				e.waiter.fire()
			}
		}
	}
}

// watchHeap is a binary heap by offset whose entries know their place, so that one can leave from the middle.
type watchHeap []*watch

func (h *watchHeap) push(e *watch) {
	e.index = len(*h)
	*h = append(*h, e)
	h.up(e.index)
}

func (h *watchHeap) remove(i int) {
	last := len(*h) - 1
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	if i < last {
		h.up(i)
		h.down(i)
	}
}

func (h watchHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h watchHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if h[parent].offset <= h[i].offset {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h watchHeap) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].offset < h[least].offset {
				least = child
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}
