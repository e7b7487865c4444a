package rate

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// model keeps every amount with its time, and adds up those that count.
type model struct {
	at      []time.Duration
	amounts []float64
}

func (m *model) wait(now time.Duration, n int, size time.Duration, bound float64) time.Duration {
	first := (now/size - time.Duration(n-1)) * size // the oldest sample's start
	sum := 0.0
	for i, at := range m.at {
		if at >= first {
			sum += m.amounts[i]
		}
	}
	covered := max(now-first, size)
	wait := sum/bound - covered.Seconds()
	if wait < 1e-3 {
		return 0
	}
	return time.Duration(wait * float64(time.Second))
}

func TestWindowIsWhatTheListOfAllAmountsSays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 12).Draw(t, "samples")
		size := time.Duration(rapid.IntRange(1, 3).Draw(t, "size")) * time.Second
		bound := rapid.Float64Range(0.1, 1e6).Draw(t, "bound")
		w, m := NewWindow(n, size), &model{}
		now := time.Duration(rapid.Int64Range(0, 1e12).Draw(t, "start"))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, int64(4*size)).Draw(t, "pass"))
			amount := rapid.Float64Range(0, 1e6).Draw(t, "amount")
			w.Add(now, amount)
			m.at, m.amounts = append(m.at, now), append(m.amounts, amount)
			got, want := w.Wait(now, bound), m.wait(now, n, size, bound)
			if d := math.Abs((got - want).Seconds()); d > 2e-3+1e-9*want.Seconds() && want < waitMax {
				t.Fatalf("at %v the wait is %v, want %v", now, got, want)
			}
		}
	})
}

// TestWhoWaitsStaysWithinTheBound has somebody send as fast as the waits allow,
// for two minutes: after the first samples, which are free, the rate is the
// bound's.
func TestWhoWaitsStaysWithinTheBound(t *testing.T) {
	for _, request := range []float64{10, 1000, 3000} {
		const bound = 1000.0
		w := NewWindow(11, time.Second)
		now, sent := 17*time.Second, 0.0
		end := now + 10*time.Minute
		for now < end {
			w.Add(now, request)
			sent += request
			now += w.Wait(now, bound) + time.Millisecond
		}
		rate := (sent - w.Most(bound)) / (10 * 60)
		if rate > 1.2*bound || rate < 0.8*bound {
			t.Errorf("requests of %v: %v a second, the bound is %v", request, rate, bound)
		}
	}
}

func TestIdleWindowTakesWhatItSays(t *testing.T) {
	w := NewWindow(11, time.Second)
	now := time.Hour
	w.Add(now, w.Most(50))
	if d := w.Wait(now, 50); d != 0 {
		t.Errorf("a wait of %v", d)
	}
	w.Add(now, 50)
	if d := w.Wait(now, 50); d != time.Second {
		t.Errorf("a wait of %v, want a second", d)
	}
	if d := w.Wait(now+11*time.Second, 50); d != 0 || w.Sum(now+11*time.Second) != 0 {
		t.Errorf("after all of it a wait of %v", d)
	}
	w.Add(now, 1e300)
	if d := w.Wait(now, 1e-300); d != waitMax {
		t.Errorf("a wait of %v", d)
	}
}

func TestBucketFillsAtItsRate(t *testing.T) {
	var b Bucket
	burst, now := 11*time.Second, time.Hour
	if b.Wait(now, 2, burst) != 0 {
		t.Error("a new bucket is empty")
	}
	b.Take(now, 30, 2, burst) // of 22
	if d := b.Wait(now, 2, burst); d != 4*time.Second {
		t.Errorf("8 too many at 2 a second: a wait of %v", d)
	}
	if d := b.Wait(now+3*time.Second, 2, burst); d != time.Second {
		t.Errorf("three seconds later: %v", d)
	}
	b.Take(now+time.Hour, 22, 2, burst)
	if d := b.Wait(now+time.Hour, 2, burst); d != 0 {
		t.Errorf("it holds more than its burst or less: %v", d)
	}
	b.Take(now, 1, 2, burst) // the clock seems to have gone back
	if d := b.Wait(now+time.Hour, 2, burst); d != 500*time.Millisecond {
		t.Errorf("a token too many: %v", d)
	}
}
