package hot

import (
	"errors"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
)

// The leader-epoch chain read off the batches, when its file is missing or
// damaged. What of the log is damaged, too, is passed: the log must open. But when
// an epoch begins right behind damage nobody here knows where in there it did.
// Such a chain denies nobody anything, and is made again once nothing is damaged. It
// is the best there is, so it is written down like any other; that it is doubtful the
// journal says, durably before.

// Doubtful says that the chain was read off batches of which some are damaged,
// and that an epoch may have begun earlier than it says, or is missing in it. It
// is not to be compared with another log's but for the latest epoch.
func (l *Log) Doubtful() bool { return l.doubtful.Load() }

// journal records a state of the log. Doubt goes with what makes the next start end
// it, for that derives again what lacks the damage.
func (l *Log) journal(st partitionState) error {
	if st.doubtful = l.doubtful.Load(); st.doubtful {
		st.lacks = l.lacks()
	}
	return l.store.journal.putLast(keyOf(l.part), st, l.learnLatest)
}

// noteDoubt makes durable that the chain is doubtful, if it is, before it is
// written down. It needs maintMu.
func (l *Log) noteDoubt() error {
	if !l.doubtful.Load() {
		return nil
	}
	st, known := l.store.journal.state(keyOf(l.part))
	if !known {
		return errors.Join(l.journal(st), l.store.journal.sync())
	}
	// Not by what was read of it: an append that fails meanwhile takes an epoch back.
	lacks := l.lacks()
	return errors.Join(l.store.journal.change(keyOf(l.part), func(st *partitionState) {
		if !st.doubtful {
			st.doubtful, st.lacks = true, lacks
		}
	}), l.store.journal.sync())
}

// chainOn reads the epochs of what lies below end off the local batches, past
// what is damaged.
func (l *Log) chainOn(end int64) (c lineage.Chain, err error) {
	var doubt bool
	err = l.goOn(func() error {
		c, doubt, err = l.readChainOff(end, l.walkBarred)
		return err
	})
	if doubt {
		l.logger().Error("leader epochs are read off batches of which some are damaged: when they began is not known for sure until those are mended")
		l.doubtful.Store(true)
	}
	return c, err
}

// readChainOff is one attempt at chainOn. doubt says that an epoch begins behind
// damage.
func (l *Log) readChainOff(end int64, walk walkFunc) (c lineage.Chain, doubt bool, err error) {
	next := l.list()[0].base
	err = l.walkRangeBy(walk, 0, end, func(b batch.Batch) error {
		if b.LeaderEpoch() > c.Latest() {
			doubt = doubt || l.damagedWithin(next, b.BaseOffset())
			c = c.Assign(b.LeaderEpoch(), b.BaseOffset())
		}
		next = b.NextOffset()
		return nil
	})
	return c, doubt, err
}

// damagedWithin says whether offsets between two are quarantined, and wanted.
func (l *Log) damagedWithin(from, to int64) bool {
	from = max(from, l.offsets.load().LocalStart)
	for _, s := range l.list() {
		if q := s.bad.Load(); q != nil {
			for _, r := range q.ranges {
				if r.start < to && from < r.end {
					return true
				}
			}
		}
	}
	return false
}

// endChain forgets an epoch that the journal has, of a log that was just opened, and that began behind its end: the records
// before it are not here, and what comes in their place is of earlier epochs, or of any. It must not be in the journal any more
// when they do.
func (l *Log) endChain() error {
	end := l.offsets.end.Load()
	if l.saved.epoch.Start <= end {
		return nil
	}
	chain, err := l.loadChain()
	if err != nil {
		return err
	}
	l.setChain(chain.TruncateEnd(end + 1))
	latest := latestOf(*l.chain.Load())
	l.saved.epoch, l.saved.epochs = latest.entry, latest.entries
	return l.journal(l.saved)
}

// settleChain makes a doubtful chain again, of a log in which nothing is damaged
// any more. It needs maintMu and appendMu.
func (l *Log) settleChain() error {
	if !l.doubtful.Load() {
		return nil
	}
	now, err := l.loadChain()
	if err != nil {
		return err
	}
	c, doubt, err := l.readChainOff(l.offsets.end.Load(), l.walkKept)
	if err == nil && doubt {
		err = errLacks
	}
	if err != nil {
		return err
	}
	for _, e := range now { // epochs without records
		if e.Epoch > c.Latest() {
			c = c.Assign(e.Epoch, e.Start)
		}
	}
	l.setChain(c)
	l.doubtful.Store(false)
	l.saved.epoch, l.saved.epochs = *l.latest.Load(), uint32(len(c))
	if err := l.saveEpochs(c, false); err != nil {
		return l.fail("writing leader epochs", err)
	}
	return nil
}
