package broker

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/hot/batch"
	"github.com/varvelog/varve/replica"
)

const (
	// shareReadBytes is how much of the log one step of a share fetch reads: consumers ask for a few hundred records, and for
	// as many bytes as Kafka's fetches do.
	shareReadBytes = 512 << 10

	// shareReadsMax bounds the steps of one fetch on one partition.
	shareReadsMax = 64
)

// shareRecords are the batches of one partition's answer, as they were in the log. Their bytes are counted until they are out.
type shareRecords struct {
	x     *shares
	parts [][]byte
	n     int
}

func (r *shareRecords) Len() int { return r.n }

func (r *shareRecords) WriteTo(w io.Writer) (done int64, err error) {
	for _, b := range r.parts {
		n, err := w.Write(b)
		done += int64(n)
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (r *shareRecords) Release() {
	r.x.held.Add(-int64(r.n))
	r.parts, r.n = nil, 0
}

func (r *shareRecords) add(b []byte) {
	r.parts, r.n = append(r.parts, b), r.n+len(b)
	r.x.held.Add(int64(len(b)))
}

// logged is one batch of what was read, and where its bytes are.
type logged struct {
	share.Batch
	from, to int
}

// batchesOf finds the batches in bytes of the log. Those that the group may not see are marked: control batches, and with
// read_committed what belongs to aborted transactions. A transaction's records lie between its first offset and its marker,
// and no other records of the producer do.
func batchesOf(b []byte, aborted []batch.AbortedTxn, list []logged) ([]logged, error) {
	for at := 0; at < len(b); {
		one, _, err := batch.Next(b[at:])
		if err != nil {
			return list, err
		}
		n := logged{Batch: share.Batch{First: one.BaseOffset(), Last: one.LastOffset(), Skip: one.Control()}, from: at, to: at + one.SizeBytes()}
		if one.Transactional() && !n.Skip {
			for _, x := range aborted {
				if x.ProducerID == one.ProducerID() && x.FirstOffset <= n.First && n.Last <= x.LastOffset {
					n.Skip = true
					break
				}
			}
		}
		list = append(list, n)
		at = n.to
	}
	return list, nil
}

// acquireShare reads the log of one share-partition and hands out what it can, until the fetch has enough. An error that comes
// behind records is not told with them, because clients drop the records of a partition that has one: the next fetch meets it
// again.
func (s *Server) acquireShare(ctx context.Context, op *shareFetchOp, t *shareTarget) {
	defer func() {
		if len(t.held) > 0 {
			t.err = nil
		}
	}()
	last := int64(-1) // the end of the newest batch that the answer has
	for range shareReadsMax {
		if op.records <= 0 || op.bytes <= 0 {
			return
		}
		at, set, epoch, err := t.sp.begin(op.wake)
		t.ready = t.ready || !errors.Is(err, errShareLoading)
		switch {
		case errors.Is(err, errShareLoading), errors.Is(err, errShareBusy):
			return
		case err != nil:
			t.err = err
			return
		case at <= last: // within a batch that the answer has already
			t.sp.end(nil)
			return
		}
		more := false
		if last, more = s.acquireStep(ctx, op, t, at, set, epoch, last); !more {
			return
		}
	}
}

// acquireStep is one read of the log from an offset, which sp.begin gave.
func (s *Server) acquireStep(ctx context.Context, op *shareFetchOp, t *shareTarget, at int64, set *shareSettings, epoch int32, last int64) (int64, bool) {
	rr := replica.ReadRequest{
		Offset: at, MaxBytes: min(op.bytes, shareReadBytes), MinOne: op.first, Isolation: set.isolation, CurrentEpoch: epoch,
		LastFetchedEpoch: replica.NoEpoch, ReplicaID: replica.NoReplica, ReplicaEpoch: replica.NoBrokerEpoch,
	}
	res, b, err := s.readShare(ctx, t.part, rr)
	if errors.Is(err, replica.ErrOffsetOutOfRange) && at < res.LogStart {
		err := t.sp.end(func(core *share.Partition) { core.LogStart(res.LogStart) })
		t.err = err
		return last, err == nil
	}
	var list []logged
	if err == nil {
		list, err = batchesOf(b, res.Aborted, op.list[:0])
		op.list = list
	}
	if err != nil {
		t.sp.end(nil)
		t.err = err
		return last, false
	}
	if len(list) == 0 {
		t.sp.end(nil)
		t.watch, t.isolation = at, set.isolation
		return last, false
	}
	op.batches = op.batches[:0]
	for i := range list {
		op.batches = append(op.batches, list[i].Batch)
	}
	from := len(t.held)
	want := share.Want{Member: op.member, RecordsMax: op.records, BatchSize: op.batchSize, Strict: op.strict}
	now := s.nowMillis()
	if t.err = t.sp.end(func(core *share.Partition) { t.held = core.Acquire(want, at, op.batches, now, t.held) }); t.err != nil {
		return last, false
	}
	return s.takeShare(op, t, b, list, t.held[from:], last), true
}

// takeShare puts what was handed out into the answer: the batches from the first that holds any of it to the last.
func (s *Server) takeShare(op *shareFetchOp, t *shareTarget, b []byte, list []logged, held []share.Held, last int64) int64 {
	if len(held) == 0 {
		return last
	}
	first, end := held[0].First, held[len(held)-1].Last
	i, j := 0, len(list)
	for i < j && list[i].Last < first {
		i++
	}
	for j > i && list[j-1].First > end {
		j--
	}
	if t.records == nil {
		t.records = &shareRecords{x: s.shares}
	}
	piece := b[list[i].from:list[j-1].to]
	if len(piece) < len(b)/2 {
		piece = bytes.Clone(piece) // do not keep the rest for it
	}
	t.records.add(piece)
	op.bytes -= len(piece)
	op.first = false
	for _, h := range held {
		op.records -= int(h.Last - h.First + 1)
	}
	op.got = true
	return list[j-1].Last
}

// readShare reads batches into memory, from whichever tier has them.
func (s *Server) readShare(ctx context.Context, part Partition, rr replica.ReadRequest) (replica.ReadResult, []byte, error) {
	res, err := part.Read(rr)
	if err == nil && res.Cold {
		wait, cancel := context.WithTimeout(ctx, s.now().RemoteFetchWaitMax)
		defer cancel()
		offsets := res
		res, err = part.ReadCold(wait, rr)
		if err != nil && wait.Err() != nil && ctx.Err() == nil {
			return offsets, nil, nil // the bucket takes long: the read fills the cache, and the next fetch finds it there
		}
	}
	if err != nil || res.Records == nil {
		return res, nil, err
	}
	defer res.Records.Release()
	var b bytes.Buffer
	b.Grow(res.Records.Len())
	if _, err := res.Records.WriteTo(&b); err != nil {
		return res, nil, err
	}
	return res, b.Bytes(), nil
}
