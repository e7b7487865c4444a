package sim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	for _, list := range [][]focused{replicationMutants, tieringMutants, deletionMutants, membershipMutants, damageMutants} {
		for _, f := range list {
			for _, m := range f.mutants {
				all = append(all, underTest{m, f.test})
			}
		}
	}
	return all
}

// TestEveryMutantTurnsItsTestRed runs a test with each mutant in place of its
// line. Without VARVE_LONG=1 it only sees to it that each line is still there to
// be broken.
func TestEveryMutantTurnsItsTestRed(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	beds, dir := map[string]*bed{}, t.TempDir()
	for i, m := range allMutants() {
		n := i + 1
		t.Run(m.name, func(t *testing.T) {
			m.check(t, root)
			if os.Getenv("VARVE_LONG") == "" {
				return
			}
			folder, _ := m.command()
			b := beds[folder]
			if b == nil {
				b = newBed(folder)
				beds[folder] = b
			}
			b.mutants[n] = m
			t.Parallel() // goes on when every bed has all of its mutants
			b.once.Do(func() { b.program, b.err = b.build(root, filepath.Join(dir, strings.ReplaceAll(folder, "/", "-"))) })
			if b.err != nil {
				t.Fatal(b.err)
			}
			program := b.program
			if b.alone[n] {
				program = m.build(t, root)
			}
			out, err := m.run(t, root, program, n)
			if err == nil {
				t.Fatalf("nothing noticed it; rule %s, %s:\n%s", m.rule, m.file, out)
			}
			found, err := m.verdict(out)
			if err != nil {
				t.Fatalf("%v:\n%s", err, out)
			}
			t.Logf("%s: %s", m.rule, found)
		})
	}
}

var (
	// errNotRed is returned when a test fails, and not by a broken rule.
	errNotRed = errors.New("it fails, and not by a broken rule")

	// errOutOfTime is returned when a test is out of time: the machine may have been too busy, and nothing is said of the
	// mutant. One that has its test wait for ever wants a test that gives up by itself.
	errOutOfTime = errors.New("the test was out of time, and found nothing out")
)

// verdict is the line by which the test says that it has found the mutant.
func (m underTest) verdict(out string) (string, error) {
	marks := []string{": seed "} // of a simulation
	if m.test != "" {
		marks = []string{"--- FAIL: " + m.focus() + " ", "panic: "}
	}
	for line := range strings.Lines(out) {
		if !slices.ContainsFunc(marks, func(mark string) bool { return strings.Contains(line, mark) }) {
			continue
		}
		if strings.Contains(line, "panic: test timed out") {
			return "", errOutOfTime
		}
		return strings.TrimSpace(line), nil
	}
	return "", errNotRed
}

// in puts the mutant into its file.
func (m mutant) in(text string) string { return strings.Replace(text, m.line, m.bad, 1) }

// check sees to it that the line is there once.
func (m mutant) check(t *testing.T, root string) {
	text, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.line); n != 1 {
		t.Fatalf("%s has the line %d times: %s", m.file, n, m.line)
	}
}

// build builds the mutant's test with nothing else in it.
func (m underTest) build(t *testing.T, root string) (program string) {
	file := filepath.Join(root, m.file)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	broken := filepath.Join(dir, "mutant.go")
	if err := os.WriteFile(broken, []byte(m.in(string(text))), 0o600); err != nil {
		t.Fatal(err)
	}
	folder, _ := m.command()
	program = filepath.Join(dir, "mutant.test")
	if err := buildWith(root, folder, map[string]string{file: broken}, program); err != nil {
		t.Fatal(err)
	}
	return program
}

// run runs the mutant's test.
func (m underTest) run(t *testing.T, root, program string, n int) (string, error) {
	folder, args := m.command()
	test := exec.CommandContext(t.Context(), program, args...)
	test.Dir = filepath.Join(root, folder)
	// A test that panics or is out of time leaves its directories behind: they are this test's, which removes them.
	test.Env = append(test.Environ(), "TMPDIR="+t.TempDir(), fmt.Sprintf("%s=%d", mutantVariable, n))
	out, err := test.CombinedOutput()
	return string(out), err
}

// clusterFolder has the cluster's simulation.
const clusterFolder = "integration/sim"

// pattern is what -test.run is told.
func (m underTest) pattern() string {
	switch {
	case m.test != "":
		return "^" + m.focus() + "$"
	case strings.HasPrefix(m.file, "coordinator/"):
		return "SimulatedCoordinators"
	}
	return "SimulatedCluster"
}

// focus is the name of a focused test in its package.
func (m underTest) focus() string { return m.test[strings.LastIndexByte(m.test, '.')+1:] }

// command is the folder of the test's package, and what its binary is told. A focused test that waits for what a broken rule keeps
// from it gives up after a minute, and has more than that.
func (m underTest) command() (folder string, args []string) {
	args = []string{"-test.run", m.pattern()}
	switch {
	case m.test != "":
		args = append(args, "-test.failfast", "-test.timeout=4m")
		folder = strings.TrimSuffix(m.test, "."+m.focus())
		if folder == "meta" {
			args = append(args, "-rapid.nofailfile") // what a mutant has found is not to be looked for again
		}
		return folder, args
	case strings.HasPrefix(m.file, "coordinator/"):
		return "coordinator", append(args, "-sim.steps", "1000000")
	}
	worlds, steps := "local", "8000000"
	if strings.HasPrefix(m.file, "tier/") {
		worlds, steps = "tiered", "2000000"
	}
	return clusterFolder, append(args, "-sim.steps", steps, "-sim.explain=false", "-sim.worlds="+worlds)
}

func TestBusyMachineTurnsNoTestRed(t *testing.T) {
	m := underTest{mutant{name: "of nothing"}, "hot.TestA"}
	for _, c := range []struct {
		out, found string
		err        error
	}{
		{"--- FAIL: TestA (0.01s)\n", "--- FAIL: TestA (0.01s)", nil},
		{"panic: at the disk\n", "panic: at the disk", nil},
		{"panic: test timed out after 4m0s\n\trunning tests:\n\t\tTestA (4m0s)\n", "", errOutOfTime},
		{"signal: killed\n", "", errNotRed},
	} {
		if found, err := m.verdict(c.out); found != c.found || err != c.err {
			t.Errorf("of %q it says %q, %v", c.out, found, err)
		}
	}
}
