package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// coordinatorPause is between a question to a coordinator that does not serve
// yet and the next.
const coordinatorPause = 250 * time.Millisecond

// patiently asks a coordinator, again while it does not serve yet: the first
// question of a cluster's life has its internal topic created, which takes
// longer than the client's own tries. After limit the last answer stands.
func patiently(ctx context.Context, limit time.Duration, ask func() error) error {
	began := time.Now()
	var answer error
	if err := every(ctx, coordinatorPause, func() (bool, error) {
		answer = unsharded(ask())
		starts := errors.Is(answer, kerr.CoordinatorNotAvailable) || errors.Is(answer, kerr.CoordinatorLoadInProgress) || errors.Is(answer, kerr.NotCoordinator)
		return !starts || time.Since(began) >= limit, nil
	}); err != nil {
		return err
	}
	return answer
}

// someAnswered says that there is an answer: from every broker, or from some of
// those over which a request was split.
func someAnswered(err error) bool {
	var shards *kadm.ShardErrors
	return err == nil || errors.As(err, &shards) && !shards.AllFailed
}

// unsharded is the first error of a request that was split over brokers: how it
// was split says nothing to who asked.
func unsharded(err error) error {
	var shards *kadm.ShardErrors
	if errors.As(err, &shards) && len(shards.Errs) > 0 {
		return shards.Errs[0].Err
	}
	return err
}
