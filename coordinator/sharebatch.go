package coordinator

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
)

// rank orders what may be known of an offset: of two states the one of more deliveries stands, and of as many deliveries the one
// further on. So a write that comes late or twice takes nothing back.
func (b *ShareBatch) rank(o *ShareBatch) int {
	return cmp.Or(cmp.Compare(b.DeliveryCount, o.DeliveryCount), cmp.Compare(b.State, o.State))
}

// mergeShareBatches joins what is known with what is new, in any order and overlapping as they may, into sorted batches that
// neither overlap nor could be joined. What lies below start is left out; NoOffset: nothing does.
func mergeShareBatches(known, news []ShareBatch, start int64) []ShareBatch {
	all := make([]ShareBatch, 0, len(known)+len(news))
	for _, b := range slices.Concat(known, news) {
		if start != NoOffset {
			b.First = max(b.First, start)
		}
		if b.First <= b.Last {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b ShareBatch) int { return cmp.Compare(a.First, b.First) })
	out := make([]ShareBatch, 0, len(all))
	var open shareHeap
	for i, at := 0, int64(0); i < len(all) || len(open) > 0; {
		if len(open) == 0 {
			at = all[i].First
		}
		for i < len(all) && all[i].First <= at {
			heap.Push(&open, all[i])
			i++
		}
		top := open[0]
		if top.Last < at {
			heap.Pop(&open)
			continue
		}
		// top stands until it ends or another begins.
		last := top.Last
		if i < len(all) {
			last = min(last, all[i].First-1)
		}
		out = appendShareBatch(out, ShareBatch{First: at, Last: last, State: top.State, DeliveryCount: top.DeliveryCount})
		at = last + 1
	}
	return out
}

// valid says whether a batch can be: it comes from a request, or from a record that anybody may have written.
func (b *ShareBatch) valid() bool {
	switch b.State {
	case ShareAvailable, ShareAcknowledged, ShareArchiving, ShareArchived:
	default:
		return false
	}
	return 0 <= b.First && b.First <= b.Last && b.Last < math.MaxInt64 && b.DeliveryCount >= 0
}

// appendShareBatch appends a batch that begins after all of list, joining it to the last where they say the same.
func appendShareBatch(list []ShareBatch, b ShareBatch) []ShareBatch {
	if n := len(list); n > 0 && list[n-1].Last+1 == b.First && list[n-1].rank(&b) == 0 {
		list[n-1].Last = b.Last
		return list
	}
	return append(list, b)
}

// shareHeap has the batch that stands on top.
type shareHeap []ShareBatch

func (h shareHeap) Len() int           { return len(h) }
func (h shareHeap) Less(i, j int) bool { return h[i].rank(&h[j]) > 0 }
func (h shareHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *shareHeap) Push(x any)        { *h = append(*h, x.(ShareBatch)) }
func (h *shareHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}
