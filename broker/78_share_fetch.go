package broker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
	"github.com/varvelog/varve/replica"
)

// ShareFetch (78): versions 1–2 (KIP-932). v2: share.acquire.mode (KIP-1206) and renewals (KIP-1222).
//
// A request acknowledges, and fetches: records of the member's partitions that nobody holds. The answer has record batches as
// they are in the log, and beside them which of their records the member now holds. Acknowledgements are answered when they are
// durable.
var apiShareFetch = api{key: 78, name: "ShareFetch", min: 1, max: 2, handle: (*Server).shareFetch}

// shareTarget is one partition of one share fetch, with what came of it.
type shareTarget struct {
	key  coordinator.ShareKey
	part Partition  // nil with an error
	sp   *sharePart // likewise

	fetch     bool // records are wanted
	err       error
	held      []share.Held
	records   *shareRecords
	watch     int64 // the offset at which the log had no more; -1: none
	isolation int8

	acks     []share.Ack
	acked    <-chan error
	ackErr   error
	leader   leaderHint
	ready    bool // its share-partition is loaded
	told     bool // an answer has named it
	code     int16
	ackCode  int16
	included bool
}

// shareFetchOp is one share fetch.
type shareFetchOp struct {
	group, member string
	epoch         int32
	records       int // that it may still get
	bytes         int // likewise
	min           int // it waits for so many bytes
	batchSize     int
	strict        bool
	renews        bool
	first         bool // nothing was read yet: one batch may be larger than bytes
	got           bool
	err           error
	targets       []shareTarget
	wake          chan struct{}

	list    []logged // scratch
	batches []share.Batch
}

func (s *Server) shareFetch(r *request) error {
	q := kmsg.NewPtrShareFetchRequest()
	q.SetVersion(r.version)
	if err := decode(r, q); err != nil {
		return err
	}
	op := &shareFetchOp{
		records: int(q.MaxRecords), bytes: min(int(q.MaxBytes), s.cfg.FetchBytesMax), batchSize: int(q.BatchSize), strict: q.ShareAcquireMode == 1,
		renews: q.IsRenewAck, first: true, wake: make(chan struct{}, 1), epoch: q.ShareSessionEpoch,
	}
	deadline := time.Now().Add(time.Duration(max(q.MaxWaitMillis, 0)) * time.Millisecond)
	op.err = s.shareFetchContext(r, op, q)
	if errors.Is(op.err, errShareSessionsFull) {
		s.shareWait(r, op, 1, time.Until(deadline)) // or the client would ask again at once
	}
	var err error
	if op.err == nil {
		op.bytes = s.shareFetchMost(r, op)
		op.min = max(min(int(q.MinBytes), op.bytes), 1)
		if op.records <= 0 {
			op.min = 1 // it gets nothing, however much there is: it only waits
		}
		op.acknowledge(s)
		if op.epoch != epochFinal && !op.renews {
			err = s.shareFetchUntil(r, op, deadline)
		}
		if op.epoch == epochFinal {
			s.shares.end(shareSessionKey{op.group, op.member})
		}
		err = errors.Join(err, op.settle(r))
	}
	if err != nil {
		op.release()
		return errClosed
	}
	p := newReply()
	s.encodeShareFetch(p, r, op)
	return r.reply(p)
}

// release gives back the memory of an answer that will not be sent. Its records stay with the member until their locks run out,
// or its connection's end gives them back.
func (op *shareFetchOp) release() {
	for i := range op.targets {
		if x := op.targets[i].records; x != nil {
			x.Release()
			op.targets[i].records = nil
		}
	}
}

