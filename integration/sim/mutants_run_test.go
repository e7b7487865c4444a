package sim

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// focused are the mutants that one test notices, by its name.
type focused struct {
	test    string // the package's folder, and after a dot the test
	mutants []mutant
}

// underTest is a mutant with the test that has to turn red, "" for a simulation.
type underTest struct {
	mutant
	test string
}

// allMutants are the mutants of all lists.
func allMutants() []underTest {
	var all []underTest
	for _, m := range simulated {
		all = append(all, underTest{mutant: m})
	}
	for _, list := range [][]focused{replicationMutants, tieringMutants, deletionMutants, membershipMutants} {
		for _, f := range list {
			for _, m := range f.mutants {
				all = append(all, underTest{m, f.test})
			}
		}
	}
	return all
}

// TestEveryMutantTurnsItsTestRed builds a test with each mutant in place of its
// line and runs it. Without VARVE_LONG=1 it only sees to it that each line is
// still there to be broken. VARVE_MUTANTS=1/2 runs every second of those that a
// focused test notices, 2/2 the others.
func TestEveryMutantTurnsItsTestRed(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	part := chosen(t)
	for i, m := range allMutants() {
		t.Run(m.name, func(t *testing.T) {
			overlay := m.overlay(t, root)
			if os.Getenv("VARVE_LONG") == "" || m.test != "" && !part(i) {
				return
			}
			t.Parallel()
			out, err := m.run(t, root, overlay)
			if err == nil {
				t.Fatalf("nothing noticed it; rule %s, %s:\n%s", m.rule, m.file, out)
			}
			marks := []string{": seed "} // of a simulation
			if m.test != "" {
				marks = []string{fmt.Sprintf("--- FAIL: %s ", m.test[strings.LastIndexByte(m.test, '.')+1:]), "panic: "}
			}
			verdict := ""
			for line := range strings.Lines(out) {
				if slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(line, mark) }) {
					verdict = strings.TrimSpace(line)
					break
				}
			}
			if verdict == "" {
				t.Fatalf("it fails, and not by a broken rule:\n%s", out)
			}
			t.Logf("%s: %s", m.rule, verdict)
		})
	}
}

// chosen reads VARVE_MUTANTS: which part of the focused mutants is run.
func chosen(t *testing.T) func(i int) bool {
	text := os.Getenv("VARVE_MUTANTS")
	if text == "" {
		return func(int) bool { return true }
	}
	var part, parts int
	if _, err := fmt.Sscanf(text, "%d/%d", &part, &parts); err != nil || part < 1 || part > parts {
		t.Fatalf("VARVE_MUTANTS is %q, want a part such as 1/2", text)
	}
	return func(i int) bool { return i%parts == part-1 }
}

// overlay writes the mutant's file, and what tells go of it.
func (m mutant) overlay(t *testing.T, root string) string {
	path := filepath.Join(root, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.line); n != 1 {
		t.Fatalf("%s has the line %d times: %s", m.file, n, m.line)
	}
	dir := t.TempDir()
	broken := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(broken, []byte(strings.Replace(string(text), m.line, m.bad, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: broken}})
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(config, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return config
}

// run builds the mutant's test and runs it.
func (m underTest) run(t *testing.T, root, overlay string) (string, error) {
	where, args := m.command()
	binary := filepath.Join(filepath.Dir(overlay), "mutant.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, "./"+where)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	test := exec.CommandContext(t.Context(), binary, args...)
	test.Dir = filepath.Join(root, where)
	// A test that panics or is out of time leaves its directories behind: they are this test's, which removes them.
	test.Env = append(test.Environ(), "TMPDIR="+filepath.Dir(overlay))
	out, err := test.CombinedOutput()
	return string(out), err
}

// command is the folder of the test's package, and what its binary is told. Who
// steps over a broken rule may well wait for ever: a focused test has a minute.
func (m underTest) command() (folder string, args []string) {
	switch {
	case m.test != "":
		at := strings.LastIndexByte(m.test, '.')
		args = []string{"-test.run", "^" + m.test[at+1:] + "$", "-test.failfast", "-test.timeout=1m"}
		if m.test[:at] == "meta" {
			args = append(args, "-rapid.nofailfile") // what a mutant has found is not to be looked for again
		}
		return m.test[:at], args
	case strings.HasPrefix(m.file, "coordinator/"):
		return "coordinator", []string{"-test.run", "SimulatedCoordinators", "-sim.steps", "1000000"}
	}
	worlds, steps := "local", "8000000"
	if strings.HasPrefix(m.file, "tier/") {
		worlds, steps = "tiered", "2000000"
	}
	return path.Join("integration", "sim"), []string{"-test.run", "SimulatedCluster", "-sim.steps", steps, "-sim.explain=false", "-sim.worlds=" + worlds}
}
