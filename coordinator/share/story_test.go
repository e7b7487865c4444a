package share

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// story drives one share-partition from a file of testdata/stories. Each command is something that happens; its output is what
// is said in answer, and "what is kept" shows the window.
//
//	group locks=N deliveries=N lock=MILLIS [renew=no] [dead-letters]   begins anew at offset 0
//	log FIRST-LAST… [x before: no records]                             the log holds these batches
//	NAME fetches [max=N] [batch=N] [strict]
//	NAME acknowledges FIRST-LAST=TYPE[,TYPE…] …                        accept, release, reject, renew, gap
//	NAME leaves
//	written | lost                                                     what came of the write under way, and the next begins
//	MILLIS pass
//	log-start OFFSET
//	dead letters | buried FIRST-LAST | unburied FIRST-LAST
//	restart                                                            a new leader reads what was written
//	state
type story struct {
	p       *Partition
	limits  Limits
	now     int64
	batches []Batch
	start   int64
	kept    map[int64]Done
	flying  *Write
	round   uint64
}

func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata/stories", func(t *testing.T, path string) {
		s := &story{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			for line := range strings.Lines(d.Input) {
				if line = strings.TrimSpace(line); line != "" {
					s.tell(t, &out, strings.Fields(line))
				}
			}
			return out.String()
		})
	})
}

func number(t *testing.T, s string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func span(t *testing.T, s string) (first, last int64) {
	a, b, more := strings.Cut(s, "-")
	if !more {
		b = a
	}
	return number(t, a), number(t, b)
}

var typeNames = map[string]int8{"gap": Gap, "accept": Accept, "release": Release, "reject": Reject, "renew": Renew}

var stateNames = map[State]string{Available: "available", Acquired: "acquired", Acknowledged: "acknowledged", Archiving: "archiving", Archived: "archived"}

func (s *story) tell(t *testing.T, out *strings.Builder, f []string) {
	switch f[0] {
	case "group":
		s.begin(t, f[1:])
	case "log":
		s.batches = s.batches[:0]
		for _, w := range f[1:] {
			w, skip := strings.CutPrefix(w, "x")
			first, last := span(t, w)
			s.batches = append(s.batches, Batch{First: first, Last: last, Skip: skip})
		}
	case "written", "lost":
		s.settle(out, f[0] == "written")
	case "log-start":
		s.p.LogStart(number(t, f[1]))
	case "dead":
		for _, d := range s.p.DeadLetters(nil) {
			fmt.Fprintf(out, "to the dead-letter topic: %d-%d after %d deliveries, %s\n", d.First, d.Last, d.Deliveries,
				map[Reason]string{Exhausted: "exhausted", Rejected: "rejected"}[d.Reason])
		}
	case "buried":
		s.p.Buried(span(t, f[1]))
	case "unburied":
		s.p.Unburied(span(t, f[1]))
	case "restart":
		var list []Done
		for o := s.start; len(list) < len(s.kept) && o < 10_000; o++ {
			if d, ok := s.kept[o]; ok {
				list = append(list, d)
			}
		}
		s.p, s.flying = Restore(s.start, list, s.limits), nil
	case "state":
		s.show(out)
	default:
		if len(f) > 1 && f[1] == "pass" {
			s.now += number(t, f[0])
			if s.p.Tick(s.now) {
				fmt.Fprintln(out, "there is something to write")
			}
			break
		}
		s.member(t, out, f[0], f[1], f[2:])
	}
	s.write(out)
	if err := s.p.Check(); err != nil {
		t.Fatal(err)
	}
}

func (s *story) begin(t *testing.T, args []string) {
	*s = story{now: 0, kept: map[int64]Done{}, limits: Limits{LocksMax: 100, DeliveriesMax: 5, LockMillis: 1000, Renewable: true}}
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		switch k {
		case "locks":
			s.limits.LocksMax = int(number(t, v))
		case "deliveries":
			s.limits.DeliveriesMax = int16(number(t, v))
		case "lock":
			s.limits.LockMillis = number(t, v)
		case "renew":
			s.limits.Renewable = v != "no"
		case "dead-letters":
			s.limits.DeadLetters = true
		default:
			t.Fatalf("group: %s?", k)
		}
	}
	s.p = New(0, s.limits)
}

