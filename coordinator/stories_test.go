package coordinator

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryStoryIsInTheListOfRules: STORIES.md names every story once, each with the rule that it tells, and no other.
func TestEveryStoryIsInTheListOfRules(t *testing.T) {
	text, err := os.ReadFile("STORIES.md")
	if err != nil {
		t.Fatal(err)
	}
	var listed, there []string
	for _, m := range regexp.MustCompile(`(?m)^\| (.+) \| ((?:share/)?testdata/\S+) \|$`).FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, m[2])
	}
	for _, dir := range []string{"testdata/core", "testdata/txn", "testdata/share", "share/testdata/stories"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				there = append(there, filepath.ToSlash(path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(listed)
	slices.Sort(there)
	if !slices.Equal(listed, there) {
		t.Errorf("listed are\n  %s\nthere are\n  %s", strings.Join(listed, "\n  "), strings.Join(there, "\n  "))
	}
	files, err := filepath.Glob("../integration/parity/stories_*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories of parity: %v", err)
	}
	parity := ""
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		parity += string(b)
	}
	_, nodes, _ := strings.Cut(string(text), "## Rules that only show at a node")
	names := regexp.MustCompile(`"[^"]+"`).FindAllString(nodes, -1)
	if len(names) == 0 {
		t.Error("no story of parity is named")
	}
	for _, name := range names {
		if !strings.Contains(parity, "{"+name+", ") {
			t.Errorf("there is no story %s in integration/parity", name)
		}
	}
}
