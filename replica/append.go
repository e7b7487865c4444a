package replica

import (
	"errors"

	"github.com/varvelog/varve/hot"
	"github.com/varvelog/varve/hot/batch"
)

// Append judges one batch and appends it to the log this broker leads. The bytes are the caller's: offsets and leader epoch
// are patched into them, and they are not kept. It returns as soon as the kernel has the bytes; whoever promised more than
// that waits with OnCommitted.
func (p *Partition) Append(records []byte, r AppendRequest) (Appended, error) {
	if r.Acks < -1 || r.Acks > 1 {
		return Appended{}, ErrInvalidAcks
	}
	p.leading.RLock()
	a, size, err := p.appendLeading(records, r)
	p.leading.RUnlock()
	if err != nil {
		return a, p.fromLog(err)
	}
	if !a.Duplicate {
		p.appended(a.LastOffset+1, int64(size))
	}
	return a, nil
}

// appendLeading runs under leading: the leader epoch cannot change below it.
func (p *Partition) appendLeading(records []byte, r AppendRequest) (Appended, int, error) {
	role := p.role.Load()
	if role.err != nil {
		return Appended{}, 0, role.err
	}
	if !p.m.leased() {
		return Appended{}, 0, ErrNotLeader // as far as anybody knows here
	}
	if r.Acks == -1 && !p.enough() {
		return Appended{}, 0, ErrISRTooSmall
	}
	s := p.settings.Load()
	v, err := batch.Validate(records, s.validation(r, p.name))
	if err != nil {
		return Appended{RecordErrors: v.RecordErrors, LogStart: p.log.Offsets().LogStart}, 0, err
	}
	origin := hot.Client
	if r.Origin == FromCoordinator {
		origin = hot.Coordinator
	}
	h, err := p.log.Append(v.Bytes, hot.AppendOptions{
		LeaderEpoch: role.epoch, Origin: origin, Now: r.Now, TxnVerified: r.TxnVerified, TxnGuard: r.TxnGuard, TxnV2: r.TxnV2,
		MustJudge: true, Excused: p.damage.excused(role.epoch),
	})
	if errors.Is(err, hot.ErrUnjudged) {
		return Appended{}, 0, ErrNotLeader // before it knows producers again; whoever sent it is to send it again
	}
	if err != nil {
		return Appended{LogStart: p.log.Offsets().LogStart}, 0, err
	}
	return Appended{
		BaseOffset: h.BaseOffset, LastOffset: h.LastOffset, LogAppendTime: h.LogAppendTime, LogStart: h.LogStart,
		LeaderEpoch: role.epoch, Duplicate: h.Duplicate,
	}, len(v.Bytes), nil
}

// enough asks whether the in-sync set satisfies min.insync.replicas now.
func (p *Partition) enough() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isr.Enough()
}

// appended follows up an append, outside the leading lock.
func (p *Partition) appended(end, size int64) {
	p.tail.add(end, size)
	if !p.progress() && (p.watchers.n.Load() > 0 || p.log.HighWatermark() >= end) {
		// Followers read to the log's end, whatever the watermark. Or the syncer was faster than the line above: readers that
		// count bytes have not been credited with these yet.
		p.wake()
	}
	if p.busy.CompareAndSwap(false, true) {
		p.m.written(p)
	}
}
