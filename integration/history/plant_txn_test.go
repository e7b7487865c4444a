package history

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func ended(f Func, t Type) func(*Event) bool {
	return func(e *Event) bool { return e.F == f && e.Type == t }
}

// begun is the begin of the operation that e ends.
func begun(events []Event, e *Event) *Event {
	var b *Event
	for i := range events {
		o := &events[i]
		if o == e {
			return b
		}
		if o.Type == Invoke && o.Process == e.Process && o.F == e.F {
			b = o
		}
	}
	return nil
}

func sends(e *Event) (out []*Step) {
	for i := range e.Steps {
		if e.Steps[i].F == Send {
			out = append(out, &e.Steps[i])
		}
	}
	return out
}

func last(events []Event, fits func(*Event) bool) *Event {
	for i := len(events) - 1; i >= 0; i-- {
		if fits(&events[i]) {
			return &events[i]
		}
	}
	return nil
}

// dealPlants break legal histories of coordinators.
var dealPlants = []plant{
	{"precommitted-read", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, ended(Txn, OK))
		s := *sends(e)[0]
		e.Steps = append(e.Steps, Step{F: Poll, Key: s.Key, Offset: -1, Reads: [][2]int64{{s.Offset, s.Value}}})
		return true
	}},
	{"aborted-read", func(rng *rand.Rand, events []Event) bool {
		e, end := find(rng, events, ended(Txn, Fail)), find(rng, events, reads(true, 1))
		if e == nil {
			return false
		}
		s := sends(e)[0]
		end.Steps = append(end.Steps, Step{F: Poll, Key: s.Key, Offset: -1, Reads: [][2]int64{{s.Offset, s.Value}}})
		return true
	}},
	{"lost", func(rng *rand.Rand, events []Event) bool {
		// Half of a committed transaction is gone.
		e := find(rng, events, func(e *Event) bool { return e.F == Txn && e.Type == OK && len(sends(e)) > 1 })
		if e == nil {
			return false
		}
		s := sends(e)[0]
		forget(events, s.Value)
		end := last(events, reads(true, 1))
		for _, r := range end.Steps {
			if r.Key == s.Key && len(r.Reads) > 0 && r.Reads[len(r.Reads)-1][0] > s.Offset {
				return true
			}
		}
		return false
	}},
	{"G0", func(rng *rand.Rand, events []Event) bool {
		// Two transactions are in one order in one key and in the other in another.
		for i := range events {
			e := &events[i]
			if e.F != Txn || e.Type != OK {
				continue
			}
			for j := i + 1; j < len(events); j++ {
				o := &events[j]
				if o.F != Txn || o.Type != OK {
					continue
				}
				for _, a := range sends(e) {
					for _, b := range sends(o) {
						if a.Key == b.Key && len(sends(e)) > 1 && len(sends(o)) > 1 {
							other := outKeys[0]
							if a.Key == other {
								other = outKeys[1]
							}
							x, y := sends(e)[0], sends(o)[0]
							if x == a || y == b {
								continue
							}
							if x.Key != other || y.Key != other {
								continue
							}
							swap(events, x, y)
							return true
						}
					}
				}
			}
		}
		return false
	}},
	{"G1c", func(rng *rand.Rand, events []Event) bool {
		a := find(rng, events, ended(Txn, OK))
		b := find(rng, events, ended(Txn, OK))
		if a == b {
			return false
		}
		x, y := *sends(a)[0], *sends(b)[0]
		a.Steps = append(a.Steps, Step{F: Poll, Key: y.Key, Offset: -1, Reads: [][2]int64{{y.Offset, y.Value}}})
		b.Steps = append(b.Steps, Step{F: Poll, Key: x.Key, Offset: -1, Reads: [][2]int64{{x.Offset, x.Value}}})
		return true
	}},
	{"zombie-commit", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, ended(Txn, OK))
		n := find(rng, events, func(n *Event) bool {
			return n.F == Init && n.Type == OK && n.TxnID == e.TxnID && n.Process != e.Process && n.Time > e.Time
		})
		if n == nil {
			return false
		}
		e.Decided = n.Time + 1
		return true
	}},
	{"retransformed", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, func(e *Event) bool { return e.F == Txn && e.Type == OK && e.GroupID != "" && len(sends(e)) > 1 })
		if e == nil {
			return false
		}
		sends(e)[1].At = sends(e)[0].At
		return true
	}},
	{"untransformed", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, func(e *Event) bool { return e.F == Txn && e.Type == OK && e.GroupID != "" })
		if e == nil {
			return false
		}
		sends(e)[0].From, begun(events, e).GroupID = "", "g"
		return true
	}},
	{"uncommitted-output", func(rng *rand.Rand, events []Event) bool {
		e := last(events, func(e *Event) bool { return e.F == Committed && e.Type == OK && e.Final && e.GroupID == "g" })
		made := find(rng, events, func(e *Event) bool { return e.F == Txn && e.Type == OK && e.GroupID == "g" })
		if made == nil {
			return false
		}
		e.Steps[0].Offset = sends(made)[0].At
		return true
	}},
	{"lost-commit", func(rng *rand.Rand, events []Event) bool {
		c := find(rng, events, func(e *Event) bool { return e.F == Commit && e.Type == OK && begun(events, e).Steps[0].Offset > 0 })
		if c == nil {
			return false
		}
		to := begun(events, c).Steps[0].Offset
		told := find(rng, events, func(e *Event) bool {
			return e.F == Committed && e.Type == OK && e.GroupID == "h" && e.Time > c.Time && e.Steps[0].Offset >= to
		})
		if told == nil {
			return false
		}
		told.Steps[0].Offset = -1
		return true
	}},
	{"commit-regress", func(rng *rand.Rand, events []Event) bool {
		// What the coordinator tells of a group whose commits nobody has written down.
		for i := range events {
			if (events[i].F == Commit || events[i].F == Committed) && events[i].GroupID == "h" {
				if events[i].F == Commit {
					events[i].GroupID = "another"
				}
			}
		}
		told := find(rng, events, func(e *Event) bool {
			return e.F == Committed && e.Type == OK && e.GroupID == "h" && e.Steps[0].Offset > 0 && !e.Final
		})
		if told == nil {
			return false
		}
		last(events, func(e *Event) bool { return e.F == Committed && e.Type == OK && e.GroupID == "h" }).Steps[0].Offset = told.Steps[0].Offset - 1
		return true
	}},
	{"invented-commit", func(rng *rand.Rand, events []Event) bool {
		last(events, func(e *Event) bool { return e.F == Committed && e.Type == OK && e.GroupID == "h" }).Steps[0].Offset = 1 << 40
		return true
	}},
	{"owned-twice", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, func(e *Event) bool {
			return e.F == Group && e.Type == OK && e.State == "Stable" && len(e.Owners) > 1
		})
		if e == nil || rng.IntN(2) == 0 {
			c := find(rng, events, func(e *Event) bool { return e.F == Claim && e.Type == OK && len(e.Keys) > 0 })
			events[len(events)-1] = Event{F: Claim, Type: OK, Process: 950, GroupID: c.GroupID, Generation: c.Generation, Member: "somebody else", Keys: c.Keys}
			return true
		}
		for m := range e.Owners {
			e.Owners[m] = outKeys
		}
		return true
	}},
	{"unowned", func(rng *rand.Rand, events []Event) bool {
		e := last(events, func(e *Event) bool { return e.F == Group && e.Type == OK && e.State == "Stable" })
		for m := range e.Owners {
			e.Owners[m] = e.Owners[m][:len(e.Owners[m])-1]
			break
		}
		return true
	}},
	{"assignment-changed", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, func(e *Event) bool {
			return e.F == Group && e.Type == OK && e.State == "Stable" && !e.Final
		})
		again := func(o *Event) bool {
			return o != e && o.F == Group && o.Type == OK && o.State == "Stable" && o.Generation == e.Generation
		}
		if e == nil || find(rng, events, again) == nil {
			return false
		}
		e.Owners = map[string][]string{"somebody else": outKeys}
		return true
	}},
	{"epoch-regress", func(rng *rand.Rand, events []Event) bool {
		e := last(events, func(e *Event) bool { return e.F == Group && e.Type == OK && e.State == "Stable" })
		e.Generation = 1
		return true
	}},
	{"share-lost", func(rng *rand.Rand, events []Event) bool {
		// An acknowledgement was never made, and nothing comes again.
		e := last(events, func(e *Event) bool { return e.F == Ack && e.Type == OK && !e.Final })
		b := begun(events, e)
		return neglect(events, b.Steps[len(b.Steps)-1].Offset, nil) < deliveriesMax
	}},
	{"share-lost", func(rng *rand.Rand, events []Event) bool {
		// Of an acknowledgement nobody knows, but the record came again after it; that was the last of it.
		e := find(rng, events, func(e *Event) bool { return e.F == Ack && e.Type == Info && !e.Steps[0].Done })
		if e == nil {
			return false
		}
		o := e.Steps[0].Offset
		n := neglect(events, o, e)
		again := last(events, func(s *Event) bool { return s.F == Share && s.Type == OK && delivers(s, o) })
		return n < deliveriesMax && again.Time > e.Time
	}},
	{"share-overdelivered", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, func(e *Event) bool { return e.F == Share && e.Type == OK && len(e.Steps) > 0 })
		e.Steps[0].Counts[0] = deliveriesMax + 1
		return true
	}},
	{"no-final", func(_ *rand.Rand, events []Event) bool {
		for i := range events {
			events[i].Final = events[i].Final && events[i].F != Share
		}
		return true
	}},
	{"no-final", func(_ *rand.Rand, events []Event) bool {
		for i := range events {
			events[i].Final = events[i].Final && (events[i].F != Committed || events[i].GroupID != "g")
		}
		return true
	}},
	{"owned-twice", func(rng *rand.Rand, events []Event) bool {
		// The next owner had it before the last had given it up, who is a member still.
		e := find(rng, events, func(e *Event) bool {
			return e.F == Release && e.Type == OK && e.State == Revoked && find(rng, events, func(c *Event) bool {
				return c.F == Claim && c.Type == OK && c.Member == e.Member && c.Time > e.Time
			}) != nil
		})
		if e == nil {
			return false
		}
		e.Keys = nil
		return true
	}},
	{"share-redelivered", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, func(e *Event) bool {
			return e.F == Ack && e.Type == OK && begun(events, e).Steps[0].Verdict != "release"
		})
		o := begun(events, e).Steps[0].Offset
		to := last(events, func(o *Event) bool { return o.F == Share && o.Type == OK && o.Time > e.Time })
		if to == nil {
			return false
		}
		var v int64
		for i := range events {
			for _, s := range events[i].Steps {
				if s.Key == inKey && s.F == Send && s.Offset == o {
					v = s.Value
				}
			}
		}
		to.Steps = append(to.Steps, Step{F: Poll, Key: inKey, Offset: -1, Reads: [][2]int64{{o, v}}})
		return true
	}},
}

