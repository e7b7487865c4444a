package tier

import (
	"math"

	"github.com/varvelog/varve/meta/topic"
)

// partition is the core's view of one led partition. Its lanes are in
// lane_*.go; advance looks at all of them.
type partition struct {
	id    topic.Partition
	gen   uint64
	epoch int32
	cfg   TopicConfig
	timer timer
	left  bool // resigned: only its late answers remain

	// The local log as last seen.
	log           logView
	looked, dirty bool
	looking       bool
	lookAbove     int64 // what the look on its way leaves out: segments that end at or below
	viewAbove     int64 // what log leaves out
	missed        bool  // an upload did not find its segment: log is out of date
	watched       int64 // what fxWatch was last set to
	rewatch       bool  // the watch may have fired since

	// The archive as last learnt. claimed: the manifest is held by our epoch.
	remote      State
	known       bool
	claimed     bool
	held        bool // claimed at some time of this leadership
	fenced      bool
	loading     bool
	claiming    bool
	judged      int64 // archive end up to which its history was compared with the log's
	contradicts bool  // and was another
	told        int64 // remote end last given to the log; −2 = never
	started     bool  // an AdvanceLogStart call is in flight
	startedAt   int64 // log start asked for last
	rolling     bool

	uploads    []*upload // in offset order, contiguous
	committing *commitment
	stale      bool  // only a fresh read will do
	doubt      bool  // a commit's outcome is open; only a fresh read settles it
	unsettled  bool  // a conditional PUT may still be on its way; the next commit fences it
	lastMark   int64 // largest MarkedAt used or seen
	topicSaved *TopicInfo

	// Retention.
	oldest         []RemoteSegment // first live segments, as last read
	oldestKnown    bool
	oldestComplete bool
	oldestReading  bool
	window         int   // segments asked for at once
	wantStart      int64 // archive start to be committed; −1 none
	wantDrop       bool  // the archive is to be given up

	// Deletion of marked objects.
	marked        []Marked
	markedKnown   bool
	markedReading bool
	marks         []markSeen
	unmarked      bool // the archive's sizes include segments below its start
	purge         []MarkID
	deleting      map[MarkID]bool
	deletes       int // delete calls in flight

	// Orphan collection.
	suspect    bool  // an upload may have left an object behind
	collectAt  int64 // steady; 0 = none planned
	collecting bool
	searchAt   int64 // steady: look for orphans that nothing tells of; 0 = never
	searching  bool

	// Looking for damage in the bucket, and mending it.
	entered     int64 // steady, when this leadership began
	surveyAt    int64 // steady: compare the bucket with the manifest; 0 = not planned
	scrub       scrubPlace
	scrubQueued bool
	scrubbing   bool
	doubts      []*doubtful // in the order in which they were heard of
	doubtMoved  int64       // steady: when one of them was last settled
	unnamed     int         // damaged objects for which there was no room among them
	roomless    int64       // base of the lowest of those that may be local, MaxInt64 when there is none

	lookRest, callRest, copyRest, deleteRest, collectRest, startRest, scrubRest backoff

	unsealed               int   // looks in a row that missed a rolled segment
	recheckAt              int64 // steady; look at the log again then; 0 = no need
	copyReady, deleteReady bool  // work waits that nothing but the store holds up

	watch watchdog
	wake  int64 // earliest steady time this partition must be looked at again
}

// markSeen says that all marks stamped at or below markedAt were known at the
// steady time seen: the grace runs from there, whatever the wall clock does.
type markSeen struct{ markedAt, seen int64 }

func newPartition(id topic.Partition, gen uint64, epoch int32, cfg TopicConfig, now instant) *partition {
	return &partition{
		id: id, gen: gen, epoch: epoch, cfg: cfg,
		dirty: true, window: 1, watched: math.MaxInt64, told: -2, wantStart: -1, judged: -1,
		lookAbove: -1, viewAbove: -1, roomless: math.MaxInt64,
		remote: State{Start: -1, End: -1, LeaderEpoch: -1, EndEpoch: -1},
		watch:  watchdog{movedAt: now.steady}, entered: now.steady,
	}
}

func (p *partition) ref() ref { return ref{p.id, p.gen} }

