//go:build linux

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A service manager starts what ends, but not after its time: a process that was
// started after the run would live on, and write where the auditor reads.
func TestNothingIsStartedAfterTheRun(t *testing.T) {
	dir := t.TempDir()
	ends := filepath.Join(dir, "varve")
	if err := os.WriteFile(ends, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	b := &broker{id: 1, dir: dir, binary: ends, spawn: newSpawner(), retired: make(chan struct{})}
	if err := b.start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); len(b.unwanted()) < 2; {
		if time.Now().After(deadline) {
			t.Fatal("what ends is not started again")
		}
		pause(t.Context(), 10*time.Millisecond)
	}
	b.retire()
	b.watching.Wait()
	starts := b.starts
	if err := b.start(); err != nil || b.starts != starts || b.is() != down {
		t.Errorf("started %d times after the end: %v", b.starts-starts, err)
	}
}
