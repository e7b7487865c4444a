package hot

import (
	"errors"
	"maps"
	"slices"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
)

// sentBatch is a producer's batch as it was sent, and where it went.
type sentBatch struct {
	bytes      batch.Batch // offsets not assigned
	base, last int64
}

// txnEvent is a batch that begins or continues a transaction, or ends it.
type txnEvent struct {
	id         int64
	base, last int64
	marker     bool
	abort      bool
}

// promise is what a log must still have after a crash now.
type promise struct {
	durable  int64 // offsets below are acknowledged
	start    int64 // log start that was acknowledged
	startMax int64 // log start must not be above
	localMax int64 // local start must not be above
	want     map[int64][]byte
	end      int64 // of want
	kill     bool  // the process died, not the machine: the kernel has everything
	any      bool  // the log was being replaced as a whole: any state goes
	cached   bool  // power went, and records counted once they were in the page cache
	chain    lineage.Chain
	epochs   bool // an epoch was being assigned
	sent     map[int64][]sentBatch
	events   []txnEvent
	inflight batch.Batch // being appended, nil none
	first    bool        // nothing was appended since the crash
}

func cloneSent(m map[int64][]sentBatch) map[int64][]sentBatch {
	out := map[int64][]sentBatch{}
	for id, list := range m {
		out[id] = slices.Clone(list)
	}
	return out
}

func (c *crashLog) promise(kill, replicated bool) promise {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := promise{
		start: c.starts, startMax: max(c.starts, c.starting), kill: kill, any: c.resetting,
		chain: c.chain.Clone(), epochs: c.assigning, sent: cloneSent(c.sent), events: slices.Clone(c.events),
		inflight: c.inflight, end: c.end,
	}
	if c.log == nil {
		p.startMax, p.localMax = 1<<62, 1<<62
		return p
	}
	p.localMax = p.startMax
	if lc := c.log.Config(); lc.offloads() {
		p.localMax = max(p.localMax, c.remote)
	} else if lc.RetentionMillis >= 0 {
		p.startMax = max(p.startMax, c.log.HighWatermark())
		p.localMax = p.startMax
	}
	p.localMax = max(p.localMax, c.resetAt)
	if !c.log.Config().offloads() {
		p.startMax = max(p.startMax, c.resetAt)
	}
	p.durable = min(c.log.Offsets().Durable, c.end)
	switch {
	case kill:
		p.durable = c.end
	case replicated:
		// Of names that were not synced a later one may be all that is left.
		p.durable, p.start, p.startMax, p.localMax, p.any = 0, 0, 1<<62, 1<<62, true
		p.cached = true
	}
	if c.cutAt >= 0 {
		p.durable = min(p.durable, c.cutAt)
		p.epochs = true
	}
	if c.resetting {
		p.durable, p.startMax, p.localMax = 0, 1<<62, 1<<62
	}
	p.want = maps.Clone(c.want)
	return p
}

// txnsAt replays the transactions as of end.
func (p *promise) txnsAt(end int64) (open map[int64]int64, aborted []batch.AbortedTxn) {
	open = map[int64]int64{}
	for _, e := range p.events {
		if e.last >= end {
			break
		}
		first, ok := open[e.id]
		switch {
		case !e.marker && !ok:
			open[e.id] = e.base
		case e.marker:
			if ok && e.abort {
				aborted = append(aborted, batch.AbortedTxn{ProducerID: e.id, FirstOffset: first, LastOffset: e.last})
			}
			delete(open, e.id)
		}
	}
	return open, aborted
}

// verifyTxns compares open and aborted transactions and the last stable
// offset with what was written. A batch that was being appended may be there.
func (r *crashRun) verifyTxns(c *crashLog, l *Log, p *promise) {
	o := l.Offsets()
	if o.End > p.end {
		return // the batch under way was kept: its effect is covered by goOn
	}
	open, aborted := p.txnsAt(o.End)
	first := o.End
	for _, at := range open {
		first = min(first, at)
	}
	l.SetHighWatermark(o.End)
	if got := l.LastStable(); got != first {
		r.fatalf("%s: last stable offset %d, the transactions say %d (end %d)", c.part, got, first, o.End)
	}
	ps, err := l.Producers()
	r.check(err)
	if got := l.LastStable(); got != first {
		r.fatalf("%s: last stable offset %d once producers are loaded, the transactions say %d (end %d)", c.part, got, first, o.End)
	}
	got := map[int64]int64{}
	for _, s := range ps {
		if s.TxnStart >= 0 {
			got[s.ProducerID] = s.TxnStart
		}
	}
	if !maps.Equal(got, open) {
		r.fatalf("%s: open transactions %v, sent were %v (end %d)", c.part, got, open, o.End)
	}
	aborted = slices.DeleteFunc(aborted, func(t batch.AbortedTxn) bool { return t.LastOffset < o.LocalStart })
	list, err := l.AbortedTxns(o.LocalStart, o.End)
	r.check(err)
	for i := range list {
		list[i].LastStable = 0
	}
	if l.Config().Compact {
		// Entries go with their data; those of data that is there must stay.
		data := map[int64][]int64{}
		for _, b := range readAll(r.t, l, 1<<20) {
			if b.Transactional() && !b.Control() && b.Count() > 0 {
				data[b.ProducerID()] = append(data[b.ProducerID()], b.BaseOffset())
			}
		}
		aborted = slices.DeleteFunc(aborted, func(t batch.AbortedTxn) bool {
			return !slices.ContainsFunc(data[t.ProducerID], func(at int64) bool { return at >= t.FirstOffset && at < t.LastOffset })
		})
		list = slices.DeleteFunc(list, func(t batch.AbortedTxn) bool { return !slices.Contains(aborted, t) })
		// A swap that was interrupted leaves entries twice: harmless to readers.
		slices.SortFunc(list, func(a, b batch.AbortedTxn) int { return int(a.LastOffset - b.LastOffset) })
		list = slices.Compact(list)
	}
	if !slices.Equal(list, aborted) {
		r.fatalf("%s: aborted transactions %+v, sent were %+v (local %d to %d)", c.part, list, aborted, o.LocalStart, o.End)
	}
}

