package tier

import (
	"errors"
	"math"
)

func isFenced(err error) bool { return errors.Is(err, ErrFenced) }

// upload is one segment, or the part of it above the archive's end, on its way
// into the archive. Uploads of a partition overlap; their commits are in order.
type upload struct {
	id        uint64
	from, end int64
	bytes     int64 // local bytes, an upper bound of what is sent
	state     uploadState
	started   int64 // steady, of this attempt
	done      int64 // steady, when it succeeded
	add       AddSegment
	key       string
}

type uploadState uint8

const (
	uploadWaiting uploadState = iota // no attempt running: to be started (again)
	uploadRunning
	uploadDone // in the store, to be committed
)

// copyLane starts uploads.
func (p *partition) copyLane(c *core, now instant) {
	p.copyReady = false
	if !p.cfg.Enabled || p.cfg.CopyDisabled {
		p.abandonAll(c)
		p.watch.succeed("upload")
		p.watchFor(c, p.idleWatch())
		return
	}
	p.expireUploads(c, now)
	p.dropPointless(c)
	watch := p.idleWatch()
	if blocked, ok := p.planUploads(c, now); ok {
		watch = min(watch, blocked)
	}
	p.watchFor(c, watch)
	if len(p.uploads) == 0 {
		if !p.copyReady {
			p.watch.succeed("upload") // what failed is not wanted any more
		}
		return
	}
	if p.claimLane(c, now) {
		p.startUploads(c, now)
	}
}

// unwatched is no offset a watch could be set to.
const unwatched = math.MinInt64

// watchFor sets the offset whose stability wakes the partition.
func (p *partition) watchFor(c *core, stable int64) {
	if stable != p.watched {
		p.watched = stable
		c.emit(fxWatch{p.ref(), stable})
	}
}

// idleWatch is the offset that shows an empty active segment to have been
// written to, where its age matters.
func (p *partition) idleWatch() int64 {
	ages := p.cfg.MaxLagMillis >= 0 && !p.cfg.CopyDisabled && p.cfg.Enabled || p.cfg.RetentionMillis >= 0
	if p.log.ActiveBytes == 0 && ages {
		return p.log.End + 1
	}
	return math.MaxInt64
}

// planUploads puts the next eligible segments in line. It returns the end of the
// first sealed segment that is not stable yet, if that is what stops it.
func (p *partition) planUploads(c *core, now instant) (blocked int64, waits bool) {
	if p.wantStart >= 0 && p.wantStart > p.end() || p.remote.Dropped || p.wantDrop {
		return 0, false // the archive's end is about to move
	}
	if p.missed {
		return 0, false // the view lists a segment that is gone: a new one is on its way
	}
	next := p.end()
	if n := len(p.uploads); n > 0 {
		next = p.uploads[n-1].end
	}
	stable := p.log.stable()
	if c.cfg.broken == mutantUploadUnstable {
		stable = p.log.End
	}
	lagMillis, lagBytes, immediate := p.cfg.copyLag()
	after := p.log.ActiveBytes
	for _, s := range p.log.sealed {
		after += s.bytes
	}
	for _, s := range p.log.sealed {
		after -= s.bytes
		if s.end <= next || s.end <= p.log.LogStart {
			continue
		}
		if s.end > stable {
			return s.end, true
		}
		if !immediate && !p.lagDue(s, after, lagMillis, lagBytes, now) {
			return 0, false
		}
		p.copyReady = true
		if next >= 0 && s.base > next && !p.startsAnew(s) {
			if !p.claimed {
				// What is cached here may be of the time before others led, and the
				// local log was released by what they had committed: ask the bucket.
				p.claimLane(c, now)
				return 0, false
			}
			p.bridgeGap(s, now)
			return 0, false
		}
		if len(p.uploads) >= c.cfg.uploadsPerPartition {
			return 0, false
		}
		c.ids++
		next = s.end
		p.uploads = append(p.uploads, &upload{
			id: c.ids, from: max(p.lineEnd(), s.base), end: s.end, bytes: s.bytes,
		})
	}
	return 0, false
}

// errGap is reported when the local log begins above the archive's end although
// the log start lies below: offsets are missing in both tiers.
var errGap = errors.New("tier: offsets between the archive's end and the local log are missing")

