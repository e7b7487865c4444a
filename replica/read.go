package replica

import (
	"errors"
	"slices"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/hot/lineage"
)

// Read returns what the local log holds from an offset on, as far as the reader may see. An offset that is only in the bucket
// is not read here: the result says Cold, and ReadCold fetches it off the fast path.
//
// A replica's read says that it has, durably, everything below its offset: unless its log diverges, that counts for the high
// watermark and for the in-sync set. The leader epoch is checked before the replica is looked up (KAFKA-14078).
//
// It never blocks on the bucket. The offsets in the result are set even when the error is ErrOffsetOutOfRange.
//
// Of what is Missing elsewhere it says whether it is Absent here, whatever else it answers.
func (p *Partition) Read(r ReadRequest) (ReadResult, error) {
	absent := r.Missing > 0 && p.log.Lacks(r.Offset, r.Missing)
	res, err := p.read(r)
	res.Absent = absent
	return res, err
}

func (p *Partition) read(r ReadRequest) (ReadResult, error) {
	err := p.admitReader(r)
	if err != nil {
		return nothingRead, err
	}
	for {
		o := p.log.Offsets()
		res := ReadResult{HighWatermark: p.log.HighWatermark(), LastStable: p.log.LastStable(), LogStart: o.LogStart, RemoteEnd: NoOffset}
		if r.LastFetchedEpoch != NoEpoch {
			diverging, err := p.diverging(r, o)
			if err != nil || diverging != nil {
				if unknown := p.lastWord(); unknown != nil && r.ReplicaID < 0 {
					return nothingRead, unknown
				}
				res.Diverging = diverging
				return res, err
			}
		}
		if r.ReplicaID >= 0 {
			if r.Complaint != nil {
				p.suspect(r.Complaint.Refused)
			}
			if err := p.fetchedBy(r, o, &res); err != nil {
				return nothingRead, err
			}
		}
		done, err := p.readLocal(r, o, &res)
		if errors.Is(err, hot.ErrOffsetOutOfRange) && p.log.Offsets().LocalStart > o.LocalStart {
			continue // local retention took the segment between the look at the offsets and the read: decide again
		}
		if done || err != nil {
			return res, p.fromLog(err)
		}
	}
}

// nothingRead is the result of a read that was refused.
var nothingRead = ReadResult{HighWatermark: NoOffset, LastStable: NoOffset, LogStart: NoOffset, RemoteEnd: NoOffset}

// admitReader checks the reader's leader epoch, then whether this broker serves such a reader.
func (p *Partition) admitReader(r ReadRequest) error {
	err := p.admit(r.CurrentEpoch)
	role := p.role.Load()
	switch {
	case r.ReplicaID >= 0:
		if err == nil && !slices.Contains(role.replicas, r.ReplicaID) {
			if r.CurrentEpoch == NoEpoch {
				return ErrNotLeader // of a partition with such a replica
			}
			// The epoch is right, so this broker has not heard yet that the replica was added: it should ask again.
			return ErrUnknownLeaderEpoch
		}
	case r.AnyReplica && role.follows() && errors.Is(err, ErrNotLeader):
		return nil
	}
	return err
}

