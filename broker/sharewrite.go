package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/varvelog/varve/coordinator"
	"github.com/varvelog/varve/coordinator/share"
)

// shareWritePause is how long a share-partition waits after a write that failed: what locks run out meanwhile goes with the
// next, and a coordinator that is away is not asked all the time.
const shareWritePause = 250 * time.Millisecond

// write makes durable what the machine says, one round after the other, until there is nothing more. One writer runs for each
// share-partition that has something to write; it ends with the server.
func (p *sharePart) write() {
	for p.writeOnce() {
	}
}

func (p *sharePart) writeOnce() (more bool) {
	p.mu.Lock()
	if p.core == nil {
		p.mu.Unlock()
		return false
	}
	core := p.core
	w, round, ok := core.TakeWrite()
	if !ok {
		p.writing = false
		p.mu.Unlock()
		p.srv.shares.release(p)
		return false
	}
	q := coordinator.ShareWrite{
		ShareKey: p.key, StateEpoch: p.stateEpoch, LeaderEpoch: p.leaderEpoch, Start: w.Start, DeliveryCompleteCount: w.Complete,
		Batches: make([]coordinator.ShareBatch, len(w.Batches)),
	}
	for i, b := range w.Batches {
		q.Batches[i] = coordinator.ShareBatch{First: b.First, Last: b.Last, State: coordinator.ShareDelivery(b.State), DeliveryCount: b.Deliveries}
	}
	p.mu.Unlock()
	err := p.store(q)
	p.mu.Lock()
	p.writtenLocked(core, round, err)
	p.mu.Unlock()
	if err != nil {
		return p.srv.sleep(shareWritePause)
	}
	return true
}

func (p *sharePart) store(q coordinator.ShareWrite) error {
	ctx, cancel := context.WithTimeout(p.srv.ctx, shareStateWait)
	defer cancel()
	errs := p.srv.deps.ShareState.Write(ctx, []coordinator.ShareWrite{q})
	if len(errs) != 1 {
		return fmt.Errorf("%w: the share coordinator gave no answer", coordinator.ErrNotAvailable)
	}
	return errs[0]
}

// writtenLocked takes what came of a write to the machine and to those who wait for it. The machine is given, because the
// share-partition may have been dropped meanwhile.
func (p *sharePart) writtenLocked(core *share.Partition, round uint64, err error) {
	if p.core != core {
		return
	}
	core.Written(err == nil, p.srv.nowMillis())
	rest := p.waits[:0]
	for _, w := range p.waits {
		if w.round <= round {
			w.done <- err
		} else {
			rest = append(rest, w)
		}
	}
	clear(p.waits[len(rest):])
	p.waits = rest
	if replaced(err) {
		p.dropLocked(err)
		return
	}
	if err == nil {
		p.buryLocked()
		p.wakeLocked()
	}
	p.afterLocked()
}

// replaced says that a share-partition's state is in other hands, or gone: nothing that is held here counts any more.
func replaced(err error) bool {
	return errors.Is(err, coordinator.ErrFencedStateEpoch) || errors.Is(err, coordinator.ErrFencedLeaderEpoch) ||
		errors.Is(err, coordinator.ErrShareStateUnknown) || errors.Is(err, coordinator.ErrInvalidShareState) || errors.Is(err, coordinator.ErrUnknownGroup)
}
