package replica

import (
	"slices"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/lineage"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/tier"
)

// tierLog is a led partition as the tier manager sees it, in one leader epoch. Once the epoch is over its effects are refused:
// a slow worker of the manager cannot touch the log under the next leadership.
type tierLog struct {
	p     *Partition
	epoch int32
}

var _ tier.Log = (*tierLog)(nil)

// offloadAs hands the partition to the tier manager. A topic that is not tiered is handed over as well when this broker has a
// store: it may have been tiered before, and what it left in the bucket is the manager's to remove.
func (p *Partition) offloadAs(epoch int32) {
	if p.m.deps.Tier == nil || p.remote == nil {
		return
	}
	p.offload.Store(p.m.deps.Tier.Lead(&tierLog{p: p, epoch: epoch}))
	if p.role.Load().final() && p.offload.Swap(nil) != nil {
		p.m.deps.Tier.Resign(p.id) // the disk failed while the manager was being told
	}
}

// Partition implements tier.Log.
func (l *tierLog) Partition() topic.Partition { return l.p.id }

// LeaderEpoch implements tier.Log.
func (l *tierLog) LeaderEpoch() int32 { return l.epoch }

// Config implements tier.Log.
func (l *tierLog) Config() tier.TopicConfig { return l.p.settings.Load().tier }

// Offsets implements tier.Log.
func (l *tierLog) Offsets() tier.LogOffsets {
	o, active := l.p.log.Offsets(), l.p.log.Active()
	since := active.Since
	if since < 0 && active.SizeBytes > 0 {
		since = l.p.opened // written before this process began: nobody remembers when
	}
	return tier.LogOffsets{
		LogStart: o.LogStart, LocalStart: o.LocalStart, Durable: o.Durable, End: o.End,
		HighWatermark: l.p.log.HighWatermark(), LastStable: l.p.log.LastStable(),
		ActiveBase: active.BaseOffset, ActiveBytes: active.SizeBytes, ActiveSince: since, ActiveMaxTimestamp: active.MaxTimestamp,
	}
}

// Sealed implements tier.Log.
func (l *tierLog) Sealed(from, limit int64) []tier.Segment {
	sealed, err := l.p.log.Sealed(from, limit)
	list := make([]tier.Segment, 0, len(sealed))
	for _, s := range sealed {
		chain, lerr := s.Lineage()
		if lerr != nil {
			err = lerr
			break
		}
		if len(chain) > 0 && chain[0].Start > s.BaseOffset() {
			// DeleteRecords has cut the lineage inside the segment. Nobody can read what lies below, so it may belong to the
			// first epoch that is left; but the object's lineage has to cover its range.
			chain = slices.Clone(chain)
			chain[0].Start = s.BaseOffset()
		}
		list = append(list, &sealedSegment{Segment: s, lineage: chain})
	}
	if err != nil {
		l.p.logger().Warn("sealed segments cannot be listed", "err", l.p.fromLog(err))
	}
	return list
}

// sealedSegment is a sealed local segment with its lineage at hand.
type sealedSegment struct {
	*hot.Segment
	lineage lineage.Chain
}

var _ tier.Segment = (*sealedSegment)(nil)

// Lineage implements tier.Segment.
func (s *sealedSegment) Lineage() lineage.Chain { return s.lineage }

// Roll implements tier.Log.
func (l *tierLog) Roll() error {
	if err := l.current(); err != nil {
		return err
	}
	return l.p.log.Roll(now())
}

// EpochAt implements tier.Log.
func (l *tierLog) EpochAt(offset int64) (epoch int32, below bool) {
	chain, hidden := l.p.lineageAt(offset)
	if hidden {
		return NoEpoch, false
	}
	if epoch = chain.EpochAt(offset); epoch >= 0 {
		return epoch, false
	}
	first, _ := chain.Earliest()
	return first.Epoch, true
}

// Leased implements tier.Log.
func (l *tierLog) Leased() bool { return l.p.m.leased() }

// SetRemoteEnd implements tier.Log: the manifest has committed everything below end, or the archive is withdrawn. Local
// segments that this sets free go at the next housekeeping, which is put forward.
func (l *tierLog) SetRemoteEnd(end int64) {
	if l.current() != nil {
		return
	}
	l.p.log.SetRemoteEnd(end)
	l.p.m.retention.at(l.p, now())
}

// AdvanceLogStart implements tier.Log: remote retention has committed a new start.
func (l *tierLog) AdvanceLogStart(offset int64) error {
	if err := l.current(); err != nil {
		return err
	}
	return l.p.raiseLogStart(offset)
}

// current says whether the leadership this view belongs to still stands.
func (l *tierLog) current() error {
	r := l.p.role.Load()
	if r.err != nil {
		return r.err
	}
	if r.epoch != l.epoch {
		return ErrNotLeader
	}
	return nil
}
