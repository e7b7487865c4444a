package ops

import (
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/varvelog/varve/replica"
)

// damageSum counts a node's partitions with damaged records, and for whom they
// wait.
type damageSum struct {
	damaged, lost, held int
	waits               map[string]damageWait
}

type damageWait struct {
	partitions int
	since      int64 // the oldest, wall clock, milliseconds
}

func (s *damageSum) add(d replica.Damage) {
	if !d.Any() {
		return
	}
	s.damaged++
	if d.Lost {
		s.lost++
	}
	if d.HoldsProducers {
		s.held++
	}
	for _, w := range d.Waits {
		sum, known := s.waits[w.Source]
		if !known || w.Since < sum.since {
			sum.since = w.Since
		}
		sum.partitions++
		if s.waits == nil {
			s.waits = make(map[string]damageWait)
		}
		s.waits[w.Source] = sum
	}
}

func (s *damageSum) send(ch chan<- prometheus.Metric, now time.Time) {
	damagedNow.send(ch, float64(s.damaged))
	lostNow.send(ch, float64(s.lost))
	heldNow.send(ch, float64(s.held))
	for source, w := range s.waits {
		mendWaits.send(ch, float64(w.partitions), source)
		mendWaitFor.send(ch, max(now.Sub(time.UnixMilli(w.since)).Seconds(), 0), source)
	}
}

// DamagedPart is a partition's damage in the answer of
// GET /admin/v1/topics/{topic}/segments.
type DamagedPart struct {
	// From and To are the first run of damaged offsets, −1 when the records are
	// whole and what derives from them is not; Ranges is how many runs there are.
	From   int64         `json:"from"`
	To     int64         `json:"to"` // exclusive
	Ranges int           `json:"ranges"`
	Waits  []DamagedWait `json:"waits,omitempty"`
	// HoldsProducers says that no batch of an idempotent producer is taken before
	// the waits are over, Lost that everybody has answered and nobody has the records.
	HoldsProducers bool `json:"holdsProducers,omitempty"`
	Lost           bool `json:"lost,omitempty"`
}

// DamagedWait is one answer that is waited for.
type DamagedWait struct {
	Source string `json:"source"` // "broker N", "bucket", or "disk": the node's own
	Since  int64  `json:"since"`  // milliseconds
}

func damagedPartOf(d replica.Damage) *DamagedPart {
	if !d.Any() {
		return nil
	}
	part := &DamagedPart{From: d.Start, To: d.End, Ranges: d.Ranges, HoldsProducers: d.HoldsProducers, Lost: d.Lost}
	for _, w := range d.Waits {
		part.Waits = append(part.Waits, DamagedWait(w))
	}
	return part
}

// String says what is damaged, who is waited for and what for.
func (d *DamagedPart) String() string {
	var b strings.Builder
	switch {
	case d.Ranges == 0:
		b.WriteString("producers and transactions are known without records that were damaged")
	default:
		fmt.Fprintf(&b, "offsets %d to %d are damaged", d.From, d.To-1)
		if d.Ranges > 1 {
			fmt.Fprintf(&b, ", and %d more runs", d.Ranges-1)
		}
	}
	for i, w := range d.Waits {
		b.WriteString([]string{"; waits for ", ", "}[min(i, 1)])
		fmt.Fprintf(&b, "%s since %s", w.Source, time.UnixMilli(w.Since).UTC().Format(time.RFC3339))
	}
	switch {
	case d.Lost:
		b.WriteString("; nobody has the records any more: delete those below the end of the damage, and it is over")
	case d.HoldsProducers:
		b.WriteString("; no batch of an idempotent producer is taken before everybody has answered: it may be a repeat of what is damaged")
	}
	return b.String()
}
