package lineage

import (
	"slices"
	"sort"
	"strconv"
	"strings"
)

// NoEpoch and NoOffset are what a lookup answers when the chain cannot say
// (UNDEFINED_EPOCH and UNDEFINED_EPOCH_OFFSET on the wire).
const (
	NoEpoch  int32 = -1
	NoOffset int64 = -1
)

// Entry says that the leader of Epoch wrote from Start on, up to the start of
// the next entry or the end of the log.
type Entry struct {
	Epoch int32
	Start int64
}

// Chain is a list of entries with strictly rising epochs and strictly rising
// starts. The empty chain knows nothing.
type Chain []Entry

// Valid reports whether epochs and starts strictly rise and none is negative.
func (c Chain) Valid() bool {
	for i, e := range c {
		if e.Epoch < 0 || e.Start < 0 {
			return false
		}
		if i > 0 && (e.Epoch <= c[i-1].Epoch || e.Start <= c[i-1].Start) {
			return false
		}
	}
	return true
}

// Latest is the last epoch of the chain, or NoEpoch.
func (c Chain) Latest() int32 {
	if len(c) == 0 {
		return NoEpoch
	}
	return c[len(c)-1].Epoch
}

// Earliest is the first entry; ok is false when the chain is empty.
func (c Chain) Earliest() (e Entry, ok bool) {
	if len(c) == 0 {
		return Entry{NoEpoch, NoOffset}, false
	}
	return c[0], true
}

// Assign records that epoch writes from start on. An epoch the chain already
// ends with changes nothing. Entries that claim offsets at or above start, or
// epochs at or above epoch, are dropped first: they were never followed by
// data, or the log was truncated below them.
func (c Chain) Assign(epoch int32, start int64) Chain {
	if epoch < 0 || start < 0 {
		return c
	}
	if n := len(c); n > 0 && c[n-1].Epoch == epoch && start >= c[n-1].Start {
		return c
	}
	keep := 0
	for keep < len(c) && c[keep].Epoch < epoch && c[keep].Start < start {
		keep++
	}
	next := make(Chain, keep, keep+1)
	copy(next, c[:keep])
	return append(next, Entry{epoch, start})
}

// EndOffsetFor answers OffsetForLeaderEpoch (KIP-279): the largest epoch of
// the chain that is not above the one asked for, and the offset at which it
// ended. logEnd is the end of the log, the end of the latest epoch.
//
//   - asked for the latest epoch: (epoch, logEnd);
//   - asked for an epoch above all: unknown, (NoEpoch, NoOffset);
//   - asked for an epoch below all: (epoch as asked, start of the first entry),
//     since whatever it wrote ended there at the latest;
//   - an empty chain or a negative epoch: unknown.
func (c Chain) EndOffsetFor(epoch int32, logEnd int64) (int32, int64) {
	if epoch < 0 || len(c) == 0 {
		return NoEpoch, NoOffset
	}
	latest := c[len(c)-1]
	if epoch == latest.Epoch {
		return epoch, logEnd
	}
	if epoch > latest.Epoch {
		return NoEpoch, NoOffset
	}
	above := sort.Search(len(c), func(i int) bool { return c[i].Epoch > epoch })
	if above == 0 {
		return epoch, c[0].Start
	}
	return c[above-1].Epoch, c[above].Start
}

// EpochAt is the epoch that wrote offset, or NoEpoch when offset is below the
// first entry. Offsets beyond the last start belong to the latest epoch.
func (c Chain) EpochAt(offset int64) int32 {
	i := sort.Search(len(c), func(i int) bool { return c[i].Start > offset })
	if i == 0 {
		return NoEpoch
	}
	return c[i-1].Epoch
}

// StartOf is the first offset of epoch; ok is false when the chain lacks it.
func (c Chain) StartOf(epoch int32) (start int64, ok bool) {
	i := sort.Search(len(c), func(i int) bool { return c[i].Epoch >= epoch })
	if i == len(c) || c[i].Epoch != epoch {
		return NoOffset, false
	}
	return c[i].Start, true
}

