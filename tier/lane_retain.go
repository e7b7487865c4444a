package tier

// retainLane decides how far the log start may rise, and lets the archive go when
// tiering was switched off. It deletes nothing on an unknown or stale state: a
// decision is acted on only under our own claim.
func (p *partition) retainLane(c *core, now instant) {
	if p.committing != nil || p.started {
		return
	}
	if !p.cfg.Enabled {
		p.dropArchive(c, now)
		return
	}
	if p.remote.Dropped {
		return // switched on again before the last segment was marked
	}
	p.wantDrop = false
	if !p.retentionMayBite() {
		p.wantStart = -1
		return
	}
	if p.archiveHolds() && !p.oldestKnown {
		p.readOldest(c, now)
		return
	}
	sizeLimit := p.cfg.RetentionBytes
	if p.unmarked {
		sizeLimit = -1
	}
	out := retain(retainInput{
		wall: now.wall, millis: p.cfg.RetentionMillis, bytes: sizeLimit,
		logStart: p.log.LogStart, start: p.remote.Start, end: p.remote.End, rawBytes: p.remote.RawBytes,
		oldest: p.oldest, oldestComplete: p.oldestComplete || !p.archiveHolds(),
		local: p.log.sealed, activeBase: p.log.ActiveBase, activeBytes: p.log.ActiveBytes, stable: p.log.stable(),
		highWatermark: p.log.HighWatermark, logEnd: p.log.End, broken: c.cfg.broken,
	})
	if out.more && p.window < oldestWindow {
		p.window = min(p.window*4, oldestWindow)
		p.oldestKnown = false
		p.readOldest(c, now)
		return
	}
	if out.nextDue > 0 {
		p.wakeAtWall(out.nextDue, now)
	}
	if out.start < 0 {
		p.wantStart = -1
		p.shrinkWindow()
		return
	}
	if !p.claimLane(c, now) {
		// Decide again on what the claim reads. But while the store is away, what is
		// past retention may go locally, or the outage would fill the disk with expired
		// data (KAFKA-19952). The start is committed later.
		if p.held && p.callRest.failures > 0 {
			p.advanceStart(c, out.start, now)
		}
		return
	}
	if p.remote.End < 0 || c.cfg.broken == mutantStartNotCommitted {
		p.wantStart = -1
		p.advanceStart(c, out.start, now) // nothing was ever archived
		return
	}
	p.wantStart = out.start
}

// archiveHolds: the archive has live segments.
func (p *partition) archiveHolds() bool { return p.remote.End >= 0 && p.remote.Start < p.remote.End }

// retentionMayBite is a cheap test that spares most partitions the look into the
// archive's oldest segments.
func (p *partition) retentionMayBite() bool {
	if p.cfg.RetentionMillis >= 0 {
		return true
	}
	if p.remote.End >= 0 && p.log.LogStart > p.remote.Start {
		return true
	}
	if p.cfg.RetentionBytes < 0 {
		return false
	}
	total := p.remote.RawBytes + p.log.ActiveBytes
	for _, s := range p.log.sealed {
		total += s.bytes
	}
	return total >= p.cfg.RetentionBytes
}

// shrinkWindow keeps one segment: the next that can expire. Ten thousand
// partitions must not each hold a list.
func (p *partition) shrinkWindow() {
	p.window = 1
	if len(p.oldest) > 1 {
		p.oldest = append([]RemoteSegment(nil), p.oldest[0])
		p.oldestComplete = false
	}
}

func (p *partition) readOldest(c *core, now instant) {
	if p.oldestReading {
		return
	}
	if p.callRest.resting(now.steady) {
		p.wakeAt(p.callRest.until)
		return
	}
	if !c.callSlots.take(p, 0) {
		return
	}
	p.oldestReading = true
	c.emit(fxOldest{p.ref(), max(p.window, 1), c.cfg.callMillis})
}

func (e evOldest) apply(c *core, now instant) {
	c.callSlots.release()
	p := c.find(e.answer)
	if p == nil {
		return
	}
	p.oldestReading = false
	switch {
	case e.err != nil:
		p.callFailed(c, "read manifest", e.err, now)
	case p.committing != nil || e.state.Sequence < p.remote.Sequence:
		// Another manifest than the one decisions are made on: read again.
	default:
		p.callRest.succeed()
		p.watch.succeed("read manifest")
		// The list and the sizes must be of one manifest, or bytes count twice: a
		// commit whose answer was lost may have moved it on.
		if e.state.Sequence > p.remote.Sequence {
			p.learn(e.state)
			p.dropMisfits(c)
		}
		p.oldest, p.oldestKnown, p.oldestComplete = e.segments, true, e.complete
		p.trimOldest(p.remote.Start)
	}
	p.advance(c, now)
}

// dropArchive empties the archive after remote.storage.enable was switched off
// with remote.log.delete.on.disable: the log then begins where its local part
// does, and all of the archive goes (KIP-950).
func (p *partition) dropArchive(c *core, now instant) {
	p.wantStart = -1
	if p.remote.End < 0 || p.remote.Dropped || p.dirty || p.looking {
		return // only on a view that was taken after the log let go of the archive
	}
	if p.log.LogStart < p.log.LocalStart {
		p.advanceStart(c, p.log.LocalStart, now)
		return
	}
	if p.claimLane(c, now) {
		p.wantDrop = p.remote.End >= 0 && !p.remote.Dropped
	}
}
