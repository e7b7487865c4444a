package history

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"testing"
)

// plant breaks a legal history in one way. It gives false when this history
// has no place for it.
type plant struct {
	anomaly string
	in      func(rng *rand.Rand, events []Event) bool
}

// find gives a random event that fits, or nil.
func find(rng *rand.Rand, events []Event, fits func(*Event) bool) *Event {
	var all []*Event
	for i := range events {
		if fits(&events[i]) {
			all = append(all, &events[i])
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[rng.IntN(len(all))]
}

func reads(final bool, atLeast int) func(*Event) bool {
	return func(e *Event) bool {
		return e.F == Poll && e.Type == OK && e.Final == final && slices.ContainsFunc(e.Steps, func(s Step) bool { return len(s.Reads) >= atLeast })
	}
}

func stepWith(e *Event, atLeast int) *Step {
	i := slices.IndexFunc(e.Steps, func(s Step) bool { return len(s.Reads) >= atLeast })
	return &e.Steps[i]
}

// owed is the first offset of a key that was never trimmed.
func owed(events []Event, key string) int64 {
	start := int64(0)
	for _, e := range events {
		if e.F == Offsets && e.Key == key && e.Ends != nil {
			start = max(start, e.Ends.Start)
		}
	}
	return start
}

// forget takes a value out of all reads of the final phase.
func forget(events []Event, v int64) {
	for i := range events {
		if e := &events[i]; e.Final {
			for j := range e.Steps {
				e.Steps[j].Reads = slices.DeleteFunc(e.Steps[j].Reads, func(r [2]int64) bool { return r[1] == v })
			}
		}
	}
}

var plants = []plant{
	{"inconsistent-offset", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, reads(true, 1))
		other := find(rng, events, reads(true, 1))
		s, o := stepWith(e, 1), stepWith(other, 1)
		if s.Key != o.Key || s.Reads[0][1] == o.Reads[0][1] {
			return false
		}
		s.Reads[0][1] = o.Reads[0][1]
		return true
	}},
	{"duplicate", func(rng *rand.Rand, events []Event) bool {
		s := stepWith(find(rng, events, reads(true, 1)), 1)
		last := s.Reads[len(s.Reads)-1]
		s.Reads = append(s.Reads, [2]int64{last[0] + 1, last[1]})
		return true
	}},
	{"aborted-read", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, func(e *Event) bool { return e.F == Send && e.Type == Fail })
		at := stepWith(find(rng, events, reads(true, 1)), 1)
		if e == nil {
			return false
		}
		at.Key, at.Reads[0][1] = e.Steps[0].Key, e.Steps[0].Value
		return true
	}},
	{"lost", func(rng *rand.Rand, events []Event) bool {
		s := stepWith(find(rng, events, reads(true, 3)), 3)
		forget(events, s.Reads[1][1])
		return true
	}},
	{"unseen", func(rng *rand.Rand, events []Event) bool {
		key, highest := "a/0", [2]int64{-1, -1}
		for _, e := range events {
			for _, s := range e.Steps {
				for _, r := range s.Reads {
					if s.Key == key && r[0] > highest[0] {
						highest = r
					}
				}
			}
		}
		acknowledged := find(rng, events, func(e *Event) bool {
			return e.F == Send && e.Type == OK && slices.ContainsFunc(e.Steps, func(s Step) bool { return s.Value == highest[1] })
		})
		forget(events, highest[1])
		return acknowledged != nil
	}},
	{"gap", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, func(e *Event) bool { return e.F == Offsets && e.Final && e.Type == OK })
		e.Ends.End++ // an offset that nobody can read
		return true
	}},
	{"poll-skip", func(rng *rand.Rand, events []Event) bool {
		// The first record of a poll that is not the first of its consumer.
		seen := map[int]map[string]bool{}
		for i := range events {
			e := &events[i]
			if e.F == Assign {
				seen[e.Process] = map[string]bool{}
			}
			if !reads(false, 2)(e) {
				continue
			}
			if s := stepWith(e, 2); seen[e.Process][s.Key] && s.Reads[0][0] >= owed(events, s.Key) {
				s.Reads = s.Reads[1:]
				return true
			} else {
				seen[e.Process][s.Key] = true
			}
		}
		return false
	}},
	{"nonmonotonic-poll", func(rng *rand.Rand, events []Event) bool {
		last := map[int]map[string][2]int64{}
		for i := range events {
			e := &events[i]
			if e.F == Assign {
				last[e.Process] = map[string][2]int64{}
			}
			if !reads(false, 1)(e) {
				continue
			}
			s := stepWith(e, 1)
			if before, any := last[e.Process][s.Key]; any {
				s.Reads = slices.Insert(s.Reads, 0, before)
				return true
			}
			last[e.Process][s.Key] = s.Reads[len(s.Reads)-1]
		}
		return false
	}},
	{"int-poll-skip", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, reads(false, 3))
		if e == nil {
			return false
		}
		s := stepWith(e, 3)
		if s.Reads[1][0] < owed(events, s.Key) {
			return false
		}
		s.Reads = slices.Delete(s.Reads, 1, 2)
		return true
	}},
	{"int-nonmonotonic-poll", func(rng *rand.Rand, events []Event) bool {
		s := stepWith(find(rng, events, reads(true, 2)), 2)
		s.Reads[0], s.Reads[1] = s.Reads[1], s.Reads[0]
		return true
	}},
	{"send-order", func(rng *rand.Rand, events []Event) bool {
		// An acknowledged send moves to after the end of all others.
		e := find(rng, events, func(e *Event) bool { return e.F == Send && e.Type == OK && e.Steps[0].Offset == 0 })
		if e == nil {
			return false
		}
		for i := range events {
			if b := &events[i]; b.F == Send && b.Type == Invoke && b.Steps[0].Value == e.Steps[0].Value {
				b.Time = events[len(events)-1].Time + 1
			}
		}
		e.Time = events[len(events)-1].Time + 2
		return true
	}},
	{"int-send-order", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, func(e *Event) bool { return e.F == Send && e.Type == OK && len(e.Steps) > 1 })
		if e == nil {
			return false
		}
		e.Steps[0].Offset, e.Steps[1].Offset = e.Steps[1].Offset, e.Steps[0].Offset
		return true
	}},
	{"divergent-batch", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, func(e *Event) bool { return e.F == Batches && e.Source == "the end" })
		other := *e
		other.Batches = slices.Clone(e.Batches)
		e.Batches = append(e.Batches, e.Batches[0])
		e.Batches[0].Hash++
		return true
	}},
	{"epoch-order", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, func(e *Event) bool { return e.F == Batches && len(e.Batches) > 1 && e.Batches[0].Epoch > 1 })
		if e == nil {
			return false
		}
		e.Batches[len(e.Batches)-1].Epoch = 0
		return true
	}},
	{"offset-regress", func(rng *rand.Rand, events []Event) bool {
		e := find(rng, events, func(e *Event) bool { return e.F == Offsets && e.Final && e.Type == OK && e.Ends.End > 1 })
		first := find(rng, events, func(o *Event) bool {
			return o.F == Offsets && o.Type == OK && o.Key == e.Key && o.Process != e.Process && o.Time < e.Time && o.Ends.End > 1
		})
		if first == nil {
			return false
		}
		e.Ends.End = first.Ends.End - 1
		return true
	}},
}

