package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// mutantVariable tells a build which of its mutants is on, by number; without it, none is.
const mutantVariable = "VARVE_MUTANT"

// bed is one build of a package's tests with many mutants in it, all of them
// off: a build takes longer than most of the tests. Each function that mutants
// break is in it as it is and once as each mutant has it, and calls the one
// that is on.
type bed struct {
	folder  string // of the tests
	mutants map[int]underTest

	once    sync.Once // sets the following
	program string
	err     error
	alone   map[int]bool // those that break something else than one function's body: each takes a build of its own
}

func newBed(folder string) *bed {
	return &bed{folder: folder, mutants: map[int]underTest{}, alone: map[int]bool{}}
}

// build builds the tests into dir, and runs them once with every mutant off.
func (b *bed) build(root, dir string) (program string, err error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	files := map[string][]int{}
	for n, m := range b.mutants {
		files[m.file] = append(files[m.file], n)
	}
	replace := map[string]string{}
	put := func(name, text string) error {
		to := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		replace[filepath.Join(root, name)] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	for file, numbers := range files {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		slices.Sort(numbers)
		combined, name, err := b.combine(string(text), numbers)
		if err != nil {
			return "", fmt.Errorf("%s: %w", file, err)
		}
		own := "package " + name + "\n\nimport (\n\t\"os\"\n\t\"strconv\"\n)\n\nvar mutantOn, _ = strconv.Atoi(os.Getenv(\"" + mutantVariable + "\"))\n"
		if err := errors.Join(put(file, combined), put(path.Join(path.Dir(file), "mutant_on.go"), own)); err != nil {
			return "", err
		}
	}
	program = filepath.Join(dir, "mutants.test")
	if err := buildWith(root, b.folder, replace, program); err != nil {
		return "", err
	}
	args := []string{"-test.run", b.tests(), "-test.timeout=0"}
	if b.folder == "coordinator" || b.folder == clusterFolder {
		args = append(args, "-sim.steps=20000") // what the simulations find is not the question here
	}
	test := exec.Command(program, args...)
	test.Dir = filepath.Join(root, b.folder)
	test.Env = append(test.Environ(), "TMPDIR="+dir, mutantVariable+"=")
	if out, err := test.CombinedOutput(); err != nil {
		return "", fmt.Errorf("with every mutant off: %w\n%s", err, out)
	}
	return program, nil
}

// tests is what -test.run is told to run what any mutant is run against.
func (b *bed) tests() string {
	var patterns []string
	for _, m := range b.mutants {
		patterns = append(patterns, m.pattern())
	}
	slices.Sort(patterns)
	return strings.Join(slices.Compact(patterns), "|")
}

// buildWith builds a folder's tests with other files in the place of some.
// Without vet, which would look at every room that imports a broken one again.
func buildWith(root, folder string, replace map[string]string, program string) error {
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	if err != nil {
		return err
	}
	config := program + ".json"
	if err := os.WriteFile(config, overlay, 0o600); err != nil {
		return err
	}
	build := exec.Command("go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", config, "-o", program, "./"+folder)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, out)
	}
	return nil
}

// combine gives a file with mutants in it, and its package's name. Those that
// cannot be in it with others are noted.
func (b *bed) combine(text string, numbers []int) (combined, name string, err error) {
	whole, err := parseFunctions(text)
	if err != nil {
		return "", "", err
	}
	forms := map[string]map[int]string{} // of a function, by mutant
	for _, n := range numbers {
		broken, err := parseFunctions(b.mutants[n].in(text))
		if err != nil {
			return "", "", err
		}
		key, ok := whole.differ(broken)
		if !ok {
			b.alone[n] = true
			continue
		}
		if forms[key] == nil {
			forms[key] = map[int]string{}
		}
		forms[key][n] = broken.renamed(key, fmt.Sprint("Mutant", n))
	}
	for _, key := range slices.Backward(whole.order) {
		if forms[key] != nil {
			d := whole.functions[key]
			text = text[:whole.at(d.Pos())] + whole.choice(d, forms[key]) + text[whole.at(d.End()):]
		}
	}
	return text, whole.name, nil
}

// source is a parsed file.
type source struct {
	text      string
	base      token.Pos
	name      string
	order     []string
	functions map[string]*ast.FuncDecl // by receiver and name
}

func parseFunctions(text string) (*source, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	s := &source{text: text, base: f.FileStart, name: f.Name.Name, functions: map[string]*ast.FuncDecl{}}
	for _, d := range f.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok {
			key := fn.Name.Name
			if fn.Recv != nil {
				key = s.of(fn.Recv.List[0].Type) + "." + key
			}
			s.order = append(s.order, key)
			s.functions[key] = fn
		}
	}
	return s, nil
}

func (s *source) at(p token.Pos) int      { return int(p - s.base) }
func (s *source) of(node ast.Node) string { return s.text[s.at(node.Pos()):s.at(node.End())] }

