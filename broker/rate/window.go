// Package rate measures how much of something happens in a time, and says how
// long whoever does it has to wait to stay within a bound. It is pure: the time
// is given, as what has passed since some start that never moves.
package rate

import (
	"math"
	"time"
)

// Window adds up amounts over its newest samples, as Kafka's quotas do: a
// sample lasts for a time, and a rate is the sum of all of them over the time
// they cover, the newest with what has passed of it. So a client that was idle
// may have what its bound allows for all whole samples at once, and so may one
// whose single amounts are larger than that, each time.
type Window struct {
	samples []float64
	size    time.Duration
	newest  int64 // the number of the newest sample since the start
}

// NewWindow makes one of n samples that last for size each.
func NewWindow(n int, size time.Duration) *Window {
	return &Window{samples: make([]float64, max(n, 1)), size: max(size, time.Millisecond)}
}

// Span is how long all samples last.
func (w *Window) Span() time.Duration { return w.size * time.Duration(len(w.samples)) }

// advance forgets the samples that are too old. A time before the newest one's counts as that.
func (w *Window) advance(now time.Duration) {
	at := int64(now / w.size)
	if at-w.newest >= int64(len(w.samples)) {
		clear(w.samples)
		w.newest = at
	}
	for w.newest < at {
		w.newest++
		w.samples[w.newest%int64(len(w.samples))] = 0
	}
}

// Add counts an amount, which may be below 0: something counted is taken back.
func (w *Window) Add(now time.Duration, amount float64) {
	w.advance(now)
	w.samples[w.newest%int64(len(w.samples))] += amount
}

// Sum is what the samples hold.
func (w *Window) Sum(now time.Duration) float64 {
	w.advance(now)
	sum := 0.0
	for _, v := range w.samples {
		sum += v
	}
	return sum
}

// Wait is how long nothing may be added until the rate is within bound a
// second; 0: it is.
func (w *Window) Wait(now time.Duration, bound float64) time.Duration {
	sum := w.Sum(now)
	covered := w.size * time.Duration(len(w.samples)-1)
	if passed := now - time.Duration(w.newest)*w.size; passed > 0 {
		covered += min(passed, w.size)
	}
	covered = max(covered, w.size)
	return seconds(sum/bound - covered.Seconds())
}

// Most is the largest amount that an idle window takes without a wait.
func (w *Window) Most(bound float64) float64 {
	return bound * max(w.size.Seconds()*float64(len(w.samples)-1), w.size.Seconds())
}

// seconds is a wait; one below a millisecond is none.
func seconds(s float64) time.Duration {
	switch {
	case !(s >= 1e-3):
		return 0
	case s >= float64(waitMax)/float64(time.Second):
		return waitMax
	}
	return time.Duration(s * float64(time.Second))
}

// waitMax is the longest wait that the protocol can name, in milliseconds.
const waitMax = math.MaxInt32 * time.Millisecond

// Bucket is a bucket of tokens (KIP-599): it fills at a rate, up to what comes
// in a time, and what is taken may leave it in debt.
type Bucket struct {
	tokens float64
	at     time.Duration
	begun  bool
}

func (b *Bucket) fill(now time.Duration, perSecond float64, burst time.Duration) {
	most := perSecond * burst.Seconds()
	if !b.begun {
		b.begun, b.tokens, b.at = true, most, now
	}
	if passed := now - b.at; passed > 0 {
		b.tokens += passed.Seconds() * perSecond
		b.at = now
	}
	b.tokens = min(b.tokens, most)
}

// Take takes tokens, whether they are there or not.
func (b *Bucket) Take(now time.Duration, n, perSecond float64, burst time.Duration) {
	b.fill(now, perSecond, burst)
	b.tokens -= n
}

// Wait is how long until the bucket is out of debt; 0: it is.
func (b *Bucket) Wait(now time.Duration, perSecond float64, burst time.Duration) time.Duration {
	b.fill(now, perSecond, burst)
	return seconds(-b.tokens / perSecond)
}
