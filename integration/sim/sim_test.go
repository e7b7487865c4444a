package sim

import (
	"flag"
	"os"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
)

var (
	steps     = flag.Int("sim.steps", 0, "steps of the simulation, over all seeds; 0 is 100,000, or 300,000 with VARVE_LONG=1")
	fromSeed  = flag.Uint64("sim.from", 1, "the first seed")
	onlySeed  = flag.Uint64("sim.seed", 0, "run this seed only, and tell its story")
	worlds    = flag.String("sim.worlds", "", "only worlds with a bucket (tiered), or without (local)")
	explains  = flag.Bool("sim.explain", true, "find the faults that a failure needs, and tell its story")
	storyLast = flag.Int("sim.story", 60, "lines of the story of a failure")
)

// stepsPerSeed is how long a world's faults last.
const stepsPerSeed = 5_000

// play runs one seed. Time is the bubble's, for the waits of the store's clients.
func play(t *testing.T, seed uint64, without faults, told bool) (w *world) {
	cryptotest.SetGlobalRandom(t, seed)
	synctest.Test(t, func(t *testing.T) {
		w = newWorld(t, seed, without, told)
		defer w.close()
		w.run(stepsPerSeed)
	})
	return w
}

func TestSimulatedClusterKeepsItsPromises(t *testing.T) {
	total := *steps
	switch {
	case total > 0:
	case os.Getenv("VARVE_LONG") != "":
		total = 300_000
	default:
		total = 100_000
	}
	if *onlySeed != 0 {
		if w := play(t, *onlySeed, 0, true); len(w.failures) > 0 {
			report(t, w)
		}
		return
	}
	sum := totals{}
	for seed := *fromSeed; sum.steps < total; seed++ {
		w := play(t, seed, 0, false)
		sum.add(w)
		if len(w.failures) > 0 {
			if *explains {
				explain(t, w)
			} else {
				report(t, w)
			}
			t.Fatalf("run again with -run %s -sim.seed=%d", t.Name(), seed)
		}
	}
	t.Logf("%+v", sum)
	if sum.acks < total/100 || sum.elections < total/2000 {
		t.Errorf("%+v: the simulation does not reach what it is for", sum)
	}
}

// totals say what a run has seen.
type totals struct {
	seeds, steps, acks, commits, elections, uncleans, entries int
}

func (s *totals) add(w *world) {
	s.seeds++
	s.steps += w.steps
	s.acks += w.oracle.acks
	s.commits += w.oracle.commits
	s.elections += w.oracle.elected
	s.uncleans += w.oracle.uncleans
	s.entries += len(w.quorum.entries)
}

// explain takes from a failing seed every kind of fault that it fails without,
// and tells the story of what is left.
func explain(t *testing.T, w *world) {
	without := faults(0)
	rule := w.failures[0].rule
	for i := range faultNames {
		try := without | 1<<i
		if o := play(t, w.seed, try, false); len(o.failures) > 0 && o.failures[0].rule == rule {
			without = try
		}
	}
	var kinds []string
	for i, name := range faultNames {
		if without&(1<<i) == 0 {
			kinds = append(kinds, name)
		}
	}
	t.Logf("seed %d fails with: %s", w.seed, strings.Join(kinds, ", "))
	report(t, play(t, w.seed, without, true))
}

func report(t *testing.T, w *world) {
	t.Logf("%+v", w.cfg)
	for _, line := range w.story.last(*storyLast) {
		t.Log(line)
	}
	for _, f := range w.failures {
		t.Errorf("seed %d, step %d: %s: %s", w.seed, w.steps, f.rule, f.text)
	}
}
