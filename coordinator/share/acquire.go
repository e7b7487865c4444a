package share

// Want is what a member asks for.
type Want struct {
	Member     string
	RecordsMax int  // how many records at most; without Strict the batch that reaches it is handed out whole
	BatchSize  int  // a run of new records is not grown beyond the batch that reaches this size
	Strict     bool // share.acquire.mode=record_limit (KIP-1206): RecordsMax is never exceeded
}

// Acquire gives a member records of what was read from the log: batches, in order, everything that the log holds from an offset
// on (NextFetch gave it) to the last batch's end. What is not in them does not exist. The runs that the member now holds are
// appended to out.
func (p *Partition) Acquire(w Want, from int64, batches []Batch, now int64, out []Held) []Held {
	a := acquisition{p: p, want: w, left: w.RecordsMax, now: now, out: out, mine: len(out)}
	a.room = max(p.limits.LocksMax-p.InFlight(), 0)
	at := max(from, p.start)
	for _, b := range batches {
		if b.First > at {
			p.skip(at, b.First-1)
		}
		first := max(b.First, at)
		if b.Last < first {
			continue
		}
		if b.Skip {
			p.skip(first, b.Last)
		} else if !a.batch(first, b.Last) {
			break
		}
		at = b.Last + 1
	}
	return a.out
}

// skip archives what is no record and is not done already.
func (p *Partition) skip(first, last int64) {
	p.edit(first, last, nil, func(r *run) {
		if r.state == Available && r.round == 0 {
			p.change(r, slot{state: Archived, reason: notARecord, deliveries: r.deliveries})
		}
	})
	if last < p.next || first > p.next {
		return
	}
	r := run{first: p.next, last: last}
	p.change(&r, slot{state: Archived, reason: notARecord})
	p.runs = push(p.runs, r)
	p.next = last + 1
}

// acquisition is one Acquire under way.
type acquisition struct {
	p    *Partition
	want Want
	left int // records that the member may still get
	room int // records that the window may still take
	now  int64
	out  []Held
	mine int // where this acquisition's runs begin in out
	here int // where those of the batch at hand begin
	stop bool
}

// batch hands out what is available of one batch; false: that was the last.
func (a *acquisition) batch(first, last int64) bool {
	p := a.p
	if a.left <= 0 {
		return false
	}
	end := p.next // edit must not see what is new
	a.here = len(a.out)
	p.edit(first, min(last, end-1), a.cut, a.again)
	if last >= end && !a.stop && a.left > 0 && first <= end {
		a.fresh(end, last)
	}
	return !a.stop && (a.left > 0)
}

// cut says how much of the stretch at an offset may be handed out.
func (a *acquisition) cut(offset int64) int64 {
	r := &a.p.runs[a.p.find(offset)]
	if r.state != Available || r.round != 0 || a.stop {
		return r.last
	}
	n := r.last - offset + 1
	if a.want.Strict {
		n = min(n, int64(max(a.left, 1)))
	}
	if t := a.throttled(r); t > 0 {
		n = min(n, t)
	}
	return offset + n - 1
}

// throttled is how many records of a run that was delivered too often may be handed out together; 0: as many as there are.
// At half of the limit that is half of the run, then a quarter of it, and so on; on the last attempt it is one.
func (a *acquisition) throttled(r *run) int64 {
	most := a.p.limits.DeliveriesMax
	half := max(2, (most+1)/2)
	if r.deliveries < half {
		return 0
	}
	if r.deliveries >= most-1 {
		return 1
	}
	return max(1, r.size()>>(r.deliveries-half+1))
}

// again hands out a stretch that was given back, or was passed over.
func (a *acquisition) again(r *run) {
	if r.state != Available || r.round != 0 || a.stop {
		return
	}
	if a.left <= 0 && a.want.Strict {
		return
	}
	if a.throttled(r) > 0 {
		a.stop = true // nothing goes with it
		if len(a.out) > a.mine {
			return // and it does not go with others
		}
	}
	r.slot = a.held(r.deliveries + 1)
	a.left -= int(r.size())
	if k := len(a.out) - 1; k >= a.mine && (!r.head || k >= a.here) && a.out[k].Last+1 == r.first && a.out[k].Deliveries == r.deliveries {
		r.head = false
		a.out[k].Last = r.last // of the same batch, or handed out together before
		return
	}
	r.head = true
	a.out = append(a.out, Held{First: r.first, Last: r.last, Deliveries: r.deliveries})
}

func (a *acquisition) held(deliveries int16) slot {
	return slot{state: Acquired, deliveries: deliveries, member: a.want.Member, deadline: a.now + a.p.limits.LockMillis}
}

// fresh hands out records that nobody had before.
func (a *acquisition) fresh(first, last int64) {
	p := a.p
	n := last - first + 1
	if a.want.Strict {
		n = min(n, int64(a.left))
	}
	if n = min(n, int64(a.room)); n <= 0 {
		a.stop = true
		return
	}
	if first+n-1 < last {
		a.stop = true
		last = first + n - 1
	}
	r := run{first: first, last: last, slot: a.held(1)}
	if k := len(a.out) - 1; k >= a.mine && a.out[k].Last+1 == first && a.out[k].Deliveries == 1 && a.out[k].Last-a.out[k].First+1 < int64(a.want.BatchSize) {
		a.out[k].Last = last
	} else {
		a.out = append(a.out, Held{First: first, Last: last, Deliveries: 1})
		r.head = true
	}
	p.runs = push(p.runs, r)
	p.next = last + 1
	a.left -= int(n)
	a.room -= int(n)
}
