package replica

import "sync"

// tailPointsMax bounds the points kept. Past it every second one goes: a waiter may then be credited a batch late, never
// early.
const tailPointsMax = 2048

// tail counts the bytes of the batches appended to a partition, with points from offsets to the running count for the
// part that readers do not see yet. It answers how many bytes a move of the high watermark has made readable.
type tail struct {
	mu     sync.Mutex // guards the following
	points []tailPoint
}

// tailPoint says that the batches below end hold count bytes since the partition was opened.
type tailPoint struct{ end, count int64 }

// add notes a batch that ends (exclusively) at end. Appends may report out of order: each leaves the log's own lock first.
func (t *tail) add(end, bytes int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := len(t.points)
	for i > 0 && t.points[i-1].end >= end {
		i--
	}
	before := int64(0)
	if i > 0 {
		before = t.points[i-1].count
	}
	if i == len(t.points) {
		t.points = append(t.points, tailPoint{end, before + bytes})
	} else {
		t.points = append(t.points, tailPoint{})
		copy(t.points[i+1:], t.points[i:])
		t.points[i] = tailPoint{end, before}
		for j := i; j < len(t.points); j++ {
			t.points[j].count += bytes
		}
	}
	if len(t.points) > tailPointsMax {
		t.thin()
	}
}

// thin drops every second point but keeps the last.
func (t *tail) thin() {
	kept := t.points[:0]
	for i := 1; i < len(t.points); i += 2 {
		kept = append(kept, t.points[i])
	}
	if len(t.points)%2 == 1 {
		kept = append(kept, t.points[len(t.points)-1])
	}
	t.points = kept
}

// at is the running count up to offset: of the last point at or below it.
func (t *tail) at(offset int64) int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	lo, hi := 0, len(t.points)
	for lo < hi {
		if mid := (lo + hi) / 2; t.points[mid].end <= offset {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return 0
	}
	return t.points[lo-1].count
}

// seen drops the points below what every kind of reader sees, keeping one to count from.
func (t *tail) seen(offset int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for n+1 < len(t.points) && t.points[n+1].end <= offset {
		n++
	}
	if n > 0 {
		t.points = append(t.points[:0], t.points[n:]...)
	}
}