// errUnsure is reported while the local log cannot say whether it has the archive's
// records.
var errUnsure = errors.New("tier: the local log is damaged, and its leader epochs are not known for sure")

// errContradicts is reported when the local log has other records than the archive
// where both have some, by their leader epochs.
var errContradicts = errors.New("tier: the archive and the local log are of different histories")

// errUnmarked is reported when the archive's start lies beyond its end and the
// head has no room to mark all that lies below: the archive can go on only when
// purges have made room, a grace later.
var errUnmarked = errors.New("tier: segments below the archive's start wait for the deletion of earlier ones")

// startsAnew: the archive was emptied up to a start inside s, and goes on there.
func (p *partition) startsAnew(s localSegment) bool {
	return len(p.uploads) == 0 && p.remote.Segments == 0 && p.remote.Start > p.remote.End && s.base <= p.remote.Start && p.remote.Start < s.end
}

// bridgeGap: the local log begins above the archive's end. When the offsets
// between were given up (retention while copying was disabled or the store was
// down) the archive's start moves past them first; otherwise they are missing.
func (p *partition) bridgeGap(s localSegment, now instant) {
	if len(p.uploads) == 0 && p.remote.Start > p.remote.End && p.remote.Segments > 0 {
		p.watch.fail("upload", "", errUnmarked, now)
		return
	}
	if p.log.LogStart < s.base || len(p.uploads) > 0 {
		if len(p.uploads) == 0 {
			p.watch.fail("upload", "", errGap, now)
		}
		return
	}
	p.watch.succeed("upload")
	p.wantStart = max(p.wantStart, p.log.LogStart)
}

// lineEnd is where the next upload begins: the end of the last one in line, or of
// the archive.
func (p *partition) lineEnd() int64 {
	if n := len(p.uploads); n > 0 {
		return p.uploads[n-1].end
	}
	return p.end()
}

// lagDue says whether KIP-1241's delays let the segment go: old enough, or enough
// bytes behind it. A timestamp in the future does not hold it back.
func (p *partition) lagDue(s localSegment, after, lagMillis, lagBytes int64, now instant) bool {
	if lagBytes > 0 && after >= lagBytes {
		return true
	}
	if lagMillis <= 0 {
		return false
	}
	due := addMillis(s.maxTimestamp, lagMillis)
	if s.maxTimestamp > now.wall || due <= now.wall {
		return true
	}
	p.wakeAtWall(due, now)
	return false
}

// startUploads starts the uploads that wait, as slots and rest allow.
func (p *partition) startUploads(c *core, now instant) {
	running := 0
	for _, u := range p.uploads {
		if u.state == uploadRunning {
			running++
		}
	}
	for _, u := range p.uploads {
		if u.state != uploadWaiting {
			continue
		}
		if p.missed {
			return // look before the next attempt
		}
		if p.copyRest.resting(now.steady) {
			p.wakeAt(p.copyRest.until)
			return
		}
		if p.copyRest.failures > 0 && running > 0 {
			return // after a failure one attempt at a time, until one succeeds
		}
		if !c.copySlots.take(p, running) {
			return
		}
		running++
		u.state, u.started = uploadRunning, now.steady
		c.sendingBytes += u.bytes
		c.ids++
		u.id = c.ids
		c.emit(fxUpload{p.ref(), u.id, p.epoch, u.from, u.end, u.bytes, c.uploadMillis(u.bytes)})
		if c.cfg.broken == mutantCommitBeforeUpload {
			p.fakeDone(u)
		}
	}
}

// uploadMillis is the hard deadline of an upload: a base, the bytes at the lowest
// tolerated rate, and the bytes in flight at the limiter's rate.
func (c *core) uploadMillis(bytes int64) int64 {
	ms := c.cfg.uploadMillis + bytes*1000/c.cfg.uploadMinRate
	if c.cfg.uploadRate > 0 {
		ms += 2 * (c.sendingBytes / c.cfg.uploadRate * 1000)
	}
	return min(ms, c.cfg.uploadMillisMax)
}

