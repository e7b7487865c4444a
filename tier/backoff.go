package tier

import (
	"errors"
	"math/rand/v2"
)

// Back-off of a lane of one partition: 500 ms doubling to 30 s with 20 % jitter,
// Kafka's remote.log.manager.task.retry.* defaults.
const (
	backoffMinMillis = 500
	backoffMaxMillis = 30_000
	backoffJitter    = 0.2
)

// backoff counts the failures of one lane and says when it may try again.
type backoff struct {
	failures int
	until    int64 // steady ms; the lane rests before it
}

func (b *backoff) fail(steady int64, rng *rand.Rand) {
	delay := int64(backoffMaxMillis)
	if b.failures < 16 {
		delay = min(delay, backoffMinMillis<<b.failures)
	}
	b.failures++
	spread := 1 + backoffJitter*(2*rng.Float64()-1)
	b.until = steady + int64(float64(delay)*spread)
}

// failBy is fail, but for want of a lease: that costs nobody but this broker,
// and work goes on soon after the lease is back.
func (b *backoff) failBy(err error, steady int64, rng *rand.Rand) {
	if errors.Is(err, errNoLease) {
		b.failures = min(b.failures, 2)
	}
	b.fail(steady, rng)
}

func (b *backoff) succeed() { *b = backoff{} }

func (b *backoff) resting(steady int64) bool { return steady < b.until }
