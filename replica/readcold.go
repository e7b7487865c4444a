package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/tier"
)

// coldAttempts bounds how often a cold read looks again after the archive moved under it.
const coldAttempts = 3

// ReadCold reads an offset that Read called cold, from the bucket. It blocks for as long as the bucket takes: run it where
// hot readers do not wait behind it.
//
// The two tiers move while it runs. Every attempt therefore begins as a plain Read: what is local again, or has fallen below
// the log start, is answered from there, and a remote copy is read only when there is no local one. A miss in the archive is
// looked at again after its manifest has been read afresh; only then is it an error, and a retriable one unless the committed
// start says that the offset is gone for good.
func (p *Partition) ReadCold(ctx context.Context, r ReadRequest) (ReadResult, error) {
	var last error
	for range coldAttempts {
		res, err := p.Read(r)
		if err != nil || !res.Cold {
			return res, err
		}
		err = p.readRemote(ctx, r, &res)
		switch {
		case err == nil:
			return res, nil
		case errors.Is(err, tier.ErrBelowStart) && p.log.Offsets().LogStart <= r.Offset:
			// The archive's start is committed before the log's own is raised: the offset is truly gone.
			if err := p.followCommittedStart(ctx); err != nil {
				return res, p.fromLog(err)
			}
			return res, ErrOffsetOutOfRange
		case errors.Is(err, tier.ErrBelowStart), errors.Is(err, tier.ErrNotTiered), errors.Is(err, tier.ErrMissing):
			last = err
			if _, err := p.remote.Refresh(ctx); err != nil {
				return res, unavailable(err)
			}
		default:
			return res, unavailable(err)
		}
	}
	return ReadResult{HighWatermark: p.log.HighWatermark(), LastStable: p.log.LastStable(), LogStart: p.log.Offsets().LogStart}, unavailable(last)
}

// followCommittedStart raises the log start to the archive's, as soon as that is known to be higher. A leader that was away when
// it was committed, and has nothing to upload, would send a consumer back to where nothing is, again and again.
func (p *Partition) followCommittedStart(ctx context.Context) error {
	s, err := p.remote.State(ctx)
	if err != nil || s.Retired || s.Dropped || s.Start <= p.log.Offsets().LogStart || s.Start > p.log.HighWatermark() {
		return nil // the next read asks again
	}
	return p.raiseLogStart(s.Start)
}

func unavailable(err error) error { return fmt.Errorf("%w: %w", ErrRemoteUnavailable, err) }

// readRemote is one attempt to fill res from the bucket.
func (p *Partition) readRemote(ctx context.Context, r ReadRequest, res *ReadResult) error {
	upper := p.upper(r, p.log.Offsets(), res)
	chunk, err := p.remote.Read(ctx, r.Offset, r.MaxBytes, upper)
	if err != nil {
		return err
	}
	res.Cold = false
	if r.Isolation == ReadCommitted {
		res.Aborted = noneAborted
	}
	if chunk.Len() == 0 || (!r.MinOne && chunk.Len() > r.MaxBytes) {
		// The archive always returns one batch; who asked for no more than fits gets none.
		chunk.Release()
		return nil
	}
	if r.Isolation == ReadCommitted {
		if res.Aborted, err = p.abortedCold(ctx, r.Offset, chunk.NextOffset()); err != nil {
			chunk.Release()
			return err
		}
	}
	res.Records = chunk
	return nil
}

// abortedCold lists the aborted transactions that touch [from, upper), a range in the bucket. A transaction's marker may lie
// in a later segment than its records, and that segment may be local only, or in the bucket since after this broker has last
// read the manifest and gone from the disk: bothTiers sees to it that no segment is in neither list.
func (p *Partition) abortedCold(ctx context.Context, from, upper int64) ([]batch.AbortedTxn, error) {
	var remote, local []batch.AbortedTxn
	err := p.bothTiers(ctx, func(int64) (err error) {
		remote, err = p.remote.AbortedTxns(ctx, from, upper)
		return err
	}, func(above int64) (err error) {
		local, err = p.log.AbortedTxns(max(from, above), upper)
		return err
	})
	if err != nil {
		return nil, err
	}
	return mergeAborted(remote, local), nil
}

// mergeAborted is the union of two lists in the order of the transactions' ends, each transaction once.
func mergeAborted(a, b []batch.AbortedTxn) []batch.AbortedTxn {
	all := slices.Concat(a, b)
	slices.SortFunc(all, func(x, y batch.AbortedTxn) int {
		return cmp.Or(cmp.Compare(x.LastOffset, y.LastOffset), cmp.Compare(x.FirstOffset, y.FirstOffset), cmp.Compare(x.ProducerID, y.ProducerID))
	})
	all = slices.CompactFunc(all, func(x, y batch.AbortedTxn) bool {
		return x.ProducerID == y.ProducerID && x.FirstOffset == y.FirstOffset && x.LastOffset == y.LastOffset
	})
	if all == nil {
		return noneAborted
	}
	return all
}