func (e evUploaded) apply(c *core, now instant) {
	c.copySlots.release()
	c.sendingBytes -= e.bytes
	p := c.find(e.answer)
	if p == nil {
		c.leftObject(e.p, now)
		return
	}
	u := p.upload(e.id)
	switch {
	case u == nil:
		p.suspect = true // abandoned meanwhile
	case e.err != nil:
		p.uploadFailed(c, u, e, now)
	default:
		u.state, u.done, u.add, u.key = uploadDone, now.steady, e.add, e.key
		p.copyRest.succeed()
		p.watch.succeed("upload")
		p.watch.moved(now)
	}
	p.advance(c, now)
}

// uploadFailed rests the lane. The object may be in the store all the same: it is
// left to the collector (T6), and the next attempt has a new name.
//
// A segment that is gone (DeleteRecords, retention, truncation) is no failure of
// the store: a new look at the log says what is to be uploaded instead. The lane
// rests all the same, should the log go on listing what it does not have.
func (p *partition) uploadFailed(c *core, u *upload, e evUploaded, now instant) {
	p.copyRest.failBy(e.err, now.steady, c.rng)
	p.missed = errors.Is(e.err, errSegmentGone)
	if !p.missed || p.copyRest.failures > 3 {
		p.watch.fail("upload", e.key, e.err, now)
	}
	p.suspect = p.suspect || !p.missed && !errors.Is(e.err, errNoLease)
	c.emit(fxRelease{p.ref(), []uint64{u.id}})
	u.state = uploadWaiting
	p.dirty = true // the segment may have gone: look again
	p.dropUnstarted()
}

// dropUnstarted takes the tail of uploads that have no attempt off the line; they
// are planned again from a fresh look.
func (p *partition) dropUnstarted() {
	n := len(p.uploads)
	for n > 0 && p.uploads[n-1].state == uploadWaiting {
		n--
	}
	p.uploads = p.uploads[:n]
}

func (p *partition) upload(id uint64) *upload {
	for _, u := range p.uploads {
		if u.id == id && u.state == uploadRunning {
			return u
		}
	}
	return nil
}

// expireUploads gives up objects that waited too long for their commit: a
// collector may already take them for orphans (T7). While a commit's outcome is
// open nothing is given up; the claim that settles it comes first.
func (p *partition) expireUploads(c *core, now instant) {
	limit := c.cfg.lifetimeMillis() - c.cfg.graceMillis - 2*c.cfg.callMillis
	for _, u := range p.uploads {
		if u.state != uploadDone || p.committing != nil || p.doubt {
			continue
		}
		if now.steady-u.started < limit {
			p.wakeAt(u.started + limit)
			continue
		}
		c.emit(fxRelease{p.ref(), []uint64{u.id}})
		u.state, p.suspect = uploadWaiting, true
	}
}

// settleUploads drops uploads that a freshly read manifest already covers, and
// those that do not continue it.
func (p *partition) settleUploads(c *core) {
	p.doubt = false
	for len(p.uploads) > 0 && p.uploads[0].end <= p.remote.End {
		c.emit(fxRelease{p.ref(), []uint64{p.uploads[0].id}})
		p.uploads = p.uploads[1:]
	}
	p.dropMisfits(c)
}

// dropMisfits abandons uploads until the first in line continues the archive.
func (p *partition) dropMisfits(c *core) {
	for len(p.uploads) > 0 && !p.remote.takes(p.uploads[0].from, p.uploads[0].end) && p.abandonFirst(c) {
	}
}

// takes says whether the segment [from, end) may be committed next.
func (s State) takes(from, end int64) bool {
	switch {
	case s.End < 0 && s.Start < 0:
		return true
	case s.Start > s.End && s.Segments == 0:
		// An archive that was emptied goes on with the segment that holds its start.
		return from >= s.End && from <= s.Start && s.Start < end
	}
	return from == s.End
}

