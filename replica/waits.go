package replica

import (
	"slices"
	"strings"
)

// Wait is an answer that a partition with damaged records waits for, before it may conclude that nobody has them any more.
type Wait struct {
	Source string // who may have the records: "broker 2", or theBucket, or ownDisk
	Since  int64  // wall clock, milliseconds
}

// Who else but a broker may have what is damaged here.
const (
	theBucket = "bucket"
	ownDisk   = "disk" // of this broker: what it does not give now it may give later
)

// Damage is what a partition has damaged on this broker's disk, and whom it waits for.
type Damage struct {
	Ranges     int   // runs of offsets that are refused
	Start, End int64 // of the first of them, NoOffset without any
	Bytes      int64 // of all
	// Incomplete says that producers and transactions are known without what is damaged, or was.
	Incomplete bool
	// HoldsProducers says that this broker leads, and takes no batch of a producer before all waits are over: it may be a repeat of
	// what is damaged.
	HoldsProducers bool
	// Lost says that this broker leads, and has heard from everybody: the records are nowhere.
	Lost  bool
	Waits []Wait // by source
}

// Any says that something is damaged, or derived without what is.
func (d Damage) Any() bool { return d.Ranges > 0 || d.Incomplete }

// Damage looks at what is damaged. It costs next to nothing when nothing is.
func (p *Partition) Damage() Damage {
	d := Damage{Start: NoOffset, End: NoOffset, Incomplete: p.log.Incomplete()}
	if d.Incomplete || p.damagedFrom() != NoOffset {
		if list := p.wanted(); len(list) > 0 {
			d.Ranges, d.Start, d.End, d.Bytes = len(list), list[0].Start, list[0].End, damagedBytes(list)
		}
	}
	if !d.Any() {
		return d
	}
	d.Lost = p.damage.verdict.Load().holds(p)
	d.HoldsProducers = d.Incomplete && !d.Lost && p.role.Load().err == nil
	if w := p.damage.waits.Load(); w != nil {
		d.Waits = slices.Clone(*w)
	}
	return d
}

// noteWaits takes what a round of asking has come to. Who is waited for still has been since the first round. Only who mends calls it.
func (s *damageState) noteWaits(sources []string, now int64) []Wait {
	var old []Wait
	if w := s.waits.Load(); w != nil {
		old = *w
	}
	next := make([]Wait, 0, len(sources))
	for _, source := range sources {
		since := now
		if i := slices.IndexFunc(old, func(w Wait) bool { return w.Source == source }); i >= 0 {
			since = old[i].Since
		}
		next = append(next, Wait{source, since})
	}
	s.waits.Store(&next)
	return next
}

// namesOf is a list of waits as the log has it.
func namesOf(waits []Wait) string {
	names := make([]string, 0, len(waits))
	for _, w := range waits {
		names = append(names, w.Source)
	}
	return strings.Join(names, ", ")
}
