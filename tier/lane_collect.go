package tier

import "github.com/varvelog/varve/tier/objstore"

const (
	collectRetryMillis    = 10 * 60_000
	collectRetryMillisMax = 6 * 3_600_000
)

// collectLane plans and starts orphan collections. One is planned only when an
// upload may have left an object behind (a failure, a lost answer, an earlier
// leader) and runs once the longest upload is over, so that a cluster where
// nothing goes wrong never lists its bucket.
func (p *partition) collectLane(c *core, now instant) {
	if c.cfg.noCollection || c.cfg.broken == mutantNoCollection {
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
	c.emit(fxCollect{p.ref(), p.epoch, c.cfg.lifetimeMillis(), c.cfg.collectMillis})
}

func (e evCollected) apply(c *core, now instant) {
	c.deleteSlots.release()
	p := c.find(e.answer)
	if p == nil {
		return
	}
	p.collecting = false
	switch {
	case isFenced(e.err):
		p.fence(c, now)
	case e.err != nil:
		p.watch.fail("collect", "", e.err, now)
		wait := min(int64(collectRetryMillis)<<min(p.collectRest.failures, 8), collectRetryMillisMax)
		p.collectRest.failures++
		p.collectAt = now.steady + wait
	default:
		p.collectRest.succeed()
		p.watch.succeed("collect")
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