func (s *story) member(t *testing.T, out *strings.Builder, name, verb string, args []string) {
	switch verb {
	case "fetches":
		w := Want{Member: name, RecordsMax: 500, BatchSize: 500}
		for _, a := range args {
			k, v, _ := strings.Cut(a, "=")
			switch k {
			case "max":
				w.RecordsMax = int(number(t, v))
			case "batch":
				w.BatchSize = int(number(t, v))
			case "strict":
				w.Strict = true
			}
		}
		from, ok := s.p.NextFetch()
		if !ok {
			fmt.Fprintln(out, "nothing to hand out until something comes back")
			return
		}
		var read []Batch
		for _, b := range s.batches {
			if b.Last >= from {
				read = append(read, b)
			}
		}
		fmt.Fprintf(out, "reads from %d and gets", from)
		held := s.p.Acquire(w, from, read, s.now, nil)
		for _, h := range held {
			fmt.Fprintf(out, " %d-%d", h.First, h.Last)
			if h.Deliveries > 1 {
				fmt.Fprintf(out, "(delivery %d)", h.Deliveries)
			}
		}
		if len(held) == 0 {
			fmt.Fprint(out, " nothing")
		}
		fmt.Fprintln(out)
	case "acknowledges":
		var acks []Ack
		for _, a := range args {
			where, what, _ := strings.Cut(a, "=")
			x := Ack{}
			x.First, x.Last = span(t, where)
			for w := range strings.SplitSeq(what, ",") {
				x.Types = append(x.Types, typeNames[w])
			}
			acks = append(acks, x)
		}
		round, err := s.p.Acknowledge(name, acks, s.now)
		switch {
		case err != nil:
			fmt.Fprintln(out, err)
		case round == 0:
			fmt.Fprintln(out, "ok at once")
		default:
			fmt.Fprintf(out, "ok when round %d is written\n", round)
		}
	case "leaves":
		if round := s.p.Leave(name); round != 0 {
			fmt.Fprintf(out, "gives back in round %d\n", round)
		}
	default:
		t.Fatalf("%s?", verb)
	}
}

// write begins the next write when none is under way.
func (s *story) write(out *strings.Builder) {
	w, round, ok := s.p.TakeWrite()
	if !ok {
		return
	}
	w.Batches = append([]Done(nil), w.Batches...)
	s.flying, s.round = &w, round
	fmt.Fprintf(out, "  writes round %d: start %d, %d complete", round, w.Start, w.Complete)
	for _, d := range w.Batches {
		fmt.Fprintf(out, ", %d-%d %s(%d)", d.First, d.Last, stateNames[d.State], d.Deliveries)
	}
	fmt.Fprintln(out)
}

func (s *story) settle(out *strings.Builder, ok bool) {
	if s.flying == nil {
		fmt.Fprintln(out, "nothing is being written")
		return
	}
	if ok {
		s.start = max(s.start, s.flying.Start)
		for _, d := range s.flying.Batches {
			for o := d.First; o <= d.Last; o++ {
				s.kept[o] = Done{First: o, Last: o, State: d.State, Deliveries: d.Deliveries}
			}
		}
	}
	s.p.Written(ok, s.now)
	s.flying = nil
}

func (s *story) show(out *strings.Builder) {
	fmt.Fprintf(out, "start %d, next %d, %d in flight\n", s.p.Start(), s.p.Next(), s.p.InFlight())
	for i := range s.p.runs {
		r := &s.p.runs[i]
		fmt.Fprintf(out, "  %d-%d %s, %d deliveries", r.first, r.last, stateNames[r.state], r.deliveries)
		if r.state == Acquired {
			fmt.Fprintf(out, ", by %s until %d", r.member, r.deadline)
		}
		if r.round != 0 {
			fmt.Fprintf(out, ", in round %d", r.round)
		}
		fmt.Fprintln(out)
	}
}
