package replica

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/tier"
)

// notFound is the answer when no record fits: no error (ListOffsets gives -1).
var notFound = TimeOffset{Offset: NoOffset, Timestamp: NoTimestamp, LeaderEpoch: NoEpoch}

// ListOffset answers one ListOffsets question: a special timestamp (-1 to -6) or the first record with a timestamp at or after
// ts. Both tiers are one log here: the same question gives the same answer wherever the records lie. It may read the bucket.
//
// A leader without a lease answers where the log begins and what it finds; where the log ends is not its to say (lastWord).
func (p *Partition) ListOffset(ctx context.Context, ts int64, isolation int8, replicaID, currentEpoch int32) (TimeOffset, error) {
	if err := p.admit(currentEpoch); err != nil {
		return notFound, err
	}
	found, err := p.listOffset(ctx, ts, isolation, replicaID)
	if err != nil || ts == TimeEarliest || ts == TimeEarliestLocal || ts >= 0 && found.Offset != NoOffset {
		return found, err
	}
	if err := p.lastWord(); err != nil {
		return notFound, err
	}
	return found, nil
}

func (p *Partition) listOffset(ctx context.Context, ts int64, isolation int8, replicaID int32) (TimeOffset, error) {
	if ts < TimeEarliestPendingUpload {
		return notFound, ErrUnsupportedTimestamp
	}
	role := p.role.Load()
	fetchable := p.fetchable(isolation, replicaID)
	var lagging error // a new leader's watermark may be behind what the last one told: "latest" is not known yet (KIP-207)
	if replicaID < 0 && role.start > p.log.HighWatermark() {
		lagging = ErrOffsetNotAvailable
	}
	switch ts {
	case TimeLatest:
		if lagging != nil {
			return notFound, lagging
		}
		return TimeOffset{Offset: fetchable, Timestamp: NoTimestamp, LeaderEpoch: role.epoch}, nil
	case TimeEarliest:
		return p.at(p.log.Offsets().LogStart), nil
	case TimeEarliestLocal:
		o := p.log.Offsets()
		if !p.tiered() {
			return p.at(o.LogStart), nil
		}
		return p.at(o.LocalStart), nil
	}
	found, err := p.search(ctx, ts)
	ofBucket := ts == TimeLatestTiered || ts == TimeEarliestPendingUpload // the watermark says nothing of its end
	if err != nil || found.Offset < fetchable && (found.Offset != NoOffset || ofBucket) {
		return found, err
	}
	return notFound, lagging // no record so late, as far as is known here
}

// fetchable is the offset below which this reader sees the log.
func (p *Partition) fetchable(isolation int8, replicaID int32) int64 {
	switch {
	case replicaID >= 0:
		return p.log.Offsets().End
	case isolation == ReadCommitted:
		return p.log.LastStable()
	}
	return p.log.HighWatermark()
}

func (p *Partition) search(ctx context.Context, ts int64) (TimeOffset, error) {
	switch ts {
	case TimeLatestTiered:
		end, err := p.remoteEnd(ctx)
		if err != nil || end <= 0 {
			return notFound, err
		}
		return p.at(end - 1), nil
	case TimeEarliestPendingUpload:
		return p.pendingUpload(ctx)
	case TimeMax:
		return p.maxTimestamp(ctx)
	}
	return p.firstAtOrAfter(ctx, ts)
}

// at is an offset that was not found by a timestamp, with the epoch that wrote it as far as the lineage knows.
func (p *Partition) at(offset int64) TimeOffset {
	return TimeOffset{Offset: offset, Timestamp: NoTimestamp, LeaderEpoch: p.log.Lineage().EpochAt(offset)}
}

// remoteEnd is the archive's committed end, or -1.
func (p *Partition) remoteEnd(ctx context.Context) (int64, error) {
	if !p.tiered() {
		return NoOffset, nil
	}
	state, err := p.remote.State(ctx)
	if err != nil {
		return NoOffset, unavailable(err)
	}
	return state.End, nil
}

// pendingUpload is the first offset that is not in the bucket: -1 when the archive is empty though local data below has gone
// already, for then nobody can say.
func (p *Partition) pendingUpload(ctx context.Context) (TimeOffset, error) {
	if !p.tiered() {
		return notFound, nil
	}
	end, err := p.remoteEnd(ctx)
	if err != nil {
		return notFound, err
	}
	o := p.log.Offsets()
	switch {
	case end >= 0:
		return p.at(max(end, o.LogStart)), nil
	case o.LocalStart == o.LogStart:
		return p.at(o.LogStart), nil
	}
	return notFound, nil
}

// seamAttempts bounds how often a lookup starts again because local segments left between its two halves. Each round the
// archive must have taken over a whole segment, so more than two is rare.
const seamAttempts = 8

// bothTiers runs a lookup over the archive's part [log start, remote end) and then over the local part, and makes sure that
// nothing fell between them: a segment that was local only while the archive was asked, and had left the disk when the local
// log was, would be in neither answer. The remote half is skipped when the whole log is local.
//
// A damaged local segment makes it start again: then the archive answers for all it holds, and the local log only for what
// lies above the archive's end.
func (p *Partition) bothTiers(ctx context.Context, remote, local func(from int64) error) error {
	damaged := error(nil)
	for range seamAttempts {
		o := p.log.Offsets()
		covered := o.LogStart // everything below is covered by what has been asked so far
		above := int64(0)
		if p.remote != nil && (o.LogStart < o.LocalStart || damaged != nil) {
			state, err := p.remote.State(ctx)
			if err != nil {
				return unavailable(err)
			}
			if state.End < o.LocalStart {
				if state, err = p.remote.Refresh(ctx); err != nil {
					return unavailable(err)
				}
			}
			if err := remote(o.LogStart); err != nil {
				return unavailable(err)
			}
			covered = max(covered, state.End)
			if damaged != nil {
				if state.End < 0 || state.Start > o.LogStart {
					return p.fromLog(damaged) // the archive does not hold the log from its start on
				}
				above = state.End
			}
		}
		err := local(above)
		if errors.Is(err, hot.ErrCorrupt) && damaged == nil && p.remote != nil {
			damaged = err
			continue
		}
		if err != nil {
			return p.fromLog(err)
		}
		if p.log.Offsets().LocalStart <= covered {
			return nil
		}
	}
	return fmt.Errorf("%w: local segments kept leaving during the lookup", ErrRemoteUnavailable)
}