// dropPointless takes off the line what can never be committed, or is not wanted
// any more, by the latest view of the log and of the archive. Whatever makes an
// upload pointless (DeleteRecords, retention, truncation, an archive that was
// emptied or reset), it is found here, and planUploads goes on with what is left.
//
// What runs is left to end: it holds its own copy of the segment's files. What
// waits for an attempt must be in the log still, as it was planned; when it is
// not, everything behind it goes too, as commits are in order.
func (p *partition) dropPointless(c *core) {
	// With nothing archived there is no start to be moved past deleted records:
	// the archive begins with the first segment that is still wanted.
	for len(p.uploads) > 0 && p.remote.End < 0 && p.uploads[0].end <= p.log.LogStart && p.abandonFirst(c) {
	}
	p.dropMisfits(c)
	for i, u := range p.uploads {
		if u.state == uploadWaiting && !p.log.holds(u.from, u.end) {
			p.abandonFrom(c, i)
			return
		}
	}
}

// abandonAll takes every upload off the line.
func (p *partition) abandonAll(c *core) { p.abandonFrom(c, 0) }

// abandonFrom takes uploads off the line from the i-th on. What is already in the
// store is left to the collector.
func (p *partition) abandonFrom(c *core, i int) {
	if p.committing != nil || p.doubt {
		return // first learn what became of the commit
	}
	for _, u := range p.uploads[i:] {
		p.giveUp(c, u)
	}
	p.uploads = p.uploads[:i]
}

// abandonFirst takes the first upload off the line; false when it must stay until
// a commit's outcome is known.
func (p *partition) abandonFirst(c *core) bool {
	if p.committing != nil || p.doubt {
		return false
	}
	p.giveUp(c, p.uploads[0])
	p.uploads = p.uploads[1:]
	return true
}

func (p *partition) giveUp(c *core, u *upload) {
	p.suspect = p.suspect || u.state != uploadWaiting
	c.emit(fxRelease{p.ref(), []uint64{u.id}})
}

// rollLane seals the active segment when its data would otherwise grow older than
// the topic allows: older than varve.remote.max.lag.ms unoffloaded, or past
// retention in whole.
func (p *partition) rollLane(c *core, now instant) {
	if p.rolling || p.log.ActiveBytes == 0 || p.log.ActiveSince < 0 {
		return
	}
	p.beganBefore(now)
	due := int64(math.MaxInt64)
	if p.cfg.Enabled && !p.cfg.CopyDisabled && p.cfg.MaxLagMillis >= 0 && !p.rollIsFutile() {
		due = p.log.ActiveSince + p.cfg.MaxLagMillis - rollHeadroom(p.cfg.MaxLagMillis)
	}
	if p.cfg.RetentionMillis >= 0 && p.activeIsNext() {
		from := p.log.ActiveMaxTimestamp
		if from < 0 {
			from = p.log.ActiveSince // control batches alone, or records without a timestamp
		}
		due = min(due, addMillis(addMillis(from, p.cfg.RetentionMillis), 1))
	}
	if due == math.MaxInt64 {
		return
	}
	if due > now.wall {
		p.wakeAtWall(due, now)
		return
	}
	p.rolling = true
	c.emit(fxRoll{p.ref()})
}

// rollHeadroom is the part of the lag left for the upload itself.
func rollHeadroom(maxLagMillis int64) int64 { return min(maxLagMillis/4, 60_000) }

// rollIsFutile: sealing more does not get data out any sooner while sealed
// segments before it fail to go or cannot go yet; it only makes small objects.
// Failures of uploads that are not wanted any more do not count.
func (p *partition) rollIsFutile() bool {
	n := len(p.log.sealed)
	if n == 0 || p.log.sealed[n-1].end <= max(p.end(), p.log.LogStart) {
		return false
	}
	return p.copyRest.failures > 0 || p.callRest.failures > 0 || p.log.sealed[n-1].end > p.log.stable()
}

// activeIsNext: nothing but the active segment is left to expire.
func (p *partition) activeIsNext() bool { return p.log.LogStart >= p.log.ActiveBase }

func (e evRolled) apply(c *core, now instant) {
	p := c.find(e.answer)
	if p == nil {
		return
	}
	p.rolling = false
	p.dirty = true
	if e.err != nil {
		p.watch.fail("roll", "", e.err, now)
		p.lookRest.fail(now.steady, c.rng)
	} else {
		p.watch.succeed("roll")
	}
	// Until the new view is in, the old one would ask for the same roll again.
	p.log.ActiveBytes = 0
	p.advance(c, now)
}