func delivers(e *Event, offset int64) bool {
	return slices.ContainsFunc(e.Steps, func(s Step) bool {
		return slices.ContainsFunc(s.Reads, func(r [2]int64) bool { return r[0] == offset })
	})
}

// neglect takes out all that was said of a shared record, but by one operation, and leaves it out of the final phase. It gives
// the number of its deliveries.
func neglect(events []Event, offset int64, but *Event) (deliveries int) {
	var kept *Event
	if but != nil {
		kept = begun(events, but)
	}
	for i := range events {
		e := &events[i]
		if e.F == Ack && e != but && e != kept {
			e.Steps = slices.DeleteFunc(e.Steps, func(s Step) bool { return s.Offset == offset })
		}
		if e.F == Share && e.Type == OK && delivers(e, offset) {
			deliveries++
			e.Final = false
		}
	}
	return deliveries
}

// swap has two values change places everywhere.
func swap(events []Event, a, b *Step) {
	x, y := *a, *b
	at := map[int64]int64{x.Value: y.Offset, y.Value: x.Offset}
	for i := range events {
		for j := range events[i].Steps {
			s := &events[i].Steps[j]
			if to, ok := at[s.Value]; ok && s.F == Send && s.Offset >= 0 {
				s.Offset = to
			}
			for k, r := range s.Reads {
				switch r[1] {
				case x.Value:
					s.Reads[k][1] = y.Value
				case y.Value:
					s.Reads[k][1] = x.Value
				}
			}
		}
	}
}

