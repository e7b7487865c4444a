package share

// TakeWrite is what must be made durable now, if there is anything and nothing is being written already. The batches are valid
// until the next call. Written must follow.
func (p *Partition) TakeWrite() (w Write, round uint64, ok bool) {
	if p.flying != 0 || !p.pending && p.start == p.startSaid {
		return Write{}, 0, false
	}
	p.flying, p.open, p.pending = p.open, p.open+1, false
	written := func(r *run) bool { return r.round == 0 || r.round == p.flying }
	i, start := 0, p.start
	for i < len(p.runs) && p.runs[i].state.done() && written(&p.runs[i]) {
		start = p.runs[i].last + 1
		i++
	}
	complete := int64(0)
	p.writes = p.writes[:0]
	for ; i < len(p.runs); i++ {
		r := &p.runs[i]
		if r.state.done() && written(r) {
			complete += r.size()
		}
		if r.round != p.flying {
			continue
		}
		d := Done{First: r.first, Last: r.last, State: r.state, Deliveries: r.deliveries}
		if n := len(p.writes); n > 0 && p.writes[n-1].Last+1 == d.First && p.writes[n-1].State == d.State && p.writes[n-1].Deliveries == d.Deliveries {
			p.writes[n-1].Last = d.Last
		} else {
			p.writes = append(p.writes, d)
		}
	}
	p.flyStart = start
	return Write{Start: start, Complete: int32(complete), Batches: p.writes}, p.flying, true
}

// Written says what came of the write that TakeWrite gave. If it failed, or nobody knows, its records are what they were
// before: whoever was to be answered is not, and may say it again.
func (p *Partition) Written(ok bool, now int64) {
	runs := p.runs[:0]
	for _, r := range p.runs {
		if r.round == p.flying {
			if !ok && r.was.state == Archiving && r.state == Archived {
				r.round, p.pending = p.open, true // its dead letter is out: only that is to be said again
				runs = push(runs, r)
				continue
			}
			if !ok {
				r.slot = r.was
			}
			r.was, r.round = slot{}, 0
		}
		runs = push(runs, r)
	}
	clear(p.runs[len(runs):])
	p.runs = runs
	p.flying = 0
	if ok {
		p.startSaid = max(p.startSaid, p.flyStart)
	}
	p.advance()
	p.compact()
}

// Flying is the round that is being written; 0: none is.
func (p *Partition) Flying() uint64 { return p.flying }

// Fresh says that the start of a new share-partition was never written, so that the next write is about that.
func (p *Partition) Fresh() { p.startSaid = -1 }

// DeadLetters appends the records whose dead letters are to be produced, and that nobody is producing yet, to out. Buried or
// Unburied must follow for each.
func (p *Partition) DeadLetters(out []DeadLetter) []DeadLetter {
	for i := range p.runs {
		if r := &p.runs[i]; r.state == Archiving && r.round == 0 && !r.handed {
			r.handed = true
			out = append(out, DeadLetter{First: r.first, Last: r.last, Deliveries: r.deliveries, Reason: r.reason})
		}
	}
	return out
}

// Buried says that dead letters are durable: their records are archived with the next write.
func (p *Partition) Buried(first, last int64) {
	p.edit(first, last, nil, func(r *run) {
		if r.state == Archiving && r.round == 0 {
			p.change(r, slot{state: Archived, deliveries: r.deliveries, reason: r.reason})
		}
	})
}

// Unburied says that dead letters could not be produced: they are to be tried again.
func (p *Partition) Unburied(first, last int64) {
	p.edit(first, last, nil, func(r *run) { r.handed = false })
}