// shareFetchContext turns the request into targets, by way of its session.
func (s *Server) shareFetchContext(r *request, op *shareFetchOp, q *kmsg.ShareFetchRequest) error {
	if q.GroupID == nil || q.MemberID == nil || *q.MemberID == "" {
		return errBadShareRequest
	}
	op.group, op.member = *q.GroupID, *q.MemberID
	if op.renews && (q.MaxBytes != 0 || q.MinBytes != 0 || q.MaxRecords != 0 || q.MaxWaitMillis != 0) {
		return errBadShareRequest // a renewal fetches nothing (KIP-1222)
	}
	acks := false
	var named, forget []coordinator.ShareKey
	seen := map[coordinator.ShareKey]bool{}
	most := s.shares.slots * sharePartsPerSession // all sessions have no more
	for i := range q.Topics {
		for j := range q.Topics[i].Partitions {
			p := &q.Topics[i].Partitions[j]
			t := shareTarget{key: shareKey(op.group, q.Topics[i].TopicID, p.Partition), watch: -1, leader: noLeader}
			for _, b := range p.AcknowledgementBatches {
				t.acks = append(t.acks, share.Ack{First: b.FirstOffset, Last: b.LastOffset, Types: b.AcknowledgeTypes})
			}
			acks = acks || len(t.acks) > 0
			if seen[t.key] || len(named) >= most {
				return errBadShareRequest
			}
			seen[t.key] = true
			named = append(named, t.key)
			op.targets = append(op.targets, t)
		}
	}
	for i := range q.ForgottenTopicsData {
		if len(forget)+len(q.ForgottenTopicsData[i].Partitions) > most {
			return errBadShareRequest
		}
		for _, index := range q.ForgottenTopicsData[i].Partitions {
			forget = append(forget, shareKey(op.group, q.ForgottenTopicsData[i].TopicID, index))
		}
	}
	session := shareSessionKey{op.group, op.member}
	switch {
	case op.epoch == epochFinal:
		return s.shares.advance(session, op.epoch)
	case op.epoch == epochInitial && acks:
		return errBadShareRequest
	case op.epoch == epochInitial:
		for i := range op.targets {
			op.targets[i].fetch = true
		}
		return s.shares.open(r.ctx, session, named, r.c)
	}
	parts, err := s.shares.update(session, op.epoch, named, forget)
	if err != nil {
		return err
	}
	op.include(parts)
	return nil
}

// include makes targets of a session's partitions, in the session's order; what the request only acknowledges comes behind.
func (op *shareFetchOp) include(parts []sharePartOf) {
	at := make(map[coordinator.ShareKey]int, len(op.targets))
	for i := range op.targets {
		at[op.targets[i].key] = i
	}
	list := make([]shareTarget, 0, len(parts)+len(op.targets))
	for _, k := range parts {
		t := shareTarget{key: k.ShareKey, watch: -1, leader: noLeader}
		if i, ok := at[k.ShareKey]; ok {
			t = op.targets[i]
			delete(at, k.ShareKey)
		}
		t.fetch, t.told = true, k.told
		list = append(list, t)
	}
	for i := range op.targets {
		if _, left := at[op.targets[i].key]; left {
			list = append(list, op.targets[i])
		}
	}
	op.targets = list
}

// acknowledge hands the acknowledgements to their share-partitions.
func (op *shareFetchOp) acknowledge(s *Server) {
	for i := range op.targets {
		if t := &op.targets[i]; len(t.acks) > 0 {
			t.acked, t.ackErr = s.shareAcknowledged(t.key, op.member, t.acks, op.renews)
		}
	}
}

// settle waits until the acknowledgements are durable, or are not.
func (op *shareFetchOp) settle(r *request) error {
	defer r.parks(time.Now())
	for i := range op.targets {
		t := &op.targets[i]
		if t.acked == nil {
			continue
		}
		select {
		case t.ackErr = <-t.acked:
		case <-r.ctx.Done():
			return errClosed
		}
	}
	return nil
}

// shareFetchUntil fetches until there is enough, the deadline has passed, or the connection ends. Bytes that are there and come to
// nothing are looked at refetchesMax times.
func (s *Server) shareFetchUntil(r *request, op *shareFetchOp, deadline time.Time) error {
	defer op.leave(s)
	s.shareJoin(op)
	parked, enough := false, op.min == 1
	for vain := 0; ; {
		if enough && s.shareFetchOnce(r.ctx, op) {
			return nil
		}
		if enough = op.min == 1; !enough && s.shareLook(op) { // also if somebody else was quicker: then as much is to come again
			return nil
		}
		woken, left := shareOver, time.Until(deadline)
		if left > 0 {
			if !parked {
				r.body, parked = nil, true
				r.c.letGo()
			}
			var err error
			if woken, err = s.shareWait(r, op, op.min, left); err != nil {
				return err
			}
		}
		if woken == shareOver {
			if !enough {
				s.shareFetchOnce(r.ctx, op) // what there is
			}
			return nil
		}
		if woken == shareBytes {
			enough = true
			if vain++; vain > refetchesMax {
				return nil
			}
		}
	}
}

