package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	loopWarm  = 2 * time.Second // from every worker's first time until the loop counts; a JVM needs it
	loopCount = 4 * time.Second
)

// closedLoop has every worker do one thing again and again, and gives how often
// a second that is done, how long it takes, and what the broker needs for it.
// What fails voids the run.
func closedLoop(ctx context.Context, pid, workers int, do func(ctx context.Context, worker int) error) (figures, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		first    sync.WaitGroup // of every worker's first time
		wg       sync.WaitGroup
		counting atomic.Bool
		took     = make([][]time.Duration, workers)
		failed   = make([]error, workers)
	)
	first.Add(workers)
	for i := range workers {
		wg.Go(func() { // ends with ctx, or its first failure
			begun := sync.OnceFunc(first.Done)
			defer begun()
			for ctx.Err() == nil {
				began, counts := time.Now(), counting.Load()
				if err := do(ctx, i); err != nil {
					if ctx.Err() == nil {
						failed[i] = err
						cancel()
					}
					return
				}
				begun()
				if counts && counting.Load() {
					took[i] = append(took[i], time.Since(began))
				}
			}
		})
	}
	pause := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	first.Wait()
	pause(loopWarm)
	before, err := cpuOf(pid)
	began := time.Now()
	counting.Store(true)
	pause(loopCount)
	counting.Store(false)
	seconds := time.Since(began).Seconds()
	after, aerr := cpuOf(pid)
	cancel()
	wg.Wait()
	if err := errors.Join(append(failed, err, aerr)...); err != nil {
		return nil, err
	}
	all := slices.Concat(took...)
	if len(all) == 0 {
		return nil, errors.New("nothing was done in all that time")
	}
	slices.Sort(all)
	return figures{
		"per_second": float64(len(all)) / seconds, "broker_cpu_us_each": float64((after - before).Microseconds()) / float64(len(all)),
		"p50_us": float64(all[len(all)/2].Microseconds()), "p99_us": float64(all[len(all)*99/100].Microseconds()),
	}, nil
}
