package main

import (
	"maps"
	"os"
	"path/filepath"
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
	if err := s.addEnvironment([]string{"VARVE_TIER_STORE=file:///b", "VARVE_NUM_PARTITIONS=4", "VARVE_BOOTSTRAP=x:1"}); err != nil {
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
		"VARVE_NUM_PARTITION": settings{}.addEnvironment([]string{"VARVE_NUM_PARTITION=3"}),
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
