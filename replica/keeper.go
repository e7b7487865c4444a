package replica

import (
	"errors"
	"sync"
	"time"

	"github.com/varvelog/varve/hot"
)

// keeper runs a kind of housekeeping in each partition when it is due there. Partitions enter it when they are written to,
// when segments come free, and when something in them is going to expire; idle ones are not in it.
type keeper struct {
	run  func(*Partition)
	wake chan struct{} // the earliest due time has changed; one signal is enough

	mu       sync.Mutex // guards the following
	schedule schedule
}

func (k *keeper) init(run func(*Partition)) {
	k.run = run
	k.schedule = newSchedule()
	k.wake = make(chan struct{}, 1)
}

// at has p looked after at a time, unless it is due sooner already.
func (k *keeper) at(p *Partition, at int64) {
	k.mu.Lock()
	before := k.schedule.next()
	k.schedule.sooner(p, at)
	changed := k.schedule.next() < before
	k.mu.Unlock()
	if changed {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
}

// forget takes a deleted partition out.
func (k *keeper) forget(p *Partition) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.schedule.set(p, never)
}

// take removes and returns a partition that is due, or says when the next one will be.
func (k *keeper) take(now int64) (p *Partition, next int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.schedule.take(now), k.schedule.next()
}

// keep looks after one partition after the other as they come due, until stop is closed.
func (k *keeper) keep(stop <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-k.wake:
		case <-timer.C:
		}
		p, next := k.take(now())
		for ; p != nil; p, next = k.take(now()) {
			k.run(p)
			select {
			case <-stop:
				return
			default:
			}
		}
		timer.Stop()
		if next != never {
			timer.Reset(time.Duration(max(0, next-now())) * time.Millisecond)
		}
	}
}

// written is told of the first append since the last housekeeping.
func (m *Manager) written(p *Partition) {
	m.retention.at(p, now()+m.config.RetentionCheckInterval.Milliseconds())
}

// retain does the retention that is due in one partition, and finds out when something will be due again without being told.
func (m *Manager) retain(p *Partition) {
	if p.role.Load().final() {
		return
	}
	p.busy.Store(false) // an append from here on schedules the next round
	done, err := p.log.Retain(now())
	if err != nil {
		m.troubled(p, "retention", err)
		return
	}
	if done.LogStartMoved {
		p.startMoved()
	}
	if p.settings.Load().compacts {
		m.compaction.at(p, now())
	}
	if at := p.dueAgain(now()); at != never {
		m.retention.at(p, at)
	}
}

// compact does the compaction that is due in one partition. It has a keeper of its own: it takes long, and retention of other
// partitions must not wait for it.
func (m *Manager) compact(p *Partition) {
	if p.role.Load().final() {
		return
	}
	if _, err := p.log.Compact(m.running, now()); err != nil && m.running.Err() == nil {
		m.troubled(p, "compaction", err)
	}
}

func (m *Manager) troubled(p *Partition, what string, err error) {
	switch {
	case errors.Is(err, hot.ErrClosed):
	case p.log.Err() != nil:
		p.goOffline(err)
	default:
		p.logger().Warn("housekeeping failed", "what", what, "err", err)
		m.written(p)
	}
}

// dueAgain is when the partition needs a look though nobody writes to it: when its oldest segment's records expire. Sizes
// change only by appends, which schedule by themselves; compacted topics are looked at in every interval while they have
// sealed segments, for tombstones expire by a clock of their own.
func (p *Partition) dueAgain(now int64) int64 {
	interval := p.m.config.RetentionCheckInterval.Milliseconds()
	set := p.settings.Load()
	segments, err := p.log.Segments()
	if err != nil || len(segments) == 0 || segments[len(segments)-1].EndOffset == segments[0].BaseOffset {
		return never
	}
	if set.topic.CleanupCompact && len(segments) > 1 {
		return now + interval
	}
	keep := set.topic.RetentionMillis
	if set.tier.Enabled { // of an active segment too: it is sealed then
		keep = minRetention(keep, set.topic.LocalRetentionMillis())
	}
	if keep < 0 || !set.topic.CleanupDelete {
		return never
	}
	return max(now+interval, segments[0].MaxTimestamp+keep+1)
}

// minRetention is the shorter of two retention times; negative means for ever.
func minRetention(a, b int64) int64 {
	if a < 0 || b >= 0 && b < a {
		return b
	}
	return a
}
