package tier

import "github.com/varvelog/varve/tier/objstore"

const (
	collectRetryMillis    = 10 * 60_000
	collectRetryMillisMax = 6 * 3_600_000
)

// collectLane plans and starts orphan collections. One is planned when an upload
// may have left an object behind (a failure, a lost answer, an earlier leader) and
// runs once the longest upload is over. What no leader knows of is found by the
// search.
func (p *partition) collectLane(c *core, now instant) {
	if c.cfg.broken == mutantNoCollection {
		return
	}
	p.searchLane(c, now)
	if c.cfg.noCollection {
		return
	}
	if p.suspect && p.collectAt == 0 {
		wait := c.cfg.lifetimeMillis()
		if c.cfg.broken == mutantCollectYoung {
			wait, p.suspect = 500, true
		}
		p.collectAt = now.steady + wait + int64(float64(wait)*0.1*c.rng.Float64()) + 1
	}
	p.suspect = p.suspect && p.collectAt == 0
	if p.collectAt == 0 || p.collecting {
		return
	}
	if p.collectAt > now.steady {
		p.wakeAt(p.collectAt)
		return
	}
	// A conditional PUT that may still be on its way could commit an object that
	// a collection has just found unreferenced. The next commit fences it.
	if p.unsettled || !p.claimLane(c, now) || !c.deleteSlots.take(p, p.deletes) {
		return
	}
	p.collecting, p.collectAt = true, 0
	c.emit(fxCollect{ref: p.ref(), epoch: p.epoch, orphans: true,
		lifetimeMillis: c.cfg.lifetimeMillis(), timeoutMillis: c.cfg.collectMillis})
}

// wantsCollection: a search or a collection is due, or will be planned.
func (p *partition) wantsCollection(now instant) bool {
	return p.suspect || p.collectAt != 0 || p.searchAt != 0 && p.searchAt <= now.steady || p.surveyAt != 0 && p.surveyAt <= now.steady
}

// planSearch plans the first search of a leadership, when uploads of the leader
// before are over.
func (p *partition) planSearch(c *core, now instant) {
	if c.cfg.searchMillis > 0 && !c.cfg.noCollection {
		p.planListing(c, &p.searchAt, c.cfg.lifetimeMillis(), c.cfg.searchMillis, now)
	}
}

// planListing plans the first listing of a kind. Many leaderships begin at once: they
// are spread over a seventh of the interval, after the wait.
func (p *partition) planListing(c *core, at *int64, wait, interval int64, now instant) {
	if p.log.End == 0 {
		return
	}
	if *at == 0 && !p.searching {
		*at = now.steady + wait + c.rng.Int64N(interval/7+1) + 1
	}
	if *at > now.steady {
		p.wakeAt(*at)
	}
}

// searchLane looks for objects that nobody suspects: a leader before this one left
// them and there has been nothing to commit since, or it was cut off, and went on
// uploading after a collection had passed. It costs a list request for each thousand
// objects and needs no claim, so that a partition that is never written to again is
// not made to write its manifest. What is found is removed by a collection, which
// claims and waits.
func (p *partition) searchLane(c *core, now instant) {
	orphans := p.searchAt != 0 && p.searchAt <= now.steady && c.cfg.broken != mutantNoSearch
	survey := p.surveyAt != 0 && p.surveyAt <= now.steady
	if !orphans && !survey || p.searching || p.collecting {
		return
	}
	if !c.deleteSlots.take(p, p.deletes) {
		return
	}
	// A listing that is made anyway serves both.
	orphans = orphans || p.searchAt != 0 && p.searchAt-now.steady < c.cfg.searchMillis/2 &&
		now.steady-p.entered > c.cfg.lifetimeMillis() && c.cfg.broken != mutantNoSearch
	survey = survey || p.surveyAt != 0 && p.surveyAt-now.steady < c.cfg.surveyMillis/2
	p.searching = true
	if orphans {
		p.searchAt = 0
	}
	if survey {
		p.surveyAt = 0
	}
	c.emit(fxCollect{ref: p.ref(), epoch: p.epoch, search: true, orphans: orphans, survey: survey,
		lifetimeMillis: c.cfg.lifetimeMillis(), timeoutMillis: c.cfg.collectMillis})
}

// searched plans the next search.
func (p *partition) searched(c *core, now instant) {
	if c.cfg.searchMillis > 0 {
		p.searchAt = now.steady + c.about(c.cfg.searchMillis) + 1
	}
}

// about is an interval, up to a tenth shorter or longer.
func (c *core) about(millis int64) int64 { return int64(float64(millis) * (0.9 + 0.2*c.rng.Float64())) }

func (e evCollected) apply(c *core, now instant) {
	c.deleteSlots.release()
	p := c.find(e.answer)
	if p == nil {
		return
	}
	if e.search {
		p.searching = false
		if e.orphans {
			p.searched(c, now)
		}
		if e.survey {
			again := e.again || e.err != nil
			if !again {
				again = p.mistrustAll(c, e.absent, now)
			}
			p.surveyed(c, again, now)
		}
	} else {
		p.collecting = false
	}
	switch {
	case e.search && e.err != nil:
		// Nothing is known to be there: the next search is soon enough, and an outage
		// of the store is told by those who need it.
	case isFenced(e.err):
		p.fence(c, now)
	case e.err != nil:
		p.watch.fail("collect", "", e.err, now)
		wait := min(int64(collectRetryMillis)<<min(p.collectRest.failures, 8), collectRetryMillisMax)
		p.collectRest.failures++
		p.collectAt = now.steady + wait
	case e.search:
		p.suspect = p.suspect || e.left
	default:
		p.collectRest.succeed()
		p.watch.succeed("collect")
		p.searched(c, now)
		if e.left {
			p.suspect = true
		}
	}
	p.advance(c, now)
}

// orphanCandidates picks, from a listing of a partition's prefix, the objects
// that a collection may ask the manifest about: not known to be named, old enough
// that no upload can still commit them, of an epoch that is not above ours, and
// not this process's own unsettled uploads. young tells that others remain that
// are not old enough yet.
func orphanCandidates(cfg Config, listed []objstore.Object, own map[string]bool, known map[SegmentID]bool,
	epoch int32, nowWall, lifetimeMillis int64, broken mutant) (keys []string, young bool) {
	for _, o := range listed {
		info, ok := cfg.ParseKey(o.Key)
		// Strangers' objects and the head are none of its business.
		if !ok || info.Kind == KeyHead || own[o.Key] || info.ID.Epoch > epoch {
			continue
		}
		if info.Kind == KeySegment && known[info.ID] {
			continue
		}
		if nowWall-o.Modified.UnixMilli() <= lifetimeMillis && broken != mutantCollectYoung {
			young = true
			continue
		}
		keys = append(keys, o.Key)
	}
	return keys, young
}
