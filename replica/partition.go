package replica

import (
	"sync"
	"sync/atomic"

	"github.com/varvelog/varve/meta/topic"
)

// Partition is one partition as this broker holds it.
type Partition struct {
	id   topic.Partition
	role atomic.Pointer[role]

	// leading is held shared by an append and exclusively by a change of leadership, so that an append is wholly in one
	// leader epoch. It guards nothing else.
	leading sync.RWMutex

	mu      sync.Mutex // guards the following
	isr     isr
	commits commits

	watchers watchers
	tail     tail
}

// role is what the partition is to this broker right now; immutable.
type role struct {
	err   error // nil when leading; else what callers get
	epoch int32
	start int64 // log end when the epoch was assigned
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
	if p.isr.hw > offset {
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
	if !p.isr.enough() {
		return ErrISRTooSmallAfterAppend
	}
	return nil
}

func (p *Partition) watch(e *watch) {}