func TestLegalHistoriesOfCoordinatorsPass(t *testing.T) {
	for seed := uint64(1); seed <= 100; seed++ {
		r := Check(generateTxns(seed), Options{})
		if !r.Good() {
			t.Fatalf("seed %d: %s", seed, r.Summary())
		}
		if c := r.Counts; c.Txns < 10 || c.Transformed < 10 || c.Commits < 5 || c.GroupLooks < 20 || c.Shared < 20 {
			t.Fatalf("seed %d checks little: %+v", seed, c)
		}
	}
}

// TestUncleanElectionsAreHeldToTheEnd: losses count no more, contradictions at
// the end still do.
func TestUncleanElectionsAreHeldToTheEnd(t *testing.T) {
	b := &builder{}
	b.send(1, 10, OK, 0)
	b.poll(2, false, [2]int64{0, 10})
	b.send(1, 11, OK, 0)
	b.poll(3, true, [2]int64{0, 11})
	if r := Check(b.events, Options{Unclean: true}); !r.Good() || r.LegalFound["lost"] == 0 || r.LegalFound["inconsistent-offset"] == 0 {
		t.Errorf("a loss: %s", r.Summary())
	}
	b.poll(4, true, [2]int64{0, 10})
	if r := Check(b.events, Options{Unclean: true}); r.Found["inconsistent-offset"] == 0 {
		t.Errorf("two readers disagree at the end: %s", r.Summary())
	}
}

// What was made of a record that an unclean election took away stays, beside what was made of the record that came in its place.
func TestOutputOfWhatAnUncleanElectionLostIsLegal(t *testing.T) {
	i := slices.IndexFunc(dealPlants, func(p plant) bool { return p.anomaly == "retransformed" })
	for seed := uint64(1); seed <= 20; seed++ {
		events := generateTxns(seed)
		if !dealPlants[i].in(rand.New(rand.NewPCG(seed, 9)), events) {
			continue
		}
		if r := Check(events, Options{}); r.Found["retransformed"] == 0 {
			t.Fatalf("seed %d: not found at all: %s", seed, r.Summary())
		}
		if r := Check(events, Options{Unclean: true}); r.Found["retransformed"] > 0 || r.LegalFound["retransformed"] == 0 {
			t.Fatalf("seed %d: %s", seed, r.Summary())
		}
		return
	}
	t.Fatal("nothing could be planted")
}
