package sim

// network carries messages between brokers. A link is one direction between two.
type network struct {
	cut  map[[2]int32]bool
	loss float64 // of any message
	slow int64   // largest extra delay, ms
}

// send delivers fn in the process of to, or does not: the link may be cut, the
// message lost, late, overtaken or repeated. Like with TCP a message never
// reaches a process that was started after it was sent; one from a process that
// has died meanwhile may still arrive.
func (w *world) send(from, to *broker, fn func()) { w.sendLate(from, to, 0, fn) }

// sendLate is send with an extra delay.
func (w *world) sendLate(from, to *broker, extra int64, fn func()) {
	if from == to {
		w.soon(to, extra+w.rng.Int64N(2), fn)
		return
	}
	if !to.up || w.net.cut[[2]int32{from.id, to.id}] || w.rng.Float64() < w.net.loss {
		return
	}
	times := 1
	if w.cfg.duplicates && w.one(30) {
		times = 2
	}
	life := to.life
	for i := range times {
		delay := extra + 1 + w.rng.Int64N(8)
		if i > 0 && w.one(2) {
			delay += w.rng.Int64N(3 * sessionMillis) // a try that was given up, and still gets there
		}
		if w.net.slow > 0 && w.one(4) {
			delay += w.rng.Int64N(w.net.slow)
		}
		w.push(&event{at: w.now + delay, of: to, life: life, fn: fn})
	}
}

// linked says whether two brokers reach each other, both ways.
func (w *world) linked(a, b *broker) bool {
	return a == b || !w.net.cut[[2]int32{a.id, b.id}] && !w.net.cut[[2]int32{b.id, a.id}]
}

// majority says whether b can agree on anything with more than half of all.
func (w *world) majority(b *broker) bool {
	n := 0
	for _, o := range w.brokers {
		if o.up && o.paused <= w.now && b.up && b.paused <= w.now && w.linked(b, o) {
			n++
		}
	}
	return n > len(w.brokers)/2
}
