package tier

// deletesPerPartition bounds the delete calls of one partition in flight.
const deletesPerPartition = 4

// deleteLane deletes marked objects when their grace is over. It shares nothing
// with the copy lane but the manifest: deletes never hold up uploads.
func (p *partition) deleteLane(c *core, now instant) {
	p.deleteReady = false
	if p.remote.Marked == 0 {
		p.marked, p.marks = nil, nil
		return
	}
	if !p.markedKnown {
		p.readMarked(c, now)
		return
	}
	batch := make([]Marked, 0)
	for _, m := range p.marked {
		if p.deleting[m.MarkID] {
			continue
		}
		due, ok := p.deletable(c, m, now)
		if !ok {
			p.wakeAt(due)
			break
		}
		batch = append(batch, m)
		if len(batch) == c.cfg.deleteBatch {
			if !p.startDelete(c, batch, now) {
				return
			}
			batch = batch[:0]
		}
	}
	if len(batch) > 0 {
		p.startDelete(c, batch, now)
	}
}

// deletable says whether the grace of m is over, on the steady clock since this
// leader has known of it. That is never before the grace since it was marked, and
// no clock that was set can cut it short.
//
// A new leader waits anew. To subtract the mark's age by the wall clock would be
// wrong: the mark was stamped by another process's clock, and if that was behind,
// or ours is ahead, by no more than the grace, there is no age left to wait for,
// and readers lose what they were promised (T5; reliability.md, clock jump). A
// floor does not help, as it is then the grace; nor can the two clocks be compared
// afterwards. The price is small: objects nobody reads stay a while longer when
// leaders change more often than once in a grace, and only a head that is full of
// marks waits for them.
func (p *partition) deletable(c *core, m Marked, now instant) (due int64, ok bool) {
	if c.cfg.broken == mutantNoGrace {
		return 0, true
	}
	seen := now.steady
	for _, s := range p.marks {
		if m.At <= s.markedAt {
			seen = s.seen
			break
		}
	}
	due = seen + c.cfg.graceMillis
	if c.cfg.broken == mutantWallGrace {
		age := now.wall - (now.steady - seen) - m.At
		due = seen + min(c.cfg.graceMillis, max(c.cfg.graceMillis/15, c.cfg.graceMillis-age))
	}
	return due, due <= now.steady
}

func (p *partition) startDelete(c *core, batch []Marked, now instant) bool {
	p.deleteReady = true
	if p.deleteRest.resting(now.steady) {
		p.wakeAt(p.deleteRest.until)
		return false
	}
	if p.deletes >= deletesPerPartition || p.deletes > 0 && p.deleteRest.failures > 0 {
		return false
	}
	if !p.claimLane(c, now) || !c.deleteSlots.take(p, p.deletes) {
		return false
	}
	if p.deleting == nil {
		p.deleting = map[MarkID]bool{}
	}
	fx := fxDelete{ref: p.ref(), timeoutMillis: c.cfg.callMillis}
	for _, m := range batch {
		fx.ids = append(fx.ids, m.MarkID)
		fx.keys = append(fx.keys, m.Key)
		p.deleting[m.MarkID] = true
	}
	p.deletes++
	c.emit(fx)
	return true
}

func (p *partition) readMarked(c *core, now instant) {
	if p.markedReading || p.committing != nil {
		return
	}
	if p.callRest.resting(now.steady) {
		p.wakeAt(p.callRest.until)
		return
	}
	if !c.callSlots.take(p, 0) {
		return
	}
	p.markedReading = true
	c.emit(fxMarked{p.ref(), c.cfg.callMillis})
}

func (e evMarked) apply(c *core, now instant) {
	c.callSlots.release()
	p := c.find(e.answer)
	if p == nil {
		return
	}
	p.markedReading = false
	if e.err != nil {
		p.callFailed(c, "read manifest", e.err, now)
		p.advance(c, now)
		return
	}
	p.callRest.succeed()
	p.watch.succeed("read manifest")
	if p.committing != nil || e.state.Sequence < p.remote.Sequence {
		p.advance(c, now) // a list of another manifest: read again
		return
	}
	p.marked, p.markedKnown = e.marked, true
	for _, m := range e.marked {
		p.lastMark = max(p.lastMark, m.At)
	}
	if n := len(p.marks); len(e.marked) > 0 && (n == 0 || p.marks[n-1].markedAt < p.lastMark) {
		p.marks = append(p.marks, markSeen{p.lastMark, now.steady})
	}
	p.dropOldMarks()
	p.advance(c, now)
}

// dropOldMarks forgets sightings that no remaining mark needs.
func (p *partition) dropOldMarks() {
	for len(p.marks) > 1 && (len(p.marked) == 0 || p.marked[0].At > p.marks[0].markedAt) {
		p.marks = p.marks[1:]
	}
}

func (e evDeleted) apply(c *core, now instant) {
	c.deleteSlots.release()
	p := c.find(e.answer)
	if p == nil {
		return
	}
	p.deletes--
	if e.err != nil {
		p.watch.fail("delete", e.key, e.err, now)
		p.deleteRest.fail(now.steady, c.rng)
		for _, id := range e.ids {
			delete(p.deleting, id)
		}
	} else {
		p.deleteRest.succeed()
		p.watch.succeed("delete")
		p.watch.moved(now)
		p.purge = append(p.purge, e.ids...)
	}
	p.advance(c, now)
}