// shareJoin finds the share-partitions that the fetch is about, and has it woken by them.
func (s *Server) shareJoin(op *shareFetchOp) {
	for i := range op.targets {
		t := &op.targets[i]
		if !t.fetch {
			continue
		}
		s.shares.stats.fetched.Add(1)
		if t.part, t.err = s.deps.Partitions.PartitionByID(t.key.Topic, t.key.Partition); t.err != nil {
			continue
		}
		if _, t.err = t.part.Epoch(); t.err != nil {
			continue // not the leader
		}
		t.sp = s.shares.get(op.group, t.part)
		t.sp.poll(op.wake)
	}
}

// leave takes the fetch out of its share-partitions' lists of those who wait.
func (op *shareFetchOp) leave(s *Server) {
	for i := range op.targets {
		if sp := op.targets[i].sp; sp != nil {
			sp.unpoll(op.wake)
			s.shares.release(sp)
		}
	}
}

// shareFetchOnce tries every partition. It reports whether the fetch is to be answered.
func (s *Server) shareFetchOnce(ctx context.Context, op *shareFetchOp) (answer bool) {
	for i := range op.targets {
		t := &op.targets[i]
		t.watch = -1
		if t.sp == nil {
			answer = answer || t.err != nil
			continue
		}
		if s.shares.held.Load() >= s.cfg.RequestMemoryBytes {
			break // too many answers are on their way: what is not handed out now is handed out later
		}
		n := len(t.held)
		s.acquireShare(ctx, op, t)
		answer = answer || t.err != nil
		if n == 0 && len(t.held) > 0 {
			s.shares.stats.fetchedAcquired.Add(1)
		}
	}
	return answer || op.got
}

// shareLook notes where each partition would be read, so that what there is can be waited for. It reports whether the fetch is
// to be answered as it is: something is wrong. What another fetch reads at the moment, and everything while too many answers are
// on their way, is looked at again later.
func (s *Server) shareLook(op *shareFetchOp) (answer bool) {
	full := s.shares.held.Load() >= s.cfg.RequestMemoryBytes
	for i := range op.targets {
		t := &op.targets[i]
		t.watch = -1
		if t.sp == nil || full {
			answer = answer || t.err != nil
			continue
		}
		at, set, err := t.sp.position(op.wake)
		t.ready = t.ready || !errors.Is(err, errShareLoading)
		switch {
		case err == nil:
			t.watch, t.isolation = at, set.isolation
		case !errors.Is(err, errShareLoading) && !errors.Is(err, errShareBusy):
			t.err, answer = err, true
		}
	}
	return answer
}

// shareWoken is why a share fetch that waited goes on.
type shareWoken int

const (
	shareOver  shareWoken = iota // it is out of time
	shareAgain                   // something has changed
	shareBytes                   // there is as much to read as it waits for
)

// shareWait waits until there are so many bytes to read behind the offsets that are watched, or the fetch should look again.
func (s *Server) shareWait(r *request, op *shareFetchOp, least int, left time.Duration) (shareWoken, error) {
	w := s.deps.Partitions.NewWaiter(least)
	defer w.Close()
	for i := range op.targets {
		if t := &op.targets[i]; t.watch >= 0 {
			w.Watch(t.part, t.watch, t.isolation)
		}
	}
	timer := time.NewTimer(max(left, 0))
	defer timer.Stop()
	defer r.parks(time.Now())
	select {
	case <-w.C():
		return shareBytes, nil
	case <-op.wake:
		return shareAgain, nil
	case <-timer.C:
		return shareOver, nil
	case <-s.draining:
		return shareOver, nil
	case <-r.ctx.Done():
		return shareOver, errClosed
	}
}

// shareAcknowledged finds the share-partition and tells it what a member says.
func (s *Server) shareAcknowledged(key coordinator.ShareKey, member string, acks []share.Ack, renews bool) (<-chan error, error) {
	for i := range acks {
		if err := acks[i].WellFormed(); err != nil {
			return nil, err
		}
		if !renews && slices.Contains(acks[i].Types, share.Renew) {
			return nil, share.ErrInvalidAcknowledgement // the request says that it has none
		}
		for _, t := range acks[i].Types {
			s.shares.stats.acknowledged[t].Add(1)
		}
	}
	part, err := s.deps.Partitions.PartitionByID(key.Topic, key.Partition)
	if err != nil {
		return nil, err
	}
	if _, err := part.Epoch(); err != nil {
		return nil, err
	}
	sp := s.shares.known(key)
	if sp == nil {
		return nil, replica.ErrUnknownPartition
	}
	c, err := sp.acknowledge(member, acks)
	if errors.Is(err, errShareLoading) || errors.Is(err, errShareUnused) {
		err = share.ErrInvalidRecordState // nobody holds anything of it yet
	}
	return c, err
}
