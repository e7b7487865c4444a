package coordinator

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/varvelog/varve/hot/batch"
)

// stepsMax bounds the requests that share one append.
const stepsMax = 256

// shard runs the groups of one partition of the offsets topic. One goroutine owns the core: it takes the requests that have
// come, steps them, writes the records of all of them in one append, and answers when that is committed. Requests that come
// meanwhile are the next batch.
type shard struct {
	c     *service
	index int32
	log   *slog.Logger
	queue chan *call
	look  chan struct{} // leadership may have changed

	served atomic.Int32  // leader epoch whose state is loaded, -1: none
	held   atomic.Int64  // what the state is of: groups, or transactional ids
	guard  atomic.Uint64 // of the offsets topic: ends of transactions so far, see txnEnds

	// Of the goroutine.
	core    machine
	epoch   int32
	waiting map[uint64]*call
	tickets uint64
	builder batch.Builder
	failed  int // loads in a row that have failed
}

// call is one request on its way.
type call struct {
	body   any
	taken  atomic.Bool // by the shard, or back by the caller
	done   chan struct{}
	result any
	err    error
}

func newShard(c *service, index int32) *shard {
	s := &shard{
		c: c, index: index, log: c.logger.With("partition", index),
		queue: make(chan *call, c.cfg.QueueMax), look: make(chan struct{}, 1), epoch: -1, waiting: make(map[uint64]*call),
	}
	s.served.Store(-1)
	return s
}

// ready says whether the state of the present leadership is loaded.
func (s *shard) ready() bool {
	epoch, ok := s.c.log.Epoch(s.index)
	return ok && s.served.Load() == epoch
}

// do has the shard take body, and waits for the answer.
func (s *shard) do(ctx context.Context, body any) (any, error) {
	if _, leading := s.c.log.Epoch(s.index); !leading {
		return nil, ErrNotCoordinator
	}
	var patience <-chan time.Time
	if !s.ready() {
		t := time.NewTimer(time.Duration(s.c.cfg.LoadWaitMillis) * time.Millisecond)
		defer t.Stop()
		patience = t.C
	}
	q := &call{body: body, done: make(chan struct{})}
	select {
	case s.queue <- q:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.c.stop:
		return nil, ErrClosed
	case <-patience:
		return nil, ErrLoading
	}
	for {
		select {
		case <-q.done:
			return q.result, q.err
		case <-patience:
			if q.taken.CompareAndSwap(false, true) {
				return nil, ErrLoading
			}
			patience = nil
		case <-ctx.Done():
			q.taken.CompareAndSwap(false, true)
			return nil, ctx.Err()
		case <-s.c.stopped:
			return nil, ErrClosed
		}
	}
}

// nudge has the shard look whether it leads.
func (s *shard) nudge() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}

// run is the shard's goroutine. It owns the core and stops with the coordinator.
func (s *shard) run() {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	defer s.drop(ErrClosed)
	for {
		var first *call
		select {
		case <-s.c.stop:
			return
		case first = <-s.queue:
		case <-s.look:
		case <-t.C:
		}
		if !s.settled() {
			s.refuse(first)
			t.Reset(s.retryIn())
			continue
		}
		s.turn(first)
		t.Reset(s.sleep())
	}
}

// settled sees to it that the state is that of the present leadership, reading it if need be.
func (s *shard) settled() bool {
	epoch, leading := s.c.log.Epoch(s.index)
	if leading && s.core != nil && s.epoch == epoch {
		return true
	}
	s.drop(ErrNotCoordinator)
	if !leading {
		s.failed = 0
		return false
	}
	return s.load(epoch)
}

