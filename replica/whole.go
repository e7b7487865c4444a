package replica

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/isr"
)

// A leader that was elected uncleanly has to make its log whole before it serves: what the bucket has committed stands, and
// its own log gives way where it differs. Without a bucket there is nothing better than its own log.

// whole says whether the partition may be led in an epoch. If the bucket has to be asked first, that is begun: the partition
// comes back to the workers when it is done. A log that has failed is never whole, and there is nothing to wait for: lead says so.
func (m *Manager) whole(p *Partition, l isr.Leadership) bool {
	if !l.Recovering || p.log.Err() != nil || p.role.Load().final() || p.durable() && (!p.tiered() || p.wholeIn.Load() == int64(l.Epoch)) {
		return true
	}
	// Nobody is followed or led meanwhile.
	p.follow(isr.Leadership{Leader: NoReplica, Epoch: l.Epoch, Unclean: l.Unclean})
	if p.mending.CompareAndSwap(false, true) {
		m.wg.Go(func() {
			p.makeDurable(m.running, l.Epoch)
			if p.tiered() {
				p.makeWhole(m.running, l.Epoch)
			}
			p.mending.Store(false)
			m.again(p.id)
		})
	}
	return false
}

// durable says that everything in the log is on disk. A follower outside the in-sync set may have heard of a high watermark
// before its own copy of those records was synced: when it is elected all the same it must not show what it could still lose.
func (p *Partition) durable() bool {
	o := p.log.Offsets()
	return o.Durable >= o.End
}

// durableCheck is how often a log that is being synced is looked at: a group commit takes a few milliseconds.
const durableCheck = 2 * time.Millisecond

// makeDurable waits for the syncer, until the epoch is over.
func (p *Partition) makeDurable(ctx context.Context, epoch int32) {
	tick := time.NewTicker(durableCheck)
	defer tick.Stop()
	for !p.durable() && p.log.Err() == nil && p.role.Load().epoch == epoch && !p.role.Load().final() {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// errNoLease is returned when this broker's session with the controller has ended.
var errNoLease = errors.New("replica: the session with the controller has ended")

// mendRetry is how long a bucket that does not answer is left alone.
const mendRetry = time.Second

// leaseRetry is how long a partition waits to look again whether this broker has a session: that asks nobody.
const leaseRetry = 100 * time.Millisecond

// wholeRetry is how long to wait after a comparison that failed.
func wholeRetry(err error) time.Duration {
	if errors.Is(err, errNoLease) {
		return leaseRetry
	}
	return mendRetry
}

// makeWhole compares the log with the bucket, until the bucket answers or the epoch is over.
func (p *Partition) makeWhole(ctx context.Context, epoch int32) {
	for tries := 0; p.role.Load().epoch == epoch && !p.role.Load().final(); tries++ {
		err := p.takeBucket(ctx, epoch)
		if err == nil || ctx.Err() != nil {
			return
		}
		if tries == 0 {
			p.logger().Warn("leader elected uncleanly waits for the bucket", "leader_epoch", epoch, "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wholeRetry(err)):
		}
	}
}

func (p *Partition) takeBucket(ctx context.Context, epoch int32) error {
	ctx, cancel := context.WithTimeout(ctx, rebuildLimit)
	defer cancel()
	if !p.m.leased() {
		return errNoLease // it may have been replaced without a word, or the topic be deleted
	}
	// Before its end is looked at: a leader before this one may be cut off from the brokers alone, and could go on committing
	// what the log, by then longer, contradicts. After a clean election there is nothing to contradict, and the tier manager
	// claims when it has something to commit.
	if err := p.remote.Claim(ctx, epoch); err != nil {
		return fmt.Errorf("claim the manifest: %w", err)
	}
	s, err := p.bucketEnd(ctx)
	if err != nil {
		return err
	}
	p.leading.Lock()
	defer p.leading.Unlock()
	if r := p.role.Load(); r.epoch != epoch || r.err == nil || r.final() || p.following.Load() != nil {
		return nil // another epoch by now
	}
	v := p.view()
	if s.exists() && isr.Yields(v, isr.Archive{Start: s.start, End: s.end, Lineage: s.chain}) {
		p.logger().Error("leader elected uncleanly takes the bucket's records over its own", "leader_epoch", epoch,
			"end", v.End, "high_watermark", v.HighWatermark, "bucket_end", s.end)
		if err := p.startAfter(s); err != nil {
			return fmt.Errorf("take the bucket's records: %w", p.fromLog(err))
		}
	}
	if !s.exists() && s.start > v.End {
		// Offsets that were deleted are not given out again: what is written there would be deleted, too.
		p.logger().Error("leader elected uncleanly goes on at the committed log start", "leader_epoch", epoch,
			"end", v.End, "high_watermark", v.HighWatermark, "log_start", s.start)
		if err := p.startAt(s.start); err != nil {
			return fmt.Errorf("go on at the committed log start: %w", p.fromLog(err))
		}
	}
	p.wholeIn.Store(int64(epoch))
	return nil
}

// again brings a partition back to the workers.
func (m *Manager) again(id topic.Partition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s, ok := m.slots[keyOf(id)]; ok && !m.closed {
		s.pending = true
		m.queueLocked(s, false)
	}
}
