package tier

// bucket is a token bucket for upload bytes. It is pure: the caller passes the
// time and sleeps as long as it is told to.
//
// A taker may drive the bucket below zero, and the debt is what later takers
// wait for: a request larger than the burst therefore passes, late, instead of
// never (the rule of Kafka's copy quota, KIP-956, where one segment always
// passes).
type bucket struct {
	rate  int64 // bytes per second; 0 = unlimited
	burst int64 // bytes that may pass at once after a pause
	level float64
	last  int64 // steady ms of the last refill
	begun bool
}

func newBucket(rate int64) bucket {
	return bucket{rate: rate, burst: max(rate/4, 64<<10)}
}

// setRate changes the rate from now on; what was taken stays taken.
func (b *bucket) setRate(rate, steady int64) {
	b.refill(steady)
	b.rate, b.burst = rate, max(rate/4, 64<<10)
	b.level = min(b.level, float64(b.burst))
}

func (b *bucket) refill(steady int64) {
	if !b.begun {
		b.begun, b.last, b.level = true, steady, float64(b.burst)
		return
	}
	if steady <= b.last {
		return
	}
	b.level = min(float64(b.burst), b.level+float64(steady-b.last)*float64(b.rate)/1000)
	b.last = steady
}

// take books n bytes and returns how many ms to wait before sending them.
func (b *bucket) take(n, steady int64) (waitMillis int64) {
	if b.rate <= 0 {
		return 0
	}
	b.refill(steady)
	b.level -= float64(n)
	if b.level >= 0 {
		return 0
	}
	return int64(-b.level*1000/float64(b.rate)) + 1
}
