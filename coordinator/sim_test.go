package coordinator

import (
	"flag"
	"os"
	"testing"
)

var (
	simSteps = flag.Int("sim.steps", 0, "steps of the simulation, over all seeds; 0 is 100,000, or 1,000,000 with VARVE_LONG=1, or 20,000 with -short")
	simFrom  = flag.Uint64("sim.from", 1, "the first seed")
	simLines = flag.Int("sim.story", 80, "lines of the story of a failure")
	simSeed  = flag.Uint64("sim.seed", 0, "run this seed only, and tell its story")
)

// simStepsPerSeed is how long a world's faults last.
const simStepsPerSeed = 1500

// playSim runs one seed: faults first, then peace, in which everything has to come to its end.
func playSim(t *testing.T, seed uint64, told, modern bool) *simWorld {
	w := newSimWorld(t, seed, told, modern)
	for w.failed == "" && w.steps < simStepsPerSeed {
		w.step()
	}
	w.quiet = true
	w.paused = [simBrokers]int64{}
	for _, x := range w.members.list {
		x.topics, x.full = []string{"t"}, true
	}
	for range 3000 {
		if w.failed != "" {
			return w
		}
		w.step()
		if w.steps%50 == 0 && w.settled() == "" {
			return w
		}
	}
	if open := w.settled(); open != "" {
		w.fail("left alone, %s", open)
	}
	return w
}

func (w *simWorld) settled() string {
	if w.modern != nil {
		return w.modern.settled()
	}
	if open := w.txns.settled(); open != "" {
		return open
	}
	return w.members.settled()
}

func TestSimulatedCoordinatorsKeepTheirPromises(t *testing.T) {
	total := simTotal()
	if *simSeed != 0 {
		reportSim(t, playSim(t, *simSeed, true, false))
		return
	}
	var sum struct{ seeds, steps, answers, failovers, loads, cuts, txns, committed, aborted, commits, accepted, lates, regulars, consumers, kept int }
	for seed := *simFrom; sum.steps < total; seed++ {
		w := playSim(t, seed, false, false)
		if w.failed != "" {
			reportSim(t, playSim(t, seed, true, false))
			t.Fatalf("run again with -run %s -sim.seed=%d", t.Name(), seed)
		}
		sum.seeds++
		sum.steps += w.steps
		sum.answers += w.answers
		sum.failovers += w.failovers
		sum.loads += w.loads
		sum.cuts += w.cuts
		sum.kept += w.shares.count
		sum.txns += w.txns.count
		for _, x := range w.txns.all {
			switch x.outcome {
			case "commit":
				sum.committed++
			case "abort":
				sum.aborted++
			}
		}
		sum.commits += w.members.commits
		sum.accepted += w.members.accepted
		sum.lates += w.members.lates
		sum.regulars += w.members.regulars
		sum.consumers += w.members.consumers
	}
	t.Logf("%+v", sum)
	if n := total / 1000; sum.committed < n || sum.aborted < n || sum.failovers < n || sum.accepted < n || sum.lates < n || sum.regulars < n || sum.consumers < n || sum.kept < n || sum.cuts == 0 {
		t.Errorf("%+v: the simulation does not reach what it is for", sum)
	}
}

func simTotal() int {
	switch {
	case *simSteps > 0:
		return *simSteps
	case os.Getenv("VARVE_LONG") != "":
		return 1_000_000
	case testing.Short():
		return 20_000
	}
	return 100_000
}

func TestSimulatedMembershipsKeepTheirPromises(t *testing.T) {
	total := simTotal() / 2
	if *simSeed != 0 {
		reportSim(t, playSim(t, *simSeed, true, true))
		return
	}
	var sum struct{ seeds, steps, failovers, loads, commits, regulars, consumers, threads, takers, deliveries, told, fenced, leaders, letters int }
	for seed := *simFrom; sum.steps < total; seed++ {
		w := playSim(t, seed, false, true)
		if w.failed != "" {
			reportSim(t, playSim(t, seed, true, true))
			t.Fatalf("run again with -run %s -sim.seed=%d", t.Name(), seed)
		}
		sum.seeds++
		sum.steps += w.steps
		sum.failovers += w.failovers
		sum.loads += w.loads
		sum.commits += w.members.accepted
		sum.regulars += w.members.regulars
		sum.consumers += w.members.consumers
		sum.threads += w.modern.streams.assigned
		sum.takers += w.modern.takers.assigned
		for _, x := range w.modern.leads {
			sum.deliveries += x.deliveries
			sum.told += len(x.told)
			sum.fenced += x.fenced
			sum.leaders += int(x.epoch)
			sum.letters += len(x.letters)
		}
	}
	t.Logf("%+v", sum)
	if n := total / 2000; sum.commits < n || sum.regulars < n || sum.consumers < n || sum.threads < n || sum.takers < n || sum.told < n || sum.leaders < n || sum.letters == 0 || sum.fenced == 0 {
		t.Errorf("%+v: the simulation does not reach what it is for", sum)
	}
}

func reportSim(t *testing.T, w *simWorld) {
	for _, line := range w.story[max(0, len(w.story)-*simLines):] {
		t.Log(line)
	}
	if w.failed != "" {
		t.Errorf("seed %d: step %d: %s", w.seed, w.steps, w.failed)
	}
}
