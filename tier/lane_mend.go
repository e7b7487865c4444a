package tier

import (
	"errors"
	"math"
	"slices"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier/objstore"
)

// What a survey, a scrub or a reader suspects is examined: read through, against a
// manifest that was read first. What is missing or damaged then is named, and mended
// from the leader's local log, if that still has the whole range, of the same leader
// epochs: a new object is put, read back, and committed in the place of the old one,
// which is marked by the same edit (T15). What cannot be mended stays named, and is
// looked at again: somebody may put it back. Nothing is ever deleted here.

type doubtState uint8

const (
	doubtQueued  doubtState = iota // to be examined
	doubtDamaged                   // it is missing or damaged
	doubtMended                    // its replacement is in the store, and to be committed
	doubtCleared                   // it was sound a moment ago
)

// doubtful is an object that the manifest names and that is not what it should be,
// or may not be.
type doubtful struct {
	object MarkID
	state  doubtState
	busy   bool  // an examination, or mending, is on its way
	wants  bool  // to be mended: examined since it was last tried
	heard  int64 // steady
	due    int64 // steady: not looked at before
	tries  int   // examinations that found it damaged, or nothing
	misses int   // attempts to mend it that found the local log damaged

	hopeless bool // the log has said that it cannot be mended from here, and need not wait for it
	found    examined
	since    int64 // wall ms when it was found

	id      uint64 // of the upload
	started int64  // steady
	add     AddSegment
}

const (
	doubtsMax        = 1024 // of a partition: the rest is found by a later survey
	doubtWaitMillis  = 30_000
	doubtRetryMax    = 600_000
	doubtWaitMax     = 6 * 3_600_000 // of one that is hopeless: somebody may put it back
	doubtSoundMillis = 600_000       // for how long a complaint of what was sound is not listened to
	doubtMissesMax   = 5             // damage of the local log is waited for: another replica mends it
)

// mistrust notes that an object may be missing or damaged.
func (p *partition) mistrust(c *core, id MarkID, now instant) {
	if p.doubtOf(id) == nil {
		p.admit(c, id, now)
	}
}

// mistrustAll takes what a survey found, the newest first. again says that something
// that may be mended from the local log found no room.
func (p *partition) mistrustAll(c *core, list []MarkID, now instant) (again bool) {
	known := make(map[MarkID]bool, len(p.doubts))
	for _, d := range p.doubts {
		known[d.object] = true
	}
	p.unnamed, p.roomless = 0, math.MaxInt64
	for _, id := range list {
		if known[id] || p.admit(c, id, now) {
			continue
		}
		p.unnamed++
		if p.mayBeLocal(id) {
			p.roomless, again = min(p.roomless, id.ID.Base), true
		}
	}
	return again
}

// admit makes an object one that is doubtful. What may be mended takes the place of
// what cannot be.
func (p *partition) admit(c *core, id MarkID, now instant) bool {
	if len(p.doubts) >= c.cfg.doubts && !(p.mayBeLocal(id) && p.evict()) {
		return false
	}
	p.doubts = append(p.doubts, &doubtful{object: id, heard: now.steady, due: now.steady})
	return true
}

// mayBeLocal: an object that begins below the local log is not mended from there.
func (p *partition) mayBeLocal(id MarkID) bool { return id.ID.Base >= p.log.LocalStart }

// evict forgets what has been hopeless, or sound, for longest.
func (p *partition) evict() bool {
	d := p.firstDoubt(func(d *doubtful) bool { return !d.busy && (d.hopeless && d.id == 0 || d.state == doubtCleared) })
	if d == nil {
		return false
	}
	if d.named() {
		p.unnamed++
	}
	p.forget(d)
	return true
}

func (p *partition) doubtOf(id MarkID) *doubtful {
	for _, d := range p.doubts {
		if d.object == id {
			return d
		}
	}
	return nil
}

// named says whether the log and the status have named it as missing or damaged.
func (d *doubtful) named() bool { return d.state == doubtDamaged || d.state == doubtMended }

// later is how long an object that is damaged, or cannot be examined, is left alone.
func (d *doubtful) later(now instant) {
	limit := int64(doubtRetryMax)
	if d.hopeless {
		limit = doubtWaitMax
	}
	d.due = now.steady + min(int64(doubtWaitMillis)<<min(d.tries, 16), limit)
	d.tries++
}

// keptFrom is the offset from which on the local log must be kept, MaxInt64 when nothing
// asks for that: an object is missing or damaged, or may be, and the local log may be
// all that there is of its records. since is the steady time since when nothing has
// been settled.
func (p *partition) keptFrom() (from, since int64) {
	from, since = math.MaxInt64, math.MaxInt64
	for _, d := range p.doubts {
		if d.state == doubtCleared || d.hopeless || d.found.end > 0 && d.found.end <= p.log.LocalStart {
			continue
		}
		from, since = min(from, d.object.ID.Base), min(since, max(d.heard, p.doubtMoved))
	}
	if p.roomless < from {
		from, since = p.roomless, min(since, p.doubtMoved)
	}
	return from, since
}

