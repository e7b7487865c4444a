package hot

import "github.com/varvelog/varve/hot/lineage"

// A log whose directory is gone must know whether records were acknowledged from it. Its watermark and recovery point come into the
// journal with the first checkpoint only, seconds after the first records. So before the first append of all the journal is told
// that there is one, and under which leader epoch: it is synced before anything that was appended counts as durable.
//
// That the journal has this and the directory is not there must mean that it was removed: the directory's name is
// durable first.

// holdLocked goes before the first append to a log, of a batch at an offset. It needs appendMu.
func (l *Log) holdLocked(epoch int32, at int64) error {
	if l.held {
		return nil
	}
	if err := l.store.syncNewDirs(); err != nil {
		return l.failUnlessFull("syncing the data directory", err)
	}
	var err error
	if l.held, err = l.store.journal.hold(keyOf(l.part), lineage.Entry{Epoch: epoch, Start: at}); err != nil {
		return l.failUnlessFull("writing the journal", err)
	}
	return nil
}

// hold records that a partition gets records, of an epoch. It stays so until the partition is removed. done is false when the
// journal was lost, and does not know the partition before its next checkpoint.
func (j *journal) hold(k journalKey, e lineage.Entry) (done bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s, ok := j.live[k]
	if !ok || s.held {
		return ok, j.failed
	}
	s.held = true
	// The latest of several is the next checkpoint's to write: it takes the place of the one that is here alone.
	if s.epoch.Epoch < 0 && e.Epoch >= 0 {
		s.epoch, s.epochs = e, 1
	}
	return true, j.appendLocked(recordState, k, s)
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