// wakeAt asks for another look at the given steady time, the earliest wins.
func (p *partition) wakeAt(steady int64) { p.wake = min(p.wake, steady) }

// wakeAtWall asks for a look when the wall clock shows wall.
func (p *partition) wakeAtWall(wall int64, now instant) {
	if wall <= now.wall {
		p.wakeAt(now.steady)
		return
	}
	p.wakeAt(addMillis(now.steady, wall-now.wall))
}

// advance lets every lane decide. It is idempotent: without news it emits nothing.
func (p *partition) advance(c *core, now instant) {
	if p.left {
		return
	}
	p.wake = math.MaxInt64
	switch {
	case p.fenced:
	case p.remote.Retired:
		p.withdraw(c)
	default:
		p.advanceLanes(c, now)
	}
	p.observe(c, now)
	if p.wake == math.MaxInt64 {
		c.due.stop(&p.timer)
		return
	}
	c.due.set(&p.timer, max(p.wake, now.steady+1))
}

func (p *partition) advanceLanes(c *core, now instant) {
	if !p.cfg.Enabled && !p.cfg.DeleteOnDisable {
		p.withdraw(c) // not tiered: no business with the log or the bucket
		return
	}
	p.lookLane(c, now)
	if !p.looked {
		return
	}
	p.planSearch(c, now)
	p.planSurvey(c, now)
	if !p.needsArchive(now) {
		p.watchFor(c, p.idleWatch()) // the first record starts the clock of its age
		return
	}
	if !p.loadLane(c, now) || !p.judgeLane(c, now) {
		return
	}
	if p.diverged() {
		p.distrust(c)
		return
	}
	if p.end() < p.viewAbove { // the archive was reset: segments below its old end count again
		p.dirty = true
		p.wakeAt(now.steady)
		return
	}
	p.releaseLane(c, now)
	p.tellLog(c, now)
	p.retainLane(c, now)
	p.rollLane(c, now)
	p.copyLane(c, now)
	p.deleteLane(c, now)
	p.collectLane(c, now)
	p.scrubLane(c, now)
	p.mendLane(c, now)
	if p.wantsCommit(now) && p.claimLane(c, now) {
		p.commitLane(c, now)
	}
}

// withdraw takes back what the log was told of the archive.
func (p *partition) withdraw(c *core) {
	if p.committing == nil {
		// Also with a commit in doubt: tiering begins again with a fresh claim.
		for _, u := range p.uploads {
			p.giveUp(c, u)
		}
		p.uploads = nil
		p.dropDoubts(c)
	}
	p.watchFor(c, math.MaxInt64)
	if p.told >= 0 {
		p.told = -1
		c.emit(fxSetRemoteEnd{p.ref(), -1})
	}
}

// needsArchive is false for a partition that never sealed or dropped anything:
// it has no business with the bucket yet, but for orphans that an earlier leader
// may have left there.
func (p *partition) needsArchive(now instant) bool {
	o := p.log.LogOffsets
	if p.known || o.LogStart > 0 || o.LocalStart > 0 || len(p.log.sealed) > 0 || p.wantsCollection(now) {
		return true
	}
	return o.ActiveBytes > 0 && (p.cfg.MaxLagMillis >= 0 || p.cfg.RetentionMillis >= 0)
}

// lookLane keeps the view of the log fresh.
func (p *partition) lookLane(c *core, now instant) {
	if p.recheckAt != 0 {
		p.dirty = p.dirty || p.recheckAt <= now.steady
		p.wakeAt(p.recheckAt)
	}
	if p.looking || !p.dirty {
		return
	}
	if p.lookRest.resting(now.steady) {
		p.wakeAt(p.lookRest.until)
		return
	}
	p.looking, p.dirty, p.recheckAt = true, false, 0
	p.lookAbove = p.end()
	c.emit(fxLook{p.ref(), p.lookAbove, !p.claimed, p.toBeJudged()})
}

