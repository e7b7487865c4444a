package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestASweepTakesDeadDemosOnly(t *testing.T) {
	temp := t.TempDir()
	living, remove, err := demoDir(temp)
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(temp, demoDirPrefix+"dead")
	fresh := filepath.Join(temp, demoDirPrefix+"fresh")
	strange := filepath.Join(temp, demoDirPrefix+"strange") // no lock file: somebody else's
	now := time.Now().Add(time.Minute)
	for dir, locked := range map[string]bool{dead: true, fresh: true, strange: false} {
		if err := os.MkdirAll(filepath.Join(dir, "bucket"), 0o755); err != nil {
			t.Fatal(err)
		}
		if locked {
			if err := os.WriteFile(filepath.Join(dir, demoLock), nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chtimes(filepath.Join(fresh, demoLock), now, now); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(temp, filepath.Join(temp, demoDirPrefix+"link")); err != nil {
		t.Fatal(err)
	}
	if swept := sweepDemos(temp, now); !slices.Equal(swept, []string{dead}) {
		t.Errorf("swept %v, want %s", swept, dead)
	}
	for _, dir := range []string{living, fresh, strange} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(living); !os.IsNotExist(err) {
		t.Errorf("the demo's directory stays: %v", err)
	}
}

func TestHintsNameTheProgramAsItWasStarted(t *testing.T) {
	for arg0, want := range map[string]string{
		"varve":                                 "varve",
		"./varve":                               "./varve",
		"/a dir/varve":                          `"/a dir/varve"`,
		"/tmp/go-build140394769/b001/exe/varve": "go run ./cmd/varve",
		"/home/a/.cache/go-build/98/983e00d0d77c931493e77de3fbef29b89dbc285d2ee49d27dff6b9e3038cd276-d/varve": "go run ./cmd/varve",
	} {
		if got := invocation(arg0); got != want {
			t.Errorf("%s: %s, want %s", arg0, got, want)
		}
	}
}
