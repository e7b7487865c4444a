package hot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// maintenance is the store's one background goroutine besides the syncer: it
// finishes sealed segments, moves recovery points, journals high watermarks,
// measures the disk and removes deleted files.
type maintenance struct {
	mu      sync.Mutex // guards the following
	sealed  map[*Log]struct{}
	removal []removal // by due time

	wake chan struct{}
	done chan struct{}
}

// removal is a file or directory to be removed at due (ms).
type removal struct {
	path string
	due  int64
}

func (m *maintenance) init() {
	m.sealed = map[*Log]struct{}{}
	m.wake = make(chan struct{}, 1)
	m.done = make(chan struct{})
}

func (m *maintenance) kick() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *maintenance) wait() { <-m.done }

// wantMaintenance asks for a log's sealed segments to be finished.
func (s *Store) wantMaintenance(l *Log) {
	s.maint.mu.Lock()
	s.maint.sealed[l] = struct{}{}
	s.maint.mu.Unlock()
	s.maint.kick()
}

// removeLater removes a path after delay milliseconds, or at the next open.
func (s *Store) removeLater(path string, delay int64) {
	due := time.Now().UnixMilli() + delay
	s.maint.mu.Lock()
	i, _ := slices.BinarySearchFunc(s.maint.removal, due, func(r removal, due int64) int { return cmp.Compare(r.due, due+1) })
	s.maint.removal = slices.Insert(s.maint.removal, i, removal{path, due})
	s.maint.mu.Unlock()
	if delay == 0 {
		s.maint.kick()
	}
}

const (
	maintainInterval = time.Second
	watermarkTicks   = 5
)

// maintain runs until stop closes.
func (s *Store) maintain(stop <-chan struct{}) {
	defer close(s.maint.done)
	tick := time.NewTicker(maintainInterval)
	defer tick.Stop()
	lastCheckpoint := time.Now()
	for n := 1; ; n++ {
		select {
		case <-stop:
			s.finishSealed()
			return
		case <-s.maint.wake:
			s.finishSealed()
			s.removeDue(time.Now().UnixMilli())
			continue
		case <-tick.C:
		}
		s.finishSealed()
		s.measure()
		s.settleBoot()
		s.syncer.resume()
		s.removeDue(time.Now().UnixMilli())
		all := time.Since(lastCheckpoint) >= s.config.CheckpointInterval
		if all {
			lastCheckpoint = time.Now()
		}
		s.checkpointGrown(all)
		if n%watermarkTicks == 0 {
			s.journalWatermarks()
		}
	}
}

func (s *Store) finishSealed() {
	s.maint.mu.Lock()
	var logs []*Log
	for l := range s.maint.sealed {
		logs = append(logs, l)
	}
	clear(s.maint.sealed)
	s.maint.mu.Unlock()
	for _, l := range logs {
		l.maintMu.Lock()
		// Any other error took the log offline and was logged there.
		if err := l.finishSeals(); errors.Is(err, ErrDiskFull) {
			s.maint.mu.Lock()
			s.maint.sealed[l] = struct{}{} // for the next tick
			s.maint.mu.Unlock()
		}
		l.maintMu.Unlock()
	}
}

func (s *Store) removeDue(now int64) {
	for {
		s.maint.mu.Lock()
		if len(s.maint.removal) == 0 || s.maint.removal[0].due > now {
			s.maint.mu.Unlock()
			return
		}
		r := s.maint.removal[0]
		s.maint.removal = slices.Delete(s.maint.removal, 0, 1)
		s.maint.mu.Unlock()
		remove := s.fs.RemoveAll
		if strings.HasSuffix(r.path, deleteSuffix) {
			remove = s.removeDeleted
		}
		if err := remove(r.path); isDiskEnd(err) {
			s.removeLater(r.path, removeRetry)
		} else if err != nil {
			s.logger.Warn("deleted file cannot be removed, the next start tries again", "path", r.path, "err", err)
		}
	}
}