// verifyChain compares leader epochs with those assigned. The last may have
// been assigned at the end, with nothing written in it yet; only a kill must
// keep it.
func (r *crashRun) verifyChain(c *crashLog, l *Log, p *promise) {
	o := l.Offsets()
	end := min(o.End, p.end)
	got, want := l.Lineage(), p.chain
	if p.kill && !p.epochs && p.inflight == nil && end > o.LogStart && got.Latest() != want.Latest() {
		r.fatalf("%s: leader epochs %v, assigned were %v", c.part, got, want)
	}
	norm := func(c lineage.Chain) lineage.Chain { return c.TruncateEnd(end).TruncateStart(o.LogStart) }
	if end > o.LogStart && !norm(got).Equal(norm(want)) {
		r.fatalf("%s: leader epochs %v, assigned were %v (log %d to %d)", c.part, got, want, o.LogStart, end)
	}
}

// retry sends every producer's last batches once more, in order, as a client
// does that did not see the answers. What is in the log is answered as the
// duplicate it is, with its offset; what power loss took is appended once. It
// returns what is in the log now.
func (r *crashRun) retry(c *crashLog, l *Log, p *promise) map[int64][]sentBatch {
	o := l.Offsets()
	seen := map[int64]batch.Batch{}
	for _, b := range readAll(r.t, l, 1<<20) {
		seen[b.BaseOffset()] = b
	}
	epoch := max(l.LatestEpoch(), 0)
	out := map[int64][]sentBatch{}
	for _, id := range slices.Sorted(maps.Keys(p.sent)) {
		list := p.sent[id]
		if b := p.inflight; b != nil && b.ProducerID() == id && !b.Control() && o.End > p.end {
			list = append(slices.Clone(list), sentBatch{b, p.end, p.end + int64(b.LastOffsetDelta())})
		}
		if len(list) > batchesKept {
			list = list[len(list)-batchesKept:]
		}
		known := false // one of them was there
		for i, s := range list {
			present := s.last < p.durable || l.Config().Compact && s.last < min(o.End, p.end) // perhaps compacted away
			if got := seen[s.base]; !present && got != nil {
				present = got.ProducerID() == id && got.BaseSequence() == s.bytes.BaseSequence() && got.CRC() == s.bytes.CRC()
			}
			known = known || present
			unsure := !present && s.base < o.LocalStart // trimmed without having been promised
			b := slices.Clone(s.bytes)
			a, err := l.Append(b, AppendOptions{LeaderEpoch: epoch, Now: r.now, TxnVerified: true})
			switch {
			case present && l.Config().Compact && i+1 < len(list) && errors.Is(err, ErrOutOfOrderSequence) && !p.kill:
				continue // compacted; after power loss only the last is surely known
			case present && (err != nil || !a.Duplicate || a.BaseOffset != s.base):
				r.fatalf("%s: retry of batch %d of %d of producer %d, acknowledged at offset %d, got %+v, %v (local %d to %d, durable %d)",
					c.part, i+1, len(list), id, s.base, a, err, o.LocalStart, o.End, p.durable)
			case !present && !known && errors.Is(err, ErrOutOfOrderSequence):
				continue // older ones, no longer remembered, were lost too
			case !present && !unsure && (err != nil || a.Duplicate):
				r.fatalf("%s: retry of batch %d of %d of producer %d, lost from offset %d, got %+v, %v (local %d to %d, durable %d)",
					c.part, i+1, len(list), id, s.base, a, err, o.LocalStart, o.End, p.durable)
			case err != nil:
				continue
			}
			s.base, s.last = a.BaseOffset, a.LastOffset
			if a, err = l.Append(slices.Clone(s.bytes), AppendOptions{LeaderEpoch: epoch, Now: r.now, TxnVerified: true}); err != nil || !a.Duplicate || a.BaseOffset != s.base {
				r.fatalf("%s: second retry of producer %d got %+v, %v; its offset is %d", c.part, id, a, err, s.base)
			}
			out[id] = append(out[id], s)
		}
	}
	return out
}

// retryAgain is for a log that was closed cleanly since: nothing is new.
func (r *crashRun) retryAgain(c *crashLog, l *Log, sent map[int64][]sentBatch) {
	for _, id := range slices.Sorted(maps.Keys(sent)) {
		for _, s := range sent[id] {
			a, err := l.Append(slices.Clone(s.bytes), AppendOptions{LeaderEpoch: max(l.LatestEpoch(), 0), Now: r.now, TxnVerified: true})
			if err != nil || !a.Duplicate || a.BaseOffset != s.base {
				r.fatalf("%s: after a clean close, retry of producer %d at offset %d got %+v, %v", c.part, id, s.base, a, err)
			}
		}
	}
}
