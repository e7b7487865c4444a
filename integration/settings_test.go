package integration

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/varvelog/varve/meta/conf"
)

// withoutEffect is what the text of a setting says that Kafka has and that nothing here reads.
const withoutEffect = "accepted without effect"

// groupLimits are the broker settings that bound a group's; package meta puts their names together.
var groupLimits = regexp.MustCompile(`^group\.(consumer|share|streams)\.(min|max)\.(.+)$`)

// Users must not be misled: a setting is read by something, or its text says that it is not.
func TestEverySettingIsReadOrSaysThatItIsNot(t *testing.T) {
	read := readSettings(t)
	names := map[string]bool{} // of broker settings that give the default of another, which is read
	check := func(kind string, defs []conf.Def, alive func(conf.Def) bool) {
		for _, d := range defs {
			says := strings.Contains(strings.ToLower(d.Doc), withoutEffect)
			if _, err := d.Parse("another"); err != nil && strings.HasSuffix(d.Doc, "others are refused.") {
				continue // it has one value
			}
			switch used := alive(d); {
			case used && says:
				t.Errorf("%s setting %s has an effect, and its text says that it has none: %s", kind, d.Name, d.Doc)
			case !used && !says:
				t.Errorf("%s setting %s is read by nothing, and its text does not say %q: %s", kind, d.Name, withoutEffect, d.Doc)
			}
		}
	}
	topics := conf.TopicDefs()
	groups := conf.GroupDefs()
	for _, d := range topics {
		if !strings.Contains(d.Doc, withoutEffect) {
			for _, s := range d.Synonyms {
				names[s.Name] = true
			}
		}
	}
	limited := map[string]bool{"group.streams.standby.replicas": true}
	for _, d := range groups {
		for _, s := range d.Synonyms {
			names[s.Name], limited[s.Name] = true, true
		}
		if d.Synonym != "" {
			names[d.Synonym], limited[d.Synonym] = true, true
		}
	}
	check("topic", topics, func(d conf.Def) bool { return read[d.Name] })
	check("broker", conf.BrokerDefs(), func(d conf.Def) bool {
		if m := groupLimits.FindStringSubmatch(d.Name); m != nil && limited["group."+m[1]+"."+m[3]] {
			return true
		}
		return read[d.Name] || names[d.Name]
	})
	check("group", groups, func(d conf.Def) bool { return read[d.Name] })
}

// readSettings are the names of settings that code outside of tests reads: by name; or as a field of conf.Broker or
// conf.Topic, which the parser fills and something else uses.
func readSettings(t *testing.T) map[string]bool {
	t.Helper()
	s := settingReads{names: map[string]bool{}, uses: map[string]bool{}, fills: map[string][]string{}}
	root := ".."
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "integration" || entry.Name() == "testdata"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, "_table.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			s.declaration(d, file.Name.Name == "conf")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for field, names := range s.fills {
		for _, name := range names {
			s.names[name] = s.names[name] || s.uses[field]
		}
	}
	return s.names
}

type settingReads struct {
	names map[string]bool     // read by name
	uses  map[string]bool     // fields that something selects
	fills map[string][]string // by field: the settings it is filled from
}

func (s *settingReads) declaration(d ast.Decl, parser bool) {
	f, ok := d.(*ast.FuncDecl)
	filling := ok && parser && strings.HasPrefix(f.Name.Name, "fill")
	// Rules between settings are no use of them.
	if ok && parser && f.Name.Name == "checkLimits" {
		return
	}
	var visit func(ast.Node) bool
	visit = func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			if x, ok := n.Lhs[0].(*ast.SelectorExpr); ok && filling {
				s.fill(x.Sel.Name, n.Rhs[0])
				return false
			}
		case *ast.KeyValueExpr:
			if x, ok := n.Key.(*ast.Ident); ok && filling {
				s.fill(x.Name, n.Value)
				return false
			}
			// A name as a key stands in a list of settings, which says nothing of what the setting does.
			if _, ok := n.Key.(*ast.BasicLit); ok {
				ast.Inspect(n.Value, visit)
				return false
			}
		case *ast.SelectorExpr:
			if !filling {
				s.uses[n.Sel.Name] = true
			}
		case *ast.BasicLit:
			if name, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				s.names[name] = true
			}
		}
		return true
	}
	ast.Inspect(d, visit)
}

// fill notes what a field is filled from.
func (s *settingReads) fill(field string, from ast.Expr) {
	ast.Inspect(from, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if name, err := strconv.Unquote(lit.Value); err == nil {
				s.fills[field] = append(s.fills[field], name)
			}
		}
		return true
	})
}
