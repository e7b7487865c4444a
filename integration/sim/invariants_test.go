package sim

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The map of the invariants is the section of that name in RELIABILITY.md: tables
// with one line for each rule, its number, its words, its checks and its mutants.
// What is in code (`…`) in the last two columns is looked for:
//
//	folder.TestName   a test of the package there
//	sim:rule          an assertion of this simulator
//	row:name          a row of integration/chaos
//	a mutant's name   in one of the lists of mutants here
//	folder.mutantName a mutant that is a constant of the package there

// ruleNumbers begin the rule that a mutant breaks: "9, T4: …".
var ruleNumbers = regexp.MustCompile(`^T?\d+(, T?\d+)*: `)

// invariant is one line of the map.
type invariant struct {
	id             string
	checks, broken []string
}

func TestEveryInvariantHasACheckAndAMutant(t *testing.T) {
	root := filepath.Join("..", "..")
	lines := invariants(t, root)
	var want []string
	for i := range 37 {
		want = append(want, fmt.Sprint(i+1))
	}
	for i := range 19 {
		want = append(want, fmt.Sprintf("T%d", i+1))
	}
	var have []string
	for _, l := range lines {
		have = append(have, l.id)
	}
	if !slices.Equal(have, want) {
		t.Fatalf("the map has the invariants %v, want %v", have, want)
	}
	f := finder{root: root, mutants: map[string]bool{}, packages: map[string]map[string]bool{}}
	for _, m := range allMutants() {
		if f.mutants[m.name] {
			t.Errorf("two mutants are called %q", m.name)
		}
		f.mutants[m.name] = true
	}
	for _, l := range lines {
		if len(l.checks) == 0 || len(l.broken) == 0 {
			t.Errorf("invariant %s has %d checks and %d mutants", l.id, len(l.checks), len(l.broken))
		}
		for _, name := range l.checks {
			if !f.check(t, name) {
				t.Errorf("invariant %s: there is no check %q", l.id, name)
			}
		}
		for _, name := range l.broken {
			if !f.mutants[name] && !f.constant(t, name) {
				t.Errorf("invariant %s: there is no mutant %q", l.id, name)
			}
		}
	}
	for _, m := range allMutants() {
		for id := range strings.SplitSeq(strings.TrimSuffix(ruleNumbers.FindString(m.rule), ": "), ", ") {
			i := slices.IndexFunc(lines, func(l invariant) bool { return l.id == id })
			if id != "" && (i < 0 || !slices.Contains(lines[i].broken, m.name)) {
				t.Errorf("the mutant %q breaks %q and is not in the map's line %s", m.name, m.rule, id)
			}
		}
		if m.test != "" && !f.check(t, m.test) {
			t.Errorf("the mutant %q names the test %q, which does not exist", m.name, m.test)
		}
	}
}

// invariants reads the map.
func invariants(t *testing.T, root string) []invariant {
	text, err := os.ReadFile(filepath.Join(root, "RELIABILITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Invariants\n")
	if !found {
		t.Fatal("RELIABILITY.md has no section of invariants")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var lines []invariant
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 6 {
			continue
		}
		id := strings.TrimSpace(cells[1])
		if id == "" || strings.HasPrefix(id, "-") {
			continue
		}
		lines = append(lines, invariant{id, inCode(cells[3]), inCode(cells[4])})
	}
	return lines
}

// inCode is what stands between backquotes.
func inCode(cell string) []string {
	var spans []string
	for i, part := range strings.Split(cell, "`") {
		if i%2 == 1 {
			spans = append(spans, part)
		}
	}
	return spans
}

// finder looks for what the map names.
type finder struct {
	root     string
	mutants  map[string]bool
	packages map[string]map[string]bool // what they declare, tests included
}

func (f *finder) check(t *testing.T, name string) bool {
	if rule, ok := strings.CutPrefix(name, "sim:"); ok {
		return f.contains(t, "integration/sim", `.fail("`+rule+`", `)
	}
	if row, ok := strings.CutPrefix(name, "row:"); ok {
		return f.contains(t, "integration/chaos", `{name: "`+row+`", `)
	}
	folder, test, ok := cutLast(name)
	return ok && strings.HasPrefix(test, "Test") && f.declares(t, folder, test)
}

// constant says whether a mutant is one that the code itself has.
func (f *finder) constant(t *testing.T, name string) bool {
	folder, ident, ok := cutLast(name)
	return ok && strings.HasPrefix(ident, "mutant") && f.declares(t, folder, ident)
}

func cutLast(name string) (folder, ident string, ok bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 || strings.ContainsAny(name, " ") {
		return "", "", false
	}
	return name[:i], name[i+1:], true
}

func (f *finder) contains(t *testing.T, folder, text string) bool {
	for _, path := range f.files(t, folder) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), text) {
			return true
		}
	}
	return false
}

func (f *finder) files(t *testing.T, folder string) []string {
	paths, err := filepath.Glob(filepath.Join(f.root, filepath.FromSlash(folder), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// declares says whether a package has a function or a constant of that name.
func (f *finder) declares(t *testing.T, folder, name string) bool {
	names := f.packages[folder]
	if names == nil {
		names = map[string]bool{}
		f.packages[folder] = names
		for _, path := range f.files(t, folder) {
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					names[d.Name.Name] = d.Recv == nil
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						if v, ok := spec.(*ast.ValueSpec); ok {
							for _, n := range v.Names {
								names[n.Name] = true
							}
						}
					}
				}
			}
		}
	}
	return names[name]
}