// load reads the partition back.
func (s *shard) load(epoch int32) bool {
	began := time.Now()
	core := s.c.create(s.c.now())
	records, bad := 0, 0
	err := s.c.log.Read(s.c.ctx, s.index, func(b batch.Batch) error {
		n, err := replayBatch(core, b, func(offset int64, err error) {
			if bad++; bad <= 10 {
				s.log.Error("record is left out", "topic", s.c.topic, "offset", offset, "err", err)
			}
		})
		records += n
		return err
	})
	if now, leading := s.c.log.Epoch(s.index); err == nil && (!leading || now != epoch) {
		err = ErrNotCoordinator
	}
	if err != nil {
		s.failed++
		s.c.loadsFailed.Add(1)
		if s.c.ctx.Err() == nil {
			s.log.Warn("state not loaded", "topic", s.c.topic, "epoch", epoch, "err", err)
		}
		return false
	}
	core.setSkew(time.Now().UnixMilli() - s.c.now())
	core.setTopics(s.c.view())
	core.loaded(s.c.now())
	s.core, s.epoch, s.failed = core, epoch, 0
	s.publish()
	s.served.Store(epoch)
	s.c.loads.Add(1)
	s.c.loadNanos.Add(int64(time.Since(began)))
	level := slog.LevelInfo
	if records == 0 {
		level = slog.LevelDebug
	}
	s.log.Log(s.c.ctx, level, "state loaded", "topic", s.c.topic, "epoch", epoch, "held", core.size(), "records", records, "took", time.Since(began))
	return true
}

// replayBatch applies one batch of the log and counts its records. What cannot be read is told and left out.
func replayBatch(core machine, b batch.Batch, bad func(offset int64, err error)) (records int, err error) {
	if b.Control() {
		m, ok, err := b.EndTxnMarker()
		if err == nil && ok {
			core.replayMarker(b.ProducerID(), m.Type == batch.Commit)
		}
		return 0, err
	}
	producer := noProducer
	if b.Transactional() {
		producer = b.ProducerID()
	}
	cuts, _ := core.(cutter)
	for r, err := range b.Records(batch.Limits{}) {
		if err != nil {
			return records, err
		}
		records++
		if err := core.replay(producer, r.Key, r.Value); err != nil {
			bad(r.Offset, err)
		}
		if cuts != nil {
			cuts.placed(r.Key, r.Offset)
		}
	}
	return records, nil
}

// drop throws the state away and answers everybody who waits for it.
func (s *shard) drop(err error) {
	s.served.Store(-1)
	s.held.Store(0)
	s.core, s.epoch = nil, -1
	for ticket, q := range s.waiting {
		delete(s.waiting, ticket)
		q.answer(nil, err)
	}
}

func (q *call) answer(result any, err error) {
	q.result, q.err = result, err
	close(q.done)
}

// refuse answers what is in the queue while there is no state.
func (s *shard) refuse(first *call) {
	err := ErrNotCoordinator
	if _, leading := s.c.log.Epoch(s.index); leading {
		err = ErrLoading
	}
	for q := first; ; {
		if q != nil && q.taken.CompareAndSwap(false, true) {
			q.answer(nil, err)
		}
		select {
		case q = <-s.queue:
		default:
			return
		}
	}
}

// retryIn is how long to wait before the next look at the leadership or try to load.
func (s *shard) retryIn() time.Duration {
	if s.failed == 0 {
		return time.Minute
	}
	return min(100*time.Millisecond<<min(s.failed-1, 6), 5*time.Second)
}

// turn fires due timers, takes what has been queued, and makes it durable before anything is answered.
func (s *shard) turn(first *call) {
	now, wall := s.c.now(), time.Now().UnixMilli()
	s.core.setSkew(wall - now)
	s.core.setTopics(s.c.view())
	s.core.tick(now)
	var out effects
	bytes := 0
	gather := func() {
		e := s.core.take()
		for _, r := range e.records {
			bytes += r.size()
		}
		out.add(e)
	}
	gather()
	q := first
	for range stepsMax {
		if q == nil {
			select {
			case q = <-s.queue:
			default:
			}
			if q == nil {
				break
			}
		}
		if q.taken.CompareAndSwap(false, true) {
			s.tickets++
			s.waiting[s.tickets] = q
			s.core.setTopics(s.c.view()) // at least as new as what the asker has seen
			s.core.step(event{ticket: s.tickets, newID: newUUID(), body: q.body}, now)
		}
		q = nil
		if gather(); bytes >= s.c.cfg.BatchBytesMax {
			break
		}
	}
	s.publish()
	if failed, err := s.append(out.records, wall); err != nil {
		s.log.Warn("state is read back: a change could not be written", "topic", s.c.topic, "epoch", s.epoch, "err", err)
		s.c.writesFailed.Add(1)
		s.refuseFenced(failed, err)
		s.drop(ErrNotAvailable)
		s.nudge()
		return
	}
	if len(out.ends) > 0 {
		s.c.carryOut(s, s.epoch, out.ends)
	}
	for _, begin := range out.begins {
		s.c.begin(s, begin)
	}
	if out.cut {
		s.c.cutOff(s.index, s.core.(cutter).redundant())
	}
	s.answerAll(out)
}