func (e evLooked) apply(c *core, now instant) {
	p := c.find(e.answer)
	if p == nil {
		return
	}
	p.looking = false
	if e.err != nil {
		p.watch.fail("look", "", e.err, now)
		p.dirty = true
		p.lookRest.fail(now.steady, c.rng)
	} else {
		p.takeView(e.view, now)
		p.judge(e.view.judged, now)
		p.viewAbove = p.lookAbove
		p.missed = p.missed && p.dirty
		if p.rewatch && !p.dirty {
			p.rewatch, p.watched = false, unwatched // set it again, by what is seen now
		}
		p.lookRest.succeed()
		p.watch.succeed("look")
		// A wake that was missed must not cost more than the recheck interval. A
		// partition without data is left alone altogether.
		if p.log.End > p.log.LogStart {
			p.recheckAt = now.steady + c.cfg.recheckMillis
			if p.contradicts {
				p.recheckAt = now.steady + min(c.cfg.recheckMillis, rejudgeMillis)
			}
		}
		p.awaitSealed(now)
		p.dropCovered()
	}
	p.advance(c, now)
}

// awaitSealed looks again soon when a segment was rolled but is not sealed yet:
// the log shows it once it is synced.
func (p *partition) awaitSealed(now instant) {
	sealedTo := max(p.end(), p.log.LocalStart)
	if n := len(p.log.sealed); n > 0 {
		sealedTo = max(sealedTo, p.log.sealed[n-1].end)
	}
	if p.log.ActiveBase <= sealedTo {
		p.unsealed = 0
		return
	}
	p.recheckAt = now.steady + min(int64(200)<<min(p.unsealed, 8), backoffMaxMillis)
	p.unsealed++
}

// takeView replaces the view of the log. It carries over how long each segment
// has been waiting.
func (p *partition) takeView(v logView, now instant) {
	old, i := p.log, 0
	for k := range v.sealed {
		s := &v.sealed[k]
		s.since = now.wall
		for i < len(old.sealed) && old.sealed[i].end < s.end {
			i++
		}
		switch {
		case i < len(old.sealed) && old.sealed[i].end == s.end:
			s.since = old.sealed[i].since
		case p.looked && s.base == old.ActiveBase && old.ActiveSince >= 0:
			s.since = old.ActiveSince
		}
		s.since = min(s.since, now.wall)
	}
	if p.looked && v.ActiveBase == old.ActiveBase && old.ActiveSince >= 0 {
		v.ActiveSince = min(v.ActiveSince, old.ActiveSince)
	}
	p.looked, p.log = true, v
	p.beganBefore(now)
}

// beganBefore corrects what a clock has left behind that was set back: data that
// began in the future would wait until then.
func (p *partition) beganBefore(now instant) {
	p.log.ActiveSince = min(p.log.ActiveSince, now.wall)
}

// dropCovered forgets sealed segments that have been committed since the look.
func (p *partition) dropCovered() {
	for len(p.log.sealed) > 0 && p.log.sealed[0].end <= p.end() {
		p.log.sealed = p.log.sealed[1:]
	}
}

// end is the archive's committed end, −1 when there is none or it is unknown.
func (p *partition) end() int64 {
	if !p.known {
		return -1
	}
	return p.remote.End
}

// loadLane learns the archive's state from the local cache, or the bucket.
func (p *partition) loadLane(c *core, now instant) bool {
	if p.known {
		return true
	}
	if p.loading || p.claiming {
		return false
	}
	if p.callRest.resting(now.steady) {
		p.wakeAt(p.callRest.until)
		return false
	}
	if !c.callSlots.take(p, 0) {
		return false
	}
	p.loading = true
	c.emit(fxLoad{p.ref(), c.cfg.readMillis > 0, c.cfg.callMillis})
	return false
}

func (e evLoaded) apply(c *core, now instant) {
	c.callSlots.release()
	p := c.find(e.answer)
	if p == nil {
		return
	}
	p.loading = false
	if e.err != nil {
		p.callFailed(c, "load", e.err, now)
	} else {
		p.callRest.succeed()
		p.watch.succeed("load")
		p.learn(e.state)
		p.scrub = e.scrub
		// Nobody else can have committed under our own epoch. It may have been claimed
		// before this: by a leader that was elected uncleanly, or under a leadership of
		// this process that was taken up again.
		p.claimed = e.state.LeaderEpoch == p.epoch
		p.held = p.claimed
		p.suspect = p.suspect || p.claimed && e.state.hadLeaders()
		if e.state.LeaderEpoch > p.epoch && c.cfg.broken != mutantIgnoreEpoch {
			p.fence(c, now)
		}
	}
	p.advance(c, now)
}

