package hot

import (
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
)

// A log whose directory is gone must know whether records were acknowledged from it, and of which leader epochs: an unclean
// election of an earlier one does not excuse that they are missing. Its watermark and recovery point come into the journal with the
// first checkpoint only, seconds after the first records, and the epochs that a follower is sent with the next one. So before the
// first append of all, and of an epoch, the journal is told: it is synced before anything that was appended counts as durable.
//
// That the journal has this and the directory is not there must mean that it was removed: the directory's name is
// durable first.

// latestEpoch is what the journal has of a leader-epoch chain.
type latestEpoch struct {
	entry   lineage.Entry
	entries uint32 // of the chain
}

func latestOf(c lineage.Chain) latestEpoch {
	if len(c) == 0 {
		return latestEpoch{entry: noEntry}
	}
	return latestEpoch{c[len(c)-1], uint32(len(c))}
}

// holdLocked goes before the append of batches, of which the last has the epoch. It needs appendMu.
func (l *Log) holdLocked(b []byte, epoch int32) error {
	if l.held && epoch <= l.latest.Load().Epoch {
		return nil
	}
	if !l.held { // else its name is durable, and a later epoch need not wait for who syncs others
		if err := l.store.syncNewDirs(); err != nil {
			return l.failUnlessFull("syncing the data directory", err)
		}
	}
	chain, err := l.loadChain()
	if err != nil {
		return err
	}
	for len(b) > 0 {
		one, rest, err := batch.Next(b)
		if err != nil {
			return err
		}
		if one.LeaderEpoch() > chain.Latest() {
			chain = chain.Assign(one.LeaderEpoch(), one.BaseOffset())
		}
		b = rest
	}
	told := latestOf(chain)
	if told.entry.Epoch > l.latest.Load().Epoch {
		// Before the journal is: whatever it is told of the log from then on has it.
		l.told.Store(&told)
	}
	if l.held, err = l.store.journal.hold(keyOf(l.part), told); err != nil {
		return l.failUnlessFull("writing the journal", err)
	}
	return nil
}

// letGoLocked goes after the append that holdLocked went before. The chain has of its epochs those that it wrote. Of one that it
// could not write, the log being online still, the journal must know nothing either: the next batches may be of an earlier
// epoch, and stand where that one was to begin. It needs appendMu.
func (l *Log) letGoLocked() {
	told := l.told.Load()
	if told == nil || l.Err() != nil {
		return // what an offline log has on the disk nobody knows
	}
	l.told.Store(nil) // before the journal is: whatever it is told of the log from then on does not have it
	if told.entry.Epoch <= l.latest.Load().Epoch {
		return
	}
	if err := l.store.journal.unlearn(keyOf(l.part), latestOf(*l.chain.Load())); err != nil {
		l.fail("writing the journal", err)
	}
}

// holdFound has a log be missed that the journal did not know when it was opened, should its directory go. The caller journals it.
func (l *Log) holdFound() error {
	if l.offsets.load().End == 0 {
		return nil
	}
	if err := l.store.syncNewDirs(); isDiskEnd(err) {
		return nil // the first append tries again
	} else if err != nil {
		return err
	}
	l.held, l.saved.held = true, true
	return nil
}

// hold records that a partition gets records, and the latest epoch. It stays so until the partition is removed. done is false when
// the journal does not know the partition.
func (j *journal) hold(k journalKey, e latestEpoch) (done bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := j.live[k]
	if !ok || s.held && s.epoch.Epoch >= e.entry.Epoch {
		return ok, j.failed
	}
	s.held = true
	s.learn(e)
	return true, j.appendLocked(recordState, k, s)
}

// unlearn takes back every epoch after the one that is a log's latest.
func (j *journal) unlearn(k journalKey, e latestEpoch) error {
	return j.change(k, func(s *partitionState) {
		if s.epoch.Epoch > e.entry.Epoch {
			s.epoch, s.epochs = e.entry, e.entries
		}
	})
}

// learn takes an epoch that is later than the one that is known.
func (s *partitionState) learn(e latestEpoch) {
	if e.entry.Epoch > s.epoch.Epoch {
		s.epoch, s.epochs = e.entry, e.entries
	}
}

// learnLatest has a state that is about to be journaled know the latest epoch of the log, or of what is just being appended.
func (l *Log) learnLatest(s *partitionState) {
	// In this order: the chain has what was told before that is forgotten.
	if t := l.told.Load(); t != nil {
		s.learn(*t)
	}
	if c := l.chain.Load(); c != nil {
		s.learn(latestOf(*c))
	}
}

// missing is what is known of a log whose directory is gone: up to where it had records, and the latest leader epoch it is known to
// have had, NoEpoch when it never had any.
func (s *partitionState) missing() (had int64, epoch int32) {
	had, epoch = max(s.highWatermark, s.recovery), s.hadEpoch
	if had > 0 || s.held {
		epoch = max(epoch, s.epoch.Epoch, 0)
	}
	return had, epoch
}