// settledDoubt notes that there is one the less to wait for.
func (p *partition) settledDoubt(now instant) {
	p.doubtMoved = now.steady
	p.watch.succeed("mend")
}

func (e evSuspect) apply(c *core, now instant) {
	if p := c.parts[e.p]; p != nil && !p.fenced && p.cfg.Enabled {
		p.mistrust(c, e.id, now)
		p.advance(c, now)
	}
}

// mendLane examines one object after the other, and mends one after the other.
func (p *partition) mendLane(c *core, now instant) {
	if !p.cfg.Enabled && p.committing == nil {
		p.dropDoubts(c) // the archive is given up
	}
	if !p.cfg.Enabled || len(p.doubts) == 0 {
		return
	}
	p.doubts = slices.DeleteFunc(p.doubts, func(d *doubtful) bool { return d.state == doubtCleared && d.due <= now.steady })
	for _, d := range p.doubts {
		p.expireMended(c, d, now)
	}
	if d := p.nextDoubt(now); d != nil && c.examineSlots.take(p, 0) {
		d.busy = true
		c.emit(fxExamine{p.ref(), d.object, d.found, c.cfg.uploadMillisMax})
	}
	p.startMending(c, now)
}

// nextDoubt is what is to be examined now, nil when one is being examined.
func (p *partition) nextDoubt(now instant) (next *doubtful) {
	for _, d := range p.doubts {
		switch {
		case d.state == doubtCleared || d.state == doubtMended || d.wants && !p.cfg.CopyDisabled:
			p.wakeIfCleared(d)
		case d.busy:
			return nil
		case d.due > now.steady:
			p.wakeAt(d.due)
		case next == nil:
			next = d
		}
	}
	return next
}

func (p *partition) wakeIfCleared(d *doubtful) {
	if d.state == doubtCleared {
		p.wakeAt(d.due)
	}
}

func (e evExamined) apply(c *core, now instant) {
	c.examineSlots.release()
	c.scrub.chargeRead(c, e.read, now)
	p := c.find(e.answer)
	if p == nil {
		return
	}
	d := p.doubtOf(e.object)
	if d == nil { // a new leadership's manifest does not name it
		p.advance(c, now)
		return
	}
	d.busy = false
	if e.err == nil {
		p.watch.succeed("examine")
	}
	switch {
	case e.err != nil: // nothing is known: a store that fails is no damage
		p.watch.fail("examine", d.found.key, e.err, now)
		d.later(now)
	case !e.found.named:
		p.forget(d)
		p.settledDoubt(now)
		if d.named() {
			c.emit(fxTell{ref: p.ref(), tale: taleGone, found: d.found})
		}
	case e.found.fault == FaultNone && c.cfg.broken != mutantMendSound:
		if d.named() {
			c.emit(fxTell{ref: p.ref(), tale: taleSound, found: d.found})
		}
		*d = doubtful{object: d.object, state: doubtCleared, due: now.steady + doubtSoundMillis}
		p.settledDoubt(now)
	default:
		if !d.named() {
			d.since = now.wall
			c.emit(fxTell{ref: p.ref(), tale: taleFound, found: e.found})
		}
		d.state, d.found = doubtDamaged, e.found
		d.wants = !d.hopeless || d.object.Kind == KeySegment // the local log may be whole again
		d.later(now)
	}
	p.advance(c, now)
}

func (p *partition) forget(d *doubtful) {
	p.doubts = slices.DeleteFunc(p.doubts, func(x *doubtful) bool { return x == d })
}

// startMending begins to put one object anew.
func (p *partition) startMending(c *core, now instant) {
	if p.cfg.CopyDisabled || p.wantDrop || p.remote.Dropped || p.firstDoubt(func(d *doubtful) bool {
		return d.state == doubtMended || d.busy && d.state == doubtDamaged && d.id != 0
	}) != nil {
		return
	}
	d := p.firstDoubt(func(d *doubtful) bool { return d.state == doubtDamaged && d.wants && !d.busy })
	if d == nil || !p.claimLane(c, now) || !c.copySlots.take(p, 0) {
		return
	}
	c.ids++
	bytes := d.found.segment.RawBytes
	d.busy, d.wants, d.id, d.started = true, false, c.ids, now.steady
	c.sendingBytes += bytes
	c.emit(fxMend{p.ref(), d.id, p.epoch, d.object, bytes, c.uploadMillis(bytes)})
}

// firstDoubt is the first that is so, or nil.
func (p *partition) firstDoubt(is func(*doubtful) bool) *doubtful {
	if i := slices.IndexFunc(p.doubts, is); i >= 0 {
		return p.doubts[i]
	}
	return nil
}