// hadLeaders: the manifest is not the one that the claim of a first leader made, so
// that leaders before may have left objects behind: whoever uploads has claimed.
func (s State) hadLeaders() bool { return s.Sequence > 1 }

// claimLane makes our epoch the manifest's. It is asked for only when there is
// something to commit, or to be let go on the archive's account, so that an idle
// restart makes no request.
//
// Until then a leader before this one, if it is cut off from the brokers alone, goes
// on committing. After a clean election that does no harm: what it may upload is
// below its high watermark, and whoever is elected from the in-sync set has all of
// that, under the same epochs. What has been read of the archive is then merely old;
// nothing is released or deleted on it before the claim. A leader that was elected
// uncleanly may lack what the other one commits: it claims before it reads where the
// archive ends, and before it serves anything (replica/whole.go). A claim ends such a
// leader's commits, not its uploads: those are orphans, and are found by the search.
func (p *partition) claimLane(c *core, now instant) bool {
	if p.claimed {
		return true
	}
	if p.claiming || p.committing != nil {
		return false
	}
	if p.callRest.resting(now.steady) {
		p.wakeAt(p.callRest.until)
		return false
	}
	if !c.callSlots.take(p, 0) {
		return false
	}
	p.claiming = true
	c.emit(fxClaim{p.ref(), p.epoch, p.doubt || p.stale, c.cfg.callMillis})
	return false
}

func (e evClaimed) apply(c *core, now instant) {
	c.callSlots.release()
	p := c.find(e.answer)
	if p == nil {
		return
	}
	p.claiming = false
	switch {
	case isFenced(e.err) && c.cfg.broken == mutantIgnoreEpoch:
		p.epoch++
	case isFenced(e.err):
		p.watch.fail("claim", "", e.err, now)
		p.fence(c, now)
	case e.err != nil:
		p.callFailed(c, "claim", e.err, now)
	case e.state.LeaderEpoch > p.epoch:
		p.fence(c, now)
	default:
		p.stale = false
		p.callRest.succeed()
		p.watch.succeed("claim")
		p.suspect = p.suspect || !p.held && e.state.hadLeaders()
		p.claimed, p.held = true, true
		p.learn(e.state)
		p.settleUploads(c)
	}
	p.advance(c, now)
}

func (p *partition) callFailed(c *core, op string, err error, now instant) {
	p.watch.fail(op, "", err, now)
	p.callRest.failBy(err, now.steady, c.rng)
}

// fence: a newer leader holds the manifest. Everything stops until Lead is
// called under a newer epoch.
func (p *partition) fence(c *core, now instant) {
	p.fenced, p.claimed = true, false
	p.suspect = p.suspect || len(p.uploads) > 0
	p.uploads = nil
	p.dropDoubts(c)
	c.emit(fxCancel{p.ref()})
	if p.watched != math.MaxInt64 {
		p.watched = math.MaxInt64
		c.emit(fxWatch{p.ref(), p.watched})
	}
}

// learn takes over a state that was read or committed. Answers may overtake each
// other; an older manifest than the one known is no news.
func (p *partition) learn(s State) {
	if p.known && s.Sequence < p.remote.Sequence {
		return
	}
	if p.known && s.Start != p.remote.Start {
		p.trimOldest(s.Start)
	}
	if s.End != p.remote.End {
		p.oldestComplete = false
		p.oldestKnown = p.oldestKnown && len(p.oldest) > 0
	}
	if s.Marked != p.remote.Marked || !p.known {
		p.markedKnown = false
	}
	// Segments below the start that found no room among the marks still count as
	// live: sizes are not to be trusted until purges have made room.
	p.unmarked = s.Marked >= marksNearlyFull
	p.remote, p.known = s, true
	if p.wantStart <= s.Start {
		p.wantStart = -1
	}
	p.dropCovered()
}

func (p *partition) trimOldest(start int64) {
	for len(p.oldest) > 0 && p.oldest[0].End <= start {
		p.oldest = p.oldest[1:]
	}
	if len(p.oldest) == 0 && !p.oldestComplete {
		p.oldestKnown = false
	}
}