// Before is the largest epoch below epoch, or NoEpoch.
func (c Chain) Before(epoch int32) int32 {
	i := sort.Search(len(c), func(i int) bool { return c[i].Epoch >= epoch })
	if i == 0 {
		return NoEpoch
	}
	return c[i-1].Epoch
}

// TruncateEnd drops what starts at or beyond end: the chain of the log
// [.., end).
func (c Chain) TruncateEnd(end int64) Chain {
	i := sort.Search(len(c), func(i int) bool { return c[i].Start >= end })
	if i == len(c) {
		return c
	}
	return slices.Clone(c[:i])
}

// TruncateStart drops epochs that ended at or before start and moves the
// epoch covering start up to it: the chain of the log [start, ..).
func (c Chain) TruncateStart(start int64) Chain {
	i := sort.Search(len(c), func(i int) bool { return c[i].Start > start })
	if i == 0 || (i == 1 && c[0].Start == start) {
		return c
	}
	next := slices.Clone(c[i-1:])
	next[0].Start = start
	return next
}

// Slice is the part of the chain that covers [start, end): what a segment
// object carries.
func (c Chain) Slice(start, end int64) Chain {
	return c.TruncateStart(start).TruncateEnd(end)
}

// Covers reports whether every offset of [start, end) has an epoch here.
func (c Chain) Covers(start, end int64) bool {
	return start >= end || (len(c) > 0 && c[0].Start <= start)
}

// Within reports whether a segment [start, end) that was written under the
// chain seg belongs to the history c: every offset has the same epoch in both.
// It is the test a remote segment must pass before it is read (KIP-405). A
// chain that does not reach down to start cannot deny the offsets below its
// own first entry: those were trimmed from it, so only epochs from there on
// are compared, and seg must not claim a later epoch below that entry.
func (c Chain) Within(seg Chain, start, end int64) bool {
	if start >= end {
		return true
	}
	if len(c) == 0 || len(seg) == 0 || !seg.Covers(start, end) {
		return false
	}
	part := seg.Slice(start, end)
	first := c[0]
	if first.Start > start {
		below := part.TruncateEnd(first.Start)
		if below.Latest() > first.Epoch {
			return false
		}
		if first.Start >= end {
			return true
		}
		return c.Slice(first.Start, end).Equal(part.TruncateStart(first.Start))
	}
	return c.Slice(start, end).Equal(part)
}

// Merge joins an older chain, such as one read from the bucket, with a newer
// one that continues it: entries of older below the first entry of c are put
// in front. ok is false when the two contradict each other.
func (c Chain) Merge(older Chain) (merged Chain, ok bool) {
	if len(c) == 0 {
		return slices.Clone(older), older.Valid()
	}
	for _, e := range older {
		if e.Epoch < c[0].Epoch && e.Start < c[0].Start {
			merged = append(merged, e)
			continue
		}
		if e.Epoch == c[0].Epoch && e.Start <= c[0].Start {
			// The newer chain was trimmed inside this epoch.
			merged = append(append(merged, e), c[1:]...)
			return merged, merged.Valid()
		}
		break
	}
	merged = append(merged, c...)
	return merged, merged.Valid()
}

// Equal reports whether both chains have the same entries.
func (c Chain) Equal(o Chain) bool { return slices.Equal(c, o) }

// Clone is a copy that shares no memory.
func (c Chain) Clone() Chain { return slices.Clone(c) }

// String is "0@0 3@1200": epoch at start offset.
func (c Chain) String() string {
	var b strings.Builder
	for i, e := range c {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.Itoa(int(e.Epoch)))
		b.WriteByte('@')
		b.WriteString(strconv.FormatInt(e.Start, 10))
	}
	return b.String()
}
