package tier

import "errors"

// commitment is a manifest edit in flight.
type commitment struct {
	uploads int // the first so many uploads
	ids     []uint64
	start   int64 // archive start committed with it, −1 none
	drop    bool
	purge   int // the first so many of p.purge
	marks   bool
	mended  *doubtful // what a replacement stands in for
}

// wantsCommit: there is something for the manifest.
func (p *partition) wantsCommit(now instant) bool {
	return p.committing == nil && (p.marking() || p.resettable() || p.uploadsDue(now))
}

// commitWaitMaxMillis bounds how long a finished upload waits for those behind it.
const commitWaitMaxMillis = 5000

// uploadsDue: finished uploads are to be committed. While the one behind them is
// still running they wait for it, so that one PUT commits several segments: for
// as long again as the first of them took to upload, and no longer than
// commitWaitMaxMillis. A segment is at risk at most twice as long for it, and one
// with nothing behind it does not wait.
func (p *partition) uploadsDue(now instant) bool {
	n := 0
	for n < len(p.uploads) && p.uploads[n].state == uploadDone {
		n++
	}
	if n == 0 || n >= addsPerCommit || n == len(p.uploads) || p.uploads[n].state != uploadRunning {
		return n > 0
	}
	first := p.uploads[0]
	due := first.done + min(first.done-first.started, commitWaitMaxMillis)
	if due > now.steady {
		p.wakeAt(due)
	}
	return due <= now.steady
}

// marksNearlyFull is when the head may have had no room for every mark.
const marksNearlyFull = MaxMarked - 2

func (p *partition) resettable() bool { return p.remote.Dropped && p.remote.Segments == 0 }

// marking: the next edit will mark segments.
func (p *partition) marking() bool {
	return p.wantDrop || p.wantStart > p.remote.Start || len(p.purge) > 0 || p.mended() != nil
}

// commitLane sends one edit with everything that is ready: finished uploads in
// order, the start that retention decided on, and the purge of what was deleted.
func (p *partition) commitLane(c *core, now instant) {
	if p.callRest.resting(now.steady) {
		p.wakeAt(p.callRest.until)
		return
	}
	if p.doubt || p.marking() && p.remote.Marked > 0 && !p.markedKnown {
		return // marks must be stamped above all earlier ones: the list comes first
	}
	if !c.callSlots.take(p, 0) {
		return
	}
	cm := &commitment{start: -1}
	edit := Edit{LeaderEpoch: p.epoch, MarkedAt: max(now.wall, p.lastMark+1), Topic: p.topicDue()}
	// A start beyond the archive's end goes alone: the next segment begins there.
	if p.wantStart <= p.remote.End || p.remote.End < 0 {
		for _, u := range p.uploads {
			if u.state != uploadDone || cm.uploads == addsPerCommit {
				break
			}
			edit.Add = append(edit.Add, u.add)
			cm.uploads++
			cm.ids = append(cm.ids, u.id)
		}
	}
	if p.wantStart > p.remote.Start && (p.remote.End >= 0 || len(edit.Add) > 0) {
		edit.AdvanceStart, cm.start = p.wantStart, p.wantStart
	}
	edit.Purge, cm.purge = p.purge, len(p.purge)
	if p.wantDrop && len(edit.Add) == 0 && cm.start < 0 {
		edit.Drop, cm.drop = true, true
	}
	edit.Reset = p.resettable() && len(edit.Add) == 0 && cm.start < 0
	if cm.mended = p.mended(); cm.mended != nil {
		cm.mended.replace(&edit)
	}
	edit.MarkBelowStart = cm.start >= 0 || cm.purge > 0 || cm.drop
	cm.marks = edit.MarkBelowStart || cm.mended != nil
	p.committing = cm
	c.emit(fxCommit{p.ref(), edit, c.cfg.callMillis})
}

// topicDue is the topic's description when the head does not hold it yet.
func (p *partition) topicDue() *TopicInfo {
	if p.cfg.Topic == p.topicSaved {
		return nil
	}
	return p.cfg.Topic
}

func (e evCommitted) apply(c *core, now instant) {
	c.callSlots.release()
	p := c.find(e.answer)
	if p == nil {
		return
	}
	cm := p.committing
	p.committing = nil
	if p.fenced { // by another answer: what it carried has been given up
		return
	}
	switch {
	case e.err == nil:
		p.committed(c, cm, e.state, now)
	case isFenced(e.err) && c.cfg.broken == mutantIgnoreEpoch:
		p.epoch++
		p.claimed = false
		p.abandonAll(c)
	case isFenced(e.err):
		p.watch.fail("commit", "", e.err, now)
		p.fence(c, now)
	default:
		p.commitFailed(c, cm, e.err, now)
	}
	p.advance(c, now)
}

func (p *partition) committed(c *core, cm *commitment, s State, now instant) {
	p.callRest.succeed()
	p.watch.succeed("commit")
	p.watch.moved(now)
	p.doubt, p.unsettled = false, false
	p.topicSaved = p.cfg.Topic
	own := int64(-1)
	if cm.uploads > 0 {
		own = p.uploads[cm.uploads-1].end
	}
	p.uploads = p.uploads[cm.uploads:]
	if cm.uploads > 0 {
		c.emit(fxRelease{p.ref(), cm.ids})
	}
	for _, id := range p.purge[:cm.purge] {
		delete(p.deleting, id)
	}
	p.purge = append(p.purge[:0:0], p.purge[cm.purge:]...)
	p.markedKnown = p.markedKnown && !cm.marks
	p.learn(s)
	if cm.mended != nil {
		p.replaced(c, cm.mended, now)
	}
	if p.remote.End == own {
		p.judged = own // it came from the log itself, and continues what was judged
	}
	if cm.start >= 0 {
		if p.wantStart == cm.start {
			p.wantStart = -1
		}
		p.advanceStart(c, cm.start, now)
	}
	p.wantDrop = p.wantDrop && !cm.drop
	p.dropMisfits(c)
}

// commitFailed leaves the outcome open unless the store refused plainly: the
// manifest is read again, by a claim, before anything else is decided. Nothing
// is deleted on account of an error (T6).
func (p *partition) commitFailed(c *core, cm *commitment, err error, now instant) {
	p.callFailed(c, "commit", err, now)
	p.claimed = false
	if cm.mended != nil {
		p.notReplaced(c, cm.mended, now)
	}
	if !errors.Is(err, ErrConflict) && !errors.Is(err, ErrTooManyMarked) && !errors.Is(err, errNoLease) {
		p.doubt, p.unsettled = true, true
	}
	if errors.Is(err, ErrConflict) && cm.purge > 0 {
		// The list we knew is not the committed one.
		for _, id := range p.purge {
			delete(p.deleting, id)
		}
		p.purge, p.markedKnown = nil, false
	}
	if c.cfg.broken == mutantDeleteOnUnknown && cm.uploads > 0 {
		p.deleteUncommitted(c)
	}
}
