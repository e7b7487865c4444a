package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	functionLinesMax = 70
	fileLinesMax     = 800
)

// goFiles lists the project's Go files, nested modules left out.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "testdata" || e.Name() == "clients" || e.Name() == "tools"):
			return filepath.SkipDir
		case strings.HasSuffix(path, ".go"):
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 100 {
		t.Fatalf("found only %d files", len(files))
	}
	return files
}

func parse(t *testing.T, fset *token.FileSet, path string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(fset, path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFunctionsAndFilesStayShort holds the house rule: a function has at most
// 70 lines unless its comment says `Long:` and why, a file at most 800.
func TestFunctionsAndFilesStayShort(t *testing.T) {
	fset := token.NewFileSet()
	for _, path := range goFiles(t) {
		f := parse(t, fset, path)
		if n := fset.Position(f.End()).Line; n > fileLinesMax {
			t.Errorf("%s has %d lines: split it along its ideas", path, n)
		}
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || strings.Contains(fn.Doc.Text(), "Long:") {
				continue
			}
			if n := fset.Position(fn.End()).Line - fset.Position(fn.Pos()).Line + 1; n > functionLinesMax {
				t.Errorf("%s: %s has %d lines", fset.Position(fn.Pos()), fn.Name.Name, n)
			}
		}
	}
}

// TestTestsDoNotSleep: tests wait for conditions, not for time. Where a
// synctest bubble gives the time, sleeping is free and allowed.
func TestTestsDoNotSleep(t *testing.T) {
	fset := token.NewFileSet()
	for _, path := range goFiles(t) {
		if !strings.HasSuffix(path, "_test.go") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "testing/synctest") {
			continue
		}
		ast.Inspect(parse(t, fset, path), func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || sel.Sel.Name != "Sleep" {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
				t.Errorf("%s sleeps", fset.Position(call.Pos()))
			}
			return true
		})
	}
}

// TestSentinelsSayWhenTheyAreReturned: every exported error of an errors.go has
// a comment of the form "ErrX is returned when …".
func TestSentinelsSayWhenTheyAreReturned(t *testing.T) {
	fset := token.NewFileSet()
	seen := 0
	for _, path := range goFiles(t) {
		if filepath.Base(path) != "errors.go" {
			continue
		}
		for _, d := range parse(t, fset, path).Decls {
			gen, ok := d.(*ast.GenDecl)
			if !ok || gen.Tok != token.VAR {
				continue
			}
			for _, spec := range gen.Specs {
				vs := spec.(*ast.ValueSpec)
				doc := vs.Doc.Text()
				if doc == "" && len(gen.Specs) == 1 {
					doc = gen.Doc.Text()
				}
				for _, name := range vs.Names {
					if !strings.HasPrefix(name.Name, "Err") {
						continue
					}
					seen++
					if !strings.Contains(doc, name.Name+" is ") {
						t.Errorf("%s: %s does not say when it is returned", fset.Position(name.Pos()), name.Name)
					}
				}
			}
		}
	}
	if seen < 50 {
		t.Fatalf("saw only %d sentinels", seen)
	}
}