func (e evMended) apply(c *core, now instant) {
	c.copySlots.release()
	c.sendingBytes -= e.bytes
	c.scrub.chargeRead(c, e.read, now)
	p := c.find(e.answer)
	if p == nil {
		c.leftObject(e.p, now)
		return
	}
	d := p.doubtOf(e.object)
	if d == nil || d.id != e.id {
		p.suspect = true
		c.emit(fxRelease{p.ref(), []uint64{e.id}})
		p.advance(c, now)
		return
	}
	d.busy = false
	if e.err == nil {
		d.state, d.add, d.hopeless = doubtMended, e.add, false
		p.advance(c, now)
		return
	}
	d.id = 0
	c.emit(fxRelease{p.ref(), []uint64{e.id}})
	p.suspect = p.suspect || e.put
	switch {
	case errors.Is(e.err, errSound):
		d.due, d.found.seen = now.steady, objstore.Object{} // to be said by an examination that reads it
	case !p.givesUp(d, e.err):
		p.watch.fail("mend", d.found.key, e.err, now)
		d.due = max(d.due, now.steady+doubtWaitMillis)
	case !d.hopeless:
		d.hopeless = true
		p.settledDoubt(now)
		c.emit(fxTell{ref: p.ref(), tale: taleStays, found: d.found, err: e.err})
	}
	p.advance(c, now)
}

// givesUp says whether an object cannot be mended from here. A store that fails, or a
// lease that has ended, says nothing of that, and damage of the local log only when
// it stays.
func (p *partition) givesUp(d *doubtful, err error) bool {
	hole := errors.Is(err, errNotLocal) && d.object.Kind == KeySegment && d.found.base >= p.log.LocalStart
	if hole || errors.Is(err, errLocalDamage) {
		d.misses++
		return d.misses >= doubtMissesMax
	}
	return errors.Is(err, errNotLocal) || errors.Is(err, errOtherRecords)
}

// leftObject notes that an answer that came too late may tell of an object that
// nobody will commit.
func (c *core) leftObject(id topic.Partition, now instant) {
	if q := c.parts[id]; q != nil {
		q.suspect = true
		q.advance(c, now)
	} else if a, ok := c.asleep[id]; ok {
		a.suspect = true
		c.asleep[id] = a
	}
}

// mending: an object may have been put that is in no manifest yet.
func (p *partition) mending() bool {
	return p.firstDoubt(func(d *doubtful) bool { return d.id != 0 }) != nil
}

// mended is the replacement that the next edit can carry, nil when there is none: the
// head must have room for what it marks.
func (p *partition) mended() *doubtful {
	if p.remote.Marked+2 > marksNearlyFull {
		return nil
	}
	return p.firstDoubt(func(d *doubtful) bool { return d.state == doubtMended })
}

// replace puts a replacement into an edit.
func (d *doubtful) replace(edit *Edit) {
	if d.object.Kind == KeyPage {
		edit.RenewPage = &d.object.ID
		return
	}
	edit.Replace = &ReplaceSegments{Old: []SegmentID{d.object.ID}, New: d.add}
}

// replaced notes that a replacement was committed.
func (p *partition) replaced(c *core, d *doubtful, now instant) {
	c.emit(fxRelease{p.ref(), []uint64{d.id}})
	c.emit(fxTell{ref: p.ref(), tale: taleMended, found: d.found})
	p.forget(d)
	p.settledDoubt(now)
}

// notReplaced gives a replacement up whose commit failed: an examination says
// what the manifest names now, and the collector what becomes of the object.
func (p *partition) notReplaced(c *core, d *doubtful, now instant) {
	c.emit(fxRelease{p.ref(), []uint64{d.id}})
	p.suspect = p.suspect || d.object.Kind == KeySegment
	d.state, d.id, d.add = doubtDamaged, 0, AddSegment{}
	d.later(now)
}

// expireMended gives up a replacement that waited too long for its commit: a
// collector may already take it for an orphan (T7).
func (p *partition) expireMended(c *core, d *doubtful, now instant) {
	if d.state != doubtMended || p.committing != nil {
		return
	}
	limit := c.cfg.lifetimeMillis() - c.cfg.graceMillis - 2*c.cfg.callMillis
	if now.steady-d.started < limit {
		p.wakeAt(d.started + limit)
		return
	}
	p.notReplaced(c, d, now)
}

// damaged lists what is known to be missing or damaged.
func (p *partition) damaged() (list []DamagedObject) {
	for _, d := range p.doubts {
		if d.named() {
			list = append(list, DamagedObject{Key: d.found.key, Base: d.found.base, End: d.found.end, Fault: d.found.fault, Since: d.since,
				Page: d.object.Kind == KeyPage})
		}
	}
	return list
}

// dropDoubts forgets what is doubtful: who leads next finds it again.
func (p *partition) dropDoubts(c *core) {
	for _, d := range p.doubts {
		if d.id != 0 {
			c.emit(fxRelease{p.ref(), []uint64{d.id}})
			p.suspect = true
		}
	}
	p.doubts, p.unnamed, p.roomless = nil, 0, math.MaxInt64
	p.watch.succeed("mend")
	p.watch.succeed("examine")
}
