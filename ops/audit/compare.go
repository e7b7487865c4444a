package audit

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/varvelog/varve/meta"
)

// view is a partition as one place has it: a replica, or the bucket.
type view struct {
	node       int32 // -1: the bucket
	from, to   int64 // what it claims to hold
	batches    []span
	incomplete bool // some of it could not be read
	// bound is up to where it must be what the others have. Who is in sync, or
	// the bucket, must up to all that is committed. Another replica may have a
	// tail beyond its own high watermark that it has yet to cut off.
	bound int64
}

func (v view) who() string {
	if v.node < 0 {
		return "the bucket"
	}
	return fmt.Sprintf("node %d", v.node)
}

// comparePartition holds all places of a partition against each other.
func (a *auditor) comparePartition(t *meta.Topic, index int32, ar *archive) {
	p := &t.Partitions[index]
	key := logKey{t.ID, index}
	name := fmt.Sprintf("%s-%d", t.Name, index)
	committed := int64(0)
	var views []view
	compacted := false
	for _, n := range a.nodes {
		if l := n.logs[key]; l != nil {
			committed, compacted = max(committed, min(l.highWatermark(), l.end())), l.compacted
			views = append(views, replicaView(n.id(), l))
		}
	}
	if ar != nil && ar.end >= 0 && !ar.retired {
		if len(views) > 0 && ar.end > committed {
			a.report.flaw(Manifest, -1, name, ar.end, "the bucket goes to %d, the highest high watermark is %d", ar.end, committed)
		}
		committed = max(committed, ar.end)
		views = append(views, view{node: -1, from: max(ar.start, firstBase(ar)), to: ar.end, batches: ar.batches, incomplete: ar.unread})
	}
	for _, n := range a.nodes {
		l := n.logs[key]
		switch inISR := slices.Contains(p.ISR, n.id()); {
		case l == nil && inISR:
			a.report.flaw(Missing, n.id(), name, -1, "it is in the ISR %v and has no files", p.ISR)
		case l == nil:
		case inISR && l.end() < committed:
			a.report.flaw(Short, n.id(), name, l.end(), "it is in the ISR %v and ends at %d; up to %d is committed", p.ISR, l.end(), committed)
		}
		if l != nil {
			a.checkSeam(n.id(), name, l, ar)
		}
	}
	for i := range views {
		if node := views[i].node; node < 0 || slices.Contains(p.ISR, node) {
			views[i].bound = committed
		}
		for _, other := range views[:i] {
			a.compareViews(name, other, views[i], compacted)
		}
	}
}

func firstBase(ar *archive) int64 {
	if len(ar.entries) == 0 {
		return ar.end
	}
	return ar.entries[0].base
}

func replicaView(node int32, l *replicaLog) view {
	v := view{node: node, from: l.localStart(), to: l.end(), bound: min(l.highWatermark(), l.end())}
	for i := range l.segments {
		v.batches = append(v.batches, l.segments[i].batches...)
		v.incomplete = v.incomplete || l.segments[i].damage != ""
	}
	return v
}

// checkSeam: what a replica has given up locally is in the bucket.
func (a *auditor) checkSeam(node int32, name string, l *replicaLog, ar *archive) {
	if l.journal == nil || l.journal.localStart <= l.journal.logStart || a.in.Store == nil {
		return
	}
	switch {
	case ar == nil || ar.end < 0:
		a.report.flaw(Seam, node, name, l.journal.logStart, "[%d, %d) is neither on the disk nor in the bucket", l.journal.logStart, l.journal.localStart)
	case ar.end < l.journal.localStart:
		a.report.flaw(Seam, node, name, ar.end, "the bucket ends at %d, the disk begins at %d", ar.end, l.journal.localStart)
	case len(ar.entries) > 0 && firstBase(ar) > max(l.journal.logStart, ar.start):
		a.report.flaw(Seam, node, name, l.journal.logStart, "the log starts at %d, the bucket at %d", l.journal.logStart, firstBase(ar))
	}
}

// compareViews walks through the committed offsets that both places hold: the
// same batches, the same bytes.
func (a *auditor) compareViews(name string, x, y view, compacted bool) {
	from, to := max(x.from, y.from), min(x.to, y.to, x.bound, y.bound)
	xs, ys := within(x.batches, from, to), within(y.batches, from, to)
	i, j := 0, 0
	for i < len(xs) && j < len(ys) {
		b, c := xs[i], ys[j]
		switch {
		case b.base == c.base:
			if b.last != c.last || b.epoch != c.epoch || b.sum != c.sum && !compacted {
				a.diverge(name, x, y, b, c)
				return
			}
			i, j = i+1, j+1
		case compacted || x.incomplete || y.incomplete:
			// One of them lacks a batch for a reason that is known.
			if b.base < c.base {
				i++
			} else {
				j++
			}
		default:
			a.diverge(name, x, y, b, c)
			return
		}
	}
	if i < len(xs) != (j < len(ys)) && !compacted && !x.incomplete && !y.incomplete {
		left, who := append(xs[i:], ys[j:]...)[0], y
		if i == len(xs) {
			who = x
		}
		a.report.flaw(Divergent, who.node, name, left.base, "%s lacks the batch [%d, %d]", who.who(), left.base, left.last)
	}
}

func (a *auditor) diverge(name string, x, y view, b, c span) {
	a.report.flaw(Divergent, y.node, name, min(b.base, c.base), "%s has [%d, %d] of epoch %d, sum %08x, %s has [%d, %d] of epoch %d, sum %08x",
		x.who(), b.base, b.last, b.epoch, b.sum, y.who(), c.base, c.last, c.epoch, c.sum)
}

// within are the batches that lie wholly in [from, to).
func within(all []span, from, to int64) []span {
	lo, _ := slices.BinarySearchFunc(all, from, func(s span, o int64) int { return cmp.Compare(s.base, o) })
	hi := lo
	for hi < len(all) && all[hi].last < to {
		hi++
	}
	return slices.Clone(all[lo:hi])
}
