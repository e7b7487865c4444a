package tier

// An archive is kept for years, and most of it is read by nobody. A scrub looks at
// it in two ways. The survey compares the names and sizes of a listing with the
// manifest, which costs a request for each thousand objects (searchLane shares its
// listing). The reading, off by default because some stores charge for it, reads
// every object and compares checksums: one object at a time in the whole process,
// within a number of bytes a second and of requests a day.
//
// What either finds is a suspicion. mendLane looks into it.

// scrubber says whose archive is read next, and when.
type scrubber struct {
	queue []*partition
	timer timer
	busy  bool  // a piece is being read
	at    int64 // steady: nothing is read before
}

// planSurvey plans the first survey of a leadership, about when the first search for
// orphans comes, so that one listing may do.
func (p *partition) planSurvey(c *core, now instant) {
	if c.cfg.surveyMillis > 0 {
		p.planListing(c, &p.surveyAt, min(c.cfg.lifetimeMillis(), c.cfg.surveyMillis), c.cfg.surveyMillis, now)
	}
}

// surveyed plans the next survey: soon when there was too much to be looked into at once.
func (p *partition) surveyed(c *core, again bool, now instant) {
	if c.cfg.surveyMillis <= 0 {
		return
	}
	wait := c.about(c.cfg.surveyMillis)
	if again {
		wait = min(wait, surveySoonMillis)
	}
	p.surveyAt = now.steady + wait + 1
}

const surveySoonMillis = 3_600_000

// scrubLane joins those who wait to be read when a pass is due.
func (p *partition) scrubLane(c *core, now instant) {
	if c.cfg.readMillis <= 0 || p.scrubQueued || p.scrubbing || !p.archiveHolds() || !p.cfg.Enabled {
		return
	}
	if p.scrub.done {
		p.scrub.began = min(p.scrub.began, now.wall) // a clock that was set back
		if due := addMillis(p.scrub.began, c.cfg.readMillis); due > now.wall {
			p.wakeAtWall(due, now)
			return
		}
		p.scrub = scrubPlace{}
	}
	if p.scrubRest.resting(now.steady) {
		p.wakeAt(p.scrubRest.until)
		return
	}
	p.scrubQueued = true
	c.scrub.queue = append(c.scrub.queue, p)
	c.scrub.arm(c, now)
}

// arm sees to it that the next piece is read when the limits allow.
func (s *scrubber) arm(c *core, now instant) {
	if s.busy || len(s.queue) == 0 {
		return
	}
	if s.timer.fire == nil {
		s.timer.fire = func(now instant) { s.next(c, now) }
	}
	c.due.set(&s.timer, max(s.at, now.steady+1))
}

// next reads a piece of the first in line.
func (s *scrubber) next(c *core, now instant) {
	for len(s.queue) > 0 && !s.busy {
		p := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		p.scrubQueued = false
		if p.left || p.fenced || !p.archiveHolds() || !p.cfg.Enabled {
			continue
		}
		s.busy, p.scrubbing = true, true
		c.emit(fxScrub{p.ref(), p.scrub, c.cfg.callMillis})
	}
}

// charge says when the limits allow the next piece after what was read. A piece that
// failed counts as a request.
func (s *scrubber) charge(cfg *coreConfig, t readTally, now instant) {
	wait := int64(1)
	if cfg.scrubRate > 0 {
		wait = max(wait, t.bytes*1000/cfg.scrubRate)
	}
	if cfg.scrubPerDay > 0 {
		wait = max(wait, max(t.requests, 1)*86_400_000/cfg.scrubPerDay)
	}
	s.at = max(s.at, now.steady) + wait
}

// chargeRead charges what was read in between, to be sure of something.
func (s *scrubber) chargeRead(c *core, t readTally, now instant) {
	if t.requests > 0 {
		s.charge(&c.cfg, t, now)
		s.arm(c, now)
	}
}

func (e evScrubbed) apply(c *core, now instant) {
	c.scrub.busy = false
	c.scrub.charge(&c.cfg, e.got.read, now)
	p := c.find(e.answer)
	if p == nil {
		c.scrub.arm(c, now)
		return
	}
	p.scrubbing = false
	switch {
	case e.err != nil:
		// Nothing is known of the object. An outage is told by those who need the store.
		p.scrubRest.fail(now.steady, c.rng)
	default:
		p.scrubRest.succeed()
		p.scrub = e.got.next
		for _, id := range e.got.suspects {
			p.mistrust(c, id, now)
		}
		if p.scrub.at > 0 { // in the middle of an object: it is read to its end
			p.scrubQueued = true
			c.scrub.queue = append([]*partition{p}, c.scrub.queue...)
		}
	}
	p.advance(c, now)
	c.scrub.arm(c, now)
}