// readLocal is one attempt under one view of the offsets. done is false when it came to reading and that failed.
func (p *Partition) readLocal(r ReadRequest, o hot.Offsets, res *ReadResult) (done bool, err error) {
	switch {
	case r.Offset < o.LogStart:
		return true, ErrOffsetOutOfRange
	case r.Offset > o.End:
		if unknown := p.lastWord(); unknown != nil && r.ReplicaID < 0 {
			return true, unknown
		}
		return true, ErrOffsetOutOfRange
	case r.Offset < o.LocalStart:
		switch {
		case p.remote == nil:
			return true, ErrOffsetOutOfRange
		case r.ReplicaID >= 0:
			return true, ErrMovedToTiered
		}
		res.Cold = true
		return true, nil
	}
	if r.Isolation == ReadCommitted {
		res.Aborted = noneAborted
	}
	upper := p.upper(r, o, res)
	if r.Offset >= upper {
		return true, nil
	}
	slice, err := p.sound(r, upper)
	if errors.Is(err, hot.ErrCorrupt) && r.ReplicaID < 0 && p.inBucket(r.Offset) {
		res.Cold = true // the local copy is quarantined, but it is not the only one
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if slice.Len() == 0 {
		slice.Release()
		return true, nil
	}
	if r.Isolation == ReadCommitted {
		if res.Aborted, err = p.aborted(r.Offset, slice.NextOffset()); err != nil {
			slice.Release()
			return false, err
		}
	}
	res.Records = slice
	return true, nil
}

// sound reads what is not damaged. A client's records are checked before they are sent, unless that was not long ago; a replica
// checks for itself, and says so when they are not what they should be.
func (p *Partition) sound(r ReadRequest, upper int64) (*hot.Slice, error) {
	slice, err := p.log.Read(r.Offset, r.MaxBytes, upper, r.MinOne)
	if err != nil || r.ReplicaID >= 0 {
		return slice, err
	}
	if err = slice.Verify(); err == nil {
		return slice, nil
	}
	slice.Release()
	if !errors.Is(err, hot.ErrCorrupt) && !errors.Is(err, hot.ErrSegmentGone) {
		return nil, err
	}
	// What is damaged is barred now, and what is whole before it is not; what a truncation took is other records now.
	if slice, err = p.log.Read(r.Offset, r.MaxBytes, upper, r.MinOne); err != nil {
		return nil, err
	}
	if err = slice.Verify(); err != nil {
		slice.Release()
		return nil, err
	}
	return slice, nil
}

// inBucket says whether the archive, as far as this process knows it, holds an offset.
func (p *Partition) inBucket(offset int64) bool {
	if p.remote == nil {
		return false
	}
	s, ok := p.remote.Cached()
	return ok && s.Start <= offset && offset < s.End
}

// noneAborted is the empty list that read_committed answers carry: present, not null.
var noneAborted = []batch.AbortedTxn{}

func (p *Partition) aborted(from, upper int64) ([]batch.AbortedTxn, error) {
	list, err := p.log.AbortedTxns(from, upper)
	if list == nil {
		list = noneAborted
	}
	return list, err
}

// upper is the offset below which the reader sees the log.
func (p *Partition) upper(r ReadRequest, o hot.Offsets, res *ReadResult) int64 {
	switch {
	case r.ReplicaID >= 0:
		return o.End
	case r.Isolation == ReadCommitted:
		return res.LastStable
	}
	return res.HighWatermark
}

// admit checks the reader's leader epoch and this broker's leadership, in that order: a reader that is ahead must hear that it
// is, from whoever it asks (KIP-320).
func (p *Partition) admit(currentEpoch int32) error {
	role := p.role.Load()
	if currentEpoch != NoEpoch && role.epoch != NoEpoch {
		switch {
		case currentEpoch < role.epoch:
			return ErrFencedLeaderEpoch
		case currentEpoch > role.epoch:
			return ErrUnknownLeaderEpoch
		}
	}
	return role.err
}

// lastWord goes between a look at the log and an answer that says where it ends: there is no such offset, epoch or time. When
// the controller may have given up on this broker, another may lead, and have what is not here: a consumer that is told
// otherwise begins anew somewhere else and takes its group's offsets along (the error is ErrNotLeader, and it asks again). What
// is below the high watermark, and what is deleted, stays so whoever leads: that is answered without a lease, too.
//
// A replica's fetch does not need it: it names the leader epoch, and who follows in this one has heard of no other leader.
func (p *Partition) lastWord() error {
	if p.role.Load().err == nil && !p.m.leased() {
		return ErrNotLeader
	}
	return nil
}

// diverging compares the reader's last record with this log's lineage (KIP-595's check, for consumers and replicas alike).
//
// Damage may hide whether the two agree. A replica waits until it is mended, or it would have other records than this log in there.
// A consumer goes on: what it could be told too late is only that an unclean election has taken what it read.
func (p *Partition) diverging(r ReadRequest, o hot.Offsets) (*Diverging, error) {
	epoch, end, doubtful := p.epochEnd(r.LastFetchedEpoch, o.End, r.Offset)
	switch {
	case doubtful && r.ReplicaID >= 0:
		return nil, ErrOffsetNotAvailable
	case doubtful:
		return nil, nil
	case epoch == NoEpoch || end == NoOffset || r.Offset < o.LogStart:
		return nil, ErrOffsetOutOfRange
	case epoch < r.LastFetchedEpoch || end < r.Offset:
		return &Diverging{Epoch: epoch, EndOffset: end}, nil
	}
	return nil, nil
}

// epochEnd is the largest epoch not above the one asked for and where it ended, as far as this log knows. doubtful says that damage may
// hide an earlier end, or an epoch nearer to the one asked for, from who has what lies below at. It hides neither from who
// asks from below it, nor what was written since the log was opened.
func (p *Partition) epochEnd(epoch int32, logEnd, at int64) (found int32, end int64, doubtful bool) {
	for {
		before := p.log.Doubtful()
		found, end = p.log.Lineage().EndOffsetFor(epoch, logEnd)
		from := p.log.IncompleteFrom()
		doubtful = found != NoEpoch && found != p.log.LatestEpoch() && min(end, at) > from && p.mayBeHidden(end) && !p.wroteUpTo(found, end)
		if p.log.Doubtful() == before { // else it was settled meanwhile, or read for the first time
			return found, end, doubtful && before
		}
	}
}

// mayBeHidden says of a doubtful lineage whether an epoch that begins at an offset there may begin earlier.
func (p *Partition) mayBeHidden(start int64) bool {
	return start < p.openedEnd || start == p.openedEnd && slices.ContainsFunc(p.log.Damaged(), func(d hot.Damage) bool { return d.Start < start && start <= d.End })
}

// wroteUpTo says that the batch which ends at an offset is there, whole, and of an epoch: whatever else is hidden, that epoch ended
// nowhere else. So who has a later record of it than what is damaged has all below it as it was, and is not kept waiting: perhaps it is the one
// that has what is missing here, and is to hear first that this is committed.
func (p *Partition) wroteUpTo(epoch int32, end int64) bool {
	slice, err := p.log.Read(end-1, 1, end, true)
	if err != nil {
		return false // damaged, or not here
	}
	defer slice.Release()
	last := NoEpoch
	if err = slice.Verify(); err == nil {
		err = slice.Batches(func(b batch.Batch) error {
			if b.NextOffset() == end {
				last = b.LeaderEpoch()
			}
			return nil
		})
	}
	return err == nil && last == epoch
}

// lineageAt is the lineage of this log. hidden says that damage may hide the epoch of an offset.
func (p *Partition) lineageAt(offset int64) (chain lineage.Chain, hidden bool) {
	for {
		before := p.log.Doubtful()
		chain = p.log.Lineage()
		from := p.log.IncompleteFrom()
		if p.log.Doubtful() == before {
			return chain, before && from <= offset && offset < p.openedEnd
		}
	}
}