// checkpointGrown checkpoints logs that grew much, or all that changed.
func (s *Store) checkpointGrown(all bool) {
	var due []*Log
	for _, l := range s.opened() {
		if l.Err() != nil {
			continue
		}
		if l.grown.Load() >= s.config.CheckpointBytes || all && l.changed.Load() {
			due = append(due, l)
		} else if all {
			l.idle()
		}
	}
	if len(due) > 0 {
		if err := s.checkpoint(due, false); err != nil {
			s.logger.Error("checkpoint failed", "err", err)
		}
	}
}

// checkpoint moves the recovery points of logs up to where they are now. Log
// bytes are synced before anything names them, transaction indexes and leader
// epochs before the journal moves past them; index entries and snapshots need
// no sync, since they are checked when read and can be rebuilt.
func (s *Store) checkpoint(logs []*Log, closing bool) error {
	jobs := make([]checkpointJob, 0, len(logs))
	for _, l := range logs {
		l.maintMu.Lock()
		at, err := l.capture(closing)
		l.maintMu.Unlock()
		if err != nil {
			return err
		}
		if at != nil {
			jobs = append(jobs, checkpointJob{l, at, false})
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	s.syncer.flush()
	bulk := len(jobs) > s.config.SyncFilesMax
	failed := eachJob(jobs, func(l *Log, at *checkpointed) error { return l.write(at, bulk) })
	if bulk {
		err := s.syncBulk(jobs)
		failed = errors.Join(failed, err)
		if s.Err() != nil {
			return failed
		}
	}
	failed = errors.Join(failed, eachJob(jobs, (*Log).commit))
	for _, j := range jobs {
		if j.failed {
			j.log.changed.Store(true) // the next checkpoint tries again
		}
	}
	if err := s.journal.sync(); isDiskEnd(err) {
		failed = errors.Join(failed, err)
	} else if err != nil {
		s.failAll("syncing the journal", err)
		failed = errors.Join(failed, err)
	}
	return failed
}

// syncBulk syncs what a bulk checkpoint wrote, and once more after leader
// epochs took their names: contents must be durable first.
func (s *Store) syncBulk(jobs []checkpointJob) error {
	if err := s.fs.SyncFS(s.config.Dir); err != nil {
		s.failAll("sync", err)
		return err
	}
	renamed := false
	failed := eachJob(jobs, func(l *Log, at *checkpointed) error {
		did, err := l.renameEpochs(at)
		renamed = renamed || did
		return err
	})
	if !renamed {
		return failed
	}
	if err := s.fs.SyncFS(s.config.Dir); err != nil {
		s.failAll("sync", err)
		return errors.Join(failed, err)
	}
	return failed
}

// checkpointJob is one log's part of a checkpoint.
type checkpointJob struct {
	log    *Log
	at     *checkpointed
	failed bool
}

func eachJob(jobs []checkpointJob, f func(*Log, *checkpointed) error) (failed error) {
	for i := range jobs {
		j := &jobs[i]
		if j.failed {
			continue
		}
		j.log.maintMu.Lock()
		if err := f(j.log, j.at); err != nil {
			j.failed = true
			failed = errors.Join(failed, fmt.Errorf("checkpoint %s: %w", j.log.part, err))
		}
		j.log.maintMu.Unlock()
	}
	return failed
}

// journalWatermarks writes high watermarks that moved; losing some costs a
// follower a few fetches, so nothing waits for a sync.
func (s *Store) journalWatermarks() {
	for _, l := range s.opened() {
		if l.Err() != nil || !l.maintMu.TryLock() {
			continue
		}
		if hw, epoch := l.watermark(); hw != l.saved.highWatermark || epoch != l.saved.hadEpoch {
			l.saved.highWatermark, l.saved.hadEpoch = hw, epoch
			if err := l.journal(l.saved); err != nil {
				l.maintMu.Unlock()
				s.failAll("writing the journal", err)
				return
			}
		}
		l.maintMu.Unlock()
	}
}

// appended is told about every append.
func (s *Store) appended(l *Log, n int64) {
	s.stats.Appends.Add(1)
	s.stats.AppendBytes.Add(n)
	l.grown.Add(n)
	l.changed.Store(true)
	s.syncer.push(l, false)
}

// now is wall clock in milliseconds, for what has no caller to pass it.
func (s *Store) now() int64 { return time.Now().UnixMilli() }
