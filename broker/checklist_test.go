package broker

import (
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
	sources := map[string]string{}
	for _, m := range named {
		room, name := m[1], m[2]
		if _, ok := sources[room]; !ok {
			files, _ := filepath.Glob(filepath.Join("..", room, "*_test.go"))
			var all strings.Builder
			for _, f := range files {
				b, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				all.Write(b)
			}
			sources[room] = all.String()
		}
		if !strings.Contains(sources[room], "func "+name+"(") {
			t.Errorf("%s.%s does not exist", room, name)
		}
	}
	for i := 1; i <= 49; i++ {
		if !regexp.MustCompile(`(?m)^\| ` + strconv.Itoa(i) + ` \|`).Match(text) {
			t.Errorf("item %d is not there", i)
		}
	}
}
