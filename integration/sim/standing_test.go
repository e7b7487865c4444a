package sim

// standing asserts what must hold of every replica at every moment, whatever it
// is doing: of one broker in each step, of all in as many steps as there are brokers.
//
//   - "bounds": start, watermark and durable end lie within the log (25, 29, T1).
//   - "lineage": epochs and their starts rise strictly, and say of each record the
//     epoch it was written in (24).
//   - "matching": nobody else leads in the same epoch (2).
//   - "reads": what lies below its watermark is what was committed (25).
//   - "counted": a leader counts no more of a follower than is durable there (29).
func (o *oracle) standing(t *truth, b *broker) {
	l := b.logs[t.k]
	if l == nil {
		return
	}
	if l.logStart > l.end() || l.hw > l.end() || l.durable > l.end() || l.start > l.end() || l.hwSaved > l.hw {
		o.w.fail("bounds", "%s of %s on %s", l, t.name, b.name)
		return
	}
	if !l.chain.Valid() {
		o.w.fail("lineage", "epochs of %s on %s: %s", t.name, b.name, l.chain)
	}
	for _, off := range o.samples(l.localStart(), l.end()) {
		if got := l.chain.EpochAt(off); got != l.at(off).epoch {
			o.w.fail("lineage", "%s on %s: offset %d is of epoch %d, and its epochs %s say %d", t.name, b.name, off, l.at(off).epoch, l.chain, got)
			return
		}
	}
	r := b.replicas[t.k]
	if !b.up || r == nil || r.log != l {
		return
	}
	if r.leads {
		o.leadsAlone(t, r)
	}
	if t.open || r.epoch < t.since || t.since >= 0 && l.chain.Latest() < t.since {
		return // of a history that was given up, or not known yet
	}
	for _, off := range o.samples(max(l.localStart(), t.start), l.hw) {
		if off >= int64(len(t.ghost)) || l.at(off) != t.ghost[off] {
			o.w.fail("reads", "%s has %+v at %d of %s below its watermark, committed is %d", b.name, l.at(off), off, t.name, len(t.ghost))
			return
		}
	}
}

// samples are the last offset of a range and another one, by the step.
func (o *oracle) samples(from, to int64) []int64 {
	if from >= to {
		return nil
	}
	return []int64{to - 1, from + int64(o.w.steps)%(to-from)}
}

func (o *oracle) leadsAlone(t *truth, r *replica) {
	for _, b := range o.w.brokers {
		other := b.replicas[t.k]
		if !b.up || other == nil || other == r {
			continue
		}
		if other.leads && other.epoch == r.epoch {
			o.w.fail("matching", "%s and %s both lead %s in epoch %d", r.b.name, b.name, t.name, r.epoch)
		}
		// A disk that loses what it had synced is counted until the leader hears of its new start.
		l := b.logs[t.k]
		sure := o.w.cfg.fsync && o.w.cfg.faults&(faultWipe|faultRot) == 0 && t.leaders[r.epoch] == r.b.id && r.epoch == o.newestEpoch(t)
		if sure && l != nil && r.lead.End(b.id) > l.view(true, r.tiered).Counted {
			o.w.fail("counted", "%s counts %d of %s on %s, which has %s", r.b.name, r.lead.End(b.id), t.name, b.name, l)
		}
	}
}

// newestEpoch is the partition's leader epoch, as the quorum has it.
func (o *oracle) newestEpoch(t *truth) int32 {
	if _, p := o.w.quorum.newest().PartitionByID(t.k.id, t.k.index); p != nil {
		return p.LeaderEpoch
	}
	return -1
}
