package sim

// faults are the kinds of misfortune a world may have.
type faults uint32

const (
	faultKill faults = 1 << iota
	faultPower
	faultStop
	faultPause
	faultWipe
	faultCut
	faultLoss
	faultSlow
	faultController
	faultClock
	faultAll // everybody at once
	faultTopics
	faultMinISR
	faultReassign
	faultElect
	faultDelete
	faultStore
	faultRot
	faultsEnd

	allFaults = faultsEnd - 1
)

// faultNames, in the order of the bits.
var faultNames = []string{
	"kill", "power", "stop", "pause", "wipe", "cut", "loss", "slow", "controller", "clock", "all at once", "topics",
	"min.insync.replicas", "reassign", "elect", "delete records", "store", "rot",
}

// misfortunes are what may happen, with how often.
var misfortunes = []struct {
	of    faults
	often int
	fn    func(*world)
}{
	{faultKill, 6, func(w *world) { w.fell((*broker).kill) }},
	{faultKill, 4, func(w *world) {
		for _, b := range w.brokers {
			if b.up && b.epoch < 0 && b.asks > 0 && w.one(2) { // as it starts: what it asked for may yet be done
				b.kill()
				w.after(w.rng.Int64N(20), func() {
					if !b.up {
						b.boot()
					}
				})
			}
		}
	}},
	{faultPower, 6, func(w *world) { w.fell((*broker).powerLoss) }},
	{faultStop, 4, func(w *world) {
		if b := w.someBroker(); b != nil && b.epoch >= 0 {
			b.stopping = true
			w.tell("%s is to stop", b.name)
		}
	}},
	{faultPause, 6, func(w *world) {
		if b := w.someBroker(); b != nil {
			b.paused = w.now + w.between(50, 3*sessionMillis)
			w.tell("%s is paused until %d", b.name, b.paused)
		}
	}},
	{faultRot, 3, func(w *world) {
		if b := w.someBroker(); b != nil {
			b.powerLoss()
			for _, k := range w.keys() {
				if l := b.logs[k]; l != nil && l.hwSaved > l.localStart() && w.one(2) {
					l.rot(l.localStart() + w.rng.Int64N(l.hwSaved-l.localStart()))
					w.tell("the disk of %s loses the end of %v: %s", b.name, w.partition(k), l)
				}
			}
			w.revive(b)
		}
	}},
	{faultWipe, 2, func(w *world) {
		if b := w.someBroker(); b != nil {
			b.kill()
			if b.copied != nil && w.one(2) {
				b.restore()
			} else {
				b.wipe()
			}
			w.revive(b)
		}
	}},
	{faultCut, 10, (*world).cutSomething},
	{faultCut, 4, (*world).joinAll},
	{faultLoss, 3, func(w *world) { w.net.loss = w.rng.Float64() * 0.3 }},
	{faultLoss, 3, func(w *world) { w.net.loss = 0 }},
	{faultSlow, 3, func(w *world) { w.net.slow = w.rng.Int64N(2 * sessionMillis) }},
	{faultSlow, 3, func(w *world) { w.net.slow = 0 }},
	{faultController, 4, func(w *world) {
		if b := w.someBroker(); b != nil && w.majority(b) {
			w.quorum.elect(b)
		}
	}},
	{faultClock, 2, func(w *world) {
		if b := w.someBroker(); b != nil {
			b.skew = w.between(-86_400_000, 86_400_000)
		}
	}},
	{faultAll, 1, func(w *world) {
		w.tell("everybody at once")
		for _, b := range w.brokers {
			if b.up {
				if w.cfg.faults&faultPower != 0 && w.one(2) {
					b.powerLoss()
				} else {
					b.kill()
				}
				w.revive(b)
			}
		}
	}},
	{faultTopics, 3, (*world).createTopic},
	{faultTopics, 1, (*world).deleteTopic},
	{faultMinISR, 3, (*world).alterMinISR},
	{faultReassign, 4, (*world).reassign},
	{faultElect, 3, func(w *world) { w.elect(w.cfg.unclean && w.one(3)) }},
	{faultDelete, 3, (*world).deleteRecords},
	{faultStore, 8, func(w *world) {
		if w.bucket != nil {
			w.bucket.trouble()
		}
	}},
}

