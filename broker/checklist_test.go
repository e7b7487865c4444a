package broker

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestChecklistNamesRealTests(t *testing.T) {
	text, err := os.ReadFile("CHECKLIST.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z/]+)\\.(Test\\w+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 60 {
		t.Fatalf("only %d tests are named", len(named))
	}
	sources := map[string]map[string]*ast.FuncDecl{}
	for _, m := range named {
		room, name := m[1], m[2]
		if _, ok := sources[room]; !ok {
			sources[room] = testsOf(t, filepath.Join("..", room))
		}
		fn := sources[room][name]
		if fn == nil {
			t.Errorf("%s.%s does not exist", room, name)
		} else if why := asserts(fn); why != "" {
			t.Errorf("%s.%s %s", room, name, why)
		}
	}
	for i := 1; i <= 49; i++ {
		if !regexp.MustCompile(`(?m)^\| ` + strconv.Itoa(i) + ` \|`).Match(text) {
			t.Errorf("item %d is not there", i)
		}
	}
}

// testsOf parses the tests of a room.
func testsOf(t *testing.T, dir string) map[string]*ast.FuncDecl {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*ast.FuncDecl{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil {
				found[fn.Name.Name] = fn
			}
		}
	}
	return found
}

// asserts is empty for a test that does something and is not skipped whatever
// the machine.
func asserts(fn *ast.FuncDecl) string {
	if len(fn.Body.List) == 0 {
		return "is empty"
	}
	for _, s := range fn.Body.List {
		if e, ok := s.(*ast.ExprStmt); ok {
			if call, ok := e.X.(*ast.CallExpr); ok {
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && strings.HasPrefix(sel.Sel.Name, "Skip") {
					return "is always skipped"
				}
			}
		}
	}
	return ""
}
