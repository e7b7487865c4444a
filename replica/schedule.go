package replica

import "container/heap"

// schedule is a heap of partitions by the time their housekeeping is due: retention, compaction. A partition is in it only
// while something may come due, so idle partitions cost nothing. Times are wall-clock milliseconds; it is pure.
type schedule struct {
	heap  dueHeap
	index map[*Partition]*due
}

type due struct {
	p  *Partition
	at int64
	i  int
}

// never is the due time of a partition with nothing to come.
const never = int64(1<<63 - 1)

func newSchedule() schedule { return schedule{index: make(map[*Partition]*due)} }

// set puts p at time at, or takes it out when at is never.
func (s *schedule) set(p *Partition, at int64) {
	d, ok := s.index[p]
	switch {
	case at == never && ok:
		heap.Remove(&s.heap, d.i)
		delete(s.index, p)
	case at == never:
	case ok:
		d.at = at
		heap.Fix(&s.heap, d.i)
	default:
		d = &due{p: p, at: at}
		s.index[p] = d
		heap.Push(&s.heap, d)
	}
}

// sooner moves p to at when that is before what is set.
func (s *schedule) sooner(p *Partition, at int64) {
	if d, ok := s.index[p]; !ok || at < d.at {
		s.set(p, at)
	}
}

// next is the earliest due time, or never.
func (s *schedule) next() int64 {
	if len(s.heap) == 0 {
		return never
	}
	return s.heap[0].at
}

// take removes and returns a partition that is due at now, or nil.
func (s *schedule) take(now int64) *Partition {
	if len(s.heap) == 0 || s.heap[0].at > now {
		return nil
	}
	d := heap.Pop(&s.heap).(*due)
	delete(s.index, d.p)
	return d.p
}

type dueHeap []*due

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at < h[j].at }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i]; h[i].i, h[j].i = i, j }
func (h *dueHeap) Push(x any)        { d := x.(*due); d.i = len(*h); *h = append(*h, d) }
func (h *dueHeap) Pop() any {
	old := *h
	d := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return d
}
