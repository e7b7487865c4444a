package replica

import (
	"math"
	"sync"
	"time"

	"github.com/varvelog/varve/meta/conf"
)

// Throttle holds the bytes that replication may still move under leader.replication.throttled.rate or its counterpart of
// followers. It is a bucket of one second's rate, in bytes; what is moved at once may overdraw it, and then everybody waits
// until that is paid back. So over any time the rate is kept but for one second's worth and one answer.
type Throttle struct {
	mu     sync.Mutex // guards the following
	bytes  float64
	filled time.Time
}

// throttleWaitMax bounds one wait: after that the throttle is asked again.
const throttleWaitMax = 10 * time.Second

// Wait is how long the throttle has nothing to give at this rate.
func (t *Throttle) Wait(rate int64, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.filled.IsZero() {
		t.bytes = float64(rate)
	} else {
		t.bytes += now.Sub(t.filled).Seconds() * float64(rate)
	}
	t.bytes, t.filled = min(t.bytes, float64(rate)), now
	if t.bytes > 0 {
		return 0
	}
	if rate <= 0 {
		return time.Second
	}
	// Up: a wait that is a moment too short would be for nothing.
	seconds := (1 - t.bytes) / float64(rate)
	return min(time.Duration(math.Ceil(seconds*1e3))*time.Millisecond, throttleWaitMax)
}

// Take notes that n bytes were moved.
func (t *Throttle) Take(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bytes -= float64(n)
}

// limited says whether what this follower copies counts for follower.replication.throttled.rate, and that: its topic's
// follower.replication.throttled.replicas names it here, and it is not in sync. Who is in sync is never held back, or the
// throttle of a reassignment would cost the partition its in-sync replicas.
func (d *followed) limited() (rate int64, yes bool) {
	p := d.p
	if list := p.settings.Load().followThrottle; list == "" || p.listedInSync.Load() || !conf.Throttles(list, p.id.Index, p.m.config.NodeID) {
		return 0, false
	}
	rate = p.m.brokerConf().FollowerReplicationThrottledRate
	return rate, rate != conf.Unlimited
}

// heldBack is how long the throttle has a partition wait.
func (f *fetcher) heldBack(d *followed) time.Duration {
	rate, yes := d.limited()
	if !yes {
		return 0
	}
	return f.m.throttle.Wait(rate, f.m.clock())
}

// copied counts what a follower got. Once the throttle is exhausted, all whom it holds leave the session: the leader sends what
// it has for whoever is in it.
func (f *fetcher) copied(d *followed, n int) {
	rate, yes := d.limited()
	if !yes || n == 0 {
		return
	}
	f.m.throttle.Take(n)
	if f.m.throttle.Wait(rate, f.m.clock()) == 0 {
		return
	}
	for _, other := range f.parts {
		if _, yes := other.limited(); yes {
			f.mark(other)
		}
	}
}

// letGo asks again for whoever is held back: a throttle or an in-sync set has changed.
func (f *fetcher) letGo() {
	for _, d := range f.later {
		if d.held {
			d.retryAt = f.m.steady()
		}
	}
}

// throttleChangedLocked tells the fetchers of another rate. It needs the manager's mutex.
func (m *Manager) throttleChangedLocked() {
	for _, f := range m.fetchers {
		f.post(fetcherNews{kind: newsThrottle})
	}
}

// throttleChanged tells the partition's fetcher that it may be held back no more.
func (p *Partition) throttleChanged() {
	if d := p.following.Load(); d != nil {
		d.fetcher.post(fetcherNews{d: d, kind: newsThrottle})
	}
}