// firstAtOrAfter is the first record of the whole log with a timestamp of ts or later.
func (p *Partition) firstAtOrAfter(ctx context.Context, ts int64) (TimeOffset, error) {
	found := notFound
	better := func(offset, timestamp int64, epoch int32) {
		if found.Offset == NoOffset || offset < found.Offset {
			found = TimeOffset{Offset: offset, Timestamp: timestamp, LeaderEpoch: epoch}
		}
	}
	err := p.bothTiers(ctx, func(from int64) error {
		found = notFound // a new round
		t, ok, err := p.remote.OffsetForTime(ctx, ts, from)
		if ok && err == nil {
			better(t.Offset, t.Timestamp, t.Epoch)
		}
		return ignoreEmpty(err)
	}, func(from int64) error {
		if found.Offset != NoOffset {
			return nil // the archive's part comes first in the log
		}
		t, ok, err := p.log.OffsetForTimeFrom(ts, from)
		if ok && err == nil {
			better(t.Offset, t.Timestamp, t.Epoch)
		}
		return err
	})
	if err != nil {
		return notFound, err
	}
	return found, nil
}

// maxTimestamp is the record with the largest timestamp of the whole log, the first of several.
func (p *Partition) maxTimestamp(ctx context.Context) (TimeOffset, error) {
	found := notFound
	better := func(offset, timestamp int64, epoch int32) {
		if found.Offset == NoOffset || timestamp > found.Timestamp || timestamp == found.Timestamp && offset < found.Offset {
			found = TimeOffset{Offset: offset, Timestamp: timestamp, LeaderEpoch: epoch}
		}
	}
	err := p.bothTiers(ctx, func(from int64) error {
		found = notFound // a new round
		t, ok, err := p.remote.MaxTimestamp(ctx, from)
		if ok && err == nil {
			better(t.Offset, t.Timestamp, t.Epoch)
		}
		return ignoreEmpty(err)
	}, func(from int64) error {
		t, ok, err := p.log.MaxTimestampFrom(from)
		if ok && err == nil {
			better(t.Offset, t.Timestamp, t.Epoch)
		}
		return err
	})
	if err != nil {
		return notFound, err
	}
	return found, nil
}

// ignoreEmpty takes an archive that holds nothing from the offset asked for as no answer rather than an error.
func ignoreEmpty(err error) error {
	if errors.Is(err, tier.ErrNotTiered) || errors.Is(err, tier.ErrBelowStart) {
		return nil
	}
	return err
}

// EndOffsetForEpoch answers OffsetForLeaderEpoch: the largest epoch not above the one asked for, and where it ended. (-1, -1)
// when there is none: for a consumer that means that what it has read is gone. While damage may hide the end it is
// ErrOffsetNotAvailable, and clients ask again. Once it is sure that nobody has what is damaged, the latest offset at which the epoch
// may have ended is the answer: it takes no position for one in records that are gone.
func (p *Partition) EndOffsetForEpoch(currentEpoch, epoch int32) (int32, int64, error) {
	if err := p.admit(currentEpoch); err != nil {
		return NoEpoch, NoOffset, err
	}
	found, end, doubtful := p.epochEnd(epoch, p.log.Offsets().End, math.MaxInt64)
	if doubtful && !p.damage.verdict.Load().holds(p) {
		return NoEpoch, NoOffset, ErrOffsetNotAvailable
	}
	if err := p.lastWord(); err != nil {
		return NoEpoch, NoOffset, err
	}
	return found, end, nil
}

// DeleteRecords raises the log start: everything below offset is gone for readers at once, in both tiers; -1 stands for the
// high watermark. It returns the log start that is now in force.
func (p *Partition) DeleteRecords(_ context.Context, offset int64) (int64, error) {
	role := p.role.Load()
	if role.err != nil {
		return NoOffset, role.err
	}
	if !p.m.leased() {
		return NoOffset, ErrNotLeader // as far as anybody knows here, and whoever leads would not hear of it
	}
	if t := &p.settings.Load().topic; t.CleanupCompact && !t.CleanupDelete {
		return NoOffset, ErrPolicyViolation
	}
	hw := p.log.HighWatermark()
	if offset == -1 {
		offset = hw
	}
	if offset < 0 || offset > hw {
		return NoOffset, ErrOffsetOutOfRange
	}
	if err := p.raiseLogStart(offset); err != nil {
		return NoOffset, p.fromLog(err)
	}
	p.m.retention.at(p, now()) // segments that lie below go at once
	return p.log.Offsets().LogStart, nil
}

// raiseLogStart moves the log start and tells everyone who must know.
func (p *Partition) raiseLogStart(offset int64) error {
	if err := p.log.AdvanceLogStart(offset); err != nil {
		return err
	}
	p.startMoved()
	return nil
}

// startMoved follows up a raised log start: readers below it have lost their place, and the tier manager has objects to let go.
func (p *Partition) startMoved() {
	start := p.log.Offsets().LogStart
	p.watchers.wakeAll(func(at int64) bool { return at < start })
	if l := p.offload.Load(); l != nil {
		l.LogStartMoved()
	}
}
