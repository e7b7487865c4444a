package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/varvelog/varve/replica"
)

const (
	// coldReadsMax bounds the cold reads that one fetch has under way; the tier bounds them over all fetches.
	coldReadsMax = 16

	// coldGrace is how long a fetch that has hot records waits for its cold partitions: long enough for what the cache
	// holds. A read that misses goes on filling the cache without the fetch, and the next fetch finds it there.
	coldGrace = 5 * time.Millisecond
)

// fetchCold reads the cold partitions of a fetch, all at once. With enough hot bytes in hand it waits only for what comes
// at once; without, for as long as remote.fetch.max.wait.ms says. A read that does not make it leaves its partition empty
// and without an error, as in Kafka.
func (s *Server) fetchCold(r *request, op *fetchOp, minBytes int) {
	defer r.parks(time.Now())
	wait := s.now().RemoteFetchWaitMax
	if op.settled || (op.bytes > 0 && op.bytes >= minBytes) {
		wait = coldGrace
	}
	ctx, cancel := context.WithTimeout(r.ctx, wait)
	defer cancel()
	var wg sync.WaitGroup
	slots := make(chan struct{}, coldReadsMax)
	minOne := op.bytes == 0
	for i := range op.targets {
		t := &op.targets[i]
		if !t.res.Cold || t.cold == 0 && !minOne {
			continue
		}
		rr := op.readRequest(t, t.cold, minOne)
		minOne, t.wasCold = false, true
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s.readCold(ctx, r, op, t, rr)
		})
	}
	wg.Wait()
	for i := range op.targets {
		if t := &op.targets[i]; t.wasCold && t.res.Records != nil {
			op.bytes += t.res.Records.Len()
		}
	}
}

func (s *Server) readCold(ctx context.Context, r *request, op *fetchOp, t *fetchTarget, rr replica.ReadRequest) {
	defer func() {
		if s.recovered(r, recover()) {
			t.res, t.code, t.known = replica.ReadResult{}, codeUnknownServerError, false
		}
	}()
	res, err := t.part.ReadCold(ctx, rr)
	if err != nil && ctx.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		// Out of time: the offsets that Read found stand, without records.
		t.res.Records, t.res.Cold = nil, false
		return
	}
	t.res = res
	s.fetchError(r, op, t, err)
}
