package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestSettingsComeFromFileThenEnvironmentThenFlags(t *testing.T) {
	path := filepath.Join(t.TempDir(), "varve.yaml")
	file := "num.partitions: 3\nlog:\n  retention.ms: 1000\n  dirs: [/a, /b]\ndelete.topic.enable: true\nvarve.tier.store: file:///a\n"
	if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	s := settings{}
	if err := s.addFile(path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.addEnvironment([]string{"VARVE_TIER_STORE=file:///b", "VARVE_NUM_PARTITIONS=4", "VARVE_BOOTSTRAP=x:1"}); err != nil {
		t.Fatal(err)
	}
	if err := s.addPairs([]string{"num.partitions=5"}); err != nil {
		t.Fatal(err)
	}
	want := settings{"num.partitions": "5", "log.retention.ms": "1000", "log.dirs": "/a,/b", "delete.topic.enable": "true", "varve.tier.store": "file:///b"}
	if !maps.Equal(s, want) {
		t.Fatalf("got %v\nwant %v", s, want)
	}
}

func TestUnknownSettingNamesItsSourceAndTheNearestName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "varve.yaml")
	if err := os.WriteFile(path, []byte("num.partition: 3\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for source, err := range map[string]error{
		path:                  settings{}.addFile(path),
		"VARVE_NUM_PARTITION": environmentError("VARVE_NUM_PARTITION=3"),
		"--set":               settings{}.addPairs([]string{"num.partition=3"}),
	} {
		if err == nil || !strings.Contains(err.Error(), source) || !strings.Contains(err.Error(), "num.partitions") {
			t.Errorf("from %s: %v", source, err)
		}
	}
	if err := (settings{}).addPairs([]string{"num.partitions"}); err == nil {
		t.Error("--set without a value is no error")
	}
	if err := (settings{}).addFile(filepath.Join(t.TempDir(), "none.yaml")); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("absent file: %v", err)
	}
}

func environmentError(environ ...string) error {
	_, err := settings{}.addEnvironment(environ)
	return err
}

func TestVariablesOfKubernetesAndTheTestsAreLeftOutAndNamed(t *testing.T) {
	others := []string{
		"VARVE_CLIENTS", "VARVE_EVENTS", "VARVE_LONG", "VARVE_PORT", "VARVE_PORT_9092_TCP", "VARVE_PORT_9092_TCP_ADDR",
		"VARVE_PORT_9092_TCP_PORT", "VARVE_PORT_9092_TCP_PROTO", "VARVE_S3_TEST", "VARVE_SERVICE_HOST", "VARVE_SERVICE_PORT",
		"VARVE_SERVICE_PORT_HTTP", "VARVE_WEST_SERVICE_HOST",
	}
	environ := []string{"VARVE_NUM_PARTITIONS=4"}
	for _, name := range others {
		environ = append(environ, name+"=x")
	}
	s := settings{}
	ignored, err := s.addEnvironment(environ)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(ignored, others) {
		t.Errorf("left out %v, want %v", ignored, others)
	}
	if want := (settings{"num.partitions": "4"}); !maps.Equal(s, want) {
		t.Errorf("got %v, want %v", s, want)
	}
}

func TestAllUnknownSettingsAreNamedAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "varve.yaml")
	if err := os.WriteFile(path, []byte("num.partition: 3\nlog.dir.s: /a\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for source, c := range map[string]struct {
		err   error
		names []string
	}{
		"file":        {settings{}.addFile(path), []string{"num.partition ", "log.dir.s"}},
		"environment": {environmentError("VARVE_NUM_PARTITION=3", "VARVE_FROB=1"), []string{"VARVE_NUM_PARTITION", "VARVE_FROB"}},
		"--set":       {settings{}.addPairs([]string{"num.partition=3", "frob=1", "bare"}), []string{"num.partition ", "frob", "bare"}},
	} {
		for _, name := range c.names {
			if c.err == nil || !strings.Contains(c.err.Error(), name) {
				t.Errorf("%s: %q is not named: %v", source, name, c.err)
			}
		}
	}
}

// A variable that a test reads must not keep a node from starting.
func TestEveryVariableOfTheProjectIsKnown(t *testing.T) {
	read := regexp.MustCompile(`(?:Getenv|LookupEnv)\("(VARVE_[A-Z0-9_]+)"\)`)
	found := 0
	err := filepath.WalkDir("../..", func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range read.FindAllSubmatch(source, -1) {
			found++
			if name := string(m[1]); !notSettings[name] && !testVariables[name] {
				t.Errorf("%s reads %s, which serve refuses", path, name)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d variables found: %v", found, err)
	}
}