// differ gives the function whose body is all that two files differ in.
func (s *source) differ(broken *source) (key string, ok bool) {
	if !slices.Equal(s.order, broken.order) || len(s.order) != len(s.functions) {
		return "", false
	}
	for _, k := range s.order {
		if s.of(s.functions[k]) != broken.of(broken.functions[k]) {
			if ok {
				return "", false
			}
			key, ok = k, true
		}
	}
	if !ok {
		return "", false
	}
	d, e := s.functions[key], broken.functions[key]
	if d.Type.TypeParams != nil || d.Recv == nil && (key == "init" || key == "main") {
		return "", false
	}
	same := s.text[:s.at(d.Body.Lbrace)] == broken.text[:broken.at(e.Body.Lbrace)] && s.text[s.at(d.End()):] == broken.text[broken.at(e.End()):]
	return key, same
}

// renamed gives a function under a longer name.
func (s *source) renamed(key, suffix string) string {
	d := s.functions[key]
	return s.text[s.at(d.Pos()):s.at(d.Name.End())] + suffix + s.text[s.at(d.Name.End()):s.at(d.End())]
}

// choice gives a function that calls one of its forms, and the forms.
func (s *source) choice(d *ast.FuncDecl, forms map[int]string) string {
	var params, args, results []string
	for _, f := range d.Type.Params.List {
		for range max(1, len(f.Names)) {
			arg := fmt.Sprint("mutantArg", len(args))
			params = append(params, arg+" "+s.of(f.Type))
			if _, ok := f.Type.(*ast.Ellipsis); ok {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	call := d.Name.Name
	head := "func "
	if d.Recv != nil {
		head += "(mutantOf " + s.of(d.Recv.List[0].Type) + ") "
		call = "mutantOf." + call
	}
	back := ""
	if d.Type.Results != nil {
		back = "return "
		for _, f := range d.Type.Results.List {
			for range max(1, len(f.Names)) {
				results = append(results, s.of(f.Type))
			}
		}
	}
	with := "(" + strings.Join(args, ", ") + ")\n"
	var out strings.Builder
	fmt.Fprintf(&out, "%s%s(%s) (%s) {\n\tswitch mutantOn {\n", head, d.Name.Name, strings.Join(params, ", "), strings.Join(results, ", "))
	for n := range forms {
		fmt.Fprintf(&out, "\tcase %d:\n\t\t%s%sMutant%d%s", n, back, call, n, with)
		if back == "" {
			out.WriteString("\t\treturn\n")
		}
	}
	fmt.Fprintf(&out, "\t}\n\t%s%sWhole%s}\n\n", back, call, with)
	key := d.Name.Name
	if d.Recv != nil {
		key = s.of(d.Recv.List[0].Type) + "." + key
	}
	out.WriteString(s.renamed(key, "Whole"))
	for _, form := range forms {
		out.WriteString("\n\n" + form)
	}
	return out.String()
}

func TestMutantsOfAFunctionStandBesideIt(t *testing.T) {
	const text = `package p

func (x *T) f(a, b int, rest ...string) (n int, err error) {
	return a + b, nil
}

func g() { f() }

const c = 5
`
	b := newBed("p")
	b.mutants = map[int]underTest{
		3: {mutant: mutant{line: "a + b", bad: "a - b"}},
		4: {mutant: mutant{line: "{ f() }", bad: "{ }"}},
		5: {mutant: mutant{line: "c = 5", bad: "c = 4"}},
		6: {mutant: mutant{line: "a, b int", bad: "b, a int"}},
	}
	got, name, err := b.combine(text, []int{3, 4, 5, 6})
	if err != nil || name != "p" {
		t.Fatalf("package %s, %v", name, err)
	}
	want := `package p

func (mutantOf *T) f(mutantArg0 int, mutantArg1 int, mutantArg2 ...string) (int, error) {
	switch mutantOn {
	case 3:
		return mutantOf.fMutant3(mutantArg0, mutantArg1, mutantArg2...)
	}
	return mutantOf.fWhole(mutantArg0, mutantArg1, mutantArg2...)
}

func (x *T) fWhole(a, b int, rest ...string) (n int, err error) {
	return a + b, nil
}

func (x *T) fMutant3(a, b int, rest ...string) (n int, err error) {
	return a - b, nil
}

func g() () {
	switch mutantOn {
	case 4:
		gMutant4()
		return
	}
	gWhole()
}

func gWhole() { f() }

func gMutant4() { }

const c = 5
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if !b.alone[5] || !b.alone[6] || len(b.alone) != 2 {
		t.Errorf("alone are %v", b.alone)
	}
}

func TestEveryTestOfABedIsRunWithoutMutants(t *testing.T) {
	b := newBed("coordinator")
	b.mutants = map[int]underTest{
		1: {mutant: mutant{file: "coordinator/txncore.go"}},
		2: {mutant: mutant{file: "coordinator/txncore.go"}, test: "coordinator.TestA"},
		3: {mutant: mutant{file: "hot/append.go"}, test: "coordinator.TestA"},
		4: {mutant: mutant{file: "meta/apply.go"}},
	}
	if got, want := b.tests(), "SimulatedCluster|SimulatedCoordinators|^TestA$"; got != want {
		t.Errorf("runs %s, want %s", got, want)
	}
}
