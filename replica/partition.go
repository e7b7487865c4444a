package replica

import (
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/meta/topic"
	"github.com/varvelog/varve/replica/isr"
	"github.com/varvelog/varve/tier"
)

// Partition is one partition as this broker holds it.
type Partition struct {
	id     topic.Partition
	name   string // id.String()
	m      *Manager
	log    *hot.Log
	remote *tier.Remote // nil without a store
	opened int64        // wall clock, milliseconds
	// openedEnd is where the log ended then.
	openedEnd int64

	role     atomic.Pointer[role]
	settings atomic.Pointer[settings]
	offload  atomic.Pointer[tier.Leadership] // while the tier manager has the partition
	busy     atomic.Bool                     // housekeeping knows that there is data to look after

	// leading is held shared by an append and exclusively by a change of leadership, so that an append is wholly in one
	// leader epoch. It guards nothing else.
	leading sync.RWMutex

	following atomic.Pointer[followed] // the leadership that this broker follows; changes under leading

	listedInSync atomic.Bool // the newest image has this broker in sync

	damage damageState
	unfit  atomic.Pointer[isr.Leadership] // one that is not taken up, or given up: the log lacks committed records, or is offline

	leadership atomic.Pointer[isr.Leadership] // the newest that was followed or led

	wholeIn atomic.Int64 // leader epoch in which an unclean leader's log was made whole
	mending atomic.Bool  // that is being done

	counted atomic.Int64 // what isr.Own is, for a look without the lock
	mu      sync.Mutex   // guards the following
	isr     isr.Leader
	commits commits

	watchers watchers
	tail     tail
}

// role is what the partition is to this broker right now; immutable.
type role struct {
	err   error // nil when leading; else what callers get
	epoch int32
	start int64 // log end when the epoch was assigned

	replicas []int32 // while leading
	leader   int32   // while following: the broker that leads; NoReplica otherwise
}

// follows says that the partition is a follower here, which may serve clients up to its high watermark.
func (r *role) follows() bool { return r.err != nil && !r.final() && r.leader >= 0 }

// logger is made when it is needed: idle partitions have none.
func (p *Partition) logger() *slog.Logger {
	return p.m.logger.With("topic", p.id.Topic, "partition", p.id.Index)
}

// ID names the partition.
func (p *Partition) ID() topic.Partition { return p.id }

// Epoch is the leader epoch, or an error when this broker does not lead.
func (p *Partition) Epoch() (int32, error) {
	r := p.role.Load()
	return r.epoch, r.err
}

// OnCommitted calls fn once the high watermark is above offset, with nil, or with an error when the leadership under which
// the records were appended has ended or the in-sync set has become too small. epoch is Appended.LeaderEpoch. fn runs once,
// holding no lock, perhaps before OnCommitted returns; it must not block. The returned function cancels: fn will not be
// called any more, unless it is being called already.
func (p *Partition) OnCommitted(epoch int32, offset int64, fn func(error)) (cancel func()) {
	p.mu.Lock()
	r := p.role.Load()
	if r.err != nil || r.epoch != epoch {
		p.mu.Unlock()
		err := r.err
		if err == nil {
			err = ErrNotLeader
		}
		fn(err)
		return func() {}
	}
	if p.isr.HighWatermark() > offset {
		err := p.answerLocked()
		p.mu.Unlock()
		fn(err)
		return func() {}
	}
	e := p.commits.add(offset, fn)
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		p.commits.cancel(e)
		p.mu.Unlock()
	}
}

// answerLocked is the verdict on an acks=all append that the watermark has passed: the minimum is asked again (KIP-966).
func (p *Partition) answerLocked() error {
	if !p.isr.Enough() {
		return ErrISRTooSmallAfterAppend
	}
	return nil
}

// progress takes the log's counted end to the watermark and runs what that releases. It reports whether the watermark moved.
// The syncer calls it after each group commit, an append after each write: when nothing moved it costs two atomic loads.
func (p *Partition) progress() bool {
	if err := p.log.Err(); err != nil {
		p.goOffline(err)
		return false
	}
	if d := p.following.Load(); d != nil {
		d.fetcher.moved()
		return false
	}
	durable := p.log.Offsets().Durable
	if durable <= p.counted.Load() {
		return false
	}
	p.mu.Lock()
	if p.role.Load().err != nil {
		p.mu.Unlock()
		return false
	}
	moved := p.isr.Progressed(durable)
	p.counted.Store(p.isr.Own())
	return p.settle(moved)
}

// settle publishes a watermark that moved and runs what it releases. It is called with mu held and returns without it.
func (p *Partition) settle(moved bool) bool {
	if !moved {
		p.mu.Unlock()
		return false
	}
	var space [8]func(error)
	due := p.commits.take(p.isr.HighWatermark(), space[:0])
	verdict := p.answerLocked()
	p.log.SetHighWatermark(p.isr.HighWatermark())
	p.mu.Unlock()
	for _, fn := range due {
		fn(verdict)
	}
	p.wake()
	if l := p.offload.Load(); l != nil {
		l.Advanced(min(p.log.HighWatermark(), p.log.LastStable(), p.log.Offsets().Durable))
	}
	return true
}

// bounds are the offsets below which each kind of reader sees the log.
func (p *Partition) bounds() [isolations]int64 {
	return [isolations]int64{
		ReadUncommitted: p.log.HighWatermark(),
		ReadCommitted:   p.log.LastStable(),
		readLogEnd:      p.log.Offsets().End,
	}
}

// wake lets the long polls see the current bounds.
func (p *Partition) wake() {
	b := p.bounds()
	p.watchers.advanced(b, &p.tail)
	p.tail.seen(b[ReadCommitted])
}

// watch registers a long poll. What is readable already counts at once.
func (p *Partition) watch(e *watch) {
	b := p.bounds()
	if e.isolation < 0 || e.isolation >= isolations {
		e.isolation = ReadUncommitted
	}
	bound := b[e.isolation]
	if e.counting {
		e.counted = p.tail.at(max(bound, e.offset))
	}
	p.watchers.add(e)
	o := p.log.Offsets()
	switch {
	case p.role.Load().err != nil, e.offset < o.LocalStart, e.offset > o.End:
		e.waiter.fire() // the reader has something to hear, not to wait for
		return
	case e.counting && e.offset < bound:
		e.waiter.credit(p.readable(e.offset, bound, e.waiter.min))
	}
	p.wake() // the bounds may have moved before the watch was in place
}

// readable is how many bytes of whole batches there are from an offset to a bound, counted until they are enough: a read of just
// so many bytes leaves out the batch that would make them so.
func (p *Partition) readable(offset, bound, enough int64) (n int64) {
	for offset < bound && n < enough {
		slice, err := p.log.Read(offset, int(enough-n), bound, true)
		if err != nil {
			return n // the reader meets it
		}
		got := slice.Len()
		n, offset = n+int64(got), slice.NextOffset()
		slice.Release()
		if got == 0 {
			return n
		}
	}
	return n
}

// tiered says whether the topic's data goes to the bucket.
func (p *Partition) tiered() bool { return p.remote != nil && p.settings.Load().tier.Enabled }
