package tier

import "container/heap"

// timers is a heap of deadlines, at most one for each owner. A partition with
// nothing due is not in it, so that idle partitions cost nothing.
type timers struct{ heap timerHeap }

// timer is embedded by owners; its index makes rescheduling O(log n).
type timer struct {
	due   int64 // steady ms
	index int   // 1-based position in the heap; 0 = not scheduled
	fire  func(now instant)
}

func (t *timers) set(x *timer, due int64) {
	if x.index != 0 {
		if x.due != due {
			x.due = due
			heap.Fix(&t.heap, x.index-1)
		}
		return
	}
	x.due = due
	heap.Push(&t.heap, x)
}

func (t *timers) stop(x *timer) {
	if x.index != 0 {
		heap.Remove(&t.heap, x.index-1)
	}
}

// next returns the earliest deadline.
func (t *timers) next() (int64, bool) {
	if len(t.heap) == 0 {
		return 0, false
	}
	return t.heap[0].due, true
}

// pop takes the earliest timer that is due, or nil.
func (t *timers) pop(steady int64) *timer {
	if len(t.heap) == 0 || t.heap[0].due > steady {
		return nil
	}
	return heap.Pop(&t.heap).(*timer)
}

type timerHeap []*timer

func (h timerHeap) Len() int           { return len(h) }
func (h timerHeap) Less(i, j int) bool { return h[i].due < h[j].due }
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	t.index = len(*h) + 1
	*h = append(*h, t)
}

func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = 0
	return t
}
