package coordinator

import "container/heap"

// timerKind says what happens when a timer fires.
type timerKind uint8

const (
	timerSession    timerKind = iota // a member, or one that has yet to join with its id, is not heard of
	timerJoin                        // the join phase ends; of a consumer group: a classic member was told to join again and has not
	timerSync                        // the sync phase ends; of a consumer group: a classic member has joined and not synced
	timerRetention                   // look for expired offsets or transactional ids
	timerRevocation                  // a member of a consumer group has not given up what it had to
	timerTxn                         // a transaction has taken too long; group is its transactional id
)

type timerKey struct {
	kind   timerKind
	group  string
	member string // "": the deadline is the group's
}

type timer struct {
	timerKey
	at    int64 // milliseconds
	seq   int64 // of two at the same time, the one set first fires first
	index int
}

// timers is a core's set of deadlines, at most one for each key.
type timers struct {
	heap timerHeap
	by   map[timerKey]*timer
	seq  int64
}

// set schedules key, or moves it.
func (t *timers) set(key timerKey, at int64) {
	t.seq++
	if old := t.by[key]; old != nil {
		old.at, old.seq = at, t.seq
		heap.Fix(&t.heap, old.index)
		return
	}
	if t.by == nil {
		t.by = make(map[timerKey]*timer)
	}
	n := &timer{timerKey: key, at: at, seq: t.seq}
	t.by[key] = n
	heap.Push(&t.heap, n)
}

// has says whether key is scheduled.
func (t *timers) has(key timerKey) bool { return t.by[key] != nil }

func (t *timers) cancel(key timerKey) {
	if old := t.by[key]; old != nil {
		heap.Remove(&t.heap, old.index)
		delete(t.by, key)
	}
}

// at is when key is scheduled, if it is.
func (t *timers) at(key timerKey) (int64, bool) {
	if one := t.by[key]; one != nil {
		return one.at, true
	}
	return 0, false
}

// due takes the earliest timer that is not later than now.
func (t *timers) due(now int64) (timerKey, bool) {
	if len(t.heap) == 0 || t.heap[0].at > now {
		return timerKey{}, false
	}
	n := heap.Pop(&t.heap).(*timer)
	delete(t.by, n.timerKey)
	return n.timerKey, true
}

// next is the earliest deadline, if any.
func (t *timers) next() (int64, bool) {
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.heap[0].at, true
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}
func (h *timerHeap) Push(x any) {
	n := x.(*timer)
	n.index = len(*h)
	*h = append(*h, n)
}
func (h *timerHeap) Pop() any {
	old := *h
	n := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return n
}