// answerAll answers what the turn has an answer for. What was committed a moment ago shows that the state was the latest. Where
// nothing was written it may be that of a leader which has been replaced and has not heard of it: a member that is told old offsets
// reads, and commits, anew.
func (s *shard) answerAll(out effects) {
	outdated := len(out.records) == 0 && !s.c.log.Leased()
	for _, r := range out.replies {
		q := s.waiting[r.ticket]
		if q == nil {
			panic(fmt.Sprintf("coordinator: ticket %d answered twice", r.ticket))
		}
		delete(s.waiting, r.ticket)
		if outdated {
			q.answer(nil, ErrNotCoordinator)
		} else {
			q.answer(r.result, r.err)
		}
	}
}

// publish lets others know how many transactions have ended here. A marker is counted as soon as it is stepped: a guard that is
// older is one that it may have overtaken.
func (s *shard) publish() {
	s.held.Store(int64(s.core.size()))
	if c, ok := s.core.(*core); ok {
		s.guard.Store(c.ends.count)
	}
}

// append writes records, in as few batches as their size and their producers allow, and waits until they are committed. With
// an error it returns the records of the batch that failed.
func (s *shard) append(records []record, wall int64) ([]record, error) {
	if len(records) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(s.c.ctx, time.Duration(s.c.cfg.CommitMillis)*time.Millisecond)
	defer cancel()
	for len(records) > 0 {
		b, n, err := s.build(records, wall)
		if err == nil {
			err = s.c.log.Append(ctx, s.index, s.epoch, b)
		}
		if err != nil {
			return records[:n], err
		}
		if cuts, ok := s.core.(cutter); ok {
			for i := range records[:n] {
				cuts.placed(records[i].key, b.BaseOffset()+int64(i))
			}
		}
		records = records[n:]
	}
	return nil, nil
}

// build makes the next batch: as many of the records as fit and are of one producer, or one end of a transaction.
func (s *shard) build(records []record, wall int64) (batch.Batch, int, error) {
	first := &records[0]
	if first.end != nil {
		return batch.EndTxn(*first.end, first.txn.ID, first.txn.Epoch, wall), 1, nil
	}
	o := batch.Options{Codec: s.c.cfg.Codec}
	if first.txn != nil {
		o.Transactional = true
		o.Producer = &batch.Producer{ID: first.txn.ID, Epoch: first.txn.Epoch, Sequence: batch.NoSequence}
	}
	s.builder.Reset(o)
	n, size := 0, 0
	for n < len(records) && records[n].end == nil && sameProducer(records[n].txn, first.txn) {
		size += records[n].size() + batchOverhead
		if n > 0 && size > s.c.cfg.BatchBytesMax {
			break
		}
		n++
		if err := s.builder.Append(wall, records[n-1].key, records[n-1].value, nil); err != nil {
			return nil, n, err
		}
	}
	return s.builder.Bytes(), n, nil
}

func sameProducer(a, b *Producer) bool { return a == b || a != nil && b != nil && *a == *b }

// refuseFenced answers those whose records were refused because their producer, or the coordinator that speaks for it, has been
// replaced: asking again would not help them.
func (s *shard) refuseFenced(failed []record, err error) {
	if s.c.fenced == nil || !s.c.fenced(err) {
		return
	}
	for i := range failed {
		if q := s.waiting[failed[i].ticket]; q != nil {
			delete(s.waiting, failed[i].ticket)
			q.answer(nil, err)
		}
	}
}

// sleep is how long nothing will be due.
func (s *shard) sleep() time.Duration {
	if s.core == nil {
		return 0
	}
	if len(s.queue) > 0 {
		return 0
	}
	at, ok := s.core.deadline()
	if !ok {
		return time.Hour
	}
	return time.Duration(max(0, at-s.c.now())) * time.Millisecond
}
