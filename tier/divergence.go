package tier

import "fmt"

// An archive and a local log that tell different histories must not be joined:
// what one of them has at an offset is not what the other has. Nothing is uploaded,
// released or deleted then. It takes a leader that was elected uncleanly and did
// not take over what the bucket has, or a bucket or disk that was put back to an
// earlier state.
//
// Ends alone do not tell: the log may be as long as the archive, or have become so
// since. Epochs do. A leader epoch has one leader, who gives out each offset once,
// and replicas agree on all that lies below a batch they both have: if the archive's
// last offset is of the same leader epoch in both, everything below is the same.
//
// The log's epochs may be wrong, or not be known, as long as it is damaged. So what
// seems to contradict is judged again, until it does so no more.

// judgement is what the local log says of the archive's last offset.
type judgement struct {
	offset int64 // −1: nothing was asked
	epoch  int32 // leader epoch that wrote it, −1 when the log cannot say for now
	// below: the log's epochs begin above the offset, and the first of them is epoch.
	below bool
}

// toBeJudged is the offset whose epoch the next look is to bring along, −1 for none.
func (p *partition) toBeJudged() int64 {
	if !p.known || p.remote.EndEpoch < 0 || p.judged == p.remote.End && !p.contradicts {
		return -1
	}
	return p.remote.End - 1
}

// rejudgeMillis is how long what seems to contradict is left alone: a look asks
// nobody but the log.
const rejudgeMillis = 15_000

// judgeLane sees to it that the archive as it is known now has been compared with
// the log.
func (p *partition) judgeLane(c *core, now instant) bool {
	if p.toBeJudged() < 0 || p.judged == p.remote.End || p.remote.End > p.log.End {
		return true
	}
	p.dirty = true
	p.lookLane(c, now)
	return false
}

// judge takes what a look has found. The log may have been too short to say.
func (p *partition) judge(j judgement, now instant) {
	if j.offset < 0 || j.offset != p.toBeJudged() || j.offset >= p.log.End {
		return
	}
	was := p.contradicts
	p.judged = p.remote.End
	unsure := j.epoch < 0 && !j.below
	p.contradicts = j.epoch >= 0 && (!j.below && j.epoch != p.remote.EndEpoch || j.below && j.epoch < p.remote.EndEpoch)
	p.contradicts = p.contradicts || unsure
	switch {
	case unsure:
		p.watch.fail("compare", "", fmt.Errorf("offset %d is of leader epoch %d in the archive: %w", j.offset, p.remote.EndEpoch, errUnsure), now)
	case p.contradicts:
		p.watch.fail("compare", "", fmt.Errorf("%w: offset %d is of leader epoch %d in the archive and of %d here",
			errContradicts, j.offset, p.remote.EndEpoch, j.epoch), now)
	case was:
		p.watch.succeed("compare")
	}
}

// diverged: the archive holds offsets this log has never had, or others than it
// has. Nothing is uploaded and nothing deleted on such a view.
func (p *partition) diverged() bool {
	return p.known && !p.remote.Dropped && (p.contradicts || max(p.remote.End, p.remote.Start) > p.log.End)
}

// distrust lets nothing local go any more on the archive's account.
func (p *partition) distrust(c *core) {
	if p.told != -1 {
		p.told = -1
		c.emit(fxSetRemoteEnd{p.ref(), -1})
	}
}
