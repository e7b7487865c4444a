package integration

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/varvelog/varve/"

// mayImport is the table of ARCHITECTURE.md: which rooms a room may import.
// Leaves may be imported by anyone and import only leaves.
var mayImport = map[string][]string{
	"cmd":         {"broker", "coordinator", "replica", "tier", "hot", "meta", "ops"},
	"broker":      {"coordinator", "replica", "meta"},
	"coordinator": {"meta"},
	"replica":     {"hot", "tier", "meta"},
	"tier":        {},
	"hot":         {},
	"meta":        {},
	"ops":         {"broker", "coordinator", "replica", "tier", "hot", "meta"},
	"integration": {"cmd", "broker", "coordinator", "replica", "tier", "hot", "meta", "ops"},
}

var leaves = []string{
	"hot/batch", "hot/vfs", "hot/lineage", "replica/isr",
	"tier/objstore", "tier/objstore/objstoretest", "tier/objstore/s3front",
	"meta/topic", "meta/conf", "meta/balance", "meta/boltfile",
	"replica/peer", "coordinator/share", "broker/secure", "broker/secure/securetest", "broker/loglimit", "broker/rate",
}

func TestRoomsImportOnlyWhatTheArchitectureAllows(t *testing.T) {
	cmd := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "../...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	if len(lines) < 5 {
		t.Fatalf("go list found only %d packages", len(lines))
	}
	for _, line := range lines {
		fields := strings.Fields(string(line))
		from := strings.TrimPrefix(fields[0], module)
		room, _, _ := strings.Cut(from, "/")
		allowed, known := mayImport[room]
		if !known {
			t.Errorf("%s: no such room at the top (ARCHITECTURE.md)", from)
			continue
		}
		for _, imported := range fields[1:] {
			to, ours := strings.CutPrefix(imported, module)
			if !ours || slices.Contains(leaves, to) {
				continue
			}
			toRoom, _, _ := strings.Cut(to, "/")
			switch {
			case slices.Contains(leaves, from):
				t.Errorf("leaf %s imports %s, which is no leaf", from, to)
			case toRoom != room && !slices.Contains(allowed, toRoom):
				t.Errorf("%s imports %s: %s may import %v and leaves only", from, to, room, allowed)
			}
		}
	}
}
