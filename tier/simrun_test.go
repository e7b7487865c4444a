package tier

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
)

var (
	simSeeds = flag.Int("tier.seeds", 0, "seeds of the tiering simulation; 0 is 30, or 400 with VARVE_LONG=1")
	simSeed  = flag.Uint64("tier.seed", 0, "run this seed of the tiering simulation only")
)

func describe(p *partition) string {
	if p == nil {
		return "not led"
	}
	return fmt.Sprintf("phase %s, epoch %d, remote %+v, log %+v, %d sealed, %d uploads, doubt %t, unsettled %t, suspect %t, collect at %d, worst %+v",
		p.phase(), p.epoch, p.remote, p.log.LogOffsets, len(p.log.sealed), len(p.uploads), p.doubt, p.unsettled,
		p.suspect, p.collectAt, p.watch.worst())
}

// simulate runs one seed and returns what was violated, how many uploads reached the
// store, and how many damaged objects were put anew.
func simulate(t *testing.T, seed uint64, broken mutant, actions int) (violations []string, uploads, mended int) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, seed, broken)
		defer s.close()
		s.run(actions)
		violations, uploads, mended = s.violations, s.uploads, s.damage.mended
	})
	return violations, uploads, mended
}

func TestSimulatedTieringKeepsItsPromises(t *testing.T) {
	n := *simSeeds
	switch {
	case n > 0:
	case os.Getenv("VARVE_LONG") != "":
		n = 400
	default:
		n = 30
	}
	seeds := make([]uint64, 0, n)
	for i := range n {
		seeds = append(seeds, uint64(i)+1)
	}
	if *simSeed != 0 {
		seeds = []uint64{*simSeed}
	}
	total, totalMended := 0, 0
	for _, seed := range seeds {
		violations, uploads, mended := simulate(t, seed, mutantNone, 1500)
		for _, v := range violations {
			t.Errorf("seed %d: %s", seed, v)
		}
		if t.Failed() {
			t.Fatalf("run again with -tier.seed=%d", seed)
		}
		total, totalMended = total+uploads, totalMended+mended
	}
	t.Logf("%d uploads, %d damaged objects put anew", total, totalMended)
	if len(seeds) > 9 && 2*totalMended < len(seeds) {
		t.Errorf("only %d damaged objects were put anew in %d seeds: the simulation does not reach what it is for", totalMended, len(seeds))
	}
	if total < 50*len(seeds) {
		t.Errorf("only %d uploads in %d seeds: the simulation does not reach what it is for", total, len(seeds))
	}
}

// TestSimulationCatchesBrokenBuilds runs deliberately broken cores. Each must
// violate a promise within a few seeds, or the checks above prove nothing.
func TestSimulationCatchesBrokenBuilds(t *testing.T) {
	for _, m := range []struct {
		broken mutant
		name   string
	}{
		{mutantCommitBeforeUpload, "commit before upload"},
		{mutantReleaseEarly, "release local data before the commit"},
		{mutantIgnoreEpoch, "ignore the epoch"},
		{mutantDeleteOnUnknown, "delete the object when a commit's outcome is unknown"},
		{mutantNoGrace, "delete without grace"},
		{mutantWallGrace, "take a mark's age from the wall clock"},
		{mutantDoubleCount, "count local and remote bytes twice"},
		{mutantUploadUnstable, "upload above the high watermark"},
		{mutantCollectYoung, "collect objects that may still be committed"},
		{mutantNoCollection, "never collect"},
		{mutantNoSearch, "collect only what is suspected"},
		{mutantStartNotCommitted, "let the log start follow nothing"},
		{mutantMendSound, "put anew what is sound"},
	} {
		t.Run(m.name, func(t *testing.T) {
			for seed := uint64(1); seed <= 40; seed++ {
				if violations, _, _ := simulate(t, seed, m.broken, 1500); len(violations) > 0 {
					t.Logf("seed %d: %s", seed, violations[0])
					return
				}
			}
			t.Error("no seed noticed it")
		})
	}
}