// act is the world's own clock: clients write, and misfortunes come.
func (w *world) act() {
	if w.healed {
		return
	}
	w.after(5+w.rng.Int64N(40), w.act)
	if len(w.quorum.newest().Topics()) == 0 && len(w.quorum.newest().Brokers) == w.cfg.brokers && w.one(3) {
		w.createTopic()
	}
	// There are times without misfortunes, for a cluster to get back on its feet.
	if quiet := w.now/4000%4 == 3; quiet || !w.one(w.cfg.calm) {
		w.produce()
		return
	}
	total := 0
	for _, m := range misfortunes {
		total += m.often
	}
	n := w.rng.IntN(total)
	for _, m := range misfortunes {
		if n -= m.often; n < 0 {
			if w.cfg.faults&m.of != 0 {
				m.fn(w)
			}
			return
		}
	}
}

// bounce sometimes takes the power from the broker that a leader is about to ask
// into the in-sync set, while the leader does not reach the controller: when it
// does, the broker is back, as another one that may lack what it had (KIP-903).
func (w *world) bounce(r *replica) {
	if w.healed || w.cfg.faults&faultPower == 0 || w.cfg.faults&faultCut == 0 || !w.one(25) {
		return
	}
	for _, id := range r.lead.Maximal() {
		b, controller := w.brokers[id], w.quorum.leader
		if contains(r.lead.InSync(), id) || !b.up || controller == nil || controller == r.b || controller == b {
			continue
		}
		links := [][2]int32{{r.b.id, controller.id}, {controller.id, r.b.id}}
		w.cut(links, w.between(400, 1500))
		b.powerLoss()
		if w.cfg.faults&faultWipe != 0 && w.one(2) {
			b.wipe()
		}
		w.after(w.rng.Int64N(50), func() {
			if !b.up {
				b.boot()
			}
		})
		return
	}
}

// fell ends one process, and starts it again after a while.
func (w *world) fell(how func(*broker)) {
	if b := w.someBroker(); b != nil {
		how(b)
		w.revive(b)
	}
}

func (w *world) revive(b *broker) {
	delay := w.rng.Int64N(300)
	if w.one(2) {
		delay = w.rng.Int64N(5 * sessionMillis)
	}
	w.after(delay, func() {
		if !b.up {
			b.boot()
		}
	})
}

// cutSomething cuts one link in one direction, one pair, or one broker off, for a
// while or until all is joined.
func (w *world) cutSomething() {
	a, b := int32(w.rng.IntN(w.cfg.brokers)), int32(w.rng.IntN(w.cfg.brokers))
	var links [][2]int32
	switch w.rng.IntN(3) {
	case 0:
		links = [][2]int32{{a, b}}
	case 1:
		links = [][2]int32{{a, b}, {b, a}}
	default:
		for i := range int32(w.cfg.brokers) {
			links = append(links, [2]int32{a, i}, [2]int32{i, a})
		}
	}
	w.cut(links, w.between(100, 4*sessionMillis))
}

// cut takes links away for a while.
func (w *world) cut(links [][2]int32, millis int64) {
	w.tell("cut %v", links)
	for _, l := range links {
		w.net.cut[l] = true
	}
	w.after(millis, func() {
		for _, l := range links {
			delete(w.net.cut, l)
		}
	})
}

func (w *world) joinAll() { clear(w.net.cut) }

// heal ends all faults.
func (w *world) heal() {
	w.healed = true
	w.tell("all faults end")
	w.net.loss, w.net.slow = 0, 0
	w.joinAll()
	if w.bucket != nil {
		w.bucket.heal()
	}
	for _, b := range w.brokers {
		b.paused, b.skew = 0, 0
		if !b.up {
			b.boot()
		}
	}
	w.after(5_000, w.ensureUp)
	w.after(20_000, w.rescue)
}

// ensureUp starts those that were stopping when the faults ended.
func (w *world) ensureUp() {
	w.after(1_000, w.ensureUp)
	for _, b := range w.brokers {
		if !b.up {
			b.boot()
		}
	}
}

// rescue is the operator's last resort for partitions nobody may lead: the last
// who could have led them may lack records, and nobody knows.
func (w *world) rescue() {
	img := w.quorum.newest()
	for _, t := range img.Topics() {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			if p.Leader < 0 && len(p.ISR)+len(p.ELR) == 0 {
				w.tell("the operator elects a leader for %s-%d", t.Name, i)
				w.elect(true)
			}
		}
	}
	w.after(5_000, w.rescue)
}