// TestLegalHistoriesPass: thousands of steps of a log that keeps its promises.
func TestLegalHistoriesPass(t *testing.T) {
	for seed := uint64(1); seed <= 100; seed++ {
		events, _ := generate(seed)
		r := Check(events, Options{})
		if !r.Good() {
			t.Fatalf("seed %d: %s", seed, r.Summary())
		}
		if c := r.Counts; c.Acknowledged < 50 || c.Failed == 0 && c.Unknown == 0 || c.FinalReads < 50 || c.Batches == 0 {
			t.Fatalf("seed %d checks little: %+v", seed, c)
		}
	}
}

// TestPlantedAnomaliesAreFound plants each kind in many histories, and
// every pass has its kinds planted.
func TestPlantedAnomaliesAreFound(t *testing.T) {
	covered := map[string]bool{}
	plain := func(seed uint64) []Event { events, _ := generate(seed); return events }
	for _, p := range plants {
		covered[p.anomaly] = true
		t.Run(p.anomaly, func(t *testing.T) { p.isFound(t, plain) })
	}
	for _, p := range dealPlants {
		covered[p.anomaly] = true
		t.Run(p.anomaly+" by coordinators", func(t *testing.T) { p.isFound(t, generateTxns) })
	}
	for _, p := range passes {
		for _, name := range p.names {
			if !covered[name] {
				t.Errorf("no history has %s planted", name)
			}
		}
	}
}

// isFound plants in many legal histories.
func (p plant) isFound(t *testing.T, generate func(seed uint64) []Event) {
	planted := 0
	for seed := uint64(1); seed <= 30; seed++ {
		events := clone(t, generate(seed))
		if !p.in(rand.New(rand.NewPCG(seed, 2)), events) {
			continue
		}
		planted++
		if r := Check(events, Options{}); r.Found[p.anomaly] == 0 && (p.anomaly != "G0" || r.LegalFound["G0"] == 0) {
			t.Fatalf("seed %d: not found\n%s", seed, r.Summary())
		}
	}
	if planted < 8 {
		t.Fatalf("planted only %d times", planted)
	}
}

func clone(t *testing.T, events []Event) []Event {
	t.Helper()
	text, err := json.Marshal(events)
	if err != nil {
		t.Fatal(err)
	}
	var fresh []Event
	if err := json.Unmarshal(text, &fresh); err != nil {
		t.Fatal(err)
	}
	return fresh
}