// releaseLane claims the manifest when local retention is due to release what a
// cached state says is archived: before local data goes, the bucket is asked. A
// restart with nothing due makes no request.
func (p *partition) releaseLane(c *core, now instant) {
	if p.givenUp() {
		p.claimLane(c, now)
		return
	}
	first := p.log.oldest
	if p.claimed || !p.cfg.Enabled || first.end == 0 || p.remote.End < first.end {
		return
	}
	due := int64(math.MaxInt64)
	if p.cfg.LocalRetentionMillis >= 0 {
		due = addMillis(max(first.maxTimestamp, 0), p.cfg.LocalRetentionMillis)
	}
	if p.cfg.LocalRetentionBytes >= 0 && p.log.bytes+p.log.ActiveBytes > p.cfg.LocalRetentionBytes {
		due = now.wall
	}
	switch {
	case due <= now.wall:
		p.claimLane(c, now)
	case due < math.MaxInt64:
		p.wakeAtWall(due, now)
	}
}

// givenUp: the archive was dropped while this replica had released local data on
// its account already. What is in neither tier is gone: the log begins with its
// local part (KIP-950 does so on every replica).
func (p *partition) givenUp() bool {
	return (p.remote.Dropped || p.remote.End < 0) && p.log.LocalStart > p.log.LogStart
}

// tellLog passes the committed facts on to the local log: the end up to which
// local copies may go, and a start below which nothing can be read any more.
func (p *partition) tellLog(c *core, now instant) {
	if !p.claimed && p.cfg.Enabled {
		// A cached state may be of another time, and lets nothing go. What is to be
		// kept is kept all the same.
		if from, _ := p.keptFrom(); from < p.told {
			p.tellEnd(c, from, now)
		}
		return
	}
	end := p.coveredEnd()
	if c.cfg.broken == mutantReleaseEarly && len(p.uploads) > 0 {
		end = p.uploads[len(p.uploads)-1].end
	}
	p.tellEnd(c, end, now)
	if p.claimed && p.givenUp() {
		p.advanceStart(c, p.log.LocalStart, now)
	}
	// A committed start stands: a leader that died before its log start had
	// followed, or had been replicated, must not bring old records back.
	if o := p.log.LogOffsets; p.remote.Start > o.LogStart &&
		p.remote.Start <= o.HighWatermark && !p.remote.Dropped {
		p.advanceStart(c, p.remote.Start, now)
	}
}

// tellEnd tells the log a remote end. It takes a lower one only after none at all.
func (p *partition) tellEnd(c *core, end int64, now instant) {
	if end == p.told {
		return
	}
	lower := end < p.told
	if lower && end >= 0 {
		c.emit(fxSetRemoteEnd{p.ref(), -1})
	}
	p.told = end
	c.emit(fxSetRemoteEnd{p.ref(), end})
	if lower || end < 0 {
		p.dirty = true // what was released until now is seen by the next look
		p.wakeAt(now.steady)
	}
}

// coveredEnd is the offset below which the archive holds everything from the log
// start on; −1 when it does not hold the log's beginning (T1). An object that is
// missing or damaged, or may be, does not hold what the local log may still have.
func (p *partition) coveredEnd() int64 {
	switch {
	case !p.cfg.Enabled, p.remote.End < 0, p.remote.Dropped, p.remote.Start > p.log.LogStart:
		return -1
	}
	from, _ := p.keptFrom()
	return min(p.remote.End, from)
}

func (p *partition) advanceStart(c *core, offset int64, now instant) {
	if p.started || offset <= p.log.LogStart || offset == p.startedAt {
		return
	}
	if p.startRest.resting(now.steady) {
		p.wakeAt(p.startRest.until)
		return
	}
	p.started, p.startedAt = true, offset
	c.emit(fxAdvanceStart{p.ref(), offset})
}

func (e evStarted) apply(c *core, now instant) {
	p := c.find(e.answer)
	if p == nil {
		return
	}
	p.started = false
	if e.err != nil {
		p.startedAt = 0
		p.startRest.failBy(e.err, now.steady, c.rng)
		p.watch.fail("advance log start", "", e.err, now)
	} else {
		p.startRest.succeed()
		p.watch.succeed("advance log start")
		p.dirty = true
	}
	p.advance(c, now)
}
