package broker

import (
	"context"
	"slices"
	"sync"

	"github.com/varvelog/varve/coordinator"
)

// fakeShareState keeps share-partitions in memory, by the rules of the seam. A hook may fail writes.
type fakeShareState struct {
	mu     sync.Mutex
	states map[coordinator.ShareKey]*fakeState
	fail   func(q coordinator.ShareWrite) (err error, stored bool)
	writes []coordinator.ShareWrite
	hold   chan struct{} // writes wait for it
	loads  chan struct{} // reads likewise
}

type fakeState struct {
	epoch, leader int32
	start         int64
	complete      int32
	offsets       map[int64]coordinator.ShareBatch
}

func newFakeShareState() *fakeShareState {
	return &fakeShareState{states: map[coordinator.ShareKey]*fakeState{}}
}

var _ coordinator.ShareState = (*fakeShareState)(nil)

func (f *fakeShareState) Initialize(_ context.Context, qs []coordinator.ShareInitialize) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := make([]error, len(qs))
	for i, q := range qs {
		if x := f.states[q.ShareKey]; x != nil && x.epoch > q.StateEpoch {
			errs[i] = coordinator.ErrFencedStateEpoch
			continue
		}
		f.states[q.ShareKey] = &fakeState{epoch: q.StateEpoch, start: q.Start, offsets: map[int64]coordinator.ShareBatch{}}
	}
	return errs
}

func (f *fakeShareState) Read(ctx context.Context, qs []coordinator.ShareRead) []coordinator.ShareReadResult {
	f.mu.Lock()
	loads := f.loads
	f.mu.Unlock()
	if loads != nil {
		select {
		case <-loads:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]coordinator.ShareReadResult, len(qs))
	for i, q := range qs {
		x := f.states[q.ShareKey]
		if x == nil {
			out[i].Err = coordinator.ErrShareStateUnknown
			continue
		}
		x.leader = max(x.leader, q.LeaderEpoch)
		out[i].StateEpoch, out[i].Start = x.epoch, x.start
		for _, b := range x.offsets {
			if b.First >= x.start {
				out[i].Batches = append(out[i].Batches, b)
			}
		}
		slices.SortFunc(out[i].Batches, func(a, b coordinator.ShareBatch) int { return int(a.First - b.First) })
	}
	return out
}

func (f *fakeShareState) Write(ctx context.Context, qs []coordinator.ShareWrite) []error {
	f.mu.Lock()
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	errs := make([]error, len(qs))
	for i, q := range qs {
		stored := true
		if f.fail != nil {
			errs[i], stored = f.fail(q)
		}
		x := f.states[q.ShareKey]
		switch {
		case x == nil:
			errs[i] = coordinator.ErrShareStateUnknown
		case q.StateEpoch < x.epoch:
			errs[i] = coordinator.ErrFencedStateEpoch
		case q.LeaderEpoch < x.leader:
			errs[i] = coordinator.ErrFencedLeaderEpoch
		case stored:
			f.writes = append(f.writes, q)
			x.start, x.complete = max(x.start, q.Start), q.DeliveryCompleteCount
			for _, b := range q.Batches {
				for o := b.First; o <= b.Last; o++ {
					x.offsets[o] = coordinator.ShareBatch{First: o, Last: o, State: b.State, DeliveryCount: b.DeliveryCount}
				}
			}
		}
	}
	return errs
}

func (f *fakeShareState) Delete(_ context.Context, keys []coordinator.ShareKey) []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, k := range keys {
		delete(f.states, k)
	}
	return make([]error, len(keys))
}

func (f *fakeShareState) Summary(_ context.Context, keys []coordinator.ShareKey) []coordinator.ShareSummary {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]coordinator.ShareSummary, len(keys))
	for i, k := range keys {
		out[i].Start = -1
		if x := f.states[k]; x != nil {
			out[i] = coordinator.ShareSummary{StateEpoch: x.epoch, LeaderEpoch: x.leader, Start: x.start, DeliveryCompleteCount: x.complete}
		}
	}
	return out
}

// start is where a share-partition begins, as it is stored.
func (f *fakeShareState) start(k coordinator.ShareKey) int64 {
	return f.Summary(context.Background(), []coordinator.ShareKey{k})[0].Start
}
